"""Parties that cannot pay, askers that leave at a bad moment, and links that break for some parties only."""

from dataclasses import replace

import pytest

pytest.importorskip("cryptography")

from tellers import GNMax
from tellers.errors import RoundAborted
from tellers.parties import AskRole, ask
from tellers.parties import _answer as answerer
from tellers.parties._guard import FREE, LENT, Guardian
from tellers.parties._messages import Aborted, Out, Question
from tellers.parties._policy import PartyContext
from tellers.runs.settings.party import HardeningConfig, example_settings

from .fake_network import DAYS, NAMES, PROGRAM, TERMS, FakeNetwork

OTHERS = tuple(name for name in NAMES if name != "north")


def test_a_party_that_cannot_pay_is_left_out_before_the_set_is_fixed():
    network = FakeNetwork()
    network.policies["north"] = replace(network.policies["north"], affords=lambda n: n < 2)
    qid = network.query()
    assert network.charged == [qid]
    assert network.ledger.entries()[0].event["answering"] == list(OTHERS)
    assert {name for name, _ in network.masks_sent} == set(OTHERS)
    # What refuses is no broken link: nobody is blamed for it.
    assert network.guardian.state.marks == {}


def test_what_is_under_way_is_counted_too():
    network = FakeNetwork()
    asked = []
    network.policies["north"] = replace(network.policies["north"], affords=lambda n: not asked.append(n))
    network.open("ann", 3)
    network.open("bea", 4)
    assert asked == [3, 7]


def test_a_party_says_in_words_that_its_books_are_empty():
    network = FakeNetwork()
    policy = replace(network.policies["north"], affords=lambda n: False)
    asked = {"n_queries": 2, "n_features": 4, "n_outputs": 3, "program": PROGRAM, "terms": TERMS}
    _, said = answerer.question(
        policy, answerer.AnswererState(), "ann", Question(qid="1" * 32, **asked), now=0.0
    )
    assert said.why == "This party's own books cannot pay for it."


def test_what_the_guardian_cannot_pay_for_costs_no_mask():
    network = FakeNetwork(epsilon=10.0)
    network.query(n_queries=100)
    assert network.last().why == f"The budget does not suffice for so many queries. {FREE}"
    assert network.masks_sent == []
    assert network.charged == []


def test_a_budget_that_another_process_used_up_ends_the_query_after_masks_were_lent():
    network = FakeNetwork(epsilon=10.0)
    network.guardian.policy = replace(network.guardian.policy, affords=lambda n: True)
    qid = network.query(n_queries=100)
    assert network.last().kind == "aborted"
    assert "past the budget" in network.last().why
    assert network.last().why.endswith(LENT)
    assert len(network.masks_sent) == len(NAMES)
    assert qid not in network.steps
    assert network.charged == []


def test_an_asker_that_leaves_when_masks_were_asked_for_pays_for_it():
    network = FakeNetwork(policy={"max_wasted_per_day": 4, "quotas": {"ann": 7, "bea": 100}})
    for n_left in (1, 2):
        network.lost = set()
        qid = network.open()
        for name in NAMES:
            network.ask(qid, name)
        network.lost = {"west"}  # hears that its mask is wanted, and says nothing
        network.answered(qid, NAMES)
        assert network.guardian.state.queries[qid].phase == "masking"
        network.follow(network.guardian.left("ann"))
        network.guardian.joined("ann")
        assert network.marks("wasted", "ann") == 2 * n_left
        assert network.guardian.state.answered == {"ann": 2 * n_left}
    network.open()
    assert "ann is suspended until tomorrow (UTC): 4 queries ended by it" in network.last().why
    # Others are answered as before.
    network.lost = set()
    network.done(network.query("bea"), "bea")
    assert network.marks("wasted", "bea") == 0


@pytest.mark.parametrize("pairwise", [True, False])
def test_an_asker_that_leaves_earlier_pays_nothing(pairwise):
    network = FakeNetwork(pairwise=pairwise)
    network.open()
    network.follow(network.guardian.left("ann"))
    assert (network.guardian.state.marks, network.guardian.state.answered) == ({}, {})


