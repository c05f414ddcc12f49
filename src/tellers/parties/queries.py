"""What a guardian remembers of queries on their way, and what it does next."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from .messages import Aborted, Closed, Message
from .ring import Integers

FREE: Final = "Nothing was charged."
"""What an asker is told of every query that ended before anybody charged it, and of no other."""
LENT: Final = "The guardian charged nothing; parties that had lent a mask keep it on their own books."
"""What an asker is told of a query that ended after the answering set was fixed, and was not charged."""
Phase = Literal["asking", "agreeing", "masking", "charging", "concluding"]


@dataclass(frozen=True)
class Send:
    """Tell a party something.

    >>> Send("north", Closed(qid="0" * 32)).to
    'north'
    """

    to: str
    message: Message


@dataclass(frozen=True)
class Charge:
    """Write the query on the ledger, durably; then call `charged`, or `refused` if it cannot be paid.

    >>> Charge("0" * 32, "ann", ("north", "south"), n_queries=3).n_queries
    3
    """

    qid: str
    asker: str
    parties: tuple[str, ...]
    n_queries: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Conclude:
    """Draw the noise and go to the last step; `masks` is the sum over the answering set, and secret.

    >>> import numpy as np
    >>> Conclude("0" * 32, "ann", ("north",), np.array([[5]]))
    Conclude(qid='00000000000000000000000000000000', asker='ann', parties=('north',))
    """

    qid: str
    asker: str
    parties: tuple[str, ...]
    masks: Integers = field(repr=False)


Action = Send | Charge | Conclude


@dataclass(frozen=True, eq=False)
class Query:
    """One query on its way: who was told of it, who is ready, who is out and why, and the masks that came.

    >>> Query("0" * 32, "ann", n_queries=3, opened=0.0, until=30.0).phase
    'asking'
    """

    qid: str
    asker: str
    n_queries: int
    opened: float
    until: float
    phase: Phase = "asking"
    told: tuple[str, ...] = ()
    ready: Mapping[str, str] = field(default_factory=dict)
    out: Mapping[str, str] = field(default_factory=dict)
    claimed: tuple[str, ...] | None = None
    parties: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    masks: Mapping[str, Integers] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, eq=False)
class State:
    """All that a guardian remembers of a session: who is there, queries on their way, what was answered.

    >>> begin(used=["0" * 32]).used
    frozenset({'00000000000000000000000000000000'})
    """

    present: frozenset[str] = frozenset()
    queries: Mapping[str, Query] = field(default_factory=dict)
    used: frozenset[str] = frozenset()
    answered: Mapping[str, int] = field(default_factory=dict)
    last_set: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    strikes: Mapping[str, int] = field(default_factory=dict)


Step = tuple[State, list[Action]]


def begin(
    *,
    used: Iterable[str] = (),
    answered: Mapping[str, int] | None = None,
    last_set: Mapping[str, tuple[str, ...]] | None = None,
    changes: Mapping[str, int] | None = None,
) -> State:
    """Return the state of a new session, with what the ledger says of earlier ones.

    >>> begin(answered={"ann": 500}).answered
    {'ann': 500}
    """
    return State(
        used=frozenset(used), answered=dict(answered or {}), last_set=dict(last_set or {}),
        changes=dict(changes or {}),
    )  # fmt: skip


def join(state: State, name: str) -> State:
    """Return the state when a party is connected.

    >>> sorted(join(begin(), "north").present)
    ['north']
    """
    return replace(state, present=state.present | {name})


def close(state: State, query: Query, why: str | None) -> Step:
    """Return the state without a query: masks are forgotten here, and by whoever still waits for it.

    >>> asked = Query("0" * 32, "ann", n_queries=3, opened=0.0, until=30.0, told=("north", "south"))
    >>> state, actions = close(put(begin(), asked), asked, "Quorum missed.")
    >>> [(action.to, action.message.kind) for action in actions], len(state.queries)
    ([('ann', 'aborted'), ('north', 'closed'), ('south', 'closed')], 0)
    """
    queries = {qid: other for qid, other in state.queries.items() if qid != query.qid}
    told: list[Action] = []
    if why is not None:
        told.append(Send(query.asker, Aborted(qid=query.qid, why=why)))
    if query.phase != "concluding":
        told += [Send(name, Closed(qid=query.qid)) for name in query.told if name not in query.out]
    return replace(state, queries=queries), told


def put(state: State, query: Query) -> State:
    """Return the state with a query as it is now.

    >>> len(put(begin(), Query("0" * 32, "ann", n_queries=3, opened=0.0, until=30.0)).queries)
    1
    """
    return replace(state, queries={**state.queries, query.qid: query})
