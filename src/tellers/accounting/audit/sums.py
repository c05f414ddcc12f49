"""An audit of a Gaussian sum: what releases at two neighbouring sums prove, beside what is claimed."""

from typing import Any

import numpy as np

from ...privacy.noise import Noise
from ...privacy.votes import Scores, Unit, Votes
from .evidence import Direction, choose_event
from .mechanism import MechanismAudit, _require_terms

_FOR_CHOOSING = 0.25


def audit_sum(
    mechanism: Any,
    *,
    delta: float,
    noise: Noise,
    n_samples: int = 20_000,
    confidence: float = 0.95,
) -> MechanismAudit:
    """Return what many releases of a Gaussian sum prove of epsilon, where a ballot turns round.

    A neighbour moves the sum along one entry by twice the norm, as far as any does, so that entry alone tells
    the two apart best. A quarter of the samples choose the event that the others are held to; it cannot find
    more than about log(n_samples). Noise that entries share shows in another entry: they are subtracted.

    Guarantee: `epsilon` is above the truth with chance at most 1 - `confidence`, whatever the mechanism.
    Assumes:   nothing beyond that.
    Reference: Clopper and Pearson 1934.

    >>> from tellers import noise
    >>> from tellers.mechanisms import GaussianSum
    >>> audit = audit_sum(
    ...     GaussianSum(sigma=1.0, steps=64), delta=0.01, noise=noise.seeded(7), n_samples=2000
    ... )
    >>> 0 < audit.epsilon < audit.claim, audit.method
    (True, 'events')
    """
    _require_terms(delta=delta, n_samples=n_samples, confidence=confidence)
    steps = mechanism.steps
    turned = np.array([[steps, 0]])
    sides = [Votes.from_totals(one, Scores(2, steps), n_teachers=1) for one in (turned, -turned)]
    drawn = [
        np.array([mechanism.release(votes, noise).values[0] for _ in range(n_samples)], dtype=np.float64)
        for votes in sides
    ]
    first = max(1, int(_FOR_CHOOSING * n_samples))
    miss = 1 - confidence
    found: tuple[float, Direction] = 0.0, "here"
    looks = [np.array([1.0, 0.0]), np.array([1.0, -1.0])]
    for look in looks:
        here, there = (one @ look for one in drawn)
        event, _ = choose_event(here[:first], there[:first], delta=delta, miss=miss / len(looks))
        proved = event.epsilon(here[first:], there[first:], delta=delta, miss=miss / len(looks))
        found = max(found, (proved, event.likelier))
    claim = mechanism.batch_price(Unit(), 1).epsilon(delta)
    return MechanismAudit(
        epsilon=found[0], claim=claim, exact=None, delta=delta, confidence=confidence, method="events",
        likelier=found[1], n_samples=n_samples, n_queries=1,
    )  # fmt: skip
