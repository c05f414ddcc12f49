"""The guardian: its part of the protocol, its ledger, noise and clock, and its process."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from ..errors import PeerRefused, TellersError
from ..ledger.base import Ledger
from ..privacy import noise as noises
from ..privacy.noise import Noise
from ..runs.settings.party import PartySettings
from ._last_step import LastStep, draw
from ._ledger import affords, charge_query, query_price, remembered
from ._link import EngineLink, Outbox, WorkQueue
from ._messages import (
    Aborted,
    Agreed,
    Answered,
    Closed,
    Done,
    Expect,
    Held,
    Hello,
    Mask,
    Message,
    Open,
    Opened,
    Out,
    Ready,
    Roll,
)
from ._policy import Policy, why_not
from ._process import TICK, PartyProcess
from ._ring import Integers, ring_sum
from ._wire import PROTOCOL, Channel
from .models import count_voters
from .programs import HELPER, DecisionProgram

# --- State and actions ---

FREE: Final = "Nothing was charged."
"""What an asker is told of every query that ended before anybody charged it, and of no other."""
LENT: Final = "The guardian charged nothing; parties that had lent a mask keep it on their own books."
"""What an asker is told of a query that ended after the answering set was fixed, and was not charged."""
Phase = Literal["asking", "agreeing", "masking", "charging", "concluding"]


@dataclass(frozen=True)
class Send:
    """Tell a party something."""

    to: str
    message: Message


@dataclass(frozen=True, eq=False)
class Query:
    """One query on its way: who was told of it, who is ready, who is out and why, and the masks that came."""

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
class GuardianState:
    """All that a guardian remembers of a session: who is there, queries on their way, what was answered."""

    present: frozenset[str] = frozenset()
    queries: Mapping[str, Query] = field(default_factory=dict)
    used: frozenset[str] = frozenset()
    answered: Mapping[str, int] = field(default_factory=dict)
    last_set: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    strikes: Mapping[str, int] = field(default_factory=dict)


Action = Send | Query
"""What must be done: tell a party something, or write a query on the ledger and then call `charged`."""
Step = tuple[GuardianState, list[Action]]


def close(state: GuardianState, query: Query, why: str | None) -> Step:
    """Return the state without a query: masks are forgotten here, and by whoever still waits for it."""
    queries = {qid: other for qid, other in state.queries.items() if qid != query.qid}
    told: list[Action] = []
    if why is not None:
        told.append(Send(query.asker, Aborted(qid=query.qid, why=why)))
    if query.phase != "concluding":
        told += [Send(name, Closed(qid=query.qid)) for name in query.told if name not in query.out]
    return replace(state, queries=queries), told


def put(state: GuardianState, query: Query) -> GuardianState:
    return replace(state, queries={**state.queries, query.qid: query})


# --- Protocol ---
#
# No socket, no clock, no ledger and no noise in here: messages and the time come as arguments, and what
# must be done comes back as messages to send and queries to charge. A query goes through these phases:
#
# asking      answering parties compute with the asker; each says Ready, or Out with its reason
# agreeing    the asker said whose shares it holds; the guardian waits for whoever has not spoken
# masking     the answering set is fixed, and each member sends its mask for it
# charging    all masks are there; nothing is revealed before the ledger has it
# concluding  charged for good; the last step is under way
#
# **Who answers is not for the asker to choose.** The roster is the guardian's. A party is left out only by
# the guardian's own knowledge: it is not connected, it said itself that it failed or refused, or it stayed
# silent until its time was over. An asker that leaves out a party that is ready, or that it never asked,
# gets no answer and a strike; after `max_strikes` it gets none at all. How often the answering set of an
# asker may change is limited too, and every set that was answered for is on the ledger.
#
# Nothing is charged before `charging`, and nothing is given back after it. A query that failed is asked again
# under a new id, with new masks, and charged again if it was charged.


def leave(policy: Policy, state: GuardianState, name: str, *, now: float) -> Step:
    """Return what follows when a party's connection is gone: its part of every query is over."""
    state, actions = replace(state, present=state.present - {name}), []
    for qid in list(state.queries):
        query = state.queries.get(qid)
        if query is None:
            continue
        if query.asker == name:
            if query.phase == "masking":  # masks were asked for: they are on the parties' own books
                answered = _plus(state.answered, name, query.n_queries)
                state = replace(state, answered=answered, strikes=_plus(state.strikes, name, 1))
            # Charged or not, nobody is there any more to go on with it.
            state, more = close(state, query, None)
        else:
            state, more = _drop(policy, state, query, name, "gone", now)
        actions += more
    return state, actions


