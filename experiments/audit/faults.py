"""Broken mechanisms, each with one mistake, to try audits and checks on.

Each says what it really does as far as that has a formula: `actual(counts)` gives the probabilities of
silence and of every class, (votes, 1 + classes), so that the truth can be computed beside what is found.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tellers import SILENT, Binary, ConfidentGNMax, Cost, GNMax, LNMax, RdpCurve, Release, Tau, Votes, noise

NOBODY = -2  # what a rule says of votes that it does not touch


# Answers that are forced at some votes ----------------------------------------------------------------------

RULES: dict[str, tuple[float, Callable[[np.ndarray], np.ndarray]]] = {
    # 0 if the top count is 45, 1 if it is 44
    "top count": (1.0, lambda c: np.select([c.max(1) == 45, c.max(1) == 44], [0, 1], NOBODY)),
    "class 7 at 3 votes": (1.0, lambda c: np.where((c[:, 7:8] == 3).any(1), 7, NOBODY)),
    "a noiseless answer in 50": (0.02, lambda c: c.argmax(1)),
    "unanimity": (1.0, lambda c: np.where(c.max(1) == c.sum(1), SILENT, NOBODY)),
    "no votes for class 1": (1.0, lambda c: np.where(c[:, 1] == 0, 0, NOBODY)),
    "parity of class 0": (0.3, lambda c: np.where(c[:, 0] % 2 == 1, 0, NOBODY)),
    "no noise for many classes": (1.0, lambda c: c.argmax(1) if c.shape[1] > 20 else np.full(len(c), NOBODY)),
    "class 2 wins without noise": (1.0, lambda c: np.where(c.argmax(1) == 2, 2, NOBODY)),
    "ties go to class 0": (1.0, lambda c: np.where(gap(c) == 0, 0, NOBODY)),
    "no noise at a lead of one": (1.0, lambda c: np.where(gap(c) == 1, c.argmax(1), NOBODY)),
    "one vote for class 1": (0.5, lambda c: np.where(c[:, 1] == 1, 1, NOBODY)),
    "a majority of exactly half": (1.0, lambda c: np.where(2 * c.max(1) == c.sum(1), c.argmin(1), NOBODY)),
    "count 17 of class 1": (0.5, lambda c: np.where(c[:, 1] == 17, 1, NOBODY)),
    "silent at 13 for class 0": (1.0, lambda c: np.where(c[:, 0] == 13, SILENT, NOBODY)),
}  # fmt: skip


def gap(counts: np.ndarray) -> np.ndarray:
    two = np.sort(counts, axis=1)[:, -2:]
    return two[:, 1] - two[:, 0]


@dataclass(frozen=True)
class UnstatedLeak:
    """GNMax, but a rule forces the answer at some votes, with some probability. States no outcomes."""

    rule: str
    sigma: float = 5.0

    def price(self, unit):
        return GNMax(self.sigma).price(unit)

    def release(self, votes, noise):
        release = GNMax(self.sigma).release(votes, noise)
        share, rule = RULES[self.rule]
        forced = rule(votes.counts)
        forced = np.where(noise.uniform(len(votes)) < share, forced, NOBODY)
        return Release(np.where(forced == NOBODY, release.labels, forced), release.cost)

    def actual(self, counts):
        honest = stated(GNMax(self.sigma), counts)
        share, rule = RULES[self.rule]
        forced = rule(counts)
        where = forced != NOBODY
        found = honest.copy()
        found[where] *= 1 - share
        found[where, 1 + forced[where]] += share
        return found


@dataclass(frozen=True)
class Leak(UnstatedLeak):
    """The same, and states the outcomes of an honest GNMax."""

    def outcomes(self, votes):
        return GNMax(self.sigma).outcomes(votes)


def stated(mechanism: Any, counts: np.ndarray) -> np.ndarray:
    votes = Votes.from_counts(counts, n_teachers=int(counts[0].sum()))
    return np.exp(mechanism.outcomes(votes).log_labels)


# Noise that is not what it should be ------------------------------------------------------------------------


def draw_half(votes, source, sigma):
    return source.discrete_gaussian(sigma / 2, votes.counts.shape)


def draw_first_class_only(votes, source, sigma):
    drawn = source.discrete_gaussian(sigma, votes.counts.shape)
    drawn[:, 1:] = 0
    return drawn


def draw_not_for_first(votes, source, sigma):
    drawn = source.discrete_gaussian(sigma, votes.counts.shape)
    drawn[:, 0] = 0
    return drawn


def draw_truncated(votes, source, sigma):
    drawn, limit = source.discrete_gaussian(sigma, votes.counts.shape), int(sigma)
    while (far := np.abs(drawn) > limit).any():
        drawn[far] = source.discrete_gaussian(sigma, int(far.sum()))
    return drawn


def draw_clipped(votes, source, sigma):
    return np.clip(source.discrete_gaussian(sigma, votes.counts.shape), -int(sigma) // 2, int(sigma) // 2)


def draw_rounded(votes, source, sigma):
    return 10 * np.round(source.discrete_gaussian(sigma, votes.counts.shape) / 10).astype(np.int64)


def draw_positive(votes, source, sigma):
    return np.abs(source.discrete_gaussian(sigma, votes.counts.shape)) // 3


def draw_once(votes, source, sigma):
    return np.tile(source.discrete_gaussian(sigma, (1, votes.n_classes)), (len(votes), 1))


def draw_for_two(votes, source, sigma):
    half = source.discrete_gaussian(sigma, ((len(votes) + 1) // 2, votes.n_classes))
    return np.repeat(half, 2, axis=0)[: len(votes)]


def draw_for_half_a_batch(votes, source, sigma):
    half = source.discrete_gaussian(sigma, ((len(votes) + 1) // 2, votes.n_classes))
    return np.concatenate([half, half])[: len(votes)]


def draw_from_the_votes(votes, source, sigma):
    source.uniform(1)
    return noise.seeded(int(votes.counts[0].sum() + 31 * votes.counts[0, 0])).discrete_gaussian(
        sigma, votes.counts.shape
    )


def draw_none_for_one_query(votes, source, sigma):
    return source.discrete_gaussian(sigma, votes.counts.shape) * int(len(votes) > 1)


def draw_one_for_all_classes(votes, source, sigma):
    return np.tile(source.discrete_gaussian(sigma, (len(votes), 1)), (1, votes.n_classes))


NOISES: dict[str, Callable[..., np.ndarray]] = {
    "half the noise": draw_half,
    "noise on class 0 alone": draw_first_class_only,
    "no noise on class 0": draw_not_for_first,
    "truncated noise": draw_truncated,
    "clipped noise": draw_clipped,
    "rounded noise": draw_rounded,
    "small one-sided noise": draw_positive,
    "noise drawn once per batch": draw_once,
    "noise for two queries at a time": draw_for_two,
    "noise for half a batch": draw_for_half_a_batch,
    "noise seeded by the votes": draw_from_the_votes,
    "no noise for a single query": draw_none_for_one_query,
    "one noise for all classes": draw_one_for_all_classes,
}


@dataclass(frozen=True)
class UnstatedNoise:
    """GNMax with another noise than it charges for. States no outcomes."""

    noise: str
    sigma: float = 3.0

    def price(self, unit):
        return GNMax(self.sigma).price(unit)

    def release(self, votes, source):
        noisy = votes.counts + NOISES[self.noise](votes, source, self.sigma)
        return Release(source.break_ties(noisy), Cost(self.price(votes.unit) * len(votes)))

    def actual(self, counts):
        reach = np.arange(-int(12 * self.sigma), int(12 * self.sigma) + 1)
        gauss = np.exp(-(reach**2) / (2 * self.sigma**2))
        none = (reach == 0).astype(float)
        m = counts.shape[1]
        if self.noise == "half the noise":
            each = [np.exp(-(reach**2) / (2 * (self.sigma / 2) ** 2))] * m
        elif self.noise == "noise on class 0 alone":
            each = [gauss, *[none] * (m - 1)]
        elif self.noise == "no noise on class 0":
            each = [none, *[gauss] * (m - 1)]
        elif self.noise == "truncated noise":
            each = [gauss * (np.abs(reach) <= int(self.sigma))] * m
        elif self.noise == "one noise for all classes":
            each = [none] * m
        elif (mapped := MAPPED.get(self.noise)) is not None:
            moved = np.zeros_like(gauss)
            place = np.clip(mapped(reach, self.sigma), reach[0], reach[-1])
            np.add.at(moved, place - reach[0], gauss)
            each = [moved] * m
        else:  # each query alone is honest, or it depends on the batch
            return None
        return winners(counts, reach, [one / one.sum() for one in each])


MAPPED = {
    "clipped noise": lambda x, s: np.clip(x, -int(s) // 2, int(s) // 2),
    "rounded noise": lambda x, s: 10 * np.round(x / 10).astype(np.int64),
    "small one-sided noise": lambda x, s: np.abs(x) // 3,
}


def winners(counts: np.ndarray, reach: np.ndarray, each: list[np.ndarray]) -> np.ndarray:
    """Return how likely each class leads after independent whole noise, ties being drawn evenly."""
    n, m = counts.shape
    low, high = int(counts.min() + reach[0]), int(counts.max() + reach[-1])
    values = np.arange(low, high + 1)
    equal = np.zeros((n, m, values.size))
    for i in range(n):
        for j in range(m):
            start = int(counts[i, j] + reach[0] - low)
            equal[i, j, start : start + reach.size] = each[j]
    below = np.cumsum(equal, axis=2) - equal
    found = np.zeros((n, 1 + m))
    for j in range(m):
        # Coefficient k: so many others have the same value, and all else less.
        ties = [equal[:, j]]
        for i in range(m):
            if i != j:
                up = [tie * equal[:, i] for tie in ties]
                stay = [tie * below[:, i] for tie in ties]
                ties = [a + b for a, b in zip([*stay, 0 * stay[0]], [0 * up[0], *up], strict=True)]
        found[:, 1 + j] = sum(tie.sum(axis=1) / (k + 1) for k, tie in enumerate(ties))
    return found


@dataclass(frozen=True)
class OtherNoise(UnstatedNoise):
    """The same, and states the outcomes of the noise that it charges for."""

    def outcomes(self, votes):
        return GNMax(self.sigma).outcomes(votes)


@dataclass(frozen=True)
class FirstOfTies(UnstatedNoise):
    """Ties after the noise go to the first class, and outcomes say that they are drawn."""

    noise: str = "none"

    def release(self, votes, source):
        noisy = votes.counts + source.discrete_gaussian(self.sigma, votes.counts.shape)
        return Release(noisy.argmax(axis=1), Cost(self.price(votes.unit) * len(votes)))

    def outcomes(self, votes):
        return GNMax(self.sigma).outcomes(votes)

    def actual(self, counts):
        return None


# Checks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnstatedCheck:
    """ConfidentGNMax with one mistake in its check. States no outcomes."""

    mistake: str
    sigma: float = 4.0
    threshold: float = 25.0
    sigma_threshold: float = 5.0

    @property
    def honest(self):
        return ConfidentGNMax(self.sigma, self.threshold, self.sigma_threshold)

    def price(self, unit):
        if self.mistake == "the check is free":
            return GNMax(self.sigma).price(unit)
        return self.honest.price(unit)

    def release(self, votes, source):
        margin = (votes.top - self.threshold).astype(np.int64)
        if self.mistake == "no noise in the check":
            passed = margin >= 0
        elif self.mistake == "little noise in the check":
            passed = margin + source.discrete_gaussian(self.sigma_threshold / 4, margin.shape) >= 0
        elif self.mistake == "one noise for all checks":
            passed = margin + source.discrete_gaussian(self.sigma_threshold, 1) >= 0
        else:
            passed = margin + source.discrete_gaussian(self.sigma_threshold, margin.shape) >= 0
        answers = GNMax(self.sigma).release(votes, source).labels
        labels, shown = np.where(passed, answers, SILENT), None
        if self.mistake == "an answer where the check failed":
            labels, shown = np.where(passed, answers, votes.counts.argmax(axis=1)), passed
        check = self.honest.check_price(votes.unit)
        answer = GNMax(self.sigma).price(votes.unit) * int(passed.sum())
        cost = answer + check * len(votes)
        if self.mistake == "silence is free":
            cost = self.price(votes.unit) * int(passed.sum())
        elif self.mistake == "the check is free":
            cost = answer
        elif self.mistake == "the cost tells the votes":
            cost = cost * (1 - 0.001 * (votes.top[0] % 7))
        return Release(labels, Cost(cost), shown)

    def actual(self, counts):
        margin = counts.max(axis=1) - self.threshold
        law = stated(self.honest, counts)
        if self.mistake in ("no noise in the check", "little noise in the check"):
            little = stated(ConfidentGNMax(self.sigma, self.threshold, self.sigma_threshold / 4), counts)
            silent = little[:, 0] if self.mistake.startswith("little") else (margin < 0).astype(float)
            answers = stated(GNMax(self.sigma), counts)[:, 1:]
            return np.column_stack([silent, (1 - silent)[:, None] * answers])
        if self.mistake in ("silence is free", "the check is free"):
            return law
        return None


@dataclass(frozen=True)
class OtherCheck(UnstatedCheck):
    """The same, and states the outcomes of an honest ConfidentGNMax."""

    def outcomes(self, votes):
        return self.honest.outcomes(votes)


# Prices -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnstatedPrice:
    """An honest release with a price that is too low. States no outcomes."""

    mistake: str
    sigma: float = 1.0
    honest: ClassVar[Any] = GNMax

    def price(self, unit):
        price = GNMax(self.sigma).price(unit)
        values = price.values.copy()
        if self.mistake == "half the price":
            values /= 2
        elif self.mistake == "one order":
            values[40] *= 0.5
        elif self.mistake == "large orders":
            values[price.orders > 64] *= 0.1
        elif self.mistake == "of another noise":
            values = GNMax(1.5 * self.sigma).price(unit).values
        elif self.mistake == "of Laplace noise":
            values = LNMax(0.3 / self.sigma).price(unit).values
        elif self.mistake == "none":
            values *= 0.0
        return RdpCurve(price.orders, values)

    def release(self, votes, source):
        labels = GNMax(self.sigma).release(votes, source).labels
        return Release(labels, Cost(self.price(votes.unit) * len(votes)))

    def actual(self, counts):
        return stated(GNMax(self.sigma), counts)


@dataclass(frozen=True)
class OtherPrice(UnstatedPrice):
    """The same, with outcomes."""

    def outcomes(self, votes):
        return GNMax(self.sigma).outcomes(votes)


@dataclass(frozen=True)
class LyingLaw:
    """States the outcomes of much more noise, with a price that fits those, and draws less."""

    sigma: float = 4.0

    def price(self, unit):
        return GNMax(2 * self.sigma).price(unit)

    def outcomes(self, votes):
        return GNMax(2 * self.sigma).outcomes(votes)

    def release(self, votes, source):
        labels = GNMax(self.sigma).release(votes, source).labels
        return Release(labels, Cost(self.price(votes.unit) * len(votes)))

    def actual(self, counts):
        return stated(GNMax(self.sigma), counts)


@dataclass(frozen=True)
class BareHistogram:
    """A noisy histogram that leaves the noise off one class."""

    sigma: float = 4.0

    def price(self, unit):
        return RdpCurve.zcdp(unit.l2**2 / (2 * self.sigma**2))

    def release(self, votes, source):
        drawn = source.discrete_gaussian(self.sigma, votes.counts.shape)
        drawn[:, -1] = 0
        noisy = votes.counts + drawn
        return Release(source.break_ties(noisy), Cost(self.price(votes.unit) * len(votes)), values=noisy)

    def actual(self, counts):
        return None


# Many labels ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BrokenBinary:
    """Binary voting on labels with one mistake; with `stated`, it states the outcomes of an honest one."""

    mistake: str
    sigma: float = 3.0
    n_labels: int = 3
    multilabel: ClassVar[bool] = True

    def price(self, unit):
        return Binary(self.sigma, self.n_labels).price(unit)

    def release(self, votes, source):
        release = Binary(self.sigma, self.n_labels).release(votes, source)
        labels = release.labels.copy()
        sums, half = votes.sums, votes.n_teachers // 2
        if self.mistake == "label 0 unprotected":
            labels[:, 0] = sums[:, 0] > half
        elif self.mistake == "label 1 at a sum of 4":
            labels[sums[:, 1] == 4, 1] = 1
        elif self.mistake == "no noise when all agree":
            agreed = (sums == 0) | (sums == votes.n_teachers)
            labels[agreed] = SILENT
        elif self.mistake == "half the noise":
            labels = Binary(self.sigma / 2, self.n_labels).release(votes, source).labels
        elif self.mistake == "one noise for all labels":
            noisy = sums + source.discrete_gaussian(self.sigma, (len(votes), 1))
            labels = (noisy > half).astype(np.int64)
        elif self.mistake == "noise drawn once":
            noisy = sums + source.discrete_gaussian(self.sigma, (1, self.n_labels))
            labels = (noisy > half).astype(np.int64)
        elif self.mistake == "no noise on the last of many":
            labels[:, -1] = np.where(sums[:, 0] == votes.n_teachers, sums[:, -1] > half, labels[:, -1])
        return Release(labels, release.cost)


@dataclass(frozen=True)
class StatedBinary(BrokenBinary):
    """The same, with the outcomes of an honest one."""

    def outcomes(self, votes):
        return Binary(self.sigma, self.n_labels).outcomes(votes)


@dataclass(frozen=True)
class UnclippedTau:
    """Tau voting that charges for clipped ballots and counts whole ones."""

    sigma: float = 2.0
    n_labels: int = 16
    max_norm: float = 1.0
    multilabel: ClassVar[bool] = True

    def price(self, unit):
        return Tau(self.sigma, self.n_labels, self.max_norm).price(unit)

    def release(self, votes, source):
        noisy = votes.sums + source.discrete_gaussian(self.sigma, votes.sums.shape)
        labels = (2 * noisy > votes.n_teachers * votes.resolution).astype(np.int64)
        return Release(labels, Cost(self.price(votes.unit) * len(votes)))


FAULTS: dict[str, Any] = {
    **{f"stated leak: {rule}": Leak(rule) for rule in RULES},
    **{f"unstated leak: {rule}": UnstatedLeak(rule) for rule in RULES if RULES[rule][0] > 0.1},
    "unstated leak: a noiseless answer in 50": UnstatedLeak("a noiseless answer in 50", sigma=40.0),
    **{f"stated {what}": OtherNoise(what) for what in NOISES},
    **{f"unstated {what}": UnstatedNoise(what) for what in NOISES},
    "ties to the first": FirstOfTies(),
    **{f"{kind} check: {what}": made(what)
       for kind, made in (("stated", OtherCheck), ("unstated", UnstatedCheck))
       for what in ("no noise in the check", "little noise in the check", "one noise for all checks",
                    "an answer where the check failed", "silence is free", "the cost tells the votes")},
    "stated check: the check is free": OtherCheck("the check is free", sigma_threshold=2.0),
    **{f"stated price: {what}": OtherPrice(what) for what in ("half the price", "one order", "large orders",
       "of another noise", "of Laplace noise", "none")},
    **{f"unstated price: {what}": UnstatedPrice(what) for what in ("half the price", "one order",
       "large orders", "of Laplace noise", "none")},
    "a law that lies": LyingLaw(),
    "a histogram without noise on one class": BareHistogram(),
}  # fmt: skip

LABEL_FAULTS: dict[str, Any] = {
    **{f"{kind} {what}": made(what) for kind, made in (("stated", StatedBinary), ("unstated", BrokenBinary))
       for what in ("label 0 unprotected", "label 1 at a sum of 4", "no noise when all agree",
                    "half the noise",
                    "one noise for all labels", "noise drawn once", "no noise on the last of many")},
    "tau without clipping": UnclippedTau(),
}  # fmt: skip
