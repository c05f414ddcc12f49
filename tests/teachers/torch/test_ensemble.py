"""Ensembles of torch teachers: the same in one process or many, in one go or after any interruption."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tellers.data import digits
from tellers.nn.batched import Batched
from tellers.nn.classifier import TorchClassifier, TorchLabelClassifier
from tellers.privacy import Sealed
from tellers.teachers import Partition, load_ensemble, partition, train_ensemble
from tellers.teachers import _training as training
from tellers.teachers._training import copy_estimator
from tellers.teachers.ballots import FallbackTeacher
from tellers.teachers.torch import ensemble as choice
from tellers.teachers.torch import ensemble as units

from ... import forked

ROOT = Path(__file__).resolve().parents[3]
DATA = digits()
X, Y, PUBLIC = DATA.X[:600], DATA.y[:600], DATA.X[600:800]
PARTS = partition(600, 6, seed=3)
MLP = TorchClassifier("mlp", epochs=4, batch_size=20, learning_rate=0.01, device="cpu")
TWO = Batched(chunk=2)


def train(classifier=MLP, X=X, Y=Y, parts=PARTS, **options):
    how = {"n_classes": 10, "seed": 7, "n_jobs": 1, "engine": TWO, **options}
    return train_ensemble(classifier, X, Y, parts, **how)


@cache
def plain(engine=TWO):
    """Return the ensemble of all defaults, trained once for all tests that only look at it."""
    return train(engine=engine)


def ballots(made):
    return made.vote(PUBLIC).ballots


def weights(made, number=slice(None)):
    return {name: values[number].numpy() for name, values in made.states.items()}


def assert_same(one, other):
    for name, values in weights(one).items():
        np.testing.assert_array_equal(values, weights(other)[name], err_msg=name)


class Odd(nn.Module):
    """A network with dropout of its own: for the loop."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, rows):
        return self.last(nn.functional.dropout(torch.relu(self.first(rows)), 0.2, self.training))


# --- The same ensemble, whichever way. ---


@pytest.mark.parametrize("engine", [TWO, "loop"], ids=["batched", "loop"])
def test_processes_and_folders_make_the_same_teachers(engine, tmp_path):
    wanted = plain(engine)
    assert_same(train(engine=engine), wanted)
    assert_same(train(engine=engine, n_jobs=2, folder=tmp_path), wanted)
    assert_same(train(engine=engine, folder=tmp_path), wanted)
    assert (ballots(train(engine=engine, seed=8)) != ballots(wanted)).any()
    assert wanted.accuracies(DATA.X[600:], DATA.y[600:]).reveal().mean() > 0.5


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_engines_agree(network):
    """In single precision Adam blows up last digits, so some ballots on doubtful queries may differ."""
    model = TorchClassifier(network, epochs=4, batch_size=20, shift=0.1, image_shape=(8, 8), device="cpu")
    batched, loop = (train(model, engine=engine) for engine in (TWO, "loop"))
    assert (ballots(batched) == ballots(loop)).mean() > 0.98
    np.testing.assert_allclose(
        weights(batched)["1.weight" if network == "mlp" else "8.weight"],
        weights(loop)["1.weight" if network == "mlp" else "8.weight"], atol=2e-3,
    )  # fmt: skip


def test_a_looped_teacher_is_a_classifier_fitted_on_its_part():
    looped = plain("loop")
    alone = copy_estimator(MLP, 7, 4).set_params(n_classes=10).fit(X[PARTS[4]], Y[PARTS[4]])
    np.testing.assert_array_equal(ballots(looped)[4], alone.predict(PUBLIC))
    np.testing.assert_array_equal(looped.teacher(4).predict(PUBLIC), ballots(looped)[4])


def test_one_changed_part_changes_one_row_of_ballots():
    """Bit for bit, with batch norm, whether rows change or their number does."""
    model = TorchClassifier("cnn", epochs=2, batch_size=20, image_shape=(8, 8), device="cpu")
    before = train(model, engine=Batched(chunk=4))
    changed = X.copy()
    changed[PARTS[2]] = changed[PARTS[2]][:, ::-1]
    fewer = Partition((*PARTS.parts[:2], PARTS[2][:30], *PARTS.parts[3:]), unit="one person")
    others = [0, 1, 3, 4, 5]
    for after in (
        train(model, X=changed, engine=Batched(chunk=4)),
        train(model, parts=fewer, engine=Batched(chunk=4)),
    ):
        for name, values in weights(after, others).items():
            if "num_batches" not in name:
                np.testing.assert_array_equal(values, weights(before, others)[name], err_msg=name)
        np.testing.assert_array_equal(ballots(after)[others], ballots(before)[others])
        assert (ballots(after)[2] != ballots(before)[2]).any()


