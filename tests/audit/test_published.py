"""Published claims that do not hold, refuted by releases; each refutation errs with the chance it states."""

import numpy as np
import pytest

from tellers import AdaptiveGNThreshold, GNMax, LabelVotes, Tau, Unit, noise
from tellers.accounting.audit import AdaptiveAsPublished, Pair, audit_mechanism, bad_pair, published_claim

TAU = Tau(sigma=2.0, n_labels=4, max_norm=2**0.5)


def two_camps(n_first, n_second):
    """So many say yes to the first two labels, so many to the others; one teacher changes sides."""
    ballots = np.zeros((n_first + n_second, 1, 4), dtype=int)
    ballots[:n_first, 0, :2] = 1
    ballots[n_first:, 0, 2:] = 1
    moved = ballots.copy()
    moved[0, 0] = [0, 0, 1, 1]
    return Pair(*(LabelVotes.from_ballots(cast, n_labels=4) for cast in (ballots, moved)))


def test_tau_voting_costs_more_than_published():
    """Forty queries: published < found <= exact <= price. False alarm at most 1e-6."""
    tau = Tau(sigma=1.0, n_labels=4, max_norm=2**0.5)
    pair = bad_pair(tau, 15, delta=0.02, noise=noise.seeded(7), n_queries=40)
    audit = audit_mechanism(
        tau, pair, delta=0.02, noise=noise.seeded(7), n_samples=2000, n_queries=40, confidence=1 - 1e-6,
        method="losses", claim=published_claim(tau),
    )  # fmt: skip
    assert not audit.holds
    assert audit.claim < audit.epsilon <= audit.exact <= (40 * tau.price(Unit())).epsilon(0.02)


@pytest.mark.slow
def test_tau_voting_costs_more_than_published_by_releases_alone():
    """One query, and no law is believed: only counted. False alarm at most 0.001."""
    audit = audit_mechanism(
        TAU, two_camps(9, 11), delta=0.01, noise=noise.seeded(7), n_samples=300_000, confidence=0.999,
        claim=published_claim(TAU), method="events",
    )  # fmt: skip
    assert not audit.holds
    assert audit.claim < audit.epsilon < audit.exact


def test_an_adaptive_threshold_costs_more_than_published():
    """One query is enough, at votes whose two gaps are equal. False alarm at most 1e-6."""
    printed = AdaptiveAsPublished(sigma=7.0, n_labels=3)
    pair = printed.pair(50)
    options = {"delta": 1e-5, "n_samples": 8000, "confidence": 1 - 1e-6}
    audit = audit_mechanism(printed, pair, noise=noise.seeded(7), claim=published_claim(printed), **options)
    assert not audit.holds
    assert audit.epsilon > 2.5 * audit.claim
    # The library's own chooses its threshold with noise, and the same votes say little.
    sound = AdaptiveGNThreshold(sigma=7.0, n_labels=3, scale=10.0)
    kept = audit_mechanism(sound, pair, noise=noise.seeded(7), **options)
    assert kept.holds
    assert kept.epsilon < 0.2 * audit.epsilon


def test_only_published_claims_that_fail_are_there():
    with pytest.raises(ValueError, match="tau voting or the adaptive threshold"):
        published_claim(GNMax(sigma=5.0))
