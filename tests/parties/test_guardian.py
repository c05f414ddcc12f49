"""The guardian: who answers, what is charged and when, and what every failure costs."""

import sqlite3

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

pytest.importorskip("cryptography")

from tellers import Accountant, Binary, Budget, GNMax, LNMax, MemoryLedger, RdpCurve, SqliteLedger, Unit
from tellers.errors import InsecureNoise
from tellers.mechanisms import GNThreshold
from tellers.parties._guard import Guardian
from tellers.parties._ledger import charge_query, query_price, remembered
from tellers.parties._messages import Answered, Done, Mask, Out, Ready, Roll
from tellers.privacy.noise import secure, seeded
from tellers.runs import reprice

from .fake_network import DAYS, NAMES, FakeNetwork

BOTH = pytest.mark.parametrize("pairwise", [True, False], ids=["pairwise", "plain"])


@BOTH
def test_a_query_is_charged_and_decided_by_the_votes(pairwise):
    network = FakeNetwork(pairwise=pairwise, mechanism=GNMax(sigma=1e-3), epsilon=1e12)
    qid = network.query()
    assert [m.kind for m in network.heard["ann"]] == ["opened", "agreed"]
    assert network.charged == [qid]
    tally = network.tally(qid)
    winners = network.labels(qid)
    assert (tally[np.arange(2), winners] == tally.max(axis=1)).all()
    network.done(qid)
    assert not network.guardian.state.queries
    assert not any(state.queries for state in network.states.values())


