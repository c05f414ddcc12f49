"""An empirical lower bound on the epsilon of a whole run: can its student tell who was there?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata

from ...errors import require_fraction
from ...privacy.rdp import Floats
from .evidence import choose_event, epsilon_of_event, finding

_FEWEST = 4


@dataclass(frozen=True)
class MembershipAudit:
    """What an attack on students proves of a run, beside what is claimed of it; private, like its canaries.

    `auc` says how well the attack tells students apart: 0.5 is guessing, 1 is always right.
    """

    epsilon: float
    claim: float
    delta: float
    confidence: float
    attack: str
    auc: float
    n_with: int
    n_without: int

    @property
    def holds(self) -> bool:
        """Return whether the claim is not refuted; that it is true is not shown by that."""
        return self.epsilon <= self.claim

    @property
    def ceiling(self) -> float:
        """Return the most that an attack which is always right could have proved with so many students."""
        own, others = self.n_with, self.n_without
        most = epsilon_of_event(own, own, 0, others, delta=self.delta, miss=1 - self.confidence)
        return float(most)

    @property
    def summary(self) -> str:
        """Return the finding in words."""
        found = finding(self.epsilon, self.claim)
        sure = f"{100 * self.confidence:.6g} %"
        if self.holds:
            most = f"with so many students it could not have found more than {self.ceiling:.3g}"
            return f"{found}. Nothing was found against the claim; {most}."
        return f"{found}. The claim does not hold: epsilon is larger, with confidence {sure}."

    def as_dict(self) -> dict[str, Any]:
        """Return everything for machines, as JSON can hold it.

        >>> audit = MembershipAudit(0.1, 2.0, 1e-5, 0.95, "loss", 0.6, 100, 100)
        >>> audit.as_dict()["holds"], round(audit.ceiling, 2), audit.summary
        (True, 3.28, 'The audit found at least 0.1; the claim is 2. Nothing was found ...')
        """
        return {**vars(self), "holds": self.holds, "ceiling": self.ceiling, "summary": self.summary}


def audit_membership(
    with_canary: Mapping[str, ArrayLike],
    without: Mapping[str, ArrayLike],
    *,
    claim: float,
    delta: float,
    confidence: float = 0.95,
) -> MembershipAudit:
    """Return what scores of students prove, taught with and without a canary among the private rows.

    One array of scores per attack, one score per student; a high score says that the canary was there. The
    attack and its cut are chosen on the first half of the students, and judged on the second half.

    Guarantee: `epsilon` is above the truth with chance at most 1 - `confidence`, whatever the students are.
    Assumes:   independent runs that differ in the canary alone, in an order that does not depend on scores.
    Reference: Clopper and Pearson 1934; shadow models after Shokri et al. 2017.

    >>> generator = np.random.default_rng(7)
    >>> there, gone = {"loss": generator.normal(3, 1, 400)}, {"loss": generator.normal(0, 1, 400)}
    >>> audit = audit_membership(there, gone, claim=8.0, delta=1e-5)
    >>> round(audit.auc, 1), 2 < audit.epsilon < 8.0
    (1.0, True)
    """
    require_fraction(delta=delta, confidence=confidence)
    if not with_canary or set(with_canary) != set(without):
        raise ValueError("Expected scores of the same attacks, one or more, with the canary and without.")
    miss, tried = 1 - confidence, []
    for attack in with_canary:
        here, there = _scores(with_canary[attack]), _scores(without[attack])
        first, second = (np.split(side, [side.size // 2]) for side in (here, there))
        event, seems = choose_event(first[0], second[0], delta=delta, miss=miss)
        # Where nothing is proved on the first half, the attack that separates better goes on.
        rank = (seems, abs(area_under_curve(first[0], second[0]) - 0.5))
        tried.append((rank, attack, event, first[1], second[1]))
    _, attack, event, here, there = max(tried, key=lambda one: one[0])
    return MembershipAudit(
        epsilon=event.epsilon(here, there, delta=delta, miss=miss),
        claim=float(claim),
        delta=delta,
        confidence=confidence,
        attack=attack,
        auc=area_under_curve(here, there),
        n_with=here.size,
        n_without=there.size,
    )


def area_under_curve(here: ArrayLike, there: ArrayLike) -> float:
    """Return how often a score from here is above one from there, ties counting half."""
    first, second = _scores(here, fewest=1), _scores(there, fewest=1)
    ranks = rankdata(np.concatenate([first, second]))[: first.size].sum()
    return float((ranks - first.size * (first.size + 1) / 2) / (first.size * second.size))


def _scores(values: ArrayLike, *, fewest: int = _FEWEST) -> Floats:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or scores.size < fewest or np.isnan(scores).any():
        raise ValueError(
            f"Expected at least {fewest} scores in one dimension, none of them NaN, got shape {scores.shape}."
        )
    return scores
