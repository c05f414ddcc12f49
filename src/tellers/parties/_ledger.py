"""Confidential queries on a ledger: the same ledger, prices and events as in one room.

The guardian never learns an outcome, so an entry is never settled and all of its price stays charged; its
event says so. Entries are also the guardian's memory: which ids were used, how much each asker was answered,
and which parties answered last.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..errors import TellersError
from ..ledger.base import Ledger, Ticket
from ..mechanisms.suprema import range_price
from ..privacy.budget import Accountant
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..privacy.release import describe
from ..privacy.votes import Unit
from ._last_step import is_sum, ranges_of

OUTCOME = "at the asker"
"""What the event of an entry says of the outcome: nobody else ever sees it."""


def moved_by(mechanism: Any, known: Iterable[Iterable[int]]) -> Any:
    """Return the mechanism on the labels that whoever knows the most of them can move; `()` is all labels.

    Guarantee: the price of what is returned covers each party with one of these label sets.
    Assumes:   which labels a party knows is public and does not depend on its rows; on others it says no.
    Reference: labels have noise of their own, so the divergence is that of the labels whose sums can differ;
               for so many labels it is the same whichever they are, and more labels cost no less.
    """
    if is_sum(mechanism):  # one norm bounds all labels together
        return mechanism
    sets = [frozenset(labels) for labels in known]
    most = max(sets, key=len, default=frozenset())
    if frozenset() in sets or not most or len(most) == mechanism.n_labels:
        return mechanism
    return mechanism.on_labels(np.isin(np.arange(mechanism.n_labels), list(most)))


def query_price(mechanism: Any, n_queries: int, *, known: Iterable[Iterable[int]] = ()) -> RdpCurve:
    """Return what a batch costs whatever the votes: check and answer, as nobody sees which were silent.

    `known` are the label sets of the answering parties that it must hold for; left out, all know all labels.

    Guarantee: what the batch tells is within this curve for one ballot of one answering party, that is for
               all that this party's model was made of, and so for each of its records; whatever sums the
               asker, and whatever masks the other parties hand in (`_last_step`).
    Assumes:   nobody has records with two answering parties. Who has changes a ballot at each, which this
               price does not cover; see `Unit.of_ballots`. As `moved_by`.
    Reference: the price of the mechanism for `Unit()`, one ballot, and that of the ranges.
    """
    if is_sum(mechanism):  # each query is a sum of its own, of the whole pool
        whole: RdpCurve = mechanism.batch_price(Unit()) * n_queries
        return whole
    part = moved_by(mechanism, known)
    price: RdpCurve = (range_price(**ranges_of(part)) + part.price(Unit())) * n_queries
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
    known: Iterable[Iterable[int]] = (),
) -> Ticket:
    """Write a query on the ledger before anything of it is revealed, and return the receipt.

    `left_out` names connected parties that failed with this asker. `known` are the label sets that the price
    must hold for; the event has the mechanism on those labels, which is what was paid for, and how many were
    asked.
    """
    paid = moved_by(mechanism, known)
    cost = query_price(paid, n_queries)
    event = {
        **describe(paid, noise), "n_queries": n_queries, "asker": asker, "answering": list(parties),
        "outcome": OUTCOME, **({} if is_sum(paid) else {"ranges": ranges_of(paid)}),
    }  # fmt: skip
    if paid is not mechanism:
        event["of_labels"] = mechanism.n_labels
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
