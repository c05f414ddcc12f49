"""Ensembles: the same however they were trained, whatever was killed, failed or lay about."""

import hashlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from tellers.data import digits
from tellers.privacy import Sealed
from tellers.teachers import Ensemble, Partition, load_ensemble, partition, train_ensemble
from tellers.teachers import _training as training
from tellers.teachers.ballots import FallbackTeacher
from tellers.teachers.models import ConstantTeacher

from .. import forked

ROOT = Path(__file__).resolve().parents[2]
DATA = digits()
X, Y, PUBLIC = DATA.X[:600], DATA.y[:600], DATA.X[600:800]
PARTS = partition(600, 6, seed=3)
TREE = DecisionTreeClassifier(max_features=5)


def train(estimator=TREE, X=X, Y=Y, parts=PARTS, **options):
    return train_ensemble(estimator, X, Y, parts, **{"n_classes": 10, "seed": 7, "n_jobs": 1, **options})


@cache
def plain():
    """Return the ballots of the ensemble of all defaults, trained once."""
    return train().vote(PUBLIC).ballots


def ballots(ensemble):
    return ensemble.vote(PUBLIC).ballots


class Nearest:
    """A teacher of nobody's library: the class with the nearest mean."""

    def fit(self, X, y):
        self.labels = np.unique(y)
        self.means = np.array([X[y == label].mean(axis=0) for label in self.labels])

    def predict(self, X):
        return self.labels[((X[:, None] - self.means) ** 2).sum(axis=2).argmin(axis=1)]


class Moody(Nearest):
    """Goes wrong on the part whose first row sums to `bad`, the first `n_times`."""

    n_calls = 0

    def __init__(self, bad, how, n_times=99):
        self.bad, self.how, self.n_times = bad, how, n_times

    def fit(self, X, y):
        if X[0].sum() == self.bad and Moody.n_calls < self.n_times:
            Moody.n_calls += 1
            self.how()
        super().fit(X, y)


@pytest.fixture(autouse=True)
def _calm():
    Moody.n_calls = 0


def absent(n):
    """Return teachers that could not learn."""
    return [FallbackTeacher(number, 10, many=False, trouble="ValueError") for number in range(n)]


def secret_error():
    raise ValueError("the patient is called Anna")


# --- The same ensemble, whichever way. ---


def test_processes_folders_and_loops_make_the_same_teachers(tmp_path):
    estimator = make_pipeline(StandardScaler(), TREE)
    wanted = ballots(train(estimator))
    np.testing.assert_array_equal(ballots(train(estimator)), wanted)
    np.testing.assert_array_equal(ballots(train(TREE, n_jobs=2)), plain())
    np.testing.assert_array_equal(ballots(train(estimator, n_jobs=2, folder=tmp_path)), wanted)
    np.testing.assert_array_equal(ballots(train(estimator, folder=tmp_path)), wanted)
    assert (ballots(train(estimator, seed=8)) != wanted).any()


def test_every_teacher_draws_for_itself():
    rows = np.arange(100)
    parts = Partition((rows, rows + 100), unit="one record")
    twice = np.concatenate([X[:100], X[:100]]), np.concatenate([Y[:100], Y[:100]])
    first, second = ballots(train(X=twice[0], Y=twice[1], parts=parts))
    assert (first != second).any()


def test_a_generator_is_a_seed():
    one, same = (ballots(train(seed=np.random.default_rng(5))) for _ in range(2))
    np.testing.assert_array_equal(one, same)


def test_the_estimator_itself_stays_unfitted():
    tree, nearest = DecisionTreeClassifier(random_state=3), Nearest()
    train(tree), train(nearest)
    assert tree.random_state == 3
    assert not hasattr(tree, "tree_")
    assert not hasattr(nearest, "means")


def test_long_work_goes_to_processes_and_short_work_does_not(monkeypatch):
    went = []

    def note(backend, units, n_workers):
        went.append([numbers[0] for numbers in units])
        return (training.train_unit(training.make_task(backend, numbers)) for numbers in list(units))

    monkeypatch.setattr(training, "_in_processes", note)
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    wanted = ballots(train(n_jobs=None))
    assert went == []
    monkeypatch.setattr(training.ModelTraining, "start_seconds", 0.0)
    np.testing.assert_array_equal(ballots(train(n_jobs=None)), wanted)
    assert went == [[1, 2, 3, 4, 5]]


# --- Votes. ---


