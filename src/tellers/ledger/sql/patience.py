"""Connections to a server that are given up when it falls silent: one that froze says nothing for ever."""

import os
import socket
import threading
import time
import weakref
from contextlib import suppress
from functools import cache
from typing import Any

import sqlalchemy as sa

# How often in the time that a server has a watch looks.
_LOOKS = 8


def be_impatient(engine: sa.Engine, *, seconds: float) -> sa.Engine:
    """Let connections of an engine break when the server takes longer than this for one answer.

    A server bounds its statements itself, unless it is the server that hangs: its kernel goes on to
    acknowledge what we send, so that nothing else ends the wait.

    >>> be_impatient(sa.create_engine("sqlite://"), seconds=5.0).dialect.name
    'sqlite'
    """

    def connect(_dialect: Any, _record: Any, given: list[Any], named: dict[str, Any]) -> Any:
        connection = _kind().connect(*given, **named)
        _watch(connection, seconds)
        return connection

    if engine.dialect.driver == "psycopg":
        sa.event.listen(engine, "do_connect", connect)
    return engine


@cache
def _kind() -> Any:
    import psycopg

    class Watched(psycopg.Connection[Any]):
        """A connection that notes since when it has been waiting."""

        since: float | None = None

        def wait(self, *given: Any, **named: Any) -> Any:
            """Wait for the server, as before."""
            self.since = time.monotonic()
            try:
                return super().wait(*given, **named)
            finally:
                self.since = None

    return Watched


def _watch(connection: Any, seconds: float) -> None:
    # A line of our own to the same socket: the number of a closed one may be somebody else's by then.
    line = socket.socket(fileno=os.dup(connection.fileno()))
    watched = weakref.ref(connection)

    def look() -> None:
        with line:
            while True:
                time.sleep(seconds / _LOOKS)
                still = watched()
                if still is None or still.closed:
                    return
                since = still.since
                if since is not None and time.monotonic() - since > seconds:
                    with suppress(OSError):
                        line.shutdown(socket.SHUT_RDWR)
                    return
                del still

    threading.Thread(target=look, name="patience", daemon=True).start()
