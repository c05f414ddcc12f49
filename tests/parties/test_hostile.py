"""Hostile peers against running parties: refused, nothing charged, and the next honest query works."""

import json
import secrets
import shutil
import socket
import ssl
import threading
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.errors import LinkFailed, PeerRefused, RoundAborted, TellersError
from tellers.parties import AskRole, _wire
from tellers.parties import ask as asking
from tellers.parties._certificates import make_certificate
from tellers.parties._messages import Agreed, Answered, Done, Mask, Open, Question, Ready, Roll, encode
from tellers.parties._policy import PartyContext
from tellers.parties._wire import _PREFIX, ENGINE, MAGIC, Identity, Pinned, connect, split_address
from tellers.runs import write_party

from .process_network import N_FEATURES, ProcessNetwork, charged, compare, wait_for, warm
from .test_port_mux import Flood

pytestmark = pytest.mark.campaign
HOSTS = ("guard", "north")
N = 2


@pytest.fixture(scope="module")
def network(tmp_path_factory, engine):
    made = ProcessNetwork(
        tmp_path_factory.mktemp("hostile"), n_labels=3, patience=20.0, max_queries=20,
        askers=("ann", "eve", "joe", "sly"), limits={"guard": {"max_strikes": 10**6}},
    ).start_all()  # fmt: skip
    yield made
    made.close()


@pytest.fixture(scope="module")
def ann(network):
    with AskRole(network.settings("ann")) as asker:
        warm(network, asker)
        yield asker


def books(network):
    return {name: len(charged(network, name)) for name in ("guard", *network.names)}


@contextmanager
def no_harm(network, ann):
    """Afterwards nothing was charged, nobody died, and an honest query works with everybody."""
    before, living = books(network), dict(network.processes)
    yield
    assert books(network) == before
    assert network.processes == living
    assert all(process.poll() is None for process in living.values())
    compare(network, ann, N)
    assert books(network) == {name: n + 1 for name, n in before.items()}


@pytest.fixture
def unharmed(network, ann):
    """All of a test does no harm."""
    with no_harm(network, ann):
        yield


class Eve:
    """A party of the session with keys of its own, who says what she likes."""

    def __init__(self, network, host, *, name="eve"):
        self.context = PartyContext(network.settings(name))
        self.channel = connect(
            self.context.address(host), self.context.identity, self.context.peer(host), timeout=30.0
        )
        self.qid = secrets.token_hex(16)

    def open(self, **other):
        given = {"qid": self.qid, "n_queries": N, "program": self.context.program_hash(N)}
        return Open(**{**given, "terms": self.context.settings.terms, **other})

    def question(self, **other):
        session = self.context.settings.session
        shapes = {"n_features": session.n_features, "n_outputs": session.n_outputs}
        given = {"qid": self.qid, "n_queries": N, "program": self.context.program_hash(N), **shapes}
        return Question(**{**given, "terms": self.context.settings.terms, **other})

    def first(self, host):
        """Return a message that is in order, and that the host answers."""
        return self.open(terms="0" * 64) if host == "guard" else self.question(terms="0" * 64)

    def say(self, *messages):
        for message in messages:
            self.channel.send(message)
        return self

    def throw(self, raw):
        with patch.object(_wire, "pack_frame", lambda *_: raw):
            self.channel.send(None)

    def hear(self):
        return self.channel.receive(timeout=60.0)

    def require_closed(self, what=""):
        """Whatever was answered before, the end is that the host hangs up."""
        with suppress(PeerRefused):
            while self.hear():
                pass
        assert self.channel.fileno() < 0, what


def frame(number, header, body=b"", *, lengths=None):
    n_header, n_body = lengths or (len(header), len(body))
    return _PREFIX.pack(MAGIC, number, n_header, n_body) + header + body


def with_field(eve, host, **other):
    said = json.loads(encode(eve.first(host))[0])
    return json.dumps({**said, **other}).encode()


def foreign(host, kind):
    """Return a message that only somebody else may send to this host."""
    qid = "1" * 32
    wrong = {
        "guard": {"a": Ready(qid=qid, nonce=qid), "b": Mask(qid=qid, mask=np.ones((N, 3), dtype=np.int64))},
        "north": {"a": Roll(qid=qid, nonces={"north": qid}), "b": Agreed(qid=qid, parties=("north",))},
    }
    return encode(wrong[host][kind])