def test_teachers_of_some_classes_vote_for_those():
    few = np.flatnonzero(np.isin(Y, [2, 7]))
    one = np.flatnonzero(Y == 9)
    parts = Partition((few, one, np.setdiff1d(np.arange(600), [*few, *one])), unit="one record")
    for estimator in (LogisticRegression(max_iter=200), TREE, SVC(), Nearest()):
        made = train(estimator, parts=parts)
        votes = made.vote(PUBLIC)
        assert set(votes.ballots[0]) == {2, 7}
        assert set(votes.ballots[1]) == {9}
        assert made.teachers[1] == ConstantTeacher(9)
        assert (votes.n_teachers, votes.n_classes, len(made)) == (3, 10, 3)


def test_accuracies_are_sealed():
    made = train(Nearest())
    sealed = made.accuracies(DATA.X[600:], DATA.y[600:])
    assert isinstance(sealed, Sealed)
    shares = sealed.reveal()
    assert shares.shape == (6,)
    assert (shares > 0.7).all()
    assert "Nearest" not in repr(made)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda X: np.full(len(X), 10), "other than was declared"),
        (lambda X: np.full(len(X), 0.5), "other than was declared"),
        (lambda X: np.full(len(X), np.nan), "other than was declared"),
        (lambda X: np.zeros((len(X), 10)), "other than was declared"),
        (lambda X: np.array(["a"] * len(X)), "other than was declared"),
        (lambda X: 1 / 0, "ZeroDivisionError"),
        (lambda X: sys.exit(3), "SystemExit"),
    ],
)
def test_a_teacher_that_does_not_answer_votes_by_the_rule(answer, why, recwarn, capfd):
    odd = Nearest()
    odd.predict = answer
    made = Ensemble((ConstantTeacher(1), odd, ConstantTeacher(2)), n_classes=10)
    found = made.vote(PUBLIC).ballots
    wanted = Ensemble(tuple(absent(3)), n_classes=10).vote(PUBLIC).ballots[1]
    np.testing.assert_array_equal(found[1], wanted)
    assert (found[0] == 1).all()
    assert (found[2] == 2).all()
    assert list(made.troubles.reveal()) == [1]
    assert why in made.troubles.reveal()[1]
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


def test_the_rule_spreads_votes_and_does_not_depend_on_what_is_asked_beside():
    made = Ensemble(tuple(absent(10)), n_classes=10)
    found = made.vote(PUBLIC).ballots
    assert (np.arange(10) == np.sort(found, axis=0).T).all()  # one vote for each class, on every question
    one_by_one = np.concatenate([made.vote(row[None]).ballots for row in PUBLIC[:9]], axis=1)
    np.testing.assert_array_equal(one_by_one, found[:, :9])
    np.testing.assert_array_equal(made.vote(PUBLIC.astype(np.float32)[::-1]).ballots, found[:, ::-1])


# --- Bad input, before anything is trained. ---


def test_bad_input_is_refused_with_its_place():
    holes = X.copy()
    holes[17, 4] = np.nan
    with pytest.raises(ValueError, match="row 17, feature 4"):
        train(X=holes)
    with pytest.raises(ValueError, match=r"row 17, feature \(0, 4\)"):
        train(X=holes.reshape(600, 8, 8))
    labels = Y.copy()
    labels[5] = 10
    with pytest.raises(ValueError, match=r"classes 0..9.*row 5"):
        train(Y=labels)
    with pytest.raises(ValueError, match="600 rows, got shape"):
        train(Y=Y[:-1])
    with pytest.raises(TypeError, match="class ids"):
        train(Y=Y.astype(float))
    with pytest.raises(ValueError, match="up to row 699"):
        train(parts=partition(700, 6, seed=3))
    with pytest.raises(TypeError, match="the class DecisionTreeClassifier"):
        train(DecisionTreeClassifier)
    with pytest.raises(TypeError, match="fit and predict, got StandardScaler"):
        train(StandardScaler())
    with pytest.raises(TypeError, match="numbers in X"):
        train(X=X.astype(str))
    with pytest.raises(ValueError, match="on_mismatch"):
        train(on_mismatch="hope")
    for option in ({"timeout": 0}, {"retries": -1}, {"n_jobs": 0}, {"n_classes": 1}, {"seed": -1}):
        with pytest.raises(ValueError, match=next(iter(option))):
            train(**option)


# --- Resuming. ---