def receive(policy: Policy, state: GuardianState, sender: str, message: Message, *, now: float) -> Step:
    """Return what follows from a message; what the sender may not say now is refused and changes nothing."""
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
    if isinstance(message, Answered | Done):
        if sender != query.asker:
            raise PeerRefused("Expected whoever opened the query, got another party.")
    elif sender not in policy.roster:
        raise PeerRefused("Expected a party of the roster, got another.")
    return handler(_Turn(policy, state, now), query, sender, message)


def tick(policy: Policy, state: GuardianState, *, now: float) -> Step:
    """Return what follows from the time: whoever had to speak and did not is left out, or the query ends."""
    actions: list[Action] = []
    for qid in list(state.queries):
        query = state.queries[qid]
        if now < query.until or query.phase == "charging":
            continue
        if query.phase == "asking":
            state, more = close(state, query, f"The asker did not say in time who answered. {FREE}")
        elif query.phase == "agreeing":
            silent = {n: "silent" for n in policy.roster if n not in query.ready and n not in query.out}
            state, more = _agree(policy, state, replace(query, out={**query.out, **silent}), now)
        elif query.phase == "masking":
            late = [name for name in query.parties if name not in query.masks]
            state, more = _unmasked(policy, state, query, late, "silent", now)
        else:
            state, more = close(state, query, None)
        actions += more
    return state, actions


def charged(policy: Policy, state: GuardianState, query: Query, *, now: float) -> Step:
    """Return what follows when the ledger has a query, besides the last step; masks are forgotten."""
    before = state.last_set.get(query.asker)
    changed = (before is not None and before != query.parties) or bool(query.left_out)
    # Long enough for any last step; only a slot is held, masks are gone.
    rest = replace(query, phase="concluding", masks={}, until=now + 4 * policy.patience)
    state = replace(
        put(state, rest),
        answered=_plus(state.answered, query.asker, query.n_queries),
        last_set={**state.last_set, query.asker: query.parties},
        changes=_plus(state.changes, query.asker, changed),
    )
    return state, [Send(name, Closed(qid=query.qid)) for name in query.parties]


def _plus(counts: Mapping[str, int], name: str, n: int) -> dict[str, int]:
    return {**counts, name: counts.get(name, 0) + n}


def _open(policy: Policy, state: GuardianState, asker: str, message: Open, now: float) -> Step:
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
    if len(roster) < policy.session.quorum:
        return close(
            state,
            replace(query, told=()),
            f"Fewer parties are connected than the quorum of {policy.session.quorum}. {FREE}",
        )
    expect = Expect(
        qid=qid, asker=asker, n_queries=n, program=message.program, terms=message.terms,
        seconds=policy.patience,
    )  # fmt: skip
    actions: list[Action] = [Send(asker, Opened(qid=qid, roster=roster, seconds=policy.patience))]
    return state, [*actions, *(Send(name, expect) for name in roster)]


def _why_not_now(policy: Policy, state: GuardianState, asker: str, message: Open) -> str:
    if state.strikes.get(asker, 0) >= policy.limits.max_strikes:
        return (
            "The asker left out parties that were ready, or left when masks were lent, too often; the "
            "guardian's operator must look at it."
        )
    # Looked at before anybody lends a mask: what the budget cannot pay for must cost nobody anything.
    return why_not(
        policy, asker, message, host="the guardian", answered=state.answered,
        n_open=sum(query.asker == asker for query in state.queries.values()),
        unpaid=[query for query in state.queries.values() if query.phase != "concluding"],
        poor="The budget does not suffice for so many queries.",
    )  # fmt: skip


