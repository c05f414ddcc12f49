"""Teachers on disk: whole or not there, and never able to run code."""

import hashlib
import json
import os
import pickle
import stat

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tellers.data import digits
from tellers.privacy import Votes
from tellers.privacy._files import write_whole
from tellers.teachers import read_votes, save_votes, store
from tellers.teachers.models import (
    ConstantTeacher,
    describe_estimator,
    dump_model,
    find_model,
    fingerprint,
    load_model,
    save_teacher,
)

DATA = digits()
X, Y = DATA.X[:150], DATA.y[:150]


class Trap:
    """Unpickled, or built from what a file says, it would leave a mark."""

    def __init__(self, place):
        self.place = str(place)

    def __reduce__(self):
        return os.mkdir, (self.place,)


class Stranger:
    pass


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(max_iter=50),
        RandomForestClassifier(5, random_state=0),
        HistGradientBoostingClassifier(max_iter=2),
        MLPClassifier(max_iter=2, random_state=0),
        make_pipeline(StandardScaler(), DecisionTreeClassifier(random_state=0)),
    ],
    ids=lambda e: type(e).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_model_comes_back_as_it_was(estimator):
    estimator.fit(X, Y)
    np.testing.assert_array_equal(load_model(dump_model(estimator)).predict(X), estimator.predict(X))


def test_unknown_types_are_refused_when_written_and_when_read():
    name = f"{__name__}.Stranger"
    with pytest.raises(TypeError, match=r"Stranger.*trusted="):
        dump_model(Stranger())
    content = dump_model(Stranger(), trusted=[name])
    with pytest.raises(ValueError, match="not loaded"):
        load_model(content)
    assert isinstance(load_model(content, trusted=[name]), Stranger)


def test_a_pickle_is_never_run(tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(ValueError, match="not loaded"):
        load_model(pickle.dumps(Trap(mark)))
    assert not mark.exists()


def test_a_function_named_by_a_file_is_never_called(tmp_path):
    from skops import io

    mark = tmp_path / "mark"
    with pytest.raises(ValueError, match="not loaded"):
        load_model(io.dumps(Trap(mark)))
    assert not mark.exists()


def test_a_teacher_is_finished_only_with_a_fitting_manifest(tmp_path):
    save_teacher(tmp_path, 3, model=ConstantTeacher(1), made_of={"seed": 7})
    model, manifest = tmp_path / "teacher-00003.skops", tmp_path / "teacher-00003.json"
    content, record = model.read_bytes(), manifest.read_bytes()
    assert find_model(tmp_path, "teacher-00003.skops") == (content, {"seed": 7})

    for damaged in (b"", content[:-1], content[:100], content + b"x"):
        model.write_bytes(damaged)
        assert find_model(tmp_path, "teacher-00003.skops") is None
    model.write_bytes(content)
    for damaged in (b"", record[:20], b"[]", b"{}", b"\xff", b'{"sha256": 1, "made_of": {}}'):
        manifest.write_bytes(damaged)
        assert find_model(tmp_path, "teacher-00003.skops") is None
    right = hashlib.sha256(content).hexdigest()
    manifest.write_bytes(json.dumps({"sha256": right, "made_of": 3}).encode())
    assert find_model(tmp_path, "teacher-00003.skops") is None
    manifest.unlink()
    assert find_model(tmp_path, "teacher-00003.skops") is None


def test_the_files_are_the_owners_alone(tmp_path):
    save_teacher(tmp_path, 0, model=ConstantTeacher(1), made_of={})
    assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()} == {0o600}


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch, step):
    write_whole(tmp_path / "note", b"before")

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, step, full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "note", b"after")
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("note", b"before")]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"estimator": LogisticRegression(C=2.0)}, "estimator"),
        ({"estimator": DecisionTreeClassifier()}, "estimator"),
        ({"X": X + 1e-9}, "rows"),
        ({"X": X.astype(np.float32)}, "rows"),
        ({"y": Y[::-1]}, "rows"),
        ({"seed": 8}, "seed"),
    ],
)
def test_a_fingerprint_changes_with_what_it_is_made_of(change, named):
    start = {"estimator": LogisticRegression(), "X": X, "y": Y, "seed": 7}
    one, other = fingerprint(**start), fingerprint(**{**start, **change})
    assert [name for name in one if one[name] != other[name]] == [named]
    assert json.loads(json.dumps(one)) == one


def test_a_description_is_the_same_in_every_process():
    nested = make_pipeline(StandardScaler(), DecisionTreeClassifier(random_state=np.random.RandomState(3)))
    other = make_pipeline(StandardScaler(), DecisionTreeClassifier(random_state=None))
    assert describe_estimator(nested) == describe_estimator(other)
    assert "0x" not in describe_estimator(nested)
    deeper = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=3))
    assert describe_estimator(deeper) != describe_estimator(other)
    long, changed = np.zeros(5000), np.zeros(5000)
    changed[2500] = 1.0  # where repr would put an ellipsis
    assert describe_estimator(with_weights(long)) != describe_estimator(with_weights(changed))


def with_weights(weights):
    stranger = Stranger()
    stranger.weights = weights
    stranger.loss = with_weights
    return stranger


@pytest.mark.parametrize(
    ("n_classes", "dtype"), [(2, np.uint8), (256, np.uint8), (257, np.uint16), (70_000, np.uint32)]
)
def test_ballots_are_stored_compactly_and_read_back(tmp_path, n_classes, dtype):
    ballots = np.random.default_rng(7).integers(0, n_classes, (5, 40))
    path = tmp_path / "votes.npz"
    save_votes(path, Votes.from_ballots(ballots, n_classes=n_classes), truth=ballots[0])
    loaded = read_votes(path, n_classes=n_classes)
    np.testing.assert_array_equal(loaded.votes.ballots, ballots)
    np.testing.assert_array_equal(loaded.truth, ballots[0])
    with np.load(path) as arrays:
        assert arrays["ballots"].dtype == dtype
    assert [file.name for file in tmp_path.iterdir()] == ["votes.npz"]


def test_counts_are_stored_where_ballots_are_not_known(tmp_path):
    counts = np.array([[3, 0, 1], [0, 4, 0]])
    save_votes(tmp_path / "votes.npz", Votes.from_counts(counts, n_teachers=4), answered=[True, False])
    loaded = read_votes(tmp_path / "votes.npz", n_classes=3)
    np.testing.assert_array_equal(loaded.votes.counts, counts)
    np.testing.assert_array_equal(loaded.answered, [True, False])


def test_what_does_not_fit_the_votes_is_not_written(tmp_path):
    votes = Votes.from_ballots([[0, 1], [1, 1]], n_classes=2)
    with pytest.raises(ValueError, match="answered"):
        save_votes(tmp_path / "votes.npz", votes, answered=[True])
    assert list(tmp_path.iterdir()) == []