def test_finished_teachers_are_reused(tmp_path, monkeypatch):
    seen = []
    wanted = ballots(train(folder=tmp_path, progress=lambda done, of: seen.append((done, of))))
    assert seen == [(n, 6) for n in range(1, 7)]
    (tmp_path / "teacher-00002.json").unlink()
    (tmp_path / "teacher-00004.skops").write_bytes(b"PK half a model")
    (tmp_path / ".teacher-00000.skops.abc.tmp").write_bytes(b"half")
    os.utime(tmp_path / ".teacher-00000.skops.abc.tmp", (0, 0))
    trained = []
    real = training.train_unit
    monkeypatch.setattr(training, "train_unit", lambda task: trained.extend(task.numbers) or real(task))
    seen.clear()
    again = train(folder=tmp_path, progress=lambda done, of: seen.append((done, of)))
    assert trained == [2, 4]
    assert seen == [(4, 6), (5, 6), (6, 6)]
    np.testing.assert_array_equal(ballots(again), wanted)
    assert len(list(tmp_path.iterdir())) == 12


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"estimator": DecisionTreeClassifier(max_features=6)}, "estimator"),
        ({"seed": 8}, "seed"),
        ({"parts": partition(600, 6, seed=4)}, "rows"),
        ({"n_classes": 11}, "n_classes"),
    ],
)
def test_teachers_of_another_run_are_refused_or_trained_anew(tmp_path, change, named):
    train(folder=tmp_path)
    with pytest.raises(ValueError, match=f"different: {named}.*on_mismatch='retrain'"):
        train(folder=tmp_path, **change)
    anew = train(folder=tmp_path, on_mismatch="retrain", **change)
    np.testing.assert_array_equal(ballots(anew), ballots(train(**change)))


class Trap:
    def __init__(self, place):
        self.place = str(place)

    def __reduce__(self):
        return os.mkdir, (self.place,)


def test_a_planted_model_is_never_run(tmp_path):
    folder, mark = tmp_path / "teachers", tmp_path / "mark"
    train(folder=folder)
    model, manifest = folder / "teacher-00001.skops", folder / "teacher-00001.json"
    model.write_bytes(pickle.dumps(Trap(mark)))
    record = json.loads(manifest.read_text())
    record["sha256"] = hashlib.sha256(model.read_bytes()).hexdigest()  # a forger can do that too
    manifest.write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"Teacher 1 in .*not loaded"):
        train(folder=folder)
    assert not mark.exists()


def test_another_kind_of_model_is_no_teacher(tmp_path):
    train(folder=tmp_path / "trees")
    train(LogisticRegression(max_iter=50), folder=tmp_path / "lines")
    for suffix in ("skops", "json"):
        source, target = (tmp_path / kind / f"teacher-00001.{suffix}" for kind in ("lines", "trees"))
        target.write_bytes(source.read_bytes())
    record = json.loads((tmp_path / "trees" / "teacher-00000.json").read_text())["made_of"]
    forged = json.loads((tmp_path / "trees" / "teacher-00001.json").read_text())
    forged["made_of"]["estimator"] = record["estimator"]
    (tmp_path / "trees" / "teacher-00001.json").write_text(json.dumps(forged))
    with pytest.raises(ValueError, match="Expected a DecisionTreeClassifier as teacher 1"):
        train(folder=tmp_path / "trees")


def test_an_object_of_ones_own_is_saved_by_its_name(tmp_path):
    wanted = ballots(train(Nearest()))
    for _ in range(2):
        np.testing.assert_array_equal(ballots(train(Nearest(), folder=tmp_path)), wanted)


class Own(BaseEstimator, Nearest):
    """A teacher of nobody's library that goes into a pipeline."""

    def fit(self, X, y):
        Nearest.fit(self, X, y)
        self.fitted_ = True
        return self


def test_a_model_that_cannot_be_saved_says_what_to_do(tmp_path):
    with pytest.raises(TypeError, match=r"Own.*trusted="):
        train(make_pipeline(StandardScaler(), Own()), folder=tmp_path)


# --- A wrong setting is told before private rows are touched. ---


@pytest.mark.parametrize("public", [None, PUBLIC[:20]], ids=["made up", "public"])
def test_a_model_that_cannot_learn_any_rows_is_refused_before_it_meets_private_ones(public):
    met = []

    class Watched(Nearest):
        def fit(self, X, y):
            met.extend(row.tobytes() for row in X)
            raise ValueError("the setting is wrong")

    with pytest.raises(ValueError, match=r"can learn 10 classes .*got Watched.*the setting is wrong"):
        train(Watched(), public=public)
    assert met
    assert not {*met} & {row.tobytes() for row in X}
    assert public is None or {*met} <= {row.tobytes() for row in public}
    with pytest.raises(ValueError, match=r"LogisticRegression.*'C' parameter"):
        train(LogisticRegression(C=-1.0))
    odd = Nearest()
    odd.predict = lambda X: np.full(len(X), 10)
    with pytest.raises(ValueError, match=r"Nearest.*class id in 0\.\.9"):
        train(odd)
    slow = Nearest()
    slow.fit = lambda X, y: time.sleep(60)
    with pytest.raises(ValueError, match="not finished in time"):
        train(slow, timeout=0.2)