class _Turn(NamedTuple):
    """The rules, how things stand, and the time, for whatever follows from one message."""

    policy: Policy
    state: GuardianState
    now: float


def _ready(turn: _Turn, query: Query, sender: str, message: Ready) -> Step:
    if query.phase not in ("asking", "agreeing"):
        return turn.state, []  # too late for this set
    if query.out.get(sender) in ("gone", "silent"):
        return turn.state, []  # it was given up before, and the set may be agreed on
    if sender in query.ready or sender in query.out:
        raise PeerRefused("Expected each party to speak once about a query, got a second word.")
    query = replace(query, ready={**query.ready, sender: message.nonce})
    return _settle(turn.policy, turn.state, query, turn.now)


def _out(turn: _Turn, query: Query, sender: str, message: Out) -> Step:
    if sender in query.out:
        if query.out[sender] in ("gone", "silent"):
            return turn.state, []
        raise PeerRefused("Expected each party to speak once about a query, got a second word.")
    return _drop(turn.policy, turn.state, query, sender, message.why, turn.now)


def _answered(turn: _Turn, query: Query, sender: str, message: Answered) -> Step:
    if query.phase != "asking":
        raise PeerRefused("Expected one answering set at a time, got another while one is agreed on.")
    if not set(message.parties) <= set(turn.policy.roster):
        raise PeerRefused("Expected answering parties of the roster, got others.")
    # Who has not been asked says so when its time is over; a little later the guardian stops waiting.
    until = max(query.opened + 1.5 * turn.policy.patience, turn.now)
    query = replace(query, phase="agreeing", claimed=message.parties, until=until)
    return _settle(turn.policy, turn.state, query, turn.now)


def _mask(turn: _Turn, query: Query, sender: str, message: Mask) -> Step:
    if query.phase != "masking" or sender not in query.parties:
        if sender in query.ready or sender in query.out:
            return turn.state, []  # the set has changed since it was asked for
        raise PeerRefused("Expected a mask when it is asked for, got one before.")
    if sender in query.masks:
        raise PeerRefused("Expected one mask of each party for a query, got a second one.")
    if message.mask.shape != (query.n_queries, turn.policy.session.n_outputs):
        raise PeerRefused(
            f"Expected a mask of {query.n_queries} x {turn.policy.session.n_outputs}, got another shape."
        )
    return _masking(turn.state, replace(query, masks={**query.masks, sender: message.mask}))


def _done(turn: _Turn, query: Query, sender: str, message: Done) -> Step:
    if query.phase != "concluding":
        raise PeerRefused("Expected the end of a query after its last step, got it before.")
    return close(turn.state, query, None)


_BY_LINK = ("failed", "silent")  # What an asker can bring about by breaking its own link to a party.
_Handler = Callable[[_Turn, Query, str, Any], Step]
_HANDLERS: dict[type[Message], _Handler] = {
    Ready: _ready, Out: _out, Answered: _answered, Mask: _mask, Done: _done
}  # fmt: skip


def _settle(policy: Policy, state: GuardianState, query: Query, now: float) -> Step:
    """Go on if the asker has said its set and nobody is waited for."""
    waited = [name for name in policy.roster if name not in query.ready and name not in query.out]
    if query.phase != "agreeing" or waited:
        return put(state, query), []
    return _agree(policy, state, query, now)


