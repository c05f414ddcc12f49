"""The guardian's part of the protocol: functions from a state and a message to a state and what follows.

No socket, no clock, no ledger and no noise in here: messages and the time come as arguments, and what must be
done comes back as `Send`, `Charge` and `Conclude`. A query goes through these phases:

    asking      answering parties compute with the asker; each says Ready, or Out with its reason
    agreeing    the asker said whose shares it holds; the guardian waits for whoever has not spoken
    masking     the answering set is fixed, and each member sends its mask for it
    charging    all masks are there; nothing is revealed before the ledger has it
    concluding  charged for good; the last step is under way

**Who answers is not for the asker to choose.** The roster is the guardian's. A party is left out only by the
guardian's own knowledge: it is not connected, it said itself that it failed or refused, or it stayed silent
until its time was over. An asker that leaves out a party that is ready, or that it never asked, gets no
answer and a strike; after `max_strikes` it gets none at all. How often the answering set of an asker may
change is limited too, and every set that was answered for is on the ledger.

Nothing is charged before `charging`, and nothing is given back after it. A query that failed is asked again
under a new id, with new masks, and charged again if it was charged.
"""

from collections.abc import Callable
from dataclasses import replace

from ..errors import PeerRefused
from .messages import (
    Aborted,
    Answered,
    Closed,
    Done,
    Expect,
    Held,
    Mask,
    Message,
    Open,
    Opened,
    Out,
    Ready,
    Roll,
)
from .policy import GuardianPolicy, why_not
from .queries import FREE, LENT, Action, Charge, Conclude, Query, Send, State, Step, close, put
from .ring import ring_sum


def leave(policy: GuardianPolicy, state: State, name: str, *, now: float) -> Step:
    """Return what follows when a party's connection is gone: its part of every query is over.

    >>> from tellers.parties.queries import begin, join
    >>> state, actions = leave(GuardianPolicy.example(), join(begin(), "north"), "north", now=0.0)
    >>> sorted(state.present), actions
    ([], [])
    """
    state, actions = replace(state, present=state.present - {name}), []
    for qid in list(state.queries):
        query = state.queries.get(qid)
        if query is None:
            continue
        if query.asker == name:
            # Charged or not, nobody is there any more to go on with it.
            state, more = close(_walked_out(state, query), query, None)
        else:
            state, more = _drop(policy, state, query, name, "gone", now)
        actions += more
    return state, actions


def receive(policy: GuardianPolicy, state: State, sender: str, message: Message, *, now: float) -> Step:
    """Return what follows from a message; what the sender may not say now is refused and changes nothing.

    >>> from tellers.parties.queries import begin, join
    >>> policy = GuardianPolicy.example()
    >>> state = join(join(join(begin(), "ann"), "north"), "south")
    >>> opening = Open(qid="0" * 32, n_queries=3, program="0" * 64, terms="0" * 64)
    >>> state, actions = receive(policy, state, "ann", opening, now=0.0)
    >>> [(action.to, action.message.kind) for action in actions]
    [('ann', 'opened'), ('north', 'expect'), ('south', 'expect')]
    """
    if isinstance(message, Open):
        return _open(policy, state, sender, message, now)
    qid = getattr(message, "qid", "")
    query = state.queries.get(qid)
    if query is None:
        if qid in state.used:
            return state, []  # over by now: what was on its way when it ended does no harm
        raise PeerRefused(f"Expected a query that was opened, got {message.kind!r} about another.")
    handler = _HANDLERS.get(type(message))
    if handler is None:
        raise PeerRefused(f"Expected a message for a guardian, got {message.kind!r}.")
    return handler(policy, state, query, sender, message, now)


def tick(policy: GuardianPolicy, state: State, *, now: float) -> Step:
    """Return what follows from the time: whoever had to speak and did not is left out, or the query ends.

    >>> tick(GuardianPolicy.example(), State(), now=1e9)[1]
    []
    """
    actions: list[Action] = []
    for qid in list(state.queries):
        query = state.queries[qid]
        if now < query.until or query.phase == "charging":
            continue
        if query.phase == "asking":
            state, more = close(state, query, f"The asker did not say in time who answered. {FREE}")
        elif query.phase == "agreeing":
            state, more = _agree(policy, state, _silenced(policy, query), now)
        elif query.phase == "masking":
            late = [name for name in query.parties if name not in query.masks]
            state, more = _unmasked(policy, state, query, late, "silent", now)
        else:
            state, more = close(state, query, None)
        actions += more
    return state, actions