@pytest.mark.parametrize(
    "model",
    [MultinomialNB(), KNeighborsClassifier(n_neighbors=80), CalibratedClassifierCV(GaussianNB(), cv=3)],
    ids=["counts", "many rows", "many of a class"],
)
def test_a_model_with_wishes_of_its_own_is_not_refused(model):
    assert not train(model, X=np.abs(X)).troubles.reveal()


# --- What goes wrong in the middle: every teacher votes, and nobody hears of it. ---


def outcome(capfd, *args, **options):
    """Return the ballots, the troubles, the progress, and all that anybody could hear."""
    told = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        made = train(*args, progress=lambda *numbers: told.append(numbers), **options)
        found = ballots(made)
    return found, made.troubles.reveal(), (told, [str(one.message) for one in heard], capfd.readouterr())


def empty_part(number):
    return Partition(
        tuple(part if i != number else part[:0] for i, part in enumerate(PARTS)), unit="one record"
    )


@pytest.mark.parametrize("n_jobs", [1, 2], ids=["loop", "processes"])
@pytest.mark.parametrize("case", ["empty", "raises", "warns", "one class"])
def test_what_a_part_does_to_its_teacher_changes_that_ballot_alone(case, n_jobs, capfd):
    calm, moody = local_kind(lambda: None, 2), {"estimator": local_kind(failing(case), 2)}
    if case == "empty":
        moody |= {"parts": empty_part(2)}
    if case == "one class":
        moody |= {"Y": np.where(np.isin(np.arange(600), PARTS[2]), 4, Y)}
    wanted, none, heard = outcome(capfd, calm, n_jobs=n_jobs)
    found, troubles, heard_now = outcome(capfd, n_jobs=n_jobs, **moody)
    assert heard_now == heard
    assert none == {}
    others = [0, 1, 3, 4, 5]
    np.testing.assert_array_equal(found[others], wanted[others])
    if case == "one class":
        assert (found[2] == 4).all()
        assert troubles == {}
    elif case == "warns":
        np.testing.assert_array_equal(found[2], wanted[2])
    else:
        assert troubles == {2: {"empty": "it has no rows", "raises": "ValueError"}[case]}
        rule = Ensemble(tuple(absent(6)), n_classes=10).vote(PUBLIC).ballots
        np.testing.assert_array_equal(found[2], rule[2])


def failing(case):
    def raises():
        raise ValueError("the patient is called Anna")

    def warns():
        warnings.warn("the patient is called Anna", stacklevel=2)

    return {"raises": raises, "warns": warns}.get(case, lambda: None)


def test_a_failed_teacher_is_remembered_and_the_votes_stay(tmp_path):
    moody = Moody(X[PARTS[2][0]].sum(), secret_error)
    options = {"folder": tmp_path, "trusted": [f"{__name__}.{name}" for name in ("Moody", "secret_error")]}
    first = train(moody, **options)
    assert Moody.n_calls == 2  # tried again once
    assert len(list(tmp_path.glob("*.json"))) == 6
    assert not any(b"Anna" in path.read_bytes() for path in tmp_path.iterdir())
    again = train(moody, **options)
    assert Moody.n_calls == 2
    np.testing.assert_array_equal(ballots(first), ballots(again))
    np.testing.assert_array_equal(
        ballots(first),
        ballots(
            load_ensemble(tmp_path, n_classes=10, trusted=[f"{__name__}.Moody", f"{__name__}.secret_error"])
        ),
    )
    assert first.troubles.reveal() == again.troubles.reveal() == {2: "ValueError"}
    assert isinstance(first.troubles, Sealed)


def test_parts_without_rows_alone_still_make_an_ensemble():
    nobody = Partition((np.array([], dtype=int),) * 3, unit="one record")
    made = train(parts=nobody)
    assert set(made.troubles.reveal()) == {0, 1, 2}
    assert ballots(made).shape == (3, 200)


def test_a_teacher_that_fails_once_is_tried_again():
    bad = X[PARTS[2][0]].sum()
    assert not train(Moody(bad, secret_error, n_times=1)).troubles.reveal()
    Moody.n_calls = 0
    assert train(Moody(bad, secret_error, n_times=1), retries=0).troubles.reveal() == {2: "ValueError"}


