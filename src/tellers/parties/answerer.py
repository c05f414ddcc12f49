"""An answering party's part of the protocol: functions from a state and a message to a state and an answer.

A query goes through these phases here:

    expected   the guardian said that it will come; if it does not, the guardian is told
    asked      the asker came, and everything it may ask was checked; the two-party computation is under way
    ready      the asker has its share; the mask waits for the answering set
    lent       the mask was sent, once and for one set; nothing of it is kept

A mask is drawn for one query and hides one vote. It is lent for one answering set, at most once, and never to
a set smaller than `least_set` or without this party's own fresh number in it. No id is answered twice.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ..errors import PeerRefused
from ..noise import Noise
from .hardening import fresh_nonce, lend, zero_sum_mask
from .messages import Accepted, Closed, Expect, Mask, Message, Out, Question, Ready, Refused, Roll
from .policy import AnswererPolicy, why_not
from .ring import Integers, fresh_mask

Phase = Literal["expected", "asked", "ready", "lent"]


@dataclass(frozen=True, eq=False)
class Answering:
    """One query at an answering party; its mask is secret.

    >>> Answering("0" * 32, "ann", n_queries=3, until=30.0).phase
    'expected'
    """

    qid: str
    asker: str
    n_queries: int
    until: float
    phase: Phase = "expected"
    is_expected: bool = True
    nonce: str = ""
    mask: Integers | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class State:
    """All that an answering party remembers: queries on their way, ids, and how much each asker had.

    >>> begin(answered={"ann": 40}).answered
    {'ann': 40}
    """

    queries: Mapping[str, Answering] = field(default_factory=dict)
    used: frozenset[str] = frozenset()
    answered: Mapping[str, int] = field(default_factory=dict)


def begin(*, used: Iterable[str] = (), answered: Mapping[str, int] | None = None) -> State:
    """Return the state of a new session, with what this party's own books say of earlier ones.

    >>> begin(used=["0" * 32]).used
    frozenset({'00000000000000000000000000000000'})
    """
    return State(used=frozenset(used), answered=dict(answered or {}))


def expect(policy: AnswererPolicy, state: State, message: Expect, *, now: float) -> tuple[State, list[Out]]:
    """Take note that an asker will come; what this party would refuse, it refuses at once.

    >>> policy = AnswererPolicy("north", {"ann": 100}, 3, 4, "0" * 64, lambda _: "0" * 64)
    >>> coming = Expect(qid="1" * 32, asker="ann", n_queries=2, program="0" * 64, terms="0" * 64, seconds=9)
    >>> state, answers = expect(policy, begin(), coming, now=0.0)
    >>> state.queries["1" * 32].phase, answers
    ('expected', [])
    """
    qid = message.qid
    held = state.queries.get(qid)
    if held is not None:
        if held.is_expected or held.asker != message.asker or held.n_queries != message.n_queries:
            raise PeerRefused("Expected each query to be announced once, as it is asked, got another word.")
        return _put(state, replace(held, is_expected=True)), []
    if qid in state.used:
        return state, [Out(qid=qid, why="refused")]
    if _why_not_now(policy, state, message.asker, message):
        return replace(state, used=state.used | {qid}), [Out(qid=qid, why="refused")]
    query = Answering(qid, message.asker, message.n_queries, until=now + message.seconds)
    return _put(replace(state, used=state.used | {qid}), query), []


def question(
    policy: AnswererPolicy, state: State, asker: str, message: Question, *, now: float, patience: float = 30.0
) -> tuple[State, Accepted | Refused]:
    """Take a question or refuse it; an accepted one has a fresh mask in `state.queries[qid].mask`.

    Run the two-party computation with that mask, then call `delivered` or `failed`.

    >>> policy = AnswererPolicy("north", {"ann": 100}, 3, 4, "0" * 64, lambda _: "0" * 64)
    >>> shapes = {"n_queries": 2, "n_features": 4, "n_outputs": 3}
    >>> asked = Question(qid="1" * 32, program="0" * 64, terms="0" * 64, **shapes)
    >>> state, answer = question(policy, begin(), "ann", asked, now=0.0)
    >>> answer.kind, state.queries["1" * 32].mask.shape
    ('accepted', (2, 3))
    """
    qid = message.qid
    held = state.queries.get(qid)
    announced = held is not None and held.phase == "expected"
    if announced and held is not None and (held.asker, held.n_queries) != (asker, message.n_queries):
        return state, Refused(qid=qid, why="The guardian announced another query under this id.")
    why = _why_not_now(policy, state, asker, message, own=qid)
    if not announced and qid in state.used:
        # What was refused when the guardian announced it is refused for the same reason.
        return state, Refused(qid=qid, why=why or "This id was used before. Ask under a new one.")
    if not why and (message.n_features, message.n_outputs) != (policy.n_features, policy.n_outputs):
        why = f"Rows have {policy.n_features} numbers here, and votes {policy.n_outputs}."
    if why:
        return replace(state, used=state.used | {qid}), Refused(qid=qid, why=why)
    query = Answering(
        qid, asker, message.n_queries, until=now + patience, phase="asked", is_expected=announced,
        nonce=fresh_nonce(), mask=fresh_mask((message.n_queries, policy.n_outputs)),
    )  # fmt: skip
    return _put(replace(state, used=state.used | {qid}), query), Accepted(qid=qid)


def unannounced(state: State, qid: str) -> tuple[State, Refused]:
    """Refuse a question that the guardian has not announced in time: nobody could lend a mask to it.

    >>> state, answer = unannounced(begin(), "1" * 32)
    >>> answer.kind, sorted(state.used) == ["1" * 32]
    ('refused', True)
    """
    why = "The guardian has announced no such query to this party. Open it there first."
    return replace(state, used=state.used | {qid}), Refused(qid=qid, why=why)


def alone(state: State) -> State:
    """Forget queries on their way when the connection to the guardian is gone: it goes on without this party.

    >>> waiting = State(queries={"1" * 32: Answering("1" * 32, "ann", 3, until=30.0)})
    >>> alone(waiting).queries
    {}
    """
    return replace(state, queries={})


def delivered(state: State, qid: str) -> tuple[State, list[Ready]]:
    """Tell the guardian that the asker has its share; nothing if the query is over by now.

    >>> delivered(begin(), "1" * 32)[1]
    []
    """
    query = state.queries.get(qid)
    if query is None or query.phase != "asked":
        return state, []
    return _put(state, replace(query, phase="ready")), [Ready(qid=qid, nonce=query.nonce)]


def failed(state: State, qid: str) -> tuple[State, list[Out]]:
    """Tell the guardian that the computation with the asker failed, and forget the mask.

    >>> failed(begin(), "1" * 32)[1]
    []
    """
    query = state.queries.get(qid)
    if query is None or query.phase == "lent":
        return state, []
    return _without(state, qid), [Out(qid=qid, why="failed")]


def roll(
    policy: AnswererPolicy, state: State, message: Roll, *, noise: Noise
) -> tuple[State, list[Mask | Out]]:
    """Lend the mask to the answering set, once; write the query on this party's own books before sending it.

    >>> roll(AnswererPolicy("north", {}, 3, 4, "0" * 64, str), begin(used=["1" * 32]),
    ...     Roll(qid="1" * 32, nonces={}), noise=None)[1]
    []
    """
    qid, query = message.qid, state.queries.get(message.qid)
    if query is None or query.mask is None or query.phase != "ready":
        if qid in state.used:
            return state, []  # over by now, or lent before: a mask is lent to one set only
        raise PeerRefused("Expected a query that this party answered, got another.")
    if message.nonces.get(policy.name) != query.nonce:
        raise PeerRefused("Expected an answering set with this party's own fresh number, got another.")
    members = set(message.nonces)
    if len(members) < policy.least_set or (policy.roster and not members <= set(policy.roster)):
        return _without(state, qid), [Out(qid=qid, why="refused")]
    cancelling = None
    if policy.pair_keys is not None:
        if not members - {policy.name} <= set(policy.pair_keys):
            return _without(state, qid), [Out(qid=qid, why="refused")]
        shape = (query.n_queries, policy.n_outputs)
        cancelling = zero_sum_mask(policy.name, policy.pair_keys, qid=qid, nonces=message.nonces, shape=shape)
    lent = lend(query.mask, cancelling=cancelling, sigma=policy.noise_sigma, noise=noise)
    answered = {**state.answered, query.asker: state.answered.get(query.asker, 0) + query.n_queries}
    state = _put(replace(state, answered=answered), replace(query, phase="lent", mask=None))
    return state, [Mask(qid=qid, mask=lent)]


def closed(state: State, message: Closed) -> State:
    """Forget a query that is over at the guardian.

    >>> closed(begin(), Closed(qid="1" * 32)).queries
    {}
    """
    return _without(state, message.qid)


def tick(state: State, *, now: float) -> tuple[State, list[Message]]:
    """Tell the guardian of queries that were announced and never asked; forget what took too long.

    >>> waiting = State(queries={"1" * 32: Answering("1" * 32, "ann", 3, until=30.0)})
    >>> [(out.kind, out.why) for out in tick(waiting, now=31.0)[1]]
    [('out', 'not asked')]
    """
    told: list[Message] = []
    for qid, query in list(state.queries.items()):
        if now < query.until:
            continue
        if query.phase == "expected":
            state = _without(state, qid)
            told.append(Out(qid=qid, why="not asked"))
        elif now >= query.until + _KEPT:
            state = _without(state, qid)
    return state, told


_KEPT = 600.0  # A mask that nobody asked for this long after its time is forgotten.


def _why_not_now(
    policy: AnswererPolicy, state: State, asker: str, message: Expect | Question, *, own: str = ""
) -> str:
    """Return why a query is refused, or nothing."""
    why = why_not(policy, asker, message, host="this party")
    if why:
        return why
    mine = [
        query for qid, query in state.queries.items()
        if query.asker == asker and qid != own and query.phase != "lent"
    ]  # fmt: skip
    if len(mine) >= policy.max_open:
        return f"At most {policy.max_open} queries of one asker are on their way at a time."
    waiting = sum(query.n_queries for query in mine)
    quota = policy.quotas[asker]
    if state.answered.get(asker, 0) + waiting + message.n_queries > quota:
        return f"The quota of {quota} queries of this asker is used."
    # Who finds out only when the answering set is fixed ends the query for everybody.
    under_way = sum(q.n_queries for qid, q in state.queries.items() if qid != own and q.phase != "lent")
    if policy.affords is not None and not policy.affords(under_way + message.n_queries):
        return "This party's own books cannot pay for it."
    return ""


def _put(state: State, query: Answering) -> State:
    return replace(state, queries={**state.queries, query.qid: query})


def _without(state: State, qid: str) -> State:
    return replace(state, queries={other: q for other, q in state.queries.items() if other != qid})
