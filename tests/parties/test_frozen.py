"""Parties that are frozen and not dead: whoever waits gives up in time, and they are welcome back."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("cryptography")

from tellers.errors import RoundAborted
from tellers.parties import AskRole
from tellers.parties import ask as asking

from .process_network import ENVIRONMENT, ProcessNetwork
from .test_role_faults import charged, compare

pytestmark = pytest.mark.campaign
PATIENCE = 20.0


@pytest.fixture(scope="module")
def network(tmp_path_factory, engine):
    made = ProcessNetwork(
        tmp_path_factory.mktemp("frozen"), n_labels=3, patience=PATIENCE, askers=("ann", "bea"),
        limits={"guard": {"max_open": 1}},
    ).start_all()  # fmt: skip
    yield made
    made.close()


@pytest.fixture(scope="module")
def asker(network):
    with AskRole(network.settings("ann")) as made:
        warm(network, made)
        yield made


def warm(network, asker):
    """Make links to everybody, however long that takes on a busy machine."""
    for _ in range(5):
        if asker.ask(network.rows(2)).parties == network.names:
            return
    raise AssertionError(network.log("guard"))


def wait_until_frozen(pid):
    until = time.monotonic() + 200
    while time.monotonic() < until:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[0] == "T":
                return
        time.sleep(0.05)
    raise AssertionError("Waited in vain for the process to freeze.")


@contextmanager
def frozen(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until_frozen(pid)
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("is_known", [True, False], ids=["connected", "not yet connected"])
def test_an_answering_party_is_frozen(network, asker, is_known):
    others = tuple(name for name in network.names if name != "south")
    if not is_known:
        asker._drop("south")
    since = len(network.log("guard"))
    with frozen(network.processes["south"].pid):
        start = time.monotonic()
        compare(network, asker, parties=others)
        assert time.monotonic() - start < 3 * PATIENCE
        assert "south gave no sign of life" in network.log("guard")[since:]
        # By now the guardian knows, and nobody waits for it.
        start = time.monotonic()
        compare(network, asker, parties=others)
        assert time.monotonic() - start < 0.75 * PATIENCE  # who waits for it waits 0.8 of that
    network.wait_until_connected("south", since=since)
    warm(network, asker)
    compare(network, asker, parties=network.names)


def test_the_guardian_is_frozen_before_anything_is_asked(network, asker):
    before = charged(network)
    with frozen(network.processes["guard"].pid):
        start = time.monotonic()
        with pytest.raises(RoundAborted, match=r"Waited in vain for guard.*Nothing was charged"):
            asker.ask(network.rows(2), n_retries=0)
        assert time.monotonic() - start < 1.5 * PATIENCE
    compare(network, asker, parties=network.names)
    assert charged(network) == before + 1


def test_the_guardian_is_frozen_while_parties_agree(network, asker, monkeypatch):
    network.kill("guard")
    network.restart("guard", step="freeze:on:answered")
    before, pid = charged(network), network.processes["guard"].pid
    with monkeypatch.context() as patch:
        patch.setattr(asking, "_AGREEING", 0.5)
        with pytest.raises(RoundAborted, match=r"Waited in vain for guard.*may have been charged"):
            asker.ask(network.rows(2), n_retries=2)
    wait_until_frozen(pid)
    os.kill(pid, signal.SIGCONT)
    compare(network, asker, parties=network.names)
    # What it heard before it was frozen, it may still have done.
    assert charged(network) - before in (1, 2)


FREEZING = """
import sys
import numpy as np
from tellers.runs import read_party
from tellers.parties import AskRole
from instrumented_party import die_at, freeze
die_at(sys.argv[2], die=freeze)
with AskRole(read_party(sys.argv[1]), say=print) as asker:
    print(len(asker.ask(np.zeros((2, 6)), n_retries=4).labels), "labels")
"""


@contextmanager
def freezing_asker(network, step):
    words = [sys.executable, "-c", FREEZING, str(network.folder / "bea" / "party.toml"), step]
    process = subprocess.Popen(
        words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_an_asker_is_frozen_before_its_query_is_charged(network, asker):
    before = charged(network)
    with freezing_asker(network, "on:opened") as bea:
        wait_until_frozen(bea.pid)
        compare(network, asker, parties=network.names)
        time.sleep(PATIENCE)
        os.kill(bea.pid, signal.SIGCONT)
        out, err = bea.communicate(timeout=200)
    # It may have one query on its way: it could ask again, so the first was given up.
    assert bea.returncode == 0, err
    assert "Trying again" in out
    assert "2 labels" in out
    assert charged(network) == before + 2


def test_an_asker_is_frozen_after_its_query_was_charged(network, asker):
    before, since = charged(network), len(network.log("guard"))
    with freezing_asker(network, "on:agreed") as bea:
        wait_until_frozen(bea.pid)
        until = time.monotonic() + 3 * PATIENCE
        while "failed after it was charged" not in network.log("guard")[since:]:
            assert time.monotonic() < until
            time.sleep(0.1)
        os.kill(bea.pid, signal.SIGCONT)
        _, err = bea.communicate(timeout=200)
    assert "may have been charged" in err
    compare(network, asker, parties=network.names)
    assert charged(network) == before + 2
