"""One port for messages and engines: TLS first, then a token that is good for one party alone."""

import queue
import secrets
import socket
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest

pytest.importorskip("cryptography")

from tellers.errors import LinkFailed, LinkUnreached
from tellers.parties._listener import Listener, PortMux, _network
from tellers.parties._messages import Done
from tellers.parties._wire import ENGINE, Channel, Pinned, connect, greeted, shake_hands, split_address

from .conftest import ends_of

TOKEN = "ab" * 16


@pytest.fixture
def door(certificates):
    """A guardian's listener with its mux, the messages it got, and its refusals."""
    mux, heard, refusals = PortMux(), queue.Queue(), queue.Queue()
    peers = [certificates.peers[name] for name in ("ann", "bea", "north")]
    with closing(
        Listener(
            "127.0.0.1:0",
            certificates.identities["guard"],
            peers,
            timeout=5.0,
            refused=refusals.put,
            mux=mux,
            handle=lambda channel: heard.put(channel.receive()),
        )
    ) as listener:
        yield listener, mux, heard, refusals


def say_something(listener, certificates, heard):
    """Show that messages still get through."""
    identity, peer = certificates.identities["ann"], certificates.peers["guard"]
    with closing(connect(listener.address, identity, peer, timeout=30.0)) as channel:
        channel.send(Done(qid="0" * 32))
        assert heard.get(timeout=30.0).kind == "done"


def call(certificates, listener, token=TOKEN, *, name="ann", timeout=30.0):
    return ends_of(certificates, name, "guard").dial_engine(listener.address, token, timeout=timeout)


def secured(certificates, listener, name="ann"):
    """Return a TLS connection of a party that has not said what it is for."""
    plain = socket.create_connection(split_address(listener.address), timeout=5.0)
    context = certificates.identities[name].context(as_server=False)
    peer = certificates.peers["guard"]
    return Channel(peer, "asker", shake_hands(plain, context, [peer], server=False)[0], timeout=5.0)


def is_closed(plain):
    plain.settimeout(10.0)
    with suppress(ConnectionResetError):
        return plain.recv(1) == b""
    return True


def test_nothing_is_said_before_tls_not_even_a_known_token(door, certificates):
    """Whoever knows a query's id and has no certificate is refused before it can say the id."""
    listener, mux, heard, refusals = door
    mux.expect("ann", TOKEN)
    for said in (b"\0" + bytes.fromhex(TOKEN), ENGINE + bytes.fromhex(TOKEN)):
        with socket.create_connection(split_address(listener.address)) as plain:
            plain.sendall(said)
            assert "Expected TLS 1.3" in refusals.get(timeout=10.0)
    nobody = ssl.create_default_context()
    nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(split_address(listener.address), timeout=10.0)
    with suppress(OSError), plain, nobody.wrap_socket(plain) as bare:
        bare.sendall(ENGINE + bytes.fromhex(TOKEN))
        assert bare.recv(1) == b""
    assert "certificate" in refusals.get(timeout=10.0)
    # The party itself is let in, as the first.
    with call(certificates, listener) as plain, mux.take("ann", TOKEN, 5.0) as taken:
        plain.sendall(b"x")
        assert taken.recv(1) == b"x"
    say_something(listener, certificates, heard)


@pytest.mark.parametrize("name", ["bea", "north"])
def test_a_token_of_somebody_else_is_good_for_nothing(door, certificates, name):
    listener, mux, heard, refusals = door
    mux.expect("ann", TOKEN)
    with pytest.raises(LinkUnreached):
        call(certificates, listener, name=name)
    assert f"no call for an engine from {name}" in refusals.get(timeout=5.0)
    with pytest.raises(LinkUnreached, match="within"):
        mux.take("ann", TOKEN, 0.1)
    say_something(listener, certificates, heard)


def test_a_call_that_nobody_expects_is_closed_and_messages_go_on(door, certificates):
    listener, mux, heard, _ = door
    mux.expect("ann", TOKEN)
    with pytest.raises(LinkUnreached, match="closed the connection"):
        call(certificates, listener, "cd" * 16)
    say_something(listener, certificates, heard)
    with pytest.raises(LinkFailed, match="within"):
        mux.take("ann", TOKEN, 0.1)


