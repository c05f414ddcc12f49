"""The layer between the accountants and the command line: which number is public, which is sealed."""

import numpy as np
import pytest

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Sealed, Unit, Votes, exact_cost
from tellers.accounting import account, compared_costs, public_cost
from tellers.accounting import costs as accounting
from tellers.accounting import costs as public_costs
from tellers.accounting.costs import published_cost
from tellers.errors import SealedValue
from tellers.mechanisms import published_gnmax
from tellers.mechanisms.published import published_confident, published_lnmax
from tellers.privacy import RdpCurve

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


# --- Public numbers; tests/test_public_costs.py holds them against ledgers and runs. ---


def test_the_worked_example():
    public = public_cost(GNMax(sigma=40.0), 461, delta=DELTA)
    assert (public.method, round(public.epsilon, 2)) == ("argmax-rdp", 2.69)
    compared = {cost.method: cost for cost in compared_costs(GNMax(sigma=40.0), 461, delta=DELTA)}
    assert round(compared["histogram-gdp"].epsilon, 2) == 3.19
    assert round(compared["histogram-rdp"].epsilon, 2) == 3.46


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_the_public_number_is_the_mechanisms_price(mechanism):
    cost = public_cost(mechanism, 20, delta=DELTA)
    assert cost.method == ("pure-dp-rdp" if isinstance(mechanism, LNMax) else "argmax-rdp")
    assert (cost.epsilon, cost.order) == (20 * mechanism.price(Unit())).epsilon_and_order(DELTA)


@pytest.mark.parametrize("mechanism", [CONFIDENT, INTERACTIVE], ids=lambda m: type(m).__name__)
def test_answers_are_charged_as_many_as_there_were(mechanism):
    check, answer = mechanism.check_price(Unit()), GNMax(mechanism.sigma).price(Unit())
    for n_answered in (0, 5, 20):
        cost = public_cost(mechanism, 20, delta=DELTA, n_answered=n_answered)
        assert cost.epsilon == (20 * check + n_answered * answer).epsilon(DELTA)
    assert public_cost(mechanism, 20, delta=DELTA) == cost


def test_the_public_number_is_at_the_orders_of_a_ledger(votes):
    few = account(CONFIDENT, votes, delta=DELTA, orders=[2.0, 3.0])
    assert few.public == account(CONFIDENT, votes, delta=DELTA, private=False).public
    assert few.private.reveal().exact_order in (2.0, 3.0)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_what_is_compared_says_what_it_holds_for(mechanism):
    costs = compared_costs(mechanism, 20, delta=DELTA)
    assert list(costs) == sorted(costs, key=lambda c: c.epsilon)
    holds = {cost.method: cost.holds_for for cost in costs}
    if isinstance(mechanism, LNMax):
        assert holds == {"pure-dp-exact": "a fixed number of queries"}
        return
    assert holds.pop("histogram-pld", "a fixed number of queries") == "a fixed number of queries"
    assert holds == {"histogram-gdp": "continuous noise", "histogram-rdp": "any run"}


def test_lnmax_composes_exactly_beside_the_ledger():
    (exact,) = compared_costs(LNMax(gamma=0.05), 100, delta=DELTA)
    assert (exact.method, exact.order) == ("pure-dp-exact", None)
    assert exact.epsilon < public_cost(LNMax(gamma=0.05), 100, delta=DELTA).epsilon < 5.80 / 1.8


def test_no_queries_cost_nothing():
    for mechanism in MECHANISMS:
        assert public_cost(mechanism, 0, delta=DELTA).epsilon == 0.0


def test_the_extra_does_not_change_the_answer(monkeypatch):
    """Few queries under much noise: exact composition is smaller, and no ledger charges it."""
    pytest.importorskip("dp_accounting")
    votes = Votes.from_counts([[2000, 1000]] * 5, n_teachers=3000)
    books = account(GNMax(sigma=1000.0), votes, delta=DELTA, private=False)
    smaller = {cost.method: cost for cost in books.compared}["histogram-pld"]
    assert smaller.epsilon < books.public.epsilon
    assert smaller.holds_for == "a fixed number of queries"
    assert (books.public.method, books.notes) == ("argmax-rdp", ())
    monkeypatch.setattr(public_costs, "has_pld", lambda: False)
    without = account(GNMax(sigma=1000.0), votes, delta=DELTA, private=False)
    assert (without.public, without.notes) == (books.public, ())


def test_another_mechanism_is_refused(votes):
    with pytest.raises(TypeError, match="got object"):
        published_cost(object(), votes)


@pytest.mark.parametrize("bad", [{"delta": 0.0}, {"delta": DELTA, "n_answered": -1}])
def test_bad_arguments_are_refused(bad):
    with pytest.raises(ValueError, match="Expected"):
        public_cost(CONFIDENT, 3, **bad)


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
    assert with_mask.charged.epsilon < without.public.epsilon == with_mask.public.epsilon
    assert without.charged is None
    assert (with_mask.n_answered, without.n_answered) == (0, None)
    assert any("itself an outcome" in note for note in with_mask.notes)
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