# Frame 0 was the greeting.
BYTES = {
    "other bytes": lambda eve, host: b"GET / HTTP/1.1\r\n\r\n" + bytes(100),
    "a long header": lambda eve, host: frame(1, b"{}", lengths=(1 << 24, 0)),
    "a long body": lambda eve, host: frame(1, b"{}", lengths=(2, 1 << 31)),
    "no JSON": lambda eve, host: frame(1, b'{"kind": open}'),
    "deep JSON": lambda eve, host: frame(1, b"[" * 60_000),
    "no kind": lambda eve, host: frame(1, b"{}"),
    "an unknown kind": lambda eve, host: frame(1, b'{"kind":"exec","code":"1"}'),
    "one field more": lambda eve, host: frame(1, with_field(eve, host, then="run")),
    "a wrong type": lambda eve, host: frame(1, with_field(eve, host, n_queries="2")),
    "too many queries": lambda eve, host: frame(1, with_field(eve, host, n_queries=10**6)),
    "a body of no use": lambda eve, host: frame(1, encode(eve.first(host))[0], b"12345678"),
    "another's message": lambda eve, host: frame(1, *foreign(host, "a")),
    "another's message, too": lambda eve, host: frame(1, *foreign(host, "b")),
    "a frame too early": lambda eve, host: frame(2, encode(eve.first(host))[0]),
    "a frame twice": lambda eve, host: 2 * frame(1, encode(eve.first(host))[0]),
    "the greeting's number": lambda eve, host: frame(0, encode(eve.first(host))[0]),
}


@pytest.mark.parametrize("host", HOSTS)
def test_bytes_that_are_no_message_in_order(network, unharmed, host):
    since = len(network.log("guard"))
    for what, thrown in BYTES.items():
        eve = Eve(network, host)
        eve.throw(thrown(eve, host))
        eve.require_closed(what)
    if host == "guard":  # each is named
        wait_for(lambda: network.log("guard")[since:].count("eve broke a rule.") == len(BYTES))


WRONG = {
    "program": ({"program": "0" * 64}, "another program"),
    "terms": ({"terms": "0" * 64}, "other terms"),
}


@pytest.mark.parametrize("host", HOSTS)
def test_another_program_other_terms_or_another_shape(network, unharmed, host):
    for other, words in WRONG.values():
        eve = Eve(network, host)
        answer = eve.say(eve.open(**other) if host == "guard" else eve.question(**other)).hear()
        assert answer.kind == ("aborted" if host == "guard" else "refused")
        assert words in answer.why
        eve.channel.close()
    eve = Eve(network, "north")
    assert "numbers here" in eve.say(eve.question(n_features=N_FEATURES + 1)).hear().why
    eve.channel.close()


def test_a_question_that_the_guardian_knows_nothing_of(network, unharmed):
    since = len(network.log("guard"))
    eve = Eve(network, "north")
    assert "announced no such query" in eve.say(eve.question()).hear().why
    eve.channel.close()
    Eve(network, "north").say(eve.question(qid=secrets.token_hex(16))).channel.close()
    assert "north" not in network.log("guard")[since:]


TURNS = {
    "done with a query that is not charged": lambda eve: [eve.open(), Done(qid=eve.qid)],
    "answers by a stranger": lambda eve: [eve.open(), Answered(qid=eve.qid, parties=("mallory",))],
    "a query opened twice": lambda eve: [eve.open(), eve.open()],
    "answers to nothing": lambda eve: [Answered(qid=eve.qid, parties=("north", "south"))],
    "done with nothing": lambda eve: [Done(qid=eve.qid)],
}


def test_messages_out_of_turn(network, unharmed):
    for what, said in TURNS.items():
        eve = Eve(network, "guard")
        eve.say(*said(eve))
        eve.require_closed(what)


