"""Seconds and bytes of a confidential query, through the roles themselves as processes over loopback TLS.

    python benchmarks/parties.py                                    # 5 answerers, and 10 linear ones
    python benchmarks/parties.py --full                             # 5 and 10 of every task and kind

Both at batch 1 and 100; `--answerers`, `--task`, `--kind` and `--batch` choose others.

The guardian and every answerer are `tellers party guard` and `tellers party answer`, each with its own keys,
books and settings; the asker is this process. Rows and models are made up: 64 features, 10 classes or 5
labels, a network has 32 hidden units. The noise is so small that it is zero but once in 10^20 queries, so
each label can be held against the tally in the clear. Seconds are of whole queries: messages, ledgers that
flush the disk, votes and the last step; the first time also of starting, links and compiling. Bytes are those
inside TLS on all engines' links, and the masks. CPU seconds are of all processes together. Goals: 30 queries
per second and 0.4 MB per query for 5 linear answerers and batches of 100, on two cores.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier

from tellers.errors import MissingExtra
from tellers.parties import AskRole, clear_votes
from tellers.parties._certificates import make_certificate
from tellers.parties._engine import require_engine
from tellers.parties._policy import PartyContext
from tellers.runs import MechanismConfig, read_party, write_party
from tellers.runs.settings.party import BooksConfig, PartyLimitsConfig, SessionConfig, settings_for
from tellers.teachers.models import dump_model
from tellers.testing._ports import free_ports

SEED = 7
N_FEATURES, HIDDEN = 64, (32,)
QUICKEST, LIGHTEST = 30.0, 0.4  # the goals: queries per second at least, MB per query at most
SOURCE = str(Path(__file__).resolve().parents[1] / "src")


def fit(kind: str, task: str, n_outputs: int, rng: np.random.Generator) -> object:
    """Return a model of made-up data, so that models differ and agree mostly."""
    X = rng.normal(size=(200, N_FEATURES))
    scores = X[:, :n_outputs] + 0.5 * rng.normal(size=(200, n_outputs))
    y = scores.argmax(axis=1) if task == "single" else (scores > 0).astype(int)
    if kind == "network":
        return MLPClassifier(HIDDEN, max_iter=500, tol=1e-2, random_state=SEED).fit(X, y)
    linear = LogisticRegression(max_iter=50)
    return (linear if task == "single" else OneVsRestClassifier(linear)).fit(X, y)


def settle(folder: Path, task: str, kind: str, *, n_answerers: int, most: int) -> list[str]:
    """Write keys, settings and models of a session into a folder, and return the answerers' names."""
    rng, names = np.random.default_rng(SEED), [f"party{n}" for n in range(n_answerers)]
    roles = {"ann": "asker", "guard": "guardian"} | dict.fromkeys(names, "answerer")
    cards = {name: make_certificate(folder, name, role=role) for name, role in roles.items()}
    parties = {
        name: {
            "role": role, "pin": cards[name].pin, "mask_key": cards[name].mask_key,
            "address": f"127.0.0.1:{port}",
        }
        for (name, role), port in zip(roles.items(), free_ports(len(roles)))
    }  # fmt: skip
    n_outputs = 10 if task == "single" else 5
    session = SessionConfig(
        n_features=N_FEATURES, n_outputs=n_outputs, input_bound=8.0, max_queries=most, quorum=n_answerers,
        kind=kind, hidden=HIDDEN if kind == "network" else (), patience_seconds=300.0,
    )  # fmt: skip
    mechanism = MechanismConfig(name="gnmax" if task == "single" else "binary", sigma=0.1)
    for name, role in roles.items():
        settings = settings_for(name, parties, session=session, mechanism=mechanism)
        if role != "asker":
            books = BooksConfig(url="ledger.db", epsilon=1e9, delta=1e-5)
            settings = replace(settings, ledger=books, limits=PartyLimitsConfig(queries_per_asker=10**9))
        (folder / name / "party.toml").write_text(write_party(settings))
        if role == "answerer":
            (folder / name / "model.skops").write_bytes(dump_model(fit(kind, task, n_outputs, rng)))
    return names


