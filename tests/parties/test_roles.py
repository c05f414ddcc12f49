"""Guardian, answering parties and an asker as processes of their own, over TLS and with the engine."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.errors import RoundAborted
from tellers.ledger import open_ledger
from tellers.parties import AskRole
from tellers.runs import MechanismConfig

from .process_network import ENVIRONMENT, SOURCE, ProcessNetwork


@pytest.fixture
def make_network(tmp_path, engine):
    made = []

    def make(**options):
        made.append(ProcessNetwork(tmp_path, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def charged(network, name="guard"):
    """Return how many queries each entry of a party's books is for."""
    with open_ledger(network.folder / name / "ledger.db") as ledger:
        return [entry.event["n_queries"] for entry in ledger.entries()]


def compare(network, asker, n):
    """Ask for labels of random rows, and hold them against the clear computation with the noise drawn."""
    rows = network.rows(n)
    batch = asker.ask(rows)
    np.testing.assert_array_equal(batch.labels, network.clear(rows, batch.qid, batch.parties))
    return batch


@pytest.mark.slow
def test_labels_are_those_of_the_clear_with_the_noise_that_was_drawn(make_network):
    network = make_network().start_all()
    with AskRole(network.settings("ann")) as asker:
        for _ in range(2):
            assert compare(network, asker, 20).parties == network.names
    for name in ("guard", *network.names):
        assert charged(network, name) == [20, 20]
    assert "failed" not in network.log("guard")  # the asker was done, and hung up


SESSIONS = {
    "one class": {"n_answerers": 5},
    "labels": {"n_answerers": 5, "n_labels": 4},
    "plain masks": {"n_answerers": 3, "pairwise": False},
    "abstaining": {"n_answerers": 3, "abstain_below": 1.2},
}


@pytest.mark.campaign
@pytest.mark.parametrize("session", SESSIONS)
def test_more_sessions(make_network, session):
    network = make_network(**SESSIONS[session]).start_all()
    with AskRole(network.settings("ann")) as asker:
        for n in (100, 100, 31, 1):
            assert compare(network, asker, n).parties == network.names
    assert charged(network) == charged(network, "north") == [100, 100, 31, 1]


@pytest.mark.campaign
@pytest.mark.parametrize("bar", [False, True])
def test_parties_that_know_different_labels(make_network, bar):
    mechanism = MechanismConfig(name="binary", sigma=1.0)
    if bar:
        mechanism = MechanismConfig(name="confident-binary", sigma=1.0, threshold=1.5, sigma_threshold=0.8)
    sets = {"east": (0, 1), "north": (1, 3), "south": (0, 1, 2)}
    network = make_network(
        n_answerers=3, n_labels=4, labels=sets, mechanism=mechanism, patience=240.0
    ).start_all()
    with AskRole(network.settings("ann")) as asker:
        batch = compare(network, asker, 100)
        assert batch.parties == network.names
        # South alone knows it. With the bar a row is told with probability 0.25: one of the two answers is
        # missing by chance in less than 1e-4 of all runs.
        assert {0, 1} <= set(np.unique(batch.labels[:, 2]))
        network.kill("south")
        batch = compare(network, asker, 100)
        assert batch.parties == ("east", "north")
        assert (batch.labels[:, 2] == -1).all()
        assert {0, 1} <= set(np.unique(batch.labels[:, [0, 1, 3]]))
    assert charged(network) == charged(network, "north") == [100, 100]