def test_the_entry_says_what_was_asked_and_can_be_priced_again():
    mechanism = GNMax(sigma=4.0)
    network = FakeNetwork(mechanism=mechanism)
    qid = network.query(n_queries=7)
    [entry] = network.ledger.entries()
    assert entry.event["asker"] == "ann"
    assert entry.event["answering"] == list(NAMES)
    assert entry.event["n_queries"] == 7
    assert not entry.is_settled
    ranges = RdpCurve.zcdp(
        2 / (2 * 128.0**2)
    )  # of two counts that a ballot moves, below 32 x 4 votes of noise
    assert entry.event["ranges"] == {"sigma": 128.0, "n_moved": 2}
    np.testing.assert_allclose(entry.charged.values, 7 * (mechanism.price(Unit()) + ranges).values)
    again = reprice(network.ledger.entries())
    np.testing.assert_allclose(again.repriced.values, entry.charged.values)
    assert remembered(network.ledger) == {
        "used": {qid}, "answered": {"ann": 7}, "last_set": {"ann": (NAMES, ())}, "marks": {}
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


def fails_before_it_is_ready(network):
    qid = network.open()
    for name in NAMES[:3]:
        network.ask(qid, name)
    network.ask(qid, "west", deliver=False)
    network.fail(qid, "west")
    network.answered(qid, NAMES[:3])
    return qid


def is_killed_before_it_is_ready(network):
    qid = network.open()
    for name in NAMES[:3]:
        network.ask(qid, name)
    network.lost.add("west")
    network.follow(network.guardian.left("west"))
    network.answered(qid, NAMES[:3])
    return qid


def word_never_reaches_the_guardian(network):
    network.lost.add("west")  # connected, and silent
    qid = network.query()
    assert network.charged == []
    network.wait(50)
    assert network.last().kind == "held"
    network.answered(qid, NAMES[:3])
    return qid


def mask_never_reaches_the_guardian(network):
    qid = network.open()
    for name in NAMES:
        network.ask(qid, name)
    network.lost.add("west")
    network.answered(qid, NAMES)
    assert network.charged == []
    network.wait(31)
    if network.last().kind == "held":
        network.answered(qid, network.last().parties)
    return qid


def too_few_answer(network):
    qid = network.open()
    for name in NAMES[:2]:
        network.ask(qid, name)
    for name in NAMES[2:]:
        network.ask(qid, name, deliver=False)
        network.fail(qid, name)
    network.answered(qid, NAMES[:2])
    return qid


def sets_differ(network):
    return network.query(claim=NAMES[:3])


def asker_leaves_before(network):
    qid = network.open()
    for name in NAMES:
        network.ask(qid, name)
    network.follow(network.guardian.left("ann"))
    return qid


def asker_never_says(network):
    qid = network.open()
    for name in NAMES:
        network.ask(qid, name)
    network.wait(31)
    return qid


def asker_leaves_after(network):
    qid = network.query()
    network.follow(network.guardian.left("ann"))
    network.guardian.joined("ann")
    return qid


def last_step_is_never_done(network):
    qid = network.query()
    network.wait(1000)
    return qid


def an_answerer_leaves_after(network):
    qid = network.query()
    network.follow(network.guardian.left("west"))
    network.guardian.joined("west")
    return qid


def guardian_restarts_after(network):
    qid = network.query()
    network.open_guardian()
    return qid


def guardian_restarts_before(network):
    qid = network.open()
    for name in NAMES:
        network.ask(qid, name)
    network.open_guardian()
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
    network = FakeNetwork(pairwise=pairwise)
    qid = happens(network)
    is_charged = cancelling if pairwise else plain
    assert network.charged == ([qid] if is_charged else [])
    assert (qid in network.steps) == is_charged
    if is_charged:
        # A tally was summed over the very set that both sides agreed on.
        parties = network.entries[0].event["answering"]
        total = sum(network.votes[qid, name] for name in parties)
        shares = sum(network.shares[qid, name].astype(object) for name in parties)
        np.testing.assert_array_equal((shares + network.steps[qid].masks) % 2**64, total % 2**64)
    if qid in network.guardian.state.queries:
        assert network.guardian.state.queries[qid].phase == "concluding"
    for query in network.guardian.state.queries.values():
        assert not query.masks
    # Others survive: the next query works, under a new id, and is charged again.
    network.lost.clear()
    for name in (*NAMES, "ann"):
        network.guardian.joined(name)
    again = network.query()
    assert network.charged == [*([qid] if is_charged else []), again]


# --- The ledger comes first. ---


class Watched(MemoryLedger):
    """A ledger that remembers what the noise had drawn when it was written."""

    def reserve(self, *given, **named):
        assert not self.network.steps
        assert not self.network.drawn
        return super().reserve(*given, **named)


def test_nothing_is_drawn_before_the_ledger_has_it(monkeypatch):
    ledger = Watched(Accountant(Budget(epsilon=1e6, delta=1e-5)))
    network = FakeNetwork(ledger=ledger)
    ledger.network, network.drawn = network, []
    from tellers.parties import _guard as guarding

    real = guarding.draw
    monkeypatch.setattr(guarding, "draw", lambda *a, **k: (network.drawn.append(1), real(*a, **k))[1])
    qid = network.query()
    assert network.drawn == [1]
    assert network.charged == [qid]


def test_a_budget_that_is_used_ends_queries_and_keeps_masks_apart():
    price = query_price(GNMax(sigma=2.0), 2)
    enough = Accountant(Budget(epsilon=40.0, delta=1e-5))
    n_paid = 0
    while enough.affords(price * n_paid, price):
        n_paid += 1
    network = FakeNetwork(epsilon=40.0)
    for _ in range(n_paid):
        network.done(network.query())
    assert len(network.charged) == n_paid > 1
    qid = network.query()
    assert network.last().kind == "aborted"
    assert "budget does not suffice" in network.last().why
    assert "Nothing was charged" in network.last().why
    assert len(network.charged) == n_paid
    assert qid not in network.steps
    assert not network.guardian.state.queries


def test_a_ledger_that_cannot_be_written_ends_the_query(monkeypatch):
    network = FakeNetwork()
    monkeypatch.setattr(network.ledger, "reserve", lambda *a, **k: (_ for _ in ()).throw(TimeoutError()))
    qid = network.query()
    assert network.last().kind == "aborted"
    assert qid not in network.steps


def test_after_a_restart_nothing_is_forgotten(tmp_path):
    accountant = Accountant(Budget(epsilon=1e6, delta=1e-5))
    with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
        network = FakeNetwork(ledger=ledger, policy={"quotas": {"ann": 5}})
        qid = network.query()
    with sqlite3.connect(tmp_path / "spend.db") as file:  # on the disk, and not only in memory
        assert file.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0] > 0
    with SqliteLedger(tmp_path / "spend.db", accountant) as ledger:
        later = FakeNetwork(ledger=ledger, policy={"quotas": {"ann": 5}})
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
        day = DAYS[8] if number < 4 else DAYS[9]
        charge_query(ledger, f"{number:032x}", asker=asker, parties=parties, day=day, **asked)
    state = FakeNetwork(ledger=ledger).guardian.state
    assert state.marks == {(DAYS[8], "changed", "ann"): 1, (DAYS[9], "changed", "ann"): 1}


