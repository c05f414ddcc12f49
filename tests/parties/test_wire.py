"""Connections: the right certificates, messages in turn, and nothing that a bad one can harm."""

import contextlib
import datetime
import os
import queue
import shutil
import socket
import ssl
import threading
import time
from contextlib import closing
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.errors import LinkUnreached, PeerRefused
from tellers.parties import _certificates as made
from tellers.parties._listener import Listener, PortMux
from tellers.parties._messages import Answered, Done, Limits, Mask, Out
from tellers.parties._wire import Identity, Peer, PeerLost, Pinned, connect, pack_frame, split_address

QID = "0" * 32


class Guard:
    """A guardian's listener that keeps what it hears and what it refuses."""

    def __init__(self, certificates, **options):
        self.channels, self.heard, self.refusals = [], queue.Queue(), queue.Queue()
        peers = [peer for name, peer in certificates.peers.items() if name != "guard"]
        options = {"timeout": 30.0, **options}
        self.listener = Listener(
            "127.0.0.1:0", certificates.identities["guard"], peers, handle=self.handle,
            refused=self.refusals.put, **options,
        )  # fmt: skip

    def handle(self, channel):
        self.channels.append(channel)
        try:
            while True:
                self.heard.put((channel.peer.name, channel.receive(timeout=20)))
        except (PeerRefused, TimeoutError) as end:
            self.heard.put((channel.peer.name, end))

    def close(self):
        self.listener.close()
        for channel in self.channels:
            channel.close()


@pytest.fixture
def guard(certificates):
    guard = Guard(certificates)
    yield guard
    guard.close()


@pytest.fixture
def call(certificates, guard):
    with contextlib.ExitStack() as stack:

        def connected(name, **options):
            channel = connect(
                guard.listener.address, certificates.identities[name], certificates.peers["guard"],
                timeout=30.0, **options,
            )  # fmt: skip
            return stack.enter_context(closing(channel))

        yield connected


def ignore(channel):
    """Keep a connection, and do nothing with it."""


def next_of(found: queue.Queue):
    return found.get(timeout=30)


def test_messages_travel_both_ways(guard, call):
    channel = call("north")
    mask = np.frombuffer(os.urandom(8 * 3000 * 100), dtype=np.int64).reshape(3000, 100)
    channel.send(Mask(qid=QID, mask=mask))
    channel.send(Out(qid=QID, why="failed"))
    name, message = next_of(guard.heard)
    assert name == "north"
    np.testing.assert_array_equal(message.mask, mask)
    assert next_of(guard.heard) == ("north", Out(qid=QID, why="failed"))
    assert channel.peer.name == "guard"
    assert channel._socket.version() == "TLSv1.3"


