"""Compare a turn of a collaboration with real processes with the same turn in the clear; for tests alone.

The guardian is a `NoiseRecorder`: whoever reads the noise that it keeps can undo the privacy of the query.
Ten answering parties, a guardian and an asker are a dozen processes, and twice as many engines.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tellers.data.named import digits
from tellers.parties._certificates import make_certificate
from tellers.parties._guard import Finish, GuardRole, PartyConnection
from tellers.parties._last_step import LastStep, decide
from tellers.parties._policy import PartyContext
from tellers.parties._ring import Integers
from tellers.parties.ask import AskRole, LabelledBatch
from tellers.parties.clear import clear_votes
from tellers.parties.collaboration.learning import answering, tally
from tellers.parties.collaboration.members import Member, deal_members
from tellers.runs.settings.mechanism import MechanismConfig
from tellers.runs.settings.party import BooksConfig, SessionConfig, read_party, settings_for, write_party
from tellers.teachers.models import dump_model
from tellers.testing._ports import free_ports

_ROOT = Path(__file__).resolve().parents[1]

_GUARD = "guard"
# What can be said of a digit, many labels at a time: even, five or more, prime, with a loop, a multiple of 3.
_SAID = np.array([[d % 2 == 0, d > 4, d in (2, 3, 5, 7), d in (0, 6, 8, 9), d % 3 == 0] for d in range(10)])
_MECHANISMS = {
    "single": MechanismConfig(name="gnmax", sigma=1.5),
    "multi": MechanismConfig(name="gnthreshold", sigma=1.5, max_labels=2),
}


class NoiseRecorder(GuardRole):
    """A guardian that writes down its noise, ranks and the sum of masks; never run it in earnest."""

    def __init__(self, settings: Any, folder: Path, **options: Any) -> None:
        super().__init__(settings, **options)
        self._folder = folder

    def _finish(self, connection: PartyConnection, task: Finish) -> None:
        kept = {name: drawn for name, drawn in vars(task.step).items() if isinstance(drawn, np.ndarray)}
        np.savez(self._folder / f"{task.qid}.npz", **kept)
        super()._finish(connection, task)


def say(words: str) -> None:
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def say_address(address: str) -> None:
    sys.stdout.write(f"serving at {address}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class RoundFound:
    """What came of it: labels told, those that differ from the clear, and votes that rounding has turned.

    `n_different` compares with the votes of the public program in the clear and must be 0; `n_clear` compares
    with what the collaboration computes in floating point, and can differ only where rounding turned a vote.
    """

    n_labels: int
    n_different: int
    n_clear: int
    n_votes: int
    n_turned: int
    parties: tuple[str, ...]


def check_real_round(
    *, task: str, n_answerers: int, n_queries: int, seed: int, rows_each: int = 60, patience: float = 900.0
) -> RoundFound:
    """Let one asker ask all others, as processes over TLS with the engine, and compare with the clear."""
    if task not in _MECHANISMS:
        raise ValueError(f"Expected task to be single or multi, got {task!r}.")
    members, rows, n_outputs = _digits(task, n_answerers + 1, n_queries, rows_each=rows_each, seed=seed)
    asker, others = members[0], answering(members, members[0])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _write_settings(folder, asker, others, task=task, n_outputs=n_outputs, patience=patience)
        running: list[subprocess.Popen[bytes]] = []
        try:
            _start(folder, [_GUARD, *(other.name for other in others)], running)
            _wait_for(folder, [other.name for other in others], patience=patience)
            with AskRole(read_party(folder / asker.name / "party.toml")) as role:
                batch = role.ask(rows)
        finally:
            for process in running:
                process.kill()
                process.wait()
        answered = [other for other in others if other.name in batch.parties]
        return _compare(folder, answered, rows, batch, n_outputs=n_outputs)


def _compare(
    folder: Path, answered: Sequence[Member], rows: NDArray[Any], batch: LabelledBatch, *, n_outputs: int
) -> RoundFound:
    context = PartyContext(read_party(folder / _GUARD / "party.toml"))
    program = context.vote_program(len(rows))
    encoded = program.encode(rows)
    whole = [
        clear_votes(program, PartyContext(read_party(folder / one.name / "party.toml")).model(), encoded)
        for one in answered
    ]
    floats = [tally([one], rows, mechanism=context.mechanism, n_outputs=n_outputs) for one in answered]
    step = unmasked(folder / "noise", context, batch.qid, batch.parties)
    clear, in_one_room = (decide(step, np.sum(votes, axis=0)) for votes in (whole, floats))
    labels = batch.labels
    return RoundFound(
        n_labels=labels.size, n_different=int((labels != clear).sum()),
        n_clear=int((labels != in_one_room).sum()), n_votes=len(answered) * labels.size,
        n_turned=int(sum(_n_turned(a, b, labels.ndim) for a, b in zip(whole, floats, strict=True))),
        parties=batch.parties,
    )  # fmt: skip


def unmasked(folder: Path, context: PartyContext, qid: str, parties: Sequence[str]) -> LastStep:
    """Return the last step of a query with the noise that a `NoiseRecorder` kept, and masks of nothing."""
    with np.load(folder / f"{qid}.npz") as kept:
        drawn = dict(kept)
    drawn["masks"] = np.zeros_like(drawn["masks"])
    return LastStep(context.decision_program(parties, len(drawn["masks"])), **drawn)


def _n_turned(whole: Integers, floats: Integers, n_axes: int) -> int:
    """Return how many votes differ: of one class per row a vote is a row, of many labels each entry."""
    other = whole != floats
    return int((other if n_axes == 2 else other.any(axis=1)).sum())


def _digits(
    task: str, n_members: int, n_queries: int, *, rows_each: int, seed: int
) -> tuple[tuple[Member, ...], NDArray[Any], int]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    data = digits()
    order = np.random.default_rng(seed).permutation(len(data))
    private, asked = order[: n_members * rows_each], order[n_members * rows_each :][:n_queries]
    y = data.y if task == "single" else _SAID[data.y].astype(np.int64)
    members = deal_members(data.X[private], y[private], n_members, estimator=LogisticRegression(), seed=seed)
    if task == "multi":
        # One model of all labels, in the form that is sent around as a file.
        members = tuple(
            replace(one, model=OneVsRestClassifier(LogisticRegression()).fit(one.X, one.y)) for one in members
        )
    return members, data.X[asked], 10 if task == "single" else _SAID.shape[1]


def _write_settings(
    folder: Path, asker: Member, others: Sequence[Member], *, task: str, n_outputs: int, patience: float
) -> None:
    roles = {asker.name: "asker", _GUARD: "guardian"} | {other.name: "answerer" for other in others}
    parties: dict[str, dict[str, Any]] = {}
    for (name, role), port in zip(roles.items(), free_ports(len(roles)), strict=True):
        card = make_certificate(folder, name, role=role)
        parties[name] = {
            "role": role, "pin": card.pin, "mask_key": card.mask_key, "address": f"127.0.0.1:{port}",
        }  # fmt: skip
    session = SessionConfig(
        n_features=asker.X.shape[1], n_outputs=n_outputs, input_bound=1.0, max_queries=100,
        quorum=len(others), patience_seconds=patience,
    )  # fmt: skip
    for name, role in roles.items():
        settings = settings_for(name, parties, session=session, mechanism=_MECHANISMS[task])
        if role != "asker":
            settings = replace(settings, ledger=BooksConfig(url="ledger.db", epsilon=1e6, delta=1e-5))
        (folder / name / "party.toml").write_text(write_party(settings))
    for other in others:
        (folder / other.name / "model.skops").write_bytes(dump_model(other.model))
    (folder / "noise").mkdir()


def _start(folder: Path, names: Sequence[str], running: list[subprocess.Popen[bytes]]) -> None:
    paths = os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    for name in names:
        config = str(folder / name / "party.toml")
        words = ["-m", "tellers", "party", "answer", "--config", config]
        if name == _GUARD:
            words = ["-m", "tests.real_round", config, str(folder / "noise")]
        with open(folder / f"{name}.log", "ab") as log:
            started = subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, env=environment)
            running.append(started)


def _wait_for(folder: Path, names: Sequence[str], *, patience: float) -> None:
    """Wait until the guardian has said that all are connected."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        said = (folder / f"{_GUARD}.log").read_text()
        if all(f"{name} is connected." in said for name in names):
            return
        time.sleep(0.1)
    raise TimeoutError(
        f"Expected {len(names)} parties at the guardian within {patience:g} seconds, got fewer."
    )


if __name__ == "__main__":
    NoiseRecorder(read_party(sys.argv[1]), Path(sys.argv[2]), say=say).run(say_address)
