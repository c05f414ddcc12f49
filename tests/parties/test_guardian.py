"""The guardian: who answers, what is charged and when, and what every failure costs."""

import sqlite3

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

pytest.importorskip("cryptography")

from tellers import Accountant, Binary, Budget, GNMax, LNMax, MemoryLedger, SqliteLedger, Unit
from tellers.errors import InsecureNoise
from tellers.mechanisms.labels import GNThreshold
from tellers.noise import secure, seeded
from tellers.parties.books import charge_query, query_price, remembered
from tellers.parties.guarding import Guardian
from tellers.parties.messages import Answered, Done, Mask, Out, Ready
from tellers.parties.policy import AnswererPolicy, GuardianPolicy
from tellers.repricing import reprice

from .town import NAMES, TERMS, Town, program_for

BOTH = pytest.mark.parametrize("pairwise", [True, False], ids=["pairwise", "plain"])


@BOTH
def test_a_query_is_charged_and_decided_by_the_votes(pairwise):
    town = Town(pairwise=pairwise, mechanism=GNMax(sigma=1e-3), epsilon=1e12)
    qid = town.query()
    assert [m.kind for m in town.heard["ann"]] == ["opened", "agreed"]
    assert town.charged == [qid]
    tally = town.tally(qid)
    winners = town.labels(qid)
    assert (tally[np.arange(2), winners] == tally.max(axis=1)).all()
    town.done(qid)
    assert not town.guardian.state.queries
    assert not any(state.queries for state in town.states.values())


def test_the_entry_says_what_was_asked_and_can_be_priced_again():
    mechanism = GNMax(sigma=4.0)
    town = Town(mechanism=mechanism)
    qid = town.query(n_queries=7)
    [entry] = town.ledger.entries()
    assert entry.event["asker"] == "ann"
    assert entry.event["answering"] == list(NAMES)
    assert entry.event["n_queries"] == 7
    assert not entry.is_settled
    np.testing.assert_allclose(entry.charged.values, 7 * mechanism.price(Unit()).values)
    again = reprice(town.ledger.entries())
    np.testing.assert_allclose(again.repriced.values, entry.charged.values)
    assert remembered(town.ledger) == {
        "used": {qid}, "answered": {"ann": 7}, "last_set": {"ann": NAMES}, "changes": {"ann": 0}
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mechanism", "most"),
    [
        (GNMax(sigma=20.0), 0.65 * 2 / 20.0**2),
        (Binary(sigma=20.0, n_labels=6), 0.64 * 6 * 2 / 20.0**2),
        (GNThreshold(sigma=20.0, n_labels=6, max_labels=2), 0.64 * 4 * 2 / (2 * 20.0**2)),
    ],
)
def test_prices_are_those_of_the_mechanisms(mechanism, most):
    curve = query_price(mechanism, 1)
    at_two = float(curve.values[list(curve.orders).index(2.0)])
    assert 0 < at_two <= most
    np.testing.assert_allclose(query_price(mechanism, 5).values, 5 * curve.values)


# --- The failure table. ---


def fails_before_it_is_ready(town):
    qid = town.open()
    for name in NAMES[:3]:
        town.ask(qid, name)
    town.ask(qid, "west", deliver=False)
    town.fail(qid, "west")
    town.answered(qid, NAMES[:3])
    return qid


def is_killed_before_it_is_ready(town):
    qid = town.open()
    for name in NAMES[:3]:
        town.ask(qid, name)
    town.lost.add("west")
    town.follow(town.guardian.left("west"))
    town.answered(qid, NAMES[:3])
    return qid


def word_never_reaches_the_guardian(town):
    town.lost.add("west")  # connected, and silent
    qid = town.query()
    assert town.charged == []
    town.wait(50)
    assert town.last().kind == "held"
    town.answered(qid, NAMES[:3])
    return qid


def mask_never_reaches_the_guardian(town):
    qid = town.open()
    for name in NAMES:
        town.ask(qid, name)
    town.lost.add("west")
    town.answered(qid, NAMES)
    assert town.charged == []
    town.wait(31)
    if town.last().kind == "held":
        town.answered(qid, town.last().parties)
    return qid