def test_ids_of_another_askers_query(network, ann):
    """An id that was used is good for nothing, at the guardian and at an answering party."""
    qid, before = compare(network, ann, N).qid, books(network)
    eve = Eve(network, "guard")
    eve.say(Answered(qid=qid, parties=network.names), Done(qid=qid))  # over by now: passed over
    eve.say(eve.open(qid=qid))
    eve.require_closed()
    eve = Eve(network, "north")
    assert "used before" in eve.say(eve.question(qid=qid)).hear().why
    eve.channel.close()
    assert books(network) == before
    compare(network, ann, N)


def test_noise_in_place_of_an_engine(network, unharmed):
    eve = Eve(network, "guard")
    opened = eve.say(eve.open()).hear()
    assert opened.roster == network.names
    for _ in range(3):  # as often as a guardian tries
        with suppress(TellersError), call_engine(eve.context, "guard", eve.qid) as plain:
            plain.sendall(secrets.token_bytes(1000))
    eve.require_closed()


@contextmanager
def refused():
    with pytest.raises((PeerRefused, ConnectionError, OSError)):
        yield


@pytest.mark.parametrize("host", HOSTS)
def test_certificates_that_are_not_those_of_a_party(network, unharmed, tmp_path, host):
    context = PartyContext(network.settings("eve"))

    def knock(identity):
        return connect(context.address(host), identity, context.peer(host), timeout=30.0)

    # An authority that nobody trusts.
    make_certificate(tmp_path / "other", "eve", role="asker")
    trusted = (network.folder / "authority.pem",)
    with refused():
        knock(Identity("eve", "asker", home=tmp_path / "other" / "eve", trusted=trusted))
    # The right authority and another pin.
    for file in ("authority.pem", "authority.key"):
        shutil.copy(network.folder / file, tmp_path / file)
    for name in ("mallory", "ann"):
        make_certificate(tmp_path, name, role="asker")
        with refused():
            knock(Identity(name, "asker", home=tmp_path / name))
    # A pinned party under another name; the host is done with its greeting before it has looked at hers.
    with refused(), closing(knock(replace(context.identity, name="ann"))) as channel:
        channel.receive(timeout=30.0)


def test_an_answering_party_that_asks(network, unharmed):
    south = PartyContext(network.settings("south"))
    with refused():
        connect(south.address("north"), south.identity, south.peer("north"), timeout=30.0)


@pytest.mark.parametrize("host", HOSTS)
def test_no_certificate_no_tls_and_a_knock_that_nobody_waits_for(network, unharmed, host):
    address = PartyContext(network.settings("eve")).address(host)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    place = split_address(address)
    with refused(), context.wrap_socket(socket.create_connection(place, timeout=30.0)) as nobody:
        if not nobody.recv(1):
            raise ConnectionError
    with socket.create_connection(place, timeout=30.0) as plain, refused():
        plain.sendall(b"\x16\x03\x01\x01\x2c\xff" + secrets.token_bytes(299))  # a record of no known kind
        while plain.recv(100):
            pass
        raise ConnectionError
    with pytest.raises(LinkFailed, match="closed the connection"):
        call_engine(PartyContext(network.settings("eve")), host, "ab" * 16)
    assert strange_knock(address, "ab" * 16) == b""


def call_engine(context, host, token):
    """Return a connection to an engine, as a party of the session makes it."""
    return Pinned(context.identity, context.peer(host)).dial_engine(
        context.address(host), token, timeout=10.0
    )


def strange_knock(address, token):
    """Ask for an engine in the clear, as was done once, and inside TLS without a certificate."""
    token, place = bytes.fromhex(token), split_address(address)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(place, timeout=30.0) as plain, suppress(OSError):
        plain.sendall(b"\0" + token)
        while plain.recv(100):
            pass
    with suppress(OSError), context.wrap_socket(socket.create_connection(place, timeout=30.0)) as bare:
        bare.sendall(ENGINE + token)
        return bare.recv(1)
    return b""


@contextmanager
def knocks(monkeypatch, knock):
    """Knock with the id of each query from the moment at which it has one, again and again."""
    real, is_over, n_knocks = asking._Attempt.__init__, threading.Event(), []

    def begin(attempt, *given):
        real(attempt, *given)
        threads.append(threading.Thread(target=again, args=(attempt.qid,)))
        threads[-1].start()

    def again(qid):
        while not is_over.is_set():
            with suppress(OSError, TellersError):
                knock(qid)
            n_knocks.append(qid)
            time.sleep(0.005)

    threads = []
    with monkeypatch.context() as changed:
        changed.setattr(asking._Attempt, "__init__", begin)
        yield n_knocks
    is_over.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("who", ["an outsider", "another party"])
