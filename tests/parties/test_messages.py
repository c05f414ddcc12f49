"""Messages come back as they were sent, and whatever else comes is refused and harms nothing."""

import dataclasses
import json
import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.errors import PeerRefused
from tellers.parties import _messages as m
from tellers.parties._wire import Channel, Peer, pack_frame

QID, DIGEST = "0123456789abcdef" * 2, "0123456789abcdef" * 4
ALL = [
    m.Hello(name="north", protocol=2),
    m.Open(qid=QID, n_queries=100, program=DIGEST, terms=DIGEST),
    m.Opened(qid=QID, roster=("north", "south"), suspended=("west",), seconds=30.0),
    m.Expect(qid=QID, asker="ann", n_queries=3, program=DIGEST, terms=DIGEST, seconds=12.5),
    m.Question(qid=QID, n_queries=3, n_features=64, n_outputs=10, program=DIGEST, terms=DIGEST),
    m.Accepted(qid=QID),
    m.Refused(qid=QID, why="Quota used."),
    m.Ready(qid=QID, nonce=QID),
    m.Out(qid=QID, why="not asked"),
    m.Answered(qid=QID, parties=("north",)),
    m.Held(qid=QID, parties=(), lent=True),
    m.Roll(qid=QID, nonces={"north": QID, "south": QID}),
    m.Mask(qid=QID, mask=np.array([[1, -(2**63), 2**63 - 1]])),
    m.Agreed(qid=QID, parties=("north", "south")),
    m.ScoreShare(qid=QID, table=np.array([[1, -(2**63), 2**63 - 1]])),
    m.MaskSum(qid=QID, table=np.array([[7, -(2**63), 2**63 - 1]])),
    m.Aborted(qid=QID, why="Quorum missed."),
    m.Closed(qid=QID, charged=False),
    m.Done(qid=QID),
]


def same(one: m.Message, other: m.Message) -> bool:
    if one.body and type(one) is type(other):
        return one.qid == other.qid and np.array_equal(*(getattr(each, one.body) for each in (one, other)))
    return one == other


def test_there_is_one_of_each_kind():
    assert {message.kind for message in ALL} == set(m.KINDS)


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.kind)
def test_every_message_comes_back_as_it_was(message):
    back = m.decode(*m.encode(message))
    assert type(back) is type(message)
    assert same(back, message)
    json.loads(m.encode(message)[0])


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.kind)
def test_missing_and_unknown_fields_are_refused(message):
    header, body = m.encode(message)
    said = json.loads(header)
    for name in said:
        fewer = {key: value for key, value in said.items() if key != name}
        with pytest.raises(PeerRefused):
            m.decode(json.dumps(fewer).encode(), body)
    with pytest.raises(PeerRefused, match="others too"):
        m.decode(json.dumps({**said, "extra": 1}).encode(), body)


WRONG = [None, True, -1, 0, 2**70, 1.5, "", "A" * 500, [], ["b", "a"], ["a", "a"], {}, {"a": 1}, [[1]]]


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.kind)
def test_wrong_types_and_values_are_refused_or_mean_the_same(message):
    header, body = m.encode(message)
    said, quoted = json.loads(header), False
    for name in said:
        for wrong in WRONG:
            try:
                back = m.decode(json.dumps({**said, name: wrong}).encode(), body)
            except PeerRefused as refusal:
                quoted |= "AAAA" in str(refusal)
                continue
            # What was let through is a valid value of its field.
            again = m.decode(*m.encode(back))
            assert same(again, back)
            assert name not in ("kind", "qid", "program", "terms", "nonce", "mask", "nonces") or (
                (name, wrong) == ("nonces", {})
            )
    assert not quoted


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"kind":"done","qid":"%s","qid":"%s"}' % (QID.encode(), QID.encode()),
        b'{"kind":["done"],"qid":"x"}',
        b'{"kind":"opened","qid":"%s","roster":[],"seconds":NaN}' % QID.encode(),
        b'{"kind":"opened","qid":"%s","roster":[],"seconds":Infinity}' % QID.encode(),
        b"[" * 30_000,
        b'{"kind":"done","qid":"' + b"0" * 70_000 + b'"}',
    ],
    ids=range(11),
)
def test_headers_that_are_no_messages(header):
    with pytest.raises(PeerRefused):
        m.decode(header, b"")


def test_bodies_must_fit_their_shape_and_the_limits():
    header, body = m.encode(ALL[12])
    for wrong in (b"", body[:-1], body + b"\0"):
        with pytest.raises(PeerRefused, match="8 bytes"):
            m.decode(header, wrong)
    with pytest.raises(PeerRefused, match="no body"):
        m.decode(m.encode(m.Done(qid=QID))[0], b"\0" * 8)
    with pytest.raises(PeerRefused, match="at most 2 x 2"):
        m.decode(header, body, limits=m.Limits(max_queries=2, max_outputs=2))
    with pytest.raises(PeerRefused, match="1 to 10"):
        m.decode(*m.encode(ALL[1]), limits=m.Limits(max_queries=10))
    with pytest.raises(PeerRefused, match="at most 1"):
        m.decode(*m.encode(ALL[2]), limits=m.Limits(max_parties=1))


