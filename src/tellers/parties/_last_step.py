"""The last step of a confidential query: what the guardian draws, and what is decided by it.

The asker holds a, the sum of its shares, and the guardian m, the sum of the masks; the tally is t = a + m.
The guardian draws the noise, and for an arg max a rank for every class, anew for each query. With z the noise
of the answer and c that of the check, what comes out is

    argmax            the class with the largest (t + z, rank)
    labels            for each label, whether t_j + z_j >= limit_j
    confident_labels  the same where t_j + c_j >= bar or n_j - t_j + c_j >= bar, else silence

Ranks break ties uniformly, which is what GNMax is priced for. Limits and bars are public, and so is n_j, how
many of those who answer know label j: limits are of these n_j, and a label that none of them knows is silent.

Nobody can hold an asker to its sum: it may add what it likes, modulo 2^64. With a label that moves the limit,
or by 2^63 turns yes into no; the check of `confident_labels` stays one cut through the noise of that label,
which one ballot moves by one vote. ConfidentGNMax has one check noise for all classes: sums moved apart make
two cuts, the gap between them depends on single votes, and silence tells of it. So it has no rule here.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from ..mechanisms.registry import EVENTS, answers_of
from ..privacy.noise import Noise
from ..privacy.release import SILENT
from ._ring import Integers, ring_sum
from .programs import DecisionProgram

_UNREACHED: Final = 2**39  # No sum of votes and noise is as large; and the label is silent by its voters.


@dataclass(frozen=True, eq=False)
class LastStep:
    """The guardian's side of the last step; all but the rule is secret, and shown to nobody."""

    rule: DecisionProgram
    masks: Integers = field(repr=False)
    answer_noise: Integers = field(repr=False)
    ranks: Integers | None = field(default=None, repr=False)
    check_noise: Integers | None = field(default=None, repr=False)

    @property
    def program(self) -> DecisionProgram:
        """Return the public program of all queries, which parties may compute together."""
        return replace(self.rule, batch=len(self.masks))

    def inputs(self) -> dict[str, Integers]:
        """Return what the guardian puts into the program."""
        return self.program.guardian_inputs(
            self.masks, answer_noise=self.answer_noise, ranks=self.ranks, check_noise=self.check_noise
        )


def is_sum(mechanism: Any) -> bool:
    """Return whether a mechanism releases one noisy sum of scores, which needs no common computation."""
    return bool(getattr(mechanism, "of_scores", False))


def require_confidential(mechanism: Any) -> None:
    """Refuse mechanisms that the last step has no rule for."""
    if not getattr(mechanism, "confidential", False):
        known = ", ".join(sorted(name for name, kind in EVENTS.items() if hasattr(kind, "confidential")))
        raise TypeError(
            f"Expected a mechanism that parties can compute, one of {known}, got {type(mechanism).__name__}. "
            + getattr(mechanism, "why_not_confidential", "Choose one of them, or vote in one room.")
        )
    if getattr(mechanism, "resolution", 1) != 1:
        raise TypeError(
            f"Expected votes of 0 and 1, got {type(mechanism).__name__} with resolution "
            f"{mechanism.resolution}. Leave the resolution out."
        )


def decision_of(
    mechanism: Any, *, n_outputs: int, n_answering: int, voters: tuple[int, ...] = ()
) -> DecisionProgram:
    """Return the public program of the last step of one query, if so many parties answer.

    `voters` says how many of them know each label, where not all know all.
    """
    require_confidential(mechanism)
    require_outputs(mechanism, (1, n_outputs))
    named = partial(DecisionProgram, n_outputs=n_outputs, batch=1, n_answerers=n_answering)
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
    return named(rule="argmax")


def draw(
    mechanism: Any, masks: Integers, *, n_answering: int, noise: Noise, voters: tuple[int, ...] = ()
) -> LastStep:
    """Return the guardian's side of the last step: the sum of the masks, and the mechanism's fresh noise.

    Guarantee: what is decided by it and by the asker's sum has the law of `mechanism.release` on the tally,
               so it costs what the mechanism charges, whatever the tally.
    Assumes:   fewer than 2^40 answering parties with whole votes, so that no tally wraps around.
    Reference: Choquette-Choo et al. 2021 (CaPC), step 3; noise as in `tellers.privacy.noise`.
    """
    rule = decision_of(mechanism, n_outputs=masks.shape[-1], n_answering=n_answering, voters=voters)
    require_outputs(mechanism, masks.shape)
    check = None
    # In the order of `release`: the same seed then gives the same labels, here and in one room.
    if answers_of(mechanism) == "labels":
        if mechanism.has_bar:
            check = noise.discrete_gaussian(mechanism.bar_sigma, masks.shape)
        answer = noise.discrete_gaussian(mechanism.sum_sigma, masks.shape)
        return LastStep(rule, masks, answer, check_noise=check)
    answer = noise.discrete_gaussian(mechanism.sigma, masks.shape)
    return LastStep(rule, masks, answer, _ranks(masks.shape, noise))


def decide(step: LastStep, asker_sum: Integers) -> Integers:
    """Return what the last step decides, in the clear: this is its definition.

    `clear.clear_decision` is the arithmetic of the circuit for it, and a test holds the two equal.
    """
    tally, rule = ring_sum([asker_sum, step.masks]), step.rule
    noisy = tally + step.answer_noise
    if step.ranks is not None:
        return np.asarray(np.lexsort(np.stack([step.ranks, noisy]), axis=1)[:, -1], dtype=np.int64)
    labels = (noisy >= np.array(rule.limits)).astype(np.int64)
    told = rule.totals > 0
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


def _ranks(shape: tuple[int, ...], noise: Noise) -> Integers:
    """Return for each query its outputs in an order of their own, all orders equally likely."""
    n_queries, n_outputs = shape
    ranks = np.tile(np.arange(n_outputs, dtype=np.int64), (n_queries, 1))
    rows = np.arange(n_queries)
    for last in range(n_outputs - 1, 0, -1):
        other = noise.integers_below(np.full(n_queries, last + 1, dtype=np.int64))
        ranks[rows, last], ranks[rows, other] = ranks[rows, other], ranks[rows, last].copy()
    return ranks
