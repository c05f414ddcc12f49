"""An answering party: its part of the protocol, and its process."""

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from ..errors import LinkUnreached, PeerRefused, TellersError
from ..ledger.base import Ledger
from ..privacy import noise as noises
from ..privacy.noise import Noise
from ..runs.settings.party import PartySettings
from ._hardening import lend, zero_sum_mask
from ._ledger import Marks, affords, charge_query, mark, marked, query_price, remembered, write_note
from ._link import EngineLink, Outbox
from ._messages import (
    Accepted,
    Closed,
    Expect,
    Hello,
    Mask,
    Message,
    Out,
    Question,
    Ready,
    Refused,
    Roll,
    ScoreShare,
)
from ._policy import Policy, why_not
from ._process import PartyProcess
from ._ring import Integers, fresh_mask
from ._sums import share_of
from ._wire import PROTOCOL, Channel
from .programs import HELPER

# --- Protocol ---
#
# A query goes through these phases here:
#
# expected   the guardian said that it will come; if it does not, the guardian is told
# asked      the asker came, and everything it may ask was checked; the two-party computation is under way
# ready      the asker has its share; the mask waits for the answering set
# lent       the mask was sent, once and for one set; nothing of it is kept
#
# A mask is drawn for one query and hides one vote. It is lent for one answering set, at most once, and
# never to a set smaller than the quorum or without this party's own fresh number in it. No id is answered
# twice.
#
# A query that is charged here and of which no label comes out is lost, and who brings that about may be
# anybody: the asker, another answering party, the guardian. So the operator's quota says how many may be
# lost in a day, by asker and in all. A query counts as lost from the moment its mask is lent until the
# guardian says that it went on, and what is under way counts before. A guardian that lies about it makes
# losses look like answers: they stay within the books and `queries_per_asker` all the same.

Phase = Literal["expected", "asked", "ready", "lent"]
_KEPT = 600.0  # A mask that nobody asked for this long after its time is forgotten.


@dataclass(frozen=True, eq=False)
class Answering:
    """One query at an answering party; its mask is secret."""

    qid: str
    asker: str
    n_queries: int
    until: float
    phase: Phase = "expected"
    is_expected: bool = True
    nonce: str = ""
    day: str = ""
    mask: Integers | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class AnswererState:
    """All that an answering party remembers: queries on their way, ids, what askers had, what was lost.

    `went_on` holds queries that the guardian said went on, until the next entry of the books says so too.
    """

    queries: Mapping[str, Answering] = field(default_factory=dict)
    used: frozenset[str] = frozenset()
    answered: Mapping[str, int] = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)
    went_on: tuple[str, ...] = ()


Step = tuple[AnswererState, list[Message]]
"""What follows: the state, and what is said to the guardian."""


