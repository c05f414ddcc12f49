"""Every mechanism of many labels keeps its promises, and broken ones are found out."""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from scipy.stats import binom

from tellers import Binary, Cost, Powerset, Release, Unit, noise
from tellers.mechanisms import (
    LABEL_MECHANISMS,
    AdaptiveGNThreshold,
    ConfidentBinary,
    ConfidentDependentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    DependentBinary,
    GNThreshold,
    PartialPowerset,
    Tau,
)
from tellers.testing import check_label_mechanism

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments" / "audit"))
import faults

CHAIN = {"positive": ((0, 1),), "negative": ((1, 2),)}
OURS = [
    Binary(0.7, 3),
    Binary(4.0, 5, resolution=10),
    ConfidentBinary(1.0, 3, threshold=8, sigma_threshold=2.0),
    Tau(1.0, 4, 1.2),
    Tau(2.0, 4, 2.0, "l1"),
    ConfidentTau(1.0, 4, 1.4, threshold=8, sigma_threshold=2.0),
    Powerset(1.0, 3),
    Powerset(1.0, 4, max_labels=2),
    ConfidentPowerset(1.0, 3, threshold=5, sigma_threshold=2.0),
    PartialPowerset(1.0, 4, ((0, 2),)),
    GNThreshold(0.8, 3, share=0.3),
    GNThreshold(0.8, 4, share=(0.2, 0.4, 0.5, 0.7), max_labels=2),
    ConfidentGNThreshold(1.0, 3, n_top=1, confident_share=0.6, sigma_gate=2.0),
    AdaptiveGNThreshold(1.0, 3, scale=2.0),
    DependentBinary(1.0, 3, **CHAIN),
    ConfidentDependentBinary(1.0, 3, threshold=8, sigma_threshold=2.0, **CHAIN),
]


@pytest.mark.parametrize("mechanism", OURS, ids=repr)
def test_ours_keep_their_promises(mechanism):
    check_label_mechanism(mechanism, n_random=60, n_draws=3000)


def test_every_mechanism_with_a_name_is_checked():
    assert set(LABEL_MECHANISMS.values()) <= {type(mechanism) for mechanism in OURS}


@dataclass(frozen=True)
class Cheap(Binary):
    """Charges a tenth of what it costs."""

    def price(self, unit, orders=None):
        return 0.1 * super().price(unit, orders)

    def release(self, votes, source):
        release = super().release(votes, source)
        return Release(release.labels, Cost(self.price(Unit()) * len(votes)), release.answered)


@dataclass(frozen=True)
class Quiet:
    """Says that its noise is larger than it is, and has no outcomes to be caught by."""

    sigma: float
    n_labels: int

    def price(self, unit):
        return Binary(4 * self.sigma, self.n_labels).price(unit)

    def release(self, votes, source):
        release = Binary(self.sigma, self.n_labels).release(votes, source)
        return Release(release.labels, Cost(self.price(Unit()) * len(votes)))


@dataclass(frozen=True)
class Dear(Binary):
    """Costs more than its price."""

    def release(self, votes, source):
        release = super().release(votes, source)
        return Release(release.labels, Cost(2 * release.cost.worst), release.answered)


@dataclass(frozen=True)
class Odd(Binary):
    """Answers with a 2."""

    def release(self, votes, source):
        release = super().release(votes, source)
        return Release(release.labels + 1, release.cost, release.answered)


@dataclass(frozen=True)
class Flat(Binary):
    """Answers with one label per query."""

    def release(self, votes, source):
        release = super().release(votes, source)
        return Release(release.labels[:, 0], release.cost, release.answered[:, 0])


@dataclass(frozen=True)
class Elsewhere(Binary):
    """Draws from a generator of its own."""

    def release(self, votes, source):
        return super().release(votes, noise.secure())


@dataclass
class Soft:
    """Is not frozen."""

    sigma: float
    n_labels: int
    price = Binary.price
    release = Binary.release


BROKEN = {
    Cheap(1.0, 3): "above the price",
    Quiet(0.7, 3): "Raise the price",
    Dear(1.0, 3): "at most",
    Odd(1.0, 3): "0, 1 or SILENT",
    Flat(1.0, 3): "whole labels",
    Elsewhere(3.0, 8): "from the same noise",
}


@pytest.mark.parametrize(("mechanism", "words"), BROKEN.items(), ids=lambda value: str(value))
def test_broken_ones_are_found(mechanism, words):
    with pytest.raises(AssertionError) as found:
        check_label_mechanism(mechanism, n_random=30, n_draws=4000)
    assert words in str(found.value)


@pytest.mark.parametrize("name", faults.LABEL_FAULTS)
def test_planted_faults_are_found(name):
    """A sound mechanism is accused with probability 1e-6 at most, and for one seed always or never."""
    with pytest.raises(AssertionError, match=r"^Expected"):
        check_label_mechanism(faults.LABEL_FAULTS[name], n_random=60, n_draws=8000)


def test_what_the_faults_were_planted_in_is_sound():
    check_label_mechanism(Binary(3.0, 3), n_random=30, n_draws=4000)
    check_label_mechanism(Binary(2.0, 12), n_random=20, n_draws=2000)


@pytest.mark.campaign
@pytest.mark.parametrize("mechanism", [Binary(2.0, 3), Powerset(2.0, 2)], ids=repr)
def test_false_alarms_of_checks_are_as_rare_as_stated(mechanism, monkeypatch):
    """60 checks of a sound mechanism at a rate of 5 %: this fails with probability below 1e-6."""
    monkeypatch.setattr("tellers.testing.mechanism.FALSE_ALARM", 0.05)
    alarms = 0
    for seed in range(500, 560):
        try:
            check_label_mechanism(mechanism, n_random=20, n_draws=1000, seed=seed)
        except AssertionError:
            alarms += 1
    assert alarms <= binom.ppf(1 - 1e-6, 60, 0.05)


def test_one_that_is_not_frozen_is_found():
    assert dataclasses.is_dataclass(Soft)
    with pytest.raises(AssertionError, match="frozen dataclass"):
        check_label_mechanism(Soft(1.0, 3))
