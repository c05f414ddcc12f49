"""Certificates made once for all tests of parties, and a pair of linked workers."""

import importlib.util
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from tellers.parties._link import EngineLink
from tellers.parties._tunnel import dial
from tellers.parties.programs import ASKER, HELPER

QID = "0" * 32
ROLES = {
    "ann": "asker", "bea": "asker", "guard": "guardian", "north": "answerer", "south": "answerer",
}  # fmt: skip


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Return the folder of an authority, with a card, an identity and a peer for every party."""
    pytest.importorskip("cryptography")
    from tellers.parties._certificates import make_certificate
    from tellers.parties._wire import Identity, Peer

    folder = tmp_path_factory.mktemp("certificates")
    cards = {name: make_certificate(folder, name, role=role) for name, role in ROLES.items()}
    return SimpleNamespace(
        folder=Path(folder),
        cards=cards,
        identities={name: Identity(name, role, home=folder / name) for name, role in ROLES.items()},
        peers={name: Peer(name, role, pin=cards[name].pin) for name, role in ROLES.items()},
    )


@pytest.fixture(scope="session")
def engine():
    """The engine; without it, tests are skipped loudly, or fail with TELLERS_REQUIRE_ENGINE=1."""
    if importlib.util.find_spec("spu") is not None:
        return
    words = (
        "SECRET COMPUTATION WAS NOT TRIED: the engine is missing, pip install 'tellers[capc]' on Python 3.11"
    )
    if os.environ.get("TELLERS_REQUIRE_ENGINE", "0") not in ("", "0"):
        pytest.fail(words)
    pytest.skip(words)


@dataclass
class Pair:
    """Both ends of a link, and threads to speak to both at once."""

    asker: EngineLink
    answerer: EngineLink
    threads: ThreadPoolExecutor

    def both(self, ask, answer):
        """Call one function for each end at the same time; raise what either raised."""
        first, second = self.threads.submit(ask, self.asker), self.threads.submit(answer, self.answerer)
        return first.result(timeout=120), second.result(timeout=120)

    def open(self):
        return self.both(EngineLink.open, EngineLink.open)

    def prepare(self, program):
        self.both(lambda link: link.prepare(program), lambda link: link.prepare(program))

    def run(self, program, ask, answer):
        found, nothing = self.both(
            lambda link: link.run(program, ask, query=QID),
            lambda link: link.run(program, answer, query=QID),
        )
        assert nothing is None
        return found

    def close(self):
        self.asker.kill()
        self.answerer.kill()
        self.threads.shutdown()


def ends_of(certificates, own, other):
    """Return who a party is, and who may be at the other end."""
    from tellers.parties._wire import Pinned

    return Pinned(certificates.identities[own], certificates.peers[other])


def make_pair(certificates, *, timeout: float = 60.0) -> Pair:
    """Return two ends that are not open yet."""
    door = socket.create_server(("127.0.0.1", 0))
    door.settimeout(timeout)
    ann, north = ends_of(certificates, "ann", "north"), ends_of(certificates, "north", "ann")
    asker = EngineLink(ASKER, lambda _: dial(door.getsockname()), ann, timeout=timeout)
    answerer = EngineLink(HELPER, lambda _: door.accept()[0], north, timeout=timeout)
    return Pair(asker, answerer, ThreadPoolExecutor(4))


@pytest.fixture(scope="module")
def pair(engine, certificates):
    """Two linked workers, for the tests of one file."""
    two = make_pair(certificates)
    two.open()
    yield two
    two.close()


@pytest.fixture
def fresh_pair(engine, certificates):
    """Two ends of a link that a test may break."""
    two = make_pair(certificates, timeout=30.0)
    yield two
    two.close()
