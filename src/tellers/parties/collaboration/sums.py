"""Learning from one Gaussian sum: every member scores the whole public pool once, for all who ask."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ...accounting.sum_plan import plan_sum
from ...data.label_models import label_probabilities
from ...data.metrics import auc
from ...errors import require_count, require_fraction
from ...ledger.memory import MemoryLedger
from ...mechanisms.gaussian_sum import GaussianSum
from ...privacy.budget import Accountant, Budget
from ...privacy.directions import public_directions
from ...privacy.noise import Noise
from ...privacy.release import SILENT, Cost, NoiseLevel, Release, describe
from ...privacy.votes import Scores, Unit, Votes
from ...students.sums import SumStudent, fit_sum
from .._ring import Integers
from .members import Member, fit_member

# One release serves everybody: all members are in the sum, also those that ask, and an asker takes its own
# ballot off by itself. So the budget buys one sum, not one for each asker, and how many ask does not matter.
# A sum for each asker would have to share mu^2: noise sqrt(n) times as large for n askers.

Floats = NDArray[np.float64]
_CLIP = 1e-3
_WEIGHTS = (0.8, 0.9, 0.65, 0.5, 0.25, 0.0)  # the first of equals is taken


@dataclass(frozen=True, kw_only=True)
class PoolSum:
    """Ask by one Gaussian sum with the least noise that the budget affords, as the `mechanism` of `Terms`.

    Scores are brought onto the `n_directions` in which the pool differs most. `weight` is that of the others'
    answer in the log-odds of an asker's new model, beside its own; left out, each asker's own rows choose it.

    >>> PoolSum().planned(Budget(10.0, 1e-5)).mu() < 2 < PoolSum().planned(Budget(20.0, 1e-5)).mu()
    True
    """

    n_directions: int = 50
    weight: float | None = None
    of_scores: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count(n_directions=self.n_directions)
        if self.weight is not None:
            require_fraction(weight=self.weight)

    def planned(self, budget: Budget) -> GaussianSum:
        """Return the sum with the least noise that a budget affords."""
        return plan_sum(Accountant(budget), prior_share=0).scores


@dataclass(frozen=True, eq=False)
class ScoredPool:
    """A public pool, and what is fixed by it before anybody answers: its scale and its directions."""

    X: NDArray[Any]
    n_columns: int
    middle: Floats
    size: Floats
    directions: Floats

    @classmethod
    def of(cls, X: NDArray[Any], n_columns: int, n_directions: int = 50) -> "ScoredPool":
        """Return a pool with the scale of its rows, and at most so many directions in which they differ."""
        rows = np.asarray(X, dtype=np.float64)
        middle, size = rows.mean(axis=0), rows.std(axis=0)
        size = np.where(size > 0, size, 1.0)
        return cls(rows, n_columns, middle, size, public_directions((rows - middle) / size, n_directions))

    def scaled(self, X: NDArray[Any]) -> Floats:
        """Return rows as the directions see them, scaled by the pool."""
        return np.asarray((X - self.middle) / self.size, dtype=np.float64)

    def space(self, steps: int) -> Scores:
        """Return the space of a member's answer: a matrix for the whole pool, of norm `steps` at most."""
        # The bound: what rounding leaves of scores that are all the same is nothing, and not a whole norm.
        return Scores(self.n_columns, steps, bound=1e-6, directions=self.directions)

    def answer(self, model: Any, knows: NDArray[np.bool_], steps: int) -> Integers:
        """Return a model's answer, directions x labels in steps: its probabilities, bounded; private.

        A label that its party does not know has zeros.

        Guarantee: the squares sum to at most steps^2, in whole numbers, whatever the model says.
        Assumes:   nothing.
        Reference: `Scores.on_grid`.
        """
        said = label_probabilities(model, self.X)
        return self.space(steps).on_grid(np.where(knows, said, 0.0)).astype(np.int64)

    def ballot(self, member: Member, steps: int) -> Integers:
        """Return a member's answer; private."""
        if member.y.ndim != 2:
            raise TypeError(
                "Expected rows with many labels for one Gaussian sum, got one class per row. Take GNMax."
            )
        return self.answer(member.model, member.knows, steps)

    def release(self, noisy: Integers, mechanism: GaussianSum, n_teachers: int) -> Release:
        """Return the release of noisy sums on the directions, with values for every row of the pool."""
        values = np.rint(self.directions @ noisy).astype(np.int64)
        level = NoiseLevel(mechanism.sigma * mechanism.steps, mechanism.steps, n_teachers, noisy.shape[0])
        price = Cost(mechanism.batch_price(Unit(), len(self.X)))
        return Release((values > 0).astype(np.int64), price, values=values, noise_level=level)


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
    """An asker after a sum: log-odds of its own model, and of what the others say as its own rows read it."""

    own: Any
    student: SumStudent
    pool: ScoredPool
    slopes: Floats
    offsets: Floats
    weight: float

    def predict_proba(self, X: NDArray[Any]) -> Floats:
        """Return the probability of every label, rows x labels."""
        read = self.slopes * self.student.decision_function(self.pool.scaled(X)) + self.offsets
        own = log_odds(label_probabilities(self.own, X))
        return np.asarray(1 / (1 + np.exp(-(1 - self.weight) * own - self.weight * read)))

    def predict(self, X: NDArray[Any]) -> Integers:
        """Return 1 for every label whose probability is above one half, rows x labels."""
        return (self.predict_proba(X) > 0.5).astype(np.int64)


