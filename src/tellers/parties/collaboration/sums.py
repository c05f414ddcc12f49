"""Learning from one Gaussian sum: every member scores the whole public pool once, for all who ask."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...accounting.sum_plan import plan_sum
from ...data.label_models import label_probabilities
from ...errors import require_count, require_fraction
from ...ledger.memory import MemoryLedger
from ...mechanisms.gaussian_sum import GaussianSum
from ...privacy.budget import Accountant, Budget
from ...privacy.directions import public_directions
from ...privacy.noise import Noise
from ...privacy.release import SILENT, Release, describe
from ...privacy.votes import Scores, Unit, Votes
from ...students.sums import SumStudent, fit_sum
from .._ring import Integers
from .members import Member

# One release serves everybody: all members are in the sum, also those that ask, and an asker takes its own
# ballot off by itself. So the budget buys one sum, not one for each asker, and how many ask does not matter.
# A sum for each asker would have to share mu^2: noise sqrt(n) times as large for n askers.

Floats = NDArray[np.float64]
_CLIP = 1e-3


@dataclass(frozen=True, kw_only=True)
class PoolSum:
    """Ask by one Gaussian sum with the least noise that the budget affords, as the `mechanism` of `Terms`.

    Scores are brought onto the `n_directions` in which the pool differs most. `weight` is what the others'
    answer has in the log-odds of an asker's new model, beside its own.

    >>> PoolSum().planned(Budget(10.0, 1e-5)).mu() < 2 < PoolSum().planned(Budget(20.0, 1e-5)).mu()
    True
    """

    n_directions: int = 50
    weight: float = 0.8
    of_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count(n_directions=self.n_directions)
        require_fraction(weight=self.weight)

    def planned(self, budget: Budget) -> GaussianSum:
        """Return the sum with the least noise that a budget affords."""
        return plan_sum(Accountant(budget), prior_share=0).scores


@dataclass(frozen=True, eq=False)
class ScoredPool:
    """A public pool, and what is fixed by it before anybody answers: its scale and its directions."""

    X: NDArray[Any]
    n_columns: int
    n_directions: int = 50

    @cached_property
    def scale(self) -> tuple[Floats, Floats]:
        sizes = self.X.std(axis=0)
        return self.X.mean(axis=0), np.where(sizes > 0, sizes, 1.0)

    def scaled(self, X: NDArray[Any]) -> Floats:
        """Return rows as the directions see them, scaled by the pool."""
        middle, size = self.scale
        return np.asarray((X - middle) / size, dtype=np.float64)

    @cached_property
    def directions(self) -> Floats:
        return public_directions(self.scaled(self.X), self.n_directions)

    def space(self, steps: int) -> Scores:
        """Return the space of a member's answer: a matrix for the whole pool, of norm `steps` at most."""
        # The bound: what rounding leaves of scores that are all the same is nothing, and not a whole norm.
        return Scores(self.n_columns, steps, bound=1e-6, directions=self.directions)

    def ballot(self, member: Member, steps: int) -> Integers:
        """Return a member's answer, directions x labels in steps: its probabilities, bounded; private.

        A label that it does not know has zeros.
        """
        if member.y.ndim != 2:
            raise TypeError(
                "Expected rows with many labels for one Gaussian sum, got one class per row. Take GNMax."
            )
        said = label_probabilities(member.model, self.X)
        return self.space(steps).on_grid(np.where(member.knows, said, 0.0)).astype(np.int64)


