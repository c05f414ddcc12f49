"""How a connection between parties is kept: nothing waits to be sent, and a peer that vanished is noticed.

A machine that loses its power or its network says no farewell. Without these options a connection to it would
stay open for hours, and with it whatever is held for that party.
"""

import socket
from contextlib import suppress
from typing import Final

IDLE: Final = 20
EVERY: Final = 10
TIMES: Final = 4
DEAD_AFTER: Final = IDLE + EVERY * TIMES
"""Seconds after which a peer whose machine answers nothing is given up: a minute."""


def stay_alert(plain: socket.socket) -> None:
    """Send at once, and ask a silent peer's machine now and then whether it is still there.

    After so many seconds as `DEAD_AFTER` says the connection fails like one that was closed. Options that a
    platform or a kind of socket does not have are left out.

    >>> with socket.socket() as plain:
    ...     stay_alert(plain)
    ...     plain.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
    True
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