def test_who_knows_a_querys_id_and_knocks_first_excludes_nobody(network, ann, monkeypatch, who):
    """New links each time: whoever took the slot of one hospital left it out, and the asker was blamed."""
    eve, before = PartyContext(network.settings("eve")), books(network)
    address = eve.address("north")

    def knock(qid):
        if who == "an outsider":
            strange_knock(address, qid)
        else:
            call_engine(eve, "north", qid)

    with knocks(monkeypatch, knock) as n_knocks, AskRole(network.settings("joe")) as joe:
        compare(network, joe, N)
    assert len(n_knocks) > 10
    compare(network, ann, N)
    assert books(network) == {name: n + 2 for name, n in before.items()}


def test_a_flood_of_strangers_keeps_nobody_out(network, ann):
    before, address = books(network), PartyContext(network.settings("eve")).address
    floods = [Flood(address(host), said=b"", source="127.0.0.1", n_streaming=1) for host in HOSTS]
    try:
        with AskRole(network.settings("joe")) as joe:
            compare(network, joe, N)
    finally:
        for flood in floods:
            flood.close()
    assert books(network) == {name: n + 1 for name, n in before.items()}
    assert len(network.log("north").splitlines()) < 1000
    compare(network, ann, N)


@contextmanager
def with_limits(network, name, **given):
    """Let a party have other limits, for a while."""
    path = network.folder / name / "party.toml"
    text, settings = path.read_text(), network.settings(name)
    limits = replace(settings.limits, **given)
    try:
        path.write_text(write_party(replace(settings, limits=limits)))
        network.kill(name)
        network.restart(name)
        yield
    finally:
        path.write_text(text)
        network.kill(name)
        network.restart(name)


def test_a_quota_at_the_guardian_and_at_an_answering_party(network, ann):
    before, others = books(network), tuple(name for name in network.names if name != "north")
    said = []
    with AskRole(network.settings("eve"), say=said.append) as eve:
        with (
            with_limits(network, "guard", queries_per_asker=1),
            pytest.raises(RoundAborted, match=r"quota of 1 queries.*Nothing was charged"),
        ):
            eve.ask(network.rows(N), n_retries=0)
        assert books(network) == before
        with with_limits(network, "north", queries_per_asker=1):
            batch = eve.ask(network.rows(N))
    assert batch.parties == others
    assert any("quota of 1 queries" in words for words in said)
    assert books(network) == {name: n + (name != "north") for name, n in before.items()}
    compare(network, ann, N)


def leave_out(name):
    """Compute with everybody, and say that somebody did not answer."""
    real = asking._Attempt._agree

    def agree(attempt, line, shares):
        return real(attempt, line, {other: share for other, share in shares.items() if other != name})

    return "_agree", agree


def never_ask(name):
    """Ask everybody but one, and say that it did not answer."""
    real = asking._Attempt._ask_one

    def ask_one(attempt, other, until):
        if other == name:
            raise LinkFailed("It did not answer.")
        return real(attempt, other, until)

    return "_ask_one", ask_one


def test_a_subset_of_the_askers_choice(network, ann, monkeypatch):
    words = r"not for it to choose. Nothing was charged"
    with with_limits(network, "guard", max_strikes=3), AskRole(network.settings("sly")) as sly:
        warm(network, sly)  # whoever is out for a reason of its own may be left out
        with no_harm(network, ann):
            for change in (never_ask("south"), leave_out("south"), leave_out("south")):
                with monkeypatch.context() as changed:
                    changed.setattr(asking._Attempt, *change)
                    with pytest.raises(RoundAborted, match=words):
                        sly.ask(network.rows(N), n_retries=0)
            # After three strikes it gets no answer at all, not even to a query in order.
            with pytest.raises(
                RoundAborted, match=r"sly is suspended until tomorrow .*: 3 breaches of the rules"
            ):
                sly.ask(network.rows(N), n_retries=0)
