"""`tellers run` killed at twenty random moments: nothing is charged twice, no charge is lost, and the end is the same."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tellers import Accountant, Budget, SqliteLedger

N_KILLS = 20
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
parameters = { n_estimators = 12 }
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
    command = [sys.executable, "-m", "tellers", "run", str(config), "--out", str(folder), "--resume", "--json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def books(folder):
    """Return what is on the ledger, after checking its chain: key -> (settled, labels)."""
    if not (folder / "ledger.db").exists():
        return {}
    with SqliteLedger(folder / "ledger.db", ACCOUNTANT) as ledger:
        ledger.verify()
        assert ACCOUNTANT.epsilon(ledger.spent) <= 30.0
        return {
            entry.key: (entry.is_settled, entry.charged.values, entry.release and entry.release.labels.tolist())
            for entry in ledger.entries()
        }


def teachers(folder):
    """Return what each finished teacher is made of, and its bytes."""
    found = {}
    for manifest in sorted((folder / "private" / "teachers").glob("teacher-*.json")):
        found[manifest.stem] = json.loads(manifest.read_text())["made_of"]
    return found


def votes(folder):
    with np.load(folder / "private" / "votes.npz") as kept:
        return kept["ballots"]


@pytest.mark.slow
def test_twenty_kills_change_nothing_but_the_time_it_takes(tmp_path):
    config = tmp_path / "study.toml"
    config.write_text(CONFIG)
    began = time.perf_counter()
    whole = start(config, tmp_path / "whole")
    assert whole.wait(timeout=300) == 0, whole.stderr.read()
    length = time.perf_counter() - began

    folder, moments = tmp_path / "killed", random.Random(7)
    before, states = {}, []
    n_done = 0
    for _ in range(N_KILLS):
        process = start(config, folder)
        # Anywhere between the first import and a moment after the end of a run that was not cut short.
        try:
            process.wait(timeout=moments.uniform(0.15, 1.05) * length)
            assert process.returncode == 0, process.stderr.read()
            n_done += 1
        except subprocess.TimeoutExpired:
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
        assert sum(not settled for settled, _, _ in now.values()) <= N_KILLS
        before = now
        states.append((len(teachers(folder)), len(now)))
    # The campaign is worth something only if it hit training and asking, not imports alone.
    assert any(0 < n_teachers < 40 for n_teachers, _ in states) or any(0 < n < 150 for _, n in states), states

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