def too_few_answer(town):
    qid = town.open()
    for name in NAMES[:2]:
        town.ask(qid, name)
    for name in NAMES[2:]:
        town.ask(qid, name, deliver=False)
        town.fail(qid, name)
    town.answered(qid, NAMES[:2])
    return qid


def sets_differ(town):
    return town.query(claim=NAMES[:3])


def asker_leaves_before(town):
    qid = town.open()
    for name in NAMES:
        town.ask(qid, name)
    town.follow(town.guardian.left("ann"))
    return qid


def asker_never_says(town):
    qid = town.open()
    for name in NAMES:
        town.ask(qid, name)
    town.wait(31)
    return qid


def asker_leaves_after(town):
    qid = town.query()
    town.follow(town.guardian.left("ann"))
    town.guardian.joined("ann")
    return qid


def last_step_is_never_done(town):
    qid = town.query()
    town.wait(1000)
    return qid


def an_answerer_leaves_after(town):
    qid = town.query()
    town.follow(town.guardian.left("west"))
    town.guardian.joined("west")
    return qid


def guardian_restarts_after(town):
    qid = town.query()
    town.open_guardian()
    return qid


def guardian_restarts_before(town):
    qid = town.open()
    for name in NAMES:
        town.ask(qid, name)
    town.open_guardian()
    return qid


TABLE = [
    # what happens, charged with masks that cancel, charged with plain masks
    (fails_before_it_is_ready, True, True),
    (is_killed_before_it_is_ready, True, True),
    (word_never_reaches_the_guardian, True, True),
    (mask_never_reaches_the_guardian, False, True),
    (too_few_answer, False, False),
    (sets_differ, False, False),
    (asker_leaves_before, False, False),
    (asker_never_says, False, False),
    (asker_leaves_after, True, True),
    (last_step_is_never_done, True, True),
    (an_answerer_leaves_after, True, True),
    (guardian_restarts_after, True, True),
    (guardian_restarts_before, False, False),
]


@BOTH
@pytest.mark.parametrize(("happens", "cancelling", "plain"), TABLE, ids=[row[0].__name__ for row in TABLE])
def test_the_failure_table(pairwise, happens, cancelling, plain):
    town = Town(pairwise=pairwise)
    qid = happens(town)
    is_charged = cancelling if pairwise else plain
    assert town.charged == ([qid] if is_charged else [])
    assert (qid in town.steps) == is_charged
    if is_charged:
        # A tally was summed over the very set that both sides agreed on.
        parties = town.ledger.entries()[0].event["answering"]
        total = sum(town.votes[qid, name] for name in parties)
        shares = sum(town.shares[qid, name].astype(object) for name in parties)
        np.testing.assert_array_equal((shares + town.steps[qid].masks) % 2**64, total % 2**64)
    if qid in town.guardian.state.queries:
        assert town.guardian.state.queries[qid].phase == "concluding"
    for query in town.guardian.state.queries.values():
        assert not query.masks
    # Others survive: the next query works, under a new id, and is charged again.
    town.lost.clear()
    for name in (*NAMES, "ann"):
        town.guardian.joined(name)
    again = town.query()
    assert town.charged == [*([qid] if is_charged else []), again]


# --- The ledger comes first. ---


class Watched(MemoryLedger):
    """A ledger that remembers what the noise had drawn when it was written."""

    def reserve(self, *given, **named):
        assert not self.town.steps
        assert not self.town.drawn
        return super().reserve(*given, **named)


def test_nothing_is_drawn_before_the_ledger_has_it(monkeypatch):
    ledger = Watched(Accountant(Budget(epsilon=1e6, delta=1e-5)))
    town = Town(ledger=ledger)
    ledger.town, town.drawn = town, []
    from tellers.parties import guarding

    real = guarding.draw
    monkeypatch.setattr(guarding, "draw", lambda *a, **k: (town.drawn.append(1), real(*a, **k))[1])
    qid = town.query()
    assert town.drawn == [1]
    assert town.charged == [qid]


def test_a_budget_that_is_used_ends_queries_and_keeps_masks_apart():
    price = query_price(GNMax(sigma=2.0), 2)
    enough = Accountant(Budget(epsilon=40.0, delta=1e-5))
    n_paid = 0
    while enough.affords(price * n_paid, price):
        n_paid += 1
    town = Town(epsilon=40.0)
    for _ in range(n_paid):
        town.done(town.query())
    assert len(town.charged) == n_paid > 1
    qid = town.query()
    assert town.last().kind == "aborted"
    assert "budget does not suffice" in town.last().why
    assert "Nothing was charged" in town.last().why
    assert len(town.charged) == n_paid
    assert qid not in town.steps
    assert not town.guardian.state.queries