def test_links_that_fail_for_the_same_party_again_and_again_are_changes():
    network = FakeNetwork(policy={"max_changes": 3})
    for n in range(4):
        qid = network.open()
        network.ask(qid, "north", deliver=False)
        network.say(
            "north", Out(qid=qid, why="failed")
        )  # as an asker that breaks its own link can bring about
        for name in OTHERS:
            network.ask(qid, name)
        network.answered(qid, OTHERS)
        if n < 3:
            assert network.ledger.entries()[-1].event["left_out"] == ["north"]
            assert network.marks("changed", "ann") == n + 1
            assert "ann is answered by another set than before, without north" in network.said[-1]
            network.done(qid)
    assert "left out a connected party, more than 3 times" in network.last().why
    assert len(network.charged) == 3
    # Read from the ledger by a guardian that begins anew.
    again = Guardian(network.rules, network.mechanism, network.ledger, network.guardian.noise)
    assert again.state.marks == network.guardian.state.marks
    # The next day it may change again: nobody is locked out for good.
    network.day = DAYS[10]
    assert network.marks("changed", "ann") == 0
    network.done(network.query(parties=OTHERS, failing=("north",)))
    assert len(network.charged) == 4


def test_who_is_gone_is_not_counted_as_left_out():
    network = FakeNetwork(policy={"max_changes": 0})
    network.follow(network.guardian.left("north"))
    for _ in range(3):
        network.done(network.query(parties=OTHERS))
    assert len(network.charged) == 3
    assert "left_out" not in network.ledger.entries()[0].event


# --- Parties that cost others what they keep on their books. ---

HONEST = ("east", "north", "south")


@pytest.mark.parametrize("restarts", [False, True], ids=["no restart", "restarts"])
def test_a_party_that_is_ready_and_then_out_drains_nobodys_books(restarts):
    """Of 60 queries all were lost, each on the books of every honest party, and nobody was struck."""
    network = FakeNetwork(policy={"max_wasted_per_day": 6})
    network.breaking = {"west"}
    for n in range(60):
        qid = network.query()
        network.done(qid)
        if restarts and n % 2:
            network.open_guardian()
            network.restart(HONEST[n % 3])
    # Three queries of two, and then it is not asked any more: all others have labels.
    for name in HONEST:
        assert network.truly_lost(name) == {(network.day, "ann"): 6}
        # A party that died counts what it had not written down yet as lost: the last query before each time.
        assert network.n_lost(name) - 6 in ([0] if not restarts else range(0, 21, 2))
    assert len(network.charged) == 57
    assert {tuple(entry.event["answering"]) for entry in network.entries} == {HONEST}
    assert all(entry.event["excused"] == ["west"] for entry in network.entries)
    # That is nobody's change of the set, and it is told to the log and to whoever asks.
    assert (network.marks("changed", "ann"), network.marks("wasted", "west")) == (0, 6)
    words = "west is suspended until tomorrow (UTC): 6 queries ended by it after masks were lent"
    assert any(said.startswith(words) for said in network.said)
    told = [message for message in network.heard["ann"] if message.kind == "opened"]
    assert [message.suspended for message in told[:4]] == [(), (), (), ("west",)]
    assert network.heard["ann"][1].why == (
        f"west said Ready, and lent no mask when it was asked for (refused). {LENT}"
    )
    # The next day it is asked again, and drains as little.
    network.day = DAYS[10]
    for _ in range(6):
        network.done(network.query())
    assert network.truly_lost("east") == {(DAYS[9], "ann"): 6, (DAYS[10], "ann"): 6}
    network.breaking = set()
    network.day = DAYS[11]
    network.done(network.query())
    assert network.entries[-1].event["answering"] == list(NAMES)
    assert network.marks("changed", "ann") == 0


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_whoever_is_not_there_at_the_roll_is_named_and_counted(how):
    network = FakeNetwork()
    qid = network.open()
    for name in NAMES:
        network.ask(qid, name)
    network.lost = {"west"}
    network.answered(qid, NAMES)
    if how == "gone":
        network.follow(network.guardian.left("west"))
    else:
        network.wait(31)
    assert network.last().why == (f"west said Ready, and lent no mask when it was asked for ({how}). {LENT}")
    assert network.marks("wasted", "west") == 2
    assert network.marks("breach", "west") == 0
    [entry] = network.ledger.entries()
    assert (entry.key, entry.event["outcome"], entry.event["blamed"]) == (qid, "lost", ["west"])
    assert float(entry.charged.values.max()) == 0.0


