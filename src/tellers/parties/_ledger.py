"""Confidential queries on a ledger: the same ledger, prices and events as in one room.

The guardian never learns an outcome, so an entry is never settled and all of its price stays charged; its
event says so. Entries are also the guardian's memory: which ids were used, how much each asker was answered,
and which parties answered last.
"""

from typing import Any

from ..errors import TellersError
from ..ledger.base import Ledger, Ticket
from ..mechanisms.suprema import range_price
from ..privacy.budget import Accountant
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..privacy.release import describe
from ..privacy.votes import Unit
from ._last_step import ranges_of

OUTCOME = "at the asker"
"""What the event of an entry says of the outcome: nobody else ever sees it."""


def query_price(mechanism: Any, n_queries: int) -> RdpCurve:
    """Return what a batch costs whatever the votes: check and answer, as nobody sees which were silent.

    Guarantee: what the batch tells is within this curve for one ballot of one answering party, that is for
               all that this party's model was made of, and so for each of its records; whatever sums the
               asker, and whatever masks the other parties hand in (`_last_step`).
    Assumes:   nobody has records with two answering parties. Who has changes a ballot at each, which this
               price does not cover; see `Unit.of_ballots`.
    Reference: the price of the mechanism for `Unit()`, one ballot, and that of the ranges.
    """
    price: RdpCurve = (range_price(**ranges_of(mechanism)) + mechanism.price(Unit())) * n_queries
    return price


def affords(ledger: Ledger, price: RdpCurve) -> bool:
    """Return whether a ledger could pay a price now; one that cannot tell says so when it is charged."""
    accountant: Accountant | None = getattr(ledger, "accountant", None)
    try:
        return accountant is None or accountant.affords(ledger.spent, price)
    except (TellersError, OSError):
        return True


def charge_query(
    ledger: Ledger,
    qid: str,
    *,
    mechanism: Any,
    noise: Noise,
    n_queries: int,
    asker: str,
    parties: tuple[str, ...],
    left_out: tuple[str, ...] = (),
    price: RdpCurve | None = None,
) -> Ticket:
    """Write a query on the ledger before anything of it is revealed, and return the receipt.

    `left_out` names connected parties that failed with this asker. An answering party may give its own
    `price`.
    """
    cost = query_price(mechanism, n_queries) if price is None else price
    event = {
        **describe(mechanism, noise), "ranges": ranges_of(mechanism), "n_queries": n_queries, "asker": asker,
        "answering": list(parties), "outcome": OUTCOME,
    }  # fmt: skip
    if left_out:
        event["left_out"] = list(left_out)
    return ledger.reserve(qid, cost, event=event)


def remembered(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger knows of earlier sessions: used ids, queries per asker, and its answering sets."""
    used: set[str] = set()
    answered: dict[str, int] = {}
    last_set: dict[str, tuple[str, ...]] = {}
    changes: dict[str, int] = {}
    for entry in ledger.entries():
        used.add(entry.key)
        if entry.event.get("outcome") == OUTCOME:
            asker = str(entry.event["asker"])
            answered[asker] = answered.get(asker, 0) + int(entry.event["n_queries"])
            parties = tuple(entry.event["answering"])
            odd = last_set.get(asker, parties) != parties or bool(entry.event.get("left_out"))
            changes[asker] = changes.get(asker, 0) + odd
            last_set[asker] = parties
    return {"used": frozenset(used), "answered": answered, "last_set": last_set, "changes": changes}
