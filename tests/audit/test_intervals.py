"""Bounds on probabilities: right as often as they say, computed and not drawn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from tellers.accounting.audit.evidence import Event, choose_event, epsilon_of_event, lower_bound, upper_bound


@given(
    p=st.sampled_from([0.0, 1.0]) | st.floats(1e-6, 1 - 1e-6), n=st.integers(1, 60),
    miss=st.sampled_from([0.2, 0.05, 1e-3]), up=st.booleans(),
)  # fmt: skip
def test_a_bound_misses_no_oftener_than_it_says(p, n, miss, up):
    hits = np.arange(n + 1)
    # The chance to miss is summed over all numbers of hits: nothing is drawn, nothing can fail by chance.
    missed = upper_bound(hits, n, miss=miss) < p if up else lower_bound(hits, n, miss=miss) > p
    assert binom.pmf(hits, n, p)[missed].sum() <= miss * (1 + 1e-9)


def test_bounds_are_those_of_the_tables():
    # Clopper and Pearson's 95 % interval for 4 hits in 10: 0.122 to 0.738.
    assert lower_bound(4, 10, miss=0.025) == pytest.approx(0.1216, abs=1e-4)
    assert upper_bound(4, 10, miss=0.025) == pytest.approx(0.7376, abs=1e-4)


@given(p=st.floats(0.05, 0.95), epsilon=st.floats(0.0, 2.0), delta=st.sampled_from([0.0, 0.01, 0.1]))
def test_an_event_proves_too_much_no_oftener_than_it_says(p, epsilon, delta):
    n, miss = 40, 0.1
    q = max(0.0, (p - delta) * np.exp(-epsilon))
    first, second = binom.pmf(np.arange(n + 1), n, p), binom.pmf(np.arange(n + 1), n, q)
    hits = np.arange(n + 1)
    proved = epsilon_of_event(hits[:, None], n, hits[None, :], n, delta=delta, miss=miss)
    wrong = proved > epsilon + 1e-9
    assert (first[:, None] * second * wrong).sum() <= miss * (1 + 1e-9)


def test_the_event_is_on_the_side_that_proves_more():
    here, there = np.repeat([0.0, 1.0], [500, 500]), np.zeros(1000)
    event, proved = choose_event(here, there, delta=0.0, miss=0.05)
    # A 1 comes half of the time here and never there.
    assert event == Event(1.0, "here")
    assert proved == event.epsilon(here, there, delta=0.0, miss=0.05) > np.log(100)
    swapped, other = choose_event(there, -here, delta=0.0, miss=0.05)
    # High scores speak for `here`, so that the other side is known by low ones.
    assert swapped == Event(-1.0, "there")
    assert other == proved


def test_of_many_cuts_the_rare_ones_are_tried_too():
    generator = np.random.default_rng(7)
    here = np.concatenate([generator.normal(size=50_000), np.full(60, 50.0)])
    there = generator.normal(size=50_060)
    event, proved = choose_event(here, there, delta=0.0, miss=0.05)
    assert 3 < event.cut <= 50.0
    assert proved > 1.5