def test_messages_are_checked_where_they_are_made():
    with pytest.raises(ValueError, match="nonce"):
        m.Ready(qid=QID, nonce="short")
    with pytest.raises(ValueError, match="in order"):
        m.Answered(qid=QID, parties=("south", "north"))
    with pytest.raises(ValueError, match="failed, refused, not asked"):
        m.Out(qid=QID, why="tired")
    assert "mask" not in repr(ALL[12]).replace("Mask", "")
    for record in m.KINDS.values():
        assert dataclasses.is_dataclass(record)
        assert record.routes


# --- Frames. ---


class Pieces(socket.socket):
    """A socket that hands out bytes in the pieces that they came in, and then the end."""

    def __init__(self, *pieces):
        self.pieces = [piece for piece in pieces if piece]

    def recv(self, n):
        if not self.pieces:
            return b""
        first = self.pieces.pop(0)
        if first[n:]:
            self.pieces.insert(0, first[n:])
        return first[:n]

    def setblocking(self, _):
        pass

    def close(self):
        pass


def hearing(*pieces, sender="answerer", receiver="guardian", **options) -> Channel:
    return Channel(Peer("north", sender, pin=DIGEST), receiver, Pieces(*pieces), **options)


def hear_all(channel):
    """Return all messages until the connection ends, and how it ended."""
    heard = []
    while True:
        try:
            heard.append(channel.receive())
        except PeerRefused as ended:
            return heard, str(ended)


def frames_of(said):
    return [pack_frame(message, number) for number, message in enumerate(said)]


MASKS = st.tuples(st.integers(1, 4), st.integers(1, 4)).map(
    lambda shape: m.Mask(qid=QID, mask=np.arange(shape[0] * shape[1], dtype=np.int64).reshape(shape))
)
SAID = st.lists(st.one_of(st.sampled_from([ALL[7], ALL[8]]), MASKS), min_size=1, max_size=6)


@given(SAID, st.data())
def test_frames_come_back_however_they_are_cut(said, data):
    frames = b"".join(frames_of(said))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(frames)), max_size=8)))
    pieces = [frames[start:end] for start, end in zip([0, *cuts], [*cuts, len(frames)])]
    heard, ended = hear_all(hearing(*pieces))
    assert ended.startswith("north closed the connection")
    assert len(heard) == len(said)
    assert all(map(same, heard, said))


@given(SAID, st.data())
def test_replays_and_reordered_frames_are_refused(said, data):
    frames = frames_of(said)
    order = data.draw(st.lists(st.integers(0, len(frames) - 1), min_size=1, max_size=8))
    channel = hearing(*(frames[which] for which in order), *frames)
    for expected, which in enumerate(order):
        if which == expected:
            assert same(channel.receive(), said[which])
        else:
            with pytest.raises(PeerRefused, match="twice or out of turn"):
                channel.receive()
            with pytest.raises(PeerRefused, match=r"^The connection to north is closed\.$"):
                channel.receive()
            return


@settings(max_examples=300)
@given(SAID, st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_changes_one_value(said, where, flip):
    frames = bytearray(b"".join(frames_of(said)))
    where %= len(frames)
    frames[where] ^= flip
    heard, ended = hear_all(hearing(bytes(frames)))
    if not ended.startswith("north closed the connection"):
        return
    # A nonce, an id or a number of a mask that is another one: valid, and for the states to judge.
    assert len(heard) == len(said)
    assert sum(not same(one, other) for one, other in zip(heard, said)) <= 1


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(data):
    with pytest.raises(PeerRefused):
        hearing(data).receive()


def test_sizes_are_refused_before_they_are_read():
    frame = pack_frame(m.Mask(qid=QID, mask=np.zeros((3, 3), dtype=np.int64)), 0)
    small = hearing(frame[:20], limits=m.Limits(max_queries=2, max_outputs=2))  # the prefix alone
    with pytest.raises(PeerRefused, match="of body"):
        small.receive()


def test_truncated_frames_are_refused_at_the_end():
    channel = hearing(pack_frame(m.Done(qid=QID), 0)[:-1], sender="asker")
    with pytest.raises(PeerRefused, match="in the middle"):
        channel.receive()


@pytest.mark.parametrize("message", ALL, ids=lambda message: message.kind)
def test_only_who_may_say_it_is_heard(message):
    for sender in m.ROLES:
        for receiver in m.ROLES:
            channel = hearing(pack_frame(message, 0), sender=sender, receiver=receiver)
            if (sender, receiver) in message.routes:
                assert same(channel.receive(), message)
            else:
                with pytest.raises(PeerRefused, match=f"{sender} may say to {receiver}"):
                    channel.receive()
