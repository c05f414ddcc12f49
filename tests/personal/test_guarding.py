"""Ways past the groups' accounts, or past their plan, that are closed."""

import itertools

import numpy as np
import pytest

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    MemoryLedger,
    RdpCurve,
    Room,
    SqliteLedger,
    Votes,
    noise,
)
from tellers.accounting._publishable import cost_and_sensitivities
from tellers.accounting.smooth import PublishPlan
from tellers.errors import BudgetExhausted, LedgerConflict
from tellers.ledger import open_group_accounts
from tellers.mechanisms import smooth_sensitivity
from tellers.runs.personal import (
    Asked,
    Group,
    Upsampling,
    Vanishing,
    Weighting,
    frequencies_for,
    make_plan,
    plan_as_dict,
    plan_from_dict,
    publish_group_costs,
    read_consent,
)
from tellers.runs.personal.publishing import distances_of, group_sums

DELTA = 1e-5
MECHANISM = GNMax(sigma=40.0)


class Agreed:
    """So many teachers, all for class 0."""

    def __init__(self, n_teachers):
        self.n_teachers, self.asked = n_teachers, 0

    def vote(self, X):
        self.asked += 1
        return Votes.from_ballots(np.zeros((self.n_teachers, len(X)), dtype=int), n_classes=3)


def weighted(names=("low", "high"), weights=(1, 2), sizes=(2, 2), mechanism=MECHANISM):
    groups = tuple(Group(name, 0.7 * (at + 1), 50) for at, name in enumerate(names))
    ends = np.cumsum(sizes)
    members = tuple(np.arange(end - size, end) for end, size in zip(ends, sizes))
    return Weighting(groups, mechanism, int(ends[-1]), members, weight_of=weights)


def opened(plan, ledger=None):
    ledger = ledger or MemoryLedger(Accountant(Budget(9.0, DELTA)))
    open_group_accounts(ledger, {group.name: Budget(group.epsilon, DELTA) for group in plan.groups})
    return ledger


def spent(ledger):
    return {name: state.spent.values.tolist() for name, state in ledger.accounts().items()}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_nobody_asks_without_the_groups_paying(kind, tmp_path):
    books = Accountant(Budget(9.0, DELTA))
    ledger = MemoryLedger(books) if kind == "memory" else SqliteLedger(tmp_path / "spend.db", books)
    with opened(weighted(), ledger):
        teachers, before = Agreed(4), spent(ledger)
        for plan in (None, weighted(names=("low",), weights=(1,), sizes=(4,))):
            room = Room(teachers, MECHANISM, ledger, noise.secure(), plan=plan)
            with pytest.raises(LedgerConflict, match="group/"):
                room.ask([0], key="past them")
        assert spent(ledger) == before
        assert ledger.entries() == []
        assert teachers.asked == 0
        Room(teachers, MECHANISM, ledger, noise.secure(), plan=weighted()).ask([0], key="by the plan")
        # A group that was opened afterwards is not one of this plan.
        ledger.open_account("group/new", Budget(1.0, DELTA))
        with pytest.raises(LedgerConflict, match="group/new"):
            Room(teachers, MECHANISM, ledger, noise.secure(), plan=weighted()).ask([0], key="again")


def test_accounts_are_opened_all_or_none():
    ledger = MemoryLedger(Accountant(Budget(9.0, DELTA)))
    with pytest.raises(ValueError, match="whole characters"):
        open_group_accounts(ledger, {"low": Budget(1.0, DELTA), "\ud800": Budget(2.0, DELTA)})
    assert ledger.accounts() == {}
    ledger.open_account("group/low", Budget(1.0, DELTA))
    with pytest.raises(LedgerConflict, match="was opened with"):
        open_group_accounts(ledger, {"high": Budget(2.0, DELTA), "low": Budget(3.0, DELTA)})
    assert list(ledger.accounts()) == ["group/low"]


