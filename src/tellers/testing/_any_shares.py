"""What parties decide together, whatever a party that lies hands in: part of `check_mechanism`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms.registry import answers_of
from ..parties._last_step import decision_of
from ..parties._ring import Integers, fresh_mask, ring_scaled, ring_sum
from ..parties.clear import clear_outcome
from ..parties.programs import DecisionProgram
from ..privacy.release import SILENT
from ._require import require

_N, _FAR = 7, 30
_LINE = np.arange(-_FAR, _FAR + 1)


def check_any_shares(mechanism: Any) -> None:
    """Require of a mechanism that parties compute: whatever is added to the shares, noise hides one vote.

    An asker that lies adds what it likes to its sum, modulo 2^64, and so may whoever sends a mask. For
    offsets about 0, the ends of the ranges and the places where the ring turns round, and for every split of
    the votes on two classes (or every sum of a label), what is told is looked at along the noise that should
    hide it: whether the row is void along that of the ranges, whether it is silent along that of the check,
    and which class or label it is along that of the answer. It must be cut in two there at most once, the
    same way round for all votes, at a place that one vote moves by one, and by two where two counts are
    compared. Two cuts would leave a gap that some votes have and their neighbours do not.

    Guarantee: every whole number of the noise within 30 votes is looked at, at every offset above.
    Assumes:   what holds at these offsets holds at others. The law itself is held against the price on small
               rings, over all offsets, in the tests of parties.
    """
    is_for_labels = answers_of(mechanism) == "labels"
    n_outputs = mechanism.n_labels if is_for_labels else 3
    rule = decision_of(mechanism, n_outputs=n_outputs, n_answering=_N)
    for added in _offsets(rule):
        for hidden_by in ("answer", "range", *(["check"] if rule.is_confident else [])):
            lines = np.array([_told(rule, hidden_by, added, k) for k in range(_N + 1)])
            most = 2 if hidden_by == "answer" and not is_for_labels else 1
            where = f"along the noise of the {hidden_by}, where {added.tolist()} is added to a sum"
            _require_one_cut(lines, where, most=most)


def _offsets(rule: DecisionProgram) -> Iterator[Integers]:
    places = (
        0,
        rule.reach,
        -rule.reach,
        2**62,
        -(2**62),
        2**63 // rule.tie_scale,
        -(2**63) // rule.tie_scale,
    )
    for place in (*places, -(2**63)):
        for near in (-11, -_N, -3, 0, 1, _N, 11):
            moved = place + near
            for other in (0, -moved, moved):
                added = np.zeros(rule.n_outputs, dtype=object)
                added[0] = moved
                added[1:2] = other
                yield np.array((added + 2**63) % 2**64 - 2**63, dtype=np.int64)


def _told(rule: DecisionProgram, hidden_by: str, added: Integers, k: int) -> NDArray[np.bool_]:
    """Return what is told of class or label 0 along a noise, where k votes and what was added are for it."""
    program = replace(rule, batch=_LINE.size)
    shape = program.tally_shape
    masks, tally = fresh_mask(shape), np.broadcast_to(added, shape).copy()
    tally[:, :2] = ring_sum([tally[:, :2], np.broadcast_to([k, _N - k][: shape[1]], tally[:, :2].shape)])
    # The other noises are such that most is told: ranges and checks pass, if noise can bring that about.
    near = np.abs(tally.astype(np.float64)) < 3 * rule.reach + _FAR
    drawn = {"answer": np.zeros(shape, dtype=np.int64), "range": np.where(near, -tally, 0)}
    if program.is_confident:
        drawn["check"] = np.full(shape if program.is_multilabel else (shape[0], 1), 2**30)
    if hidden_by == "range":
        drawn["range"][:, 0] = _LINE
    else:
        drawn[hidden_by][:, 0] = _LINE
    ranks = None if program.is_multilabel else np.tile(np.arange(shape[1]), (shape[0], 1))
    given = program.guardian_inputs(
        masks, answer_noise=drawn["answer"], range_noise=drawn["range"], ranks=ranks,
        check_noise=drawn.get("check"),
    )  # fmt: skip
    labels, void = clear_outcome(program, ring_sum([tally, ring_scaled(masks, -1)]), given)
    if program.is_multilabel:
        labels, void = labels[:, 0], void[:, 0]
    if hidden_by == "answer":
        return np.asarray(labels == (1 if program.is_multilabel else 0))
    return np.asarray(void if hidden_by == "range" else labels == SILENT)


def _require_one_cut(lines: NDArray[np.bool_], where: str, *, most: int) -> None:
    cuts = lines[:, 1:] != lines[:, :-1]
    require(bool((cuts.sum(axis=1) <= 1).all()), f"Expected one cut {where}, found several.")
    ways = lines[cuts.any(axis=1)][:, 0]
    require(len(set(ways)) <= 1, f"Expected cuts the same way round {where}, found both.")
    # A cut that moves by one changes what is told at one place.
    moved = int((lines[1:] != lines[:-1]).sum(axis=1).max())
    require(
        moved <= most, f"Expected a vote to move a cut by {most} at most {where}, one moved it by {moved}."
    )
