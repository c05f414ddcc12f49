"""Loopback ports for somebody else who will listen on them: an engine, or a process that is yet to start.

A port that was only looked at is anybody's until it is used: the system may hand it to whoever asks for any
port, or connects somewhere.
"""

import random
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from ..errors import LinkFailed

OURS: Final = range(20_000, 32_000)
"""Outside of what is given away by the system itself: 32768 and above on Linux, 49152 and above elsewhere."""

_SPARE: Final = 100


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


def free_ports(n_ports: int) -> list[int]:
    """Return ports that nobody listens on or holds at the moment, and that the system gives to nobody.

    >>> len(set(free_ports(3)) & set(OURS))
    3
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(OURS, min(len(OURS), n_ports + _SPARE)):
        # Without leave to reuse addresses, so that a port that is held is not free.
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == n_ports:
            return found
    raise LinkFailed(f"Expected {n_ports} free ports between {OURS[0]} and {OURS[-1]}, found too few.")


def free_port() -> int:
    """Return one such port.

    >>> free_port() in OURS
    True
    """
    return free_ports(1)[0]