def test_a_question_that_comes_between_is_noticed():
    class Hurried(MemoryLedger):
        def open_account(self, name, budget):
            if not self.entries():
                self.reserve("faster", RdpCurve.zcdp(0.001), event={"noise": "secure"})
            super().open_account(name, budget)

    with pytest.raises(LedgerConflict, match="no group paid for it"):
        opened(weighted(), Hurried(Accountant(Budget(9.0, DELTA))))


def test_whoever_asks_may_be_called_like_a_group():
    # Without its one loud teacher a query would cost less, and the account could pay: the group must stay.
    quiet = GNMax(sigma=400.0)
    plan = weighted(weights=(1, 100), sizes=(50, 1), mechanism=quiet)
    ledger = opened(plan)
    dear, cheap = (p.prices(1, key="q") for p in (plan, plan.without(["high"])))
    limit = (cheap["low"].epsilon(DELTA) + dear["high"].epsilon(DELTA)) / 2
    ledger.open_account("high", Budget(limit, DELTA))
    room = Room(Agreed(51), quiet, ledger, noise.secure(), plan=plan, exhausted_leave=True)
    with pytest.raises(BudgetExhausted, match="account 'high'"):
        room.ask([0], key="q", account="high")
    assert ledger.entries() == []


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_the_teachers_are_those_of_the_plan(variant):
    plan = weighted(weights=(1, 1))
    if variant == "vanishing":
        plan = Vanishing(plan.groups, MECHANISM, 4, plan.members, frequency_of=(1.0, 1.0), seed=7)
    elif variant == "upsampling":
        plan = Upsampling(plan.groups, MECHANISM, 4, copies_of=(1, 1))
    room = Room(Agreed(9), MECHANISM, opened(plan), noise.secure(), plan=plan)
    with pytest.raises(ValueError, match=r"votes of 4 teachers.*stays charged"):
        room.ask([0], key="q")


def test_two_groups_of_one_name_would_share_a_budget():
    groups = (Group("low", 0.7, 50), Group("low", 1.4, 50))
    members = (np.arange(2), np.arange(2, 4))
    for make in (
        lambda: Weighting(groups, MECHANISM, 4, members, weight_of=(1, 2)),
        lambda: Vanishing(groups, MECHANISM, 4, members, frequency_of=(0.5, 1.0), seed=7),
        lambda: Upsampling(groups, MECHANISM, 4, copies_of=(1, 2)),
    ):
        with pytest.raises(ValueError, match="'low' twice"):
            make()
    record = plan_as_dict(weighted())
    record["groups"][1]["name"] = "low"
    with pytest.raises(ValueError, match="'low' twice"):
        plan_from_dict(record)


@pytest.mark.parametrize("far", [1e8, 1e12, 1e200, 1e600])
def test_budgets_may_be_any_ratio_apart(far):
    strict, generous = (1.0, far) if far < 1e300 else (1e-300, 1e300)
    consent = read_consent([strict] * 50 + [generous] * 50, delta=DELTA)
    for variant in ("weighting", "upsampling"):
        plan = make_plan(variant, consent, GNMax(4.0), n_teachers=10, seed=7)
        low, high = plan.prices(10, key="q").values()
        assert 0 <= low.values[0] < high.values[0] < np.inf
        votes = Votes.from_ballots(np.zeros((plan.n_teachers, 2), dtype=int), n_classes=3)
        weights = plan.weights(2, key="q")
        votes = votes if weights is None else votes.weighted(weights)
        assert plan.mechanism.release(votes, noise.secure()).labels.shape == (2,)
    with pytest.raises(ValueError, match="closer to each other for vanishing"):
        frequencies_for(consent.groups)


