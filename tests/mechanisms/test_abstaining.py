"""A vote that is kept back, or given for the first time, costs no more than one that moves."""

import itertools

import numpy as np
import pytest

from tellers import ConfidentGNMax, GNMax, Unit, Votes
from tellers.mechanisms import argmax_supremum, check_supremum
from tellers.mechanisms.divergence import pair_divergences
from tellers.privacy import DEFAULT_ORDERS


@pytest.mark.parametrize("sigma", [0.3, 0.8, 1.0, 2.5, 7.0, 20.0, 40.0, 150.0, 900.0])
def test_a_check_costs_less_than_an_arg_max_at_every_order(sigma):
    check, argmax = check_supremum(sigma).values, argmax_supremum(sigma).values
    assert (check <= argmax).all()
    assert (check <= DEFAULT_ORDERS / (2 * sigma**2) * (1 + 1e-12)).all()


@pytest.mark.parametrize("sigma", [0.6, 1.5, 4.0])
@pytest.mark.parametrize("confident", [False, True])
def test_no_pair_of_tallies_with_abstentions_costs_more_than_the_price(sigma, confident):
    mechanism = GNMax(sigma)
    if confident:
        mechanism = ConfidentGNMax(sigma=sigma, threshold=2.5, sigma_threshold=1.3 * sigma)
    price = mechanism.price(Unit()).values
    tallies = [t for k in (2, 3) for t in itertools.product(range(5), repeat=k) if 1 <= sum(t) <= 6]
    law = {
        t: mechanism.outcomes(Votes.from_counts([t], n_teachers=sum(t))).log_labels[0][:, None]
        for t in tallies
    }
    largest = {"moved": 0.0, "kept back": 0.0}
    for here in tallies:
        for what, there in neighbours(here):
            if there in law:
                a, b = law[here], law[there]
                kept = np.isfinite(a[:, 0]) & np.isfinite(b[:, 0])
                found = pair_divergences(a[kept], b[kept], DEFAULT_ORDERS)
                assert (found <= price * (1 + 1e-6) + 1e-12).all(), (here, there)
                largest[what] = max(largest[what], float((found / price).max()))
    # The search is no empty one: some pair that moves costs all that it may, where there is no check.
    assert largest["moved"] > (0.4 if confident else 0.97)
    assert 0.1 < largest["kept back"] < largest["moved"]


def neighbours(tally):
    """Every tally after one ballot: moved from a class to another, or given where there was none."""
    for a in range(len(tally)):
        given = list(tally)
        given[a] += 1
        yield "kept back", tuple(given)
        for b in range(len(tally)):
            if b != a and tally[b]:
                moved = list(given)
                moved[b] -= 1
                yield "moved", tuple(moved)
