"""The floor: the exact adaptive value of an arg max, over a lattice of leads and thresholds.

With z the likelihood ratio of all that came out so far, v_0(z) = (1 - z)_+ and v_n(z) = max over pairs of
sum_o P(o) v_{n-1}(z Q(o)/P(o)). Then v_n(e^epsilon) is the largest delta of all attacks that ask n questions
one after the other. The pairs: the leader by d votes loses one to the second, and whatever the other classes
have is known, a threshold r that both have to pass. Values lie on chords between grid points, a little high;
pairs lie on a lattice, a little low.
"""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Pairs = tuple[np.ndarray, np.ndarray]


def gaussian(sigma: float, reach: int) -> np.ndarray:
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x**2) / (2 * sigma**2))
    return p / p.sum()


def laplace(gamma: float, reach: int) -> np.ndarray:
    p = np.exp(-gamma * np.abs(np.arange(-reach, reach + 1)))
    return p / p.sum()


def races(law: np.ndarray, leads: np.ndarray, thresholds: np.ndarray) -> Pairs:
    """Return the pairs: probabilities and log ratios, (pairs, 3 outcomes), both orders.

    Outcomes: the first wins, the second wins, neither passes the threshold. One vote moves between them.
    """
    reach = law.size // 2
    below = np.concatenate([[0.0], np.cumsum(law)])

    def outcomes(first: int, second: int) -> np.ndarray:
        # x runs over what a noisy count may be; ties go to either with a half.
        x = np.arange(-reach + max(first, second, 0), reach + min(first, second, 0) + 1)
        a, b = law[x - first + reach], law[x - second + reach]
        a_under, b_under = below[x - first + reach], below[x - second + reach]
        wins = np.stack([a * (b_under + b / 2), b * (a_under + a / 2)])
        over = np.cumsum(wins[:, ::-1], axis=1)[:, ::-1]
        at = np.clip(thresholds - x[0], 0, x.size - 1)
        neither = a_under[at] * b_under[at]
        found = np.concatenate([over[:, at], neither[None]])
        return found / found.sum(axis=0)

    here, there = [], []
    for lead in leads.tolist():
        one, other = outcomes(0, -lead), outcomes(-1, -lead + 1)
        here += [one.T, other.T]
        there += [other.T, one.T]
    return with_ratios(np.concatenate(here), np.concatenate(there))


