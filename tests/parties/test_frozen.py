"""Parties that are frozen and not dead: whoever waits gives up in time, and they are welcome back."""

import os
import signal
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("cryptography")

from tellers.errors import RoundAborted
from tellers.parties import AskRole
from tellers.parties import ask as asking

from . import instrumented_party
from .process_network import ProcessNetwork, begin, charged, compare, wait_for, warm

pytestmark = pytest.mark.campaign
PATIENCE = 10.0
N = 2


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


def wait_until_frozen(pid):
    def is_frozen():
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"

    wait_for(is_frozen, seconds=200, frozen=pid)


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
        compare(network, asker, N, parties=others)
        assert time.monotonic() - start < 3 * PATIENCE
        assert "south gave no sign of life" in network.log("guard")[since:]
        # By now the guardian knows, and nobody waits for it.
        start = time.monotonic()
        compare(network, asker, N, parties=others)
        assert time.monotonic() - start < 0.75 * PATIENCE  # who waits for it waits 0.8 of that
    network.wait_until_connected("south", since=since)
    warm(network, asker)
    compare(network, asker, N)


def test_the_guardian_is_frozen_before_anything_is_asked(network, asker):
    before = charged(network)
    with frozen(network.processes["guard"].pid):
        start = time.monotonic()
        with pytest.raises(RoundAborted, match=r"Waited in vain for guard.*Nothing was charged"):
            asker.ask(network.rows(2), n_retries=0)
        assert time.monotonic() - start < 1.5 * PATIENCE
    compare(network, asker, N)
    assert charged(network) == [*before, N]


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
    compare(network, asker, N)
    # What it heard before it was frozen, it may still have done.
    assert charged(network) in ([*before, N], [*before, N, N])


@contextmanager
def freezing_asker(network, step):
    config, log = network.folder / "bea" / "party.toml", network.folder / "bea.log"
    process = begin(instrumented_party.ask, config, f"freeze:{step}", 4, log=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_an_asker_is_frozen_before_its_query_is_charged(network, asker):
    before = charged(network)
    with freezing_asker(network, "on:opened") as bea:
        wait_until_frozen(bea.pid)
        compare(network, asker, N)
        time.sleep(PATIENCE)
        os.kill(bea.pid, signal.SIGCONT)
        bea.wait(timeout=200)
    # It may have one query on its way: it could ask again, so the first was given up.
    assert bea.returncode == 0, network.log("bea")
    assert "Trying again" in network.log("bea")
    assert "2 labels" in network.log("bea")
    assert charged(network) == [*before, N, N]


def test_an_asker_is_frozen_after_its_query_was_charged(network, asker):
    before, since = charged(network), len(network.log("guard"))
    with freezing_asker(network, "on:agreed") as bea:
        wait_until_frozen(bea.pid)
        words = "failed after it was charged"
        wait_for(lambda: words in network.log("guard")[since:], seconds=3 * PATIENCE)
        os.kill(bea.pid, signal.SIGCONT)
        bea.wait(timeout=200)
    assert "may have been charged" in network.log("bea")
    compare(network, asker, N)
    assert charged(network) == [*before, N, N]
