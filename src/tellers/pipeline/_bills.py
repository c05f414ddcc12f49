"""What a publication costs, and how it stands on the books of a run: under one key, charged once.

    reserved             the price is charged; a number may have been drawn, and nobody has seen it
    settled, a value     the number is on the ledger, in millionths; whoever asks again is shown this one
    settled, no value    by an earlier version: the number is in the folder, or was lost and is paid for

A reservation that a dead process left is used by the next call: what was drawn for it and lost was never
shown, so that what anybody sees is one draw at one price.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ..ledger import Ledger
from ..ledger.base import Entry
from ..rdp import RdpCurve
from ..smooth import PublishPlan
from .groups import publications_of


@dataclass(frozen=True, eq=False)
class Bill:
    """What is charged: to the main account, to those of groups, and what each line of the publication pays.

    >>> Bill(RdpCurve.zero(), {}, {"mechanism": "Publication"}, {}).event
    {'mechanism': 'Publication'}
    """

    price: RdpCurve
    also: Mapping[str, RdpCurve]
    event: dict[str, Any]
    by_name: Mapping[str, RdpCurve]


def has_value(entry: Entry) -> bool:
    """Say whether the number that was published is on the ledger.

    >>> has_value(Entry("4f1a:publication/0", {}, RdpCurve.zero(), charged=RdpCurve.zero()))
    False
    """
    return entry.is_settled and entry.release is not None and len(entry.release) > 0


def publication_on(ledger: Ledger, key: str) -> tuple[str, Entry | None]:
    """Return the key under which a run publishes, and what is on the books there, if anything is.

    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> publication_on(MemoryLedger(Accountant(Budget(1.0, 1e-5))), "4f1a")
    ('4f1a:publication/0', None)
    """
    begins, old = publications_of(key), 0
    for entry in ledger.entries():
        if entry.key.startswith(begins):
            if not entry.is_settled or has_value(entry):
                return entry.key, entry
            old += 1
    return f"{begins}{old}", None


def settled_without_value(ledger: Ledger, key: str) -> list[Entry]:
    """Return the publications of earlier versions, which kept their number in the folder alone.

    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> settled_without_value(MemoryLedger(Accountant(Budget(1.0, 1e-5))), "4f1a")
    []
    """
    begins = publications_of(key)
    return [e for e in ledger.entries() if e.key.startswith(begins) and e.is_settled and not has_value(e)]


def before_on(ledger: Ledger, key: str, account: str | None, order: float) -> Iterator[float]:
    """Yield what each publication of an earlier version cost an account, or the main one, at an order.

    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> list(before_on(MemoryLedger(Accountant(Budget(1.0, 1e-5))), "4f1a", None, 8.0))
    []
    """
    for entry in settled_without_value(ledger, key):
        paid = entry.charged if account is None else entry.also[account].charged
        # A Rényi divergence grows with its order: between two of the grid the next one bounds it.
        yield float(paid.values[np.searchsorted(paid.orders, order)])


def up_to(ledger: Ledger, entry: Entry | None) -> Iterator[Entry]:
    """Yield what is on the books as far as an entry, which comes last, or all of it.

    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> list(up_to(MemoryLedger(Accountant(Budget(1.0, 1e-5))), None))
    []
    """
    for each in ledger.entries():
        yield each
        if entry is not None and each.key == entry.key:
            return


def plan_of(event: Mapping[str, Any]) -> PublishPlan:
    """Return the plan that an event on the books was charged for.

    >>> plan = {"method": "envelope", "order": 12.0, "beta": 0.02, "sigma_release": 30.0, "confidence": 0.95,
    ...         "expected_epsilon": 1.0, "offset": None, "n_releases": 2, "shares": {"low": 1.0}}
    >>> plan_of({"parameters": plan}).order
    12.0
    """
    known = {field.name for field in fields(PublishPlan)}
    return PublishPlan(**{name: value for name, value in event["parameters"].items() if name in known})
