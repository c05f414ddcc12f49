"""Programs computed in the clear: for tests, and for an answerer who wants to see its own votes.

The same circuits on the same integers modulo 2^64 as on shares, without the engine, so that equal means equal
in every bit. Nothing here is used when parties compute together.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._circuits import build_circuit
from ._ring import Integers
from .programs import DecisionProgram, Program, VoteProgram


def clear_votes(program: VoteProgram, model: Mapping[str, Integers], x: Integers) -> Integers:
    """Return an answerer's votes without the mask: queries x outputs of 0 and 1; private.

    >>> program = VoteProgram(model="linear", task="single", n_features=1, n_outputs=2, batch=1)
    >>> clear_votes(program, {"weights0": np.array([[3, 5]]), "offsets0": np.array([0, 0])}, np.array([[7]]))
    array([[0, 1]])
    """
    return _outcome(program, {**model, "x": x, "mask": np.int64(0)})


def clear_decision(program: DecisionProgram, shares: Integers, guardian: Mapping[str, Integers]) -> Integers:
    """Return the labels that asker and guardian would find, a class or a row of labels per query.

    This is the circuit's arithmetic, with ties and bars folded into the guardian's numbers. What it should
    come to is defined by `last_step.decide`; a test holds the two equal.

    >>> program = DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=3)
    >>> nothing = [[0, 0]]
    >>> given = program.guardian_inputs([[1, 0]], answer_noise=nothing, range_noise=nothing, ranks=[[0, 1]])
    >>> clear_decision(program, np.array([[0, 2]]), given)
    array([1])
    """
    return clear_outcome(program, shares, guardian)[0]


def clear_outcome(
    program: DecisionProgram, shares: Integers, guardian: Mapping[str, Integers]
) -> tuple[Integers, NDArray[np.bool_]]:
    """Return the labels of `clear_decision`, and which of them are void."""
    codes = program.fresh_codes()
    return program.decode(_outcome(program, {**guardian, "shares": shares, "codes": codes}), codes)


def _outcome(program: Program, tables: Mapping[str, Any]) -> Integers:
    with np.errstate(over="ignore"):
        return np.asarray(build_circuit(program, np)(*(tables[slot.name] for slot in program.slots)))