def test_seeded_noise_is_refused_by_the_ledger():
    ledger = MemoryLedger(Accountant(Budget(epsilon=1e6, delta=1e-5)))
    asked = {"mechanism": GNMax(sigma=2.0), "n_queries": 1, "asker": "ann", "parties": NAMES}
    with pytest.raises(InsecureNoise):
        charge_query(ledger, "0" * 32, noise=seeded(7), **asked)
    charge_query(ledger, "0" * 32, noise=secure(), **asked)


# --- Who answers is not for the asker to choose. ---


def test_a_party_that_was_never_asked_says_so():
    network = FakeNetwork()
    qid = network.open()
    for name in NAMES[:3]:
        network.ask(qid, name)
    network.answered(qid, NAMES[:3])
    assert network.last().kind == "opened"  # the guardian waits for whoever has not spoken
    network.wait(31)
    assert "not for it to choose" in network.last().why
    assert network.charged == []
    assert network.marks("breach", "ann") == 1
    assert "ann broke a rule. It left out west, by their word ready or never asked." in network.said


def test_strikes_end_an_asker_and_nobody_else():
    network = FakeNetwork(policy={"max_strikes": 2})
    for _ in range(2):
        network.query(claim=NAMES[1:])
        assert "not for it to choose" in network.last().why
    network.open()
    assert "ann is suspended until tomorrow (UTC): 2 breaches of the rules" in network.last().why
    network.query("bea")
    assert len(network.charged) == 1


def test_the_answering_set_may_change_so_often_and_no_more():
    network = FakeNetwork(policy={"max_changes": 2})

    def without(name):
        qid = network.open()
        for other in NAMES:
            network.ask(qid, other, deliver=other != name)
        if name:
            network.fail(qid, name)
        network.answered(qid, [other for other in NAMES if other != name])
        return qid

    told = [without(name) for name in ("", "west", "", "west")]
    assert network.charged == told[:3]
    assert "more than 2 times today" in network.last().why
    assert without("") in network.charged  # the same set as before goes on


def test_parties_that_are_not_there_are_not_waited_for():
    network = FakeNetwork()
    network.follow(network.guardian.left("west"))
    qid = network.query(parties=NAMES[:3])
    assert network.charged == [qid]
    network.follow(network.guardian.left("south"))
    network.open()
    assert "quorum of 3" in network.last().why


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
    network = FakeNetwork()
    network.open(**other)
    assert words in network.last().why
    assert "Nothing was charged" in network.last().why
    assert not network.guardian.state.queries


def test_quotas_count_what_is_on_its_way():
    network = FakeNetwork(policy={"quotas": {"ann": 5}, "max_open": 2})
    network.open(n_queries=3)
    network.open(n_queries=3)
    assert "quota of 5" in network.last().why
    network.open(n_queries=2)
    network.open(n_queries=1)
    assert "At most 2 queries" in network.last().why
    network.heard["eve"] = []
    network.open(asker="eve")
    assert "not among the askers" in network.last("eve").why


def refusal(network):
    return network.refusals[-1][1]