def test_many_senders_on_one_channel_keep_their_messages_whole(guard, call):
    channel = call("north")
    masks = [np.full((50, 50), i) for i in range(16)]
    threads = [threading.Thread(target=channel.send, args=(Mask(qid=QID, mask=mask),)) for mask in masks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen = sorted(int(np.unique(next_of(guard.heard)[1].mask).item()) for _ in masks)
    assert seen == list(range(16))


def test_a_wrong_message_closes_its_connection_alone(guard, call):
    bad, good = call("ann"), call("north")
    bad.send(Out(qid=QID, why="failed"))  # not for an asker to say
    name, refusal = next_of(guard.heard)
    assert name == "ann"
    assert "asker may say to guardian" in str(refusal)
    with pytest.raises(PeerRefused, match=r"closed|lost|ended"):
        bad.receive(timeout=5)
    good.send(Out(qid=QID, why="failed"))
    assert next_of(guard.heard) == ("north", Out(qid=QID, why="failed"))
    call("ann").send(Done(qid=QID))
    assert next_of(guard.heard) == ("ann", Done(qid=QID))


def test_bytes_from_the_way_inside_a_connection_are_no_breach_of_the_peer(guard, call):
    channel = call("ann")
    os.write(channel.fileno(), b"\x17\x03\x03\x00\x20" + os.urandom(32))  # a record that nobody sealed
    name, refusal = next_of(guard.heard)
    assert name == "ann"
    assert isinstance(refusal, PeerLost)


@pytest.mark.parametrize("what", ["replayed", "reordered", "oversized", "truncated", "noise", "header"])
def test_frames_that_do_not_belong(guard, call, what):
    channel = call("ann")
    frame = pack_frame(Done(qid=QID), 1)  # after the greeting
    raw = {
        "replayed": frame + frame,
        "reordered": (lambda first, second: second + first)(frame, pack_frame(Done(qid=QID), 2)),
        "oversized": frame[:12] + (2**31).to_bytes(4, "little") + frame[16:],
        "truncated": frame[:-3],
        "noise": os.urandom(64),
        "header": frame[:20] + b"\x00" * (len(frame) - 20),
    }[what]
    channel._socket.setblocking(True)
    channel._socket.sendall(raw)
    channel.close()
    name, refusal = next_of(guard.heard)
    if what == "replayed":
        assert refusal == Done(qid=QID)
        name, refusal = next_of(guard.heard)
    assert name == "ann"
    assert isinstance(refusal, PeerRefused)
    assert isinstance(refusal, PeerLost) == (what == "truncated")  # the rest broke a rule
    words = {
        "replayed": "twice or out of turn", "reordered": "twice or out of turn", "oversized": "got more",
        "truncated": "in the middle", "noise": "other bytes", "header": "JSON",
    }  # fmt: skip
    assert words[what] in str(refusal)
    call("north").send(Out(qid=QID, why="failed"))
    assert next_of(guard.heard) == ("north", Out(qid=QID, why="failed"))


def test_a_message_that_stops_half_way_does_not_wait_for_ever(certificates, guard, call):
    channel = call("ann")
    served = guard.channels[-1] if guard.channels else None
    channel._socket.setblocking(True)
    channel._socket.sendall(pack_frame(Done(qid=QID), 0)[:25])
    deadline = time.monotonic() + 30
    while served is None and time.monotonic() < deadline:
        time.sleep(0.01)
        served = guard.channels[-1] if guard.channels else None
    assert served is not None
    channel.close()
    _, refusal = next_of(guard.heard)
    assert isinstance(refusal, PeerRefused)


def test_waiting_has_an_end_and_does_no_harm(certificates, guard, call):
    channel = call("ann")
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="guard"):
        channel.receive(timeout=0.2)
    assert time.monotonic() - began < 15
    channel.send(Done(qid=QID))
    assert next_of(guard.heard) == ("ann", Done(qid=QID))


def test_a_slow_sender_is_cut_off_in_the_middle(certificates):
    """The guardian waits for half a second; a byte now and then does not buy more."""
    heard = queue.Queue()

    begun = threading.Event()

    def handle(channel):
        begun.wait(30)  # half a second from the first byte on
        try:
            heard.put(channel.receive(timeout=0.5))
        except (PeerRefused, TimeoutError) as end:
            heard.put(end)

    peers = [certificates.peers["ann"]]
    with (
        closing(
            Listener("127.0.0.1:0", certificates.identities["guard"], peers, handle=handle, timeout=5.0)
        ) as listener,
        closing(
            connect(
                listener.address, certificates.identities["ann"], certificates.peers["guard"], timeout=5.0
            )
        ) as channel,
    ):
        frame = pack_frame(Done(qid=QID), 1)
        channel._socket.setblocking(True)
        with contextlib.suppress(OSError):  # it may have hung up by now
            for byte in frame[:12]:
                channel._socket.sendall(bytes([byte]))
                begun.set()
                time.sleep(0.08)
                if not heard.empty():
                    break
        refusal = next_of(heard)
    assert isinstance(refusal, PeerRefused)
    assert "middle of a message" in str(refusal)


# --- Certificates. ---


def test_a_certificate_that_is_not_pinned(certificates, guard, tmp_path):
    """Signed by the same authority, and another one than was pinned."""
    for name in ("authority.pem", "authority.key"):
        shutil.copy(certificates.folder / name, tmp_path / name)
    made.make_certificate(tmp_path, "ann", role="asker")
    with pytest.raises(PeerRefused, match=r"compare pins, authorities and dates"):
        connect(
            guard.listener.address, Identity("ann", "asker", home=tmp_path / "ann"),
            certificates.peers["guard"], timeout=5.0,
        )  # fmt: skip
    assert "pinned here" in next_of(guard.refusals)


