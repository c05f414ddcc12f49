"""Certificates of parties: a small authority, one certificate each, and pinned checks."""

import datetime
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
except ImportError:  # said when a certificate is made or read
    pass

from ..errors import require_count
from ..ledger.vault import read_owned
from ._hardening import new_mask_key, public_mask_key, require_cryptography
from ._messages import DIGEST, NAME, NAME_WORDS, ROLES

# A pin is the SHA-256 fingerprint of a certificate. Parties tell each other their pins by a way on which
# nobody could change them, and a connection is good only with the very certificate that was pinned. Whoever
# makes the certificates of all parties holds all their keys: good for trying things out on one machine. In
# earnest each party runs `tellers party certs` for itself alone, and hands on its authority's certificate,
# pin and mask key.

AUTHORITY: Final = "authority.pem"
AUTHORITY_KEY: Final = "authority.key"
CERTIFICATE: Final = "certificate.pem"
KEY: Final = "key.pem"
LABELS: Final = "labels.json"
MASK_KEY: Final = "mask.key"


@dataclass(frozen=True)
class Card:
    """What a party tells the others about itself, and the folder it is from: all of it is public."""

    name: str
    role: str
    pin: str
    mask_key: str
    expires: datetime.datetime
    labels: tuple[int, ...] = ()
    folder: str = ""


def make_certificate(
    folder: str | os.PathLike[str], name: str, *, role: str, days: int = 365, labels: Sequence[int] = (),
    renews: bool = False,
) -> Card:  # fmt: skip
    """Make a party's certificate and keys in `folder`/`name`, and an authority in `folder` if there is none.

    All files are for their owner alone (mode 0600). What is there is never overwritten. `labels` are those
    that an answering party knows, of many; empty for all. With `renews` the party is there: its next
    certificate, with a new key and the old mask key and labels, comes into a folder of its own beside it.

    Guarantee: keys from the operating system's generator; ECDSA on P-256 for TLS, X25519 for masks.
    Assumes:   the folder is on a disk that only its owner reads.
    Reference: RFC 5280 (certificates), RFC 8446 (TLS 1.3).
    """
    require_cryptography()
    require_name(name)
    require_count(days=days)
    if role not in ROLES:
        raise ValueError(f"Expected a role, one of {', '.join(ROLES)}, got {role!r}.")
    require_claim(labels, role=role)
    place = Path(folder)
    home, mask_key = place / name, new_mask_key()[0]
    if renews:
        card, mask_key = read_card(home), read_secret(home / MASK_KEY)
        if (card.name, card.role) != (name, role) or tuple(labels) not in ((), card.labels):
            raise ValueError(
                f"Expected the certificate of {name}, {role}, with the labels that it has in {home}, got "
                "another: a party keeps its name, its role and its labels. Nothing was written."
            )
        home, labels = place / f"{name}-{os.urandom(4).hex()}", card.labels
    if home.exists():
        raise ValueError(
            f"Expected a new folder for the keys of {name!r}, {home} is there. Nothing was written; choose "
            "another folder, or remove it if its keys are not in use."
        )
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    authority, authority_key = _authority(place, days)
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [(x509.oid.NameOID.COMMON_NAME, name), (x509.oid.NameOID.ORGANIZATIONAL_UNIT_NAME, role)]
    subject = x509.Name([x509.NameAttribute(kind, text) for kind, text in parts])
    usages = [x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _builder(subject, authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    home.mkdir(mode=0o700)
    _write(home / KEY, _private_pem(key))
    _write(home / MASK_KEY, mask_key.encode() + b"\n")
    _write(home / AUTHORITY, authority.public_bytes(serialization.Encoding.PEM))
    if labels:
        _write(home / LABELS, json.dumps(list(labels)).encode() + b"\n")
    _write(home / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))
    return read_card(home)


def require_claim(labels: Sequence[int], *, role: str) -> None:
    """Refuse labels that no party can claim to know, however many there are; none stand for all."""
    if labels and (role != "answerer" or list(labels) != sorted(set(labels)) or min(labels) < 0):
        who = "a guardian" if role == "guardian" else f"an {role}"
        raise ValueError(
            f"Expected labels of an answerer, each once and in increasing order, got {list(labels)} of {who}."
        )


def read_card(home: str | os.PathLike[str]) -> Card:
    """Return what a party may tell the others, from the folder of its certificate."""
    place = Path(home)
    certificate = _load(place / CERTIFICATE)
    name, role = _named(certificate, place / CERTIFICATE)
    labels = json.loads((place / LABELS).read_bytes()) if (place / LABELS).exists() else ()
    pin, mask_key = certificate.fingerprint(hashes.SHA256()).hex(), read_secret(place / MASK_KEY)
    return Card(
        name, role, pin, public_mask_key(mask_key), certificate.not_valid_after_utc, tuple(labels),
        folder=place.name,
    )  # fmt: skip


def read_secret(path: str | os.PathLike[str]) -> str:
    return read_owned(Path(path), "a secret key", "tellers party certs", most=16_384)


def require_name(name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"Expected {NAME_WORDS}, got {name!r}.")


def require_pin(pin: object, *, name: str) -> None:
    """Refuse what is no pin, naming whose it should be."""
    if not isinstance(pin, str) or not DIGEST.fullmatch(pin):
        raise ValueError(
            f"Expected the pin of {name!r}, 64 hexadecimal digits in small letters. Ask for the line that "
            "`tellers party certs` printed there."
        )


def _authority(place: Path, days: int) -> tuple[Any, Any]:
    """Return the authority of a folder, made if it has none, and its key."""
    if (place / AUTHORITY_KEY).exists():
        pem = read_secret(place / AUTHORITY_KEY).encode() + b"\n"
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError):
            raise ValueError(
                f"Expected the key of an authority in {place / AUTHORITY_KEY}, got something else. Choose "
                "another folder."
            ) from None
        return _load(place / AUTHORITY), key
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, f"tellers authority {os.urandom(4).hex()}")]
    )
    signing = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    authority = (
        # It outlives what it signs: a certificate renewed on its last day still has an issuer.
        _builder(name, name, key.public_key(), 2 * days + 30)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(signing, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(place / AUTHORITY_KEY, _private_pem(key))
    _write(place / AUTHORITY, authority.public_bytes(serialization.Encoding.PEM))
    return authority, key


def _builder(subject: Any, issuer: Any, public_key: Any, days: int) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        # Clocks of other machines may be behind ours.
        .not_valid_before(now - datetime.timedelta(minutes=10))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _named(certificate: Any, place: Path) -> tuple[str, str]:
    oid = x509.oid.NameOID
    found = [
        [part.value for part in certificate.subject.get_attributes_for_oid(kind)]
        for kind in (oid.COMMON_NAME, oid.ORGANIZATIONAL_UNIT_NAME)
    ]
    if [len(values) for values in found] != [1, 1] or found[1][0] not in ROLES:
        raise ValueError(f"Expected the certificate of a party, with its name and role, in {place}.")
    return str(found[0][0]), str(found[1][0])


def _load(path: Path) -> Any:
    require_cryptography()
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise ValueError(
            f"Expected a certificate in {path}, could not read it ({error.strerror}). Make one with: "
            "tellers party certs"
        ) from None
    except ValueError:
        raise ValueError(f"Expected a certificate (PEM) in {path}, got something else.") from None


def _private_pem(key: Any) -> bytes:
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pem


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
