"""Pairs of laws of what small electorates answer, by direct summation; nothing of the library is used."""

import itertools
import math

import numpy as np

from .adaptive_value import Family

# Gauss-Legendre with 4 points integrates polynomials up to degree 7 exactly: ties between up to 8 classes.
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(4)
_POINTS, _WEIGHTS = (_POINTS + 1) / 2, _WEIGHTS / 2


def gaussian(sigma, reach=None):
    """Return whole numbers and their probabilities under the discrete Gaussian."""
    reach = math.ceil(13 * sigma) + 4 if reach is None else reach
    x = np.arange(-reach, reach + 1)
    p = np.exp(-(x**2) / (2 * sigma**2))
    return x, p / p.sum()


def laplace(gamma, reach=None):
    """Return whole numbers and their probabilities under the discrete Laplace law of scale 1 / gamma."""
    reach = math.ceil(60 / gamma) if reach is None else reach
    x = np.arange(-reach, reach + 1)
    p = np.exp(-gamma * np.abs(x))
    return x, p / p.sum()


def at_least(noise, threshold):
    """Return P[noise >= threshold] and its complement, each summed up from its own tail."""
    x, p = noise
    return math.fsum(np.sort(p[x >= threshold])), math.fsum(np.sort(p[x < threshold]))


def leader(noise, counts):
    """Return the probabilities that each class has most votes after noise, ties broken at random."""
    x, p = noise
    top = int(max(counts))
    line = np.arange(-top + x[0], top + x[-1] + 1)

    def shifted(count):
        law = np.zeros(line.size)
        begin = int(count + x[0] - line[0])
        law[begin : begin + p.size] = p
        return law

    laws = {count: shifted(count) for count in set(map(int, counts))}
    below = {count: np.concatenate([[0.0], np.cumsum(law)[:-1]]) for count, law in laws.items()}
    found = []
    for j, count in enumerate(counts):
        others = [int(c) for i, c in enumerate(counts) if i != j]
        beaten = np.zeros(line.size)
        for point, weight in zip(_POINTS, _WEIGHTS, strict=True):
            beaten += weight * np.prod([below[c] + point * laws[c] for c in others], axis=0)
        found.append(float(np.sort(laws[int(count)] * beaten).sum()))
    law = np.array(found)
    return law / law.sum()


def histograms(n_votes, n_classes):
    """Return every histogram of so many votes, the largest count first."""
    bars = itertools.combinations_with_replacement(range(n_votes, -1, -1), n_classes)
    return [counts for counts in bars if sum(counts) == n_votes]


def neighbours(counts):
    """Return what one changed ballot makes of a histogram."""
    for a, b in itertools.permutations(range(len(counts)), 2):
        if counts[a] > 0:
            changed = list(counts)
            changed[a], changed[b] = changed[a] - 1, changed[b] + 1
            yield tuple(changed)


def arg_max(noise, n_votes, n_classes):
    """Return all pairs of the leader among so many votes."""
    laws = {}

    def law(counts):
        # Classes by their order in the first histogram: the pair has to keep them apart.
        key = tuple(counts)
        if key not in laws:
            laws[key] = leader(noise, key)
        return laws[key]

    return Family.of(
        (law(counts), law(changed))
        for counts in histograms(n_votes, n_classes)
        for changed in neighbours(counts)
    )


def race(noise, lead_up_to, *, step=1):
    """Return the pairs of a race of two: leads 1, 1 + step, ... that one changed ballot takes by two.

    A race of two among many voters is each of these; leads of one class and of the other are the same pairs.
    """

    def law(lead):
        return leader(noise, (max(lead, 0), max(-lead, 0)))

    return Family.of((law(lead), law(lead - 2)) for lead in range(1, lead_up_to + 1, step))


def race_of_three(noise, leads, thirds):
    """Return the pairs of a race of two with a third class so far behind the second, or before it."""

    def law(lead, third):
        lowest = min(0, lead, third)
        return leader(noise, (lead - lowest, -lowest, third - lowest))

    return Family.of((law(lead, third), law(lead - 2, third - 1)) for lead in leads for third in thirds)


def check(noise, margin_up_to, *, step=1):
    """Return the pairs of a noisy check: does a count that is so far from its threshold pass it?"""

    def law(margin):
        return at_least(noise, -margin)

    margins = range(-margin_up_to, margin_up_to + 1, step)
    return Family.of(((law(margin), law(margin + 1)) for margin in margins), kinds=(1, 0))


def confident(check_noise, answer_noise, n_votes, n_classes, *, threshold, joint=True):
    """Return all pairs of {silent, class 1, ...} among so many votes; kind 0 is silence, 1 an answer."""
    answers = {}

    def law(counts):
        if counts not in answers:
            passes, fails = at_least(check_noise, threshold - max(counts))
            answers[counts] = np.concatenate([[fails], passes * leader(answer_noise, counts)])
            answers[counts] /= answers[counts].sum()
        return answers[counts]

    pairs = (
        (law(counts), law(changed))
        for counts in histograms(n_votes, n_classes)
        for changed in neighbours(counts)
    )
    return Family.of(pairs, kinds=(0,) + (1,) * n_classes)


def randomised_response(epsilon):
    """Return the pair of one coin that tells the truth with odds e^epsilon."""
    law = np.array([1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))])
    return Family.of([(law, law[::-1])])


def gaussian_sum(sigma, shift=1):
    """Return the pair of one noisy number that moves by a shift: nothing but noise is between them."""
    x, p = gaussian(sigma)
    keep = np.abs(x) <= math.ceil(7 * sigma)
    low, high = p[x < x[keep][0]].sum(), p[x > x[keep][-1]].sum()

    def law(moved):
        q = np.exp(-((x[keep] - moved) ** 2) / (2 * sigma**2))
        q[0] += low
        q[-1] += high
        return q / q.sum()

    return Family.of([(law(0), law(shift))])


def noisy_counts(sigma):
    """Return the pair of two noisy counts, one of which a moved ballot leaves and the other it enters.

    The ratio of the two laws depends on the difference of the counts alone, and so the difference stands for
    both of them.
    """
    _, p = gaussian(sigma)
    law = np.convolve(p, p)
    d = np.arange(law.size) - law.size // 2
    keep = (law > 1e-40) & (np.abs(d) < d[-1] - 2)
    here, there = law[keep], law[np.flatnonzero(keep) - 2]
    return Family.of([(here / here.sum(), there / there.sum())])
