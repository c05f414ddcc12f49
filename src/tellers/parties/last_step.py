"""The last step of a confidential query: what the guardian puts in, and what is computed of it.

The asker holds a, the sum of its shares, and the guardian the sum of the masks; both together are the tally.
Everything else that is secret, the noise and how ties are broken, goes into the guardian's part, and
what is public about a decision, thresholds and numbers of voters, is folded in there too. The programs are
then few, and the same for any number of answering parties:

    argmax            argmax_j (scale a_j + p0_j)                                       one class
    checked argmax    the same if any a_j + p1_j >= 0, else silence                     one class
    signs             a_j + p0_j >= 0                                                   yes or no per label
    checked signs     the same where a_j + p1_j >= 0 or p2_j - a_j >= 0, else silence   yes or no per label

All of it wraps around at 2^64. `scale` makes room below a vote for ranks, drawn anew for each query, so that
an arg max that takes the first of equals breaks ties uniformly: that is what GNMax is priced for.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..mechanisms import ConfidentGNMax, GNMax
from ..mechanisms.check import whole_thresholds
from ..mechanisms.labels import Binary, ConfidentBinary, ConfidentTau, GNThreshold, Tau
from ..mechanisms.labels.perlabel import PerLabel
from ..noise import Noise
from ..release import SILENT
from .ring import Integers, ring_scaled, ring_sum

PROGRAMS: Final = {"argmax": 1, "checked argmax": 2, "signs": 1, "checked signs": 3}
"""How many parts the guardian puts into each program of the last step."""

CONFIDENTIAL: Final = (GNMax, ConfidentGNMax, Binary, ConfidentBinary, Tau, ConfidentTau, GNThreshold)
"""The mechanisms whose last step can be computed without anybody seeing a tally."""


@dataclass(frozen=True, eq=False)
class LastStep:
    """The guardian's private input to the last step, and the public program that it is for.

    `parts` are (parts, queries, outputs); they hold masks and noise, and are shown to nobody.

    >>> LastStep("signs", 1, np.zeros((1, 5, 3), dtype=np.int64))
    LastStep(program='signs', scale=1)
    """

    program: str
    scale: int
    parts: Integers = field(repr=False)

    def __post_init__(self) -> None:
        if self.program not in PROGRAMS or self.parts.shape[:1] != (PROGRAMS[self.program],):
            raise ValueError(f"Expected the parts of one of {', '.join(PROGRAMS)}, got {self.program!r}.")


def require_confidential(mechanism: Any) -> None:
    """Refuse mechanisms that the last step has no program for.

    >>> from tellers import LNMax
    >>> require_confidential(LNMax(gamma=0.1))
    Traceback (most recent call last):
        ...
    TypeError: Expected a mechanism that parties can compute, one of GNMax, ..., got LNMax. ...
    """
    if not isinstance(mechanism, CONFIDENTIAL):
        known = ", ".join(kind.__name__ for kind in CONFIDENTIAL)
        raise TypeError(
            f"Expected a mechanism that parties can compute, one of {known}, got {type(mechanism).__name__}. "
            "Choose one of them, or vote in one room."
        )


def program_of(mechanism: Any) -> str:
    """Return which program decides for a mechanism; it is public.

    >>> from tellers import ConfidentBinary
    >>> program_of(GNMax(sigma=5.0)), program_of(ConfidentBinary(5.0, 3, threshold=4, sigma_threshold=5.0))
    ('argmax', 'checked signs')
    """
    require_confidential(mechanism)
    if isinstance(mechanism, PerLabel):
        return "checked signs" if mechanism.has_bar else "signs"
    return "argmax" if isinstance(mechanism, GNMax) else "checked argmax"


def scale_of(mechanism: Any, n_outputs: int) -> int:
    """Return what the asker's sum is multiplied by in the last step; it is public.

    >>> scale_of(GNMax(sigma=5.0), 10)
    16
    """
    if isinstance(mechanism, PerLabel):
        return 1
    return 1 << max(1, n_outputs - 1).bit_length()


def prepare(mechanism: Any, masks: Integers, *, n_answering: int, noise: Noise) -> LastStep:
    """Return the guardian's part of the last step: the masks' sum, with the mechanism's fresh noise.

    Guarantee: what the program computes from it and from the asker's sum has the law of
               `mechanism.release` on the tally, so it costs what the mechanism charges, whatever the tally.
    Assumes:   whole votes of parties that wrap around nowhere: fewer than 2^40 of them.
    Reference: Choquette-Choo et al. 2021 (CaPC), step 3; noise as in `tellers.noise`.

    >>> from tellers import noise
    >>> from tellers.parties.ring import fresh_mask, ring_sum
    >>> masks, tally = fresh_mask((1, 3)), np.array([[0, 90, 10]])
    >>> step = prepare(GNMax(sigma=2.0), masks, n_answering=100, noise=noise.secure())
    >>> evaluate(step, ring_sum([tally, -masks]))
    array([1])
    """
    program = program_of(mechanism)
    require_outputs(mechanism, masks.shape)
    n_queries, n_outputs = masks.shape
    if isinstance(mechanism, PerLabel):
        law, checks = mechanism.law(n_answering), []
        # In the order of `release`: the same seed then gives the same labels, here and in one room.
        if law.bar is not None:
            checked = noise.discrete_gaussian(law.bar.sigma, masks.shape) - law.bar.height
            checks = [ring_sum([masks, checked]), ring_sum([-masks, checked + law.bar.total])]
        drawn = noise.discrete_gaussian(law.sigma, masks.shape)
        return LastStep(program, 1, np.stack([ring_sum([masks, drawn - law.threshold]), *checks]))
    scale, checks = scale_of(mechanism, n_outputs), []
    if isinstance(mechanism, ConfidentGNMax):
        checked = noise.discrete_gaussian(mechanism.sigma_threshold, (n_queries, 1))
        checked = checked - whole_thresholds(mechanism.threshold)
        checks = [ring_sum([masks, np.broadcast_to(checked, masks.shape)])]
    drawn = noise.discrete_gaussian(mechanism.sigma, masks.shape)
    answer = ring_scaled(ring_sum([masks, drawn]), scale)
    return LastStep(
        program, scale, np.stack([ring_sum([answer, _ranks(n_queries, n_outputs, noise)]), *checks])
    )


def evaluate(step: LastStep, asker_sum: Integers) -> Integers:
    """Return what the program of the last step computes, in the clear: its definition, for tests.

    >>> step = LastStep("signs", 1, np.array([[[-3, -3]]]))
    >>> evaluate(step, np.array([[4, 2]]))
    array([[1, 0]])
    """
    first = ring_sum([ring_scaled(asker_sum, step.scale), step.parts[0]])
    if step.program == "argmax":
        return np.asarray(first.argmax(axis=1), dtype=np.int64)
    if step.program == "signs":
        return (first >= 0).astype(np.int64)
    reached = ring_sum([asker_sum, step.parts[1]]) >= 0
    if step.program == "checked argmax":
        return np.where(reached.any(axis=1), first.argmax(axis=1), SILENT)
    reached |= ring_sum([-asker_sum, step.parts[2]]) >= 0
    return np.where(reached, (first >= 0).astype(np.int64), SILENT)


def require_outputs(mechanism: Any, shape: tuple[int, ...]) -> None:
    """Refuse tallies that are not queries x outputs, or on other labels than the mechanism has.

    >>> require_outputs(GNMax(sigma=5.0), (3, 1))
    Traceback (most recent call last):
        ...
    ValueError: Expected queries x at least 2 classes, got shape (3, 1).
    """
    n_labels = getattr(mechanism, "n_labels", None)
    if n_labels is None and (len(shape) != 2 or shape[1] < 2):
        raise ValueError(f"Expected queries x at least 2 classes, got shape {shape}.")
    if n_labels is not None and (len(shape) != 2 or shape[1] != n_labels):
        raise ValueError(f"Expected queries x the {n_labels} labels of the mechanism, got shape {shape}.")


def _ranks(n_queries: int, n_outputs: int, noise: Noise) -> Integers:
    """Return for each query its outputs in an order of their own, all orders equally likely."""
    ranks = np.tile(np.arange(n_outputs, dtype=np.int64), (n_queries, 1))
    rows = np.arange(n_queries)
    for last in range(n_outputs - 1, 0, -1):
        other = noise.integers_below(np.full(n_queries, last + 1, dtype=np.int64))
        ranks[rows, last], ranks[rows, other] = ranks[rows, other], ranks[rows, last].copy()
    return ranks
