"""Loopback ports for processes that a test is yet to start."""

import random
import socket
from contextlib import suppress
from typing import Final

OURS: Final = range(20_000, 32_000)
"""Outside of what is given away by the system itself: 32768 and above on Linux, 49152 and above elsewhere."""

_SPARE: Final = 100


def free_ports(n_ports: int) -> list[int]:
    """Return ports that nobody listens on or holds at the moment, and that the system gives to nobody."""
    found: list[int] = []
    for port in random.SystemRandom().sample(OURS, min(len(OURS), n_ports + _SPARE)):
        # Without leave to reuse addresses, so that a port that is held is not free.
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == n_ports:
            return found
    raise OSError(f"Expected {n_ports} free ports between {OURS[0]} and {OURS[-1]}, found too few.")


def free_port() -> int:
    return free_ports(1)[0]
