"""Every role killed at every step: what is charged, who goes on, and whether the next query works."""

import signal

import pytest

pytest.importorskip("cryptography")

from tellers.errors import RoundAborted
from tellers.parties import AskRole

from . import instrumented_party
from .process_network import ProcessNetwork, begin, charged, compare, wait_for

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


def n_charged(network, name="guard"):
    return len(charged(network, name))


def begin_again(network, name, step=""):
    """Start a party again, killed if it lives, and whoever else died before."""
    if name in network.processes:
        network.kill(name)
    network.start(*(other for other in network.names if other not in network.processes and other != name))
    network.restart(name, step=step)


def ask_once(asker, rows):
    """Return why there are no labels, or nothing."""
    try:
        asker.ask(rows)
    except RoundAborted as aborted:
        return str(aborted)
    return ""


# What an answering party does when it dies, in the second query that it sees; whether it is still in the set:
# only once its mask is there.
ANSWERER = {
    "on:expect:2": False,
    "on:question:2": False,
    "after:accepted:2": False,
    "before:run:2": False,
    "after:run:2": False,
    "after:ready:2": False,
    "on:roll:2": False,
    "after:charge:2": False,
    "after:mask:2": True,
}


@pytest.mark.parametrize("step", ANSWERER)
def test_an_answering_party_dies(network, asker, step):
    begin_again(network, "south", step)
    # Whoever comes back, as it did after the step before this one, is asked with everybody.
    compare(network, asker, N)
    before, own, east = n_charged(network), n_charged(network, "south"), n_charged(network, "east")
    others = tuple(name for name in network.names if name != "south")
    n_answered, n_lent = 1, 1
    if step.startswith(("on:roll", "after:charge", "after:ready")):
        # Once masks are asked for it is told who failed, and not asked again by itself. After Ready it may be
        # gone before that, and only left out.
        words = ask_once(asker, network.rows(N))
        told = "south said Ready, and lent no mask when it was asked for (gone)" in words
        assert told or (step.startswith("after:ready") and not words)
        n_answered, n_lent = 1 + (not words), 2
    compare(network, asker, N, parties=network.names if ANSWERER[step] else others)
    network.wait_for_death("south")
    assert n_charged(network) == before + n_answered
    assert n_charged(network, "south") == own + step.startswith(("after:charge", "after:mask"))
    assert n_charged(network, "east") == east + n_lent


def test_a_party_that_drains_others_is_suspended_and_a_guardian_that_restarts_knows_it(tmp_path, engine):
    limits = {"guard": {"max_wasted_per_day": 2 * N}}
    network, said = ProcessNetwork(tmp_path, n_labels=3, limits=limits), []
    others = tuple(name for name in network.names if name != "south")
    words = f"south is suspended until tomorrow (UTC): {2 * N} queries ended by it after masks were lent"
    try:
        network.start("guard", *others).start("south", step="drain").wait_until_connected(*network.names)
        with AskRole(network.settings("ann"), say=said.append) as asker:
            for n in (1, 2):
                with pytest.raises(RoundAborted, match=r"south said Ready.*on their books once more"):
                    asker.ask(network.rows(N))
                # The asker may hear of it before the others have read that their masks are asked for.
                wait_for(lambda n=n: [n_charged(network, name) for name in others] == [n, n])
                assert [n_charged(network, name) for name in ("guard", "south")] == [0, 0]
            assert words in network.log("guard")
            for n in (1, 2):
                compare(network, asker, N, parties=others)
                assert any("south is suspended by the guardian" in told for told in said)
                assert [n_charged(network, name) for name in ("guard", "east", "south")] == [n, 2 + n, 0]
                said.clear()
                if n == 1:
                    network.kill("guard")
                    since = len(network.log("guard"))
                    network.restart("guard")
                    assert words in network.log("guard")[since:]
    finally:
        network.close()


# What the guardian does when it dies, in its second query; whether the query is charged.
GUARDIAN = {
    "on:open:2": False,
    "after:opened:2": False,
    "on:answered:2": False,
    "after:roll:4": False,
    "on:mask:6": False,
    "after:charge:2": True,
    "before:agreed:2": True,
    "after:agreed:2": True,
    "before:run:2": True,
}


@pytest.mark.parametrize("step", GUARDIAN)
def test_the_guardian_dies(network, asker, step):
    begin_again(network, "guard", step)
    before = n_charged(network)
    compare(network, asker, N)
    assert n_charged(network) == before + 1
    try:
        asker.ask(network.rows(N), n_retries=0)
        has_labels = True
    except RoundAborted:
        has_labels = False
    network.wait_for_death("guard")
    # Its worker outlives it for a moment, and may end what it was told to do.
    assert not has_labels or step in ("after:agreed:2", "before:run:2")
    assert n_charged(network) == before + 1 + GUARDIAN[step]


# Whether the query is charged; None where it depends on who is faster.
ASKER = {
    "after:open": False,
    "on:opened": False,
    "after:question": False,
    "before:run": False,
    "before:answered": False,
    "after:answered": None,
    "on:agreed": True,
    "before:done": True,
}


@pytest.mark.parametrize("step", ASKER)
def test_the_asker_dies(network, asker, step):
    if "guard" not in network.processes:
        begin_again(network, "guard")
        compare(network, asker, N)
    before, since = n_charged(network), len(network.log("guard"))
    config = network.folder / "ann" / "party.toml"
    process = begin(instrumented_party.ask, config, step, 0, log=network.folder / "ann.log")
    assert process.wait(timeout=300) == -signal.SIGKILL
    compare(network, asker, N)
    found = n_charged(network) - before - 1
    assert found in ((0, 1) if ASKER[step] is None else (int(ASKER[step]),))
    assert "failed" not in network.log("guard")[since:]  # who is gone is gone: no alarm
