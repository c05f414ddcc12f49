"""Confidential queries on a ledger: the same ledger, prices and events as in one room.

The guardian never learns an outcome, so an entry is never settled and all of its price stays charged; its
event says so. Entries are also a party's memory: which ids were used, how much each asker was answered, which
parties answered last, and what is counted by day. Notes have no price: they say who was to blame for what.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ..errors import TellersError
from ..ledger.base import Ledger, Ticket
from ..mechanisms.suprema import with_ranges
from ..privacy.budget import Accountant
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..privacy.release import describe
from ..privacy.votes import Unit
from ._last_step import is_sum, ranges_of

OUTCOME = "at the asker"
"""What the event of an entry says of the outcome: nobody else ever sees it."""
LOST = "lost"
"""What a note says of a query that ended without a label after masks were asked for."""

Marks = Mapping[tuple[str, str, str], int]
"""How often something happened: by UTC day, what it was, and the party that it counts against."""


def utc_day() -> str:
    return datetime.now(UTC).date().isoformat()


def marked(marks: Marks, what: str, name: str | None, day: str) -> int:
    """Return how often something counts against a party, or all, on a day; what is dated later counts too.

    So a clock that is put back clears nothing.
    """
    return sum(n for (when, w, who), n in marks.items() if w == what and who == (name or who) and when >= day)


def mark(marks: Marks, what: str, name: str, day: str, n: int = 1) -> Marks:
    return {**marks, (day, what, name): marks.get((day, what, name), 0) + n}


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

    `known` are the label sets of the answering parties that it must hold for; left out, all know all.

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
    moved = moved_by(mechanism, known)
    return with_ranges(moved.price(Unit()), **ranges_of(moved)) * n_queries


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
    known: Iterable[Iterable[int]] = (),
    **more: Any,
) -> Ticket:
    """Write a query on the ledger before anything of it is revealed, and return the receipt.

    `known` are the label sets that the price must hold for; the event has the mechanism on those labels,
    which is what was paid for, and how many were asked. `more` goes into the event: the `day`; at a guardian
    `left_out`, connected parties that failed with this asker, and `excused`, those it could not make fail; at
    an answering party `went_on`, earlier queries of which it heard that they went on to their labels.
    """
    paid = moved_by(mechanism, known)
    cost = query_price(paid, n_queries)
    event = {
        **describe(paid, noise), "n_queries": n_queries, "asker": asker, "answering": list(parties),
        "outcome": OUTCOME, **more,
    }  # fmt: skip
    if not is_sum(paid):
        event["ranges"] = ranges_of(paid)
    if paid is not mechanism:
        event["of_labels"] = mechanism.n_labels
    return ledger.reserve(qid, cost, event=event)


def write_note(ledger: Ledger, key: str, words: str, **more: Any) -> None:
    """Write down, at no price, what happened; a guardian says what counts against whom."""
    ledger.reserve(key, RdpCurve.zero(), event={"noise": "secure", "note": words, **more})


Answering = tuple[tuple[str, ...], tuple[str, ...]]
"""Who answered a query, and who was excused: suspended, or failed where no asker can bring it about."""


def is_change(before: Answering | None, now: Answering, left_out: tuple[str, ...] = ()) -> bool:
    """Return whether the answering set of an asker changed, or left out a connected party."""
    if before is None:
        return bool(left_out)
    return bool(left_out) or bool((set(before[0]) ^ set(now[0])) - set(before[1]) - set(now[1]))


def remembered(ledger: Ledger) -> dict[str, Any]:
    """Return what a ledger knows of earlier sessions: used ids, queries per asker, answering sets, and marks.

    At an answering party every query counts as lost that it did not write down as one that went on.
    """
    used: set[str] = set()
    answered: dict[str, int] = {}
    last_set: dict[str, Answering] = {}
    marks: Marks = {}
    lent: dict[str, tuple[str, str, int]] = {}
    for entry in ledger.entries():
        event = entry.event
        used.add(entry.key)
        day, asker, n = str(event.get("day", "")), str(event.get("asker", "")), int(event.get("n_queries", 0))
        if event.get("outcome") in (OUTCOME, LOST):
            answered[asker] = answered.get(asker, 0) + n
        if event.get("outcome") == OUTCOME:
            parties = (tuple(event["answering"]), tuple(event.get("excused", ())))
            if is_change(last_set.get(asker), parties, event.get("left_out", ())):
                marks = mark(marks, "changed", asker, day)
            last_set[asker] = parties
        for name in event.get("blamed", ()):
            marks = mark(marks, event["what"], name, day, n if event["what"] == "wasted" else 1)
        if "went_on" in event and event.get("outcome") == OUTCOME:
            lent[entry.key] = (day, asker, n)
        for qid in event.get("went_on", ()):
            lent.pop(qid, None)
    for day, asker, n in lent.values():
        marks = mark(marks, "lost", asker, day, n)
    return {"used": frozenset(used), "answered": answered, "last_set": last_set, "marks": marks}
