"""The noisy histogram: its price is its exact cost, and what comes out is what was drawn."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import logsumexp

from tellers import Cost, GNMax, NoisyHistogram, RdpCurve, Release, Unit, Votes, describe, noise
from tellers.privacy import DEFAULT_ORDERS
from tellers.testing import check_mechanism

VOTES = Votes.from_counts([[200, 50, 0], [30, 220, 0], [84, 83, 83]], n_teachers=250)


def divergence_of_one_count(sigma, order):
    """Return the Rényi divergence of the discrete Gaussian at 0 from the one at 1, summed term by term."""
    reach = int(order + 40 * sigma) + 2  # the terms peak at 1 - order
    x = np.arange(-reach, reach + 1)
    here, there = -(x**2) / (2 * sigma**2), -((x - 1) ** 2) / (2 * sigma**2)
    here, there = here - logsumexp(here), there - logsumexp(there)
    return logsumexp(order * here + (1 - order) * there) / (order - 1)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, None, "40", True])
def test_bad_sigma_is_refused(bad):
    with pytest.raises(ValueError, match="sigma > 0"):
        NoisyHistogram(sigma=bad)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 7.5, 40.0])
def test_its_exact_cost_is_its_price_at_whole_orders(sigma):
    # A ballot that moves shifts two counts by one, each with noise of its own.
    price = NoisyHistogram(sigma).price(Unit())
    for order, value in zip(price.orders, price.values, strict=True):
        exact = 2 * divergence_of_one_count(sigma, order)
        assert exact <= value * (1 + 1e-9)
        if order.is_integer() or sigma > 2:
            assert exact == pytest.approx(value, rel=1e-9)


def test_its_price_is_the_gaussian_mechanism_of_another_accountant():
    accounting = pytest.importorskip("dp_accounting")
    sigma, n = 40.0, 461
    other = accounting.rdp.RdpAccountant(DEFAULT_ORDERS.tolist())
    other.compose(accounting.GaussianDpEvent(sigma / math.sqrt(2)), n)
    assert (n * NoisyHistogram(sigma).price(Unit())).epsilon(1e-5) == pytest.approx(
        other.get_epsilon(1e-5), rel=1e-6
    )


def test_a_label_is_cheaper_than_a_histogram():
    histogram, label = NoisyHistogram(40.0).price(Unit()), GNMax(40.0).price(Unit())
    np.testing.assert_array_equal(histogram.values, GNMax(40.0).histogram_price(Unit()).values)
    assert np.all(label.values <= histogram.values)
    assert np.all(label.values < 0.99 * histogram.values, where=label.orders < 400)
    larger = Unit(l1=4.0, l2=2 * math.sqrt(2.0), linf=2.0)
    np.testing.assert_allclose(NoisyHistogram(40.0).price(larger).values, 4 * histogram.values)


def test_a_release_holds_every_count_and_its_leaders():
    mechanism = NoisyHistogram(5.0)
    release = mechanism.release(VOTES, noise.seeded(7))
    drawn = noise.seeded(7).discrete_gaussian(5.0, VOTES.counts.shape)
    np.testing.assert_array_equal(release.values, VOTES.counts + drawn)
    assert release.values.dtype == np.int64
    each = np.arange(len(VOTES))
    np.testing.assert_array_equal(release.values[each, release.labels], release.values.max(axis=1))
    assert release.answered.all()
    np.testing.assert_allclose(release.cost.worst.values, 3 * mechanism.price(Unit()).values)


def test_ties_fall_either_way():
    votes = Votes.from_counts(np.full((400, 2), 10), n_teachers=20)
    release = NoisyHistogram(0.1).release(votes, noise.seeded(7))  # noise that is nearly always zero
    # 400 fair coins leave [120, 280] with probability below 1e-14.
    assert 120 < (release.labels == 0).sum() < 280


def test_it_can_be_described_and_made_again():
    event = describe(NoisyHistogram(sigma=40), noise.secure())
    assert event["mechanism"] == "NoisyHistogram"
    assert NoisyHistogram(**event["parameters"]) == NoisyHistogram(40.0)


@pytest.mark.parametrize(
    ("sigma", "setting"),
    [(0.5, {}), (2.0, {"n_teachers": 1}), (5.0, {"n_classes": 2})],
)
def test_it_keeps_its_promises(sigma, setting):
    # A false alarm has probability below 1e-6 per call, and the seed is fixed.
    check_mechanism(NoisyHistogram(sigma), n_random=100, n_draws=4000, **setting)


@dataclass(frozen=True)
class Broken:
    """A noisy histogram with one mistake."""

    mistake: str
    sigma: float = 2.0

    def price(self, unit: Unit) -> RdpCurve:
        return NoisyHistogram(self.sigma).price(unit)

    def release(self, votes, noise):
        sound = NoisyHistogram(self.sigma).release(votes, noise)
        values = {
            "no noise": votes.counts,
            "less noise": NoisyHistogram(self.sigma / 3).release(votes, noise).values,
            "one class without noise": np.where(np.arange(votes.n_classes) == 0, votes.counts, sound.values),
            "noise from elsewhere": np.random.default_rng().permutation(sound.values.ravel()).reshape(-1, 4),
            "shares": sound.values / votes.n_teachers,
            "one row": sound.values[:1],
        }[self.mistake]  # fmt: skip
        return Release(sound.labels, Cost(self.price(votes.unit) * len(votes)), values=values)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("no noise", "price above every divergence"),
        ("less noise", "price above every divergence"),
        ("one class without noise", "price above every divergence"),
        ("noise from elsewhere", "same labels from the same noise"),
        ("shares", "whole values"),
        ("one row", "whole values"),
    ],
)
def test_values_are_watched_where_labels_show_nothing(mistake, message):
    # The labels of all of these are sound: only the values give the ballots away.
    with pytest.raises(AssertionError, match=message):
        check_mechanism(Broken(mistake), n_random=50, n_draws=4000)
