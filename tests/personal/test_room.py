"""Groups that pay from budgets of their own, through the one door."""

import math

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
from tellers.errors import BudgetExhausted, LedgerConflict
from tellers.ledger import open_group_accounts
from tellers.runs.personal import make_plan, read_consent

DELTA = 1e-5


class Ballots:
    """Teachers that vote by a fixed table, one column per query number."""

    def __init__(self, ballots, n_classes):
        self.ballots, self.n_classes, self.asked = np.asarray(ballots), n_classes, 0

    def vote(self, X):
        self.asked += 1
        return Votes.from_ballots(self.ballots[:, np.asarray(X)], n_classes=self.n_classes)


def a_room(
    variant, mechanism, epsilons, *, ballots=None, n_per_group=40, teachers=30, leave=False, **options
):
    levels = {f"level {i}": epsilon for i, epsilon in enumerate(epsilons)}
    consent = read_consent([name for name in levels for _ in range(n_per_group)], delta=DELTA, levels=levels)
    plan = make_plan(variant, consent, mechanism, n_teachers=teachers, seed=3, **options)
    if ballots is None:
        rng = np.random.default_rng(5)
        ballots = np.where(
            rng.random((plan.n_teachers, 400)) < 0.8, 0, rng.integers(0, 3, (plan.n_teachers, 400))
        )
    budgets = {group.name: Budget(group.epsilon, DELTA) for group in plan.groups}
    ledger = MemoryLedger(Accountant(Budget(max(epsilons), DELTA)))
    open_group_accounts(ledger, budgets)
    return Room(Ballots(ballots, 3), mechanism, ledger, noise.secure(), plan=plan, exhausted_leave=leave)


def ask_all(room, *, batch=10, n=400):
    """Ask until refused; return how many batches were answered."""
    for start in range(0, n, batch):
        try:
            room.ask(np.arange(start, start + batch), key=f"b{start}")
        except BudgetExhausted:
            return start // batch
    return n // batch


