"""Parties that cannot pay, askers that leave at a bad moment, and links that break for some parties only."""

from dataclasses import replace

import pytest

pytest.importorskip("cryptography")

from tellers.config.party import HardeningConfig
from tellers.config.party_files import example_settings
from tellers.errors import RoundAborted
from tellers.parties import answerer, ask
from tellers.parties.ask import AskRole
from tellers.parties.guarding import Guardian
from tellers.parties.messages import Aborted, Out, Question
from tellers.parties.queries import FREE, LENT
from tellers.parties.standing import Standing

from .town import NAMES, PROGRAM, TERMS, Town

OTHERS = tuple(name for name in NAMES if name != "north")


def test_a_party_that_cannot_pay_is_left_out_before_the_set_is_fixed():
    town = Town()
    town.policies["north"] = replace(town.policies["north"], affords=lambda n: n < 2)
    qid = town.query()
    assert town.charged == [qid]
    assert town.ledger.entries()[0].event["answering"] == list(OTHERS)
    assert {name for name, _ in town.masks_sent} == set(OTHERS)
    # What refuses is no broken link: nobody is blamed for it.
    assert town.guardian.state.changes == {"ann": 0}
    assert town.guardian.state.strikes == {}


def test_what_is_under_way_is_counted_too():
    town = Town()
    asked = []
    town.policies["north"] = replace(town.policies["north"], affords=lambda n: not asked.append(n))
    town.open("ann", 3)
    town.open("bea", 4)
    assert asked == [3, 7]


def test_a_party_says_in_words_that_its_books_are_empty():
    town = Town()
    policy = replace(town.policies["north"], affords=lambda n: False)
    asked = {"n_queries": 2, "n_features": 4, "n_outputs": 3, "program": PROGRAM, "terms": TERMS}
    _, said = answerer.question(policy, answerer.begin(), "ann", Question(qid="1" * 32, **asked), now=0.0)
    assert said.why == "This party's own books cannot pay for it."


def test_what_the_guardian_cannot_pay_for_costs_no_mask():
    town = Town(epsilon=10.0)
    town.query(n_queries=100)
    assert town.last().why == f"The budget does not suffice for so many queries. {FREE}"
    assert town.masks_sent == []
    assert town.charged == []


def test_a_budget_that_another_process_used_up_ends_the_query_after_masks_were_lent():
    town = Town(epsilon=10.0)
    town.guardian.policy = replace(town.guardian.policy, affords=lambda n: True)
    qid = town.query(n_queries=100)
    assert town.last().kind == "aborted"
    assert "past the budget" in town.last().why
    assert town.last().why.endswith(LENT)
    assert len(town.masks_sent) == len(NAMES)
    assert qid not in town.steps
    assert town.charged == []


def test_an_asker_that_leaves_when_masks_were_asked_for_pays_for_it():
    town = Town(policy={"max_strikes": 2, "quotas": {"ann": 7, "bea": 100}})
    for n_left in (1, 2):
        town.lost = {"west"}
        qid = town.open()
        for name in NAMES:
            town.lost = set()
            town.ask(qid, name)
        town.lost = {"west"}  # hears that its mask is wanted, and says nothing
        town.answered(qid, NAMES)
        assert town.guardian.state.queries[qid].phase == "masking"
        town.follow(town.guardian.left("ann"))
        town.guardian.joined("ann")
        assert town.guardian.state.strikes == {"ann": n_left}
        assert town.guardian.state.answered == {"ann": 2 * n_left}
    town.open()
    assert "left when masks were lent" in town.last().why
    # Others are answered as before.
    town.lost = set()
    town.done(town.query("bea"), "bea")
    assert town.guardian.state.strikes == {"ann": 2}


@pytest.mark.parametrize("pairwise", [True, False])
def test_an_asker_that_leaves_earlier_pays_nothing(pairwise):
    town = Town(pairwise=pairwise)
    town.open()
    town.follow(town.guardian.left("ann"))
    assert (town.guardian.state.strikes, town.guardian.state.answered) == ({}, {})


def test_links_that_fail_for_the_same_party_again_and_again_are_changes():
    town = Town(policy={"max_changes": 3})
    for n in range(4):
        qid = town.open()
        town.ask(qid, "north", deliver=False)
        town.say("north", Out(qid=qid, why="failed"))  # as an asker that breaks its own link can bring about
        for name in OTHERS:
            town.ask(qid, name)
        town.answered(qid, OTHERS)
        if n < 3:
            assert town.ledger.entries()[-1].event["left_out"] == ["north"]
            assert town.guardian.state.changes == {"ann": n + 1}
            town.done(qid)
    assert "left out a connected party, more than 3 times" in town.last().why
    assert len(town.charged) == 3
    # Read from the ledger by a guardian that begins anew.
    again = Guardian(town.rules, town.mechanism, town.ledger, town.guardian.noise)
    assert again.state.changes == {"ann": 3}


def test_who_is_gone_is_not_counted_as_left_out():
    town = Town(policy={"max_changes": 0})
    town.follow(town.guardian.left("north"))
    for _ in range(3):
        town.done(town.query(parties=OTHERS))
    assert len(town.charged) == 3
    assert "left_out" not in town.ledger.entries()[0].event


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
    assert Standing(settings).answerer_policy().least_set == 3