def test_a_server_with_another_pin_is_refused_by_the_client(certificates, guard):
    other = replace(certificates.peers["guard"], pin="0" * 64)
    with pytest.raises(PeerRefused, match="compare its pin"):
        connect(guard.listener.address, certificates.identities["ann"], other, timeout=5.0)


def test_an_authority_that_is_not_trusted(certificates, guard, tmp_path):
    card = made.make_certificate(tmp_path, "ann", role="asker")
    stranger = Identity("ann", "asker", home=tmp_path / "ann")
    with pytest.raises(PeerRefused, match=r"compare pins, authorities and dates"):
        connect(guard.listener.address, stranger, certificates.peers["guard"], timeout=5.0)
    # It trusts the guardian's authority, and the guardian does not trust its.
    trusting = replace(stranger, trusted=(certificates.folder / "authority.pem",))
    with pytest.raises(PeerRefused, match=r"compare pins, authorities and dates"):
        connect(guard.listener.address, trusting, certificates.peers["guard"], timeout=5.0)
    assert any("authority" in next_of(guard.refusals) for _ in range(2))
    # With its authority trusted and its pin known, it is let in.
    identity = replace(certificates.identities["guard"], trusted=(tmp_path / "authority.pem",))
    with closing(
        Listener("127.0.0.1:0", identity, [Peer("ann", "asker", pin=card.pin)], handle=ignore)
    ) as listener:
        connect(listener.address, trusting, certificates.peers["guard"], timeout=5.0).close()


def test_an_expired_certificate(certificates, tmp_path, monkeypatch):
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=40)
    clock = SimpleNamespace(now=lambda _: past)
    then = SimpleNamespace(datetime=clock, UTC=datetime.UTC, timedelta=datetime.timedelta)
    with monkeypatch.context() as patch:
        patch.setattr(made, "datetime", then)
        card = made.make_certificate(tmp_path, "guard", role="guardian", days=30)
    identity = Identity("guard", "guardian", home=tmp_path / "guard")
    with closing(
        Listener("127.0.0.1:0", identity, [certificates.peers["ann"]], handle=ignore, timeout=5.0)
    ) as listener:
        trusting = replace(certificates.identities["ann"], trusted=(tmp_path / "authority.pem",))
        with pytest.raises(PeerRefused, match="expired"):
            connect(listener.address, trusting, Peer("guard", "guardian", pin=card.pin), timeout=5.0)


def test_a_pin_under_another_name_or_role(certificates, guard):
    wrong = Peer("warden", "guardian", pin=certificates.cards["guard"].pin)
    with pytest.raises(PeerRefused, match="Correct the name or the role"):
        connect(guard.listener.address, certificates.identities["ann"], wrong, timeout=5.0)


def test_two_pins_while_a_certificate_changes(certificates, tmp_path):
    """Both are good, on either side, for messages and for an engine; a third is not, nor another's name."""
    for name in ("authority.pem", "authority.key"):
        shutil.copy(certificates.folder / name, tmp_path / name)
    homes = {"now": certificates.folder}
    for when in ("next", "third"):
        homes[when] = tmp_path / when
        shutil.copytree(tmp_path, homes[when], ignore=lambda *_: ["next", "third"])
    cards = {
        (name, when): made.make_certificate(homes[when], name, role=certificates.identities[name].role)
        for when in ("next", "third") for name in ("ann", "guard")
    }  # fmt: skip

    def identity(name, when):
        return replace(certificates.identities[name], home=homes[when] / name)

    known = {
        name: replace(certificates.peers[name], next_pin=cards[name, "next"].pin) for name in ("ann", "guard")
    }
    for host, caller in product(homes, homes):
        mux = PortMux()
        mux.expect("ann", QID)
        with closing(
            Listener("127.0.0.1:0", identity("guard", host), [known["ann"]], handle=ignore, mux=mux)
        ) as listener:
            ends = Pinned(identity("ann", caller), known["guard"])
            if "third" not in (host, caller):
                connect(listener.address, ends.identity, known["guard"]).close()
                with ends.dial_engine(listener.address, QID, timeout=10.0) as plain:
                    answer = mux.take("ann", QID, 10.0)
                    shaking = threading.Thread(target=lambda a=answer, b=ends: b.shake_hands(
                        a, listens=False, timeout=10.0).close())  # fmt: skip
                    shaking.start()
                    back = Pinned(identity("guard", host), known["ann"])
                    back.shake_hands(plain, listens=True, timeout=10.0).close()
                    shaking.join(timeout=10.0)
            else:
                with pytest.raises(PeerRefused, match=r"compare"):
                    connect(listener.address, ends.identity, known["guard"], timeout=10.0)
                with pytest.raises(LinkUnreached):
                    ends.dial_engine(listener.address, QID, timeout=10.0)
    wrong = Peer("warden", "guardian", pin="0" * 64, next_pin=certificates.cards["guard"].pin)
    guard = Listener("127.0.0.1:0", certificates.identities["guard"], [known["ann"]], handle=ignore)
    with closing(guard), pytest.raises(PeerRefused, match="Correct the name or the role"):
        connect(guard.address, certificates.identities["ann"], wrong, timeout=5.0)
    with pytest.raises(ValueError, match="64 hexadecimal"):
        Peer("ann", "asker", pin="0" * 64, next_pin="12")


