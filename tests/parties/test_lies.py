"""Parties that put in what they like, on running roles with the engine: noticed, and nothing is learned."""

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.errors import RoundAborted
from tellers.parties import AskRole, _answer, _link, ask
from tellers.parties._ring import ring_sum
from tellers.parties._wire import Channel
from tellers.runs import MechanismConfig

from .process_network import ThreadNetwork, charged, compare, wait_for, warm

pytestmark = pytest.mark.campaign
N = 8


@pytest.fixture
def session(tmp_path, engine):
    made = []

    def start(**given):
        network = ThreadNetwork(tmp_path, n_answerers=3, patience=60.0, max_queries=20, **given)
        made.append(network)
        network.start_all()
        said = []
        asker = AskRole(network.settings("ann"), say=said.append)
        made.append(asker)
        return network, asker, said

    yield start
    for one in reversed(made):
        one.close()


def kinds(heard):
    return [kind for kind in heard if kind != "hello"]


@pytest.mark.parametrize("change", ["bit 0", "bit 63", "add -1"])
def test_a_guardian_that_changes_its_share_of_an_outcome_is_noticed_and_hears_no_more(
    session, monkeypatch, change
):
    # It flipped the last number of the share: labels that came out as others, or that could not be read so
    # that the asker said nothing, told it which label it was.
    network, asker, _ = session()
    heard, real = [], Channel.receive

    def receive(channel, **options):
        message = real(channel, **options)
        if channel.own_role == "guardian" and channel.peer.name == "ann":
            heard.append(message.kind)
        return message

    monkeypatch.setattr(Channel, "receive", receive)
    warm(network, asker)
    wait_for(lambda: heard.count("done") == heard.count("open"))
    heard.clear()
    monkeypatch.setattr(_link, "_WORKER", ("tests.parties.lying_worker", change))
    asker.close()
    before = len(charged(network))
    for n in range(1, 4):
        with pytest.raises(RoundAborted, match=r"share was changed. There are no labels.*stays charged"):
            asker.ask(network.rows(N))
        wait_for(lambda n=n: len(kinds(heard)) >= 3 * n)
        assert kinds(heard) == ["open", "answered", "done"] * n
        assert len(charged(network)) == before + n  # asked once, and not again


def test_a_mask_that_was_changed_takes_no_label(session, monkeypatch):
    network, asker, said = session()
    warm(network, asker)
    real = _answer.lend

    def lend(mask, **how):
        lent = real(mask, **how)
        lent[:, 2] += 10**6
        return lent

    monkeypatch.setattr(_answer, "lend", lend)
    batch = asker.ask(network.rows(N))
    assert (batch.labels == -1).all()
    assert batch.n_void == N
    assert any("Somebody does not follow the protocol" in words for words in said)


@pytest.mark.parametrize("added", [2**63, 10**6])
def test_an_asker_that_adds_to_its_sum_reads_nothing_off_silence(session, monkeypatch, added):
    network, asker, _ = session(
        mechanism=MechanismConfig(name="confident", sigma=0.1, threshold=2.0, sigma_threshold=0.3)
    )
    compare(network, asker, N)
    real = ring_sum

    def lying(parts):
        total = real(parts)
        total[:, 1] += np.int64(-(2**63)) if added == 2**63 else added
        return total

    monkeypatch.setattr(ask, "ring_sum", lying)
    with np.errstate(over="ignore"):
        batch = asker.ask(network.rows(20))
    assert batch.n_void == 20
    assert (batch.labels == -1).all()