def expect(policy: Policy, state: AnswererState, message: Expect, *, now: float) -> Step:
    """Take note that an asker will come; what this party would refuse, it refuses at once."""
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
    policy: Policy, state: AnswererState, asker: str, message: Question, *, now: float
) -> tuple[AnswererState, Accepted | Refused]:
    """Take a question or refuse it; an accepted one has a fresh mask in `state.queries[qid].mask`.

    Run the two-party computation with that mask, then call `delivered` or `failed`.
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
    shape = (policy.session.n_features, policy.session.n_outputs)
    if not why and (message.n_features, message.n_outputs) != shape:
        why = f"Rows have {shape[0]} numbers here, and votes {shape[1]}."
    if why:
        return replace(state, used=state.used | {qid}), Refused(qid=qid, why=why)
    query = Answering(
        qid, asker, message.n_queries, until=now + policy.patience, phase="asked", is_expected=announced,
        nonce=secrets.token_hex(16), mask=fresh_mask((message.n_queries, policy.session.n_outputs)),
    )  # fmt: skip
    return _put(replace(state, used=state.used | {qid}), query), Accepted(qid=qid)


def unannounced(state: AnswererState, qid: str) -> tuple[AnswererState, Refused]:
    """Refuse a question that the guardian has not announced in time: nobody could lend a mask to it."""
    why = "The guardian has announced no such query to this party. Open it there first."
    return replace(state, used=state.used | {qid}), Refused(qid=qid, why=why)


def alone(state: AnswererState) -> AnswererState:
    """Forget queries on their way: the guardian is gone, and goes on without this party."""
    return replace(state, queries={})


def delivered(state: AnswererState, qid: str) -> Step:
    """Tell the guardian that the asker has its share; nothing if the query is over by now."""
    query = state.queries.get(qid)
    if query is None or query.phase != "asked":
        return state, []
    return _put(state, replace(query, phase="ready")), [Ready(qid=qid, nonce=query.nonce)]


def failed(state: AnswererState, qid: str, *, why: str = "failed") -> Step:
    """Tell the guardian that the computation with the asker failed, and forget the mask."""
    query = state.queries.get(qid)
    if query is None or query.phase == "lent":
        return state, []
    return forget(state, qid), [Out(qid=qid, why=why)]


def roll(policy: Policy, state: AnswererState, message: Roll, *, noise: Noise) -> Step:
    """Lend the mask to the answering set, once; `lend_mask` charges this party's ledger before it is sent."""
    qid, query = message.qid, state.queries.get(message.qid)
    if query is None or query.mask is None or query.phase != "ready":
        if qid in state.used:
            return state, []  # over by now, or lent before: a mask is lent to one set only
        raise PeerRefused("Expected a query that this party answered, got another.")
    if message.nonces.get(policy.name) != query.nonce:
        raise PeerRefused("Expected an answering set with this party's own fresh number, got another.")
    members, keys = set(message.nonces), policy.pair_keys
    has_keys = keys is None or members - {policy.name} <= set(keys)
    fits = len(members) >= policy.session.quorum and members <= set(policy.roster)
    if not fits or not has_keys or _loses_too_much(policy, state, query.asker, query.n_queries, []):
        return forget(state, qid), [Out(qid=qid, why="refused")]
    cancelling = None
    if keys is not None:
        shape = (query.n_queries, policy.session.n_outputs)
        cancelling = zero_sum_mask(policy.name, keys, qid=qid, nonces=message.nonces, shape=shape)
    lent = lend(query.mask, cancelling=cancelling, sigma=policy.hardening.noise_sigma, noise=noise)
    answered = {**state.answered, query.asker: state.answered.get(query.asker, 0) + query.n_queries}
    day = policy.today()
    marks = mark(state.marks, "lost", query.asker, day, query.n_queries)  # until the guardian says otherwise
    query = replace(query, phase="lent", day=day, mask=None)
    return _put(replace(state, answered=answered, marks=marks), query), [Mask(qid=qid, mask=lent)]


def lend_mask(
    policy: Policy, state: AnswererState, message: Roll, *, noise: Noise, ledger: Ledger, mechanism: Any,
    known: Iterable[Iterable[int]] = (), say: Callable[[str], Any],
) -> Step:  # fmt: skip
    """Lend the mask, with the query on this party's own ledger by then, if that takes it."""
    query = state.queries.get(message.qid)
    after, said = roll(policy, state, message, noise=noise)
    if query is None or not any(isinstance(word, Mask) for word in said):
        return after, said
    try:
        charge_query(
            ledger, query.qid, mechanism=mechanism, noise=noise, n_queries=query.n_queries, asker=query.asker,
            parties=tuple(sorted(message.nonces)), day=after.queries[query.qid].day,
            known=known, went_on=list(state.went_on),
        )  # fmt: skip
    except (TellersError, OSError) as error:
        say(f"A query was refused by this party's own books. {error}")
        return forget(state, query.qid), [Out(qid=query.qid, why="refused")]
    return replace(after, went_on=()), said


def closed(state: AnswererState, message: Closed) -> AnswererState:
    """Forget a query that is over; one that went on to its labels is not lost."""
    query = state.queries.get(message.qid)
    if query is not None and query.phase == "lent" and message.charged:
        marks = mark(state.marks, "lost", query.asker, query.day, -query.n_queries)
        state = replace(state, marks=marks, went_on=(*state.went_on, query.qid))
    return forget(state, message.qid)


def forget(state: AnswererState, qid: str) -> AnswererState:
    return replace(state, queries={other: q for other, q in state.queries.items() if other != qid})


