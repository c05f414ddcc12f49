"""The layer between the accountants and the command line: which number is public, which is sealed."""

import numpy as np
import pytest

from tellers import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Sealed,
    Unit,
    Votes,
    accounting,
    exact_cost,
)
from tellers.accounting import PublicCost, account, public_costs, published_cost, smallest
from tellers.bounds import published_confident, published_gnmax, published_lnmax
from tellers.errors import SealedValue
from tellers.rdp import RdpCurve

DELTA = 1e-5
CONFIDENT = ConfidentGNMax(sigma=6.0, threshold=30.0, sigma_threshold=12.0)
INTERACTIVE = InteractiveGNMax(sigma=6.0, threshold=10.0, sigma_threshold=12.0, student_confidence=0.8)
MECHANISMS = [LNMax(gamma=0.1), GNMax(sigma=6.0), CONFIDENT, INTERACTIVE]
N_QUERIES, N_TEACHERS = 12, 50


@pytest.fixture(scope="module")
def votes():
    rng = np.random.default_rng(7)
    return Votes.from_ballots(
        rng.choice(4, size=(N_TEACHERS, N_QUERIES), p=[0.7, 0.15, 0.1, 0.05]), n_classes=4
    )


@pytest.fixture(scope="module")
def student():
    return np.random.default_rng(8).dirichlet(np.ones(4), size=N_QUERIES)


def extra(mechanism, student):
    return {"student": student} if isinstance(mechanism, InteractiveGNMax) else {}


def by_method(costs):
    return {cost.method: cost for cost in costs}


# --- Public numbers. ---


def test_the_worked_example():
    costs = by_method(public_costs(GNMax(sigma=40.0), 461, delta=DELTA))
    assert round(costs["argmax-rdp"].epsilon, 2) == 2.69
    assert round(costs["histogram-gdp"].epsilon, 2) == 3.19
    assert smallest(tuple(costs.values())).method == "argmax-rdp"


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_the_renyi_number_is_the_mechanisms_price(mechanism):
    first = "pure-dp-rdp" if isinstance(mechanism, LNMax) else "argmax-rdp"
    cost = by_method(public_costs(mechanism, 20, delta=DELTA))[first]
    price = 20 * mechanism.price(Unit())
    assert (cost.epsilon, cost.order) == pytest.approx(price.epsilon_and_order(DELTA))


@pytest.mark.parametrize("mechanism", [CONFIDENT, INTERACTIVE], ids=lambda m: type(m).__name__)
def test_answers_are_charged_as_many_as_there_were(mechanism):
    check, answer = mechanism.check_price(Unit()), GNMax(mechanism.sigma).price(Unit())
    for n_answered in (0, 5, 20):
        cost = by_method(public_costs(mechanism, 20, delta=DELTA, n_answered=n_answered))["argmax-rdp"]
        assert cost.epsilon == pytest.approx((20 * check + n_answered * answer).epsilon(DELTA))
    every = public_costs(mechanism, 20, delta=DELTA)
    assert by_method(every)["argmax-rdp"] == cost


def test_orders_are_those_that_were_given():
    cost = by_method(public_costs(CONFIDENT, 20, delta=DELTA, orders=[2.0, 3.0]))["argmax-rdp"]
    assert cost.order in (2.0, 3.0)
    assert cost.epsilon > by_method(public_costs(CONFIDENT, 20, delta=DELTA))["argmax-rdp"].epsilon


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_the_public_number_is_the_smallest_that_holds(mechanism):
    costs = public_costs(mechanism, 20, delta=DELTA)
    assert list(costs) == sorted(costs, key=lambda c: c.epsilon)
    best = smallest(costs)
    assert best.holds
    assert all(best.epsilon <= cost.epsilon for cost in costs if cost.holds)
    assert [cost.method for cost in costs if not cost.holds] == (
        [] if isinstance(mechanism, LNMax) else ["histogram-gdp"]
    )


def test_continuous_noise_is_never_the_claim():
    costs = (PublicCost("histogram-gdp", 1.0, holds=False), PublicCost("argmax-rdp", 2.0, 8.0))
    assert smallest(costs).method == "argmax-rdp"


def test_lnmax_composes_exactly():
    best = smallest(public_costs(LNMax(gamma=0.05), 100, delta=DELTA))
    assert best.method == "pure-dp-exact"
    assert best.order is None
    assert best.epsilon < 5.80 / 1.9  # advanced composition, as the first paper has it


def test_no_queries_cost_nothing():
    for mechanism in MECHANISMS:
        assert smallest(public_costs(mechanism, 0, delta=DELTA)).epsilon == 0.0


def test_the_extra_changes_the_answer_aloud(monkeypatch):
    """Few queries under much noise: exact composition is smaller, and its absence is mentioned."""
    votes = Votes.from_counts([[2000, 1000]] * 5, n_teachers=3000)
    much, usual = GNMax(sigma=1000.0), GNMax(sigma=40.0)
    monkeypatch.setattr(accounting, "has_pld", lambda: False)
    books = account(much, votes, delta=DELTA, private=False)
    assert books.public.method == "argmax-rdp"
    assert any("tellers[accounting]" in note for note in books.notes)
    assert account(usual, votes, delta=DELTA, private=False).notes == ()


def test_the_extra_gives_a_smaller_number():
    pytest.importorskip("dp_accounting")
    votes = Votes.from_counts([[2000, 1000]] * 5, n_teachers=3000)
    books = account(GNMax(sigma=1000.0), votes, delta=DELTA, private=False)
    assert (books.public.method, books.public.order) == ("histogram-pld", None)
    assert books.notes == ()


