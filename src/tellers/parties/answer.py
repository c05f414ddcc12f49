"""An answering party as a process: it has a model, and votes with it on rows that it never sees."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .. import noise as noises
from ..config.party import PartySettings
from ..errors import PeerRefused, TellersError
from ..ledger import Ledger
from . import answerer as protocol
from .answerer import begin
from .books import affords, charge_query, query_price, remembered
from .doors import Doors
from .engine import require_engine
from .guard import open_books, require_role
from .lanes import Lane, Outbox
from .listening import Listener
from .messages import Accepted, Closed, Expect, Hello, Message, Out, Question, Refused, Roll
from .pinned import Pinned
from .programs import HELPER
from .ring import Integers
from .standing import Standing
from .wire import PROTOCOL, Channel, connect

_LONG = 7 * 24 * 3600.0
_TICK = 0.25
_GLANCE = 0.01
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0


class AnswerRole:
    """An answering party that serves until it is stopped.

    It keeps a connection to the guardian, and makes it again when it is lost. Its own books hold every query
    before its mask is sent, by the same price as the guardian's; what they cannot pay for is refused.

    Guarantee: no mask leaves before this party's own ledger has the query, and none leaves twice.
    Assumes:   the guardian and askers as in "Who learns what".
    Reference: Choquette-Choo et al. 2021 (CaPC).

    >>> AnswerRole.__name__
    'AnswerRole'
    """

    def __init__(
        self,
        settings: PartySettings,
        *,
        ledger: Ledger | None = None,
        say: Callable[[str], Any] | None = None,
    ) -> None:
        require_role(settings, "answerer")
        self._standing, self._say = Standing(settings), say or (lambda _: None)
        self._price = query_price(self._standing.mechanism, 1)
        self._policy = replace(self._standing.answerer_policy(), affords=self._affords)
        self._model: dict[str, Integers] = self._standing.model()
        self._own_books = open_books(settings) if ledger is None else None
        self._ledger: Ledger = ledger if self._own_books is None else self._own_books  # type: ignore[assignment]
        known = remembered(self._ledger)
        self._state = begin(used=known["used"], answered=known["answered"])
        self._noise = noises.secure()
        self._lock = threading.RLock()
        self._doors = Doors()
        self._outbox: Outbox | None = None
        self._channels: set[Channel] = set()
        self._stopping = threading.Event()
        self._listener: Listener | None = None

    @property
    def is_connected(self) -> bool:
        """Return whether the guardian is there."""
        return self._outbox is not None

    @property
    def address(self) -> str:
        """Return where it listens."""
        return self._standing.settings.party.listen if self._listener is None else self._listener.address

    def start(self) -> None:
        """Begin to serve askers, and to look for the guardian.

        >>> callable(AnswerRole.start)
        True
        """
        require_engine()
        standing = self._standing
        askers = [peer for peer in standing.peers if peer.role == "asker"]
        self._listener = Listener(
            standing.settings.party.listen, standing.identity, askers, limits=standing.limits,
            refused=self._say,
        )  # fmt: skip
        self._listener.serve(self._host, knocked=self._doors.arrive)
        for work in (self._stay_with_guardian, self._watch_the_clock):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """Close all connections; the guardian then knows that this party is gone.

        >>> callable(AnswerRole.stop)
        True
        """
        self._stopping.set()
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            for channel in list(self._channels):
                channel.close()
        if self._own_books is not None:
            self._own_books.close()

    # --- With the guardian. ---

    def _stay_with_guardian(self) -> None:
        pause, guardian = _FIRST_PAUSE, self._standing.settings.guardian
        while not self._stopping.is_set():
            try:
                channel = connect(
                    self._standing.address(guardian), self._standing.identity, self._standing.peer(guardian),
                    limits=self._standing.limits,
                )  # fmt: skip
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
        try:
            while not self._stopping.is_set():
                message = channel.receive(timeout=_LONG)
                with self._lock:
                    self._tell(self._obey(message))
        except (PeerRefused, TimeoutError) as refusal:
            self._say(str(refusal))
        finally:
            with self._lock:
                self._outbox = None
                self._channels.discard(channel)
                self._state = protocol.alone(self._state)
            outbox.close()
            channel.close()

    def _obey(self, message: Message) -> list[Any]:
        if isinstance(message, Expect):
            self._state, said = protocol.expect(self._policy, self._state, message, now=time.monotonic())
            return list(said)
        if isinstance(message, Roll):
            return self._lend(message)
        if isinstance(message, Closed):
            self._state = protocol.closed(self._state, message)
        if isinstance(message, Hello):  # the guardian asks for a sign of life
            return [Hello(name=self._policy.name, protocol=PROTOCOL)]
        return []

    def _affords(self, n_queries: int) -> bool:
        return affords(self._ledger, self._price * n_queries)

    def _lend(self, message: Roll) -> list[Any]:
        query = self._state.queries.get(message.qid)
        state, said = protocol.roll(self._policy, self._state, message, noise=self._noise)
        if query is not None and any(word.kind == "mask" for word in said):
            try:
                charge_query(
                    self._ledger, message.qid, mechanism=self._standing.mechanism, noise=self._noise,
                    n_queries=query.n_queries, asker=query.asker, parties=tuple(sorted(message.nonces)),
                )  # fmt: skip
            except (TellersError, OSError) as error:
                self._say(f"A query was refused by this party's own books. {error}")
                self._state = protocol.closed(self._state, Closed(qid=message.qid))
                return [Out(qid=message.qid, why="refused")]
        self._state = state
        return list(said)

    def _tell(self, said: list[Any]) -> None:
        """Say something to the guardian; if it is not there, it knows that this party is gone."""
        for word in said:
            if self._outbox is not None:
                self._outbox.put(word)

    def _watch_the_clock(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                self._state, said = protocol.tick(self._state, now=time.monotonic())
                self._tell(said)
            time.sleep(_TICK)

    # --- With askers. ---

    def _host(self, channel: Channel) -> None:
        ends = Pinned(self._standing.identity, channel.peer)
        lane = Lane(HELPER, ends, model=self._model, timeout=self._standing.patience)
        with self._lock:
            self._channels.add(channel)
        try:
            while not self._stopping.is_set():
                message = channel.receive(timeout=_LONG)
                if isinstance(message, Question) and not self._vote(channel, lane, message):
                    break
        except (PeerRefused, TimeoutError):
            pass  # an asker may go whenever it likes
        finally:
            lane.close()
            channel.close()
            with self._lock:
                self._channels.discard(channel)

    def _consider(self, asker: str, message: Question) -> tuple[Accepted | Refused, Integers | None]:
        """Return whether to vote, and the mask; the guardian's word of a query may come after the asker's."""
        qid, patience = message.qid, self._standing.patience
        until = time.monotonic() + patience / 2
        while True:
            is_late = time.monotonic() >= until or self._stopping.is_set()
            with self._lock:
                is_announced = qid in self._state.used
                state, answer = protocol.question(
                    self._policy, self._state, asker, message, now=time.monotonic(), patience=patience
                )
                if isinstance(answer, Accepted) and not is_announced and is_late:
                    state, answer = protocol.unannounced(self._state, qid)
                if is_announced or isinstance(answer, Refused):
                    self._state, query = state, state.queries.get(qid)
                    return answer, None if query is None else query.mask
            while qid not in self._state.used and time.monotonic() < until and not self._stopping.is_set():
                time.sleep(_GLANCE)

    def _vote(self, channel: Channel, lane: Lane, message: Question) -> bool:
        """Answer a question; return whether the connection is still of use."""
        qid, asker, patience = message.qid, channel.peer.name, self._standing.patience
        answer, mask = self._consider(asker, message)
        if isinstance(answer, Refused) or mask is None:
            channel.send(answer)
            return True
        assert isinstance(answer, Accepted)
        self._doors.expect(qid)  # before the asker can know of it
        try:
            channel.send(answer)
            program = self._standing.vote_program(message.n_queries)
            lane.need(program, lambda: self._doors.take(qid, timeout=patience))
            lane.run(program, {"mask": mask})
        except (TellersError, ValueError, OSError) as error:
            words = error if isinstance(error, TellersError) else type(error).__name__
            self._say(f"The computation with {asker} failed. {words}")
            with self._lock:
                self._state, out = protocol.failed(self._state, qid)
                self._tell(list(out))
            return False
        finally:
            self._doors.forget(qid)
        with self._lock:
            self._state, ready = protocol.delivered(self._state, qid)
            self._tell(list(ready))
        return True