def tick(state: AnswererState, *, now: float) -> Step:
    """Tell the guardian of queries that were announced and never asked; forget what took too long."""
    told: list[Message] = []
    for qid, query in list(state.queries.items()):
        if now < query.until:
            continue
        if query.phase == "expected":
            state = forget(state, qid)
            told.append(Out(qid=qid, why="not asked"))
        elif now >= query.until + _KEPT:
            state = forget(state, qid)
    return state, told


def _why_not_now(
    policy: Policy, state: AnswererState, asker: str, message: Expect | Question, *, own: str = ""
) -> str:
    unpaid = [query for qid, query in state.queries.items() if qid != own and query.phase != "lent"]
    # Who finds out only when the answering set is fixed ends the query for everybody.
    why = why_not(
        policy, asker, message, host="this party", answered=state.answered, unpaid=unpaid,
        n_open=sum(query.asker == asker for query in unpaid),
        poor="This party's own books cannot pay for it.",
    )  # fmt: skip
    return why or _loses_too_much(policy, state, asker, message.n_queries, unpaid)


def _loses_too_much(
    policy: Policy, state: AnswererState, asker: str, n_queries: int, unpaid: list[Answering]
) -> str:
    for name, most in ((asker, policy.limits.max_lost_per_asker), (None, policy.limits.max_lost_per_day)):
        waiting = sum(query.n_queries for query in unpaid if name in (None, query.asker))
        if marked(state.marks, "lost", name, policy.today()) + waiting + n_queries > most:
            whose = f"of {asker}" if name else "in all"
            return f"At most {most} queries {whose} may be lost or on their way here in a day (UTC)."
    return ""


def _put(state: AnswererState, query: Answering) -> AnswererState:
    return replace(state, queries={**state.queries, query.qid: query})


# --- Process ---

_GLANCE = 0.01
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0


