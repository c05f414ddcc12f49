"""Which costs of a run can be published, and how fast each one moves when a ballot changes."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import bounds, sensitivity
from .envelope import confident_envelope, gap_cost, gap_envelope, gap_log_moves, top_and_gap_cost
from .label_bounds import LabelMechanism, labels_told
from .label_envelope import (
    has_label_envelope,
    label_cost_and_sensitivities,
    label_log_cost_and_sensitivities,
)
from .label_votes import LabelVotes
from .mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism
from .mechanisms.confident import check_price
from .mechanisms.gnmax import answer_price
from .mechanisms.labels.powerset import SetVoting
from .mechanisms.lnmax import laplace_price
from .rdp import RdpCurve
from .votes import Unit, Votes

Floats = NDArray[np.float64]
Method = Literal["envelope", "gnss", "independent"]
"""`envelope`: the gap envelope of the exact cost, or, of free ballots on many labels, the exact cost itself;
`gnss`: the papers' bound, forward direction only; `independent`: the data-independent price, which needs no
release."""


def available_methods(mechanism: Mechanism) -> tuple[Method, ...]:
    """Return how the cost of this mechanism can be published.

    >>> available_methods(LNMax(gamma=0.05))
    ('gnss', 'independent')
    """
    if isinstance(mechanism, (GNMax, ConfidentGNMax)):
        return ("envelope", "gnss", "independent")
    if isinstance(mechanism, LNMax):
        return ("gnss", "independent")
    if has_label_envelope(mechanism):
        return ("envelope", "independent")
    return ("independent",)


def require_method(mechanism: Mechanism, method: str) -> None:
    """Refuse a method that this mechanism does not have.

    >>> require_method(LNMax(gamma=0.05), "envelope")
    Traceback (most recent call last):
        ...
    ValueError: Expected one of gnss, independent to publish the cost of LNMax, got 'envelope'.
    """
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

    >>> from tellers import GNMax
    >>> round(independent_cost(GNMax(sigma=40.0), 461).epsilon(1e-5), 2)
    2.69
    """
    one = Unit() if unit is None else unit
    kind: Any = mechanism  # a label mechanism has outcomes of its own kind
    if isinstance(kind, LabelMechanism):
        return _label_cost(kind, n_queries, n_answers, n_asked, orders, one)
    answers = n_queries if n_answers is None else int(np.asarray(n_answers))
    if isinstance(mechanism, GNMax):
        return answer_price(mechanism.sigma, one, orders) * n_queries
    if isinstance(mechanism, (ConfidentGNMax, InteractiveGNMax)):
        checks = check_price(mechanism.sigma_threshold, one, orders) * n_queries
        return checks + answer_price(mechanism.sigma, one, orders) * answers
    if isinstance(mechanism, LNMax) and one == Unit():
        return laplace_price(mechanism.gamma, orders) * n_queries
    check = getattr(mechanism, "check_price", None)
    if check is None:  # whatever was answered, every query released something
        return mechanism.price(one) * n_queries
    silent: RdpCurve = check(one) * (n_queries - answers)
    return silent + mechanism.price(one) * answers


