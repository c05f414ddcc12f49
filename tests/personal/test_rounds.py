"""Whoever leaves is unlearned: rounds of teachers trained anew, on public costs, within all budgets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    MemoryLedger,
    NoisyHistogram,
    Room,
    Unit,
    Votes,
    noise,
)
from tellers.errors import BudgetExhausted
from tellers.ledger import open_group_accounts
from tellers.runs import label_pool
from tellers.runs.personal import Rounds, Upsampling, make_plan, read_consent, rounds_on
from tellers.runs.personal.rounds import assign_without, first_and_last, round_name, round_seed, who_goes_on
from tellers.teachers import VotedPool

DELTA = 1e-5
POOL = np.arange(60.0)[:, None]


def people(budgets, each):
    return read_consent(np.repeat(budgets, each), delta=DELTA)


def books(consent, ceiling=None):
    most = sum(group.epsilon for group in consent.groups) if ceiling is None else ceiling
    ledger = MemoryLedger(Accountant(Budget(most, DELTA)))
    open_group_accounts(ledger, {group.name: Budget(group.epsilon, DELTA) for group in consent.groups})
    return ledger


class Trainer:
    """Stands in for training: keeps every seating, and returns ballots of as many teachers."""

    def __init__(self, n_rows=60, ballots=None):
        self.seatings, self.n_rows, self.ballots = (
            {},
            n_rows,
            ballots or (lambda n, rows: np.zeros((n, rows))),
        )

    def __call__(self, seating, absent):
        assert absent not in self.seatings, "a round is trained once"
        self.seatings[absent] = seating
        cast = self.ballots(len(seating.partition), self.n_rows).astype(np.int64)
        return VotedPool(Votes.from_ballots(cast, n_classes=3))


def ask_all(consent, plan, mechanism, *, ledger, train=None, key="run", **limits):
    train = train or Trainer()
    rounds, nobody = Rounds(consent, 7, train), None
    room = rounds.begin(Room(nobody, mechanism, ledger, noise.secure(), plan=plan), key=key)
    labels = label_pool(
        room, POOL, seed=3, queries=np.arange(len(POOL)), key=key, next_room=rounds.next_room, **limits
    )
    return labels, train


def spent(ledger, name):
    return ledger.accounts()[f"group/{name}"].spent.epsilon(DELTA)


def test_the_others_go_on_with_teachers_who_never_saw_who_left():
    consent = people([1.5, 8.0], [150, 150])
    plan = Upsampling(consent.groups, GNMax(8.0), 20, copies_of=(1, 2))
    ledger = books(consent)
    labels, train = ask_all(consent, plan, GNMax(8.0), ledger=ledger)
    assert list(train.seatings) == [(), ("epsilon 1.5",)]
    first, then = rounds_on(ledger, plan, key="run")
    assert (first.absent, first.n_teachers, first.after) == ((), 30, 0)
    assert (then.absent, then.n_teachers, then.after) == (("epsilon 1.5",), 10, first.n_queries)
    assert then.n_queries > 0
    assert labels.stopped_by == "the budget"
    assert len(labels) == first.n_queries + then.n_queries
    # Nobody's row twice, and each at its place in one order over all rounds.
    assert len(set(labels.rows.tolist())) == len(labels)
    anew = train.seatings["epsilon 1.5",]
    learned = {int(anew.source[row]) for part in anew.partition for row in part}
    assert learned == set(range(150, 300))
    # Not one charge after leaving, and not one query more would have been paid.
    for entry in ledger.entries():
        is_first = int(entry.key.split("/")[1]) < first.n_queries
        assert ("group/epsilon 1.5" in entry.also) == is_first
        assert entry.event["groups"]["absent"] == ([] if is_first else ["epsilon 1.5"])
    assert spent(ledger, "epsilon 1.5") <= 1.5
    assert spent(ledger, "epsilon 8") <= 8.0
    low = ledger.accounts()["group/epsilon 1.5"]
    assert not low.accountant.affords(low.spent, GNMax(12.0).price(Unit()))


@settings(max_examples=8, deadline=None)
@given(
    budgets=st.lists(st.floats(0.3, 6.0), min_size=1, max_size=6, unique=True),
    each=st.integers(3, 40),
    n_teachers=st.integers(2, 12),
    grow=st.sampled_from(["teachers", "shares"]),
    confident=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_nobody_is_ever_above_their_budget(budgets, each, n_teachers, grow, confident, seed):
    rng = np.random.default_rng(seed)
    sigma = float(rng.uniform(1.0, 4.0)) * n_teachers
    # A histogram's price is worked out at once; the books do not know the difference.
    mechanism = NoisyHistogram(sigma)
    if confident:
        mechanism = ConfidentGNMax(sigma, threshold=n_teachers / 2, sigma_threshold=sigma)
    consent = people(sorted(budgets), each)
    try:
        plan = make_plan(
            "upsampling", consent, mechanism, n_teachers=n_teachers, seed=7, precision=0.5, most=4, grow=grow
        )
    except ValueError:
        return  # more copies than teachers
    ledger = books(consent)
    train = Trainer(ballots=lambda n, rows: rng.integers(3, size=(n, rows)))
    try:
        ask_all(consent, plan, mechanism, ledger=ledger, train=train, batch=4)
    except BudgetExhausted:
        assert not ledger.entries()
        return
    gone, rounds = set(), rounds_on(ledger, plan, key="run")
    assert len(rounds) <= len(consent.groups)
    for one in rounds:
        assert gone <= set(one.absent)  # nobody comes back
        gone = set(one.absent)
        seating = train.seatings[one.absent]
        source = np.arange(consent.n_rows) if seating.source is None else seating.source
        rows = source[np.concatenate(list(seating.partition))]
        names = {consent.groups[at].name for at in consent.group_of[consent.persons[rows]]}
        assert names == {group.name for group in consent.groups} - gone
    for group in consent.groups:
        assert spent(ledger, group.name) <= group.epsilon
    for entry in ledger.entries():
        assert set(entry.also) == {
            group.account for group in consent.groups if group.name not in entry.event["groups"]["absent"]
        }
        there = plan.without(entry.event["groups"]["absent"]) if entry.event["groups"]["absent"] else plan
        # Everybody pays the price of their own copies, in the round that asked.
        for group, unit in zip(there.groups, there.units, strict=True):
            most = there.mechanism.price(unit).values * entry.event["n_queries"]
            assert np.all(entry.also[group.account].charged.values <= most * (1 + 1e-12))


@pytest.mark.parametrize("mechanism", [GNMax(8.0), ConfidentGNMax(8.0, threshold=14, sigma_threshold=9.0)])
def test_equal_budgets_never_start_a_second_round(mechanism):
    consent = people([3.0], 100)
    plan = make_plan("upsampling", consent, mechanism, n_teachers=20, seed=7)
    plain = MemoryLedger(Accountant(Budget(3.0, DELTA)), allow_seeded=True)
    seeded = MemoryLedger(Accountant(Budget(3.0, DELTA)), allow_seeded=True)
    open_group_accounts(seeded, {"epsilon 3": Budget(3.0, DELTA)})
    votes, nobody = VotedPool(Votes.from_ballots(np.zeros((20, 60), int), n_classes=3)), None
    train = Trainer()
    rounds = Rounds(consent, 7, train)
    room = rounds.begin(Room(nobody, mechanism, seeded, noise.seeded(5), plan=plan), key="run")
    ours = label_pool(room, POOL, seed=3, queries=np.arange(60), key="run", next_room=rounds.next_room)
    theirs = label_pool(
        Room(votes, mechanism, plain, noise.seeded(5)), POOL, seed=3, queries=np.arange(60), key="run"
    )
    assert list(train.seatings) == [()]
    n = len(ours.rows)
    assert np.array_equal(ours.rows, theirs.rows[:n])
    assert np.array_equal(ours.labels, theirs.labels[:n])
    assert ours.stopped_by == "the budget"
    assert np.array_equal(seeded.accounts()["group/epsilon 3"].spent.values, seeded.spent.values)
    if isinstance(mechanism, ConfidentGNMax):  # groups pay for a check and its answer one by one
        assert len(theirs.rows) >= n
    else:
        assert theirs.stopped_by == "the budget"
        assert np.array_equal(seeded.spent.values, plain.spent.values)


class Killed(BaseException):
    """Stands for a process that ends between two batches, or while teachers are trained."""


@pytest.fixture(scope="module")
def left_alone():
    """Return three groups, their plan, and a run of theirs that nobody cut short: its books and labels."""
    consent = people([1.5, 3.0, 8.0], [150, 150, 150])
    plan = Upsampling(consent.groups, GNMax(12.0), 30, copies_of=(1, 2, 2))
    ledger = books(consent)
    return consent, plan, ledger, *ask_all(consent, plan, GNMax(12.0), ledger=ledger, batch=4)


@pytest.mark.parametrize("stop_at", [4, 20, 22, 26, 28, 36, "without 1", "without 2"])
def test_a_run_that_was_cut_short_asks_and_charges_the_same(left_alone, stop_at):
    (consent, plan, whole, labels, train), cut = left_alone, books(left_alone[0])
    rounds = rounds_on(whole, plan, key="run")
    assert [len(one.absent) for one in rounds] == [0, 1, 2]

    class Mortal(Trainer):
        def __call__(self, seating, absent):
            if stop_at == f"without {len(absent)}":
                raise Killed
            return super().__call__(seating, absent)

    def die(done, _most):
        if not isinstance(stop_at, str) and done >= stop_at:
            raise Killed

    with pytest.raises(Killed):
        ask_all(consent, plan, GNMax(12.0), ledger=cut, train=Mortal(), batch=4, progress=die)
    assert 0 < len(cut.entries()) < len(whole.entries())
    gone = rounds_on(cut, plan, key="run")[:-1]
    again, later = ask_all(consent, plan, GNMax(12.0), ledger=cut, batch=4)
    assert np.array_equal(again.rows, labels.rows)
    assert rounds_on(cut, plan, key="run") == rounds
    for one, other in zip(whole.entries(), cut.entries(), strict=True):
        assert (one.key, one.event) == (other.key, other.event)
        assert np.array_equal(one.charged.values, other.charged.values)
        assert one.also.keys() == other.also.keys()
        for name, paid in one.also.items():
            assert np.array_equal(paid.charged.values, other.also[name].charged.values)
    # Rounds that are over are not trained a second time, and the others have the same parts.
    assert list(later.seatings) == [one.absent for one in rounds[len(gone) :]]
    for absent, seating in later.seatings.items():
        mine = train.seatings[absent]
        assert all(np.array_equal(a, b) for a, b in zip(mine.partition, seating.partition, strict=True))


def test_who_cannot_pay_for_one_query_is_never_learned_from():
    consent = people([0.05, 6.0], [100, 100])
    plan = Upsampling(consent.groups, GNMax(8.0), 20, copies_of=(1, 2))
    ledger = books(consent)
    _, train = ask_all(consent, plan, GNMax(8.0), ledger=ledger)
    assert list(train.seatings) == [("epsilon 0.05",)]
    assert spent(ledger, "epsilon 0.05") == 0.0
    poor = people([0.05, 0.06], 100)
    plan = Upsampling(poor.groups, GNMax(8.0), 20, copies_of=(1, 1))
    with pytest.raises(BudgetExhausted, match="a group that can pay for one query"):
        ask_all(poor, plan, GNMax(8.0), ledger=books(poor))


def test_too_few_people_end_it_in_words_and_nothing_is_lost():
    consent = people([1.0, 8.0, 12.0], [300, 2, 2])
    plan = Upsampling(consent.groups, GNMax(16.0), 20, copies_of=(1, 2, 3))
    ledger = books(consent)
    labels, train = ask_all(consent, plan, GNMax(16.0), ledger=ledger)
    assert labels.stopped_by == "the budget"
    assert len(labels) > 5
    assert list(train.seatings) == [()]
    standing = who_goes_on(plan, GNMax(16.0), ledger.accounts())
    assert standing.plan is None
    assert "unused: without epsilon 1 too few people are left" in standing.why
    assert "copies for 1 teachers" in standing.why
    shares = Upsampling(consent.groups, GNMax(16.0), 20, copies_of=(1, 2, 3), grow="shares")
    assert (
        "at least 20 of them, copies counted, as there are teachers, got 10"
        in who_goes_on(shares, GNMax(16.0), ledger.accounts(), absent=["epsilon 1"]).why
    )


def test_who_cannot_pay_for_fewer_teachers_is_told():
    # The generous leave first; the others' few teachers would vote with too little noise for them.
    consent = people([1.5, 3.0, 8.0], [160, 120, 120])
    plan = Upsampling(consent.groups, GNMax(12.0), 60, copies_of=(1, 2, 5))
    ledger = books(consent)
    labels, train = ask_all(consent, plan, GNMax(12.0), ledger=ledger)
    assert labels.stopped_by == "the budget"
    assert list(train.seatings) == [()]
    standing = who_goes_on(plan, GNMax(12.0), ledger.accounts())
    assert standing.plan is None
    assert standing.why.startswith(
        "Asking ended with some budget of epsilon 1.5, epsilon 3 unused: without epsilon 8 there are fewer"
    )
    # Where everybody's is used there is nothing to say.
    spent_up = books(people([1.5, 8.0], [150, 150]))
    plan = Upsampling(people([1.5, 8.0], [150, 150]).groups, GNMax(8.0), 20, copies_of=(1, 2))
    ask_all(people([1.5, 8.0], [150, 150]), plan, GNMax(8.0), ledger=spent_up)
    assert who_goes_on(plan, GNMax(8.0), spent_up.accounts(), absent=["epsilon 1.5"]).why == ""


def test_a_main_account_that_cannot_pay_trains_nobody():
    consent = people([1.5, 8.0], [150, 150])
    plan = Upsampling(consent.groups, GNMax(8.0), 20, copies_of=(1, 2))
    ledger = books(consent, ceiling=4.0)
    labels, train = ask_all(consent, plan, GNMax(8.0), ledger=ledger)
    assert labels.stopped_by == "the budget"
    assert list(train.seatings) == [()]
    assert ledger.spent.epsilon(DELTA) <= 4.0


def test_names_and_seeds_of_rounds():
    consent = people([1.0, 2.0, 4.0], 50)
    plan = Upsampling(consent.groups, GNMax(8.0), 20, copies_of=(1, 2, 4))
    assert round_name(plan, ("epsilon 4", "epsilon 1")) == "without_0_2"
    assert round_seed(7, ()) == 7
    assert len({round_seed(7, ("a",) * n) for n in range(5)}) == 5
    one, other = (assign_without(plan, consent, ("epsilon 1",), seed=seed) for seed in (7, 8))
    assert not all(np.array_equal(a, b) for a, b in zip(one.partition, other.partition, strict=True))
    assert one.plan.copies_of == (1, 2)  # the factor 2 that both share is no use
    assert first_and_last(books(consent), plan, GNMax(8.0), key="run") == ((), ())


def test_dividing_out_a_factor_costs_less_and_grown_shares_keep_their_copies():
    consent = people([1.0, 2.0], 100)
    plan = Upsampling(consent.groups, GNMax(8.0), 20, copies_of=(1, 2)).without(["epsilon 1"])
    dear = GNMax(8.0).price(Unit.of_ballots(2))  # 20 teachers, everybody behind two of them
    assert plan.copies_of == (1,)
    assert plan.n_teachers == 10
    assert np.all(plan.prices(1, key="")["epsilon 2"].values <= dear.values)
    shares = Upsampling(consent.groups, GNMax(8.0), 20, copies_of=(1, 2), grow="shares").without(
        ["epsilon 1"]
    )
    assert (shares.copies_of, shares.n_teachers) == ((2,), 20)


def test_other_variants_need_no_rounds():
    consent = people([1.0, 2.0], 100)
    plan = make_plan("weighting", consent, GNMax(8.0), n_teachers=20, seed=7)
    with pytest.raises(TypeError, match="fall silent"):
        ask_all(consent, plan, GNMax(8.0), ledger=books(consent))