MECHANISMS = [GNMax(sigma=60.0), ConfidentGNMax(sigma=60.0, threshold=18, sigma_threshold=90.0)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_no_group_passes_its_budget_and_the_first_that_would_ends_it(variant, mechanism):
    room = a_room(variant, mechanism, [0.9, 1.8])
    n = ask_all(room, batch=20)
    assert 0 < n < 20
    for name, state in room.ledger.accounts().items():
        assert 0 < state.spent.epsilon(DELTA) <= state.budget.epsilon, name
    refused = room.plan.using(mechanism).prices(20, key=f"b{20 * n}")
    states = room.ledger.accounts()
    assert any(
        not states[f"group/{name}"].accountant.affords(states[f"group/{name}"].spent, price)
        for name, price in refused.items()
    )


@settings(max_examples=10, deadline=None)
@given(
    epsilons=st.lists(st.floats(0.3, 6.0), min_size=1, max_size=20, unique=True),
    variant=st.sampled_from(["weighting", "vanishing", "upsampling"]),
    adversarial=st.booleans(),
    seed=st.integers(0, 2**20),
)
def test_nobody_is_ever_above_their_budget(epsilons, variant, adversarial, seed):
    rng = np.random.default_rng(seed)
    epsilons = sorted(epsilons)
    options = {"most": 6} if variant == "upsampling" else {}
    # Of all mechanisms this one's price is worked out fastest; the books do not know the difference.
    room = a_room(variant, NoisyHistogram(sigma=20.0), epsilons, teachers=60, n_per_group=60, **options)
    n = room.plan.n_teachers
    # Adversarial: a tie in every query, the dearest there is. Otherwise anything.
    table = (
        np.arange(n)[:, None] % 2 + np.zeros((n, 400), dtype=int)
        if adversarial
        else rng.integers(0, 3, (n, 400))
    )
    room.ensemble.ballots = table
    ask_all(room, batch=int(rng.integers(1, 30)), n=390)
    for state in room.ledger.accounts().values():
        assert state.spent.epsilon(DELTA) <= state.budget.epsilon
    assert room.ledger.spent.epsilon(DELTA) <= max(epsilons)


@pytest.mark.campaign
def test_nobody_is_above_their_budget_in_a_thousand_random_distributions():
    rng = np.random.default_rng(11)
    for _ in range(1000):
        n_groups = int(rng.integers(1, 21))
        epsilons = np.unique(np.round(rng.uniform(0.2, 8.0, n_groups), 3)).tolist()
        variant = str(rng.choice(["weighting", "vanishing", "upsampling"]))
        options = {"most": 5} if variant == "upsampling" else {}
        mechanism = NoisyHistogram(sigma=float(rng.choice([20.0, 60.0, 200.0])))
        room = a_room(variant, mechanism, epsilons, teachers=40, n_per_group=45, **options)
        room.ensemble.ballots = rng.integers(0, 2, (room.plan.n_teachers, 400))
        ask_all(room, batch=int(rng.integers(20, 100)), n=200)
        for state in room.ledger.accounts().values():
            assert state.spent.epsilon(DELTA) <= state.budget.epsilon


@pytest.mark.parametrize("variant", ["weighting", "vanishing"])
def test_exhausted_groups_leave_and_the_others_go_on_until_theirs_is_spent(variant):
    # The strict have weights as if they could pay as much as the others: they leave early.
    mechanism = GNMax(sigma=15.0)
    options = {"weights": [1.0, 1.0]} if variant == "weighting" else {"power": 0.01}
    stops = a_room(variant, mechanism, [0.7, 2.8], **options)
    goes_on = a_room(variant, mechanism, [0.7, 2.8], leave=True, **options)
    early, late = ask_all(stops, batch=4), ask_all(goes_on, batch=4)
    assert late > early > 0
    events = [entry.event["groups"]["absent"] for entry in goes_on.ledger.entries()]
    assert events[0] == []
    assert events[-1] == ["level 0"]
    for entry in goes_on.ledger.entries():
        absent = "level 0" in entry.event["groups"]["absent"]
        assert ("group/level 0" in entry.also) is not absent
    states = goes_on.ledger.accounts()
    assert states["group/level 1"].spent.epsilon(DELTA) > 0.8 * 2.8
    assert all(state.spent.epsilon(DELTA) <= state.budget.epsilon for state in states.values())


def test_those_who_left_are_not_heard():
    room = a_room("weighting", GNMax(sigma=5.0), [0.05, 9.0], weights=[1.0, 1.0], leave=True)
    # The strict half always votes 2, the other half 0: without the strict nobody does.
    strict = room.plan.members[0]
    room.ensemble.ballots = np.zeros((room.plan.n_teachers, 400), dtype=int)
    room.ensemble.ballots[strict] = 2
    release = room.ask([0], key="q")
    assert room.ledger.entries()[0].event["groups"]["absent"] == ["level 0"]
    assert release.labels == [0]  # 15 votes against none, noise of 2.5: wrong with probability below 1e-4


def test_teachers_who_learned_from_everybody_cannot_leave_anybody_out():
    with pytest.raises(ValueError, match="Train teachers anew"):
        a_room("upsampling", GNMax(sigma=15.0), [0.7, 1.4], leave=True)


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_with_equal_budgets_every_charge_is_that_of_plain_voting(variant, mechanism):
    ballots = np.random.default_rng(7).integers(0, 3, (30, 60))
    personal = a_room(variant, mechanism, [1.5], ballots=ballots)
    ledger = MemoryLedger(Accountant(Budget(1.5, DELTA)), allow_seeded=True)
    plain = Room(Ballots(ballots, 3), mechanism, ledger, noise.seeded(9))
    seeded = MemoryLedger(Accountant(Budget(1.5, DELTA)), allow_seeded=True)
    open_group_accounts(seeded, {"level 0": Budget(1.5, DELTA)})
    same = Room(Ballots(ballots, 3), mechanism, seeded, noise.seeded(9), plan=personal.plan)
    for at in range(3):
        rows = np.arange(at * 5, at * 5 + 5)
        assert np.array_equal(plain.ask(rows, key=f"q{at}").labels, same.ask(rows, key=f"q{at}").labels)
    assert np.array_equal(seeded.accounts()["group/level 0"].spent.values, seeded.spent.values)
    if isinstance(mechanism, ConfidentGNMax):  # groups pay for a check and its answer one by one
        assert np.all(ledger.spent.values <= seeded.spent.values)
        assert np.array_equal(seeded.spent.values, charged(mechanism, seeded).values)
    else:
        assert np.array_equal(ledger.spent.values, seeded.spent.values)


def charged(mechanism, ledger):
    """Return what checks and answers cost by themselves, for all that is on a ledger."""
    told = np.concatenate([entry.release.answered for entry in ledger.entries()])
    return mechanism.check_price(Unit()) * told.size + mechanism.answer_price(Unit()) * int(told.sum())


def test_a_key_asked_twice_is_answered_and_charged_once():
    room = a_room("weighting", GNMax(sigma=15.0), [0.9, 1.8])
    first = room.ask([0, 1], key="q")
    spent = {name: state.spent.epsilon(DELTA) for name, state in room.ledger.accounts().items()}
    again = room.ask([0, 1], key="q")
    assert np.array_equal(first.labels, again.labels)
    assert spent == {name: state.spent.epsilon(DELTA) for name, state in room.ledger.accounts().items()}
    assert room.ensemble.asked == 1


def test_silence_gives_back_to_every_group():
    never = ConfidentGNMax(sigma=60.0, threshold=1e6, sigma_threshold=90.0)
    room = a_room("weighting", never, [0.9, 1.8])
    room.ask(np.arange(10), key="q")
    entry = room.ledger.entries()[0]
    for name in ("group/level 0", "group/level 1"):
        paid = entry.also[name]
        assert np.all(paid.charged.values < 0.7 * paid.reserved.values)


def test_an_account_of_the_asker_pays_what_the_dearest_group_pays():
    room = a_room("weighting", GNMax(sigma=15.0), [0.9, 1.8])
    room.ledger.open_account("student/ada", Budget(1.0, DELTA))
    room.ask([0, 1], key="q", account="student/ada")
    states = room.ledger.accounts()
    assert np.array_equal(states["student/ada"].spent.values, states["group/level 1"].spent.values)
    assert math.isclose(states["group/level 1"].spent.values[5], room.ledger.spent.values[5])


def test_accounts_that_a_crash_left_half_opened_are_opened_by_the_next_start():
    budgets = {name: Budget(1.0, DELTA) for name in ("low", "high")}
    ledger = MemoryLedger(Accountant(Budget(2.0, DELTA)))
    ledger.open_account("group/low", budgets["low"])
    open_group_accounts(ledger, budgets)
    assert sorted(ledger.accounts()) == ["group/high", "group/low"]
    with pytest.raises(LedgerConflict, match="two budgets"):
        open_group_accounts(ledger, {"low": budgets["low"]})
