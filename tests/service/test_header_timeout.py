"""The wire, by hand: heads that are too long or do not come are given up, and nobody else is."""

import contextlib
import functools
import socket
import threading
import time

import pytest

uvicorn = pytest.importorskip("uvicorn")

from tellers.service import ServiceSettings  # noqa: E402
from tellers.service import _server as serving  # noqa: E402
from tellers.service._connections import (  # noqa: E402
    MAX_HEADER_BYTES,
    Connection,
    ConnectionBudget,
    Deadlines,
)

SECONDS = 1.2
Soon = functools.partial(Connection, budget=ConnectionBudget(100), deadlines=Deadlines(head=SECONDS, idle=60))


async def slow_app(scope, receive, send):
    """Read all of a body, think longer than a head may take, and say how long it was."""
    import asyncio

    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    await asyncio.sleep(1.5 * SECONDS)
    body = str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture(scope="module")
def address():
    config = uvicorn.Config(
        slow_app, host="127.0.0.1", port=0, http=Soon, lifespan="off", log_config=None, ws="none",
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    yield server.servers[0].sockets[0].getsockname()
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def line(address):
    with socket.create_connection(address, timeout=10) as opened:
        yield opened


def rest(line):
    """Return what comes until the other side closes, and how long that took."""
    start, parts = time.monotonic(), []
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(65_536):
            parts.append(part)
    return b"".join(parts), time.monotonic() - start


@pytest.mark.parametrize("begun", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come_is_not_waited_for(line, begun):
    line.sendall(begun)
    said, took = rest(line)
    assert said == b""
    assert took < 10 * SECONDS


def test_a_head_that_comes_drop_by_drop_is_not_waited_for(line):
    line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
    start = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - start < 20:
            line.sendall(b"X: y\r\n")
            time.sleep(SECONDS / 4)
    assert time.monotonic() - start < 20


def test_half_of_a_second_request_is_not_waited_for(line):
    whole = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    line.sendall(whole)
    assert line.recv(1000).startswith(b"HTTP/1.1 200")
    line.sendall(whole[:-3])
    said, took = rest(line)
    assert b"200" not in said
    assert took < 20  # as soon as the first, not when a kept connection is given up


@pytest.mark.parametrize(
    "head",
    [b"X: " + b"a" * 20 * MAX_HEADER_BYTES, b"".join(b"X%d: a\r\n" % n for n in range(MAX_HEADER_BYTES))],
    ids=["a long line", "many lines"],
)
def test_a_head_without_end_is_refused(line, head):
    with contextlib.suppress(OSError):
        line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + head)
    said, took = rest(line)
    assert said == b"" or said.startswith(b"HTTP/1.1 400")
    assert took < 20


def test_who_has_said_what_they_want_is_not_hurried(line):
    line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 30\r\n\r\n")
    for _ in range(3):  # the body has a limit of its own
        time.sleep(SECONDS)
        line.sendall(b"x" * 10)
    said, _ = rest(line)
    assert said.startswith(b"HTTP/1.1 200")
    assert said.endswith(b"30")


def test_a_service_speaks_it(monkeypatch, place):
    given = {}

    class Stop(Exception):
        pass

    def config(_app, **named):
        given.update(named)
        raise Stop

    monkeypatch.setattr(uvicorn, "Config", config)
    with pytest.raises(Stop):
        serving.serve(place.settings, log_stream=place.log)
    assert given["http"].func is Connection
    assert isinstance(place.settings, ServiceSettings)
