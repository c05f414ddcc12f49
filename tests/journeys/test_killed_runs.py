"""`tellers run` killed at 12 random moments: no charge is lost or made twice, and the end is the same."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest

from tellers import Accountant, Budget, SqliteLedger

from .. import forked

N_KILLS = 12
N_ASKED = 140  # of the 150 rows of the pool; the last ones are left to the run that is not killed
CONFIG = """
seed = 7

[data]
name = "synthetic"
n_public = 150
n_test = 100
options = { n_rows = 2000, difficulty = 0.4, n_classes = 4 }

[partition]
n_teachers = 40

[teachers]
model = "forest"
parameters = { n_estimators = 4 }
n_jobs = 1

[mechanism]
name = "confident"
sigma = 6.0
threshold = 24.0
sigma_threshold = 9.0

[budget]
epsilon = 30.0
delta = 1e-5

[queries]
batch = 1

[student]
model = "naive_bayes"
"""
ACCOUNTANT = Accountant(Budget(epsilon=30.0, delta=1e-5))


def start(config, folder):
    command = [
        sys.executable,
        "-m",
        "tellers",
        "run",
        str(config),
        "--out",
        str(folder),
        "--resume",
        "--json",
    ]
    return forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def books(folder):
    """Return what is on the ledger, after checking its chain: key -> (settled, labels)."""
    if not (folder / "ledger.db").exists():
        return {}
    with SqliteLedger(folder / "ledger.db", ACCOUNTANT) as ledger:
        ledger.verify()
        assert ACCOUNTANT.epsilon(ledger.spent) <= 30.0
        return {
            entry.key: (
                entry.is_settled,
                entry.charged.values,
                entry.release and entry.release.labels.tolist(),
            )
            for entry in ledger.entries()
        }


def teachers(folder):
    """Return what each finished teacher is made of."""
    found = {}
    for manifest in sorted((folder / "private" / "teachers").glob("teacher-*.json")):
        found[manifest.stem] = json.loads(manifest.read_text())["made_of"]
    return found


def progress(folder):
    """Return how many teachers and questions there are on disk, without waiting for the writer."""
    n_teachers = len(list((folder / "private" / "teachers").glob("teacher-*.json")))
    try:
        with closing(sqlite3.connect(f"file:{folder / 'ledger.db'}?mode=ro", uri=True)) as connection:
            (n_asked,) = connection.execute("SELECT count(*) FROM lines WHERE kind = 'reserved'").fetchone()
    except sqlite3.Error:  # not there yet, or just being made
        n_asked = 0
    return n_teachers + n_asked


def votes(folder):
    with np.load(folder / "private" / "votes.npz") as kept:
        return kept["ballots"]


@pytest.mark.campaign
def test_random_kills_change_nothing_but_the_time_it_takes(tmp_path):
    config = tmp_path / "study.toml"
    config.write_text(CONFIG)
    whole = start(config, tmp_path / "whole")
    assert whole.wait(timeout=300) == 0, whole.stderr.read()

    folder, moments = tmp_path / "killed", random.Random(7)
    before, where = {}, []
    # Moments all over the run: among its 40 teachers, its votes, its 150 questions. A kill comes up to 20 ms
    # after the run got that far, so it falls before, between or behind any two steps of a question.
    for target in sorted(moments.sample(range(1, 40 + N_ASKED), N_KILLS)):
        process = start(config, folder)
        deadline = time.monotonic() + 120
        while progress(folder) < target and process.poll() is None:
            assert time.monotonic() < deadline, "the run does not get on"
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.02))
        if process.poll() is not None:
            break  # it was faster than we are, and what it left is looked at below
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        now = books(folder)
        assert set(now) >= set(before), "a charge was lost"
        for key, (settled, charged, labels) in before.items():
            if settled:
                assert now[key][0], f"{key} is no longer settled"
                assert (now[key][1] == charged).all(), f"the charge of {key} changed"
                assert now[key][2] == labels, f"the labels of {key} changed"
            else:
                # Its price is paid and its outcome is gone: asking again would be a second charge.
                assert not now[key][0], f"{key} was settled by a later run"
        before = now
        where.append((len(teachers(folder)), len(now)))
    # The campaign is worth something only if it hit both training and asking.
    assert any(0 < n_teachers < 40 for n_teachers, _ in where), where
    assert any(0 < n_asked < 150 for _, n_asked in where), where
    assert sum(not settled for settled, _, _ in before.values()) <= N_KILLS

    last = start(config, folder)
    assert last.wait(timeout=300) == 0, last.stderr.read()
    result = json.loads(last.stdout.read())
    now = books(folder)
    assert teachers(folder) == teachers(tmp_path / "whole")
    assert (votes(folder) == votes(tmp_path / "whole")).all()
    for name in ("made_of.json", "partition.npz"):
        mine, theirs = (base / "private" / name for base in (folder, tmp_path / "whole"))
        if name.endswith("json"):
            assert mine.read_text() == theirs.read_text()
        else:
            with np.load(mine) as here, np.load(theirs) as there:
                assert all((here[key] == there[key]).all() for key in ("rows", "sizes"))
    # One entry per row of the pool that was asked, each asked once; what is not lost is in the labels.
    positions = sorted(int(key.rpartition("/")[2]) for key in now)
    assert positions == list(range(len(now))) == list(range(result["queries"]["n_asked"]))
    lost = [key for key, (settled, _, _) in now.items() if not settled]
    assert result["queries"]["n_lost"] == len(lost)
    with np.load(folder / "labels.npz") as kept:
        settled = [labels[0] for key, (done, _, labels) in now.items() if done]
        assert kept["labels"].tolist() == settled
        assert len(set(kept["rows"])) == len(kept["rows"])
    with SqliteLedger(folder / "ledger.db", ACCOUNTANT) as ledger:
        total = sum((entry.charged.values for entry in ledger.entries()), np.zeros(1))
        np.testing.assert_allclose(ledger.spent.values, total)


INTERACTIVE = """
seed = 7