def checked(n: int, threshold: float, check: float, sigma: float, n_classes: int) -> Pairs:
    """Return the pairs of a check and its answer: silent, the first, the second, any other class.

    All of n vote for two classes; one vote moves from the first to the second or to a class without votes.
    """
    law, z = gaussian(sigma, int(12 * sigma)), gaussian(check, int(12 * check))
    reach = law.size // 2
    x = np.arange(-1 - reach, n + 1 + reach + 1)

    def at(count: int) -> tuple[np.ndarray, np.ndarray]:
        p = np.zeros(x.size)
        p[count - reach - x[0] : count + reach + 1 - x[0]] = law
        # Half a tie goes to either; ties of three are left alone.
        return p, np.cumsum(p) - p / 2

    none = at(0)[1]

    def outcomes(first: int, second: int, third: int) -> np.ndarray:
        passed = z[np.arange(z.size) - z.size // 2 + max(first, second) >= threshold].sum()
        (a, a_under), (b, b_under), (_, c_under) = at(first), at(second), at(third)
        others = c_under * none ** (n_classes - 3)
        wins = np.array([(a * b_under * others).sum(), (b * a_under * others).sum()])
        rest = max(0.0, 1 - wins.sum())
        return np.array([1 - passed, *(passed * wins), passed * rest])

    here, there = [], []
    for t in range(n // 2, n + 1):
        one = outcomes(t, n - t, 0)
        for other in (outcomes(t - 1, n - t + 1, 0), outcomes(t - 1, n - t, 1)):
            here += [one, other]
            there += [other, one]
    return with_ratios(np.array(here), np.array(there))


def with_ratios(p: np.ndarray, q: np.ndarray) -> Pairs:
    """Return the pairs as probabilities of one side and the log ratios of the other to it."""
    # An outcome too rare to be computed is left with one that is not: the floor may only be too low.
    rare = (p < 1e-25) | (q < 1e-25)
    p, q = np.where(rare, 0.0, p), np.where(rare, 0.0, q)
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.where(p > 0, np.log(q) - np.log(p), 0.0)
    return p, s


def expected(values: np.ndarray, p: np.ndarray, s: np.ndarray, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the best expected value at every grid point, and which pair has it."""
    n, reach = values.size, int(np.abs(s).max() / step) + 2
    left = 1 - (1 - values[0]) * np.exp(-np.arange(reach, 0, -1) * step)
    windows = sliding_window_view(np.concatenate([left, values, np.full(reach + 1, values[-1])]), n)
    steps = np.floor(s / step).astype(int)
    right = p * np.expm1(s - steps * step) / math.expm1(step)
    best, which = values.copy(), np.full(n, -1)
    for i in range(len(p)):
        total = (p[i] - right[i]) @ windows[reach + steps[i]] + right[i] @ windows[reach + steps[i] + 1]
        better = total > best
        best[better], which[better] = total[better], i
    return best, which


def adaptive(
    pairs: Pairs, marks: list[int], *, delta: float, low: float, high: float, step: float
) -> list[float]:
    """Return epsilon after so many questions, each of which may be any of the pairs."""
    p, s = pairs
    k = np.arange(low, high, step)
    values = np.maximum(0.0, 1 - np.exp(k))
    used = np.array([], int)
    found = []
    for n in range(1, max(marks) + 1):
        if n <= 3 or n % 40 == 0:
            # All pairs are looked at now and then; in between, those that were ever the best somewhere.
            values_, which = expected(values, p, s, step)
            used = np.union1d(used, np.unique(which[(which >= 0) & (values > 1e-9)]))
            values = values_
        else:
            values, _ = expected(values, p[used], s[used], step)
        if n in marks:
            at = int(np.flatnonzero(values > delta)[-1])
            share = (values[at] - delta) / (values[at] - values[at + 1])
            found.append(math.log(math.exp(k[at]) * (1 - share) + math.exp(k[at + 1]) * share))
    return found


def lattice(name: str) -> tuple[Pairs, float]:
    """Return the pairs of a mechanism, and how high epsilon may come."""
    kind, *parameters = name.replace(",", "").split()
    if kind == "Confident-GNMax":
        n, threshold, check, sigma = map(int, parameters)
        return checked(n, threshold, check, sigma, 10), 9.0
    (parameter,) = parameters
    if kind == "GNMax":
        sigma = float(parameter)
        leads = np.unique(
            np.concatenate([np.arange(1, 2.6 * sigma, sigma / 10), np.arange(2.6, 7, 0.4) * sigma])
        )
        thresholds = np.concatenate([[-(10**6)], np.arange(-2.2 * sigma, 2.2 * sigma, sigma / 8)])
        return races(gaussian(sigma, int(16 * sigma)), leads.astype(int), thresholds.astype(int)), 9.0
    gamma = float(parameter)
    leads = np.concatenate([[1, 2, 3], np.arange(5, 6 / gamma, 4)]).astype(int)
    thresholds = np.concatenate([[-(10**6)], np.arange(-6 / gamma, 5 / gamma, 4)]).astype(int)
    return races(laplace(gamma, int(60 / gamma)), leads, thresholds), 7.0


def floors(wanted: list[tuple[str, int]], *, delta: float) -> dict[tuple[str, int], float]:
    """Return the floor of every mechanism and number of questions."""
    found = {}
    for name in sorted({name for name, _ in wanted}):
        pairs, high = lattice(name)
        marks = sorted(n for other, n in wanted if other == name)
        values = adaptive(pairs, marks, delta=delta, low=-4.5, high=high, step=0.0025)
        found.update({(name, n): value for n, value in zip(marks, values, strict=True)})
    return found
