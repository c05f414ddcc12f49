"""An empirical lower bound on the epsilon of a mechanism, from releases at two neighbouring votes."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.stats import binom

from ..errors import require_count, require_fraction
from ..mechanisms import Mechanism
from ..noise import Noise
from ..rdp import RdpCurve
from ..votes import Unit
from .events import Direction, choose_event
from .intervals import lower_bound
from .law import Floats, Law, Pair, stated_law
from .learned import learn_score, prove_by_queries
from .releases import Outcomes, Progress, draw_releases
from .wording import finding

Method = Literal["losses", "queries", "events"]
METHODS = ("losses", "queries", "events")
_LAW_SHARE = 0.1  # of the chance to err, for finding that releases do not follow the stated law
_LADDER = 24
_FOR_CHOOSING = 0.25


@dataclass(frozen=True)
class MechanismAudit:
    """What releases prove of a mechanism, beside what is claimed of it.

    `epsilon` is proved, `claim` is claimed, `exact` is the epsilon of the same two votes by the law that the
    mechanism states, or None where it states none. All at `delta`. `law` says whether releases follow that
    law; where they are shown not to, the claim does not hold, whatever epsilon was proved.
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
    law: Literal["followed", "refuted", "none"] = "none"

    @property
    def holds(self) -> bool:
        """Return whether the claim is not refuted; that it is true is not shown by that."""
        return self.epsilon <= self.claim and self.law != "refuted"

    @property
    def smallest_leak(self) -> float:
        """Return how likely a leak at these two votes must be to show in these releases with `confidence`.

        One that comes with probability p in a query is not seen in n queries with chance (1 - p)^n.

        >>> round(MechanismAudit(1.0, 2.0, None, 0.01, 0.95, "events", "here", 3000, 1).smallest_leak, 4)
        0.001
        """
        return float(-np.expm1(np.log(1 - self.confidence) / (self.n_samples * self.n_queries)))

    @property
    def summary(self) -> str:
        """Return the finding in words."""
        found = finding(self.epsilon, self.claim)
        sure = f"{100 * self.confidence:.6g} %"
        if self.law == "refuted":
            return (
                f"{found}. Releases do not follow the law that the mechanism states, with confidence {sure}: "
                "no cost that was computed from it holds."
            )
        if self.holds:
            share = f"{100 * self.smallest_leak:.2g} %"
            rare = f"in fewer than {share} of queries at these votes may not have come up"
            fits = f"That fits the claim: nothing was found against it, with confidence {sure}"
            return f"{found}. {fits}. A leak that comes {rare}."
        return f"{found}. The claim does not hold: epsilon is larger, with confidence {sure}."

    def as_dict(self) -> dict[str, Any]:
        """Return everything for machines, as JSON can hold it.

        >>> audit = MechanismAudit(1.0, 2.0, None, 0.01, 0.95, "events", "here", 2000, 1)
        >>> audit.as_dict()["holds"], audit.summary
        (True, 'The audit found at least 1; the claim is 2. That fits the claim: ...')
        """
        more = {"holds": self.holds, "smallest_leak": self.smallest_leak, "summary": self.summary}
        return {**vars(self), **more}