def test_with_plain_masks_it_is_counted_too_and_is_not_the_askers_change():
    network = FakeNetwork(pairwise=False, policy={"max_changes": 0})
    network.done(network.query())
    network.breaking = {"west"}
    qid = network.query()
    assert (network.last().kind, network.last().lent) == ("held", True)
    network.answered(qid, HONEST)
    assert network.charged[-1] == qid
    assert network.marks("wasted", "west") == 2
    assert network.marks("changed", "ann") == 0
    assert [network.n_lost(name) for name in NAMES] == [0, 0, 0, 0]


def test_with_plain_masks_a_mask_that_comes_late_is_not_asked_for_again():
    network = FakeNetwork(pairwise=False)
    qid = network.open()
    for name in NAMES:
        network.ask(qid, name)
    real, held_back = network.hear, []
    network.hear = lambda name, message: (
        held_back.append(message) if (name, message.kind) == ("south", "roll") else real(name, message)
    )
    network.breaking = {"west"}
    network.answered(qid, NAMES)
    network.hear = real
    network.hear("south", held_back[0])  # hears of the first roll when the guardian has given it up
    network.answered(qid, HONEST)
    assert network.charged == [qid]
    assert network.masks_sent.count(("south", qid)) == 1
    assert network.marks("wasted", "south") == 0


def test_attempts_that_masks_were_asked_for_are_on_the_quota_whatever_became_of_them():
    network = FakeNetwork(policy={"quotas": {"ann": 8}})
    network.breaking = {"west"}
    for _ in range(3):
        network.query()
    network.open_guardian()
    network.breaking = set()
    network.done(network.query())
    assert len(network.charged) == 1
    network.open(n_queries=1)
    assert "quota of 8" in network.last().why


def test_an_asker_that_says_nothing_after_masks_were_lent_pays_for_it():
    network = FakeNetwork(pairwise=False)
    network.breaking = {"west"}
    qid = network.query()
    network.wait(31)  # it is told to go on without west, and does not
    assert network.last().why == f"ann did not say in time who answered. {LENT}"
    assert network.marks("wasted", "ann") == 2
    assert network.guardian.state.answered == {"ann": 2}
    assert [network.n_lost(name) for name in HONEST] == [2, 2, 2]
    assert qid not in network.charged


def test_a_clock_that_is_put_back_clears_nothing():
    network = FakeNetwork(policy={"max_wasted_per_day": 2})
    network.breaking = {"west"}
    network.query()
    for day in (DAYS[8], DAYS[0]):
        network.day = day
        network.open()
        assert network.last().suspended == ("west",)
        network.open_guardian()
    assert network.n_lost("east") == 2
    network.day = DAYS[10]
    network.open()
    assert network.last().suspended == ()


# --- Links that break before anybody has proved who it is. ---


def test_a_handshake_that_fails_is_nobodys_change_of_set():
    network = FakeNetwork(policy={"max_changes": 0, "max_unreached_per_day": 3})
    network.done(network.query())
    for n in range(3):
        qid = network.query(parties=OTHERS, failing=("north",), why="unreached")
        words = "The link between ann and north broke before both had proved who they are."
        assert network.heard["ann"][-1].why == f"{words} {FREE}"
        assert qid not in network.charged
        assert network.marks("unreached", "ann") == n + 1
    assert [network.marks(what, "ann") for what in ("changed", "breach", "wasted")] == [0, 0, 0]
    assert network.guardian.state.answered == {"ann": 2}
    assert network.masks_sent == [(name, network.charged[0]) for name in NAMES]
    # An asker that does only this is answered nothing for the day, and others are.
    for _ in range(2):
        network.open()
        assert "ann is suspended until tomorrow (UTC): 3 queries that ended" in network.last().why
        network.open_guardian()
    network.done(network.query("bea"), "bea")
    network.day = DAYS[10]
    network.done(network.query())
    assert len(network.charged) == 3