def test_parts_of_all_sizes_and_few_classes():
    one, two = np.flatnonzero(Y == 9)[:15], np.flatnonzero(np.isin(Y, [2, 7]))[:33]
    rest = np.setdiff1d(np.arange(600), [*one, *two])
    parts = Partition((one, two, rest[:1], rest[1:]), unit="one site")
    for engine in (Batched(chunk=4), "loop"):
        made = train(parts=parts, engine=engine)
        cast = ballots(made)
        assert set(cast[0]) == {9}
        assert set(cast[1]) == {2, 7}
        assert set(cast[2]) == {Y[rest[0]]}
        assert len(made) == 4


@pytest.mark.parametrize("engine", [TWO, "loop"], ids=["batched", "loop"])
def test_votes_come_in_chunks(engine, monkeypatch):
    made = plain(engine)
    wanted = ballots(made)
    monkeypatch.setattr("tellers.nn.batched._NUMBERS", {"cpu": 1000})
    np.testing.assert_array_equal(ballots(made), wanted)
    np.testing.assert_array_equal(np.stack([made.teacher(n).predict(PUBLIC) for n in range(6)]), wanted)


def test_accuracies_are_sealed_and_nothing_private_prints():
    made = plain()
    assert isinstance(made.accuracies(PUBLIC, DATA.y[600:800]), Sealed)
    assert repr(made) == f"TorchEnsemble(n_teachers=6, n_classes=10, engine={TWO.name!r})"


# --- Which engine. ---


def test_the_faster_engine_is_taken(monkeypatch):
    for batched, name in ((1.0, "batched"), (3.0, "loop")):
        monkeypatch.setattr(choice, "_MEASURED", {})
        monkeypatch.setattr(
            choice, "step_seconds", lambda _, options, b=batched: 2.0 if options is None else b
        )
        assert train(engine="auto").engine.startswith(name)


def test_what_was_begun_is_finished_the_same_way(tmp_path, monkeypatch):
    monkeypatch.setattr(choice, "_batched_is_faster", lambda *_, **__: True)
    begun = train(engine="auto", folder=tmp_path)
    monkeypatch.setattr(choice, "_batched_is_faster", lambda *_, **__: False)
    assert train(engine="auto", folder=tmp_path).engine == begun.engine
    assert train(engine="auto").engine == "loop"


def test_a_network_that_cannot_be_batched_is_looped_and_says_so(tmp_path):
    odd = TorchClassifier(Odd, epochs=2, device="cpu")
    with pytest.warns(UserWarning, match="one after another: it draws random numbers of its own"):
        made = train(odd, engine="auto")
    assert made.engine == "loop"
    assert_same(train(odd, engine="loop", n_jobs=2), made)
    assert_same(train(odd, engine="loop", folder=tmp_path), made)
    with pytest.raises(ValueError, match=r"draws random numbers.*engine='loop'"):
        train(odd, engine="batched")
    with pytest.raises(ValueError, match="engine='auto'"):
        train(engine="fast")


# --- Bad input, before anything is trained. ---


def test_bad_input_is_refused_with_its_place():
    holes, labels = X.copy(), Y.copy()
    holes[17, 4], labels[5] = np.nan, 10
    with pytest.raises(ValueError, match="row 17, feature 4"):
        train(X=holes)
    with pytest.raises(ValueError, match=r"classes 0..9.*row 5"):
        train(Y=labels)
    with pytest.raises(ValueError, match="600 rows, got shape"):
        train(Y=Y[:-1])
    with pytest.raises(ValueError, match="up to row 699"):
        train(parts=partition(700, 6, seed=3))
    with pytest.raises(TypeError, match="Expected a TorchClassifier, got TorchLabelClassifier"):
        train(TorchLabelClassifier(MLP))
    with pytest.raises(ValueError, match="on_mismatch"):
        train(on_mismatch="hope")
    with pytest.raises(ValueError, match="n_classes=10 in the classifier, got 9"):
        train(TorchClassifier("mlp", n_classes=9))
    with pytest.raises(ValueError, match=r"makes 10 numbers.*got shape \(3,\)"):
        train(TorchClassifier(lambda: nn.Linear(64, 3)))
    with pytest.raises(ValueError, match=r"rows of shape \(64,\), got an error"):
        train(TorchClassifier(lambda: nn.Linear(63, 10)))
    with pytest.raises(ValueError, match=r"rows of shape \(64,\).*got rows of shape \(63,\)"):
        plain().vote(PUBLIC[:, 1:])


# --- Every teacher votes, whatever its rows are. ---