def start(folder: Path, name: str, verb: str) -> subprocess.Popen[bytes]:
    """Start a role as anybody would."""
    words = ["-m", "tellers", "party", verb, "--config", str(folder / name / "party.toml")]
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    with open(folder / f"{name}.log", "wb") as log:
        return subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, env=environment)


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all below it; zero where they cannot be read."""
    parents, spent = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(place.parent.name)] = int(fields[1])
        spent[int(place.parent.name)] = int(fields[11]) + int(fields[12])
    ours, more = {os.getpid()}, True
    while more:
        more = {pid for pid, parent in parents.items() if parent in ours and pid not in ours}
        ours |= more
    return sum(spent.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


def plausible(folder: Path, names: list[str], rows: np.ndarray, labels: np.ndarray) -> bool:
    """Say whether labels are those of the tally in the clear; ties may go either way."""
    contexts = [PartyContext(read_party(folder / name / "party.toml")) for name in names]
    program = contexts[0].vote_program(len(rows))
    tally = sum(clear_votes(program, one.model(), program.encode(rows)) for one in contexts)
    if labels.ndim == 1:
        return bool((np.take_along_axis(tally, labels[:, None], axis=1)[:, 0] == tally.max(axis=1)).all())
    return bool(((labels == 1) == (2 * tally > len(names))).all())


def ask_until_all_are_there(asker: AskRole, rows: np.ndarray, n_answerers: int) -> None:
    """Ask once for links and compiling; parties may still be starting."""
    until = time.monotonic() + 300
    while True:
        try:
            if len(asker.ask(rows, n_retries=0).parties) == n_answerers:
                return
        except Exception:
            if time.monotonic() > until:
                raise
        time.sleep(0.5)


def measure(task: str, kind: str, *, n_answerers: int, batches: list[int], repeat: int) -> list[str]:
    """Run one session, print a line per batch size, and return which goals were missed."""
    rng, missed = np.random.default_rng(SEED), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        names = settle(folder, task, kind, n_answerers=n_answerers, most=max(batches))
        running = [start(folder, "guard", "guard"), *(start(folder, name, "answer") for name in names)]
        try:
            begun = time.perf_counter()
            with AskRole(read_party(folder / "ann" / "party.toml")) as asker:
                ask_until_all_are_there(asker, rng.normal(size=(batches[0], N_FEATURES)), n_answerers)
                first = time.perf_counter() - begun
                for number, batch in enumerate(batches):
                    rows = rng.normal(size=(batch, N_FEATURES))
                    if number:
                        begun = time.perf_counter()
                        asker.ask(rows)
                        first = time.perf_counter() - begun
                    before, found = cpu_seconds(), []
                    for _ in range(repeat):
                        found.append(asker.ask(rows))
                        assert plausible(folder, names, rows, found[-1].labels), "labels differ"
                    cpu = (cpu_seconds() - before) / repeat
                    seconds = sorted(one.seconds for one in found)
                    masks = n_answerers * 8 * batch * (10 if task == "single" else 5)
                    size = (np.mean([one.n_bytes for one in found]) + masks) / batch / 1e6
                    rate = batch / seconds[0]
                    print(
                        f"| {task}, {kind} | {n_answerers} | {batch} | {first:.1f} | {seconds[0]:.2f}-"
                        f"{seconds[-1]:.2f} | {cpu:.2f} | {rate:.{0 if rate >= 10 else 1}f} | {size:.3f} |",
                        flush=True,
                    )
                    if (n_answerers, kind, batch) == (5, "linear", 100):
                        if rate < QUICKEST:
                            missed.append(f"{task}: {rate:.0f} queries per second, not {QUICKEST:.0f}")
                        if size > LIGHTEST:
                            missed.append(f"{task}: {size:.2f} MB per query, not {LIGHTEST}")
        finally:
            for one in running:
                one.terminate()
            for one in running:
                one.wait(timeout=120)
    return missed


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--answerers", type=int, nargs="+")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--kind", nargs="+", default=["linear", "network"], choices=["linear", "network"])
    parser.add_argument("--task", nargs="+", default=["single", "multi"], choices=["single", "multi"])
    parser.add_argument("--check", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument(
        "--full", action="store_true", help="5 and 10 answerers, every task and kind, batches of 1 and 100"
    )
    asked = parser.parse_args()
    if asked.full:
        if asked.answerers:
            parser.error("Expected --full or --answerers, got both.")
        asked.answerers, asked.batch = [5, 10], [1, 100]
        asked.task, asked.kind = ["single", "multi"], ["linear", "network"]
    try:
        require_engine()
    except MissingExtra as missing:
        print(missing)
        return
    print(" ".join(["python", "benchmarks/parties.py", *sys.argv[1:]]) + f", seed {SEED}")
    busy = "" if not hasattr(os, "getloadavg") else f", load {os.getloadavg()[0]:.1f} before it began"
    print(f"{platform.machine()}, {os.cpu_count()} cores{busy}, Python {platform.python_version()}")
    print("| task, model | answerers | batch | first time s | s | CPU s | queries/s | MB/query |")
    print("|---|---|---|---|---|---|---|---|")
    cases = [(n, task, kind) for n in asked.answerers or [5] for task in asked.task for kind in asked.kind]
    if not asked.answerers and "single" in asked.task and "linear" in asked.kind:
        cases.append((10, "single", "linear"))
    goals: list[str] = []
    for n, task, kind in cases:
        goals += measure(task, kind, n_answerers=n, batches=asked.batch, repeat=asked.repeat)
    print("Goals missed: " + "; ".join(goals) if goals else "Goals met, where they were measured.")
    if asked.check and goals:
        sys.exit(1)


if __name__ == "__main__":
    main()
