"""One port for messages and engines: knocks that are not expected, or not proved, lead nowhere."""

import queue
import socket
import threading
from contextlib import closing

import pytest

pytest.importorskip("cryptography")

from tellers.errors import LinkFailed
from tellers.parties._listener import Listener, PortMux, dial_engine
from tellers.parties._messages import Done
from tellers.parties._wire import Pinned, connect, split_address

TOKEN = "ab" * 16


@pytest.fixture
def door(certificates):
    """A guardian's listener with its mux, the messages it got, and its refusals."""
    mux, heard, refusals = PortMux(), queue.Queue(), queue.Queue()
    peers = [certificates.peers["ann"], certificates.peers["north"]]
    with closing(
        Listener(
            "127.0.0.1:0",
            certificates.identities["guard"],
            peers,
            timeout=5.0,
            refused=refusals.put,
            engine_connected=mux.arrive,
            handle=lambda channel: heard.put(channel.receive()),
        )
    ) as listener:
        yield listener, mux, heard, refusals


def say_something(listener, certificates, heard):
    """Show that messages still get through."""
    identity, peer = certificates.identities["ann"], certificates.peers["guard"]
    with closing(connect(listener.address, identity, peer, timeout=5.0)) as channel:
        channel.send(Done(qid="0" * 32))
        assert heard.get(timeout=5.0).kind == "done"


def test_a_knock_that_nobody_expects_is_closed_and_messages_go_on(door, certificates):
    listener, mux, heard, _ = door
    mux.expect(TOKEN)
    with dial_engine(listener.address, "cd" * 16, timeout=5.0) as plain:
        plain.settimeout(5.0)
        assert plain.recv(1) == b""
    say_something(listener, certificates, heard)
    with pytest.raises(LinkFailed, match="within"):
        mux.take(TOKEN, timeout=0.1)


def test_half_a_knock_is_given_up_on_and_keeps_nobody_out(door, certificates):
    listener, _, heard, refusals = door
    with socket.create_connection(split_address(listener.address)) as plain:
        plain.sendall(b"\0half")
        say_something(listener, certificates, heard)
        plain.settimeout(60.0)
        assert plain.recv(1) == b""
    assert "in vain" in refusals.get(timeout=30.0)


def test_a_token_lets_one_connection_in(door):
    listener, mux, _, _ = door
    mux.expect(TOKEN)
    with dial_engine(listener.address, TOKEN, timeout=5.0) as first:
        taken = mux.take(TOKEN, timeout=5.0)
        mux.forget(TOKEN)
        with dial_engine(listener.address, TOKEN, timeout=5.0) as second:
            second.settimeout(5.0)
            assert second.recv(1) == b""
        first.sendall(b"x")
        assert taken.recv(1) == b"x"
        taken.close()


@pytest.mark.parametrize("who", ["ann", "bea", "north"])
def test_only_the_party_that_is_meant_gets_a_link(door, certificates, who):
    listener, mux, _, _ = door
    mux.expect(TOKEN)
    results = {}

    def ask():
        ends = Pinned(certificates.identities[who], certificates.peers["guard"])
        try:
            plain = dial_engine(listener.address, TOKEN, timeout=5.0)
            results["secure"] = ends.shake_hands(plain, listens=False, timeout=5.0)
        except LinkFailed as failed:  # or it finds out later: TLS 1.3 ends on one side first
            results["failed"] = failed

    thread = threading.Thread(target=ask)
    thread.start()
    plain = mux.take(TOKEN, timeout=5.0)
    ends = Pinned(certificates.identities["guard"], certificates.peers["ann"])
    if who == "ann":
        ends.shake_hands(plain, listens=True, timeout=5.0).close()
    else:
        with pytest.raises(LinkFailed, match="pinned here"):
            ends.shake_hands(plain, listens=True, timeout=5.0)
    thread.join(timeout=10.0)
    if "secure" in results:
        results["secure"].close()