def test_old_tls_no_tls_and_no_certificate(certificates, guard):
    host, port = split_address(guard.listener.address)
    old = ssl.create_default_context(cafile=certificates.folder / "authority.pem")
    old.check_hostname = False
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((host, port), timeout=5) as plain, pytest.raises(OSError):
        old.wrap_socket(plain)
    bare = ssl.create_default_context(cafile=certificates.folder / "authority.pem")
    bare.check_hostname = False
    with socket.create_connection((host, port), timeout=5) as plain, contextlib.suppress(OSError):
        assert bare.wrap_socket(plain).recv(1) == b""
    with socket.create_connection((host, port), timeout=5) as plain, contextlib.suppress(OSError):
        plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert plain.recv(100)[:4] != b"HTTP"
    for _ in range(3):
        assert next_of(guard.refusals)


def test_who_never_shakes_hands_keeps_nobody_out(certificates):
    guard = Guard(certificates, timeout=4.0)
    host, port = split_address(guard.listener.address)
    silent = [socket.create_connection((host, port), timeout=5) for _ in range(5)]
    channel = connect(guard.listener.address, certificates.identities["ann"], certificates.peers["guard"])
    channel.send(Done(qid=QID))
    assert next_of(guard.heard) == ("ann", Done(qid=QID))
    assert "shake hands" in next_of(guard.refusals)
    for plain in silent:
        plain.close()
    channel.close()
    guard.close()


def test_limits_hold_on_the_wire(certificates):
    guard = Guard(certificates, limits=Limits(max_queries=2, max_outputs=2))
    with closing(
        connect(guard.listener.address, certificates.identities["north"], certificates.peers["guard"])
    ) as channel:
        channel.send(Mask(qid=QID, mask=np.zeros((3, 3), dtype=np.int64)))
        _, refusal = next_of(guard.heard)
    assert "got more" in str(refusal)
    guard.close()


def test_places_that_are_wrong(certificates, tmp_path):
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:7000"):
        split_address("localhost")
    with pytest.raises(ConnectionError, match="Is it running"):
        connect("127.0.0.1:1", certificates.identities["ann"], certificates.peers["guard"], timeout=1.0)
    with pytest.raises(ValueError, match="tellers party certs"):
        Identity("ann", "asker", home=tmp_path).context(as_server=False)
    guard = certificates.identities["guard"]
    with (
        closing(Listener("127.0.0.1:0", guard, [], handle=ignore)) as taken,
        pytest.raises(ValueError, match="free address"),
    ):
        Listener(taken.address, guard, [], handle=ignore)
    with pytest.raises(ValueError, match="role"):
        Peer("ann", "teacher", pin="0" * 64)


def test_answers_reach_an_asker(certificates, guard, call):
    channel = call("bea")
    channel.send(Answered(qid=QID, parties=("north",)))
    assert next_of(guard.heard)[1].parties == ("north",)
    from tellers.parties._messages import Aborted

    guard.channels[-1].send(Aborted(qid=QID, why="Quorum missed."))
    assert channel.receive(timeout=5).why == "Quorum missed."
