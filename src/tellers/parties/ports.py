"""A loopback port that is kept for the engine until it listens there.

A port that was only looked at is anybody's until it is used: the system may hand it to whoever asks for any
port, or connects somewhere.
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """Keep a port for somebody who listens on it before this ends.

    It is bound and does not listen, so the system gives it to nobody; a listener that asks for it by its
    number and may reuse addresses, as servers do, gets it. Where systems are stricter than Linux it is a port
    that was free a moment ago.

    >>> with held_port() as port, socket.create_server(("127.0.0.1", port)) as server:
    ...     server.getsockname()[1] == port
    True
    """
    held = socket.socket()
    try:
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
        if sys.platform == "linux":
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            held.close()
        yield port
    finally:
        held.close()
