"""The wire, by hand: what strangers may hold, send and leave unread, and that others get in all the same."""

import asyncio
import contextlib
import functools
import json
import resource
import socket
import ssl
import sys
import threading
import time
from dataclasses import replace

import pytest

uvicorn = pytest.importorskip("uvicorn")

from tellers.service._connections import (  # noqa: E402
    DRAIN_BYTES,
    MAX_HEADER_BYTES,
    MAX_PIPELINED,
    WRITE_BYTES,
    Acceptor,
    Connection,
    ConnectionBudget,
    Deadlines,
    allowed_connections,
    listening_sockets,
)

from .test_settings import write_certificate  # noqa: E402

DEADLINES = Deadlines(handshake=0.5, head=0.5, body=0.5, idle=0.5, write=0.5, drain=0.5, close=0.3)
LONG = 20.0  # what no connection here may last, whatever else the machine does
MOST = 12
LARGE = b"x" * 4_000_000
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def app(scope, receive, send):
    """Answer 200 with a key, 401 without one, and say what came; /read reads a body first."""
    body = b""
    if scope["headers"] and dict(scope["headers"]).get(b"authorization") == b"yes":
        scope["state"]["key_id"] = "one"
    if scope["path"] == "/read":
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
    status = 200 if "key_id" in scope["state"] or scope["path"] != "/" else 401
    names = sorted(name.decode() for name, _ in scope["headers"])
    said = LARGE if scope["path"] == "/large" else json.dumps([len(body), names]).encode()
    length = (b"content-length", str(len(said)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length]})
    await send({"type": "http.response.body", "body": said})


class Service(uvicorn.Server):
    """An application behind our own way of accepting, in a thread."""

    def __init__(self, *, per_address=0, context=None, deadlines=DEADLINES):
        super().__init__(uvicorn.Config(app, lifespan="off", log_config=None, ws="none"))
        self.budget = ConnectionBudget(MOST, per_address=per_address, every=0.05)
        self.context, self.deadlines = context, deadlines

    async def startup(self, sockets=None):
        await super().startup(sockets=[])
        make = functools.partial(
            Connection, config=self.config, server_state=self.server_state, app_state={}, budget=self.budget,
            deadlines=self.deadlines,
        )  # fmt: skip
        found = await listening_sockets("127.0.0.1", 0)
        self.servers = [Acceptor(found, make, budget=self.budget, context=self.context)]
        self.address = found[0].getsockname()
        self.is_there.set()

    @contextlib.contextmanager
    def running(self):
        self.is_there = threading.Event()
        thread = threading.Thread(target=self.run, daemon=True)
        thread.start()
        assert self.is_there.wait(20)
        try:
            yield self
        finally:
            self.should_exit = True
            thread.join(20)
            assert not thread.is_alive()

    def connect(self, source="127.0.0.1"):
        return socket.create_connection(self.address, timeout=LONG, source_address=(source, 0))

    def ask(self, line, path="/", key=True):
        words = b"Authorization: yes\r\n" if key else b""
        line.sendall(b"GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n" % (path.encode(), words))
        return answer_on(line)


def answer_on(line):
    """Return one answer, or what came of it before the other side closed."""
    said = b""
    while part := line.recv(65_536):
        said += part
        head, _, body = said.partition(b"\r\n\r\n")
        if body and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            break
    return said


@pytest.fixture(scope="module")
def service():
    with Service().running() as running:
        yield running


@pytest.fixture
def line(service):
    until_are_there(service, 0)
    with service.connect() as opened:
        until_are_there(service, 1)
        yield opened