def test_a_hanging_teacher_is_interrupted():
    hangs = Moody(X[PARTS[4][0]].sum(), lambda: time.sleep(60))
    start = time.perf_counter()
    troubles = train(hangs, timeout=2.0, retries=0).troubles.reveal()
    assert troubles == {4: "not finished after 2 seconds"}
    assert time.perf_counter() - start < 30
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def local_kind(how, number=4):
    """Return a class that travels to worker processes by value, as those of a notebook do."""

    class Local:
        def __init__(self, bad):
            self.bad = bad

        def fit(self, X, y):
            if X[0].sum() == self.bad:
                how()
            self.label = int(y[0])

        def predict(self, X):
            return [self.label] * len(X)

    return Local(X[PARTS[number][0]].sum())


@pytest.mark.parametrize(("how", "timeout"), [("dies", None), ("deaf", 1.0)])
def test_a_dying_process_costs_its_teacher_the_vote_and_nobody_hears_of_it(how, timeout, capfd):
    def dies():
        os._exit(1)

    def deaf():  # hangs as compiled code does that hears no signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(60)

    model = local_kind({"dies": dies, "deaf": deaf}[how])
    _, troubles, heard = outcome(capfd, model, n_jobs=2, retries=0, timeout=timeout)
    assert troubles == {4: "its process died"}
    assert heard == ([(n, 6) for n in range(1, 7)], [], ("", ""))


def test_a_full_disk_is_said_and_nothing_half_written_is_loaded(tmp_path, monkeypatch):
    real = training.write_model

    def fills(folder, name, **rest):
        if name == "teacher-00003.skops":
            (folder / name).write_bytes(b"PK half")
            raise OSError(28, "No space left on device")
        real(folder, name, **rest)

    with monkeypatch.context() as patch:
        patch.setattr(training, "write_model", fills)
        with pytest.raises(OSError, match=r"teacher 3 .*No space left.*call again") as caught:
            train(folder=tmp_path)
    assert caught.value.errno == 28
    np.testing.assert_array_equal(ballots(train(folder=tmp_path)), plain())


def test_an_interrupt_keeps_what_is_finished(tmp_path):
    def interrupt(done, _of):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(folder=tmp_path, progress=interrupt)
    assert "3 of 6 teachers are finished and kept" in caught.value.__notes__[0]
    assert len(list(tmp_path.glob("*.json"))) == 3
    np.testing.assert_array_equal(ballots(train(folder=tmp_path)), plain())


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="Expected a folder for teachers"):
        train(folder=tmp_path / "file")


SCRIPT = """
import sys
from sklearn.base import BaseEstimator
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from tellers.data import digits
from tellers.teachers import train_ensemble
from tellers.teachers import partition

data = digits()
train_ensemble(
    RandomForestClassifier(40), data.X[:600], data.y[:600], partition(600, 24, seed=3), n_classes=10, seed=7,
    folder=sys.argv[1], n_jobs=int(sys.argv[2]), progress=lambda done, of: print(done, flush=True),
)
"""


def all_gone(group):
    """Wait for the last process of a group to end."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    return False


@pytest.mark.campaign
def test_killed_at_random_moments_it_ends_with_the_same_teachers(tmp_path):
    generator = np.random.default_rng(11)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    folder, finished, n_killed = tmp_path / "teachers", 0, 0
    for n_jobs in (1, 2, 1):
        child = forked.Popen(
            [sys.executable, "-c", SCRIPT, str(folder), str(n_jobs)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True,
            start_new_session=True,
        )  # fmt: skip
        # Not before it trains, and then at any moment: within a fit, a write, or between two files.
        watchdog = threading.Timer(60, child.kill)
        watchdog.start()
        while int(child.stdout.readline() or 99) <= finished:
            pass
        time.sleep(generator.uniform(0, 0.15))
        child.kill()  # the process alone: its workers notice and follow
        n_killed += child.wait() == -signal.SIGKILL
        assert all_gone(child.pid)
        watchdog.cancel()
        child.stdout.close()
        now = len(list(folder.glob("*.json")))
        assert now > finished  # every run gets further than the one before
        finished = now
        if finished == 24:
            break
    assert n_killed >= 2
    parts = partition(600, 24, seed=3)
    resumed = train(RandomForestClassifier(40), parts=parts, folder=folder)
    np.testing.assert_array_equal(ballots(resumed), ballots(train(RandomForestClassifier(40), parts=parts)))
