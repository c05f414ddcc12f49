"""Every role killed at every step: what is charged, who goes on, and whether the next query works."""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.errors import RoundAborted
from tellers.ledger import open_ledger
from tellers.parties import AskRole

from .process_network import ENVIRONMENT, ProcessNetwork

pytestmark = pytest.mark.campaign
N = 2


@pytest.fixture(scope="module")
def network(tmp_path_factory, engine):
    # Labels, as their circuits are the smallest.
    made = ProcessNetwork(tmp_path_factory.mktemp("faults"), n_labels=3).start_all()
    yield made
    made.close()


@pytest.fixture(scope="module")
def asker(network):
    """An asker that keeps its links: only those to whoever died are made again."""
    with AskRole(network.settings("ann")) as made:
        yield made


def charged(network, name="guard"):
    with open_ledger(network.folder / name / "ledger.db") as ledger:
        return len(ledger.entries())


def compare(network, asker, *, parties=None):
    rows = network.rows(N)
    batch = asker.ask(rows)
    np.testing.assert_array_equal(batch.labels, network.clear(rows, batch.qid, batch.parties))
    if parties is not None:
        assert batch.parties == parties
    return batch


# Whether the party that dies is still in the set: only once its mask is there.
ANSWERER = {
    "on:expect": False,
    "on:question": False,
    "after:accepted": False,
    "before:run": False,
    "after:run": False,
    "after:ready": False,
    "on:roll": False,
    "after:charge": False,
    "after:mask": True,
}


@pytest.mark.parametrize("step", ANSWERER)
def test_an_answering_party_dies(network, asker, step):
    network.kill("south")
    network.restart("south", step=step)
    before, own, east = charged(network), charged(network, "south"), charged(network, "east")
    others = tuple(name for name in network.names if name != "south")
    compare(network, asker, parties=network.names if ANSWERER[step] else others)
    network.wait_for_death("south")
    assert charged(network) == before + 1
    assert charged(network, "south") == own + (step in ("after:charge", "after:mask"))
    # Whoever had lent a mask to a set that broke keeps it on its own books, and pays again for the next.
    if step in ("on:roll", "after:charge"):
        assert charged(network, "east") == east + 2
    else:
        assert charged(network, "east") in (east + 1, east + 2)
    network.restart("south")
    compare(network, asker, parties=network.names)
    assert charged(network) == before + 2


# Whether the query is charged.
GUARDIAN = {
    "on:open": False,
    "after:opened": False,
    "on:answered": False,
    "after:roll": False,
    "on:mask:3": False,
    "after:charge": True,
    "before:agreed": True,
    "after:agreed": True,
    "before:run": True,
}


@pytest.mark.parametrize("step", GUARDIAN)
def test_the_guardian_dies(network, asker, step):
    network.kill("guard")
    network.restart("guard", step=step)
    before = charged(network)
    try:
        asker.ask(network.rows(N), n_retries=0)
        has_labels = True
    except RoundAborted:
        has_labels = False
    network.wait_for_death("guard")
    # Its worker outlives it for a moment, and may end what it was told to do.
    assert not has_labels or step in ("after:agreed", "before:run")
    assert charged(network) == before + GUARDIAN[step]
    network.restart("guard")
    compare(network, asker, parties=network.names)
    assert charged(network) == before + GUARDIAN[step] + 1


# Whether the query is charged; None where it depends on who is faster.
ASKER = {
    "after:open": False,
    "on:opened": False,
    "after:question": False,
    "on:accepted": False,
    "before:run": False,
    "before:answered": False,
    "after:answered": None,
    "on:agreed": True,
    "before:done": True,
}

DYING = """
import sys
import numpy as np
from tellers.runs import read_party
from tellers.parties import AskRole
from instrumented_party import die_at
die_at(sys.argv[2])
AskRole(read_party(sys.argv[1])).ask(np.zeros((2, 6)), n_retries=0)
"""


@pytest.mark.parametrize("step", ASKER)
def test_the_asker_dies(network, asker, step):
    before, since = charged(network), len(network.log("guard"))
    words = [sys.executable, "-c", DYING, str(network.folder / "ann" / "party.toml"), step]
    assert subprocess.run(words, env=ENVIRONMENT, timeout=300, check=False).returncode == -9
    compare(network, asker, parties=network.names)
    found = charged(network) - before - 1
    assert found in ((0, 1) if ASKER[step] is None else (int(ASKER[step]),))
    assert "failed" not in network.log("guard")[since:]  # who is gone is gone: no alarm