def audit_mechanism(
    mechanism: Mechanism,
    pair: Pair,
    *,
    delta: float,
    noise: Noise,
    n_samples: int = 20_000,
    n_queries: int = 1,
    confidence: float = 0.95,
    method: Method | None = None,
    claim: RdpCurve | None = None,
    progress: Progress | None = None,
) -> MechanismAudit:
    """Return what many releases at two neighbouring votes prove of epsilon, beside what is claimed.

    Each sample asks the same query `n_queries` times; the claim is that many times `claim`, the price of one
    query without it. In every method a quarter of the samples choose what the others then prove.

    - `losses`, the default where the mechanism states a law: weighs every release by it, and is bounded by
      delta alone: about n_samples * delta of them must be rare. Releases are first held against the law, with
      a tenth of the chance to err; where they do not follow it, that is said and `queries` takes over.
    - `queries`, the default elsewhere: learns which outcomes of one query speak for which votes, bounds how
      often they come, and computes what that makes of all queries together.
    - `events`: learns an event of all queries together and bounds its two probabilities. It cannot find more
      than about log(n_samples).

    Guarantee: `epsilon` is above the truth with chance at most 1 - `confidence`: for `events` whatever the
               mechanism; for `queries` if it answers queries independently; for `losses` if its law is as
               stated. A leak at these votes that comes with probability p is not seen in n queries with
               chance (1 - p)^n: it takes about log(1 / (1 - confidence)) / p of them, see `smallest_leak`.
    Assumes:   `pair` was not chosen by looking at these releases.
    Reference: Clopper and Pearson 1934; delta(epsilon) = E max(0, 1 - e^(epsilon - loss)).

    >>> from tellers import GNMax, Votes, noise
    >>> pair = Pair(Votes.from_counts([[6, 4]], n_teachers=10), Votes.from_counts([[5, 5]], n_teachers=10))
    >>> audit = audit_mechanism(GNMax(sigma=1.0), pair, delta=0.01, noise=noise.seeded(7), n_samples=4000)
    >>> 0 < audit.epsilon < audit.exact < audit.claim, audit.method, audit.law
    (True, 'losses', 'followed')
    """
    require_count(8, n_samples=n_samples)
    require_count(n_queries=n_queries)
    require_fraction(delta=delta, confidence=confidence)
    law = stated_law(mechanism, pair)
    chosen = method or ("queries" if law is None else "losses")
    if chosen not in METHODS:
        raise ValueError(f"Expected a method of {', '.join(METHODS)}, got {chosen!r}.")
    if chosen == "losses" and law is None:
        raise ValueError(
            f"Expected a mechanism that states the law of its outcomes for the method 'losses', got "
            f"{type(mechanism).__name__}. Take 'queries' or 'events', which look at releases alone."
        )
    here, there = (
        draw_releases(mechanism, votes, pair.student, n_samples, n_queries, noise, progress=progress)
        for votes in (pair.here, pair.there)
    )
    miss = 1 - confidence
    followed: Literal["followed", "refuted", "none"] = "none"
    if law is not None:
        # Whichever the method: a law that releases do not follow is found, for a share of the chance to err.
        fits = _follows(law, here, there, limit=_LAW_SHARE * miss)
        followed, miss = "followed" if fits else "refuted", (1 - _LAW_SHARE) * miss
        chosen = "queries" if chosen == "losses" and not fits else chosen
    if chosen == "losses" and law is not None:
        epsilon, likelier = _by_losses(law, here, there, delta=delta, miss=miss, noise=noise)
    elif chosen == "queries":
        flat = (side.reshape(-1, side.shape[2]) for side in (here, there))
        epsilon, likelier = prove_by_queries(*flat, n_queries=n_queries, delta=delta, miss=miss)
    else:
        epsilon, likelier = _by_events(here, there, delta=delta, miss=miss)
    price = mechanism.price(Unit()) if claim is None else claim
    return MechanismAudit(
        epsilon=epsilon,
        claim=(price * n_queries).epsilon(delta),
        exact=None if law is None else law.hockey_stick(n_queries, delta=delta),
        delta=delta,
        confidence=confidence,
        method=chosen,
        likelier=likelier,
        n_samples=n_samples,
        n_queries=n_queries,
        law=followed,
    )


def _follows(law: Law, here: Outcomes, there: Outcomes, *, limit: float) -> bool:
    """Return whether outcomes come as often as the law says: exact binomial tests, `limit` in all."""
    tails = []
    for stated, outcomes in ((law.here, here), (law.there, there)):
        flat = outcomes.reshape(-1, outcomes.shape[2])
        n, last = len(flat), stated.shape[1] - 1
        for column, told in enumerate(flat.T):
            times = np.bincount(np.where(told < 0, last, told), minlength=last + 1)
            expected = np.minimum(np.exp(stated[column]), 1.0)
            both = binom.cdf(times, n, expected), binom.sf(times - 1, n, expected)
            tails.append(2 * np.minimum(*both))
    every = np.concatenate(tails)
    return bool((every >= limit / every.size).all())


def _by_events(here: Outcomes, there: Outcomes, *, delta: float, miss: float) -> tuple[float, Direction]:
    first = max(1, int(_FOR_CHOOSING * len(here)))
    score = learn_score(*(side[:first].reshape(-1, side.shape[2]) for side in (here, there)))
    # The scores of a release's queries are added.
    sums = [
        score(side.reshape(-1, side.shape[2])).reshape(side.shape[:2]).sum(axis=1) for side in (here, there)
    ]
    event, _ = choose_event(sums[0][:first], sums[1][:first], delta=delta, miss=miss)
    return event.epsilon(sums[0][first:], sums[1][first:], delta=delta, miss=miss), event.likelier


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
