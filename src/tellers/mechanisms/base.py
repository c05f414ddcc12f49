"""The mechanism protocol, and the same mechanism scaled to more or fewer votes."""

import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from ..errors import require_positive
from ..privacy._price import Item
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve
from ..privacy.release import Release
from ..privacy.votes import SetOf, Unit


@runtime_checkable
class Mechanism(Protocol):
    """A frozen description of one way to answer queries.

    Its fields are public and may be logged; votes arrive as arguments only. `price` and `release` are
    required; a mechanism without `outcomes` is charged its price.

    Two things a class may say of itself, as attributes that are True: `one_price`, every query costs its
    price, whatever comes out, so that what was spent is known beforehand; `symmetric`, permuted classes give
    permuted outcomes. Neither is assumed of a mechanism that does not say so, and `check_mechanism` holds it
    to its word. Where the divergence of its `outcomes` is above that of what is released, `exact_is_bound`
    says why: the exact cost is then an upper bound, and is called so.
    """

    def price(self, unit: Unit) -> RdpCurve:
        """Return the most one query can cost, whatever the votes.

        One that costs less where the number of teachers or of classes is known takes `n_teachers=` and
        `n_classes=`; one whose silence costs less than an answer has `item` beside it, see `item_of`. One
        that is paid for a whole batch, and not by the query, has `batch_price` instead, with the number of
        queries as its second argument; see `price_of`. Where it takes batches of one size alone, its field
        `n_queries` says which.
        """

    @property
    def release(self) -> Callable[..., Release]:
        """`release(votes, noise)`: draw noise and return what comes out, with its publishable cost.

        A mechanism that listens to the student takes its probabilities as `student=`, here and below.
        """

    @property
    def outcomes(self) -> Callable[..., Any]:
        """`outcomes(votes)`: how likely each outcome is, at these votes and at every neighbour.

        `Outcomes`, or for many labels `LabelOutcomes` or `PowersetOutcomes`.
        """


def price_of(
    mechanism: Any,
    unit: Unit,
    n_queries: int = 1,
    *,
    orders: ArrayLike | None = None,
    n_teachers: int | None = None,
    n_classes: int | None = None,
) -> RdpCurve:
    """Return the most that a batch of queries costs, by all that a mechanism can make use of.

    A mechanism that knows no other `orders` is asked for those of a ledger.
    """
    given: dict[str, Any] = {"orders": orders, "n_teachers": n_teachers, "n_classes": n_classes}
    by_batch = getattr(mechanism, "batch_price", None)
    accepted = inspect.signature(by_batch or mechanism.price).parameters
    known = {name: value for name, value in given.items() if value is not None and name in accepted}
    if by_batch is not None:
        return cast(RdpCurve, by_batch(unit, n_queries, **known))
    return cast(RdpCurve, mechanism.price(unit, **known) * n_queries)


def is_by_batch(mechanism: Any) -> bool:
    """Return whether a mechanism, or its class, is paid for a whole batch and not by the query."""
    return hasattr(mechanism, "batch_price")


def is_one_batch(mechanism: Any) -> bool:
    """Return whether it takes all of its queries in one batch, whose size is a field of its own."""
    declared = getattr(mechanism, "__dataclass_fields__", ())
    return is_by_batch(mechanism) and (hasattr(mechanism, "n_queries") or "n_queries" in declared)


def accountant_for(
    mechanism: Any, budget: Budget, rule: str = "renyi", *, price: RdpCurve | None = None
) -> Accountant:
    """Return the arithmetic of a ledger that is opened for a mechanism.

    A mechanism whose price is meant for one Rényi order says so in `held_at`, and one that takes a part of
    delta for a test in `test_delta`: both are fixed when the ledger is opened. So are the terms of a clock,
    for which the `price` of a query is asked.
    """
    order, for_tests = getattr(mechanism, "held_at", None), getattr(mechanism, "test_delta", 0.0)
    if rule == "clock" and (order is not None or for_tests):
        raise ValueError(
            f'Expected rule = "renyi" for {type(mechanism).__name__}, whose price is for one Rényi order and '
            f'takes a part of delta, got "{rule}".'
        )
    if order is None and not for_tests:
        return Accountant.by(rule, budget, price=price)
    return Accountant(budget, order=order, for_tests=for_tests)


def item_of(
    mechanism: Any,
    unit: Unit,
    orders: ArrayLike | None = None,
    *,
    n_teachers: int | None = None,
    n_classes: int | None = None,
) -> Item | None:
    """Return what a mechanism is paid for, a query or one label: silent (kind 0) or answered (kind 1).

    None where it does not say so, or is paid in another way.

    >>> from tellers import ConfidentGNMax, GNMax
    >>> item_of(GNMax(sigma=40.0), Unit()) is None
    True
    >>> len(item_of(ConfidentGNMax(40.0, 200, 150.0), Unit()).curves)
    2
    """
    ask = getattr(mechanism, "item", None)
    if ask is None:
        return None
    given = {"n_teachers": n_teachers, "n_classes": n_classes}
    accepted = inspect.signature(ask).parameters
    known = {name: value for name, value in given.items() if value is not None and name in accepted}
    return cast("Item | None", ask(unit, orders, **known))


def has_one_price(
    mechanism: Any, unit: Unit, *, n_teachers: int | None = None, n_classes: int | None = None
) -> bool:
    """Say whether every query costs the same, whatever comes out: by its word, or since all kinds do."""
    if getattr(mechanism, "one_price", False):
        return True
    item = item_of(mechanism, unit, n_teachers=n_teachers, n_classes=n_classes)
    return item is not None and all(
        np.array_equal(item.curves[0].values, curve.values) for curve in item.curves[1:]
    )


def label_space(mechanism: Any) -> SetOf:
    """Return the space of the votes that a mechanism of many labels takes, by what it declares."""
    parts = getattr(mechanism, "votes_resolution", getattr(mechanism, "resolution", 1))
    return SetOf(mechanism.n_labels, parts)


M = TypeVar("M")


_USUAL = {"sigma": 1, "sigma_threshold": 1, "threshold": 1, "gamma": -1}


def scaled(mechanism: M, factor: float) -> M:
    """Return the mechanism for votes that are `factor` times as many: its noise and thresholds times that.

    Multiplying every weight by a common denominator, or letting more or fewer teachers vote, changes the
    number of votes; scaled with it, a mechanism answers as accurately as before. A factor of 1 changes
    nothing. Fields say by `in_votes` that they are counted in votes (1), or in their reciprocal (-1).
    """
    require_positive(factor=factor)
    if factor == 1:
        return mechanism
    known = fields(mechanism)  # type: ignore[arg-type]
    powers = {f.name: f.metadata["in_votes"] for f in known if "in_votes" in f.metadata}
    # Fields that say nothing are what their names usually mean.
    powers = powers or {f.name: _USUAL[f.name] for f in known if f.name in _USUAL}
    if not powers:
        raise TypeError(f"Expected a mechanism with sigma or gamma, got {type(mechanism).__name__}.")
    given = {name: getattr(mechanism, name) for name in powers}
    changed: dict[str, Any] = {
        n: _tidy(value * factor if powers[n] > 0 else value / factor) for n, value in given.items()
    }
    return replace(mechanism, **changed)  # type: ignore[type-var]


def _tidy(value: float) -> float:
    # What is drawn, priced and written down is this number: 57.5 reads better than 57.49999999999999.
    return float(f"{value:.12g}")