def ask_sum(
    members: Sequence[Member],
    pool: ScoredPool,
    *,
    mechanism: GaussianSum,
    ledgers: Mapping[str, MemoryLedger],
    noise: Noise,
    key: str,
) -> Release:
    """Return the noisy sum of all members' scores, once for everybody who asks: charged first, then drawn.

    Guarantee: what is written in a member's ledger, the price of the sum for one ballot replaced by another,
               covers its records against everybody who sees the release or any model made of it.
    Assumes:   members' rows are disjoint, and so are people; the pool is public and fixed before.
    Reference: `GaussianSum`; `Scores` for what one ballot moves.
    """
    price = mechanism.batch_price(Unit(), len(pool.X))
    for member in members:  # one that cannot pay must not leave the others charged for nothing
        ledgers[member.name].accountant.require(ledgers[member.name].spent, price, key=key)
    event = {**describe(mechanism, noise), "answering": [member.name for member in members]}
    for member in members:
        ledgers[member.name].reserve(key, price, event=event)
    sums = np.sum([pool.ballot(member, mechanism.steps) for member in members], axis=0)
    votes = Votes.from_totals(sums, pool.space(mechanism.steps), n_teachers=len(members))
    return mechanism.release(votes, noise)


@dataclass(frozen=True, eq=False)
class SumLearner:
    """An asker after a sum: log-odds of its own model, and of what the others say as its own rows read it.

    The sum is turned into a student of the pool, and each label's score into odds by a logistic regression of
    one number on the asker's own rows. A label of which those know one answer alone is ranked by its score.
    """

    own: Any
    student: SumStudent
    pool: ScoredPool
    size: Floats
    slopes: Floats
    offsets: Floats
    weight: float

    def predict_proba(self, X: NDArray[Any]) -> Floats:
        """Return the probability of every label, rows x labels."""
        read = self.slopes * self.student.decision_function(self.pool.scaled(X)) / self.size + self.offsets
        own = _log_odds(label_probabilities(self.own, X))
        return np.asarray(1 / (1 + np.exp(-(1 - self.weight) * own - self.weight * read)))

    def predict(self, X: NDArray[Any]) -> Integers:
        """Return 1 for every label whose probability is above one half, rows x labels."""
        return (self.predict_proba(X) > 0.5).astype(np.int64)


def learn_from_sum(
    asker: Member, release: Release, pool: ScoredPool, *, weight: float = 0.8, class_weight: Any = None
) -> SumLearner:
    """Return an asker's new model: its own, and a student of the sum of everybody else.

    The asker's own ballot was in the sum like everybody's; it is taken off first, so that its own rows, which
    read the others' scores, are new to them. `class_weight` is that of the asker's own models, if any.

    Guarantee: costs the others nothing beyond the release (post-processing).
    Assumes:   the asker's ballot is the one that was summed, if it was among those who answered.
    Reference: Platt 1999 (odds of scores); "Gaussian sums", section "Students".
    """
    from sklearn.linear_model import LogisticRegression

    student = fit_sum(pool.scaled(pool.X), release)
    scores = student.decision_function(pool.scaled(pool.X))
    size = np.maximum(scores.std(axis=0), 1e-12)
    read = student.decision_function(pool.scaled(asker.X)) / size
    slopes, offsets = np.ones(pool.n_columns), -scores.mean(axis=0) / size
    for label, (score, told) in enumerate(zip(read.T, asker.y.T, strict=True)):
        known = told != SILENT
        if np.unique(told[known]).size == 2:
            odds = LogisticRegression(class_weight=class_weight).fit(score[known, None], told[known])
            slopes[label], offsets[label] = odds.coef_[0, 0], odds.intercept_[0]
        elif known.any():
            offsets[label] += float(_log_odds(told[known][0]))
    return SumLearner(asker.model, student, pool, size, slopes, offsets, weight)


def without(release: Release, ballot: Integers, pool: ScoredPool) -> Release:
    """Return a release as if one ballot had not been in the sum: whoever cast it takes it off by itself."""
    assert release.values is not None
    own = np.rint(pool.directions @ ballot).astype(np.int64)
    return replace(release, values=release.values - own)


def _log_odds(chances: Any) -> Floats:
    inside = np.clip(np.asarray(chances, dtype=np.float64), _CLIP, 1 - _CLIP)
    return np.log(inside / (1 - inside))
