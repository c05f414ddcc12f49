"""The guardian as a process: it listens, keeps the books, draws the noise, and takes the last step."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from .. import noise as noises
from ..budget import Accountant, Budget
from ..config.party import PartySettings
from ..errors import PeerRefused, TellersError
from ..ledger import Ledger
from ..ledger.chained import ChainedLedger
from ..ledger.opening import open_ledger
from .doors import Doors
from .engine import require_engine
from .guarding import Finish, Guardian, Task
from .lanes import Errands, Lane, Outbox
from .listening import Listener
from .messages import Done, Hello, Message, Opened
from .pinned import Pinned
from .programs import HELPER
from .queries import Send
from .standing import Standing
from .wire import PROTOCOL, Channel

_LONG = 7 * 24 * 3600.0
_TICK = 0.25
_GRACE = 3.0  # What an asker said last may still be on its way when its link is gone.


class Visit:
    """A party's connection to the guardian: what is sent to it, and for an asker the link for last steps.

    >>> Visit.__name__
    'Visit'
    """

    def __init__(self, channel: Channel, lane: Lane | None) -> None:
        self.channel, self.lane = channel, lane
        self.outbox = Outbox(channel)
        self.work = Errands()  # What is done on a link is done in the order of the messages.
        self.done: set[str] = set()
        self.has_left = False
        self._silence, self._since_called = 0.0, 0.0

    def heard(self, message: Message) -> None:
        """Take note of a sign of life, and of queries that the asker is done with.

        >>> callable(Visit.heard)
        True
        """
        self._silence = 0.0
        if isinstance(message, Done):
            self.done.add(message.qid)

    def call(self, seconds: float, *, patience: float, name: str) -> bool:
        """Ask an answering party now and then for a sign of life; return whether it is there.

        A party that is frozen has a connection that looks good. `seconds` is the time since the last call, of
        this process awake: whoever was asleep itself may not say that others were silent.

        >>> callable(Visit.call)
        True
        """
        self._silence += seconds
        self._since_called += seconds
        if self._since_called >= patience / 8:
            self._since_called = 0.0
            self.outbox.put(Hello(name=name, protocol=PROTOCOL))
        return self._silence < patience / 2

    def is_over(self, qid: str) -> bool:
        """Return whether the asker is done with a query or went; its last word is waited for a little.

        >>> callable(Visit.is_over)
        True
        """
        until = time.monotonic() + _GRACE
        while qid not in self.done and not self.has_left and time.monotonic() < until:
            time.sleep(0.05)
        return qid in self.done or self.has_left

    def close(self) -> None:
        """End the connection and the link.

        >>> callable(Visit.close)
        True
        """
        self.outbox.close()
        self.channel.close()
        if self.lane is not None:
            self.lane.close()
        self.work.close()


class GuardRole:
    """A guardian that serves until it is stopped.

    `say` is told in words what happens: who came and went, and what failed. Nothing private is in them.

    Guarantee: every query is durable on the ledger before its noise is drawn; see `Guardian`.
    Assumes:   askers and answering parties as in "Who learns what".
    Reference: Choquette-Choo et al. 2021 (CaPC).

    >>> from tellers.config.party_files import example_settings
    >>> from tellers import Accountant, Budget, MemoryLedger
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=5.0, delta=1e-5)))
    >>> GuardRole(example_settings("guardian"), ledger=ledger).is_serving
    False
    """

    def __init__(
        self,
        settings: PartySettings,
        *,
        ledger: Ledger | None = None,
        say: Callable[[str], Any] | None = None,
    ) -> None:
        require_role(settings, "guardian")
        self._standing, self._say = Standing(settings), say or _quiet
        self._own_books = open_books(settings) if ledger is None else None
        self._ledger: Ledger = ledger if self._own_books is None else self._own_books  # type: ignore[assignment]
        self._guardian = Guardian(
            self._standing.guardian_policy(), self._standing.mechanism, self._ledger, noises.secure()
        )
        self._lock = threading.RLock()
        self._visits: dict[str, Visit] = {}
        self._doors = Doors()
        self._stopping = threading.Event()
        self._listener: Listener | None = None

    @property
    def is_serving(self) -> bool:
        """Return whether others can reach it."""
        return self._listener is not None and not self._stopping.is_set()

    @property
    def address(self) -> str:
        """Return where it listens."""
        return self._standing.settings.party.listen if self._listener is None else self._listener.address

    def start(self) -> None:
        """Begin to serve.

        >>> callable(GuardRole.start)
        True
        """
        require_engine()
        standing = self._standing
        self._listener = Listener(
            standing.settings.party.listen, standing.identity, standing.peers, limits=standing.limits,
            refused=self._say,
        )  # fmt: skip
        self._listener.serve(self._host, knocked=self._doors.arrive)
        threading.Thread(target=self._watch_the_clock, daemon=True).start()

    def stop(self) -> None:
        """Close all connections; queries on their way end, those that were charged stay so.

        >>> callable(GuardRole.stop)
        True
        """
        self._stopping.set()
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            for visit in list(self._visits.values()):
                visit.close()
        if self._own_books is not None:
            self._own_books.close()

    def _host(self, channel: Channel) -> None:
        name, role, lane = channel.peer.name, channel.peer.role, None
        if role == "asker":
            ends = Pinned(self._standing.identity, channel.peer)
            lane = Lane(HELPER, ends, timeout=self._standing.patience)
        visit = Visit(channel, lane)
        with self._lock:
            before = self._visits.get(name)
            if before is not None:
                before.close()
                self._follow(self._guardian.left(name))
            self._visits[name] = visit
            self._follow(self._guardian.joined(name))
        self._say(f"{name} is connected.")
        try:
            while not self._stopping.is_set():
                message = channel.receive(timeout=_LONG)
                with self._lock:
                    if self._visits.get(name) is not visit:
                        break
                    visit.heard(message)
                    if role == "asker" or not isinstance(message, Hello):
                        self._follow(self._guardian.handle(name, message))
        except (PeerRefused, TimeoutError) as refusal:
            self._say(str(refusal))
        finally:
            visit.has_left = True
            visit.close()
            with self._lock:
                if self._visits.get(name) is visit:
                    del self._visits[name]
                    self._follow(self._guardian.left(name))

    def _watch_the_clock(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                self._follow(self._guardian.tick())
                for name, visit in list(self._visits.items()):
                    if visit.channel.peer.role == "answerer" and not visit.has_left:
                        self._call(name, visit)
            time.sleep(_TICK)

    def _call(self, name: str, visit: Visit) -> None:
        """Let go of an answering party that gives no sign of life; it comes back when it can."""
        standing = self._standing
        if not visit.call(_TICK, patience=standing.patience, name=standing.identity.name):
            self._say(f"{name} gave no sign of life for {standing.patience / 2:g} s.")
            visit.close()

    def _follow(self, tasks: list[Task]) -> None:
        for task in tasks:
            visit = self._visits.get(task.asker if isinstance(task, Finish) else task.to)
            if visit is None:
                continue  # gone by now; the protocol hears of it by itself
            if isinstance(task, Finish):
                visit.work.submit(partial(self._finish, visit, task))
            else:
                self._send(visit, task)

    def _send(self, visit: Visit, task: Send) -> None:
        if isinstance(task.message, Opened):
            qid, roster = task.message.qid, task.message.roster
            query = self._guardian.state.queries.get(qid)
            if query is not None:
                self._doors.expect(qid)  # before the asker can know of it
                visit.work.submit(partial(self._meet, visit, qid, roster, query.n_queries))
        visit.outbox.put(task.message)

    def _meet(self, visit: Visit, qid: str, roster: tuple[str, ...], n_queries: int) -> None:
        """Open the link for the last step and prepare it while parties answer, before anything is charged."""
        try:
            assert visit.lane is not None
            program = self._standing.decision_program(roster, n_queries)
            visit.lane.need(program, lambda: self._doors.take(qid, timeout=self._standing.patience))
        except (TellersError, ValueError, OSError) as error:
            if not visit.is_over(qid):
                self._say(
                    f"The link to {visit.channel.peer.name} failed before anything was charged. {error}"
                )
            visit.channel.close()
        finally:
            self._doors.forget(qid)

    def _finish(self, visit: Visit, task: Finish) -> None:
        """Run the last step of a query that is charged."""
        step = task.step
        try:
            assert visit.lane is not None
            n_queries, n_outputs = step.masks.shape
            program = step.decision.program(n_outputs=n_outputs, n_queries=n_queries)
            visit.lane.need(program, lambda: self._doors.take(task.qid, timeout=self._standing.patience))
            inputs = program.guardian_inputs(
                step.masks, answer_noise=step.answer_noise, ranks=step.ranks, check_noise=step.check_noise
            )
            visit.lane.run(program, inputs)
        except (TellersError, ValueError, OSError) as error:
            self._tell_of_failure(visit, task.qid, error)

    def _tell_of_failure(self, visit: Visit, qid: str, error: Exception) -> None:
        """Say what went wrong with a last step, if anything did: an asker with its labels may hang up."""
        name = visit.channel.peer.name
        if not visit.is_over(qid):
            words = error if isinstance(error, TellersError) else type(error).__name__
            self._say(f"The last step with {name} failed after it was charged. {words}")
        elif qid not in visit.done:
            self._say(f"{name} went before it said that it has its labels; the query stays charged.")
        visit.channel.close()


def require_role(settings: PartySettings, role: str) -> None:
    """Refuse settings of a party that does something else.

    >>> from tellers.config.party_files import example_settings
    >>> require_role(example_settings("asker"), "guardian")
    Traceback (most recent call last):
        ...
    ValueError: Expected the settings of a guardian, got those of ann, an asker.
    """
    party = settings.party
    if party.role != role:
        articles = {"asker": "an asker", "answerer": "an answerer", "guardian": "a guardian"}
        raise ValueError(
            f"Expected the settings of {articles[role]}, got those of {party.name}, {articles[party.role]}."
        )


def open_books(settings: PartySettings) -> ChainedLedger:
    """Return the ledger that the settings of a party name; it is made if it is not there.

    >>> callable(open_books)
    True
    """
    books = settings.ledger
    accountant = Accountant(Budget(epsilon=books.epsilon, delta=books.delta))
    return open_ledger(settings.place(books.url), accountant)


def _quiet(_: str) -> None:
    return None
