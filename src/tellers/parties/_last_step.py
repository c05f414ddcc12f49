"""The last step of a confidential query: what the guardian draws, and what is decided by it.

The asker holds a, the sum of its shares, and the guardian m, the sum of the masks; the tally is t = a + m.
The guardian draws the noise, and for an arg max a rank for every class, anew for each query. With z the noise
of the answer, c that of the check and r that of the ranges, what comes out is

    argmax            the class with the largest (t + z, rank)
    confident         the same where max t + c >= bar, else silence
    labels            for each label, whether t_j + z_j >= limit_j
    confident_labels  the same where t_j + c_j >= bar or n_j - t_j + c_j >= bar, else silence

and nothing, neither a class nor silence, where a t_j + r_j is not from -reach to n_j + reach. Ranks break
ties uniformly, which is what GNMax is priced for. Limits and bars are public, and so is n_j, how many of
those who answer know label j: limits are of these n_j, and a label that none of them knows is silent.

**Whatever is handed in, the price holds.** Nobody can hold an asker to its sum, nor an answering party to its
mask: either may add any number, modulo 2^64, so t is any vector of the ring, and one ballot still moves it by
one vote in two places at most. (1) If some t_j is far out, by 2^44 say, so is t_j + r_j, whose noise never is
as large (a chance below e^-6000, which no delta notices): the row is void before and after. (2) Otherwise
every t_j stands for one whole number below 2^45 in size, no comparison below wraps around, and what comes out
is made of two independent things: the row's own mechanism on these whole numbers, whose price is for all of
them, negative ones and those beyond n too; and the bits t_j + r_j in range, which tell no more than t_j + r_j
does.
So the price is the mechanism's and that of Gaussian noise on as many counts as a ballot moves. The noise of
ranges is `RANGE_NOISE` times that of the answer: it adds less than a 500th to a price.

The ranges need noise: whether t_j itself is in 0..n_j is a function without any, and an asker that adds
n_j - 3 to label j would read off it whether t_j is at most 3. Nor is the sum of a row compared with n, though
it is n whatever the votes: an asker that turns one bit of a vote round inside the engine moves it up or down
as that bit is.
"""

import math
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from ..mechanisms._check import whole_thresholds
from ..mechanisms.registry import EVENTS, answers_of
from ..privacy._noise_table import TIMED
from ..privacy.noise import Noise
from ..privacy.release import SILENT
from ._ring import Integers, ring_sum
from .programs import DecisionProgram

_UNREACHED: Final = 2**39  # No sum of votes and noise is as large; and the label is silent by its voters.
RANGE_NOISE: Final = 32
"""How many times the noise of an answer that of the ranges is."""
_SURE: Final = 8  # Standard deviations that noise of honest parties goes beyond with a chance below 2e-15.


@dataclass(frozen=True, eq=False)
class LastStep:
    """The guardian's side of the last step; all but the rule is secret, and shown to nobody."""

    rule: DecisionProgram
    masks: Integers = field(repr=False)
    answer_noise: Integers = field(repr=False)
    range_noise: Integers | None = field(default=None, repr=False)
    ranks: Integers | None = field(default=None, repr=False)
    check_noise: Integers | None = field(default=None, repr=False)

    @property
    def program(self) -> DecisionProgram:
        """Return the public program of all queries, which parties may compute together."""
        return replace(self.rule, batch=len(self.masks))

    def inputs(self) -> dict[str, Integers]:
        """Return what the guardian puts into the program."""
        assert self.range_noise is not None, "Expected a step between parties, got one of one room."
        return self.program.guardian_inputs(
            self.masks, answer_noise=self.answer_noise, range_noise=self.range_noise, ranks=self.ranks,
            check_noise=self.check_noise,
        )  # fmt: skip


def is_sum(mechanism: Any) -> bool:
    """Return whether a mechanism releases one noisy sum of scores, which needs no common computation."""
    return bool(getattr(mechanism, "of_scores", False))


