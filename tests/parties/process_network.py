"""A session of real processes on this machine: settings, models, a guardian that keeps its noise, askers."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

from tellers.parties import clear_votes
from tellers.parties._certificates import make_certificate
from tellers.parties._last_step import LastStep, decide, decision_of
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

NAMES = ("east", "north", "south", "upper", "west")
N_FEATURES = 6
SOURCE = Path(__file__).parents[2] / "src"
PATHS = os.pathsep.join([str(SOURCE), str(Path(__file__).parent)])  # parties for tests are here
ENVIRONMENT = {**os.environ, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}


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
        for name in names:
            config = str(self.folder / name / "party.toml")
            words = ["-m", "instrumented_party", config, str(self.folder / "noise"), step]
            if name != "guard" and not step:
                words = ["-m", "tellers", "party", "answer", "--config", config]
            with open(self.folder / f"{name}.log", "ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, *words], stdout=subprocess.PIPE, stderr=log, env=ENVIRONMENT
                )
        for name in names:
            line = self.processes[name].stdout.readline()
            assert b" at " in line, (name, self.log(name))
        return self

    def wait_until_connected(self, *names, since=0):
        """Wait until the guardian has said, after `since` in its log, that these parties are connected."""
        until = time.monotonic() + 100
        while time.monotonic() < until:
            log = self.log("guard")[since:]
            if all(f"{name} is connected." in log for name in names):
                return self
            time.sleep(0.05)
        raise AssertionError(self.log("guard"))

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
        return (self.folder / f"{name}.log").read_text()

    def kill(self, name, number=signal.SIGKILL):
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(timeout=20)
        process.stdout.close()

    def wait_for_death(self, name):
        process = self.processes.pop(name)
        assert process.wait(timeout=30) == -signal.SIGKILL, self.log(name)
        process.stdout.close()

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
        tally = sum(
            clear_votes(program, PartyContext(self.settings(name)).model(), encoded) for name in parties
        )
        with np.load(self.folder / "noise" / f"{qid}.npz") as kept:
            drawn = {name: kept[name] for name in kept.files}
        rule = decision_of(
            context.mechanism, n_outputs=tally.shape[1], n_answering=len(parties),
            voters=context.voters(parties),
        )  # fmt: skip
        step = LastStep(
            rule, np.zeros_like(tally), drawn["answer_noise"], drawn.get("ranks"), drawn.get("check_noise")
        )
        return decide(step, tally)
