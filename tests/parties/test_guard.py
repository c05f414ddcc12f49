"""What a guardian tells its operator, and whom it lets go: no false alarm, and no frozen party for ever."""

import threading
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography")

from tellers import Accountant, Budget, MemoryLedger
from tellers.errors import LinkFailed, PeerRefused
from tellers.parties import _guard as guard
from tellers.parties._guard import GuardRole, PartyConnection
from tellers.parties._messages import Closed, Done, Ready
from tellers.parties._wire import PeerLost
from tellers.runs.settings.party import example_settings

QID = "1" * 32


class Wire:
    """A channel that keeps what is sent."""

    def __init__(self, name="ann", role="asker"):
        self.peer, self.sent, self.is_closed = SimpleNamespace(name=name, role=role), [], False

    def send(self, message):
        self.sent.append(message)

    def close(self):
        self.is_closed = True


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr(guard, "_GRACE", 20.0)
    said = []
    ledger = MemoryLedger(Accountant(Budget(epsilon=5.0, delta=1e-5)))
    role = GuardRole(example_settings("guardian"), ledger=ledger, say=said.append)

    def fail(before=lambda connection: None, *, later=None):
        connection = PartyConnection(Wire(), None)
        before(connection)
        if later is not None:
            threading.Timer(0.1, later, [connection]).start()
        role._tell_of_failure(connection, QID, LinkFailed("Expected a living worker, got exit code -9."))
        assert connection.channel.is_closed
        return said

    fail.role, fail.said = role, said
    return fail


def says_done(connection):
    connection.heard(Done(qid=QID))


def leaves(connection):
    connection.has_left = True


# --- Who broke a rule, and who was lost. ---


@pytest.fixture
def north(told):
    """Return what hosts a connection of an answering party that ends with an error; and what came of it."""
    role, said = told.role, told.said

    def end(error):
        wire = Wire("north", "answerer")
        wire.receive = lambda *, timeout: (_ for _ in ()).throw(error)
        role._host(wire)
        assert wire.is_closed
        return said[-2:], sum(role._guardian.state.marks.values())

    end.role, end.said = role, said
    return end


@pytest.mark.parametrize(
    "error", [PeerLost("north closed the connection."), TimeoutError("Waited in vain for north to speak.")]
)
def test_who_is_lost_broke_no_rule(north, error):
    for _ in range(5):
        assert north(error) == (["north is connected.", str(error)], 0)
    assert north.role._ledger.entries() == []


def test_who_breaks_rules_is_named_and_suspended_and_a_restart_knows_it(north):
    error = PeerRefused("Expected a header that is JSON, each name once, got something else.")
    for n in range(1, 6):
        said, count = north(error)
        assert f"north broke a rule. {error}" in said
        assert count == min(n, 3)  # the ledger does not grow for ever
    notes = [entry.event for entry in north.role._ledger.entries()]
    assert [(note["what"], note["blamed"], note["note"]) for note in notes] == [
        ("breach", ["north"], f"north broke a rule. {error}")
    ] * 3
    words = "north is suspended until tomorrow (UTC): 3 breaches of the rules, and max_strikes is 3."
    assert words in north.said
    later = []
    again = GuardRole(example_settings("guardian"), ledger=north.role._ledger, say=later.append)
    again._serve = lambda peers: None
    again.start()
    assert later == [words]


def test_an_asker_that_is_done_may_hang_up_without_a_word_in_the_log(told):
    assert told(says_done) == []


def test_its_last_word_may_come_after_its_link_is_gone(told):
    assert told(later=says_done) == []


@pytest.mark.parametrize("when", ["before", "later"])
def test_an_asker_that_went_is_no_alarm(told, when):
    words = told(**{when: leaves})
    assert words == ["ann went before it said that it has its labels; the query stays charged."]


def test_a_last_step_that_failed_with_an_asker_that_is_there_is_an_alarm(told, monkeypatch):
    monkeypatch.setattr(guard, "_GRACE", 0.3)
    assert told(lambda connection: connection.heard(Done(qid="2" * 32))) == [
        "The last step with ann failed after it was charged. Expected a living worker, got exit code -9."
    ]


def test_who_gives_no_sign_of_life_is_gone_after_half_of_the_patience():
    connection = PartyConnection(Wire("north", "answerer"), None)
    alive = [connection.call(1.0, patience=40.0, name="guard") for _ in range(25)]
    assert alive == [True] * 19 + [False] * 6
    assert {message.kind for message in connection.channel.sent} <= {"hello"}


@pytest.mark.parametrize("word", [Ready(qid=QID, nonce=QID), Closed(qid=QID, charged=True)])
def test_any_word_is_a_sign_of_life(word):
    connection = PartyConnection(Wire("north", "answerer"), None)
    for n in range(100):
        if n % 10 == 9:
            connection.heard(word)
        assert connection.call(1.0, patience=40.0, name="guard")