def require_confidential(mechanism: Any) -> None:
    """Refuse mechanisms that the last step has no rule for."""
    if not getattr(mechanism, "confidential", False):
        known = ", ".join(sorted(name for name, kind in EVENTS.items() if hasattr(kind, "confidential")))
        raise TypeError(
            f"Expected a mechanism that parties can compute, one of {known}, got {type(mechanism).__name__}. "
            "Choose one of them, or vote in one room."
        )
    if getattr(mechanism, "resolution", 1) != 1:
        raise TypeError(
            f"Expected votes of 0 and 1, got {type(mechanism).__name__} with resolution "
            f"{mechanism.resolution}. Leave the resolution out."
        )


def ranges_of(mechanism: Any) -> dict[str, Any]:
    """Return the noise on counts whose range is checked, in votes, and how many a ballot moves: for events.

    >>> from tellers import Binary, GNMax
    >>> ranges_of(GNMax(sigma=8.0)), ranges_of(Binary(sigma=1.0, n_labels=5))["n_moved"]
    ({'sigma': 256.0, 'n_moved': 2}, 5)
    """
    require_confidential(mechanism)
    is_for_labels = answers_of(mechanism) == "labels"
    n_moved = min(mechanism.n_labels, 2 * mechanism.rule.most) if is_for_labels else 2
    return {"sigma": RANGE_NOISE * float(mechanism.sigma), "n_moved": n_moved}


def decision_of(
    mechanism: Any,
    *,
    n_outputs: int,
    n_answering: int,
    voters: tuple[int, ...] = (),
    share_sigma: float | None = None,
) -> DecisionProgram:
    """Return the public program of the last step of one query, if so many parties answer.

    `voters` says how many of them know each label, where not all know all; `share_sigma` is the noise that
    each of them adds.
    """
    require_confidential(mechanism)
    require_outputs(mechanism, (1, n_outputs))
    shared = n_answering * (share_sigma or 0.0) ** 2
    reach = math.ceil(_SURE * math.sqrt(ranges_of(mechanism)["sigma"] ** 2 + shared))
    named = partial(DecisionProgram, n_outputs=n_outputs, batch=1, n_answerers=n_answering, reach=reach)
    if answers_of(mechanism) == "labels":
        each = voters or (n_answering,) * n_outputs
        law = mechanism.law(each)
        limits = tuple(int(limit) if n else _UNREACHED for n, limit in zip(each, law.threshold, strict=True))
        if law.bar is None:
            return named(rule="labels", limits=limits, voters=voters)
        bar = tuple(law.bar.height if n else _UNREACHED for n in each)
        return named(rule="confident_labels", limits=limits, bar=bar, voters=voters)
    if voters:
        raise ValueError("Expected voters of labels for a mechanism of many labels, got another mechanism.")
    if not mechanism.has_bar:
        return named(rule="argmax")
    return named(rule="confident", bar=(whole_thresholds(mechanism.threshold).item(),) * n_outputs)


