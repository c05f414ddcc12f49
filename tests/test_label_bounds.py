"""Published bounds on many labels: never below the forward divergence, never above their caps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_ndtr

from tellers import (
    Binary,
    ConfidentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    GNThreshold,
    LabelVotes,
    PartialPowerset,
    Powerset,
    RdpCurve,
    Tau,
    Unit,
    Votes,
    exact_cost,
)
from tellers.accounting._label_exact import label_blocks
from tellers.mechanisms import published_gnmax
from tellers.mechanisms.labels._published import (
    as_published_gnthreshold,
    as_published_tau,
    published_label_cost,
)
from tellers.mechanisms.labels.gnthreshold import published_labels

ORDERS = np.array([1.5, 2.0, 8.0, 20.0, 64.0])


def random_votes(rng, *, most_labels=6):
    k, n = int(rng.integers(1, most_labels + 1)), int(rng.integers(1, 40))
    centre = rng.random((1, 3, k)) < 0.4
    # From near consensus to coin flips.
    return LabelVotes.from_ballots(centre ^ (rng.random((n, 3, k)) < 0.5 * rng.random()), n_labels=k)


def mechanisms(rng, votes):
    k, n, sigma = votes.n_labels, votes.n_teachers, float(rng.uniform(0.8, 9.0))
    bar = {"threshold": 0.7 * n, "sigma_threshold": 1.5 * sigma}
    yield Binary(sigma, k)
    yield ConfidentBinary(sigma, k, **bar)
    yield Tau(sigma, k, float(rng.uniform(0.4, 2.5)))
    yield Tau(sigma, k, float(rng.uniform(0.4, 4.0)), "l1")
    yield ConfidentTau(sigma, k, 1.2, **bar)
    yield GNThreshold(sigma, k, 0.3)
    yield GNThreshold(sigma, k, tuple(rng.uniform(0.1, 0.9, k)), max_labels=max(1, k // 2))
    yield ConfidentGNThreshold(sigma, k, max(1, k // 2), 0.6, 2 * sigma)
    yield Powerset(sigma, k)
    yield Powerset(sigma, k, max_labels=1)
    yield ConfidentPowerset(sigma, k, **bar)
    yield PartialPowerset(sigma, k, ((0, k - 1),) if k > 1 else ((0,),))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=22, deadline=None)
def test_the_forward_divergence_is_below_the_bound_and_the_bound_below_its_cap(seed):
    rng = np.random.default_rng(seed)
    votes = random_votes(rng)
    everything = np.ones(votes.sums.shape, dtype=bool)
    for mechanism in mechanisms(rng, votes):
        # With every label answered check and answer are both charged, whatever came out: a bound.
        rows = published_label_cost(mechanism, votes, orders=ORDERS, answered=everything, drawn=True)
        [(_, costs, of_teacher, _)] = label_blocks(mechanism, votes, ORDERS)
        forward = costs[0][of_teacher].max(axis=0)
        assert (forward <= rows * (1 + 1e-9) + 1e-12).all(), mechanism
        assert (rows <= ORDERS * sum(mechanism.plain_rates()) * (1 + 1e-9)).all(), mechanism
        assert (
            mechanism.price(Unit(), ORDERS).values <= ORDERS * sum(mechanism.plain_rates()) * 1.0001
        ).all()


def test_consensus_is_cheap_and_a_split_costs_the_cap():
    sums = [[50, 0, 50], [25, 25, 26]]
    for mechanism in (Binary(5.0, 3), GNThreshold(3.5, 3)):
        agreed, split = published_label_cost(
            mechanism, LabelVotes.from_sums(sums, n_teachers=50), orders=[8.0]
        )
        assert agreed < 0.06 * split
        assert np.isclose(split, 8.0 * mechanism.plain_rates()[1], rtol=0.05)


def test_a_tau_that_clips_nothing_is_binary_voting():
    rng = np.random.default_rng(1)
    votes = LabelVotes.from_ballots(rng.random((30, 20, 5)) < 0.2, n_labels=5)
    loose = Tau(sigma=6.0, n_labels=5, max_norm=9.0)
    ours, plain = (published_label_cost(m, votes, orders=ORDERS) for m in (loose, Binary(6.0, 5)))
    assert np.allclose(ours, plain)


@pytest.mark.parametrize("drawn", [False, True])
def test_powerset_is_theorem_6_over_all_sets(drawn):
    rng = np.random.default_rng(2)
    votes = LabelVotes.from_ballots(rng.random((20, 15, 3)) < 0.3, n_labels=3)
    sets = Votes.from_ballots((votes.block() << np.arange(3)).sum(axis=2), n_classes=8)
    ours = published_label_cost(Powerset(4.0, 3), votes, orders=ORDERS, drawn=drawn)
    assert np.allclose(ours, published_gnmax(sets, 4.0, orders=ORDERS, drawn=drawn), rtol=1e-9, atol=1e-15)


def test_two_hundred_labels_are_counted_in_logs():
    votes = LabelVotes.from_ballots(np.zeros((900, 1, 200), dtype=int), n_labels=200)
    mechanism = Powerset(sigma=9.0, n_labels=200)
    [(_, bins)] = mechanism.bins(votes)
    expected = 200 * np.log(2) + log_ndtr(-900 / (9 * np.sqrt(2)))
    assert np.isclose(bins.log_q(9.0)[0], expected, rtol=1e-12)
    few, many = (
        published_label_cost(
            Powerset(60.0, k),
            LabelVotes.from_ballots(np.zeros((900, 1, k), dtype=int), n_labels=k),
            orders=[2.0],
        )[0, 0]
        for k in (2, 60)
    )
    assert 0 < few < 1e-6 * many


def test_continuous_and_drawn_noise_agree_where_noise_is_wide():
    rng = np.random.default_rng(3)
    votes = LabelVotes.from_ballots(rng.random((200, 10, 4)) < 0.3, n_labels=4)
    for mechanism in (Binary(40.0, 4), GNThreshold(40.0, 4, 0.4), Powerset(40.0, 4)):
        plain, drawn = (published_label_cost(mechanism, votes, orders=[4.0], drawn=d) for d in (False, True))
        assert np.allclose(plain, drawn, rtol=0.15)


def test_a_silent_label_pays_for_its_check_alone():
    votes = LabelVotes.from_sums([[25, 25]] * 3, n_teachers=50)
    mechanism = ConfidentBinary(5.0, 2, threshold=40, sigma_threshold=9.0)
    none, one, both = (
        published_label_cost(
            mechanism, votes, orders=[2.0], answered=np.tile(np.arange(2) < n, (3, 1)), total=True
        )[0]
        for n in (0, 1, 2)
    )
    assert none < one < both
    assert np.isclose(both - one, one - none)
    with pytest.raises(ValueError, match=r"shape \(3, 2\), got"):
        published_label_cost(mechanism, votes, answered=[True, False, True])


def test_the_thesis_cap_is_below_its_own_column():
    """Table 5.4 has 418.4 in both columns of its first row; the cap as printed would give less."""
    column = published_labels(3, variance=15.0, n_queries=2000, orders=[2.0])
    votes = LabelVotes.from_sums([[25, 25, 25]], n_teachers=50)
    mechanism = GNThreshold(15**0.5, 3)
    printed = as_published_gnthreshold(mechanism, votes, n_changed=3, orders=[2.0])
    assert np.isclose(printed[0, 0], 2 / 15)
    assert 2000 * printed[0, 0] < column.values[0]
    # Every label close to its threshold: the divergence of three of them is above what is printed.
    true = exact_cost(mechanism, votes, orders=[2.0]).cost.reveal().values[0]
    assert true < published_label_cost(mechanism, votes, orders=[2.0])[0, 0] == pytest.approx(3 * 2 / 30)


def test_what_the_thesis_prints_does_not_hold_for_labels_that_no_sample_has():
    votes = LabelVotes.from_sums([[25] * 153], n_teachers=50)
    mechanism = GNThreshold(15**0.5, 153)
    printed = as_published_gnthreshold(mechanism, votes, n_changed=3, orders=[2.0])[0, 0]
    assert exact_cost(mechanism, votes, orders=[2.0]).cost.reveal().values[0] > 20 * printed


def test_the_printed_price_of_tau_is_below_the_truth():
    votes = LabelVotes.from_ballots([[[1, 1, 0, 0]]] * 2 + [[[0, 0, 1, 1]]] * 37, n_labels=4)
    mechanism = Tau(sigma=5.0, n_labels=4, max_norm=2**0.5)
    true = exact_cost(mechanism, votes, orders=[20.0]).cost.reveal().values[0]
    assert true > 1.7 * as_published_tau(5.0, 2**0.5, orders=[20.0]).values[0]
    assert true <= 20.0 * mechanism.plain_rates()[1]
    assert isinstance(as_published_tau(5.0, 3.4, norm="l1"), RdpCurve)
    assert np.isclose(as_published_tau(5.0, 3.4, norm="l1", orders=[2.0]).values[0], 2 * 2 * 3.4**2 / 25)
