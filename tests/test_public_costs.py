"""One public number per run: account, plan, ledger, run and card agree on it, to the last digit."""

import json
import math

import numpy as np
import pytest

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LabelVotes,
    LNMax,
    MemoryLedger,
    NoisyHistogram,
    RdpCurve,
    Room,
    Unit,
    Votes,
    describe,
    noise,
)
from tellers.accounting import (
    Consensus,
    LabelProfile,
    account,
    advise,
    budget_for,
    compared_costs,
    plan_labels,
    public_cost,
    stated_cost,
)
from tellers.accounting.costs import public_numbers
from tellers.mechanisms import (
    EVENTS,
    AdaptiveGNThreshold,
    Binary,
    ConfidentBinary,
    ConfidentDependentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    DependentBinary,
    GNThreshold,
    PartialPowerset,
    Powerset,
    Tau,
)
from tellers.mechanisms.base import price_of
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    label_pool,
    reprice,
    run,
)
from tellers.runs.labelling import guaranteed_epsilon

DELTA, N, N_TEACHERS = 1e-5, 50, 40
PLENTY = Accountant(Budget(500.0, DELTA))
FOLLOWS = {"positive": ((1, 0),), "negative": ((0, 2),)}
CLASSES = [
    LNMax(0.05),
    GNMax(6.0),
    NoisyHistogram(6.0),
    ConfidentGNMax(6.0, 26.0, 12.0),
    InteractiveGNMax(6.0, 10.0, 12.0, 0.8),
]
LABELS = [
    AdaptiveGNThreshold(6.0, 4, 9.0, (0.3, 0.5)),
    Binary(6.0, 4),
    ConfidentBinary(6.0, 4, 30.0, 9.0),
    ConfidentDependentBinary(6.0, 4, 30.0, 9.0, **FOLLOWS),
    ConfidentGNThreshold(6.0, 4, 1, 0.7, 9.0),
    ConfidentPowerset(6.0, 4, 16.0, 9.0),
    ConfidentTau(6.0, 4, 1.4, 30.0, 9.0),
    DependentBinary(6.0, 4, **FOLLOWS),
    GNThreshold(6.0, 4, max_labels=1),
    PartialPowerset(6.0, 4, ((0, 1), (2, 3))),
    Powerset(6.0, 4),
    Tau(6.0, 4, 1.4),
]


def name_of(mechanism):
    return type(mechanism).__name__


CAST, TRUTH = Consensus().votes(N_TEACHERS, 4, n_queries=N, seed=7)
LABELS_CAST, LABELS_TRUTH = LabelProfile(yes_rate=0.3).votes(N_TEACHERS, 4, n_queries=N, seed=7)
BELIEF = np.random.default_rng(8).dirichlet(np.ones(4), size=N)


def votes_for(mechanism):
    return LABELS_CAST if hasattr(mechanism, "n_labels") else CAST


def known(mechanism):
    """The numbers that prices may go by."""
    return public_numbers(votes_for(mechanism))


def price_of_one(mechanism):
    return price_of(mechanism, Unit(), **known(mechanism))


def asked(mechanism, *, batch):
    """Return the books of a run of N queries in batches, and which were answered."""
    ledger, source, told = MemoryLedger(PLENTY, allow_seeded=True), noise.seeded(7), []
    votes = votes_for(mechanism)
    for start in range(0, N, batch):
        part = votes[start : start + batch]
        belief = {"student": BELIEF[start : start + batch]} if name_of(mechanism).startswith("Inter") else {}
        event = {**describe(mechanism, source), "n_queries": len(part)}
        ticket = ledger.reserve(f"q{start}", price_of_one(mechanism) * len(part), event=event)
        release = mechanism.release(part, source, **belief)
        ledger.settle(ticket, release)
        told.append(release.answered)
    return ledger, np.concatenate(told)


def books(mechanism, **given):
    belief = {"student": BELIEF} if isinstance(mechanism, InteractiveGNMax) else {}
    return account(mechanism, votes_for(mechanism), delta=DELTA, private=False, **belief, **given)


def test_every_mechanism_is_in_the_table():
    # What is paid by the batch has a table of its own: tests/mechanisms/test_tested.py.
    by_batch = {name for name, kind in EVENTS.items() if hasattr(kind, "batch_price")}
    assert {name_of(one) for one in CLASSES + LABELS} == set(EVENTS) - by_batch


@pytest.mark.parametrize("mechanism", CLASSES + LABELS, ids=name_of)
def test_account_says_what_a_ledger_charges_and_a_run_states(mechanism):
    stated = books(mechanism).public.epsilon
    most = N * price_of_one(mechanism)
    assert stated == most.epsilon(DELTA)
    for batch in (7, N):
        ledger, told = asked(mechanism, batch=batch)
        assert stated == guaranteed_epsilon(ledger, PLENTY, most=most)
        charged = PLENTY.epsilon(ledger.spent)
        repriced = PLENTY.epsilon(reprice(ledger.entries()).repriced)
        # An event does not say how many teachers there are: without that a joint price is not known.
        has_joint_price = price_of_one(mechanism).epsilon(DELTA) < mechanism.price(Unit()).epsilon(DELTA)
        assert charged <= repriced if has_joint_price else charged == repriced
        masked = books(mechanism, answered=told)
        assert masked.public.epsilon == stated
        if getattr(mechanism, "one_price", False):
            assert charged == stated
        elif isinstance(mechanism, ConfidentDependentBinary):
            # A mask does not say which labels followed from others, so all of their checks are charged.
            assert charged < masked.charged.epsilon < stated
        else:
            assert charged == masked.charged.epsilon < stated


