"""An empirical lower bound on the epsilon of a mechanism, from releases at two neighbouring votes."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import require_count, require_fraction
from ..mechanisms import Mechanism
from ..noise import Noise
from ..rdp import RdpCurve
from ..votes import Unit
from .events import Direction, choose_event
from .intervals import lower_bound
from .law import Floats, Law, Pair, stated_law
from .releases import Outcomes, Progress, draw_releases, guessed_losses
from .wording import finding

Method = Literal["events", "losses"]
METHODS = ("events", "losses")
_LADDER = 24
_FOR_CHOOSING = 0.25


@dataclass(frozen=True)
class MechanismAudit:
    """What releases prove of a mechanism, beside what is claimed of it.

    `epsilon` is proved, `claim` is claimed, `exact` is the exact Rényi cost of the same two votes, converted,
    or None where the mechanism states no law. All at `delta`.
    """

    epsilon: float
    claim: float
    exact: float | None
    delta: float
    confidence: float
    method: Method
    likelier: Direction
    n_samples: int
    n_queries: int

    @property
    def holds(self) -> bool:
        """Return whether the claim is not refuted; that it is true is not shown by that."""
        return self.epsilon <= self.claim

    @property
    def summary(self) -> str:
        """Return the finding in words."""
        found = finding(self.epsilon, self.claim)
        sure = f"{100 * self.confidence:.6g} %"
        if self.holds:
            return f"{found}. That fits the claim: nothing was found against it, with confidence {sure}."
        return f"{found}. The claim does not hold: epsilon is larger, with confidence {sure}."

    def as_dict(self) -> dict[str, Any]:
        """Return everything for machines, as JSON can hold it.

        >>> audit = MechanismAudit(1.0, 2.0, None, 0.01, 0.95, "events", "here", 2000, 1)
        >>> audit.as_dict()["holds"], audit.summary
        (True, 'The audit found at least 1; the claim is 2. That fits the claim: ...')
        """
        return {**vars(self), "holds": self.holds, "summary": self.summary}


def audit_mechanism(
    mechanism: Mechanism,
    pair: Pair,
    *,
    delta: float,
    noise: Noise,
    n_samples: int = 20_000,
    n_queries: int = 1,
    confidence: float = 0.95,
    method: Method = "events",
    claim: RdpCurve | None = None,
    progress: Progress | None = None,
) -> MechanismAudit:
    """Return what many releases at two neighbouring votes prove of epsilon, beside what is claimed.

    Each sample asks the same query `n_queries` times; the claim is that many times `claim`, the price of one
    query without it. `events` looks at releases alone: a quarter of the samples choose an event, the others
    bound its two probabilities. It cannot find more than about log(n_samples). `losses` also believes the
    law that the mechanism states and weighs every release by it, so that it is bounded by delta alone: about
    n_samples * delta of them must be rare.

    Guarantee: `epsilon` is above the truth with chance at most 1 - `confidence`, whatever the mechanism; for
               `losses`, if its law is as stated.
    Assumes:   `pair` was not chosen by looking at these releases.
    Reference: Clopper and Pearson 1934; delta(epsilon) = E max(0, 1 - e^(epsilon - loss)).

    >>> from tellers import GNMax, Votes, noise
    >>> pair = Pair(Votes.from_counts([[6, 4]], n_teachers=10), Votes.from_counts([[5, 5]], n_teachers=10))
    >>> audit = audit_mechanism(GNMax(sigma=1.0), pair, delta=0.01, noise=noise.seeded(7), n_samples=2000)
    >>> 0 < audit.epsilon < audit.exact < audit.claim
    True
    """
    require_count(2, n_samples=n_samples)
    require_count(n_queries=n_queries)
    require_fraction(delta=delta, confidence=confidence)
    if method not in METHODS:
        raise ValueError(f"Expected a method of {', '.join(METHODS)}, got {method!r}.")
    law = stated_law(mechanism, pair)
    if method == "losses" and law is None:
        raise ValueError(
            f"Expected a mechanism that states the law of its outcomes for the method 'losses', got "
            f"{type(mechanism).__name__}. Take 'events', which looks at releases alone."
        )
    here, there = (
        draw_releases(mechanism, votes, pair.student, n_samples, n_queries, noise, progress=progress)
        for votes in (pair.here, pair.there)
    )
    miss = 1 - confidence
    if method == "losses" and law is not None:
        epsilon, likelier = _by_losses(law, here, there, delta=delta, miss=miss, noise=noise)
    else:
        epsilon, likelier = _by_events(here, there, delta=delta, miss=miss)
    price = mechanism.price(Unit()) if claim is None else claim
    return MechanismAudit(
        epsilon=epsilon,
        claim=(price * n_queries).epsilon(delta),
        exact=None if law is None else law.epsilon(n_queries, delta=delta),
        delta=delta,
        confidence=confidence,
        method=method,
        likelier=likelier,
        n_samples=n_samples,
        n_queries=n_queries,
    )


def _by_events(here: Outcomes, there: Outcomes, *, delta: float, miss: float) -> tuple[float, Direction]:
    first = max(1, int(_FOR_CHOOSING * len(here)))
    score = guessed_losses(here[:first], there[:first])
    event, _ = choose_event(*score(here[:first], there[:first]), delta=delta, miss=miss)
    return event.epsilon(*score(here[first:], there[first:]), delta=delta, miss=miss), event.likelier


def _by_losses(
    law: Law, here: Outcomes, there: Outcomes, *, delta: float, miss: float, noise: Noise
) -> tuple[float, Direction]:
    first = max(1, int(_FOR_CHOOSING * len(here)))
    sides = [law.losses(here).sum(axis=1), -law.losses(there).sum(axis=1)]
    ladders = [_ladder(losses[:first], delta=delta) for losses in sides]
    # The direction, like the ladder, is chosen on the first part.
    way = int(ladders[1].max() > ladders[0].max())
    losses, rungs = sides[way][first:], ladders[way]
    exceeds = np.maximum(-np.expm1(np.minimum(rungs[:, None] - losses, 0.0)), 0.0)
    # A coin with this chance for every release: its heads are binomial with mean delta(epsilon).
    heads = (noise.uniform(losses.size) < exceeds).sum(axis=1)
    proved = lower_bound(heads, losses.size, miss=miss / _LADDER) >= delta
    return float(rungs[proved].max(initial=0.0)), "here" if way == 0 else "there"


def _ladder(losses: Floats, *, delta: float) -> Floats:
    """Return epsilons at which delta(epsilon) seems to be delta, and more and more above it."""
    expected = losses.size * delta
    slack = np.geomspace(0.02, 1.0, _LADDER) * (12 / np.sqrt(expected) + 30 / expected)
    # With the k largest losses above epsilon, n delta(epsilon) = k - e^epsilon (sum of their e^-loss).
    above = np.sort(losses[losses > 0])[::-1]
    if not above.size:
        return np.zeros(_LADDER)
    log_sum = np.logaddexp.accumulate(-above)
    at_loss = np.arange(1, above.size + 1) - np.exp(above + log_sum)
    wanted = expected * (1 + slack)
    n_above = np.maximum(np.searchsorted(at_loss, wanted), 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rungs = np.log(n_above - wanted) - log_sum[n_above - 1]
    # Not even at epsilon 0 is delta reached: then there is nothing to prove.
    return np.asarray(np.where(np.isfinite(rungs), np.maximum(rungs, 0.0), 0.0))