def learn_from_sum(
    asker: Member,
    release: Release,
    pool: ScoredPool,
    *,
    estimator: Any,
    weight: float | None = None,
    seed: int = 0,
) -> SumLearner:
    """Return an asker's new model: its own, and beside it a student of the sum of everybody else.

    The asker's own ballot must be off the sum (`without`), so that its own rows, by which it reads the
    others' scores, are new to them. Each label's score becomes odds by a logistic regression of one number on
    these rows; a label of which they know one answer alone is ranked by its score. The `weight` of the others
    is what ranks these rows best, beside what models of the other rows say of them.

    Guarantee: costs the others nothing beyond the release (post-processing).
    Assumes:   `estimator` is what the asker's own model was fitted with.
    Reference: Platt 1999 (odds of scores); Wolpert 1992 (held-out rows choose); "Gaussian sums", "Students".
    """
    student = fit_sum(pool.scaled(pool.X), release)
    at_pool = student.decision_function(pool.scaled(pool.X))
    size = np.maximum(at_pool.std(axis=0), 1e-12)
    scores = student.decision_function(pool.scaled(asker.X)) / size
    slopes, offsets = read_odds(scores, asker.y, estimator, middle=at_pool.mean(axis=0) / size)
    if weight is None:
        own = held_out_odds(asker.X, asker.y, lambda X, y: fit_member(estimator, X, y, seed=seed))
        read = slopes * scores + offsets
        ranked = [_ranked(asker.y, (1 - one) * own + one * read) for one in _WEIGHTS]
        weight = _WEIGHTS[int(np.argmax(ranked))]
    return SumLearner(asker.model, student, pool, slopes / size, offsets, weight)


def read_odds(
    scores: Floats, y: Integers, estimator: Any, *, middle: Floats | float = 0.0
) -> tuple[Floats, Floats]:
    """Return slopes and offsets that turn scores into log-odds, label by label, balanced as an estimator is.

    A label of which they know one answer has a slope of one about the middle, and the odds of that answer.
    """
    from sklearn.linear_model import LogisticRegression

    slopes, offsets = np.ones(y.shape[1]), np.zeros(y.shape[1]) - middle
    model = LogisticRegression(class_weight=getattr(estimator, "class_weight", None))
    for label, (score, told) in enumerate(zip(scores.T, y.T, strict=True)):
        known = told != SILENT
        if np.unique(told[known]).size == 2:
            odds = model.fit(score[known, None], told[known])
            # Whoever learned says that a score speaks for its label, whatever few rows find.
            slopes[label], offsets[label] = max(odds.coef_[0, 0], 0.0), odds.intercept_[0]
        elif known.any():
            offsets[label] += float(log_odds(told[known][0]))
    return slopes, offsets


def held_out_odds(X: NDArray[Any], y: Integers, fit: Callable[[NDArray[Any], Integers], Any]) -> Floats:
    """Return the log-odds of every label for each row, by a model of the rows outside its fifth."""
    odds, fold = np.zeros(y.shape), np.random.default_rng(0).permutation(len(X)) % 5
    for one in np.unique(fold) if len(X) > 1 else ():
        inside = fold == one
        odds[inside] = log_odds(label_probabilities(fit(X[~inside], y[~inside]), X[inside]))
    return odds


def _ranked(y: Integers, odds: Floats) -> float:
    """Return how well odds rank rows, as the mean AUC of labels with both answers; one half of none."""
    known = y != SILENT
    each = [auc(y[on, None, at], odds[on, None, at])[0] for at, on in enumerate(known.T) if on.any()]
    met = [one for one in each if not np.isnan(one)]
    return float(np.mean(met)) if met else 0.5


def without(release: Release, ballot: Integers, pool: ScoredPool) -> Release:
    """Return a release as if one ballot had not been in the sum: whoever cast it takes it off by itself."""
    assert release.values is not None
    own = np.rint(pool.directions @ ballot).astype(np.int64)
    return replace(release, values=release.values - own)


def log_odds(chances: Any) -> Floats:
    """Return the logarithm of the odds of probabilities, kept from 0 and 1."""
    inside = np.clip(np.asarray(chances, dtype=np.float64), _CLIP, 1 - _CLIP)
    return np.log(inside / (1 - inside))
