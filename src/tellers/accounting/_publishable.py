"""Which costs of a run can be published, and how fast each one moves when a ballot changes."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..mechanisms.base import Mechanism
from ..mechanisms.labels._published import labels_told
from ..mechanisms.registry import answers_of
from ..privacy.rdp import RdpCurve
from ..privacy.votes import LabelVotes, Unit, Votes

Floats = NDArray[np.float64]
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


def independent_cost(
    mechanism: Mechanism,
    n_queries: int,
    *,
    n_answers: ArrayLike | None = None,
    n_asked: int | None = None,
    orders: ArrayLike | None = None,
    unit: Unit | None = None,
) -> RdpCurve:
    """Return the public cost of a run: every check, and the answers that were given (all, if not said).

    Where a query has many labels, `n_answers` is how many queries were answered on all of them, or, with one
    number per query, how many of its labels were told; `n_asked` is how many labels were asked in all, where
    those that follow from others were not.

    It is, to the last bit, what a ledger charges for these outcomes, however they were put into batches.

    Guarantee: holds for all votes; composes adaptively, since silence is public.
    Assumes:   one unit changes one ballot, unless `unit` says otherwise; a cap on the answers, or a budget,
               was fixed before the run.
    Reference: Feldman and Zrnic 2021 (Rényi filters) for returning what a silent query did not use.
    """
    one = Unit() if unit is None else unit
    if answers_of(mechanism) == "labels" and hasattr(mechanism, "answer_price"):
        return _label_cost(mechanism, n_queries, n_answers, n_asked, orders, one)
    given = np.asarray(n_queries if n_answers is None else n_answers)
    answers = int(given) if given.ndim == 0 else int((given > 0).sum())  # of labels: queries with some told
    price, check = at_orders(mechanism.price, one, orders), getattr(mechanism, "check_price", None)
    if check is None:  # whatever was answered, every query released something
        return price * n_queries
    checks = at_orders(check, one, orders)
    if not hasattr(mechanism, "answer_price"):
        return checks * (n_queries - answers) + price * answers
    return checks * n_queries + at_orders(mechanism.answer_price, one, orders) * answers


def at_orders(price: Callable[..., RdpCurve], unit: Unit, orders: ArrayLike | None) -> RdpCurve:
    """Return a price at these orders, or at those of a ledger where a mechanism knows no others."""
    if orders is None or "orders" not in inspect.signature(price).parameters:
        return price(unit)
    return price(unit, orders=orders)


def _label_cost(
    mechanism: Any,
    n_queries: int,
    n_answers: ArrayLike | None,
    n_asked: int | None,
    orders: ArrayLike | None,
    unit: Unit,
) -> RdpCurve:
    told = labels_told(mechanism, n_queries, n_answers)
    asked_price = getattr(mechanism, "asked_price", None)
    cost: RdpCurve
    if n_asked is None or asked_price is None:
        cost = mechanism.check_price(unit, orders) * n_queries
    else:
        cost = asked_price(unit, n_asked, orders)
    for n_told, times in zip(*np.unique(told[told > 0], return_counts=True), strict=True):
        cost = cost + mechanism.answer_price(unit, n_labels=int(n_told), orders=orders) * int(times)
    return cost


def cost_and_sensitivities(
    mechanism: Mechanism,
    votes: Votes | LabelVotes,
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
    votes: Votes | LabelVotes,
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
