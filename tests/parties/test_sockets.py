"""A peer whose machine vanished is noticed: the options are on both ends of every kind of connection."""

import queue
import socket
import threading
from contextlib import closing, suppress

import pytest

pytest.importorskip("cryptography")

from tellers.parties._listener import Listener
from tellers.parties._ports import DEAD_AFTER, EVERY, IDLE, TIMES, stay_alert
from tellers.parties._tunnel import Tunnel, dial
from tellers.parties._wire import Pinned, connect
from tellers.testing._ports import free_port

WANTED = {
    "TCP_KEEPIDLE": IDLE,
    "TCP_KEEPINTVL": EVERY,
    "TCP_KEEPCNT": TIMES,
    "TCP_USER_TIMEOUT": DEAD_AFTER * 1000,
}


def require_alert(one):
    """Look at the options as the operating system has them."""
    assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    for name, value in WANTED.items():
        if hasattr(socket, name):
            assert one.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value


def test_both_ends_of_a_channel(certificates):
    ann, guard = (certificates.identities[name] for name in ("ann", "guard"))
    accepted = queue.Queue()
    with (
        closing(Listener("127.0.0.1:0", guard, [certificates.peers["ann"]], handle=accepted.put)) as listener,
        closing(connect(listener.address, ann, certificates.peers["guard"])) as channel,
    ):
        require_alert(channel._socket)
        with closing(accepted.get(timeout=10.0)) as other:
            require_alert(other._socket)


def test_both_ends_of_an_engines_link(certificates):
    ann, guard = (certificates.identities[name] for name in ("ann", "guard"))
    ends = [Pinned(ann, certificates.peers["guard"]), Pinned(guard, certificates.peers["ann"])]
    found = []
    with socket.create_server(("127.0.0.1", 0)) as door:
        answering = threading.Thread(
            target=lambda: found.append(ends[1].shake_hands(door.accept()[0], listens=True, timeout=10.0))
        )
        answering.start()
        found.append(ends[0].shake_hands(dial(door.getsockname()), listens=False, timeout=10.0))
        answering.join(timeout=10.0)
    tunnels = [
        Tunnel(secure, free_port(), is_dialer=secure is found[0], on_end=lambda: None) for secure in found
    ]
    for secure, tunnel in zip(found, tunnels):
        require_alert(secure)
        tunnel.start()
    for tunnel in tunnels:
        with suppress(OSError):
            socket.socket.shutdown(tunnel._secure, socket.SHUT_RDWR)
        tunnel._thread.join(timeout=30)


def test_other_kinds_of_sockets_are_left_as_they_are():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stay_alert(ours)
        ours.sendall(b"still good")
        assert theirs.recv(10) == b"still good"