def test_words_out_of_turn_are_refused_and_harm_nothing():
    network = FakeNetwork()
    qid = network.open()
    network.ask(qid, "north")
    mask = np.zeros((2, 3), dtype=np.int64)
    for sender, message, words in [
        ("bea", Answered(qid=qid, parties=NAMES), "whoever opened"),
        ("bea", Done(qid=qid), "whoever opened"),
        ("bea", Answered(qid="f" * 32, parties=NAMES), "that was opened"),
        ("bea", Ready(qid=qid, nonce="0" * 32), "party of the roster"),
        ("bea", Mask(qid=qid, mask=mask), "party of the roster"),
    ]:
        network.say(sender, message)
        assert words in refusal(network)
        network.guardian.joined(sender)
        assert qid in network.guardian.state.queries
    network = FakeNetwork()
    qid = network.open()
    network.ask(qid, "north")
    network.say("north", Ready(qid=qid, nonce="0" * 32))
    assert "second word" in refusal(network)
    network.say("south", Mask(qid=qid, mask=mask))
    assert "got one before" in refusal(network)
    network.say("ann", Done(qid=qid))
    assert "after its last step" in refusal(network)
    assert network.charged == []


def test_sets_outside_the_roster_and_masks_of_another_shape():
    network = FakeNetwork()
    qid = network.open()
    network.say("ann", Answered(qid=qid, parties=("eve", "north")))
    assert "of the roster" in refusal(network)
    network = FakeNetwork()
    qid = network.open()
    for name in NAMES:
        network.ask(qid, name)
    network.lost.add("west")
    network.answered(qid, NAMES)
    network.say("west", Mask(qid=qid, mask=np.zeros((3, 3), dtype=np.int64)))
    assert "another shape" in refusal(network)
    assert network.charged == []


def test_a_mechanism_that_parties_cannot_compute_is_refused():
    ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    with pytest.raises(TypeError, match="LNMax"):
        Guardian(FakeNetwork().rules, LNMax(gamma=0.1), ledger, secure())


# --- Any order of events. ---


class Session(RuleBasedStateMachine):
    """Askers, answering parties and the clock do what they like; the books must add up."""

    queries = Bundle("queries")

    @initialize(pairwise=st.booleans())
    def begin(self, pairwise):
        self.budget = 30.0
        self.network = FakeNetwork(
            pairwise=pairwise, epsilon=self.budget, policy={"quotas": {"ann": 9, "bea": 40}}
        )
        self.present = set(NAMES) | {"ann", "bea"}

    @rule(target=queries, asker=st.sampled_from(["ann", "bea"]), n=st.integers(1, 3))
    def open(self, asker, n):
        if asker not in self.present:
            return None
        return asker, n, self.network.open(asker, n)

    @rule(query=queries, name=st.sampled_from(NAMES), deliver=st.booleans())
    def ask(self, query, name, deliver):
        if query and name in self.present:
            asker, n, qid = query
            self.network.ask(qid, name, asker, n, deliver=deliver)
            self.notice()

    @rule(query=queries)
    def ask_all_and_claim(self, query):
        if query and query[0] in self.present:
            asker, n, qid = query
            for name in sorted(self.present & set(NAMES)):
                self.network.ask(qid, name, asker, n)
            held = [name for name in NAMES if (qid, name) in self.network.shares]
            self.network.answered(qid, held, asker)
            self.notice()

    @rule(query=queries, name=st.sampled_from(NAMES))
    def fail(self, query, name):
        if query and name in self.present:
            self.network.fail(query[2], name)
            self.notice()

    @rule(query=queries, parties=st.sets(st.sampled_from(NAMES)))
    def claim(self, query, parties):
        if query and query[0] in self.present:
            self.network.answered(query[2], parties, query[0])
            self.notice()

    @rule(query=queries)
    def follow_what_is_held(self, query):
        if query and query[0] in self.present and self.network.heard[query[0]]:
            last = self.network.last(query[0])
            if last.kind == "held":
                self.network.answered(last.qid, last.parties, query[0])
                self.notice()

    @rule(query=queries)
    def done(self, query):
        if query and query[0] in self.present:
            self.network.done(query[2], query[0])
            self.notice()

    @rule(name=st.sampled_from((*NAMES, "ann", "bea")))
    def leave(self, name):
        self.present.discard(name)
        self.network.follow(self.network.guardian.left(name))

    @rule(name=st.sampled_from((*NAMES, "ann", "bea")))
    def join(self, name):
        self.present.add(name)
        self.network.guardian.joined(name)

    @rule(seconds=st.sampled_from([1, 31, 200]))
    def wait(self, seconds):
        self.network.wait(seconds)

    @rule()
    def restart(self):
        self.network.open_guardian()
        self.present = set(NAMES) | {"ann", "bea"}

    @precondition(lambda self: hasattr(self, "network"))
    @rule(name=st.sampled_from(NAMES), why=st.sampled_from(["failed", "refused", "not asked"]), query=queries)
    def say_out(self, name, why, query):
        if query and name in self.present:
            self.network.say(name, Out(qid=query[2], why=why))
            self.notice()

    def notice(self):
        """A refusal closed a connection."""
        for name, _ in self.network.refusals:
            self.present.discard(name)
        self.network.refusals.clear()

    @invariant()
    def the_books_add_up(self):
        if not hasattr(self, "network"):
            return
        network = self.network
        # Charged exactly where a last step was handed out, once each, within budget and quota.
        assert sorted(network.charged) == sorted(network.steps)
        assert network.ledger.accountant.epsilon(network.ledger.spent) <= self.budget
        for asker, quota in network.rules.quotas.items():
            asked = [e for e in network.entries if e.event["asker"] == asker]
            assert sum(e.event["n_queries"] for e in asked) <= quota
        for entry in network.entries:
            parties = entry.event["answering"]
            assert len(parties) >= network.rules.session.quorum
            step = network.steps[entry.key]
            shares = sum(network.shares[entry.key, name].astype(object) for name in parties)
            tally = sum(network.votes[entry.key, name] for name in parties)
            np.testing.assert_array_equal((shares + step.masks) % 2**64, tally % 2**64)

    @invariant()
    def no_mask_is_lent_twice_or_kept(self):
        if not hasattr(self, "network"):
            return
        assert len(set(self.network.masks_sent)) == len(self.network.masks_sent)
        for query in self.network.guardian.state.queries.values():
            assert query.phase != "charging"
            assert query.phase in ("masking", "asking", "agreeing") or not query.masks


