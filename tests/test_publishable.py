"""Costs that can be published: which there are, what they bound, and that their parts add up."""

import numpy as np
import pytest

from tellers import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, RdpCurve, Unit, Votes, exact_cost
from tellers.accounting import Consensus
from tellers.accounting._publishable import available_methods, cost_and_sensitivities, require_method
from tellers.accounting.costs import independent_cost
from tellers.mechanisms import gap_envelope, gnmax_cost
from tellers.mechanisms.gap_bounds import confident_envelope
from tellers.mechanisms.published import check_margins, log_accept, threshold_bound
from tellers.mechanisms.sensitivity import lnmax_sensitivities

CONFIDENT = ConfidentGNMax(8.0, 35, 12.0)
INTERACTIVE = InteractiveGNMax(8.0, 20, 12.0, 0.9)


@pytest.fixture(scope="module")
def votes():
    return Consensus(agreement=0.8).votes(60, 4, n_queries=50, seed=7)[0]


def test_methods_of_each_mechanism():
    assert (
        available_methods(GNMax(8.0)) == available_methods(CONFIDENT) == ("envelope", "gnss", "independent")
    )
    assert available_methods(LNMax(0.1)) == ("gnss", "independent")
    assert available_methods(INTERACTIVE) == ("independent",)
    with pytest.raises(ValueError, match=r"independent to publish the cost of InteractiveGNMax, got 'gnss'"):
        require_method(INTERACTIVE, "gnss")


# The public price -------------------------------------------------------------------------------------------


def test_the_public_price_adds_checks_and_answers():
    one = GNMax(8.0).price(Unit()).values
    check = CONFIDENT.check_price(Unit()).values
    np.testing.assert_allclose(independent_cost(GNMax(8.0), 10).values, 10 * one)
    for mechanism in (CONFIDENT, INTERACTIVE):
        np.testing.assert_allclose(independent_cost(mechanism, 10).values, 10 * (one + check))
        np.testing.assert_allclose(independent_cost(mechanism, 10, n_answers=3).values, 3 * one + 10 * check)
        np.testing.assert_allclose(independent_cost(mechanism, 10, n_answers=0).values, 10 * check)
    np.testing.assert_allclose(independent_cost(LNMax(0.1), 10).values, 10 * LNMax(0.1).price(Unit()).values)
    assert round(independent_cost(GNMax(40.0), 461).epsilon(1e-5), 2) == 2.69


@pytest.mark.parametrize("mechanism", [GNMax(8.0), CONFIDENT, LNMax(0.1)], ids=lambda m: type(m).__name__)
def test_the_public_price_is_above_the_exact_cost(votes, mechanism):
    exact = exact_cost(mechanism, votes).cost.reveal().values
    assert np.all(exact <= independent_cost(mechanism, len(votes)).values)


# Private costs and how they move ----------------------------------------------------------------------------


@pytest.mark.parametrize("order", [2.0, 8.0, 32.0])
def test_the_envelope_is_above_the_exact_cost_in_both_directions(votes, order):
    for mechanism in (GNMax(8.0), CONFIDENT):
        total, local = cost_and_sensitivities(mechanism, votes, order=order, method="envelope")
        exact = exact_cost(mechanism, votes, orders=[order])
        assert max(exact.forward.reveal().values[0], exact.reverse.reveal().values[0]) <= total
        assert np.all(np.diff(local) >= 0)
        assert local[0] <= total


@pytest.mark.parametrize("order", [2.0, 8.0])
def test_the_form_of_the_papers_is_above_the_forward_cost(votes, order):
    for mechanism in (GNMax(8.0), LNMax(0.1)):
        total, local = cost_and_sensitivities(mechanism, votes, order=order, method="gnss")
        assert exact_cost(mechanism, votes, orders=[order]).forward.reveal().values[0] <= total
        assert local.shape == (votes.n_teachers + 1,)
        assert np.all(np.diff(local) >= 0)


def test_the_envelope_is_the_sum_of_its_table(votes):
    total, _ = cost_and_sensitivities(GNMax(8.0), votes, order=8.0, method="envelope")
    assert total == pytest.approx(gap_envelope(60, 4, sigma=8.0, order=8.0)[votes.gap].sum())
    total, _ = cost_and_sensitivities(CONFIDENT, votes, order=8.0, method="envelope")
    table = confident_envelope(60, 4, sigma=8.0, order=8.0, threshold=35, sigma_threshold=12.0)
    assert total == pytest.approx(table[votes.top, votes.gap].sum())


def test_the_form_of_the_papers_is_charged_along_the_path(votes):
    order, answered = 8.0, np.arange(len(votes)) % 3 == 0
    margins = check_margins(votes, 35)
    logs = log_accept(margins, 12.0, drawn=True)
    checks = threshold_bound(*logs, sigma_threshold=12.0, orders=[order]).sum()
    made = {"sigma": 8.0, "order": order, "drawn": True}
    for mask in (answered, ~answered, np.zeros(len(votes), bool), None):
        total, local = cost_and_sensitivities(CONFIDENT, votes, order=order, method="gnss", answered=mask)
        rows = votes.counts if mask is None else votes.counts[mask]
        answers = gnmax_cost(rows, 60, **made) if len(rows) else 0.0
        assert total == pytest.approx(checks + answers)
        assert np.all(local >= 0)
    # GNMax answers everything; a mask says nothing about it.
    plain, _ = cost_and_sensitivities(GNMax(8.0), votes, order=order, method="gnss")
    masked, _ = cost_and_sensitivities(GNMax(8.0), votes, order=order, method="gnss", answered=answered)
    assert plain == masked == pytest.approx(gnmax_cost(votes.counts, 60, **made))


def test_laplace_noise_has_the_form_of_2017(votes):
    total, _ = cost_and_sensitivities(LNMax(0.1), votes, order=8.0, method="gnss")
    assert total == pytest.approx(lnmax_sensitivities(votes.counts, 60, gamma=0.1, order=8.0, drawn=True)[0])


def test_consensus_is_cheap_and_conflict_is_not():
    torn = Votes.from_counts([[31, 29, 0, 0]] * 10, n_teachers=60)
    clear = Votes.from_counts([[58, 2, 0, 0]] * 10, n_teachers=60)
    for mechanism, method in ((GNMax(8.0), "envelope"), (GNMax(8.0), "gnss"), (LNMax(0.1), "gnss")):
        dear, _ = cost_and_sensitivities(mechanism, torn, order=6.0, method=method)
        cheap, _ = cost_and_sensitivities(mechanism, clear, order=6.0, method=method)
        assert cheap < 0.5 * dear
    dear, _ = cost_and_sensitivities(GNMax(8.0), torn, order=6.0, method="envelope")
    public = independent_cost(GNMax(8.0), 10)
    assert dear <= public.values[np.flatnonzero(public.orders == 6.0)[0]] * (1 + 1e-9)
    assert isinstance(public, RdpCurve)


def test_a_unit_that_moves_a_margin_by_a_fraction_pays_for_all_of_it():
    odd = Unit(l1=3.0, l2=1.5 * 2**0.5, linf=1.5)
    mechanism = ConfidentGNMax(sigma=40.0, threshold=200, sigma_threshold=150.0)
    whole = independent_cost(mechanism, 10, unit=odd).values
    np.testing.assert_allclose(whole, 10 * mechanism.price(odd).values)