def _label_cost(
    mechanism: LabelMechanism,
    n_queries: int,
    n_answers: ArrayLike | None,
    n_asked: int | None,
    orders: ArrayLike | None,
    unit: Unit,
) -> RdpCurve:
    told = labels_told(mechanism, n_queries, n_answers)
    asked_price = getattr(mechanism, "asked_price", None)
    if n_asked is None or asked_price is None:
        cost = mechanism.check_price(unit, orders) * n_queries
    else:
        cost = asked_price(unit, n_asked, orders)
    for n_told, times in zip(*np.unique(told[told > 0], return_counts=True), strict=True):
        if isinstance(mechanism, SetVoting):
            cost = cost + mechanism.answer_price(unit, orders) * int(times)
        else:
            cost = cost + mechanism.answer_price(unit, int(n_told), orders) * int(times)
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

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_counts([[240, 10]], n_teachers=250)
    >>> total, local = cost_and_sensitivities(GNMax(sigma=40.0), votes, order=12.0, method="envelope")
    >>> total > 0, bool(np.all(np.diff(local) >= 0))
    (True, True)
    """
    require_method(mechanism, method)
    if offset is not None:
        total, local_logs = log_cost_and_sensitivities(
            mechanism, votes, order=order, offsets=[offset], method=method
        )
        return float(np.log1p(total / offset)), local_logs[0]
    if isinstance(votes, LabelVotes):
        free: Any = mechanism  # no other has an envelope
        return label_cost_and_sensitivities(free, votes, order)
    if method == "envelope":
        return _envelope(mechanism, votes, order)
    if isinstance(mechanism, LNMax):
        counts, n, gamma = votes.counts, votes.n_teachers, mechanism.gamma
        return (
            sensitivity.lnmax_cost(counts, n, gamma=gamma, order=order, drawn=True),
            sensitivity.lnmax_local_sensitivities(counts, n, gamma=gamma, order=order, drawn=True),
        )
    return _published(mechanism, votes, order, answered)


def has_logarithm(mechanism: Mechanism, method: Method) -> bool:
    """Say whether the logarithm of this cost may be published instead of the cost.

    >>> from tellers import GNMax
    >>> has_logarithm(GNMax(sigma=40.0), "envelope"), has_logarithm(GNMax(sigma=40.0), "gnss")
    (True, False)
    """
    return method == "envelope" and (isinstance(mechanism, GNMax) or has_label_envelope(mechanism))


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

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_counts([[240, 10]], n_teachers=250)
    >>> total, local = log_cost_and_sensitivities(GNMax(40.0), votes, order=12.0, offsets=[0.01, 0.1])
    >>> total > 0, local.shape
    (True, (2, 126))
    """
    kind: Any = mechanism  # a label mechanism has outcomes of its own kind
    if not has_logarithm(mechanism, method):
        raise ValueError(
            f"Expected no offset for {method} and {type(mechanism).__name__}: the logarithm of a cost is "
            "published for GNMax and for many labels, by their envelopes. Plan again for these votes."
        )
    if isinstance(votes, LabelVotes):
        return label_log_cost_and_sensitivities(kind, votes, order, offsets=offsets)
    table = gap_envelope(votes.n_teachers, votes.n_classes, sigma=kind.sigma, order=order)
    return gap_cost(table, votes.gap).total, gap_log_moves(table, votes.gap, offsets)


def _envelope(mechanism: Mechanism, votes: Votes, order: float) -> tuple[float, Floats]:
    if isinstance(mechanism, ConfidentGNMax):
        table = confident_envelope(
            votes.n_teachers,
            votes.n_classes,
            sigma=mechanism.sigma,
            order=order,
            threshold=mechanism.threshold,
            sigma_threshold=mechanism.sigma_threshold,
        )
        cost = top_and_gap_cost(table, votes.top, votes.gap)
    else:
        assert isinstance(mechanism, GNMax)
        cost = gap_cost(
            gap_envelope(votes.n_teachers, votes.n_classes, sigma=mechanism.sigma, order=order), votes.gap
        )
    return cost.total, cost.local


def _published(
    mechanism: Mechanism, votes: Votes, order: float, answered: ArrayLike | None
) -> tuple[float, Floats]:
    assert isinstance(mechanism, (GNMax, ConfidentGNMax))
    n = votes.n_teachers
    mask = np.ones(len(votes), bool) if answered is None else np.asarray(answered, dtype=bool)
    total, local = 0.0, np.zeros(n + 1)
    if isinstance(mechanism, ConfidentGNMax):
        sigma = mechanism.sigma_threshold
        margins = bounds.check_margins(votes, mechanism.threshold)
        logs = bounds.log_accept(margins, sigma, drawn=True)
        total += float(bounds.threshold_bound(*logs, sigma_threshold=sigma, orders=[order]).sum())
        lowest, highest = sensitivity.threshold_limits(mechanism.threshold, n, votes.n_classes)
        local += sensitivity.threshold_local_sensitivities(
            margins, n, sigma_threshold=sigma, order=order, lowest=lowest, highest=highest, drawn=True
        )
    else:
        mask = np.ones(len(votes), bool)
    if mask.any():
        counts = votes.counts[mask]
        total += sensitivity.gnmax_cost(counts, n, sigma=mechanism.sigma, order=order, drawn=True)
        local += sensitivity.gnmax_local_sensitivities(
            counts, n, sigma=mechanism.sigma, order=order, drawn=True
        )
    return total, local
