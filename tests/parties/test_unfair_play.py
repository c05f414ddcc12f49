"""Parties that cannot pay, askers that leave at a bad moment, and links that break for some parties only."""

from dataclasses import replace

import pytest

pytest.importorskip("cryptography")

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
        network.lost = {"west"}
        qid = network.open()
        for name in NAMES:
            network.lost = set()
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
