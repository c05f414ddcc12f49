"""From when on an asker must count a query as charged, whatever happens next."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.errors import PeerRefused, RoundAborted
from tellers.parties import AskRole, ask
from tellers.parties._guard import FREE, LENT
from tellers.parties._messages import Aborted, Agreed, Held
from tellers.parties.ask import _Attempt
from tellers.runs.settings.party import example_settings

SHARES = {name: np.zeros((1, 3), dtype=np.int64) for name in ("north", "south", "west")}


class Guardian:
    """The other end of a channel: it answers by a script, and may be gone when it is spoken to."""

    def __init__(self, *answers, notes):
        self.answers, self.notes, self.heard = list(answers), notes, []

    def send(self, message):
        if self.answers and self.answers[0] == "gone":
            raise PeerRefused("The connection to guard was lost.")
        # What may be charged was written down before anything was sent.
        assert self.notes
        assert self.notes[-1] is True
        self.heard.append(message.parties)

    def receive(self, *, timeout):
        answer = self.answers.pop(0)
        if answer == "silent":
            raise TimeoutError("Waited in vain for guard to speak.")
        return answer


def agree(*answers):
    """Return what came of it, what was noted in order, and whether the query may be charged in the end."""
    notes = []
    with AskRole(example_settings("asker")) as asker:
        attempt = _Attempt(asker, np.zeros((1, 4), dtype=np.int64), lambda _, may: notes.append(may))
        guardian = Guardian(
            *(one if isinstance(one, str) else one(attempt.qid) for one in answers), notes=notes
        )
        try:
            found = attempt._agree(SimpleNamespace(channel=guardian), SHARES)
        except (RoundAborted, PeerRefused, TimeoutError) as error:
            found = type(error)
    assert notes[-1] is attempt.may_be_charged
    return found, notes, guardian.heard


def held(*parties):
    return lambda qid: Held(qid=qid, parties=parties, lent=False)


def agreed(*parties):
    return lambda qid: Agreed(qid=qid, parties=parties)


def aborted(why):
    return lambda qid: Aborted(qid=qid, why=why)


def test_what_is_agreed_on_is_charged():
    assert agree(agreed("north", "south", "west"))[:2] == (("north", "south", "west"), [True])


def test_another_set_is_charged_only_when_it_is_agreed_on():
    found, notes, heard = agree(held("north", "south"), agreed("north", "south"))
    assert found == ("north", "south")
    assert notes == [True, False, True]
    assert heard == [("north", "south", "west"), ("north", "south")]


def test_what_the_guardian_ended_for_free_is_free():
    assert agree(aborted(f"Quorum missed. {FREE}"))[:2] == (RoundAborted, [True, False])


def test_what_it_ended_without_that_word_may_be_charged():
    assert agree(aborted("The ledger cannot be written."))[:2] == (RoundAborted, [True])


def test_a_guardian_that_is_gone_before_it_heard_has_charged_nothing():
    assert agree("gone")[:2] == (PeerRefused, [True, False])


def test_a_guardian_that_says_nothing_may_have_charged():
    assert agree("silent")[:2] == (TimeoutError, [True])


def test_a_set_with_somebody_else_in_it_is_refused_and_counts_as_charged():
    assert agree(agreed("east", "north"))[:2] == (PeerRefused, [True])


@pytest.mark.parametrize(("lent", "words"), [(True, LENT), (False, FREE)])
def test_a_guardian_that_is_gone_after_masks_were_lent_is_not_asked_again(monkeypatch, lent, words):
    attempts = []

    def line(asker, name):
        attempts.append(name)
        answers = [lambda qid: Held(qid=qid, parties=("north", "south"), lent=lent), "gone"]
        channel = Guardian(*answers, notes=[True])
        return SimpleNamespace(channel=channel)

    monkeypatch.setattr(ask, "require_engine", lambda: None)
    monkeypatch.setattr(ask.time, "sleep", lambda _: None)
    monkeypatch.setattr(AskRole, "_line", line)
    monkeypatch.setattr(_Attempt, "_open", lambda attempt, line: None)
    monkeypatch.setattr(_Attempt, "_collect", lambda attempt, line, opened: SHARES)
    real = _Attempt._hear

    def hear(attempt, line, until):
        line.channel.answers[0] = line.channel.answers[0](attempt.qid)
        return real(attempt, line, until)

    monkeypatch.setattr(_Attempt, "_hear", hear)
    with AskRole(example_settings("asker")) as asker, pytest.raises(RoundAborted) as told:
        asker.ask([[0.0, 0.0, 0.0, 0.0]])
    assert f"The connection to guard was lost. {words}" in str(told.value)
    assert len(attempts) == (1 if lent else 3)