def draw(
    mechanism: Any,
    masks: Integers,
    *,
    n_answering: int,
    noise: Noise,
    in_one_room: bool = False,
    **agreed: Any,
) -> LastStep:
    """Return the guardian's side of the last step: the sum of the masks, and the mechanism's fresh noise.

    `agreed` is what else `decision_of` is told. In one room nobody lies, and no noise of ranges is drawn.

    Guarantee: what is decided by it and by the asker's sum has the law of `mechanism.release` on the tally,
               but for a chance of 2e-15 for each count that the row is void; and whatever sum the asker hands
               in, and whatever masks came, it costs what `query_price` says.
    Assumes:   fewer than 2^40 answering parties with whole votes, so that no tally wraps around.
    Reference: Choquette-Choo et al. 2021 (CaPC), step 3; the beginning of this module; noise as in
               `tellers.privacy.noise`.
    """
    rule = decision_of(mechanism, n_outputs=masks.shape[-1], n_answering=n_answering, **agreed)
    require_outputs(mechanism, masks.shape)
    check = None
    # In the order of `release`: the same seed then gives the same labels, here and in one room.
    if answers_of(mechanism) == "labels":
        if mechanism.has_bar:
            check = _gaussian(noise, mechanism.bar_sigma, masks.shape)
        answer = _gaussian(noise, mechanism.sum_sigma, masks.shape)
        ranks = None
    else:
        if mechanism.has_bar:
            check = noise.discrete_gaussian(mechanism.sigma_threshold, (len(masks), 1))
        answer = _gaussian(noise, mechanism.sigma, masks.shape)
        ranks = _ranks(masks.shape, noise)
    ranges = None if in_one_room else _gaussian(noise, ranges_of(mechanism)["sigma"], masks.shape)
    return LastStep(rule, masks, answer, ranges, ranks, check)


def decide(step: LastStep, asker_sum: Integers) -> Integers:
    """Return what the last step decides, in the clear: this is its definition.

    `clear.clear_decision` is the arithmetic of the circuit for it, and a test holds the two equal.
    """
    tally, rule = ring_sum([asker_sum, step.masks]), step.rule
    noisy = ring_sum([tally, step.answer_noise])
    ranged = tally if step.range_noise is None else ring_sum([tally, step.range_noise])
    fair = (-rule.reach <= ranged) & (ranged <= rule.totals + rule.reach)
    if step.ranks is not None:
        fair = fair.all(axis=1)
        labels = np.lexsort(np.stack([step.ranks, noisy]), axis=1)[:, -1]
        if step.check_noise is not None:
            fair &= tally.max(axis=1) + step.check_noise[:, 0] >= rule.bar[0]
        return np.where(fair, labels, SILENT).astype(np.int64)
    labels = (noisy >= np.array(rule.limits)).astype(np.int64)
    told = fair & (rule.totals > 0)
    if step.check_noise is not None:
        told = told & (np.maximum(tally, rule.totals - tally) + step.check_noise >= np.array(rule.bar))
    return np.where(told, labels, SILENT)


def require_outputs(mechanism: Any, shape: tuple[int, ...]) -> None:
    """Refuse tallies that are not queries x outputs, or on other labels than the mechanism has."""
    n_labels = getattr(mechanism, "n_labels", None)
    if n_labels is None and (len(shape) != 2 or shape[1] < 2):
        raise ValueError(f"Expected queries x at least 2 classes, got shape {shape}.")
    if n_labels is not None and (len(shape) != 2 or shape[1] != n_labels):
        raise ValueError(f"Expected queries x the {n_labels} labels of the mechanism, got shape {shape}.")


def _gaussian(noise: Noise, sigma: Any, shape: tuple[int, ...]) -> Integers:
    """Draw noise, in calls that are small enough to take the same work whatever comes out."""
    n_rows = max(1, TIMED // shape[1])
    if not noise.is_secure or shape[0] <= n_rows:
        return noise.discrete_gaussian(sigma, shape)
    starts = range(0, shape[0], n_rows)
    return np.concatenate(
        [noise.discrete_gaussian(sigma, (min(n_rows, shape[0] - start), shape[1])) for start in starts]
    )


def _ranks(shape: tuple[int, ...], noise: Noise) -> Integers:
    """Return for each query its outputs in an order of their own, all orders equally likely."""
    n_queries, n_outputs = shape
    ranks = np.tile(np.arange(n_outputs, dtype=np.int64), (n_queries, 1))
    rows = np.arange(n_queries)
    for last in range(n_outputs - 1, 0, -1):
        other = noise.integers_below(np.full(n_queries, last + 1, dtype=np.int64))
        ranks[rows, last], ranks[rows, other] = ranks[rows, other], ranks[rows, last].copy()
    return ranks