def charged(policy: GuardianPolicy, state: State, qid: str, *, now: float) -> Step:
    """Return what follows when the ledger has a query: the last step, and masks are forgotten.

    >>> import numpy as np
    >>> asked = Query("0" * 32, "ann", 1, 0.0, 9.0, "charging", parties=("a", "b"))
    >>> asked = replace(asked, masks={"a": np.array([[1]]), "b": np.array([[2]])})
    >>> state, policy = State(queries={asked.qid: asked}), GuardianPolicy.example()
    >>> state, actions = charged(policy, state, asked.qid, now=1.0)
    >>> [type(action).__name__ for action in actions], state.answered
    (['Send', 'Send', 'Conclude'], {'ann': 1})
    """
    query = _charging(state, qid)
    before = state.last_set.get(query.asker)
    changed = (before is not None and before != query.parties) or bool(query.left_out)
    total = ring_sum(query.masks[name] for name in query.parties)
    # Long enough for any last step; only a slot is held, masks are gone.
    rest = replace(query, phase="concluding", masks={}, until=now + 4 * policy.patience)
    state = replace(
        put(state, rest),
        answered={**state.answered, query.asker: state.answered.get(query.asker, 0) + query.n_queries},
        last_set={**state.last_set, query.asker: query.parties},
        changes={**state.changes, query.asker: state.changes.get(query.asker, 0) + changed},
    )
    told: list[Action] = [Send(name, Closed(qid=qid)) for name in query.parties]
    return state, [*told, Conclude(qid, query.asker, query.parties, total)]


def refused(state: State, qid: str, why: str) -> Step:
    """Return what follows when a query cannot be paid for: it ends, and masks are forgotten.

    >>> asked = Query("0" * 32, "ann", 1, 0.0, 9.0, "charging", parties=("a", "b"))
    >>> state, actions = refused(State(queries={asked.qid: asked}), asked.qid, "The budget is used.")
    >>> actions[0].message.why, len(state.queries)
    ('The budget is used.', 0)
    """
    return close(state, _charging(state, qid), why)


def _open(policy: GuardianPolicy, state: State, asker: str, message: Open, now: float) -> Step:
    qid, n = message.qid, message.n_queries
    if qid in state.used:
        raise PeerRefused("Expected a new id for a new query, got one that was used before.")
    why = _why_not_now(policy, state, asker, message)
    if why:
        return state, [Send(asker, Aborted(qid=qid, why=f"{why} {FREE}"))]
    absent = {name: "gone" for name in policy.roster if name not in state.present}
    roster = tuple(name for name in sorted(policy.roster) if name not in absent)
    query = Query(qid, asker, n, opened=now, until=now + policy.patience, told=roster, out=absent)
    state = replace(put(state, query), used=state.used | {qid})
    if len(roster) < policy.quorum:
        return close(
            state,
            replace(query, told=()),
            f"Fewer parties are connected than the quorum of {policy.quorum}. {FREE}",
        )
    expect = Expect(
        qid=qid, asker=asker, n_queries=n, program=message.program, terms=message.terms,
        seconds=policy.patience,
    )  # fmt: skip
    actions: list[Action] = [Send(asker, Opened(qid=qid, roster=roster, seconds=policy.patience))]
    return state, [*actions, *(Send(name, expect) for name in roster)]


def _why_not_now(policy: GuardianPolicy, state: State, asker: str, message: Open) -> str:
    """Return why a query is not opened, or nothing."""
    why = why_not(policy, asker, message, host="the guardian")
    if why:
        return why
    if state.strikes.get(asker, 0) >= policy.max_strikes:
        return (
            "The asker left out parties that were ready, or left when masks were lent, too often; the "
            "guardian's operator must look at it."
        )
    mine = [query for query in state.queries.values() if query.asker == asker]
    if len(mine) >= policy.max_open:
        return f"At most {policy.max_open} queries of one asker are on their way at a time."
    waiting = sum(query.n_queries for query in mine if query.phase != "concluding")
    quota = policy.quotas[asker]
    if state.answered.get(asker, 0) + waiting + message.n_queries > quota:
        return f"The quota of {quota} queries of this asker is used."
    # Looked at before anybody lends a mask: what it cannot pay for must cost nobody anything.
    under_way = sum(query.n_queries for query in state.queries.values() if query.phase != "concluding")
    if policy.affords is not None and not policy.affords(under_way + message.n_queries):
        return "The budget does not suffice for so many queries."
    return ""


