"""Who wins a noisy vote, and with what probability, here and after every single change of a ballot.

Class j wins with P_j = sum over x of p(x - n_j) prod_{l != j} F(x - n_l). When a vote of weight w moves
from a to b only two factors change, so with r-(x) = F(x - n_a + w) / F(x - n_a) and r+(x) = F(x - n_b - w)
/ F(x - n_b) all neighbours of a query come out of one contraction of the base integrand with r- and r+;
for the winners a and b themselves the density moves instead.

Classes with equal counts are exchangeable, because ties are broken at random. They form a group with
a multiplicity, and the work depends on the number of distinct counts, not on the number of classes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..privacy.votes import Unit
from ._laws import ContinuousGaussian, DiscreteGaussian, Floats, NoiseLaw

_ONE_BALLOT = Unit()
# Ratios of distribution functions up to e^200 are multiplied in linear space; beyond that, logs.
_LINEAR_RANGE = 200.0
# Cells of the largest array worked on at once: long grids come a few queries at a time.
_CELLS = 1_500_000
# Where some class wins less often than this, sums in linear space may have lost it: take logs.
_LINEAR_FLOOR = 1e-200


@dataclass(frozen=True, eq=False)
class ClassGroups:
    """The classes of each query, gathered by equal counts (and equal thresholds, where they differ).

    `value`, `offset` and `size` are (queries, groups); a size of 0 is padding. `of_class` is
    (queries, classes) and says which group a class is in; `step` is how many votes move at once.
    """

    value: Floats
    offset: Floats
    size: NDArray[np.int64]
    of_class: NDArray[np.int64]
    step: int = 1

    def __getitem__(self, rows: slice) -> "ClassGroups":
        return ClassGroups(
            self.value[rows], self.offset[rows], self.size[rows], self.of_class[rows], self.step
        )

    @property
    def moves(self) -> NDArray[np.bool_]:
        """Return which moves exist, (queries, from, to): somebody voted there, and another class is there."""
        somebody = (self.size > 0) & (self.value >= self.step)
        # Inside one group a vote can move only to another class of that group.
        other = (self.size[:, None, :] - np.eye(self.size.shape[1], dtype=np.int64)) > 0
        return np.asarray(somebody[:, :, None] & other)

    @property
    def remaining(self) -> NDArray[np.int64]:
        """Return group sizes without the two classes a vote moves between, (queries, from, to, groups)."""
        one = np.eye(self.size.shape[1], dtype=np.int64)
        left: NDArray[np.int64] = self.size[:, None, None, :] - one[:, None, :] - one[None, :, :]
        return np.maximum(left, 0)


def group_classes(
    counts: NDArray[np.int64], offsets: NDArray[np.int64] | None = None, *, unit: Unit = _ONE_BALLOT
) -> ClassGroups:
    """Gather the classes of each query by (count, offset), largest count first.

    `unit` says by how much the ballot moves that is to be followed.
    """
    if not unit.is_one_ballot:
        raise ValueError(f"Expected a unit behind one ballot of whole weight, got {unit}.")
    n_queries, n_classes = counts.shape
    extra = np.zeros_like(counts) if offsets is None else np.broadcast_to(offsets, counts.shape)
    order = np.lexsort((extra, -counts), axis=1)
    sorted_counts = np.take_along_axis(counts, order, axis=1)
    sorted_extra = np.take_along_axis(extra, order, axis=1)
    new = np.ones((n_queries, n_classes), dtype=bool)
    new[:, 1:] = (np.diff(sorted_counts, axis=1) != 0) | (np.diff(sorted_extra, axis=1) != 0)
    index = np.cumsum(new, axis=1) - 1
    n_groups = int(index[:, -1].max()) + 1
    rows = np.repeat(np.arange(n_queries), n_classes)
    size = np.zeros((n_queries, n_groups), dtype=np.int64)
    np.add.at(size, (rows, index.ravel()), 1)
    # Padding repeats the top count: it has size 0 and only has to be a harmless number.
    value = np.repeat(sorted_counts[:, :1], n_groups, axis=1).astype(np.float64)
    offset = np.repeat(sorted_extra[:, :1], n_groups, axis=1).astype(np.float64)
    value[rows, index.ravel()] = sorted_counts.ravel()
    offset[rows, index.ravel()] = sorted_extra.ravel()
    of_class = np.empty((n_queries, n_classes), dtype=np.int64)
    np.put_along_axis(of_class, order, index, axis=1)
    return ClassGroups(value, offset, size, of_class, int(unit.linf))


@dataclass(frozen=True, eq=False)
class Wins:
    """Log-probabilities of winning, for one class of each group.

    `base` (queries, groups) at the votes; after a move from a to b, `other` (queries, a, b, groups)
    for a class that was not touched, `source` and `target` (queries, a, b) for a and b themselves.
    """

    base: Floats
    other: Floats
    source: Floats
    target: Floats


def win_probabilities(groups: ClassGroups, law: NoiseLaw) -> Wins:
    """Return who wins how often, at the votes and after every move of one vote.

    Guarantee: relative accuracy 1e-6 or better before normalising, also for outcomes of probability 1e-300;
               the error is common to both sides of a move, and costs are accurate to about 1e-9.
    Assumes:   independent noise of the given law on every count.
    Reference: Papernot et al. 2018, Proposition 7, evaluated instead of bounded.
    """
    n_classes = groups.of_class.shape[1]
    n_queries, n_groups = groups.size.shape
    step = groups.step
    grid = law.grid(groups.value.min() - step, groups.value.max() + step, n_classes=n_classes)
    room = max(1, _CELLS // (grid.x.size * max(n_groups**2, 8)))
    if n_queries > room:
        parts = [win_probabilities(groups[i : i + room], law) for i in range(0, n_queries, room)]
        return Wins(*(np.concatenate(part) for part in zip(*(vars(p).values() for p in parts), strict=True)))
    value, inverse = np.unique(groups.value, return_inverse=True)
    inverse = inverse.reshape(groups.value.shape)

    def shifted(by: float) -> tuple[Floats, Floats]:
        x = grid.x[None, :] - (value[:, None] + by)
        return law.log_density(x), law.log_cdf(x, grid.u[None, :])

    density, cdf = shifted(0)
    density_less, cdf_less = shifted(-step)
    density_more, cdf_more = shifted(step)
    log_less, log_more = cdf_less - cdf, cdf_more - cdf

    everyone = np.einsum("qk,qkx->qx", groups.size.astype(np.float64), cdf[inverse]) + grid.log_weight
    integrand = density[inverse] + everyone[:, None, :] - cdf[inverse]
    scale = integrand.max(axis=2)
    linear = np.exp(integrand - scale[:, :, None])
    base = np.log(linear.sum(axis=2)) + scale

    ratios = (log_less, log_more, density_less - density, density_more - density)
    if max(float(np.abs(r).max()) for r in ratios) > _LINEAR_RANGE:
        return _moved_in_logs(integrand, base, [r[inverse] for r in ratios])

    less, more, lose, gain = (np.exp(r)[inverse] for r in ratios)
    n_points = grid.x.size
    touched = (linear[:, :, None, :] * less[:, None, :, :]).reshape(n_queries, n_groups**2, n_points)
    to_more = np.ascontiguousarray(more.transpose(0, 2, 1))
    with np.errstate(divide="ignore"):
        other = np.log(touched @ to_more).reshape((n_queries,) + (n_groups,) * 3) + scale[:, :, None, None]
        source = np.log((linear * lose) @ to_more) + scale[:, :, None]
        target = np.log((linear * gain) @ less.transpose(0, 2, 1)) + scale[:, :, None]
    return Wins(base, other.transpose(0, 2, 3, 1), source, target.transpose(0, 2, 1))


def log_wins(counts: NDArray[np.int64], law: NoiseLaw) -> Floats:
    """Return the log-probability that each class wins, (tallies, classes): many tallies, no moves.

    Guarantee: as `win_probabilities`, with every row divided by its total. Tallies compared with each other
               belong into one call, where they share a grid and so their errors.
    Assumes:   independent noise of the given law on every count.
    Reference: as `win_probabilities`.
    """
    summed = _Sums.over(counts, law)
    result = np.empty(counts.shape)
    room = max(1, _CELLS // (4 * summed.log_weight.size))
    for first in range(0, len(counts), room):
        part = summed.place[first : first + room]
        together = summed.together(part)
        shares = np.exp(together)
        wins = np.empty(part.shape)
        for j in range(counts.shape[1]):
            wins[:, j] = np.einsum("bx,bx->b", summed.hazard[part[:, j]], shares)
        with np.errstate(divide="ignore"):
            logs = np.log(wins)
        faint = wins.min(axis=1) < _LINEAR_FLOOR
        if faint.any():
            logs[faint] = _log_sum(summed.log_hazard[part[faint]] + together[faint, None, :])
        result[first : first + room] = logs - _log_sum(logs)[:, None]
    return result


def log_win_slopes(
    counts: NDArray[np.int64], law: DiscreteGaussian | ContinuousGaussian
) -> tuple[Floats, Floats]:
    """Return `log_wins` and how fast each of them moves with every count, (tallies, winners, classes).

    The slope of log P_j in n_l is minus the mean, over where j wins, of F' / F of class l; the slopes of one
    winner add up to 0, since a vote more for everybody changes nothing. Whole counts stand on a smooth curve
    for Gaussian noise, and it is the slope of that curve.
    """
    summed = _Sums.over(counts, law)
    steep = np.exp(law.log_slope(summed.x, summed.u) - summed.log_cdf)
    n_tallies, n_classes = counts.shape
    logs, slopes = np.empty(counts.shape), np.empty((n_tallies, n_classes, n_classes))
    own = np.arange(n_classes)
    room = max(1, _CELLS // (2 * n_classes * summed.log_weight.size))
    for first in range(0, n_tallies, room):
        part = summed.place[first : first + room]
        integrand = summed.log_hazard[part] + summed.together(part)[:, None, :]
        total = _log_sum(integrand)
        slope = -np.exp(integrand - total[..., None]) @ steep[part].transpose(0, 2, 1)
        slope[:, own, own] = 0.0
        slope[:, own, own] = -slope.sum(axis=2)
        logs[first : first + room] = total - _log_sum(total)[:, None]
        slopes[first : first + room] = slope
    return logs, slopes


@dataclass(frozen=True, eq=False)
class _Sums:
    """What the sums over noisy counts are made of, per distinct count and grid point.

    P_j = sum over x of (p_j / F_j) times the product of all F: the product is one per tally, and the
    hazard p / F one per count, so that a tally needs one exponential per point and not one per class.
    """

    place: NDArray[np.int64]
    log_cdf: Floats
    log_hazard: Floats
    hazard: Floats
    x: Floats
    u: Floats
    log_weight: Floats

    @classmethod
    def over(cls, counts: NDArray[np.int64], law: NoiseLaw) -> "_Sums":
        low, high = int(counts.min()), int(counts.max())
        grid = law.grid(low, high, n_classes=counts.shape[1])
        value, place = np.unique(counts, return_inverse=True)
        x, u = grid.x[None, :] - value[:, None].astype(np.float64), grid.u[None, :]
        log_cdf = law.log_cdf(x, u)
        log_hazard = law.log_density(x) - log_cdf
        place = place.reshape(counts.shape)
        return cls(place, log_cdf, log_hazard, np.exp(log_hazard), x, u, grid.log_weight)

    def together(self, place: NDArray[np.int64]) -> Floats:
        """Return the log of the product of all F, with the weight of each point, (tallies, points)."""
        total: Floats = self.log_cdf[place[:, 0]] + self.log_weight
        for j in range(1, place.shape[1]):
            total += self.log_cdf[place[:, j]]
        return total


def _moved_in_logs(integrand: Floats, base: Floats, ratios: list[Floats]) -> Wins:
    """The same sums without ever leaving logs: for tiny noise, where ratios overflow."""
    less, more, lose, gain = ratios
    n_queries, n_groups, _ = integrand.shape
    other = np.empty((n_queries, n_groups, n_groups, n_groups))
    source = np.empty((n_queries, n_groups, n_groups))
    target = np.empty((n_queries, n_groups, n_groups))
    for a in range(n_groups):
        for b in range(n_groups):
            change = (less[:, a] + more[:, b])[:, None, :]
            other[:, a, b, :] = _log_sum(integrand + change)
            source[:, a, b] = _log_sum(integrand[:, a] + lose[:, a] + more[:, b])
            target[:, a, b] = _log_sum(integrand[:, b] + gain[:, b] + less[:, a])
    return Wins(base, other, source, target)


def _log_sum(values: Floats) -> Floats:
    top = values.max(axis=-1)
    return np.asarray(np.log(np.exp(values - top[..., None]).sum(axis=-1)) + top)
