"""An answering party and a question that its guardian has not announced, or announces a little later."""

import threading
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("skops")

from tellers.errors import LinkFailed, LinkUnreached
from tellers.ledger import open_ledger
from tellers.parties._answer import AnswerRole, delivered
from tellers.parties._ledger import remembered
from tellers.parties._messages import Closed, Expect, Hello, Question, Roll
from tellers.parties._policy import PartyContext
from tellers.parties._wire import PROTOCOL

from .process_network import ProcessNetwork

QID = "1" * 32


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return ProcessNetwork(tmp_path_factory.mktemp("answer"), n_labels=3, patience=60.0)


@pytest.fixture
def north(network):
    role = AnswerRole(network.settings("north"))
    yield role
    role.stop()


@pytest.fixture
def said(network):
    context = PartyContext(network.settings("ann"))
    shared = {"qid": QID, "n_queries": 2, "program": context.program_hash(2)}
    shared["terms"] = context.settings.terms
    session = context.settings.session
    question = Question(**shared, n_features=session.n_features, n_outputs=session.n_outputs)
    return question, Expect(**shared, asker="ann", seconds=2.0)


def test_what_is_announced_is_taken_at_once(north, said):
    question, coming = said
    assert north._obey(coming) == []
    start = time.monotonic()
    answer, mask = north._consider("ann", question)
    assert (answer.kind, mask.shape) == ("accepted", (2, 3))
    assert time.monotonic() - start < 20.0


def test_the_guardians_word_may_come_later(north, said):
    question, coming = said
    threading.Timer(0.3, lambda: north._obey(coming)).start()
    assert north._consider("ann", question)[0].kind == "accepted"


def test_what_is_never_announced_is_refused_and_the_guardian_hears_nothing_of_it(north, said, monkeypatch):
    question, coming = said
    told = []
    monkeypatch.setattr(north, "_tell", told.extend)
    hurried = SimpleNamespace(patience=0.5)
    monkeypatch.setattr(north, "_context", hurried)
    answer, mask = north._consider("ann", question)
    assert "announced no such query" in answer.why
    assert mask is None
    assert not north._state.queries
    assert told == []
    # Announced after all, it is over: nobody is blamed for not asking.
    assert north._obey(coming)[0].why == "refused"


def test_what_would_be_refused_anyhow_is_refused_at_once(north, said, network):
    question, _ = said
    other = Question(**{**vars(question), "terms": "0" * 64})
    start = time.monotonic()
    assert "other terms" in north._consider("ann", other)[0].why
    assert time.monotonic() - start < 20.0


@pytest.mark.parametrize(
    ("error", "why"), [(LinkUnreached("Nobody there."), "unreached"), (LinkFailed("Gone."), "failed")]
)
def test_a_link_that_nobody_proved_themselves_on_is_told_apart(north, said, monkeypatch, error, why):
    question, coming = said
    told, sent = [], []

    def need(*_):
        raise error

    north._obey(coming)
    monkeypatch.setattr(north, "_tell", told.extend)
    channel = SimpleNamespace(peer=SimpleNamespace(name="ann"), send=sent.append)
    assert not north._vote(channel, SimpleNamespace(need=need), question)
    assert [word.kind for word in sent] == ["accepted"]
    assert [(word.qid, word.why) for word in told] == [(QID, why)]


def test_what_went_on_is_written_down_when_it_stops(north, said, network):
    question, coming = said
    north._obey(coming)
    north._consider("ann", question)
    north._state, [ready] = delivered(north._state, QID)
    nonces = {"east": "2" * 32, "north": ready.nonce}
    assert [word.kind for word in north._obey(Roll(qid=QID, nonces=nonces))] == ["mask"]
    north._obey(Closed(qid=QID, charged=True))
    north.stop()
    with open_ledger(network.folder / "north" / "ledger.db") as ledger:
        assert not any(n for (_, what, _), n in remembered(ledger)["marks"].items() if what == "lost")
        assert [entry.key == QID for entry in ledger.entries()] == [True, False]


def test_a_sign_of_life(north):
    assert north._obey(Hello(name="guard", protocol=1)) == [Hello(name="north", protocol=PROTOCOL)]
    assert north._obey(Closed(qid=QID, charged=True)) == []
