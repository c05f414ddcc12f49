"""Certificates made once for all tests of parties, and a pair of linked workers."""

import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from tellers.parties._link import EngineLink
from tellers.parties._tunnel import CertificateFiles, dial, listen
from tellers.parties.programs import ASKER, HELPER

ROLES = {
    "ann": "asker", "bea": "asker", "guard": "guardian", "north": "answerer", "south": "answerer",
}  # fmt: skip


def make_bare_certificate(folder: Path, name: str, *, signer: str | None = None) -> None:
    """Write a certificate and its key: self-signed, or signed by another one of the folder."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signing = key
    if signer is not None:
        issuer = x509.load_pem_x509_certificate((folder / f"{signer}.pem").read_bytes()).subject
        signing = serialization.load_pem_private_key((folder / f"{signer}.key").read_bytes(), None)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(signing, hashes.SHA256())
    )
    (folder / f"{name}.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


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
def bare_certificates(tmp_path_factory):
    """A folder with certificates of two parties, a stranger, and one that the asker signed."""
    folder = tmp_path_factory.mktemp("certificates")
    for name in ("asker", "answerer", "stranger"):
        make_bare_certificate(folder, name)
    make_bare_certificate(folder, "forged", signer="asker")
    return folder


def identity(folder: Path, name: str, *peers: str) -> CertificateFiles:
    """Return who a party is and whom it trusts."""
    return CertificateFiles(
        folder / f"{name}.pem", folder / f"{name}.key", tuple(folder / f"{p}.pem" for p in peers)
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
            lambda link: link.run(program, ask), lambda link: link.run(program, answer)
        )
        assert nothing is None
        return found

    def close(self):
        self.asker.close()
        self.answerer.close()
        self.threads.shutdown()


def make_pair(folder: Path, *, timeout: float = 60.0) -> Pair:
    """Return two ends that are not open yet."""
    door = listen(("127.0.0.1", 0))
    door.settimeout(timeout)
    asker = EngineLink(
        ASKER, lambda: dial(door.getsockname()), identity(folder, "asker", "answerer"), timeout=timeout
    )
    answerer = EngineLink(
        HELPER, lambda: door.accept()[0], identity(folder, "answerer", "asker"), timeout=timeout
    )
    return Pair(asker, answerer, ThreadPoolExecutor(4))


@pytest.fixture(scope="module")
def pair(engine, bare_certificates):
    """Two linked workers, for the tests of one file."""
    two = make_pair(bare_certificates)
    two.open()
    yield two
    two.close()


@pytest.fixture
def fresh_pair(engine, bare_certificates):
    """Two ends of a link that a test may break."""
    two = make_pair(bare_certificates, timeout=30.0)
    yield two
    two.close()