def test_a_ledger_that_cannot_be_written_ends_the_query(monkeypatch):
    town = Town()
    monkeypatch.setattr(town.ledger, "reserve", lambda *a, **k: (_ for _ in ()).throw(TimeoutError()))
    qid = town.query()
    assert town.last().kind == "aborted"
    assert qid not in town.steps


def test_after_a_restart_nothing_is_forgotten(tmp_path):
    accountant = Accountant(Budget(epsilon=1e6, delta=1e-5))
    with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
        town = Town(ledger=ledger, policy={"quotas": {"ann": 5}})
        qid = town.query()
    with sqlite3.connect(tmp_path / "spend.db") as file:  # on the disk, and not only in memory
        assert file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] > 0
    with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
        later = Town(ledger=ledger, policy={"quotas": {"ann": 5}})
        assert later.guardian.state.answered == {"ann": 2}
        later.open(qid=qid)
        assert later.refusals == [("ann", "Expected a new id for a new query, got one that was used before.")]
        later.guardian.joined("ann")
        later.done(later.query())
        later.open()
        assert "quota of 5" in later.last().why


def test_how_often_the_answering_set_changed_is_read_from_the_ledger():
    ledger = MemoryLedger(Accountant(Budget(epsilon=1e6, delta=1e-5)))
    asked = {"mechanism": GNMax(sigma=2.0), "n_queries": 1, "noise": secure()}
    fewer = NAMES[:2]
    sets = [("ann", NAMES), ("bea", fewer), ("ann", NAMES), ("ann", fewer), ("bea", fewer), ("ann", NAMES)]
    for number, (asker, parties) in enumerate(sets):
        charge_query(ledger, f"{number:032x}", asker=asker, parties=parties, **asked)
    state = Town(ledger=ledger).guardian.state
    assert state.changes == {"ann": 2, "bea": 0}


def test_seeded_noise_is_refused_by_the_ledger():
    ledger = MemoryLedger(Accountant(Budget(epsilon=1e6, delta=1e-5)))
    asked = {"mechanism": GNMax(sigma=2.0), "n_queries": 1, "asker": "ann", "parties": NAMES}
    with pytest.raises(InsecureNoise):
        charge_query(ledger, "0" * 32, noise=seeded(7), **asked)
    charge_query(ledger, "0" * 32, noise=secure(), **asked)


def test_an_asker_may_pay_from_an_account_of_its_own():
    town = Town()
    one = query_price(GNMax(sigma=2.0), 2)
    town.ledger.open_account("asker/ann", Budget(epsilon=one.epsilon(1e-5) * 1.2, delta=1e-5))
    town.guardian.account = lambda asker: f"asker/{asker}" if asker == "ann" else None
    town.query()
    town.query()
    assert "asker/ann" in town.last().why
    town.query("bea")
    assert len(town.charged) == 2


# --- Who answers is not for the asker to choose. ---


def test_a_party_that_was_never_asked_says_so():
    town = Town()
    qid = town.open()
    for name in NAMES[:3]:
        town.ask(qid, name)
    town.answered(qid, NAMES[:3])
    assert town.last().kind == "opened"  # the guardian waits for whoever has not spoken
    town.wait(31)
    assert "not for it to choose" in town.last().why
    assert town.charged == []
    assert town.guardian.state.strikes == {"ann": 1}


def test_strikes_end_an_asker_and_nobody_else():
    town = Town(policy={"max_strikes": 2})
    for _ in range(2):
        town.query(claim=NAMES[1:])
        assert "not for it to choose" in town.last().why
    town.open()
    assert "too often" in town.last().why
    town.query("bea")
    assert len(town.charged) == 1


def test_the_answering_set_may_change_so_often_and_no_more():
    town = Town(policy={"max_changes": 2})

    def without(name):
        qid = town.open()
        for other in NAMES:
            town.ask(qid, other, deliver=other != name)
        if name:
            town.fail(qid, name)
        town.answered(qid, [other for other in NAMES if other != name])
        return qid

    told = [without(name) for name in ("", "west", "", "west")]
    assert town.charged == told[:3]
    assert "more than 2 times" in town.last().why
    assert without("") in town.charged  # the same set as before goes on