def test_another_mechanism_is_refused(votes):
    with pytest.raises(TypeError, match=r"mechanism\.price"):
        public_costs(object(), 3, delta=DELTA)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got object"):
        published_cost(object(), votes)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [{"delta": 0.0}, {"delta": DELTA, "n_answered": -1}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(ValueError, match="Expected"):
        public_costs(CONFIDENT, 3, **bad)


# --- Private numbers. ---


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_the_exact_number_is_the_exact_accountants(mechanism, votes, student):
    books = account(mechanism, votes, delta=DELTA, **extra(mechanism, student))
    costs = books.private.reveal()
    expected = exact_cost(mechanism, votes, **extra(mechanism, student)).cost.reveal()
    assert (costs.exact_epsilon, costs.exact_order) == expected.epsilon_and_order(DELTA)
    assert costs.per == "teacher"
    assert 0 < costs.exact_epsilon <= books.public.epsilon


def test_counts_add_up_each_querys_worst_ballot(votes):
    tallied = Votes.from_counts(votes.counts, n_teachers=N_TEACHERS)
    by_query = account(CONFIDENT, tallied, delta=DELTA).private.reveal()
    by_teacher = account(CONFIDENT, votes, delta=DELTA).private.reveal()
    assert by_query.per == "query"
    assert by_query.exact_epsilon >= by_teacher.exact_epsilon
    assert by_query.published_epsilon == pytest.approx(by_teacher.published_epsilon)


@pytest.mark.parametrize("orders", [None, range(2, 51)])
def test_the_published_number_is_the_papers(votes, student, orders):
    mask = np.arange(N_QUERIES) % 2 == 0
    check = {"threshold": 30.0, "sigma_threshold": 12.0, "orders": orders}
    curves = [
        (LNMax(gamma=0.1), {}, published_lnmax(votes, 0.1, orders=orders), "bound"),
        (GNMax(sigma=6.0), {}, published_gnmax(votes, 6.0, orders=orders), "bound"),
        (CONFIDENT, {}, published_confident(votes, 6.0, **check), "expected"),
        (CONFIDENT, {"answered": mask}, published_confident(votes, 6.0, answered=mask, **check), "realised"),
        (
            INTERACTIVE,
            {"student": student, "answered": mask},
            published_confident(votes, 6.0, student=student, answered=mask, **{**check, "threshold": 10.0}),
            "realised",
        ),
    ]
    for mechanism, given, per_query, kind in curves:
        costs = account(mechanism, votes, delta=DELTA, orders=orders, **given).private.reveal()
        curve = RdpCurve(RdpCurve.zero(orders).orders, per_query.sum(axis=0))
        assert (costs.published_epsilon, costs.published_order) == pytest.approx(
            curve.epsilon_and_order(DELTA)
        )
        assert costs.published_classic == pytest.approx(curve.epsilon(DELTA, conversion="classic"))
        assert costs.published_classic > costs.published_epsilon
        assert costs.kind == kind


def test_the_exact_number_ignores_the_mask(votes):
    """It covers answers and silence alike: a sum along the path that was taken is no bound."""
    mask = np.zeros(N_QUERIES, dtype=bool)
    with_mask = account(CONFIDENT, votes, delta=DELTA, answered=mask)
    without = account(CONFIDENT, votes, delta=DELTA)
    assert with_mask.private.reveal().exact_epsilon == without.private.reveal().exact_epsilon
    assert with_mask.public.epsilon < without.public.epsilon
    assert (with_mask.n_answered, without.n_answered) == (0, None)
    assert any("fixed before the run" in note for note in with_mask.notes)
    assert without.notes == ()


def test_private_numbers_are_sealed(votes):
    books = account(GNMax(sigma=6.0), votes, delta=DELTA)
    assert isinstance(books.private, Sealed)
    assert "<private>" in repr(books)
    with pytest.raises(SealedValue):
        f"{books.private}"


def test_private_numbers_are_not_even_computed_unless_asked_for(votes, monkeypatch):
    def never(*_args, **_kwargs):
        raise AssertionError("looked at the votes")

    monkeypatch.setattr(accounting, "exact_cost", never)
    monkeypatch.setattr(accounting, "published_cost", never)
    assert account(GNMax(sigma=6.0), votes, delta=DELTA, private=False).private is None


def test_progress_is_told_every_query(votes):
    done = []
    account(CONFIDENT, votes, delta=DELTA, progress=done.append)
    assert sum(done) == N_QUERIES


def test_what_is_not_used_is_mentioned(votes, student):
    mask = np.ones(N_QUERIES, dtype=bool)
    books = account(GNMax(sigma=6.0), votes, delta=DELTA, answered=mask, student=student, private=False)
    assert len(books.notes) == 2
    assert books.n_answered is None
    assert books.public == account(GNMax(sigma=6.0), votes, delta=DELTA, private=False).public


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "student's probabilities"),
        ({"student": np.full((N_QUERIES, 3), 1 / 3)}, "shape"),
        ({"student": np.full((N_QUERIES, 4), 0.5)}, "sum to 1"),
        ({"student": np.full((N_QUERIES, 4), 0.25), "answered": np.ones(N_QUERIES)}, "True or False"),
        ({"student": np.full((N_QUERIES, 4), 0.25), "answered": np.ones(3, dtype=bool)}, "True or False"),
    ],
)
def test_context_that_does_not_fit_is_refused(votes, given, words):
    with pytest.raises(ValueError, match=words):
        account(INTERACTIVE, votes, delta=DELTA, private=False, **given)