def _ready(
    policy: GuardianPolicy, state: State, query: Query, sender: str, message: Message, now: float
) -> Step:
    assert isinstance(message, Ready)
    _require_member(policy, sender)
    if query.phase not in ("asking", "agreeing"):
        return state, []  # too late for this set
    if query.out.get(sender) in ("gone", "silent"):
        return state, []  # it was given up before, and the set may be agreed on
    if sender in query.ready or sender in query.out:
        raise PeerRefused("Expected each party to speak once about a query, got a second word.")
    query = replace(query, ready={**query.ready, sender: message.nonce})
    return _settle(policy, state, query, now)


def _out(
    policy: GuardianPolicy, state: State, query: Query, sender: str, message: Message, now: float
) -> Step:
    assert isinstance(message, Out)
    _require_member(policy, sender)
    if sender in query.out:
        if query.out[sender] in ("gone", "silent"):
            return state, []
        raise PeerRefused("Expected each party to speak once about a query, got a second word.")
    return _drop(policy, state, query, sender, message.why, now)


def _answered(
    policy: GuardianPolicy, state: State, query: Query, sender: str, message: Message, now: float
) -> Step:
    assert isinstance(message, Answered)
    _require_asker(query, sender)
    if query.phase != "asking":
        raise PeerRefused("Expected one answering set at a time, got another while one is agreed on.")
    if not set(message.parties) <= set(policy.roster):
        raise PeerRefused("Expected answering parties of the roster, got others.")
    # Who has not been asked says so when its time is over; a little later the guardian stops waiting.
    until = max(query.opened + 1.5 * policy.patience, now)
    query = replace(query, phase="agreeing", claimed=message.parties, until=until)
    return _settle(policy, state, query, now)


def _mask(
    policy: GuardianPolicy, state: State, query: Query, sender: str, message: Message, now: float
) -> Step:
    assert isinstance(message, Mask)
    _require_member(policy, sender)
    if query.phase != "masking" or sender not in query.parties:
        if sender in query.ready or sender in query.out:
            return state, []  # the set has changed since it was asked for
        raise PeerRefused("Expected a mask when it is asked for, got one before.")
    if sender in query.masks:
        raise PeerRefused("Expected one mask of each party for a query, got a second one.")
    if message.mask.shape != (query.n_queries, policy.n_outputs):
        raise PeerRefused(f"Expected a mask of {query.n_queries} x {policy.n_outputs}, got another shape.")
    return _masking(state, replace(query, masks={**query.masks, sender: message.mask}))


def _done(
    policy: GuardianPolicy, state: State, query: Query, sender: str, message: Message, now: float
) -> Step:
    _require_asker(query, sender)
    if query.phase != "concluding":
        raise PeerRefused("Expected the end of a query after its last step, got it before.")
    return close(state, query, None)


_BY_LINK = ("failed", "silent")  # What an asker can bring about by breaking its own link to a party.
_Handler = Callable[[GuardianPolicy, State, Query, str, Message, float], Step]
_HANDLERS: dict[type[Message], _Handler] = {
    Ready: _ready, Out: _out, Answered: _answered, Mask: _mask, Done: _done
}  # fmt: skip


def _settle(policy: GuardianPolicy, state: State, query: Query, now: float) -> Step:
    """Go on if the asker has said its set and nobody is waited for."""
    waited = [name for name in policy.roster if name not in query.ready and name not in query.out]
    if query.phase != "agreeing" or waited:
        return put(state, query), []
    return _agree(policy, state, query, now)


def _silenced(policy: GuardianPolicy, query: Query) -> Query:
    silent = {n: "silent" for n in policy.roster if n not in query.ready and n not in query.out}
    return replace(query, out={**query.out, **silent})