@pytest.mark.parametrize("mechanism", CLASSES + LABELS, ids=name_of)
def test_the_budget_that_account_names_pays_for_all_queries(mechanism):
    """One after the other, each at its price; so does every larger budget, and no budget a hair smaller."""
    price, given = price_of_one(mechanism), {"delta": DELTA, **known(mechanism)}
    for n in (1, 3, 10, N):
        needed, public = budget_for(mechanism, n, **given), public_cost(mechanism, n, **given)
        accountant = Accountant(Budget(needed, DELTA))
        ledger = MemoryLedger(accountant, allow_seeded=True)
        for start in range(n):
            ledger.reserve(f"q{start}", price, event={"noise": "seeded"})
        assert public.epsilon == accountant.epsilon(ledger.spent) <= needed
        (stated, held) = stated_cost(mechanism, n, budget=needed, **given)
        assert (stated.epsilon, held.n_queries) == (public.epsilon, n)
        assert stated_cost(mechanism, n, budget=(1 - 1e-9) * needed, **given)[1].n_queries < n
        for more in np.geomspace(1, 1.3, 40):
            assert Accountant(Budget(more * needed, DELTA)).affords(RdpCurve.zero(), n * price)
    assert books(mechanism).budget_needed == budget_for(mechanism, N, **given)


class Cast:
    """An ensemble that casts the same votes again and again."""

    def __init__(self, votes):
        self.votes, self.n_teachers = votes, votes.n_teachers
        if votes.space.kind == "classes":
            self.n_classes = votes.n_classes
        setattr(self, "n_labels" if isinstance(votes, LabelVotes) else "n_classes", 4)

    def vote(self, X):
        return self.votes[np.asarray(X)[:, 0].astype(int) % len(self.votes)]


def released(mechanism, budget, n_pool, *, batch=8):
    ledger = MemoryLedger(Accountant(budget))
    room = Room(Cast(votes_for(mechanism)), mechanism, ledger, noise.secure())
    labels = label_pool(room, np.arange(float(n_pool))[:, None], seed=7, batch=batch)
    most = n_pool * price_of_one(mechanism)
    return labels, guaranteed_epsilon(ledger, Accountant(budget), most=most), ledger


ALWAYS = ConfidentGNMax(6.0, -900.0, 12.0)


@pytest.mark.parametrize("epsilon", [1.3, 2.95])
@pytest.mark.parametrize("mechanism", [LNMax(0.2), GNMax(6.0), ALWAYS], ids=str)
def test_a_run_releases_as_many_labels_as_the_plan_says(mechanism, epsilon):
    budget = Budget(epsilon, DELTA)
    (plan,) = plan_labels(CAST, TRUTH, budget=budget, n_public=300, mechanisms=[mechanism])
    mechanism = plan.mechanism  # as planned: it may say which share of silence to expect
    labels, stated, ledger = released(mechanism, budget, 300)
    assert 0 < len(labels) < 300
    assert (plan.n_queries, plan.n_labels) == (len(labels), labels.n_answered)
    assert plan.epsilon_charged == Accountant(budget).epsilon(ledger.spent)
    assert plan.epsilon_public == stated
    of_all = stated_cost(mechanism, 300, delta=DELTA, budget=epsilon, **known(mechanism))[0].epsilon
    assert of_all == stated


@pytest.mark.parametrize(
    "mechanism",
    [one for one in LABELS if getattr(one, "one_price", False)]
    + [ConfidentBinary(6.0, 4, -900.0, 9.0), ConfidentPowerset(6.0, 4, 900.0, 9.0)],
    ids=name_of,
)
def test_a_run_with_many_labels_asks_as_many_queries_as_the_plan_says(mechanism):
    budget = Budget(9.0, DELTA)
    advice = advise(LABELS_CAST, LABELS_TRUTH, budget=budget, n_public=400, seed=7, mechanisms=[mechanism])
    (plan,) = advice.plans
    labels, stated, _ = released(plan.mechanism, budget, 400)
    assert 0 < len(labels) < 400
    assert plan.n_queries == len(labels)
    assert plan.epsilon_public == stated


def test_what_no_ledger_charges_has_another_name():
    """100 queries of LNMax: 3.16 on a ledger, where a fixed number composes to 2.92."""
    public = public_cost(LNMax(0.05), 100, delta=DELTA)
    assert (public.method, round(public.epsilon, 2)) == ("pure-dp-rdp", 3.16)
    (other,) = compared_costs(LNMax(0.05), 100, delta=DELTA)
    assert (other.method, round(other.epsilon, 2)) == ("pure-dp-exact", 2.92)
    assert other.holds_for == "a fixed number of queries"
    assert stated_cost(LNMax(0.05), 100, delta=DELTA, budget=2.95)[1].n_queries == 88
    for mechanism in CLASSES + LABELS:
        named = {cost.method: cost.holds_for for cost in compared_costs(mechanism, 20, delta=DELTA)}
        assert public_cost(mechanism, 20, delta=DELTA).method not in named
        assert all(holds == "continuous noise" for name, holds in named.items() if name.endswith("gdp"))


