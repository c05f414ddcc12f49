"""The wire: a request whose head is too long, or does not come, is given up before anyone is known."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_HEAD_BYTES = 32_768
HEAD_SECONDS = 15.0


class HurriedProtocol(H11Protocol):
    """Speaks HTTP with those who say within seconds, and in few words, what they want.

    How large a body may be and how long it may take is decided later, when the key is known. A head comes
    from strangers: without a limit, one connection could fill the memory, and idle ones every socket.

    >>> HurriedProtocol.seconds
    15.0
    """

    seconds = HEAD_SECONDS
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request.

        >>> callable(HurriedProtocol.connection_made)
        True
        """
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Read on, and look whether half a request is left to wait for.

        >>> callable(HurriedProtocol.data_received)
        True
        """
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE or not self.conn.trailing_data[0]:
            self._end()
        elif self._timer is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more.

        >>> callable(HurriedProtocol.connection_lost)
        True
        """
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._timer = self.loop.call_later(self.seconds, self._give_up)

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.close()
