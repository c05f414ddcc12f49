"""Which costs of a run can be published, and how fast each one moves when a ballot changes."""

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from ..mechanisms.base import Mechanism
from ..privacy.rdp import Floats
from ..privacy.votes import Votes

Method = Literal["envelope", "gnss", "independent"]
"""`envelope`: the gap envelope of the exact cost, or, of free ballots on many labels, the exact cost itself;
`gnss`: the papers' bound, forward direction only; `independent`: the data-independent price, which needs no
release."""


def available_methods(mechanism: Mechanism) -> tuple[Method, ...]:
    """Return how the cost of this mechanism can be published."""
    own: tuple[Method, ...] = getattr(mechanism, "publishable", ())
    return (*own, "independent")


def require_method(mechanism: Mechanism, method: str) -> None:
    """Refuse a method that this mechanism does not have."""
    possible = available_methods(mechanism)
    if method not in possible:
        raise ValueError(
            f"Expected one of {', '.join(possible)} to publish the cost of {type(mechanism).__name__}, "
            f"got {method!r}."
        )


def cost_and_sensitivities(
    mechanism: Mechanism,
    votes: Votes,
    *,
    order: float,
    method: Method,
    answered: ArrayLike | None = None,
    offset: float | None = None,
) -> tuple[float, Floats]:
    """Return a cost of the run at one order and its local sensitivity at distance 0, 1, 2, ...; private.

    With an `offset`, which many labels and the gap envelope of GNMax may have, both are of
    log(1 + cost / offset).

    Guarantee: `envelope` bounds both directions over the whole outcome space of every query; `gnss` is the
               2018 (LNMax: 2017) bound of the forward direction, with `answered` along the path taken.
    Assumes:   the order was fixed before voting.
    Reference: "Publishing a cost close to the exact one"; Papernot et al. 2018, appendix B.
    """
    require_method(mechanism, method)
    if offset is not None:
        total, local_logs = log_cost_and_sensitivities(
            mechanism, votes, order=order, offsets=[offset], method=method
        )
        return float(np.log1p(total / offset)), local_logs[0]
    asked: Any = mechanism
    if method == "envelope":
        cost = asked.envelope(votes, order=order)
        return cost.total, cost.local
    # A mechanism with one price answers every query, whatever a mask says.
    mask = None if getattr(mechanism, "one_price", False) else answered
    return cast(tuple[float, Floats], asked.published_sensitivities(votes, order=order, answered=mask))


def has_logarithm(mechanism: Mechanism, method: Method) -> bool:
    """Say whether the logarithm of this cost may be published instead of the cost."""
    return method == "envelope" and hasattr(mechanism, "log_envelope")


def log_cost_and_sensitivities(
    mechanism: Mechanism,
    votes: Votes,
    *,
    order: float,
    offsets: Sequence[float],
    method: Method = "envelope",
) -> tuple[float, Floats]:
    """Return a cost, and how fast log(1 + cost / offset) moves, (offsets, distance 0, 1, 2, ...); private.

    Guarantee: entry d bounds what one more changed ballot does to the logarithm once d of them have changed;
               entries of neighbours interleave.
    Assumes:   order and offsets were fixed before voting.
    Reference: "Publishing a cost close to the exact one", section on the logarithm; "Many labels".
    """
    asked: Any = mechanism
    if not has_logarithm(mechanism, method):
        raise ValueError(
            f"Expected no offset for {method} and {type(mechanism).__name__}: the logarithm of a cost is "
            "published for GNMax and for many labels, by their envelopes. Plan again for these votes."
        )
    return cast(tuple[float, Floats], asked.log_envelope(votes, order=order, offsets=offsets))
