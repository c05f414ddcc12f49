"""A party as a process: what guardians and answering parties have in common when they serve."""

import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from ..errors import PeerRefused
from ..ledger._chain import ChainedLedger
from ..ledger.base import Ledger
from ..ledger.opening import open_ledger
from ..runs.settings.party import PartySettings
from ._engine import require_engine
from ._listener import Listener, PortMux
from ._messages import Message
from ._policy import PartyContext
from ._wire import Channel, Peer

TICK: Final = 0.25
_LONG: Final = 7 * 24 * 3600.0


class PartyProcess(ABC):
    """A party that listens until it is stopped, with a ledger of its own unless it is given one."""

    role: str

    def __init__(
        self,
        settings: PartySettings,
        *,
        ledger: Ledger | None = None,
        say: Callable[[str], Any] | None = None,
    ) -> None:
        require_role(settings, self.role)
        self._context, self._say = PartyContext(settings), say or (lambda _: None)
        self._lock, self._stopping = threading.RLock(), threading.Event()
        self._mux = PortMux()
        self._listener: Listener | None = None
        self._prepare()
        self._own_ledger: ChainedLedger | None = None
        if ledger is None:
            chosen = settings.ledger
            ledger = self._own_ledger = open_ledger(settings.place(chosen.url), chosen.accountant)
        self._ledger = ledger

    def _prepare(self) -> None:  # noqa: B027
        """Read what may be refused before a ledger is made."""

    @abstractmethod
    def start(self) -> None: ...

    def run(self, ready: Callable[[str], Any]) -> None:
        """Serve until SIGINT or SIGTERM; `ready` is told the address when it listens."""
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        self.start()
        ready(self.address)
        stop.wait()
        self.stop()

    @abstractmethod
    def _host(self, channel: Channel) -> None:
        """Serve one connection until it ends."""

    @abstractmethod
    def _close_connections(self) -> None: ...

    @abstractmethod
    def _tick(self) -> None:
        """Look at the clock; called several times a second, with the lock."""

    def _watch_the_clock(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                self._tick()
            time.sleep(TICK)

    def _heed(self, channel: Channel, obey: Callable[[Message], bool]) -> Exception | None:
        """Do what comes over a connection while `obey` says that it is of use; return what ended it."""
        try:
            while not self._stopping.is_set() and obey(channel.receive(timeout=_LONG)):
                pass
        except (PeerRefused, TimeoutError) as refusal:
            return refusal
        return None

    @property
    def address(self) -> str:
        return self._context.settings.party.listen if self._listener is None else self._listener.address

    def _serve(self, peers: list[Peer], *background: Callable[[], None]) -> None:
        """Listen for some parties, and do other things beside it."""
        context = self._context
        if not context.is_sum:
            require_engine()
        self._listener = Listener(
            context.settings.party.listen, context.identity, peers, handle=self._host,
            mux=self._mux, limits=context.limits, refused=self._say,
        )  # fmt: skip
        for work in (self._watch_the_clock, *background):
            threading.Thread(target=work, daemon=True).start()

    def stop(self) -> None:
        """Close all connections: queries on their way end, those that were charged stay so."""
        self._stopping.set()
        if self._listener is not None:
            self._listener.close()
        with self._lock:
            self._close_connections()
        if self._own_ledger is not None:
            self._own_ledger.close()


def require_role(settings: PartySettings, role: str) -> None:
    party = settings.party
    if party.role != role:
        articles = {"asker": "an asker", "answerer": "an answerer", "guardian": "a guardian"}
        raise ValueError(
            f"Expected the settings of {articles[role]}, got those of {party.name}, {articles[party.role]}."
        )
