"""A tunnel carries connections both ways inside TLS, and only between certificates that know each other."""

import importlib.util
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tellers.errors import LinkFailed
from tellers.parties._tunnel import Tunnel, dial

pytest.importorskip("cryptography")
_spec = importlib.util.spec_from_file_location("parties_conftest", Path(__file__).parent / "conftest.py")
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)
ends_of = _shared.ends_of


def meet(certificates, dialer, listener):
    """Shake hands between two ends, each named with its peer; return a socket or an error of each side."""
    door, results = socket.create_server(("127.0.0.1", 0)), {}

    def shake(side, plain, *, listens):
        ends = ends_of(certificates, *(listener if listens else dialer))
        try:
            results[side] = ends.shake_hands(plain, listens=listens, timeout=30)
            results[side].settimeout(30)
        except LinkFailed as error:
            results[side] = error

    thread = threading.Thread(target=lambda: shake("listener", door.accept()[0], listens=True))
    thread.start()
    shake("dialer", dial(door.getsockname(), timeout=30), listens=False)
    thread.join(timeout=60)
    door.close()
    return results["dialer"], results["listener"]


class Echo:
    """A server on loopback that sends back what it gets, as an engine would be there."""

    def __init__(self):
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                one, _ = self.door.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(one,), daemon=True).start()

    @staticmethod
    def answer(one):
        while piece := one.recv(65536):
            one.sendall(piece)
        one.close()


def end(tunnel):
    """Cut the connection of a tunnel, as the end of its process does."""
    with suppress(OSError):
        socket.socket.shutdown(tunnel._secure, socket.SHUT_RDWR)
    tunnel._thread.join(timeout=30)


@pytest.fixture
def tunnels(certificates):
    near, far = meet(certificates, ("ann", "north"), ("north", "ann"))
    ended, echoes = [], [Echo(), Echo()]
    both = [
        Tunnel(near, echoes[0].port, is_dialer=True, on_end=lambda: ended.append("near")),
        Tunnel(far, echoes[1].port, is_dialer=False, on_end=lambda: ended.append("far")),
    ]
    for tunnel in both:
        tunnel.start()
    yield both, ended
    for tunnel in both:
        end(tunnel)
    for echo in echoes:
        echo.door.close()


def exchange(port, sent):
    """Send bytes to a port and return as many that come back."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        writer = threading.Thread(target=one.sendall, args=(sent,))
        writer.start()
        got = bytearray()
        while len(got) < len(sent):
            piece = one.recv(1 << 16)
            assert piece
            got += piece
        writer.join()
    return bytes(got)


def wait_for(condition, seconds=20):
    """Fail unless a condition holds within a time that a quiet machine never needs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def test_both_sides_open_connections(tunnels):
    (near, far), _ = tunnels
    for tunnel in (near, far, near):
        assert exchange(tunnel.near_port, b"hello" * 10) == b"hello" * 10


def test_more_than_fits_any_buffer_arrives_whole(tunnels):
    (near, far), _ = tunnels
    sent = bytes(range(256)) * (1 << 16)  # 16 MiB
    threads, found = [], {}
    for name, tunnel in (("near", near), ("far", far)):
        fetch = lambda n=name, t=tunnel: found.update({n: exchange(t.near_port, sent)})  # noqa: E731
        threads.append(threading.Thread(target=fetch))
        threads[-1].start()
    for thread in threads:
        thread.join(timeout=60)
    assert found["near"] == sent
    assert found["far"] == sent
    assert near.n_sent >= 2 * len(sent)  # its own, and the echo of the other's
    # The frames that close both connections leave after the last byte came: they may still be under way.
    wait_for(lambda: near.n_sent == far.n_received and far.n_sent == near.n_received)


def test_the_end_is_noticed_at_once(tunnels):
    (near, far), ended = tunnels
    port = far.near_port
    end(near)
    far._thread.join(timeout=30)
    assert sorted(ended) == ["far", "near"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.mark.parametrize(
    ("dialer", "listener"),
    [
        (("bea", "north"), ("north", "ann")),  # the listener has another pin of the same authority
        (("ann", "south"), ("north", "ann")),  # the dialer looks for another
    ],
    ids=["another dials", "another listens"],
)
def test_strangers_are_refused(certificates, dialer, listener):
    near, far = meet(certificates, dialer, listener)
    refused = [side for side in (near, far) if isinstance(side, LinkFailed)]
    assert refused
    # In TLS 1.3 a dialer may learn only by its first read that it was refused.
    if not isinstance(near, LinkFailed):
        with suppress(OSError):
            assert near.recv(1) == b""


def test_plain_tcp_is_refused(certificates):
    door = socket.create_server(("127.0.0.1", 0))
    told = []

    def accept():
        try:
            ends = ends_of(certificates, "north", "ann")
            ends.shake_hands(door.accept()[0], listens=True, timeout=30)
        except LinkFailed as error:
            told.append(str(error))

    thread = threading.Thread(target=accept)
    thread.start()
    with dial(door.getsockname()) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n" * 4)
        plain.settimeout(5)
        answer = b""
        try:
            while piece := plain.recv(4096):
                answer += piece
        except ConnectionResetError:
            pass
    thread.join(timeout=60)
    assert len(answer) <= 7  # at most a TLS alert
    assert told
    assert told[0].startswith("Expected TLS 1.3 from a party")


def test_a_frame_that_is_none_ends_the_tunnel(certificates):
    near, far = meet(certificates, ("ann", "north"), ("north", "ann"))
    ended = threading.Event()
    tunnel = Tunnel(far, 1, is_dialer=False, on_end=ended.set)
    tunnel.start()
    near.sendall(b"\xff" * 64)
    assert ended.wait(30)
    near.close()