def test_groups_that_left_are_absent_from_a_publication_and_nobody_else():
    whole = weighted(sizes=(20, 20), mechanism=GNMax(15.0))
    ledger, rest = opened(whole, MemoryLedger(Accountant(Budget(99.0, DELTA)))), whole.without(["low"])
    ballots = Votes.from_ballots(np.zeros((40, 5), dtype=int), n_classes=3)
    how = PublishPlan("envelope", 12.0, 0.02, 300.0, confidence=0.9, expected_epsilon=1.0)
    there = Asked(rest, ballots.weighted(rest.weights(5, key="q")))
    publish_group_costs(there, noise.secure(), plan=how, delta=DELTA, ledger=ledger, key="p")
    entry = ledger.entries()[0]
    assert entry.event["groups"]["absent"] == ["low"]
    assert list(entry.also) == ["group/high"]
    loud = np.ones(40, dtype=int)  # those who left voted after all
    with pytest.raises(LedgerConflict, match="group/low"):
        publish_group_costs(
            Asked(rest, ballots.weighted(loud)), noise.secure(), plan=how, delta=DELTA, ledger=ledger, key="r"
        )


CHECKED = [
    ConfidentGNMax(sigma=2.0, threshold=2.0, sigma_threshold=1.3),
    ConfidentGNMax(sigma=2.0, threshold=-9.0, sigma_threshold=1.3),
    InteractiveGNMax(sigma=2.0, threshold=1.0, sigma_threshold=1.3, student_confidence=0.9),
]


@pytest.mark.parametrize("mechanism", CHECKED, ids=lambda m: f"{type(m).__name__} {m.threshold}")
@pytest.mark.parametrize("weights", [(1, 1), (1, 3)])
@pytest.mark.parametrize("order", [2.0, 8.0])
def test_the_noise_on_a_published_cost_does_not_tell_neighbours_apart(mechanism, weights, order):
    """All votes of three teachers: the scale moves by a factor of exp(beta share) at most, never to 0."""
    beta, plan = 0.05, weighted(weights=weights, sizes=(2, 1), mechanism=mechanism)
    student = [[0.5, 0.3, 0.2]] if isinstance(mechanism, InteractiveGNMax) else None
    shares: dict[str, float] = {}
    scales = {}
    for ballots in itertools.product(range(3), repeat=3):
        votes = Votes.from_ballots(np.array(ballots)[:, None], n_classes=3)
        counted = plan.weights(1, key="q")
        votes = votes if counted is None else votes.weighted(counted)
        asked = Asked(plan, votes, answered=np.array([True]), student=student)
        far = distances_of(asked)
        shares |= far.shares
        sums = group_sums(asked, order=order, method="gnss")
        scales[ballots] = {
            name: (one.total, smooth_sensitivity(one.local, beta / far.n_steps)) for name, one in sums.items()
        }
    for here, there in itertools.permutations(scales, 2):
        changed = [at for at in range(3) if here[at] != there[at]]
        if len(changed) == 1:
            share = shares["low" if changed[0] < 2 else "high"]
            for (cost, scale), (other, far_scale) in zip(scales[here].values(), scales[there].values()):
                assert far_scale <= scale * np.exp(beta * share) * (1 + 1e-9)
                assert abs(cost - other) <= share * scale * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("threshold", [-9.0, 2.0, 30.0])
def test_the_noise_on_a_plain_published_cost_does_not_either(threshold):
    mechanism = ConfidentGNMax(sigma=2.0, threshold=threshold, sigma_threshold=1.3)
    scales = {}
    for counts in ([5, 0, 0], [4, 1, 0], [3, 2, 0], [3, 1, 1], [2, 2, 1]):
        votes = Votes.from_counts([counts], n_teachers=5)
        _, local = cost_and_sensitivities(mechanism, votes, order=8.0, method="gnss", answered=[False])
        scales[tuple(counts)] = smooth_sensitivity(local, 0.05)
    for here, there in itertools.permutations(scales, 2):
        if np.abs(np.subtract(here, there)).sum() == 2:
            assert scales[there] <= scales[here] * np.exp(0.05) * (1 + 1e-9)
