"""Old books at today's prices: what every release on a ledger would be charged by this version's accountant.

The words of an event never change their meaning, so that a proof found later lowers the price of what was
released before. The ledger itself stays as it is: a budget was spent at the prices of its day.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ..accounting.costs import independent_cost
from ..ledger.base import Entry
from ..mechanisms.base import Mechanism
from ..mechanisms.gnmax import GNMax
from ..mechanisms.registry import EVENTS
from ..mechanisms.suprema import range_price
from ..privacy._price import delta_of, with_delta
from ..privacy.rdp import RdpCurve
from ..privacy.release import SILENT
from ..privacy.votes import Unit


@dataclass(frozen=True, eq=False)
class Repriced:
    """One question: what it was charged, and what it costs by today's accountant, or why nobody knows."""

    key: str
    mechanism: str
    n_queries: int | None
    charged: RdpCurve
    repriced: RdpCurve | None
    why: str = ""


@dataclass(frozen=True, eq=False)
class Repricing:
    """All questions of a ledger, and their sums. What cannot be priced counts as it was charged."""

    questions: tuple[Repriced, ...]
    charged: RdpCurve
    repriced: RdpCurve


def reprice(entries: Iterable[Entry]) -> Repricing:
    """Return what the questions on a ledger were charged, and what they cost by today's accountant.

    Guarantee: `repriced` bounds the cost of the same releases at every order, as `charged` does. Each is a
               sum over a list of releases; what was guaranteed while they were made is the ledger's budget.
    Assumes:   every event says truly which mechanism answered, with which parameters and how many queries.
    Reference: see `accounting._publishable.independent_cost`.

    >>> import numpy as np
    >>> from tellers import Accountant, Budget, Cost, GNMax, MemoryLedger, Release, describe, noise
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=9.0, delta=1e-5)))
    >>> mechanism = GNMax(sigma=40.0)
    >>> event = {**describe(mechanism, noise.secure()), "n_queries": 1}
    >>> dear = RdpCurve.zcdp(1 / 40**2)  # what 2018 charged
    >>> ledger.settle(ledger.reserve("q0", dear, event=event), Release(np.array([3]), Cost(dear)))
    >>> again = reprice(ledger.entries())
    >>> again.repriced.epsilon(1e-5) < again.charged.epsilon(1e-5)
    True
    """
    questions = tuple(_reprice(entry) for entry in entries)
    charged = repriced = RdpCurve.zero()
    for question in questions:
        charged = charged + question.charged
        repriced = repriced + (question.charged if question.repriced is None else question.repriced)
    return Repricing(questions, charged, repriced)


def _reprice(entry: Entry) -> Repriced:
    event, release = entry.event, entry.release
    named = str(event.get("mechanism", ""))
    n_queries = event.get("n_queries", None if release is None else len(release))
    if named not in EVENTS:
        why = f"{named} is not a mechanism of this version" if named else "the event names no mechanism"
        return Repriced(entry.key, named, n_queries, entry.charged, None, why)
    if event.get("unit") != "one ballot":
        why = "the event does not say that one unit changes one ballot"
        return Repriced(entry.key, named, n_queries, entry.charged, None, why)
    if type(n_queries) is not int or n_queries < 0:
        why = "the event does not say how many queries were asked"
        return Repriced(entry.key, named, None, entry.charged, None, why)
    if release is not None and len(release) != n_queries:
        why = "the event says another number of queries than were answered"
        return Repriced(entry.key, named, n_queries, entry.charged, None, why)
    try:
        mechanism: Mechanism = EVENTS[named](**event.get("parameters", {}))
        ranges = range_price(**event["ranges"]) * n_queries if "ranges" in event else RdpCurve.zero()
    except (TypeError, ValueError):
        why = "its parameters are not those of this version"
        return Repriced(entry.key, named, n_queries, entry.charged, None, why)
    # A question without an outcome stays charged as if every query had been answered.
    # Of many labels per query, each query's are counted.
    n_answers = None if release is None else release.answered.sum(axis=-1)
    # What was neither told nor left silent follows from other labels, and was not asked.
    asked = None if release is None else int((release.answered | (release.labels == SILENT)).sum())
    known = {name: event[name] for name in ("n_teachers", "n_classes") if type(event.get(name)) is int}
    cost = independent_cost(mechanism, int(n_queries), n_answers=n_answers, n_asked=asked, **known)
    if event.get("outcome") == "at the asker" and "ranges" not in event:
        # Asked before sums were held to a range: an asker could turn comparisons of classes round.
        if named == "ConfidentGNMax":
            why = "its check has no price for an asker that changed its sum"
            return Repriced(entry.key, named, n_queries, entry.charged, None, why)
        if isinstance(mechanism, GNMax):
            cost = mechanism.histogram_price(Unit()) * int(n_queries)
    cost = cost + ranges  # what parties are told of votes out of range
    cost = with_delta(cost, max(delta_of(cost), delta_of(entry.charged)))  # a test keeps its part of delta
    return Repriced(entry.key, named, int(n_queries), entry.charged, cost)
