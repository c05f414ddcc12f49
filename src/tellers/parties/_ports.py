"""What parties ask of the operating system: held ports, options of sockets, and memory that nobody reads."""

import ctypes
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

# A port that was only looked at is anybody's until it is used: the system may hand it to whoever asks for any
# port, or connects somewhere.


@contextmanager
def held_port() -> Iterator[int]:
    """Keep a port for somebody who listens on it before this ends.

    It is bound and does not listen, so the system gives it to nobody; a listener that asks for it by its
    number and may reuse addresses, as servers do, gets it. Where systems are stricter than Linux it is a port
    that was free a moment ago.
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


# A machine that loses its power or its network says no farewell. Without these options a connection to it
# would stay open for hours, and with it whatever is held for that party.

IDLE: Final = 20
EVERY: Final = 10
TIMES: Final = 4
DEAD_AFTER: Final = IDLE + EVERY * TIMES
"""Seconds after which a peer whose machine answers nothing is given up: a minute."""


def stay_alert(plain: socket.socket) -> None:
    """Send at once, and ask a silent peer's machine now and then whether it is still there.

    After so many seconds as `DEAD_AFTER` says the connection fails like one that was closed. Options that a
    platform or a kind of socket does not have are left out.
    """
    wanted = [
        (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", IDLE),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", EVERY),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", TIMES),
        # What was sent and never arrived counts too: keepalive alone begins only when nothing is on its way.
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", DEAD_AFTER * 1000),
    ]
    for level, name, value in wanted:
        option = getattr(socket, name, None)
        if option is not None:
            with suppress(OSError):
                plain.setsockopt(level, option, value)


_PR_SET_DUMPABLE: Final = 4


def close_to_others() -> None:
    """Keep what is in this process's memory out of core dumps, and from other processes of the same user.

    Call it before anything private is read; a program that is started from here has to call it again.

    Guarantee: no core dump; on Linux no ptrace and no /proc/PID/mem for processes of this user.
    Assumes:   whoever may trace any process (root, CAP_SYS_PTRACE) is trusted; so is swap. On other systems
               than Linux debuggers of the same user are let in.
    Reference: prctl(2), PR_SET_DUMPABLE; ptrace(2), "Ptrace access mode checking".
    """
    with suppress(ImportError):  # no such limits on this system
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "Expected to be closed to other processes, the system refused.")