def test_who_stops_half_way_is_given_up_on_and_keeps_nobody_out(door, certificates):
    """The last one has said it all, and does not leave TLS."""
    listener, mux, heard, refusals = door
    mux.expect("ann", TOKEN)
    listener._timeout = 2.0
    said = [b"", b"tl", ENGINE + b"half", ENGINE + bytes.fromhex(TOKEN)]
    channels = [secured(certificates, listener) for _ in said]
    listener._timeout = 5.0
    for channel, words in zip(channels, said):
        channel._put(words, time.monotonic() + 5)
    say_something(listener, certificates, heard)
    with call(certificates, listener), mux.take("ann", TOKEN, 5.0):
        pass
    for _ in said:
        assert "ann" in refusals.get(timeout=20.0)
    for channel in channels:
        channel.close()


def test_candidates_are_kept_in_turn_and_not_without_end(door, certificates):
    listener, mux, _, _ = door
    mux.expect("ann", TOKEN)
    calls = []
    for number in range(5):
        calls.append(call(certificates, listener))
        calls[-1].sendall(bytes([number]))
        until = time.monotonic() + 10.0  # it may be on its way still when the caller is done
        while mux._slots["ann", TOKEN].qsize() < min(number + 1, 4) and time.monotonic() < until:
            time.sleep(0.01)
    assert is_closed(calls[-1])  # four wait already
    for number in range(3):
        with mux.take("ann", TOKEN, 5.0) as taken:
            assert taken.recv(1) == bytes([number])
    mux.forget("ann", TOKEN)
    assert is_closed(calls[3])
    with pytest.raises(LinkUnreached):
        call(certificates, listener)
    for plain in calls:
        plain.close()


def test_bytes_right_behind_the_end_of_tls_are_all_there(door, certificates):
    """What the worker sends at once may be in the same packets as the end of TLS; 200 times, both ways."""
    listener, mux, _, _ = door

    def talk(number):
        token, long = f"{number:032x}", secrets.token_bytes(40_000)
        mux.expect("ann", token)
        with call(certificates, listener, token, timeout=30.0) as near:
            near.sendall(long)
            with mux.take("ann", token, 30.0) as far:
                far.sendall(long[::-1])
                assert read(far, len(long)) == long
                assert read(near, len(long)) == long[::-1]
        mux.forget("ann", token)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(talk, range(200)))


def read(plain, n):
    got = b""
    plain.settimeout(30.0)
    while len(got) < n:
        got += plain.recv(n - len(got)) or pytest.fail("the connection ended")
    return got


