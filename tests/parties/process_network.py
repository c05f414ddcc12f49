"""A session of real processes on this machine: settings, models, a guardian that keeps its noise, askers."""

import os
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from tellers.ledger import open_ledger
from tellers.parties._answer import AnswerRole
from tellers.parties._certificates import make_certificate
from tellers.parties._last_step import decide
from tellers.parties._policy import PartyContext
from tellers.parties._ports import held_port
from tellers.runs import MechanismConfig, read_party, write_party
from tellers.runs.settings.party import (
    BooksConfig,
    HardeningConfig,
    PartyLimitsConfig,
    SessionConfig,
    settings_for,
)
from tellers.teachers.models import dump_model

from .. import forked
from ..real_round import NoiseRecorder, unmasked
from . import instrumented_party
from .definitions import votes_of

NAMES = ("east", "north", "south", "upper", "west")
N_FEATURES = 6
ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
PATHS = os.pathsep.join([str(SOURCE), str(ROOT)])  # parties for tests are in the latter
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}


def begin(act, *words, log):
    """Start a process that calls a function of a module of this folder; what it says is in a log."""
    name = f"tests.parties.{act.__module__.rpartition('.')[2]}"
    code = f"import sys; from {name} import {act.__name__}; {act.__name__}(*sys.argv[1:])"
    with open(log, "ab") as file:
        return forked.Popen(
            [sys.executable, "-c", code, *map(str, words)], stdout=file, stderr=file, env=ENVIRONMENT
        )


class ProcessNetwork:
    """Write certificates, settings and models of a session into a folder, and run its processes."""

    def __init__(self, folder, *, n_answerers=3, n_labels=None, patience=120.0, quorum=None, pairwise=True,
                 mechanism=None, max_queries=100, epsilon=1e6, askers=("ann",), limits=None,
                 labels=None, abstain_below=None):  # fmt: skip
        labels = labels or {}
        self.folder, self.names = Path(folder), NAMES[:n_answerers]
        self.processes = {}
        roles = dict.fromkeys(askers, "asker") | {"guard": "guardian"} | dict.fromkeys(self.names, "answerer")
        cards = {name: make_certificate(self.folder, name, role=role) for name, role in roles.items()}
        self._held = ExitStack()  # while parties are dead, nobody else is given their ports
        ports = [self._held.enter_context(held_port()) for _ in roles]
        parties = {
            name: {
                "role": role, "pin": cards[name].pin, "mask_key": cards[name].mask_key,
                "address": f"127.0.0.1:{port}", "labels": labels.get(name, ()),
            }
            for (name, role), port in zip(roles.items(), ports)
        }  # fmt: skip
        session = SessionConfig(
            n_features=N_FEATURES, n_outputs=n_labels or 4, input_bound=8.0, max_queries=max_queries,
            quorum=quorum or n_answerers - 1, patience_seconds=patience, abstaining=abstain_below is not None,
        )  # fmt: skip
        mechanism = mechanism or MechanismConfig(name="binary" if n_labels else "gnmax", sigma=1.0)
        rng = np.random.default_rng(11)
        for name, role in roles.items():
            settings = settings_for(name, parties, session=session, mechanism=mechanism)
            settings = replace(settings, hardening=HardeningConfig(pairwise=pairwise))
            if role != "asker":
                books = BooksConfig(url="ledger.db", epsilon=epsilon, delta=1e-5)
                # Parties come and go here more often than a guardian likes.
                allowed = PartyLimitsConfig(**{"max_changes": 1000, **(limits or {}).get(name, {})})
                settings = replace(settings, ledger=books, limits=allowed)
            if role == "answerer":
                settings = replace(settings, model=replace(settings.model, abstain_below=abstain_below))
            (self.folder / name / "party.toml").write_text(write_party(settings))
            if role == "answerer":
                X = rng.normal(size=(120, N_FEATURES))
                if n_labels:
                    Y = (X[:, :n_labels] + rng.normal(size=(120, n_labels)) > 0).astype(int)
                    # A party has columns for its own labels alone.
                    model = OneVsRestClassifier(LogisticRegression()).fit(
                        X, Y[:, list(labels.get(name, range(n_labels)))]
                    )
                else:
                    y = (X[:, :4] + rng.normal(size=(120, 4))).argmax(axis=1)
                    model = LogisticRegression().fit(X, y)
                (self.folder / name / "model.skops").write_bytes(dump_model(model))
        (self.folder / "noise").mkdir()
        self.rng = rng

    def settings(self, name):
        return read_party(self.folder / name / "party.toml")

    def start(self, *names, step=""):
        """Start parties, and wait until they listen; with a step they die at it."""
        since = {name: len(self.log(name)) for name in names}
        for name in names:
            self.processes[name] = self._begin(name, step)
        for name in names:
            wait_for(lambda name=name: "serving at " in self.log(name)[since[name] :], name=name)
        return self

    def _begin(self, name, step):
        config = self.folder / name / "party.toml"
        noise = self.folder / "noise"
        return begin(instrumented_party.main, config, noise, step, log=self.folder / f"{name}.log")

    def wait_until_connected(self, *names, since=0):
        """Wait until the guardian has said, after `since` in its log, that these parties are connected."""
        wait_for(lambda: all(f"{name} is connected." in self.log("guard")[since:] for name in names))
        return self

    def restart(self, *names, step=""):
        """Start parties again that are gone, and wait until all are connected."""
        for name in names:
            self.processes.pop(name, None)
        since = len(self.log("guard"))
        self.start(*names, step=step)
        return self.wait_until_connected(*(self.names if "guard" in names else names), since=since)

    def start_all(self):
        return self.start("guard", *self.names).wait_until_connected(*self.names)

    def log(self, name):
        place = self.folder / f"{name}.log"
        return place.read_text() if place.exists() else ""

    def kill(self, name, number=signal.SIGKILL):
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=20)

    def wait_for_death(self, name):
        process = self.processes.pop(name)
        assert process.wait(timeout=30) == -signal.SIGKILL, self.log(name)

    def close(self):
        for name in list(self.processes):
            self.kill(name)
        self._held.close()

    def rows(self, n):
        return self.rng.normal(size=(n, N_FEATURES))

    def clear(self, rows, qid, parties):
        """Return the labels of the clear computation, with the noise that the guardian drew for a query."""
        context = PartyContext(self.settings("guard"))
        program = context.vote_program(len(rows))
        encoded = program.encode(rows)
        tally = sum(votes_of(program, PartyContext(self.settings(name)).model(), encoded) for name in parties)
        return decide(unmasked(self.folder / "noise", context, qid, parties), tally)