def _agree(policy: Policy, state: GuardianState, query: Query, now: float) -> Step:
    claimed = query.claimed or ()
    left_out = [name for name in query.ready if name not in claimed]
    unasked = [name for name, why in query.out.items() if why == "not asked"]
    if left_out or unasked:
        why = f"The asker left out parties that could answer; who answers is not for it to choose. {FREE}"
        return close(replace(state, strikes=_plus(state.strikes, query.asker, 1)), query, why)
    common = tuple(name for name in sorted(claimed) if name in query.ready)
    if len(common) < policy.session.quorum:
        why = f"{len(common)} parties answered, fewer than the quorum of {policy.session.quorum}. {FREE}"
        return close(state, query, why)
    if common != tuple(claimed):
        again = replace(query, phase="asking", claimed=None, until=now + policy.patience)
        return put(state, again), [Send(query.asker, Held(qid=query.qid, parties=common))]
    before = state.last_set.get(query.asker, common)
    # A link that fails may have been broken on purpose: it counts as a change, each time.
    broken = tuple(
        name for name, why in sorted(query.out.items()) if why in _BY_LINK and name in state.present
    )
    if (before != common or broken) and state.changes.get(query.asker, 0) >= policy.limits.max_changes:
        why = (
            "The answering set changed, or left out a connected party, more than "
            f"{policy.limits.max_changes} times for this asker. {FREE}"
        )
        return close(state, query, why)
    query = replace(query, phase="masking", parties=common, left_out=broken, until=now + policy.patience)
    nonces = {name: query.ready[name] for name in common}
    wanted = [name for name in common if name not in query.masks]
    state, actions = _masking(state, query)
    return state, [*(Send(name, Roll(qid=query.qid, nonces=nonces)) for name in wanted), *actions]


def _masking(state: GuardianState, query: Query) -> Step:
    """Charge the query as soon as all masks are there."""
    if any(name not in query.masks for name in query.parties):
        return put(state, query), []
    query = replace(query, phase="charging")
    return put(state, query), [query]


def _drop(policy: Policy, state: GuardianState, query: Query, name: str, why: str, now: float) -> Step:
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
    policy: Policy, state: GuardianState, query: Query, names: list[str], why: str, now: float
) -> Step:
    """Go on without parties that were in the set and sent no mask."""
    if policy.hardening.pairwise:
        words = f"A party dropped out after the answering set was fixed. {LENT} Ask again under a new id."
        return close(state, query, words)
    left = tuple(name for name in query.parties if name not in names)
    ready = {name: query.ready[name] for name in left}
    out = {**query.out, **dict.fromkeys(names, why)}
    if len(left) < policy.session.quorum:
        return close(state, query, f"{len(left)} parties answered, fewer than the quorum. {LENT}")
    again = replace(
        query,
        phase="asking",
        claimed=None,
        ready=ready,
        out=out,
        parties=(),
        until=now + policy.patience,
    )
    return put(state, again), [Send(query.asker, Held(qid=query.qid, parties=left))]


# --- Guardian: protocol, ledger, noise and clock ---


@dataclass(frozen=True, eq=False)
class Finish:
    """The last step of a query, which is charged: run it with the asker, and show its step to nobody."""

    qid: str
    to: str
    step: LastStep = field(repr=False)


Task = Send | Finish


