"""Students of a Gaussian sum: noisy scores of the whole pool, shrunk by what is known of their noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_positive
from ..privacy._rows import numeric_rows
from ..privacy.directions import public_directions
from ..privacy.release import Release
from .fitting import Seed, fresh

Floats = NDArray[np.float64]
_LEAST_SHARE = 0.02
_ROUNDS = 50
_LOWEST, _HIGHEST = 0.002, 0.98


def shrunk_scores(X: ArrayLike, release: Release, *, n_directions: int | None = None) -> Floats:
    """Return the released scores of the pool, queries x columns, with most of the noise taken out.

    The values are brought onto public directions of the pool, those of the release or as many as are given,
    where noise is the same everywhere and the signal is not. Every entry is then multiplied by
    v / (v + sigma^2), with sigma^2 the known variance and v what the squares are above it, as a product of
    direction, falling from the first to the last, and column (Wiener shrinkage).

    Scores are means over teachers, in norms of a ballot: their sizes count beside each other alone.

    Guarantee: costs nothing beyond the release (post-processing).
    Assumes:   X is the public pool that was asked, in its order.
    Reference: Wiener 1949; Dwork and Roth 2014, Proposition 2.1.

    >>> from tellers import Cost, RdpCurve
    >>> from tellers.privacy import NoiseLevel
    >>> rng = np.random.default_rng(7)
    >>> X = rng.normal(size=(300, 8))
    >>> signal = 20_000 * X[:, :1]
    >>> noisy = (signal + rng.normal(size=(300, 1)) * 40_000).astype(np.int64)
    >>> release = Release(
    ...     (noisy > 0) * 1, Cost(RdpCurve.zero()), values=noisy, noise_level=NoiseLevel(40_000.0, 1024, 100)
    ... )
    >>> score = shrunk_scores(X, release, n_directions=8)
    >>> before, after = (np.corrcoef(one.ravel(), X[:, 0])[0, 1] for one in (noisy, score))
    >>> bool(before < 0.6 and after > 0.9)
    True
    """
    values, level = release.values, release.noise_level
    if values is None or level is None:
        raise ValueError(
            "Expected a release with values and their noise_level, as GaussianSum gives it, got none. "
            "Answers are learned from by fit_supervised."
        )
    rows = numeric_rows(X)
    if len(rows) != len(values):
        raise ValueError(f"Expected the pool that was asked, {len(values)} rows, got {len(rows)}.")
    if n_directions is not None:
        require_count(n_directions=n_directions)
    wanted = [one for one in (n_directions, level.n_directions) if one is not None]
    flat = rows.reshape(len(rows), -1)
    if wanted:
        directions = public_directions(flat, min(wanted))
        noisy = directions.T @ values
    else:
        directions, noisy = None, np.asarray(values, dtype=np.float64)
    shrunk = _wiener(noisy, level.sigma) / (level.steps * level.n_teachers)
    return np.asarray(shrunk if directions is None else directions @ shrunk)


def _wiener(noisy: Floats, sigma: float) -> Floats:
    above = noisy**2 - sigma**2
    n, k = above.shape
    # Where rows of the pool differ little, scores do not differ much: signal falls along the directions.
    by_row = np.maximum(_falling(above.sum(axis=1)), 0.0)
    if by_row[0] == 0:
        # Nothing is seen above the noise. What there may be is most in the first directions.
        by_row = sigma**2 / (10.0 + np.arange(n))
    by_column = np.maximum(above.sum(axis=0), _LEAST_SHARE * max(float(above.sum()), sigma**2) / k)
    signal = by_row[:, None] * by_column[None] / by_column.sum()
    return np.asarray(noisy * signal / (signal + sigma**2))


def _falling(values: Floats) -> Floats:
    """Return the falling sequence nearest to some values, by pooling neighbours that rise."""
    sums: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        sums.append(value)
        sizes.append(1)
        while len(sums) > 1 and sums[-2] * sizes[-1] < sums[-1] * sizes[-2]:
            value, size = sums.pop(), sizes.pop()
            sums[-1] += value
            sizes[-1] += size
    means = np.array(sums) / np.array(sizes)
    return np.asarray(np.repeat(means, sizes))


def released_frequencies(release: Release, *, bound: float = 1.0, shrink: bool = False) -> Floats:
    """Return how often each class or label is true, from a release of label frequencies.

    `bound` is that of the `Scores` that were asked. Shares below 0.2 % or above 98 % are brought there: the
    noise is seldom less. With `shrink` they are drawn towards their mean, of classes 1 / k, as far as the
    known noise says that they differ by chance.

    >>> from tellers import Cost, RdpCurve
    >>> from tellers.privacy import NoiseLevel
    >>> level = NoiseLevel(5000.0, 1000, 100)
    >>> values = np.array([[60_000, -2000]])
    >>> release = Release(values > 0, Cost(RdpCurve.zero()), values=values, noise_level=level)
    >>> released_frequencies(release), released_frequencies(release, shrink=True).round(3)
    (array([0.6  , 0.002]), array([0.592, 0.002]))
    """
    if release.values is None or release.noise_level is None or len(release.values) != 1:
        raise ValueError("Expected a release of one row of frequencies, as LabelFrequencies gives it.")
    level = release.noise_level
    unit = bound / (level.steps * level.n_teachers)
    mean = release.values[0] * unit
    if shrink:
        middle = 1 / len(mean) if release.labels.ndim == 1 else float(mean.mean())
        noise, above = (level.sigma * unit) ** 2, mean - middle
        signal = max(float((above**2).mean()) - noise, 0.0)
        mean = middle + above * signal / (signal + noise)
    return np.asarray(np.clip(mean, _LOWEST, _HIGHEST))


@dataclass(frozen=True, eq=False)
class SumStudent:
    """A student of scores: it ranks rows for every column, and answers by the leader or by cuts.

    `cuts` are one score per column: of labels yes where a row is above it, of classes the one furthest above.
    """

    model: Any
    one_class: bool
    cuts: Floats

    def decision_function(self, X: ArrayLike) -> Floats:
        """Return a score for every row and column; larger speaks for it."""
        said = np.asarray(self.model.predict(numeric_rows(X)), dtype=np.float64)
        return said.reshape(len(said), -1) - self.cuts

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return a class for every row, or 0 and 1 for every label."""
        said = self.decision_function(X)
        return said.argmax(axis=1) if self.one_class else (said > 0).astype(np.int64)


