"""Audit of a mechanism: a lower bound on its epsilon from releases, and published claims that do not hold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.stats import binom

from ...errors import require_count, require_fraction, require_positive
from ...mechanisms.base import Mechanism
from ...mechanisms.labels.adaptive import as_published_share
from ...privacy.noise import Noise
from ...privacy.rdp import Floats, RdpCurve
from ...privacy.release import Cost, Release
from ...privacy.votes import LabelVotes, Unit, Votes
from .evidence import (
    Direction,
    DrawnOutcomes,
    Law,
    Pair,
    Progress,
    choose_event,
    draw_rows,
    finding,
    learn_score,
    lower_bound,
    prove_by_queries,
    stated_law,
)
from .pairs import bad_pair

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
    _require_terms(delta=delta, n_samples=n_samples, n_queries=n_queries, confidence=confidence)
    law = stated_law(mechanism, pair)
    chosen = method or ("queries" if law is None else "losses")
    if chosen not in METHODS:
        raise ValueError(f"Expected a method of {', '.join(METHODS)}, got {chosen!r}.")
    if chosen == "losses" and law is None:
        raise ValueError(
            f"Expected a mechanism that states the law of its outcomes for the method 'losses', got "
            f"{type(mechanism).__name__}. Take 'queries' or 'events', which look at releases alone."
        )
    same = np.zeros(n_samples * n_queries, dtype=np.int64)
    here, there = (
        draw_rows(mechanism, votes, same, noise, student=pair.student, progress=progress).reshape(
            n_samples, n_queries, -1
        )
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


def audit_at_bad_pair(
    mechanism: Any, n_teachers: int, *, delta: float, noise: Noise, n_classes: int = 10, **how: Any
) -> tuple[MechanismAudit, str]:
    """Audit a mechanism at votes that are searched for; return what was found, and those votes in words.

    A mechanism that names the votes it is worst at (`pair`) is audited there. `how` is for
    `audit_mechanism`.
    """
    _require_terms(delta=delta, **how)  # before the search, which takes a while
    if hasattr(mechanism, "pair"):
        pair = mechanism.pair(n_teachers)
    else:
        many = how.get("n_queries", 1)
        pair = bad_pair(mechanism, n_teachers, delta=delta, noise=noise, n_queries=many, n_classes=n_classes)
    return audit_mechanism(mechanism, pair, delta=delta, noise=noise, **how), str(pair)


def _require_terms(
    *, delta: float, n_samples: int = 8, n_queries: int = 1, confidence: float = 0.95, **_others: Any
) -> None:
    require_count(8, n_samples=n_samples)
    require_count(n_queries=n_queries)
    require_fraction(delta=delta, confidence=confidence)


def _follows(law: Law, here: DrawnOutcomes, there: DrawnOutcomes, *, limit: float) -> bool:
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


def _by_events(
    here: DrawnOutcomes, there: DrawnOutcomes, *, delta: float, miss: float
) -> tuple[float, Direction]:
    first = max(1, int(_FOR_CHOOSING * len(here)))
    score = learn_score(*(side[:first].reshape(-1, side.shape[2]) for side in (here, there)))
    # The scores of a release's queries are added.
    sums = [
        score(side.reshape(-1, side.shape[2])).reshape(side.shape[:2]).sum(axis=1) for side in (here, there)
    ]
    event, _ = choose_event(sums[0][:first], sums[1][:first], delta=delta, miss=miss)
    return event.epsilon(sums[0][first:], sums[1][first:], delta=delta, miss=miss), event.likelier


def _by_losses(
    law: Law, here: DrawnOutcomes, there: DrawnOutcomes, *, delta: float, miss: float, noise: Noise
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


# --- Published claims that do not hold, as something that an audit can try. ---


@dataclass(frozen=True)
class AdaptiveAsPublished:
    """GNThreshold at the middle of the largest gap between the sums, as printed: for audits only.

    Guarantee: none. The threshold jumps when one ballot changes which gap is the largest.
    Assumes:   nothing.
    Reference: the thesis on private audio tagging, Definition 11. A sound one: `AdaptiveGNThreshold`.

    >>> from tellers import noise
    >>> votes = LabelVotes.from_sums([[50, 25, 0]], n_teachers=50)
    >>> AdaptiveAsPublished(sigma=1.0, n_labels=3).release(votes, noise.seeded(7)).labels
    array([[1, 0, 0]])
    """

    sigma: float
    n_labels: int
    multilabel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_count(2, n_labels=self.n_labels)

    def price(self, unit: Unit) -> RdpCurve:
        """Return the price that was claimed: that of the labels, as if the threshold had been fixed.

        >>> float(AdaptiveAsPublished(sigma=5.0, n_labels=4).price(Unit()).values[3].round(6))
        0.16
        """
        if unit != Unit():
            raise ValueError(f"Expected a unit behind one ballot of one vote, got {unit}.")
        return RdpCurve.zcdp(self.n_labels / (2 * self.sigma**2))

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Take each query's threshold from its sums, and decide every label at it.

        >>> from tellers import noise
        >>> votes = LabelVotes.from_sums([[50, 26, 0]], n_teachers=50)
        >>> AdaptiveAsPublished(sigma=1.0, n_labels=3).release(votes, noise.seeded(7)).labels
        array([[1, 1, 0]])
        """
        distinct, which = np.unique(votes.sums, axis=0, return_inverse=True)
        shares = np.array([as_published_share(row / votes.n_teachers) for row in distinct])
        # A middle is whole or halfway between whole sums; rounding keeps it from lying a hair beside that.
        limits = np.round(shares * votes.n_teachers, 6)[which.reshape(-1)]
        noisy = votes.sums + noise.discrete_gaussian(self.sigma, votes.sums.shape)
        given = noisy > limits[:, None]
        return Release(given.astype(np.int64), Cost(self.price(votes.unit) * len(votes)))

    def published_claim(self) -> RdpCurve:
        """Return the price that was claimed.

        >>> one = AdaptiveAsPublished(sigma=5.0, n_labels=4)
        >>> bool((one.published_claim().values == one.price(Unit()).values).all())
        True
        """
        return self.price(Unit())

    def pair(self, n_teachers: int) -> Pair:
        """Return the votes at which the threshold jumps: two gaps of equal size, and one ballot between them.

        >>> AdaptiveAsPublished(sigma=5.0, n_labels=3).pair(50)
        Pair([50, 25, 0] | [50, 26, 0], n_teachers=50)
        """
        require_count(4, n_teachers=n_teachers)
        sums = np.zeros((2, self.n_labels), dtype=np.int64)
        sums[:, 0] = n_teachers
        sums[:, 1] = n_teachers // 2
        sums[1, 1] += 1
        here, there = (LabelVotes.from_sums(row[None], n_teachers=n_teachers) for row in sums)
        return Pair(here, there)


def published_claim(mechanism: Mechanism) -> RdpCurve:
    """Return what a paper charges one query, where that is too little.

    Guarantee: none: that is why it is here.
    Assumes:   nothing.
    Reference: Dullerud et al. 2022 for tau voting; the thesis on private audio tagging for the threshold.

    >>> from tellers import Tau
    >>> tau = Tau(sigma=5.0, n_labels=4, max_norm=2**0.5)
    >>> bool((published_claim(tau).values < tau.price(Unit()).values).all())
    True
    """
    claim: Callable[[], RdpCurve] | None = getattr(mechanism, "published_claim", None)
    if claim is None:
        raise ValueError(
            f"Expected tau voting or the adaptive threshold, whose published prices do not hold, got "
            f"{type(mechanism).__name__}. Leave the published claim out: its own price is audited."
        )
    return claim()