class Picky(nn.Module):
    """A network that does not take large numbers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, rows):
        if rows.max().item() > 1e10:
            raise ValueError("the patient is called Anna")
        return self.layer(rows)


def spoilt(case, number=4):
    """Return rows, labels and parts with which one teacher cannot learn, or learns one class alone."""
    rows, labels, parts = X.copy(), Y.copy(), PARTS
    rows[PARTS[number]] *= {"no number": 1e38, "too large": 1e300, "raises": 1e12}.get(case, 1)
    if case == "one class":
        labels[PARTS[number]] = 4
    if case == "empty":
        kept = (part if i != number else part[:0] for i, part in enumerate(PARTS))
        parts = Partition(tuple(kept), unit="one record")
    return {"X": rows, "Y": labels, "parts": parts}


TROUBLES = {
    "no number": "its loss was not a finite number", "too large": "ValueError", "raises": "ValueError",
    "empty": "it has no rows",
}  # fmt: skip


def alone_changed(wanted, found, case, *, number=4):
    """See that one ballot is another, by the rule, and all the others are the same to the last bit."""
    others = [n for n in range(6) if n != number]
    for name, values in weights(wanted, others).items():
        np.testing.assert_array_equal(values, weights(found, others)[name], err_msg=name)
    np.testing.assert_array_equal(ballots(wanted)[others], ballots(found)[others])
    assert not wanted.troubles.reveal()
    if case == "one class":
        assert (ballots(found)[number] == 4).all()
        assert not found.troubles.reveal()
        return
    assert found.troubles.reveal() == {number: TROUBLES[case]}
    rule = FallbackTeacher(number, 10, many=False, trouble="").predict(PUBLIC)
    np.testing.assert_array_equal(ballots(found)[number], rule)
    np.testing.assert_array_equal(found.teacher(number).predict(PUBLIC), rule)


@pytest.mark.parametrize("engine", [Batched(chunk=3), "loop"], ids=["batched", "loop"])
@pytest.mark.parametrize("case", ["empty", "one class", "no number", "too large"])
def test_what_a_part_does_to_its_teacher_changes_that_ballot_alone(engine, case, tmp_path, recwarn, capfd):
    wanted = plain(engine)
    found = train(**spoilt(case), engine=engine, folder=tmp_path)
    alone_changed(wanted, found, case)
    again = train(**spoilt(case), engine=engine, folder=tmp_path)
    assert_same(found, again)
    loaded = load_ensemble(tmp_path, n_classes=10, device="cpu")
    np.testing.assert_array_equal(ballots(found), ballots(loaded))
    assert found.troubles.reveal() == again.troubles.reveal() == loaded.troubles.reveal()
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_network_that_fails_on_some_rows_costs_its_teacher_the_vote(n_jobs, tmp_path, recwarn, capfd):
    model, case = TorchClassifier(Picky, epochs=1, device="cpu"), "raises"
    told, calm = [], []
    wanted = train(model, engine="loop", progress=lambda *seen: calm.append(seen))
    found = train(
        model, **spoilt(case), engine="loop", n_jobs=n_jobs, folder=tmp_path,
        progress=lambda *seen: told.append(seen),
    )  # fmt: skip
    alone_changed(wanted, found, case)
    assert told == calm
    assert_same(found, train(model, **spoilt(case), engine="loop", folder=tmp_path))
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


def test_a_network_that_learns_nothing_anywhere_is_refused_before_it_meets_private_rows():
    with pytest.raises(ValueError, match=r"can learn 10 classes.*TorchClassifier.*finite.*learning_rate"):
        train(TorchClassifier("mlp", epochs=2, learning_rate=1e30, device="cpu"))
    with pytest.raises(ValueError, match=r"fails on public rows.*called Anna.*No private row"):
        train(TorchClassifier(Picky, device="cpu"), engine="loop", public=PUBLIC * 1e12)


def test_answers_that_are_no_numbers_are_replaced_by_the_rule():
    made = train()
    with torch.no_grad():
        next(values for name, values in made.states.items() if name.endswith("weight"))[2] = torch.nan
    rule = FallbackTeacher(2, 10, many=False, trouble="").predict(PUBLIC)
    np.testing.assert_array_equal(ballots(made)[2], rule)
    assert made.troubles.reveal() == {2: "its answers are no finite numbers"}


# --- Resuming. ---


def test_finished_units_are_reused_and_half_written_ones_are_not(tmp_path, monkeypatch):
    seen = []
    wanted = train(folder=tmp_path, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(2, 6), (4, 6), (6, 6)]
    assert (tmp_path / "teachers-00000-00001.json").stat().st_mode & 0o077 == 0
    (tmp_path / "teachers-00002-00003.json").unlink()
    half = tmp_path / "teachers-00004-00005.safetensors"
    half.write_bytes(half.read_bytes()[:5000])
    (tmp_path / ".teachers-00000-00001.safetensors.abc.tmp").write_bytes(b"half")
    os.utime(tmp_path / ".teachers-00000-00001.safetensors.abc.tmp", (0, 0))
    trained, real = [], training.train_unit
    monkeypatch.setattr(training, "train_unit", lambda task: trained.append(task.numbers) or real(task))
    seen.clear()
    again = train(folder=tmp_path, progress=lambda done, of: seen.append((done, of)))
    assert trained == [range(2, 4), range(4, 6)]
    assert seen == [(2, 6), (4, 6), (6, 6)]
    assert_same(again, wanted)
    assert len(list(tmp_path.iterdir())) == 6


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"classifier": TorchClassifier("mlp", epochs=5, batch_size=20, device="cpu")}, "estimator"),
        ({"seed": 8}, "seed"),
        ({"parts": partition(600, 6, seed=4)}, "rows"),
        ({"n_classes": 11}, "n_classes, network"),
        ({"engine": Batched(chunk=2, convolution="grouped")}, "engine"),
    ],
)
def test_teachers_of_another_run_are_refused_or_trained_anew(tmp_path, change, named):
    train(folder=tmp_path)
    with pytest.raises(ValueError, match=f"different: {named}.*on_mismatch='retrain'"):
        train(folder=tmp_path, **change)
    assert_same(train(folder=tmp_path, on_mismatch="retrain", **change), train(**change))


def test_rows_dealt_in_another_way_are_another_run(tmp_path):
    train(parts=Partition((np.arange(40), np.arange(40, 60)), unit="one record"), folder=tmp_path)
    with pytest.raises(ValueError, match="different: rows"):
        train(parts=Partition((np.arange(30), np.arange(30, 60)), unit="one record"), folder=tmp_path)


def test_a_planted_file_is_not_loaded(tmp_path):
    train(folder=tmp_path)
    planted, manifest = tmp_path / "teachers-00000-00001.safetensors", tmp_path / "teachers-00000-00001.json"
    for content, words in (
        (b"no safetensors", "something else"),
        (units.dump_states({"w": torch.ones(2)}), "another"),
    ):
        planted.write_bytes(content)
        record = json.loads(manifest.read_text())
        record["sha256"] = hashlib.sha256(content).hexdigest()  # a forger can do that too
        manifest.write_text(json.dumps(record))
        with pytest.raises(ValueError, match=f"teachers-00000-00001.safetensors in .*{words}"):
            train(folder=tmp_path)


def test_a_full_disk_is_said(tmp_path, monkeypatch):
    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "write_model", full)
    with pytest.raises(OSError, match=r"teachers 0 to 1 .*No space left.*call again"):
        train(folder=tmp_path)


def test_an_interrupt_keeps_what_is_finished(tmp_path):
    def interrupt(done, _of):
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(folder=tmp_path, progress=interrupt)
    assert "4 of 6 teachers are finished and kept" in caught.value.__notes__[0]
    assert_same(train(folder=tmp_path), plain())


SCRIPT = """
import sys
import time
from tellers.data import digits
from tellers.teachers import partition
from tellers.nn.batched import Batched
from tellers.nn.classifier import TorchClassifier
from tellers.teachers import train_ensemble