class ThreadNetwork(ProcessNetwork):
    """The same session with its parties in this process; their engines are processes all the same."""

    def _begin(self, name, step):
        def say(words):
            with open(self.folder / f"{name}.log", "a") as file:
                file.write(f"{words}\n")

        settings = self.settings(name)
        role = AnswerRole(settings, say=say) if name != "guard" else NoiseRecorder(
            settings, self.folder / "noise", say=say
        )  # fmt: skip
        role.start()
        say(f"serving at {role.address}")
        return role

    def kill(self, name):
        self.processes.pop(name).stop()


def charged(network, name="guard"):
    """Return how many queries each entry of a party's books is for."""
    with open_ledger(network.folder / name / "ledger.db") as ledger:
        return [entry.event["n_queries"] for entry in ledger.entries() if "note" not in entry.event]


def compare(network, asker, n, *, parties=None):
    """Ask for labels of random rows, and hold them against the clear computation with the noise drawn."""
    rows = network.rows(n)
    batch = asker.ask(rows)
    np.testing.assert_array_equal(batch.labels, network.clear(rows, batch.qid, batch.parties))
    assert batch.parties == (network.names if parties is None else parties)
    return batch


def warm(network, asker):
    """Make links to everybody: on a busy machine a party may miss the first query, and that is in order."""
    for _ in range(5):
        if asker.ask(network.rows(2)).parties == network.names:
            return
    raise AssertionError(network.log("guard"))


def wait_for(is_true, *, seconds=100.0, **about):
    """Wait until something is so, or fail."""
    until = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < until, about
        time.sleep(0.02)
