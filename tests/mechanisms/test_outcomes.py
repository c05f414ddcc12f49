"""The joint outcome space: normalised, complete, sealed, and split without loss."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers import ConfidentGNMax, GNMax, LNMax, Votes
from tellers.mechanisms._outcomes import Outcomes, chunks
from tellers.testing import random_votes

MECHANISMS = [GNMax(2.0), LNMax(0.4), ConfidentGNMax(sigma=2.0, threshold=12, sigma_threshold=3.0)]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_everything_is_normalised(mechanism):
    votes = random_votes(np.random.default_rng(3), 20, n_classes=5, n_queries=100)
    outcomes = mechanism.outcomes(votes)
    np.testing.assert_allclose(np.exp(outcomes.log_labels).sum(axis=1), 1.0, atol=1e-12)
    for logs in (outcomes.log_here, outcomes.log_there):
        total = np.where(outcomes.multiplicity > 0, outcomes.multiplicity * np.exp(logs), 0).sum(axis=3)
        np.testing.assert_allclose(total[outcomes.moves], 1.0, atol=1e-12)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_a_move_lists_every_outcome_once(mechanism):
    n_outcomes = 5 + isinstance(mechanism, ConfidentGNMax)
    outcomes = mechanism.outcomes(random_votes(np.random.default_rng(3), 20, n_classes=5, n_queries=50))
    listed = np.where(outcomes.moves, outcomes.multiplicity.sum(axis=3), n_outcomes)
    assert np.all(listed == n_outcomes)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_grouped_moves_are_those_of_the_neighbours_own_votes(mechanism):
    # Brute force: every neighbour is built, and its outcomes computed from its own votes.
    votes = random_votes(np.random.default_rng(9), 9, n_classes=4, n_queries=40)
    outcomes = mechanism.outcomes(votes)
    silence = [] if np.isneginf(outcomes.log_labels[0, 0]) else [0]
    for query, row in enumerate(votes.counts):
        for a, b in itertools.permutations(range(4), 2):
            if not row[a]:
                continue
            moved = row.copy()
            moved[a] -= 1
            moved[b] += 1
            there = mechanism.outcomes(Votes.from_counts([moved], n_teachers=9)).log_labels[0]
            place = query, outcomes.of_class[query, a], outcomes.of_class[query, b]
            times = outcomes.multiplicity[place]
            pairs = np.repeat(np.stack([outcomes.log_here[place], outcomes.log_there[place]]), times, axis=1)
            kept = [*silence, 1, 2, 3, 4]
            expected = np.stack([outcomes.log_labels[query, kept], there[kept]])
            # Pairs (here, there) agree as sets; sorted by both, so that equal outcomes stay together.
            order = [np.lexsort(np.round(p[::-1], 6)) for p in (pairs, expected)]
            np.testing.assert_allclose(pairs[:, order[0]], expected[:, order[1]], rtol=1e-6, atol=1e-9)


def test_mechanisms_that_always_answer_are_never_silent():
    for mechanism in MECHANISMS[:2]:
        outcomes = mechanism.outcomes(Votes.from_counts([[3, 2]], n_teachers=5))
        assert np.isneginf(outcomes.log_labels[0, 0])


def test_outcomes_are_private():
    here = GNMax(2.0).outcomes(Votes.from_counts([[3, 2], [5, 0]], n_teachers=5))
    there = GNMax(2.0).outcomes(Votes.from_counts([[0, 5], [1, 4]], n_teachers=5))
    assert repr(here) == repr(there) == "Outcomes(<private>, n_queries=2)"
    assert isinstance(here, Outcomes)
    assert len(here) == 2


@given(st.lists(st.integers(2, 60), min_size=1, max_size=400), st.integers(1, 5_000_000))
def test_chunks_hold_every_query_once(n_groups, cells):
    sizes = np.array(n_groups)
    parts = list(chunks(sizes, cells=cells))
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(n_groups)))
    for part in parts:
        assert sizes[part].max() <= 2 * sizes[part].min()
        assert len(part) == 1 or len(part) * int(sizes[part].max()) ** 3 * 30 <= cells
