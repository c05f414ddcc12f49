"""What is in private rows stops no run and changes no public word of it: neighbours, side by side."""

import json
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from tellers import Binary, Budget, GNMax, PateClassifier, PateMultilabelClassifier
from tellers.cli import main
from tellers.privacy import Sealed
from tellers.runs import Queries, RepeatedFitWarning

N_TEACHERS = 12
SETTINGS = """
seed = 7
[data]
name = "files"
private = "private.csv"
public = "public.csv"
test = "test.csv"
{answers}
[partition]
n_teachers = 12
[teachers]
model = "{model}"
n_jobs = 1
{teachers}
[mechanism]
{mechanism}
[budget]
epsilon = 1000.0
delta = 1e-5
[queries]
n_queries = 20
[student]
model = "naive_bayes"
"""
ANSWERS = {
    False: ('target = "back"\nclasses = ["no", "yes"]', 'name = "gnmax"\nsigma = 1.0'),
    True: ('[labels]\nnames = ["back", "late"]', 'name = "binary"\nsigma = 1.0'),
}


def write_tables(folder, *, many, spoilt):
    """Write tables on which all teachers agree; in the spoilt one no tree takes a row: 1e300 is too large."""
    rng = np.random.default_rng(7)
    for name, n in (("private", 240), ("public", 40), ("test", 40)):
        back = np.arange(n) % 2
        rows = rng.normal(size=(n, 2)) * 0.1 + back[:, None] * 10
        if name == "private" and spoilt:
            rows[17] = 1e300
        words = [f"{b},{b}" if many else ("yes" if b else "no") for b in back]
        lines = [f"{a!r},{b!r},{word}" for (a, b), word in zip(rows.tolist(), words)]
        head = "a,b,back,late" if many else "a,b,back"
        (folder / f"{name}.csv").write_text("\n".join([head, *lines]) + "\n")


def run_it(folder, capfd, *, many, spoilt, model="tree", teachers="", shown=False):
    """Return the exit code and all that anybody can see of a run, and its private record."""
    folder.mkdir()
    write_tables(folder, many=many, spoilt=spoilt)
    answers, mechanism = ANSWERS[many]
    (folder / "run.toml").write_text(
        SETTINGS.format(answers=answers, mechanism=mechanism, model=model, teachers=teachers)
    )
    words = ["run", str(folder / "run.toml"), "--out", str(folder / "out"), *([] if shown else ["--json"])]
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with pytest.raises(SystemExit) as ended:
            main(words)
    out, err = (text.replace(str(folder), "...") for text in capfd.readouterr())
    said = [str(one.message) for one in heard]
    if ended.value.code:
        return ended.value.code, out, err, said, None, None
    result = json.loads((folder / "out" / "result.json").read_bytes())
    private = folder / "out" / "private"
    public = sorted(str(path.relative_to(folder)) for path in (folder / "out").rglob("*") if path.is_file())
    public = [name for name in public if "/private/" not in name]
    record = json.loads((private / "record.json").read_bytes())
    return ended.value.code, out, err, said, (timeless(result), public), record


def timeless(result):
    """Return the numbers of a run without the times of day, and how long it took."""
    if isinstance(result, dict):
        kept = {name: timeless(value) for name, value in result.items()}
        return {name: value for name, value in kept.items() if name not in ("seconds", "started", "created")}
    return [timeless(value) for value in result] if isinstance(result, list) else result