def test_a_stranger_is_charged_its_price():
    class Oracle:
        def price(self, unit):
            return RdpCurve.zcdp(0.01)

    cost = public_cost(Oracle(), 7, delta=DELTA)
    assert (cost.method, cost.epsilon) == ("price-rdp", (7 * RdpCurve.zcdp(0.01)).epsilon(DELTA))
    assert compared_costs(Oracle(), 7, delta=DELTA) == ()


SMALL = {
    "partition": PartitionConfig(n_teachers=20),
    "teachers": TeachersConfig(model="naive_bayes", n_jobs=1),
    "student": StudentConfig(model="naive_bayes"),
}
ROWS = DataConfig(
    name="synthetic", n_public=60, n_test=40, options={"n_rows": 500, "difficulty": 0.4, "n_classes": 3}
)
TAGS = DataConfig(name="made_multilabel", n_public=60, n_test=40, options={"n_rows": 500})


@pytest.mark.parametrize(
    ("data", "mechanism", "epsilon"),
    [
        (ROWS, MechanismConfig(name="lnmax", gamma=0.3), 8.0),
        (ROWS, MechanismConfig(name="confident", sigma=4.0, threshold=12.0, sigma_threshold=6.0), 60.0),
        (ROWS, MechanismConfig(name="histogram", sigma=4.0), 9.0),
        (TAGS, MechanismConfig(name="binary", sigma=4.0), 12.0),
    ],
    ids=["lnmax", "confident", "histogram", "binary"],
)
def test_a_whole_run_and_its_card_say_the_same(tmp_path, data, mechanism, epsilon):
    labels = {"labels": LabelsConfig(names=("rain", "wind", "snow"))} if data is TAGS else {}
    student = StudentConfig(model="naive_bayes")
    if mechanism.name == "histogram":
        student = StudentConfig(kind="distilled", model="naive_bayes")
    config = RunConfig(
        data=data,
        mechanism=mechanism,
        budget=BudgetConfig(epsilon=epsilon, delta=DELTA),
        queries=QueriesConfig(n_queries=50),
        **{**SMALL, "student": student},
        **labels,
    )
    result = run(config, tmp_path / "study")
    built = config.build_mechanism()
    public, held = stated_cost(built, 50, delta=DELTA, budget=epsilon)
    assert result["spent"]["epsilon"] == public.epsilon
    card = json.loads((tmp_path / "study" / "student" / "card.json").read_text())
    assert card["epsilon"] == public.epsilon
    if getattr(built, "one_price", False):
        assert result["queries"]["n_asked"] == held.n_queries < 50
        assert result["spent"]["charged"] == public.epsilon < epsilon
    else:
        assert result["spent"]["charged"] < public.epsilon < epsilon


# What is called exact, and what an upper bound.


@pytest.mark.parametrize("mechanism", CLASSES + LABELS, ids=name_of)
def test_an_upper_bound_is_not_called_exact(mechanism):
    votes = votes_for(mechanism)[:4]
    belief = {"student": BELIEF[:4]} if isinstance(mechanism, InteractiveGNMax) else {}
    found = account(mechanism, votes, delta=DELTA, **belief)
    if isinstance(mechanism, NoisyHistogram):
        assert found.private is None
        assert any("cost the same" in note for note in found.notes)
        return
    bounded = ("AdaptiveGNThreshold", "ConfidentGNThreshold", "DependentBinary", "ConfidentDependentBinary")
    is_bound = name_of(mechanism) in bounded
    assert bool(found.private.reveal().bound_because) == is_bound
    assert any("upper bound" in note for note in found.notes) == is_bound
    if not is_bound and not isinstance(votes, LabelVotes):
        counts = Votes.from_counts(votes.counts, n_teachers=N_TEACHERS)
        assert account(mechanism, counts, delta=DELTA, **belief).private.reveal().bound_because


def test_the_bound_of_implied_labels_is_far_above_what_is_released():
    """The label that follows is not asked: its votes cost nothing, and the upper bound charges them."""
    follows = DependentBinary(5.0, 2, negative=((0, 1),))
    ballots = np.zeros((N_TEACHERS, 30, 2), dtype=np.int64)
    ballots[: N_TEACHERS // 2, :, 1] = 1  # nobody says yes to the first, half do to the second
    found = account(follows, LabelVotes.from_ballots(ballots, n_labels=2), delta=DELTA).private.reveal()
    alone = account(Binary(5.0, 1), LabelVotes.from_ballots(ballots[..., :1], n_labels=1), delta=DELTA)
    assert found.exact_epsilon > 3 * alone.private.reveal().exact_epsilon
    assert math.isfinite(found.exact_epsilon)