class Liars(RuleBasedStateMachine):
    """An asker, an answering party and the clock do what they like, and parties restart: quotas hold.

    Honest are ann's opposite bea, three answering parties and the guardian. What honest parties have on their
    books without a label stays within their operators' quotas on every day, and no mask is lent twice.
    """

    queries = Bundle("queries")
    honest = NAMES[:3]
    limits = {"max_lost_per_asker": 4, "max_lost_per_day": 7}  # noqa: RUF012
    reasons = ("failed", "refused", "not asked", "unreached")

    @initialize(pairwise=st.booleans(), cap=st.sampled_from([4, 10**6, 10**6]))
    def begin(self, pairwise, cap):
        caps = dict.fromkeys(("max_strikes", "max_wasted_per_day", "max_unreached_per_day"), cap)
        self.network = FakeNetwork(
            pairwise=pairwise, policy={**caps, "max_changes": cap}, answerers={**self.limits, "quorum": 2}
        )
        self.rolls = []
        real = self.network.hear

        def hear(name, message):
            if message.kind == "roll":
                self.rolls.append((name, message))
            real(name, message)

        self.network.hear = hear

    @rule(target=queries, asker=st.sampled_from(["ann", "bea"]), n=st.integers(1, 2))
    def open(self, asker, n):
        return asker, n, self.network.open(asker, n)

    @rule(query=queries, parties=st.sets(st.sampled_from(NAMES)), claims=st.sets(st.sampled_from(NAMES)))
    def compute_and_claim(self, query, parties, claims):
        asker, n, qid = query
        for name in sorted(parties):
            self.network.ask(qid, name, asker, n)
        self.network.answered(qid, parties if asker == "bea" else claims, asker)

    @rule(query=queries, breaks=st.booleans())
    def ask_everybody(self, query, breaks):
        asker, n, qid = query
        self.network.breaking = {"west"} if breaks else set()
        held = [name for name in NAMES if self.network.ask(qid, name, asker, n)]
        self.network.answered(qid, held, asker)
        last = self.network.last(asker)
        if last.kind == "held":
            self.network.answered(last.qid, last.parties, asker)

    @rule(asker=st.sampled_from(["ann", "bea"]), n=st.integers(1, 2), breaks=st.integers(0, 3))
    def ask_a_whole_query(self, asker, n, breaks):
        for name in (*NAMES, asker):
            self.network.guardian.joined(name)
        self.ask_everybody((asker, n, self.network.open(asker, n)), bool(breaks))

    @rule(query=queries, word=st.sampled_from(["ready", "mask", *reasons]), n=st.integers(1, 3))
    def west_says(self, query, word, n):
        qid = query[2]
        words = {
            "ready": Ready(qid=qid, nonce="7" * 32),
            "mask": Mask(qid=qid, mask=np.ones((n, 3), np.int64)),
        }
        self.network.say("west", words.get(word) or Out(qid=qid, why=word))

    @rule(query=queries, parties=st.sets(st.sampled_from(NAMES)), is_done=st.booleans())
    def ann_says(self, query, parties, is_done):
        qid = query[2]
        self.network.say(
            "ann", Done(qid=qid) if is_done else Answered(qid=qid, parties=tuple(sorted(parties)))
        )

    @rule(query=queries, name=st.sampled_from(NAMES), why=st.sampled_from(["failed", "unreached"]))
    def ann_breaks_a_link(self, query, name, why):
        if query[0] == "ann" and self.network.ask(query[2], name, "ann", query[1], deliver=False):
            self.network.fail(query[2], name, why)

    @rule(name=st.sampled_from((*NAMES, "ann", "bea")), is_back=st.booleans())
    def leave(self, name, is_back):
        self.network.follow(self.network.guardian.left(name))
        if is_back:
            self.network.guardian.joined(name)

    @rule(name=st.sampled_from(honest))
    def party_restarts(self, name):
        self.network.restart(name)

    @rule()
    def guardian_restarts(self):
        self.network.open_guardian()

    @rule(day=st.sampled_from(DAYS[8:12]), seconds=st.sampled_from([1, 31, 200]))
    def time_goes(self, day, seconds):
        self.network.day = day
        self.network.wait(seconds)

    @precondition(lambda self: getattr(self, "rolls", None))
    @rule(data=st.data())
    def a_roll_comes_again(self, data):
        name, message = data.draw(st.sampled_from(self.rolls))
        less = dict(list(message.nonces.items())[: data.draw(st.integers(1, len(message.nonces)))])
        if name in self.honest:
            self.network.hear(name, Roll(qid=message.qid, nonces={**less, name: message.nonces[name]}))

    @invariant()
    def quotas_hold(self):
        if not hasattr(self, "network"):
            return
        network = self.network
        assert len(set(network.masks_sent)) == len(network.masks_sent)
        for name in self.honest:
            lost = network.truly_lost(name)
            assert all(n <= 4 for n in lost.values())
            for day in DAYS:
                assert sum(n for (when, _), n in lost.items() if when == day) <= 7
            # Nothing is lost that the party does not count, and whoever keeps to the rules broke none.
            assert all(
                network.states[name].marks.get((day, "lost", asker), 0) >= n
                for (day, asker), n in lost.items()
            )
            assert not any(what == "breach" and who == name for _, what, who in network.guardian.state.marks)


TestLiars = Liars.TestCase
TestLiars.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSession = Session.TestCase
TestSession.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_what_was_asked_before_sums_were_held_to_a_range_is_repriced_for_an_asker_that_lies():
    ledger = MemoryLedger(Accountant(Budget(100.0, 1e-5)))
    old = {"noise": "secure", "unit": "one ballot", "n_queries": 3, "outcome": "at the asker"}
    named = {
        "GNMax": {"sigma": 8.0},
        "ConfidentGNMax": {"sigma": 8.0, "threshold": 5.0, "sigma_threshold": 9.0},
    }
    for name, given in named.items():
        ledger.reserve(name, RdpCurve.zcdp(0.1), event={"mechanism": name, "parameters": given, **old})
    plain, confident = reprice(ledger.entries()).questions
    np.testing.assert_allclose(plain.repriced.values, 3 * GNMax(sigma=8.0).histogram_price(Unit()).values)
    assert confident.repriced is None
    assert "no price for an asker that changed its sum" in confident.why