data = digits()
train_ensemble(
    TorchClassifier("mlp", epochs=40, batch_size=20, device="cpu"), data.X[:600], data.y[:600],
    partition(600, 24, seed=3), n_classes=10, seed=7, folder=sys.argv[1], n_jobs=1, engine=Batched(chunk=2),
    # On a fast machine it would be over before it is killed.
    progress=lambda done, of: (print(done, flush=True), time.sleep(0.05)),
)
"""


@pytest.mark.campaign
def test_killed_at_random_moments_it_ends_with_the_same_teachers(tmp_path):
    generator = np.random.default_rng(11)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    folder, finished, n_killed = tmp_path / "teachers", 0, 0
    for _ in range(3):
        child = forked.Popen(
            [sys.executable, "-c", SCRIPT, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=environment, text=True,
        )  # fmt: skip
        watchdog = threading.Timer(120, child.kill)
        watchdog.start()
        while int(child.stdout.readline() or 99) <= finished:
            pass
        time.sleep(generator.uniform(0, 0.15))
        child.kill()
        n_killed += child.wait() == -signal.SIGKILL
        watchdog.cancel()
        child.stdout.close()
        now = 2 * len(list(folder.glob("*.json")))
        assert now > finished  # every run gets further than the one before
        finished = now
        if finished == 24:
            break  # it was faster than we are
    assert n_killed >= 2
    model, parts = TorchClassifier("mlp", epochs=40, batch_size=20, device="cpu"), partition(600, 24, seed=3)
    assert_same(train(model, parts=parts, folder=folder), train(model, parts=parts))