def test_parties_that_are_not_there_are_not_waited_for():
    town = Town()
    town.follow(town.guardian.left("west"))
    qid = town.query(parties=NAMES[:3])
    assert town.charged == [qid]
    town.follow(town.guardian.left("south"))
    town.open()
    assert "quorum of 3" in town.last().why


# --- What is refused. ---


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"terms": "0" * 64}, "other terms"),
        ({"program": "0" * 64}, "another program"),
        ({"n_queries": 101}, "at most 100"),
    ],
)
def test_queries_that_are_not_opened(other, words):
    town = Town()
    town.open(**other)
    assert words in town.last().why
    assert "Nothing was charged" in town.last().why
    assert not town.guardian.state.queries


def test_quotas_count_what_is_on_its_way():
    town = Town(policy={"quotas": {"ann": 5}, "max_open": 2})
    town.open(n_queries=3)
    town.open(n_queries=3)
    assert "quota of 5" in town.last().why
    town.open(n_queries=2)
    town.open(n_queries=1)
    assert "At most 2 queries" in town.last().why
    town.heard["eve"] = []
    town.open(asker="eve")
    assert "not among the askers" in town.last("eve").why


def refusal(town):
    return town.refusals[-1][1]


def test_words_out_of_turn_are_refused_and_harm_nothing():
    town = Town()
    qid = town.open()
    town.ask(qid, "north")
    mask = np.zeros((2, 3), dtype=np.int64)
    for sender, message, words in [
        ("bea", Answered(qid=qid, parties=NAMES), "whoever opened"),
        ("bea", Done(qid=qid), "whoever opened"),
        ("bea", Answered(qid="f" * 32, parties=NAMES), "that was opened"),
        ("bea", Ready(qid=qid, nonce="0" * 32), "party of the roster"),
        ("bea", Mask(qid=qid, mask=mask), "party of the roster"),
    ]:
        town.say(sender, message)
        assert words in refusal(town)
        town.guardian.joined(sender)
        assert qid in town.guardian.state.queries
    town = Town()
    qid = town.open()
    town.ask(qid, "north")
    town.say("north", Ready(qid=qid, nonce="0" * 32))
    assert "second word" in refusal(town)
    town.say("south", Mask(qid=qid, mask=mask))
    assert "got one before" in refusal(town)
    town.say("ann", Done(qid=qid))
    assert "after its last step" in refusal(town)
    assert town.charged == []


def test_sets_outside_the_roster_and_masks_of_another_shape():
    town = Town()
    qid = town.open()
    town.say("ann", Answered(qid=qid, parties=("eve", "north")))
    assert "of the roster" in refusal(town)
    town = Town()
    qid = town.open()
    for name in NAMES:
        town.ask(qid, name)
    town.lost.add("west")
    town.answered(qid, NAMES)
    town.say("west", Mask(qid=qid, mask=np.zeros((3, 3), dtype=np.int64)))
    assert "another shape" in refusal(town)
    assert town.charged == []


def test_policies_that_make_no_sense():
    given = {"n_outputs": 3, "terms": TERMS, "program_for": program_for}
    with pytest.raises(ValueError, match="quorum from 2 to 2"):
        GuardianPolicy(("north", "south"), {"ann": 1}, 3, **given)
    with pytest.raises(ValueError, match="'north'"):
        GuardianPolicy(("north", "south"), {"north": 1}, 2, **given)
    with pytest.raises(ValueError, match="twice"):
        GuardianPolicy(("north", "north"), {"ann": 1}, 2, **given)
    with pytest.raises(ValueError, match="quota of ann"):
        AnswererPolicy("north", {"ann": -1}, 3, 4, TERMS, program_for)
    ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    with pytest.raises(TypeError, match="LNMax"):
        Guardian(GuardianPolicy.example(), LNMax(gamma=0.1), ledger, secure())


# --- Any order of events. ---


