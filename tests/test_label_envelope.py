"""The cost of label votes that can be published: above the exact cost, and no faster than it says."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import Binary, ConfidentBinary, ConfidentGNThreshold, GNThreshold, LabelVotes, Tau, exact_cost
from tellers.accounting._publishable import available_methods
from tellers.mechanisms import smooth_sensitivity


def label_cost_and_sensitivities(mechanism, votes, order):
    found = mechanism.envelope(votes, order=order)
    return found.total, found.local


def label_log_cost_and_sensitivities(mechanism, votes, order, *, offsets):
    return mechanism.log_envelope(votes, order=order, offsets=offsets)


def some_mechanism(rng, k, n):
    sigma = float(rng.uniform(0.7, 6.0))
    return [
        Binary(sigma, k),
        ConfidentBinary(sigma, k, threshold=0.7 * n, sigma_threshold=1.4 * sigma),
        GNThreshold(sigma, k, tuple(rng.uniform(0.1, 0.9, k))),
    ][int(rng.integers(3))]


@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from([1.5, 2.0, 4.0, 16.0]))
@settings(max_examples=80, deadline=None)
def test_it_bounds_the_exact_cost_and_neighbours_move_it_no_faster(seed, order):
    rng = np.random.default_rng(seed)
    n, q, k = int(rng.integers(2, 30)), int(rng.integers(1, 8)), int(rng.integers(1, 6))
    mechanism = some_mechanism(rng, k, n)
    ballots = rng.random((n, q, k)) < rng.random((1, q, k))
    votes = LabelVotes.from_ballots(ballots, n_labels=k)
    total, local = label_cost_and_sensitivities(mechanism, votes, order)
    assert total >= exact_cost(mechanism, votes, orders=[order]).cost.reveal().values[0] * (1 - 1e-12)
    changed = ballots.copy()
    # The worst neighbours change everything at once, in one direction or at random.
    changed[0] = [rng.random((q, k)) < 0.5, ~ballots[0], np.zeros((q, k)), np.ones((q, k))][rng.integers(4)]
    there, local_there = label_cost_and_sensitivities(
        mechanism, LabelVotes.from_ballots(changed, n_labels=k), order
    )
    assert abs(total - there) <= min(local[0], local_there[0]) * (1 + 1e-9) + 1e-15
    assert (local[:-1] <= local_there[1:] * (1 + 1e-9) + 1e-15).all()
    for beta in (0.01, 0.2):
        ratio = smooth_sensitivity(local, beta) / max(smooth_sensitivity(local_there, beta), 1e-300)
        assert np.exp(-beta) * (1 - 1e-9) <= ratio <= np.exp(beta) * (1 + 1e-9)


@given(seed=st.integers(0, 2**32 - 1), order=st.sampled_from([1.5, 2.0, 4.0, 16.0]))
@settings(max_examples=60, deadline=None)
def test_neighbours_move_the_logarithm_no_faster(seed, order):
    rng = np.random.default_rng(seed)
    n, q, k = int(rng.integers(2, 25)), int(rng.integers(1, 8)), int(rng.integers(1, 6))
    mechanism = some_mechanism(rng, k, n)
    ballots = rng.random((n, q, k)) < rng.random((1, q, k))
    changed = ballots.copy()
    changed[0] = [rng.random((q, k)) < 0.5, ~ballots[0], np.zeros((q, k)), np.ones((q, k))][rng.integers(4)]
    offsets = [1e-3, 0.2, 30.0]
    found = [
        label_log_cost_and_sensitivities(
            mechanism, LabelVotes.from_ballots(cast, n_labels=k), order, offsets=offsets
        )
        for cast in (ballots, changed)
    ]
    plain, _ = label_cost_and_sensitivities(mechanism, LabelVotes.from_ballots(ballots, n_labels=k), order)
    assert found[0][0] == plain
    for at, offset in enumerate(offsets):
        (here, local), (there, local_there) = ((np.log1p(f / offset), local[at]) for f, local in found)
        assert abs(here - there) <= min(local[0], local_there[0]) * (1 + 1e-9) + 1e-12
        assert (np.diff(local) >= 0).all()
        assert (local[:-1] <= local_there[1:] * (1 + 1e-9) + 1e-12).all()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_sensitivities_of_logarithms_are_what_brute_force_finds(which):
    n, k, order, offset = 6, 2, 3.0, 0.05
    mechanism = (
        Binary(2.0, k),
        ConfidentBinary(2.0, k, threshold=4, sigma_threshold=1.5),
        GNThreshold(1.5, k, (0.3, 0.6)),
    )[which]
    found = {
        tuple(v.sums[0]): label_log_cost_and_sensitivities(mechanism, v, order, offsets=[offset])
        for v in every_votes(n, k)
    }
    log = {sums: np.log1p(value / offset) for sums, (value, _) in found.items()}
    by_hand = {s: max(abs(log[t] - log[s]) for t in near(s, 1, n)) for s in log}
    for sums, (_, local) in found.items():
        worst = [max(by_hand[t] for t in near(sums, d, n)) for d in range(n + 1)]
        assert (worst <= local[0] * (1 + 1e-9)).all()


def test_chords_are_close_above_the_quotients_they_are_for():
    n, k, offset = 8, 2, 0.05
    mechanism = Binary(3.0, k)
    for sums in ([0, 4], [8, 1], [3, 3]):
        votes = LabelVotes.from_sums([sums], n_teachers=n)
        _, local = label_log_cost_and_sensitivities(mechanism, votes, 3.0, offsets=[offset])
        ((costs, change, _),) = mechanism._tables(votes, 3.0)
        for d in range(n + 1):
            there = np.array(list(near(sums, d, n)))
            # (changing, rise or fall, held against, votes within reach)
            held = change[:, :, None, there].sum(axis=-1) / (costs[:, there].sum(axis=-1) + offset)
            rise, fall = np.moveaxis(held.max(axis=3), 1, 0)
            falls = -np.log1p(-np.minimum(fall.min(axis=1), 1 - 1e-9))
            exact = max(np.log1p(rise).min(axis=1).max(), falls.max())
            assert exact * (1 - 1e-9) <= local[0, d] <= 1.01 * exact


def test_far_from_zero_a_logarithm_moves_like_what_it_is_of():
    votes = LabelVotes.from_sums(np.random.default_rng(2).integers(0, 31, (40, 5)), n_teachers=30)
    mechanism = Binary(6.0, 5)
    _, plain = label_cost_and_sensitivities(mechanism, votes, 3.0)
    _, logs = label_log_cost_and_sensitivities(mechanism, votes, 3.0, offsets=[1e6])
    np.testing.assert_allclose(logs[0] * 1e6, plain, rtol=2e-3)
    assert (logs[0] * 1e6 >= plain * (1 - 1e-4)).all()


def near(sums, d, n):
    """All sums that d ballots of n can make of these."""
    return itertools.product(*[range(max(0, s - d), min(n, s + d) + 1) for s in sums])


def every_votes(n, k):
    """All sums of n teachers on k labels, one query: enough, since costs look at sums alone."""
    return [LabelVotes.from_sums([sums], n_teachers=n) for sums in itertools.product(range(n + 1), repeat=k)]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_sensitivities_are_what_brute_force_finds(which):
    n, k, order = 6, 2, 3.0
    mechanism = (
        Binary(2.0, k),
        ConfidentBinary(2.0, k, threshold=4, sigma_threshold=1.5),
        GNThreshold(1.5, k, (0.3, 0.6)),
    )[which]
    found = {tuple(v.sums[0]): label_cost_and_sensitivities(mechanism, v, order) for v in every_votes(n, k)}
    cost = {sums: value for sums, (value, _) in found.items()}

    by_hand = {s: max(abs(cost[t] - cost[s]) for t in near(s, 1, n)) for s in cost}
    for sums, (_, local) in found.items():
        for d in range(n + 1):
            worst = max(by_hand[t] for t in near(sums, d, n))
            assert worst <= local[d] * (1 + 1e-12) + 1e-15
        # At most all labels at the steepest place of their tables.
        assert local[-1] <= k * 2 * max(cost.values())


def test_parts_of_votes():
    rng = np.random.default_rng(5)
    votes = LabelVotes.from_ballots(rng.random((6, 3, 2)), n_labels=2, resolution=20)
    mechanism = GNThreshold(1.5, 2, 0.4, resolution=20)
    total, local = label_cost_and_sensitivities(mechanism, votes, 4.0)
    assert total >= exact_cost(mechanism, votes, orders=[4.0]).cost.reveal().values[0] * (1 - 1e-12)
    other = np.asarray(votes.block() / 20)
    other[2] = 1 - other[2]
    there, _ = label_cost_and_sensitivities(
        mechanism, LabelVotes.from_ballots(other, n_labels=2, resolution=20), 4.0
    )
    assert abs(total - there) <= local[0] * (1 + 1e-9)


def test_only_free_ballots_have_one():
    assert "envelope" in available_methods(Binary(2.0, 2))
    clipped = Tau(2.0, 2, 1.0)
    assert "envelope" not in available_methods(clipped)
    assert "envelope" not in available_methods(ConfidentGNThreshold(2.0, 2, 1, 0.5, 2.0))
    with pytest.raises(TypeError, match="free ballots, got Tau"):
        label_cost_and_sensitivities(clipped, LabelVotes.from_sums([[1, 1]], n_teachers=3), 2.0)