def fit_sum(
    X: ArrayLike,
    release: Release,
    *,
    estimator: Any = None,
    frequencies: Sequence[float] | Floats | None = None,
    column_weights: Sequence[float] | Floats | None = None,
    n_directions: int | None = None,
    ridge: float = 0.03,
    seed: Seed | None = None,
) -> SumStudent:
    """Return a student that learned from the scores of a Gaussian sum, shrunk by what is known of the noise.

    Parameters
    ----------
    X : the public pool that was asked.
    release : what came out.
    estimator : any regressor that takes several columns; ridge regression if left out.
    frequencies : how often each class or label is true, bought or declared: in so many rows of the pool a
        class leads, or a label is said yes.
    column_weights : those of the `Scores` that were asked, divided out again.
    n_directions : at most so many directions of the pool are used.
    ridge : penalty of the ridge regression, as a share of the largest squared singular value of the pool.
    seed : fills in every `random_state` that the estimator left open.

    Guarantee: costs nothing beyond the release (post-processing).
    Assumes:   X, frequencies and weights are public or were released.
    Reference: "Gaussian sums", section "Students".

    >>> from tellers import Cost, RdpCurve
    >>> from tellers.privacy import NoiseLevel
    >>> rng = np.random.default_rng(7)
    >>> X = rng.normal(size=(300, 8))
    >>> values = (20_000 * X[:, :2] + rng.normal(size=(300, 2)) * 20_000).astype(np.int64)
    >>> release = Release(
    ...     (values > 0) * 1, Cost(RdpCurve.zero()), values=values, noise_level=NoiseLevel(2e4, 1024, 100)
    ... )
    >>> student = fit_sum(X, release, frequencies=[0.5, 0.16])
    >>> said = student.predict(X)
    >>> said.mean(axis=0), bool((said[:, 0] == (X[:, 0] > 0)).mean() > 0.85)
    (array([0.5 , 0.16]), True)
    """
    require_positive(ridge=ridge)
    rows = numeric_rows(X)
    targets = shrunk_scores(rows, release, n_directions=n_directions)
    if column_weights is not None:
        targets = targets / _one_per_column(column_weights, targets.shape[1], "column_weights")
    # In one scale for all: penalties of any estimator then mean the same whatever the noise.
    size = float(np.sqrt((targets**2).mean()))
    targets = targets / size if size > 0 else targets
    if estimator is None:
        from sklearn.linear_model import Ridge

        flat = rows.reshape(len(rows), -1)
        largest = float(np.linalg.norm(flat - flat.mean(axis=0), ord=2))
        estimator = Ridge(alpha=max(ridge * largest**2, 1e-12))
    model = fresh(estimator, seed=seed)
    model.fit(rows, targets)
    one_class = release.labels.ndim == 1
    cuts = np.zeros(targets.shape[1])
    if frequencies is not None:
        shares = np.clip(_one_per_column(frequencies, targets.shape[1], "frequencies"), 0, 1)
        said = np.asarray(model.predict(rows)).reshape(targets.shape)
        cuts = _cuts_of_classes(said, shares) if one_class else _cuts(said, shares)
    return SumStudent(model, one_class, cuts)


def _cuts(said: Floats, shares: Floats) -> Floats:
    """Return a cut for each label, between two rows of the pool: as many are above as the share says."""
    return np.array([np.quantile(one, 1 - share) for one, share in zip(said.T, shares, strict=True)])


def _cuts_of_classes(said: Floats, shares: Floats) -> Floats:
    """Return what is taken off each class, so that each leads in about as many rows as its share says.

    One class after another is moved to where its share is right, given the others, until all are.
    """
    shares, cuts = shares / shares.sum(), np.zeros(said.shape[1])
    for _ in range(_ROUNDS):
        before = cuts.copy()
        for at, share in enumerate(shares):
            others = np.delete(said - cuts, at, axis=1).max(axis=1)
            cuts[at] = np.quantile(said[:, at] - others, 1 - share)
        if np.abs(cuts - before).max() < 1e-6:
            break
    return np.asarray(cuts - cuts.mean())


def _one_per_column(given: Any, k: int, name: str) -> Floats:
    table = np.asarray(given, dtype=np.float64)
    if table.shape != (k,) or not np.isfinite(table).all():
        raise ValueError(f"Expected {name} of {k} finite numbers, got shape {table.shape} or others.")
    return table