def test_what_fails_after_both_have_proved_who_they_are_is_a_change():
    network = FakeNetwork()
    network.done(network.query())
    network.done(network.query(parties=OTHERS, failing=("north",)))
    assert network.marks("changed", "ann") == 1
    assert network.marks("unreached", "ann") == 0


# --- Asked again. ---


def test_two_attempts_share_no_id_no_mask_and_no_noise():
    network = FakeNetwork(mechanism=GNMax(sigma=1e6), epsilon=1e12)
    first = network.open()
    for name in NAMES:
        network.ask(first, name, n_queries=2)
    masks = {name: network.states[name].queries[first].mask for name in NAMES}
    nonces = {name: network.states[name].queries[first].nonce for name in NAMES}
    network.breaking = {"west"}
    network.answered(first, NAMES)
    network.breaking = set()
    second = network.open()
    for name in NAMES:
        network.ask(second, name)
        query = network.states[name].queries[second]
        assert not (query.mask == masks[name]).any()
        assert query.nonce != nonces[name]
    network.answered(second, NAMES)
    assert network.charged == [second]
    assert first not in network.steps
    third = network.query()
    noise = [network.steps[qid].answer_noise for qid in (second, third)]
    assert (noise[0] == noise[1]).mean() < 0.5


@pytest.mark.parametrize("why", [LENT, FREE, f"Somebody failed. {FREE}"])
def test_what_others_paid_for_is_not_asked_again_by_itself(monkeypatch, why):
    attempts = []

    def run(attempt):
        attempts.append(attempt.qid)
        raise RoundAborted(f"west said Ready, and lent no mask when it was asked for (gone). {why}")

    monkeypatch.setattr(ask, "require_engine", lambda: None)
    monkeypatch.setattr(ask._Attempt, "run", run)
    monkeypatch.setattr(ask.time, "sleep", lambda _: None)
    with AskRole(example_settings("asker")) as asker, pytest.raises(RoundAborted, match="west said") as told:
        asker.ask([[0.0, 0.0, 0.0, 0.0]] * 2)
    if why == LENT:
        assert len(attempts) == 1
        assert str(told.value).endswith("Asked again, these 2 queries would be on their books once more.")
    else:
        assert len(attempts) == len(set(attempts)) == 3


def test_what_a_rule_forbids_is_not_asked_again(monkeypatch):
    opened = []

    class Line:
        channel = None

    def hear(attempt, line, until):
        opened.append(attempt.qid)
        raise RoundAborted(Aborted(qid=attempt.qid, why=f"The quota of 5 queries is used. {FREE}").why)

    monkeypatch.setattr(ask, "require_engine", lambda: None)
    monkeypatch.setattr(ask._Attempt, "_hear", hear)
    with AskRole(example_settings("asker")) as asker:
        monkeypatch.setattr(asker, "_line", lambda name: Line)
        monkeypatch.setattr(
            Line, "channel", type("Channel", (), {"send": staticmethod(lambda message: None)})
        )
        with pytest.raises(RoundAborted, match="quota"):
            asker.ask([[0.0, 0.0, 0.0, 0.0]])
    assert len(opened) == 1


def test_a_mask_is_lent_to_no_set_smaller_than_the_quorum():
    # What a guardian that breaks its promise may see is priced for the shares of noise of a whole quorum.
    settings = example_settings("answerer")
    settings = replace(
        settings, session=replace(settings.session, quorum=3), hardening=HardeningConfig(pairwise=False)
    )
    assert PartyContext(settings).policy().session.quorum == 3