[data]
name = "synthetic"
n_public = 80
n_test = 100
options = { n_rows = 980, difficulty = 0.4, n_classes = 3 }

[partition]
n_teachers = 40

[teachers]
model = "naive_bayes"
n_jobs = 1

[mechanism]
name = "interactive"
sigma = 5.0
threshold = 15.0
sigma_threshold = 8.0
student_confidence = 0.8

[queries]
warm_up = 30
warm_up_threshold = 20.0
per_round = 10
batch = 5

[budget]
epsilon = 30.0
delta = 1e-5
"""
KILLED_AT = """
import os, signal, sys
from tellers.runs import Room
from tellers.cli import main

ask, last = Room.ask, sys.argv.pop(1)

def ask_or_die(room, X, *, key, **options):
    if key.endswith(last):
        os.kill(os.getpid(), signal.SIGKILL)
    return ask(room, X, key=key, **options)

Room.ask = ask_or_die
main()
"""


def test_an_interactive_run_that_was_killed_between_batches_asks_the_same_again(tmp_path):
    config, folder = tmp_path / "tellers.toml", tmp_path / "study"
    config.write_text(INTERACTIVE)
    words = ["run", str(config), "--out", str(folder), "--resume", "--json"]
    program = [sys.executable, "-c", KILLED_AT, "/45", *words]  # the student speaks of rows 40 to 49 at once
    killed = forked.run(program, capture_output=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = books(folder)
    assert len(before) == 9
    ended = forked.run(
        [sys.executable, "-m", "tellers", *words], capture_output=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    whole = books(folder)
    assert len(whole) == 16
    for key, (_, _, labels) in before.items():
        assert whole[key][2] == labels  # read from the books, not asked again
    with SqliteLedger(folder / "ledger.db", ACCOUNTANT) as ledger:
        heard = ["student" in entry.event for entry in ledger.entries()]
    assert heard == [False] * 6 + [True] * 10