@dataclass(eq=False)
class Guardian:
    """Keep the state of a session, charge before anything is revealed, and draw the noise.

    Methods return what to do next, in order: messages to send, and last steps to run. A message that does not
    belong raises PeerRefused and changes nothing: close that connection and say so by `left`. Use it from one
    thread at a time.

    Guarantee: no noise is drawn and no mask is added up before the price of the query is durable on the
               ledger; nothing is given back. A restart on the same ledger forgets nothing that was charged.
    Assumes:   a guardian that follows this program, and answering parties whose masks are fresh.
    Reference: Choquette-Choo et al. 2021 (CaPC); Feldman and Zrnic 2021, by way of the ledger.
    """

    policy: Policy
    mechanism: Any
    ledger: Ledger
    noise: Noise
    clock: Callable[[], float] = time.monotonic
    state: GuardianState = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.state = GuardianState(**remembered(self.ledger))
        price = query_price(self.mechanism, 1)
        self.policy = replace(self.policy, affords=lambda n: affords(self.ledger, price * n))

    def handle(self, sender: str, message: Message) -> list[Task]:
        return self._follow(receive(self.policy, self.state, sender, message, now=self.clock()))

    def joined(self, name: str) -> None:
        self.state = replace(self.state, present=self.state.present | {name})

    def left(self, name: str) -> list[Task]:
        return self._follow(leave(self.policy, self.state, name, now=self.clock()))

    def tick(self) -> list[Task]:
        """Look at the clock; call it about once a second."""
        return self._follow(tick(self.policy, self.state, now=self.clock()))

    def _follow(self, step: Step) -> list[Task]:
        """Do what must be done here, and return the rest."""
        self.state, actions = step
        tasks: list[Task] = []
        for action in actions:
            tasks += [action] if isinstance(action, Send) else self._charge(action)
        return tasks

    def _charge(self, query: Query) -> list[Task]:
        """Charge a query, then draw the noise; masks are added up and forgotten by then."""
        parties = query.parties
        try:
            charge_query(
                self.ledger, query.qid, mechanism=self.mechanism, noise=self.noise, n_queries=query.n_queries,
                asker=query.asker, parties=parties, left_out=query.left_out,
            )  # fmt: skip
        except TellersError as error:
            # What a ledger says of a budget is public: prices do not depend on votes.
            return self._follow(close(self.state, query, f"{_short(str(error))} {LENT}"))
        except (OSError, TimeoutError):
            why = "The ledger cannot be written. If it was written after all, the query stays charged."
            return self._follow(close(self.state, query, why))
        tasks = self._follow(charged(self.policy, self.state, query, now=self.clock()))
        masks = ring_sum(query.masks[name] for name in parties)
        voters = count_voters(parties, self.policy.labels, self.policy.session.n_outputs)
        step = draw(
            self.mechanism, masks, n_answering=len(parties), noise=self.noise, voters=voters,
            share_sigma=self.policy.hardening.noise_sigma,
        )  # fmt: skip
        agreed = Agreed(qid=query.qid, parties=parties)
        return [*tasks, Send(query.asker, agreed), Finish(query.qid, query.asker, step)]


def _short(words: str) -> str:
    plain = " ".join(words.split())
    return plain if len(plain) <= 370 else f"{plain[:369]}…"


# --- Process ---

_GRACE = 5.0  # What an asker said last may still be on its way when its link is gone.


class PartyConnection:
    """A party's connection to the guardian: what is sent to it, and for an asker the link for last steps."""

    def __init__(self, channel: Channel, lane: EngineLink | None) -> None:
        self.channel, self.lane = channel, lane
        self.outbox = Outbox(channel)
        self.work = WorkQueue()  # What is done on a link is done in the order of the messages.
        self.done: set[str] = set()
        self.has_left = False
        self._silence, self._since_called = 0.0, 0.0

    def heard(self, message: Message) -> None:
        """Take note of a sign of life, and of queries that the asker is done with."""
        self._silence = 0.0
        if isinstance(message, Done):
            self.done.add(message.qid)

    def call(self, seconds: float, *, patience: float, name: str) -> bool:
        """Ask an answering party now and then for a sign of life; return whether it is there.

        A party that is frozen has a connection that looks good. `seconds` is the time since the last call, of
        this process awake: whoever was asleep itself may not say that others were silent.
        """
        self._silence += seconds
        self._since_called += seconds
        if self._since_called >= patience / 8:
            self._since_called = 0.0
            self.outbox.put(Hello(name=name, protocol=PROTOCOL))
        return self._silence < patience / 2

    def is_over(self, qid: str) -> bool:
        """Return whether the asker is done with a query or went; its last word is waited for a little."""
        until = time.monotonic() + _GRACE
        while qid not in self.done and not self.has_left and time.monotonic() < until:
            time.sleep(0.05)
        return qid in self.done or self.has_left

    def close(self) -> None:
        self.outbox.close()
        self.channel.close()
        if self.lane is not None:
            self.lane.give_up()
        self.work.close()