def test_a_host_that_stops_half_way_is_given_up_on(certificates):
    """The caller waits for nobody longer than it said."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        start, (host, port) = time.monotonic(), silent.getsockname()
        with pytest.raises(LinkUnreached, match="in vain"):
            ends_of(certificates, "ann", "guard").dial_engine(f"{host}:{port}", TOKEN, timeout=0.5)
        assert time.monotonic() - start < 10
        context, kept = certificates.identities["guard"].context(as_server=True), []
        peers = [certificates.peers["ann"]]
        shaking = threading.Thread(
            target=lambda: kept.append(shake_hands(silent.accept()[0], context, peers, server=True))
        )
        silent.accept()[0].close()
        shaking.start()
        with pytest.raises(LinkUnreached, match="in vain for guard"):
            ends_of(certificates, "ann", "guard").dial_engine(f"{host}:{port}", TOKEN, timeout=2.0)
        shaking.join(timeout=10.0)
        kept[0][0].close()


@pytest.mark.parametrize("who", ["ann", "bea"])
def test_the_worker_proves_both_parties_once_more(door, certificates, who):
    """A connection that somebody else took over after it left TLS is a link to nobody."""
    listener, mux, _, _ = door
    mux.expect("ann", TOKEN)
    results = {}

    def ask():
        ends = Pinned(certificates.identities[who], certificates.peers["guard"])
        try:
            plain = call(certificates, listener)
            results["secure"] = ends.shake_hands(plain, listens=False, timeout=5.0)
        except LinkFailed as failed:  # or it finds out later: TLS 1.3 ends on one side first
            results["failed"] = failed

    thread = threading.Thread(target=ask)
    thread.start()
    plain = mux.take("ann", TOKEN, 5.0)
    ends = Pinned(certificates.identities["guard"], certificates.peers["ann"])
    if who == "ann":
        ends.shake_hands(plain, listens=True, timeout=5.0).close()
    else:
        with pytest.raises(LinkUnreached, match="pinned here"):
            ends.shake_hands(plain, listens=True, timeout=5.0)
    thread.join(timeout=10.0)
    if "secure" in results:
        results["secure"].close()


# --- Floods of strangers. ---


class Flood:
    """Strangers that hold connections, and others that come as fast as they can and stay."""

    def __init__(self, address, *, said, source, n_held=500, n_streaming=2):
        self.place, self.said, self.n, self.is_over = split_address(address), said, 0, False
        self.source = (source, 0)
        self.held = [self.knock() for _ in range(n_held)]
        self.threads = [threading.Thread(target=self.stream) for _ in range(n_streaming)]
        for thread in self.threads:
            thread.start()

    def knock(self):
        plain = socket.create_connection(self.place, timeout=30.0, source_address=self.source)
        with suppress(OSError):
            plain.sendall(self.said)
        self.n += 1
        return plain

    def stream(self):
        waiting = []
        while not self.is_over:
            with suppress(OSError):
                waiting.append(self.knock())
            if len(waiting) > 300:
                waiting.pop(0).close()
        for plain in waiting:
            plain.close()

    def close(self):
        self.is_over = True
        for thread in self.threads:
            thread.join()
        for plain in self.held:
            plain.close()


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # as TLS begins, and no more


OTHER = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
FLOODS = {
    "idle, from the same address": (b"", "127.0.0.1"),
    "idle": (b"", OTHER),
    "garbage": (b"GET / HTTP/1.1\r\n\r\n", OTHER),
    "half": (HELLO, OTHER),
}


@pytest.mark.parametrize("kind", FLOODS)
def test_strangers_keep_no_party_out(door, certificates, kind):
    """500 strangers stay, and more come all the time; every party gets in, each time at the first attempt."""
    listener, mux, heard, _ = door
    listener._timeout, before = 30.0, threading.active_count()
    said, source = FLOODS[kind]
    with closing(Flood(listener.address, said=said, source=source)) as flood:
        for number in range(10):
            say_something(listener, certificates, heard)
            token = f"{number:032x}"
            mux.expect("bea", token)
            with call(certificates, listener, token, name="bea"), mux.take("bea", token, 30.0):
                pass
            assert len(listener._callers) <= listener._most
        assert threading.active_count() < before + listener._most + 50
        print(f"{flood.n} strangers")


def test_a_party_that_floods_is_the_first_to_give_way(door, certificates):
    listener, _, heard, _ = door
    listener._most, until = 8, time.monotonic() + 30.0
    first = secured(certificates, listener)  # it is slow, and the oldest of all
    channels = [secured(certificates, listener, "bea") for _ in range(20)]
    with closing(greeted(first, certificates.identities["ann"], until, server=False)):
        first.send(Done(qid="0" * 32))
        assert heard.get(timeout=30.0).kind == "done"
    for channel in channels:
        channel.close()


def test_who_has_said_something_stays_before_those_who_said_nothing(door):
    listener, *_ = door
    listener._most, place = 4, split_address(listener.address)
    with socket.create_connection(place) as plain:
        plain.sendall(HELLO)
        until = time.monotonic() + 10.0
        while not any(caller.stage for caller in list(listener._callers)) and time.monotonic() < until:
            time.sleep(0.01)
        silent = [socket.create_connection(place) for _ in range(12)]
        assert is_closed(silent[0])
        assert is_closed(silent[1])
        plain.settimeout(0.3)
        with pytest.raises(TimeoutError):
            plain.recv(1)
        for one in silent:
            one.close()


def test_strangers_are_counted_by_address_and_with_ipv6_by_network():
    assert _network("203.0.113.7") != _network("203.0.113.8")
    assert _network("2001:db8:1:2::7") == _network("2001:db8:1:2:ffff::8") != _network("2001:db8:1:3::7")
    assert _network("fe80::1%eth0") == _network("fe80::2")


def test_refusals_are_told_some_times_and_not_without_end(door):
    listener, _, _, refusals = door
    for _ in range(60):
        with socket.create_connection(split_address(listener.address)) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
    said = [refusals.get(timeout=5.0) for _ in range(21)]
    assert "no more is told" in said[-1]
    with pytest.raises(queue.Empty):
        refusals.get(timeout=0.5)
