"""Public rows that are copies of private ones: counted for the operator alone, or refused."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

from tellers import Binary, Budget, GNMax, PateClassifier, PateMultilabelClassifier
from tellers.data.dataset import count_copies, row_hashes
from tellers.privacy import Sealed
from tellers.privacy._rows import KeptRows
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    RepeatedFitWarning,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    run,
)

SECRET = "0.4242424242"


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 3))
def test_rows_that_are_kept_elsewhere_are_counted_without_being_read(seed, n_rows, n_features):
    rng = np.random.default_rng(seed)
    private = rng.integers(-2, 3, size=(n_rows, n_features)).astype(np.float32) * np.float32(0.1)
    public = rng.integers(-2, 3, size=(20, n_features)).astype(np.float32) * np.float32(0.1)

    def load(rows):
        raise AssertionError("read")

    kept = KeptRows(private.shape, row_hashes(private), load)
    assert count_copies(public, kept).reveal() == count_copies(public, private).reveal()
    with pytest.raises(ValueError, match="same features"):
        count_copies(np.zeros((2, n_features + 1)), kept)
    with pytest.raises(ValueError, match="a hash for each"):
        KeptRows((n_rows + 1, n_features), row_hashes(private), load)


def tables(folder, n_copies):
    """Write private and public rows of which so many are copies; return settings that read them."""
    rng = np.random.default_rng(7)
    private, public = rng.normal(size=(240, 3)).round(6), rng.normal(size=(40, 3)).round(6)
    private[0, 0] = float(SECRET)
    public[5 : 5 + n_copies] = private[:n_copies]
    yes = (private[:, 0] > 0).astype(int)
    lines = [f"{a!r},{b!r},{c!r},{'yes' if y else 'no'}" for (a, b, c), y in zip(private.tolist(), yes)]
    (folder / "private.csv").write_text("\n".join(["a,b,c,back", *lines]) + "\n")
    (folder / "public.csv").write_text(
        "\n".join(["a,b,c", *(",".join(map(repr, row)) for row in public.tolist())]) + "\n"
    )
    return RunConfig(
        data=DataConfig(
            name="files", private="private.csv", public="public.csv", target="back", classes=("no", "yes"),
            folder=str(folder),
        ),
        partition=PartitionConfig(n_teachers=20),
        teachers=TeachersConfig(model="naive_bayes", n_jobs=1),
        mechanism=MechanismConfig(name="gnmax", sigma=3.0),
        budget=BudgetConfig(epsilon=20.0, delta=1e-5),
        queries=QueriesConfig(n_queries=20),
        student=StudentConfig(model="naive_bayes"),
    )  # fmt: skip


def record(folder):
    return json.loads((folder / "private" / "record.json").read_bytes())


def test_copies_are_counted_for_the_operator_alone(tmp_path, recwarn, capfd):
    said = []
    for n in (0, 3):
        (tmp_path / str(n)).mkdir()
        result = run(tables(tmp_path / str(n), n), tmp_path / str(n) / "out", warn=said.append)
        assert record(tmp_path / str(n) / "out")["copies"] == {"pool": n, "test": 0}
        assert "copies of private" not in json.dumps(result.as_dict())
        assert "copies of private" not in (tmp_path / str(n) / "out" / "report.html").read_text()
    assert said == []
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")
    place = tmp_path / "3" / "out" / "private" / "record.json"
    assert SECRET not in place.read_text()
    assert place.stat().st_mode & 0o077 == 0


def test_copies_can_be_refused_and_allowed_later(tmp_path):
    config = tables(tmp_path, 2)
    strict = replace(config, data=replace(config.data, overlap="refuse"))
    with pytest.raises(ValueError, match=r"data\.overlap: Expected public rows .* says how many") as refused:
        run(strict, tmp_path / "out")
    assert SECRET not in str(refused.value)
    assert "2" not in str(refused.value).replace(str(tmp_path), "")
    assert record(tmp_path / "out")["copies"] == {"pool": 2, "test": 0}
    assert not (tmp_path / "out" / "private" / "teachers").exists()
    assert not (tmp_path / "out" / "ledger.db").exists()
    assert run(config, tmp_path / "out", resume=True)["queries"]["n_asked"] == 20


def test_without_copies_nothing_is_refused(tmp_path, recwarn):
    config = tables(tmp_path, 0)
    run(replace(config, data=replace(config.data, overlap="refuse")), tmp_path / "out")
    assert not recwarn.list


def test_copies_among_many_labels_and_test_rows(tmp_path):
    rng = np.random.default_rng(7)
    rows = np.column_stack([rng.normal(size=(240, 2)).round(6), rng.integers(2, size=(240, 2))])
    for name, part in (("private", rows[:200]), ("public", rows[200:]), ("test", rows[196:220])):
        cells = [",".join([*map(repr, row[:2]), *(str(int(v)) for v in row[2:])]) for row in part.tolist()]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,rain,wind", *cells]) + "\n")
    config = RunConfig(
        data=DataConfig(
            name="files", private="private.csv", public="public.csv", test="test.csv", folder=str(tmp_path)
        ),
        labels=LabelsConfig(names=("rain", "wind")),
        partition=PartitionConfig(n_teachers=10),
        teachers=TeachersConfig(model="naive_bayes", n_jobs=1),
        mechanism=MechanismConfig(name="binary", sigma=3.0),
        budget=BudgetConfig(epsilon=60.0, delta=1e-4),
        queries=QueriesConfig(n_queries=12),
        student=StudentConfig(model="naive_bayes"),
    )
    run(config, tmp_path / "out")
    assert record(tmp_path / "out")["copies"] == {"pool": 0, "test": 4}


@given(
    private=st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=12),
    public=st.lists(st.tuples(st.integers(-2, 2), st.integers(-2, 2)), min_size=1, max_size=12),
    kinds=st.tuples(*[st.sampled_from(["int64", "int16", "float32", "float64"])] * 2),
)
def test_the_count_is_that_of_comparing_all_with_all(private, public, kinds):
    expected = sum(row in private for row in public)
    found = count_copies(np.array(public, dtype=kinds[0]), np.array(private, dtype=kinds[1]))
    assert found.reveal() == expected


def test_other_features_are_refused():
    with pytest.raises(ValueError, match=r"the same features, got shapes \(2,\) and \(3,\)"):
        count_copies(np.zeros((4, 2)), np.zeros((4, 3)))


@pytest.mark.parametrize(
    ("public", "private", "expected"),
    [
        (np.array([[-np.nan, 1.0]]), np.array([[np.nan, 1.0]]), 1),  # NaNs of other bytes
        (np.float32([[-0.0]]), np.array([[0.0]]), 1),
        (np.array([[2**53 + 1]]), np.array([[2**53]]), 0),  # floats would take them for one number
        (np.array([[2**64 - 1]], dtype=np.uint64), np.array([[-1]]), 0),
        (np.array([[2**63 + 1]], dtype=np.uint64), np.array([[2**63 + 1]], dtype=np.uint64), 1),
        (np.array([[7]], dtype=np.uint64), np.array([[7]]), 1),
        (np.full((1, 3), 0.1, dtype=np.longdouble), np.full((1, 3), 0.1, dtype=np.longdouble), 1),
        (np.array([[0.1]], dtype=">f8"), np.array([[0.1]], dtype="<f4"), 1),
        (np.array([[True]]), np.array([[1]], dtype=np.uint8), 1),
        (np.zeros((0, 2)), np.zeros((3, 2)), 0),
    ],
)
def test_numbers_are_compared_as_numbers(public, private, expected):
    assert count_copies(public, private).reveal() == expected


@pytest.mark.parametrize("kind", [object, str])
def test_text_is_refused_and_not_quoted(kind):
    words = np.array([[SECRET, "b"]], dtype=kind)
    with pytest.raises(TypeError, match="Expected numbers in the private rows") as refused:
        count_copies(np.zeros((1, 2)), words)
    assert SECRET not in str(refused.value)


def test_the_estimators_seal_how_many_copies_there_are(recwarn):
    rng = np.random.default_rng(7)
    X, Y = rng.normal(size=(120, 3)), rng.integers(2, size=(120, 2))
    pool = np.concatenate([rng.normal(size=(18, 3)), X[:2]])
    budget = Budget(epsilon=50.0, delta=1e-3)
    one = PateClassifier(
        teacher=GaussianNB(), student=GaussianNB(), mechanism=GNMax(sigma=1.0), budget=budget, n_teachers=5,
        n_classes=2,
    )  # fmt: skip
    one.fit(X, (X[:, 0] > 0).astype(int), public=pool)
    many = PateMultilabelClassifier(
        teacher=GaussianNB(), student=GaussianNB(), mechanism=Binary(sigma=2.0, n_labels=2), budget=budget,
        n_teachers=5,
    )  # fmt: skip
    many.fit(X, Y, public=pool)
    assert {one.category for one in recwarn.list} == {RepeatedFitWarning}
    for fitted in (one, many):
        assert isinstance(fitted.n_copies_, Sealed)
        assert fitted.n_copies_.reveal() == 2
        assert fitted.troubles_.reveal() == {}
        travelled = pickle.loads(pickle.dumps(fitted))
        np.testing.assert_array_equal(travelled.predict(pool), fitted.predict(pool))
        assert not any(hasattr(travelled, name) for name in ("n_copies_", "troubles_"))