class AnswerRole(PartyProcess):
    """An answering party that serves until it is stopped.

    It keeps a connection to the guardian, and makes it again when it is lost. Its own books hold every query
    before its mask is sent, by the same price as the guardian's; what they cannot pay for is refused.

    Guarantee: no mask leaves before this party's own ledger has the query, and none leaves twice.
    Assumes:   the guardian and askers as in "Who learns what".
    Reference: Choquette-Choo et al. 2021 (CaPC).
    """

    role = "answerer"

    def __init__(self, settings: PartySettings, **options: Any) -> None:
        super().__init__(settings, **options)
        known = remembered(self._ledger)
        self._state = AnswererState(used=known["used"], answered=known["answered"], marks=known["marks"])
        self._noise = noises.secure()
        self._outbox: Outbox | None = None
        self._channels: set[Channel] = set()

    def _prepare(self) -> None:
        known = self._context.settings.paid_labels
        price = query_price(self._context.mechanism, 1, known=known)
        self._policy = replace(self._context.policy(), affords=lambda n: affords(self._ledger, price * n))
        self._model: dict[str, Integers] = self._context.model()

    def start(self) -> None:
        askers = [peer for peer in self._context.peers if peer.role == "asker"]
        self._serve(askers, self._stay_with_guardian)

    def _close_connections(self) -> None:
        for channel in list(self._channels):
            channel.close()
        if self._state.went_on:
            went_on, self._state = list(self._state.went_on), replace(self._state, went_on=())
            with suppress(TellersError, OSError):  # they count as lost then
                key = f"went-on/{secrets.token_hex(8)}"
                write_note(self._ledger, key, "Queries that went on to their labels.", went_on=went_on)

    # --- With the guardian. ---

    def _stay_with_guardian(self) -> None:
        pause, guardian = _FIRST_PAUSE, self._context.settings.guardian
        while not self._stopping.is_set():
            try:
                channel = self._context.connect(guardian)
            except (PeerRefused, OSError, ValueError) as refusal:
                if pause == _FIRST_PAUSE:
                    self._say(f"{refusal} Trying again.")
                self._stopping.wait(pause)
                pause = min(_LONGEST_PAUSE, 2 * pause)
                continue
            pause = _FIRST_PAUSE
            self._say(f"Connected to {guardian}.")
            self._listen_to_guardian(channel)

    def _listen_to_guardian(self, channel: Channel) -> None:
        outbox = Outbox(channel)
        with self._lock:
            self._outbox = outbox
            self._channels.add(channel)

        def obey(message: Message) -> bool:
            with self._lock:
                self._tell(self._obey(message))
            return True

        try:
            why = self._heed(channel, obey)
            if why is not None:
                self._say(str(why))
        finally:
            with self._lock:
                self._outbox = None
                self._channels.discard(channel)
                self._state = alone(self._state)
            outbox.close()
            channel.close()

    def _obey(self, message: Message) -> list[Message]:
        if isinstance(message, Expect):
            self._state, said = expect(self._policy, self._state, message, now=time.monotonic())
            return said
        if isinstance(message, Roll):
            self._state, said = lend_mask(
                self._policy, self._state, message, noise=self._noise, ledger=self._ledger,
                mechanism=self._context.mechanism, known=self._context.settings.paid_labels, say=self._say,
            )  # fmt: skip
            return said
        if isinstance(message, Closed):
            self._state = closed(self._state, message)
        if isinstance(message, Hello):  # the guardian asks for a sign of life
            return [Hello(name=self._policy.name, protocol=PROTOCOL)]
        return []

    def _tell(self, said: list[Message]) -> None:
        """Say something to the guardian; if it is not there, it knows that this party is gone."""
        for word in said:
            if self._outbox is not None:
                self._outbox.put(word)

    def _tick(self) -> None:
        self._state, said = tick(self._state, now=time.monotonic())
        self._tell(said)

    # --- With askers. ---

    def _host(self, channel: Channel) -> None:
        lane = self._context.link(HELPER, channel, model=self._model)
        with self._lock:
            self._channels.add(channel)

        def obey(message: Message) -> bool:
            return not isinstance(message, Question) or self._vote(channel, lane, message)

        try:
            self._heed(channel, obey)  # an asker may go whenever it likes
        finally:
            lane.give_up()
            channel.close()
            with self._lock:
                self._channels.discard(channel)

    def _consider(self, asker: str, message: Question) -> tuple[Accepted | Refused, Integers | None]:
        """Return whether to vote, and the mask; the guardian's word of a query may come after the asker's."""
        qid, until = message.qid, time.monotonic() + self._context.patience / 2
        while True:
            is_late = time.monotonic() >= until or self._stopping.is_set()
            with self._lock:
                is_announced = qid in self._state.used
                state, answer = question(self._policy, self._state, asker, message, now=time.monotonic())
                if isinstance(answer, Accepted) and not is_announced and is_late:
                    state, answer = unannounced(self._state, qid)
                if is_announced or isinstance(answer, Refused):
                    self._state, query = state, state.queries.get(qid)
                    return answer, None if query is None else query.mask
            while qid not in self._state.used and time.monotonic() < until and not self._stopping.is_set():
                time.sleep(_GLANCE)

    def _vote(self, channel: Channel, lane: EngineLink, message: Question) -> bool:
        """Answer a question; return whether the connection is still of use."""
        qid, asker = message.qid, channel.peer.name
        answer, mask = self._consider(asker, message)
        if isinstance(answer, Refused) or mask is None:
            channel.send(answer)
            return True
        assert isinstance(answer, Accepted)
        self._mux.expect(asker, qid)  # before the asker can know of it
        try:
            channel.send(answer)
            if self._context.is_sum:
                channel.send(ScoreShare(qid=qid, table=share_of(self._model["answer"], mask)))
            else:
                program = self._context.vote_program(message.n_queries)
                lane.need(program, partial(self._mux.take, asker, qid))
                lane.run(program, {"mask": mask}, query=qid)
        except (TellersError, ValueError, OSError) as error:
            words = error if isinstance(error, TellersError) else type(error).__name__
            self._say(f"The computation with {asker} failed. {words}")
            with self._lock:
                why = "unreached" if isinstance(error, LinkUnreached) else "failed"
                self._state, out = failed(self._state, qid, why=why)
                self._tell(out)
            return False
        finally:
            self._mux.forget(asker, qid)
        with self._lock:
            self._state, ready = delivered(self._state, qid)
            self._tell(ready)
        return True