class GuardRole(PartyProcess):
    """A guardian that serves until it is stopped.

    `say` is told in words what happens: who came and went, and what failed. Nothing private is in them.

    Guarantee: every query is durable on the ledger before its noise is drawn; see `Guardian`.
    Assumes:   askers and answering parties as in "Who learns what".
    Reference: Choquette-Choo et al. 2021 (CaPC).
    """

    role = "guardian"

    def __init__(self, settings: PartySettings, **options: Any) -> None:
        super().__init__(settings, **options)
        self._guardian = Guardian(
            self._context.policy(), self._context.mechanism, self._ledger, noises.secure()
        )
        self._connections: dict[str, PartyConnection] = {}

    def start(self) -> None:
        self._serve(self._context.peers)

    def _close_connections(self) -> None:
        for connection in list(self._connections.values()):
            connection.close()

    def _host(self, channel: Channel) -> None:
        name, role = channel.peer.name, channel.peer.role
        lane = self._context.link(HELPER, channel) if role == "asker" else None
        connection = PartyConnection(channel, lane)
        with self._lock:
            before = self._connections.get(name)
            if before is not None:
                before.close()
                self._follow(self._guardian.left(name))
            self._connections[name] = connection
            self._guardian.joined(name)
        self._say(f"{name} is connected.")

        def obey(message: Message) -> bool:
            with self._lock:
                if self._connections.get(name) is not connection:
                    return False
                if role == "asker" or not isinstance(message, Hello):
                    self._follow(self._guardian.handle(name, message))
                connection.heard(message)
                return True

        try:
            why = self._heed(channel, obey)
            if why:
                self._say(why)
        finally:
            connection.has_left = True
            connection.close()
            with self._lock:
                if self._connections.get(name) is connection:
                    del self._connections[name]
                    self._follow(self._guardian.left(name))

    def _tick(self) -> None:
        self._follow(self._guardian.tick())
        patience = self._context.patience
        for name, connection in list(self._connections.items()):
            if connection.channel.peer.role != "answerer" or connection.has_left:
                continue
            if not connection.call(TICK, patience=patience, name=self._context.identity.name):
                # It comes back when it can.
                self._say(f"{name} gave no sign of life for {patience / 2:g} s.")
                connection.has_left = True
                connection.close()

    def _follow(self, tasks: list[Task]) -> None:
        for task in tasks:
            connection = self._connections.get(task.to)
            if connection is None:
                continue  # gone by now; the protocol hears of it by itself
            if isinstance(task, Finish):
                connection.work.submit(partial(self._finish, connection, task))
                continue
            if isinstance(task.message, Opened):
                query = self._guardian.state.queries[task.message.qid]
                self._mux.expect(task.to, query.qid)  # before the asker can know of it
                connection.work.submit(partial(self._meet, connection, query))
            connection.outbox.put(task.message)

    def _need(self, connection: PartyConnection, qid: str, program: DecisionProgram) -> EngineLink:
        """Return the link to an asker, ready for a program."""
        assert connection.lane is not None
        connection.lane.need(program, partial(self._mux.take, connection.channel.peer.name, qid))
        return connection.lane

    def _meet(self, connection: PartyConnection, query: Query) -> None:
        """Open the link for the last step and prepare it while parties answer, before anything is charged."""
        qid = query.qid
        try:
            self._need(connection, qid, self._context.decision_program(query.told, query.n_queries))
        except (TellersError, ValueError, OSError) as error:
            if not connection.is_over(qid):
                self._say(
                    f"The link to {connection.channel.peer.name} failed before anything was charged. {error}"
                )
            connection.channel.close()
        finally:
            self._mux.forget(connection.channel.peer.name, qid)

    def _finish(self, connection: PartyConnection, task: Finish) -> None:
        program = task.step.program
        try:
            self._need(connection, task.qid, program).run(program, task.step.inputs(), query=task.qid)
        except (TellersError, ValueError, OSError) as error:
            self._tell_of_failure(connection, task.qid, error)

    def _tell_of_failure(self, connection: PartyConnection, qid: str, error: Exception) -> None:
        """Say what went wrong with a last step, if anything did: an asker with its labels may hang up."""
        name = connection.channel.peer.name
        if not connection.is_over(qid):
            words = error if isinstance(error, TellersError) else type(error).__name__
            self._say(f"The last step with {name} failed after it was charged. {words}")
        elif qid not in connection.done:
            self._say(f"{name} went before it said that it has its labels; the query stays charged.")
        connection.channel.close()