@pytest.mark.campaign
def test_the_command_writes_labels_and_says_what_they_cost(make_network, tmp_path):
    network = make_network(max_queries=10).start_all()
    rows = network.rows(25)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    words = [
        "party", "ask", "--config", tmp_path / "ann" / "party.toml", "--rows", tmp_path / "rows.csv",
        "--out", tmp_path / "labels.csv", "--json",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}

    def ask():
        return subprocess.run(
            [sys.executable, "-m", "tellers", *map(str, words)], capture_output=True, text=True,
            env=environment, timeout=200, check=False,
        )  # fmt: skip

    done = ask()
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    with open(tmp_path / "labels.csv", newline="") as file:
        labels = np.array([int(line["label"]) for line in csv.DictReader(file)])
    batches = [batch["n_queries"] for batch in told["batches"]]
    assert batches == charged(network) == [10, 10, 5]
    starts = np.cumsum([0, *batches])
    for batch, start, end in zip(told["batches"], starts, starts[1:]):
        expected = network.clear(rows[start:end], batch["qid"], tuple(batch["answering"]))
        np.testing.assert_array_equal(labels[start:end], expected)
    with open_ledger(network.folder / "guard" / "ledger.db") as ledger:
        assert told["epsilon"] == pytest.approx(ledger.spent.epsilon(1e-5))
    again = ask()
    assert again.returncode == 2
    assert "is there" in again.stderr
    assert charged(network) == [10, 10, 5]


DYING = """
import sys
from tellers.cli import main
from instrumented_party import die_at
if sys.argv[1]:
    die_at(sys.argv[1])
main(sys.argv[2:])
"""


@pytest.mark.campaign
def test_a_command_that_was_killed_goes_on_where_it_stopped(make_network, tmp_path):
    network = make_network(n_labels=3, max_queries=10).start_all()
    rows = network.rows(25)
    np.save(tmp_path / "rows.npy", rows)

    def ask(out, *more, step=""):
        words = ["party", "ask", "--config", tmp_path / "ann" / "party.toml", "--rows", tmp_path / "rows.npy"]
        words += ["--out", tmp_path / out, "--json", *more]
        return subprocess.run(
            [sys.executable, "-c", DYING, step, *map(str, words)], capture_output=True, text=True,
            env=ENVIRONMENT, timeout=300, check=False,
        )  # fmt: skip

    def require_labels(told, out):
        with np.load(tmp_path / out) as found:
            labels, numbers = found["labels"], found["rows"].tolist()
        for batch in told["batches"]:
            start, end = batch["rows"]
            at = numbers.index(start)
            expected = network.clear(rows[start:end], batch["qid"], tuple(batch["answering"]))
            np.testing.assert_array_equal(labels[at : at + end - start], expected)

    # Before the third batch could be charged: nothing is lost.
    assert ask("free.npz", step="on:opened:3").returncode == -9
    assert charged(network) == [10, 10]
    done = ask("free.npz")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["n_before"], told["n_labelled"], told["n_lost"]) == (20, 25, 0)
    require_labels(told, "free.npz")
    assert charged(network) == [10, 10, 5]

    # After the second was charged, with its labels on their way: they are lost, and asked again if told to.
    assert ask("lost.npz", step="on:agreed:2").returncode == -9
    done = ask("lost.npz")
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert (told["n_before"], told["n_labelled"], told["n_lost"]) == (10, 15, 10)
    assert "10 rows, from row 10 on, may have been charged" in " ".join(done.stderr.split())
    require_labels(told, "lost.npz")
    done = ask("lost.npz", "--again")
    assert done.returncode == 0, done.stderr
    require_labels(json.loads(done.stdout), "lost.npz")
    assert charged(network) == [10, 10, 5, 10, 10, 5, 10]
    with open_ledger(network.folder / "guard" / "ledger.db") as ledger:
        spent = ledger.spent.epsilon(1e-5)
    with AskRole(network.settings("ann")) as asker:
        assert asker.price(60).epsilon(1e-5) == pytest.approx(spent)
        assert json.loads(done.stdout)["epsilon_at_most"] == pytest.approx(asker.price(35).epsilon(1e-5))


@pytest.mark.campaign
def test_a_budget_that_is_used_ends_it_and_nothing_is_charged(make_network):
    network = make_network(epsilon=45.0).start_all()
    with AskRole(network.settings("ann")) as asker:
        price = asker.price(20).epsilon(1e-5)
        assert 30 < price < 45, price
        compare(network, asker, 20)
        with pytest.raises(RoundAborted, match="Nothing was charged"):
            asker.ask(network.rows(20))
    # Refused before anybody lent a mask, and not asked again.
    for name in ("guard", *network.names):
        assert charged(network, name) == [20]