@pytest.mark.parametrize("many", [False, True], ids=["classes", "labels"])
def test_a_run_in_which_one_teacher_cannot_learn_looks_like_one_in_which_all_can(tmp_path, capfd, many):
    code, out, err, said, public, record = run_it(tmp_path / "calm", capfd, many=many, spoilt=False)
    again = run_it(tmp_path / "spoilt", capfd, many=many, spoilt=True)
    assert code == again[0] == 0
    assert timeless(json.loads(out)) == timeless(json.loads(again[1]))
    assert err == again[2]
    assert err.count("\n") == 1
    assert ".../out/private/record.json, whether there are any or not" in err
    assert said == again[3] == []
    # Eleven votes of twelve against noise of 1: the same labels, but once in 10^10 runs.
    assert public == again[4]
    assert record == {"copies": {"pool": 0, "test": 0}, "notes": [], "teachers": {"first": {}}}
    assert list(again[5]["teachers"]["first"].values()) == ["ValueError"]
    assert not any(
        path.read_bytes().count(b"1e+300") for path in (tmp_path / "spoilt" / "out").glob("*.json")
    )


def test_what_is_shown_while_a_run_goes_on_is_the_same_too(tmp_path, capfd):
    first, second = (
        run_it(tmp_path / name, capfd, many=False, spoilt=name == "spoilt", shown=True)
        for name in ("serene", "spoilt")
    )
    # The numbers of the outcome are those of `result.json`; the words are the same.
    assert first[1].split() == second[1].split()
    assert first[4] == second[4]


def test_a_wrong_model_is_told_before_any_teacher_is_trained(tmp_path, capfd):
    found = run_it(
        tmp_path / "wrong",
        capfd,
        many=False,
        spoilt=True,
        model="logistic",
        teachers="parameters = {C = -1.0}",
    )
    assert found[0] == 2
    assert "Expected a model that can learn 2 classes" in found[2]
    assert "1e+300" not in found[2]
    assert not list((tmp_path / "wrong" / "out" / "private" / "teachers").glob("*"))


class Picky(ClassifierMixin, BaseEstimator):
    """Learns what a Gaussian model does, but not from large numbers."""

    def fit(self, X, y):
        if X.max() > 1e6:
            raise ValueError(f"the patient with {X.max()} is called Anna")
        warnings.warn("the patient is called Anna", stacklevel=2)
        self.model_ = GaussianNB().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X):
        return self.model_.predict(X)


@pytest.mark.parametrize("many", [False, True], ids=["classes", "labels"])
def test_a_classifier_is_fitted_whatever_the_rows_of_one_teacher_are(many, recwarn, capfd):
    rng = np.random.default_rng(7)
    y = np.arange(240) % 2
    X, pool = rng.normal(size=(240, 2)) * 0.1 + y[:, None] * 10, rng.normal(size=(40, 2)) * 0.1
    pool[::2] += 10
    how = {
        "teacher": Picky(), "student": GaussianNB(), "n_teachers": N_TEACHERS, "random_state": None,
        "budget": Budget(1000.0, 1e-5), "queries": Queries(n_queries=20),
    }  # fmt: skip
    found = []
    for spoilt in (False, True):
        rows = X.copy()
        rows[17] *= 1e8 if spoilt else 1.0
        if many:
            kind = PateMultilabelClassifier(mechanism=Binary(1.0, n_labels=2), **how)
            pate = kind.fit(rows, np.stack([y, 1 - y], axis=1), public=pool)
        else:
            pate = PateClassifier(mechanism=GNMax(1.0), n_classes=2, **how).fit(rows, y, public=pool)
        assert isinstance(pate.troubles_, Sealed)
        assert list(pate.troubles_.reveal().values()) == (["ValueError"] if spoilt else [])
        found.append((pate.predict(pool).tolist(), pate.epsilon_))
        assert b"ValueError" not in pickle.dumps(pate)
    assert found[0] == found[1]
    assert {one.category for one in recwarn.list} <= {RepeatedFitWarning}
    assert capfd.readouterr() == ("", "")
    pate.set_params(teacher=LogisticRegression(C=-1.0))
    with pytest.raises(
        ValueError, match=r"Expected a model that can learn 2 (classes|labels).*'C' parameter"
    ):
        pate.fit(X, np.stack([y, 1 - y], axis=1) if many else y, public=pool)