class Session(RuleBasedStateMachine):
    """Askers, answering parties and the clock do what they like; the books must add up."""

    queries = Bundle("queries")

    @initialize(pairwise=st.booleans())
    def begin(self, pairwise):
        self.budget = 30.0
        self.town = Town(pairwise=pairwise, epsilon=self.budget, policy={"quotas": {"ann": 9, "bea": 40}})
        self.present = set(NAMES) | {"ann", "bea"}

    @rule(target=queries, asker=st.sampled_from(["ann", "bea"]), n=st.integers(1, 3))
    def open(self, asker, n):
        if asker not in self.present:
            return None
        return asker, n, self.town.open(asker, n)

    @rule(query=queries, name=st.sampled_from(NAMES), deliver=st.booleans())
    def ask(self, query, name, deliver):
        if query and name in self.present:
            asker, n, qid = query
            self.town.ask(qid, name, asker, n, deliver=deliver)
            self.notice()

    @rule(query=queries)
    def ask_all_and_claim(self, query):
        if query and query[0] in self.present:
            asker, n, qid = query
            for name in sorted(self.present & set(NAMES)):
                self.town.ask(qid, name, asker, n)
            held = [name for name in NAMES if (qid, name) in self.town.shares]
            self.town.answered(qid, held, asker)
            self.notice()

    @rule(query=queries, name=st.sampled_from(NAMES))
    def fail(self, query, name):
        if query and name in self.present:
            self.town.fail(query[2], name)
            self.notice()

    @rule(query=queries, parties=st.sets(st.sampled_from(NAMES)))
    def claim(self, query, parties):
        if query and query[0] in self.present:
            self.town.answered(query[2], parties, query[0])
            self.notice()

    @rule(query=queries)
    def follow_what_is_held(self, query):
        if query and query[0] in self.present and self.town.heard[query[0]]:
            last = self.town.last(query[0])
            if last.kind == "held":
                self.town.answered(last.qid, last.parties, query[0])
                self.notice()

    @rule(query=queries)
    def done(self, query):
        if query and query[0] in self.present:
            self.town.done(query[2], query[0])
            self.notice()

    @rule(name=st.sampled_from((*NAMES, "ann", "bea")))
    def leave(self, name):
        self.present.discard(name)
        self.town.follow(self.town.guardian.left(name))

    @rule(name=st.sampled_from((*NAMES, "ann", "bea")))
    def join(self, name):
        self.present.add(name)
        self.town.guardian.joined(name)

    @rule(seconds=st.sampled_from([1, 31, 200]))
    def wait(self, seconds):
        self.town.wait(seconds)

    @rule()
    def restart(self):
        self.town.open_guardian()
        self.present = set(NAMES) | {"ann", "bea"}

    @precondition(lambda self: hasattr(self, "town"))
    @rule(name=st.sampled_from(NAMES), why=st.sampled_from(["failed", "refused", "not asked"]), query=queries)
    def say_out(self, name, why, query):
        if query and name in self.present:
            self.town.say(name, Out(qid=query[2], why=why))
            self.notice()

    def notice(self):
        """A refusal closed a connection."""
        for name, _ in self.town.refusals:
            self.present.discard(name)
        self.town.refusals.clear()

    @invariant()
    def the_books_add_up(self):
        if not hasattr(self, "town"):
            return
        town = self.town
        # Charged exactly where a last step was handed out, once each, within budget and quota.
        assert sorted(town.charged) == sorted(town.steps)
        assert town.ledger.accountant.epsilon(town.ledger.spent) <= self.budget
        for asker, quota in town.rules.quotas.items():
            asked = [e for e in town.ledger.entries() if e.event["asker"] == asker]
            assert sum(e.event["n_queries"] for e in asked) <= quota
        for entry in town.ledger.entries():
            parties = entry.event["answering"]
            assert len(parties) >= town.rules.quorum
            step = town.steps[entry.key]
            shares = sum(town.shares[entry.key, name].astype(object) for name in parties)
            tally = sum(town.votes[entry.key, name] for name in parties)
            np.testing.assert_array_equal((shares + step.masks) % 2**64, tally % 2**64)

    @invariant()
    def no_mask_is_lent_twice_or_kept(self):
        if not hasattr(self, "town"):
            return
        assert len(set(self.town.masks_sent)) == len(self.town.masks_sent)
        for query in self.town.guardian.state.queries.values():
            assert query.phase != "charging"
            assert query.phase in ("masking", "asking", "agreeing") or not query.masks


TestSession = Session.TestCase
TestSession.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