def rest(line):
    """Return what comes until the other side closes, which must be soon."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := line.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def until_are_there(service, n):
    end = time.monotonic() + LONG
    while len(service.budget) != n:
        assert time.monotonic() < end, f"{len(service.budget)} connections are there"
        time.sleep(0.01)


# --- Deadlines ---


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"GET / HT",
        b"\r\n",
        GET,
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" * 2,
        b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc",
        b"POST /read HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nx",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    ],
    ids=["nothing", "half a line", "empty lines", "idle", "unread", "unread twice", "half a body",
         "half in chunks", "refused", "refused in chunks", "never continued", "garbage", "upgrade"],
)  # fmt: skip
def test_no_state_lasts_for_ever_whoever_holds_on(service, line, said):
    line.sendall(said)
    until_are_there(service, 0)  # nobody here reads, or closes


def test_who_reads_nothing_and_asks_again_later_is_given_up_too():
    at_ease = replace(DEADLINES, idle=LONG)
    with Service(deadlines=at_ease).running() as service, service.connect() as line:
        line.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        assert line.recv(1) == b"H"
        line.sendall(GET)
        until_are_there(service, 0)


def test_who_is_refused_reads_why_and_the_rest_is_thrown_away(service, line):
    line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n")
    said = answer_on(line)
    assert said.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in said
    with contextlib.suppress(OSError):
        for _ in range(10 * DRAIN_BYTES // 65_536):
            line.sendall(b"x" * 65_536)
    assert rest(line) == b""
    until_are_there(service, 0)


def test_a_refusal_is_read_after_a_body_that_ends(service, line):
    line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 500000\r\n\r\n")
    line.sendall(b"x" * 500_000)
    said = rest(line)
    assert said.startswith(b"HTTP/1.1 401")
    assert said.count(b"HTTP/1.1") == 1


def test_a_client_that_reads_slowly_gets_all_of_it(service, line):
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
    line.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    size, begun = 0, time.monotonic()
    while part := line.recv(100_000):
        size += len(part)
        if time.monotonic() - begun < 2.5:  # five times as long as one who reads nothing is waited for
            time.sleep(0.05)
    assert size > len(LARGE)


@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"])
def test_who_reads_nothing_for_a_while_gets_all_of_it(last):
    patient = replace(DEADLINES, write=5.0)
    with Service(deadlines=patient).running() as service, service.connect() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        line.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n%s\r\n" % last)
        time.sleep(1.5)  # longer than the other deadlines
        assert len(answer_on(line)) > len(LARGE)


@pytest.mark.parametrize("last", [b"", b"Connection: close\r\n"])
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what was read of TLS")
def test_a_client_that_reads_slowly_by_tls_gets_all_of_it(tmp_path, last):
    at_ease = replace(DEADLINES, handshake=LONG, head=LONG)
    with Service(context=certified(tmp_path), deadlines=at_ease).running() as service:
        opened = service.connect()
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        with contextlib.closing(trusting().wrap_socket(opened)) as line:
            line.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n%s\r\n" % last)
            size, begun = 0, time.monotonic()
            while size < len(LARGE) and (part := line.recv(16_384)):
                size += len(part)
                if time.monotonic() - begun < 2.5:
                    time.sleep(0.05)
        assert size > len(LARGE)
        until_are_there(service, 0)


def test_a_request_whose_body_is_there_keeps_its_connection(service, line):
    for _ in range(2):
        line.sendall(b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
        said = answer_on(line)
        assert said.startswith(b"HTTP/1.1 200")
        assert b"close" not in said


def test_a_service_that_ends_answers_what_it_has_begun_and_no_more():
    with Service(deadlines=Deadlines()).running() as service, service.connect() as line:
        head = b"POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n"
        line.sendall(head + b"Expect: 100-continue\r\n\r\n")
        assert line.recv(100).startswith(b"HTTP/1.1 100")  # it has begun
        line.sendall(b"ab")
        service.should_exit, end = True, time.monotonic() + LONG
        while service.servers[0].sockets[0].fileno() >= 0:
            assert time.monotonic() < end
            time.sleep(0.01)
        line.sendall(b"cde" + GET)
        said = rest(line)
    assert said.startswith(b"HTTP/1.1 200")
    assert said.count(b"HTTP/1.1") == 1


def test_a_service_that_ends_does_not_wait_for_an_idle_client_that_says_no_goodbye(tmp_path):
    at_ease = Deadlines(idle=3 * LONG, close=0.3)
    with (
        Service(context=certified(tmp_path), deadlines=at_ease).running() as service,
        contextlib.closing(trusting().wrap_socket(service.connect())) as line,
    ):
        assert service.ask(line).startswith(b"HTTP/1.1 200")
        service.should_exit = True
        until_are_there(service, 0)


def test_accepted_sockets_wait_for_no_second_packet_and_hold_no_megabytes():
    async def options():
        (listening,) = await listening_sockets("127.0.0.1", 0)
        with listening, socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            nodelay = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            return bool(nodelay), accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT)

    assert asyncio.run(options()) == (True, WRITE_BYTES)


def test_a_name_with_an_address_that_is_not_there_is_listened_on_by_the_others():
    elsewhere = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0))
    here = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))

    async def listened_on(*known):
        async def getaddrinfo(*_given, **_named):
            return known

        asyncio.get_running_loop().getaddrinfo = getaddrinfo
        sockets = await listening_sockets("localhost", 0)
        names = [listening.getsockname()[0] for listening in sockets]
        for listening in sockets:
            listening.close()
        return names

    for known in ((elsewhere, here), (here, elsewhere)):
        assert asyncio.run(listened_on(*known)) == ["127.0.0.1"]
    with pytest.raises(OSError, match="address"):
        asyncio.run(listened_on(elsewhere))


# --- What is not HTTP, or HTTP that readers may differ on ---

POST = b"POST /read HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "said",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        POST + b"Content-Length: 3, 4\r\n\r\nabcd",
        POST + b"Content-Length: +3\r\n\r\nabc",
        POST + b"Content-Length: 0x3\r\n\r\nabc",
        POST + b"Content-Length : 3\r\n\r\nabc",
        POST + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        b"POST /read HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3 \r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3\nabc\n0\n\n",
        CHUNKED + b"3;x\nabc\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nabc0\r\n\r\n",
        CHUNKED + b"fffffffffffffffff\r\n",
        b"GET / HTTP/1.1\nHost: x\n\n",
        b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        b"GET /\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http://elsewhere/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * MAX_HEADER_BYTES + b"\r\n\r\n",
        b"GET /" + b"a" * MAX_HEADER_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        CHUNKED + b"3;" + b"a" * 2 * MAX_HEADER_BYTES,
        CHUNKED + b"0\r\n" + b"a: b\r\n" * MAX_HEADER_BYTES,
    ],
)  # fmt: skip
@pytest.mark.parametrize("piece", [1 << 20, 997])
def test_what_readers_may_differ_on_is_refused(line, said, piece):
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        for start in range(0, len(said), piece):
            line.sendall(said[start : start + piece])
            time.sleep(0.0005 if piece < len(said) else 0)  # so that it comes in pieces
    # Whatever is smuggled after it is not answered either.
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        line.sendall(GET)
    answer = rest(line)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == "urn:tellers:problem:bad-request"


def test_a_wrong_chunk_after_the_answer_began_says_no_more(line):
    line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    said = answer_on(line)
    line.sendall(b"nonsense\r\n" + GET)
    assert said.startswith(b"HTTP/1.1 401")
    assert rest(line) == b""


def test_what_follows_a_request_that_asks_to_close_is_not_read(line):
    line.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" + GET)
    assert rest(line).count(b"HTTP/1.1 ") == 1


def test_trailers_are_not_headers(line):
    line.sendall(CHUNKED + b"3\r\nabc\r\n0\r\nAuthorization: yes\r\n\r\n")
    answer = answer_on(line)
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == [3, ["host", "transfer-encoding"]]


def test_requests_in_a_row_are_answered_in_order_and_without_end_they_are_not(line):
    line.sendall(b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % n for n in range(MAX_PIPELINED)))
    said = b""
    while said.count(b"HTTP/1.1 200") < MAX_PIPELINED:
        said += line.recv(65_536)
    line.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n" * 10_000)
    assert 0 < rest(line).count(b"HTTP/1.1 200") <= MAX_PIPELINED + 1


# --- The budget ---


@pytest.fixture(scope="module")
def patient():
    """A service whose deadlines nobody meets here: only the budget closes."""
    with Service(deadlines=Deadlines()).running() as running:
        yield running


def test_strangers_make_room_oldest_first_and_keys_stay(patient):
    with contextlib.ExitStack() as opened:
        asker = opened.enter_context(patient.connect())
        assert patient.ask(asker).startswith(b"HTTP/1.1 200")
        strangers = [opened.enter_context(patient.connect()) for _ in range(MOST - 1)]
        fresh = opened.enter_context(patient.connect())
        assert strangers[0].recv(1) == b""  # the oldest, and at once
        assert patient.ask(fresh, "/health", key=False).startswith(b"HTTP/1.1 200")
        assert patient.ask(asker).startswith(b"HTTP/1.1 200")
        more = [opened.enter_context(patient.connect()) for _ in range(2 * MOST)]
        assert patient.ask(asker).startswith(b"HTTP/1.1 200")
        assert len(patient.budget) <= MOST
        assert patient.ask(more[-1], "/health", key=False).startswith(b"HTTP/1.1 200")
    until_are_there(patient, 0)


def test_with_keys_everywhere_somebody_idle_makes_room(patient):
    with contextlib.ExitStack() as opened:
        askers = [opened.enter_context(patient.connect()) for _ in range(MOST)]
        assert all(patient.ask(asker).startswith(b"HTTP/1.1 200") for asker in askers)
        fresh = opened.enter_context(patient.connect())
        assert patient.ask(fresh, "/health", key=False).startswith(b"HTTP/1.1 200")
    until_are_there(patient, 0)


def test_a_key_that_is_not_shown_any_more_is_a_stranger_again(patient):
    with contextlib.ExitStack() as opened:
        asker = opened.enter_context(patient.connect())
        assert patient.ask(asker).startswith(b"HTTP/1.1 200")
        assert patient.ask(asker, "/health", key=False).startswith(b"HTTP/1.1 200")
        others = [opened.enter_context(patient.connect()) for _ in range(MOST)]
        assert asker.recv(1) == b""
        assert patient.ask(others[-1]).startswith(b"HTTP/1.1 200")
    until_are_there(patient, 0)


def test_one_address_takes_no_place_of_another_and_keys_do_not_count():
    with Service(per_address=3, deadlines=Deadlines()).running() as service, contextlib.ExitStack() as opened:
        askers = []
        for _ in range(4):
            askers.append(opened.enter_context(service.connect()))
            assert service.ask(askers[-1]).startswith(b"HTTP/1.1 200")
        elsewhere = opened.enter_context(service.connect("127.0.0.2"))
        flood = [opened.enter_context(service.connect()) for _ in range(20)]
        assert flood[0].recv(1) == b""
        assert service.ask(elsewhere, "/a", key=False).startswith(b"HTTP/1.1 200")
        assert all(service.ask(asker).startswith(b"HTTP/1.1 200") for asker in askers)


def test_a_handshake_counts_and_has_a_deadline(tmp_path):
    with Service(context=certified(tmp_path)).running() as service, contextlib.ExitStack() as opened:
        first = opened.enter_context(service.connect())
        half = opened.enter_context(service.connect())
        half.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        for _ in range(MOST):
            opened.enter_context(service.connect())
        assert rest(first) == b""
        until_are_there(service, 0)
        with contextlib.closing(trusting().wrap_socket(service.connect())) as line:
            assert service.ask(line).startswith(b"HTTP/1.1 200")
            line.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nx")
            assert answer_on(line).startswith(b"HTTP/1.1 401")
            until_are_there(service, 0)


def certified(folder):
    write_certificate(folder / "cert.pem", folder / "key.pem", secret=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


def trusting():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize(
    ("soft", "hard", "allowed"), [(1024, 20_000, 1000), (1024, 1024, 768), (64, 64, 32), (-1, -1, 1000)]
)
def test_files_for_the_ledger_are_left(monkeypatch, soft, hard, allowed):
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    assert allowed_connections(1000) == allowed