def _agree(policy: GuardianPolicy, state: State, query: Query, now: float) -> Step:
    claimed = query.claimed or ()
    left_out = [name for name in query.ready if name not in claimed]
    unasked = [name for name, why in query.out.items() if why == "not asked"]
    if left_out or unasked:
        strikes = {**state.strikes, query.asker: state.strikes.get(query.asker, 0) + 1}
        why = f"The asker left out parties that could answer; who answers is not for it to choose. {FREE}"
        return close(replace(state, strikes=strikes), query, why)
    common = tuple(name for name in sorted(claimed) if name in query.ready)
    if len(common) < policy.quorum:
        why = f"{len(common)} parties answered, fewer than the quorum of {policy.quorum}. {FREE}"
        return close(state, query, why)
    if common != tuple(claimed):
        again = replace(query, phase="asking", claimed=None, until=now + policy.patience)
        return put(state, again), [Send(query.asker, Held(qid=query.qid, parties=common))]
    before = state.last_set.get(query.asker, common)
    # A link that fails may have been broken on purpose: it counts as a change, each time.
    broken = tuple(
        name for name, why in sorted(query.out.items()) if why in _BY_LINK and name in state.present
    )
    if (before != common or broken) and state.changes.get(query.asker, 0) >= policy.max_changes:
        why = (
            f"The answering set changed, or left out a connected party, more than {policy.max_changes} times "
            f"for this asker. {FREE}"
        )
        return close(state, query, why)
    query = replace(query, phase="masking", parties=common, left_out=broken, until=now + policy.patience)
    nonces = {name: query.ready[name] for name in common}
    wanted = [name for name in common if name not in query.masks]
    state, actions = _masking(state, query)
    return state, [*(Send(name, Roll(qid=query.qid, nonces=nonces)) for name in wanted), *actions]


def _masking(state: State, query: Query) -> Step:
    """Charge the query as soon as all masks are there."""
    if any(name not in query.masks for name in query.parties):
        return put(state, query), []
    ready = put(state, replace(query, phase="charging"))
    return ready, [Charge(query.qid, query.asker, query.parties, query.n_queries, query.left_out)]


def _drop(policy: GuardianPolicy, state: State, query: Query, name: str, why: str, now: float) -> Step:
    """Go on without a party, if it still matters."""
    if query.phase in ("charging", "concluding") or name not in policy.roster:
        return state, []
    if query.phase == "masking":
        if name not in query.parties or name in query.masks:
            return state, []  # its mask is there: it has done all that it must
        return _unmasked(policy, state, query, [name], why, now)
    if name in query.out:
        return state, []
    ready = {other: nonce for other, nonce in query.ready.items() if other != name}
    return _settle(policy, state, replace(query, ready=ready, out={**query.out, name: why}), now)


def _unmasked(
    policy: GuardianPolicy, state: State, query: Query, names: list[str], why: str, now: float
) -> Step:
    """Go on without parties that were in the set and sent no mask."""
    if policy.pairwise:
        words = f"A party dropped out after the answering set was fixed. {LENT} Ask again under a new id."
        return close(state, query, words)
    left = tuple(name for name in query.parties if name not in names)
    ready = {name: query.ready[name] for name in left}
    out = {**query.out, **dict.fromkeys(names, why)}
    if len(left) < policy.quorum:
        return close(state, query, f"{len(left)} parties answered, fewer than the quorum. {LENT}")
    again = replace(
        query, phase="asking", claimed=None, ready=ready, out=out, parties=(), until=now + policy.patience
    )
    return put(state, again), [Send(query.asker, Held(qid=query.qid, parties=left))]


def _walked_out(state: State, query: Query) -> State:
    """Count a query that its asker left after masks were asked for: they are on the parties' own books."""
    if query.phase != "masking":
        return state
    asker = query.asker
    return replace(
        state,
        answered={**state.answered, asker: state.answered.get(asker, 0) + query.n_queries},
        strikes={**state.strikes, asker: state.strikes.get(asker, 0) + 1},
    )


def _charging(state: State, qid: str) -> Query:
    query = state.queries.get(qid)
    if query is None or query.phase != "charging":
        raise ValueError("Expected a query whose masks are all there, got another.")
    return query


def _require_member(policy: GuardianPolicy, sender: str) -> None:
    if sender not in policy.roster:
        raise PeerRefused("Expected a party of the roster, got another.")


def _require_asker(query: Query, sender: str) -> None:
    if sender != query.asker:
        raise PeerRefused("Expected whoever opened the query, got another party.")
