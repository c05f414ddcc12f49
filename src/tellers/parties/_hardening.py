"""Pairwise masks of answering parties: they cancel in the sum, so that colluders see totals alone.

Without them an asker and a guardian who tell each other everything learn every vote: one has the share, the
other its mask. Each pair of answering parties therefore has a key (X25519), and for each query a stream of
it that one adds to its mask and the other subtracts. Over the whole answering set the streams cancel; over
less they do not. A stream is never used twice: it depends on the query, on the answering set, and on a fresh
number of every member. Whoever has lent a mask to one set lends none to another for the same query.
"""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

try:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import x25519
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:  # said when a key is made or read
    x25519 = None  # type: ignore[assignment]

from ..errors import MissingExtra
from ..privacy.noise import Noise
from ._ring import Integers, ring_scaled, ring_sum


def require_cryptography() -> None:
    if x25519 is None:
        raise MissingExtra("Parties need the library cryptography: pip install 'tellers[capc]'.")


def new_mask_key() -> tuple[str, str]:
    """Return a new pair of keys for masks, the secret and the public one, 64 hexadecimal digits each."""
    secret = secrets.token_hex(32)
    return secret, public_mask_key(secret)


def public_mask_key(secret: str) -> str:
    return str(_secret_key(secret).public_key().public_bytes_raw().hex())


def pair_keys(own: str, secret: str, others: Mapping[str, str]) -> dict[str, bytes]:
    """Return the key that a party shares with each of the others, from its secret and their public keys.

    Guarantee: both ends of a pair get the same 32 bytes, and nobody else does.
    Assumes:   public keys that came by a way on which nobody could change them, as pins do; the hardness of
               Diffie-Hellman on Curve25519. One key for good: who steals it later can undo old masks.
    Reference: RFC 7748 (X25519), RFC 5869 (HKDF).
    """
    mine, public = _secret_key(secret), public_mask_key(secret)
    keys = {}
    for name, other in others.items():
        if name == own:
            raise ValueError(f"Expected the keys of other parties, got {own!r} itself among them.")
        try:
            raw = bytes.fromhex(other)
            shared = mine.exchange(x25519.X25519PublicKey.from_public_bytes(raw))
        except ValueError:
            raise ValueError(
                f"Expected the public mask key of {name!r}, 64 hexadecimal digits, got something else. "
                "Ask that party for the line that `tellers party certs` printed."
            ) from None
        ends = sorted([(own, public), (name, other.lower())])
        told = "tellers pair of masks|" + "|".join(f"{who}={key}" for who, key in ends)
        keys[name] = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=told.encode()).derive(shared)
    return keys


def zero_sum_mask(
    own: str, keys: Mapping[str, bytes], *, qid: str, nonces: Mapping[str, str], shape: tuple[int, int]
) -> Integers:
    """Return what a party adds to its mask; over all members of the answering set the sum is zero.

    `nonces` holds the fresh number of every member of the set, the party's own included.

    Guarantee: to whoever lacks the key between two members, what both send is uniform but for its sum.
    Assumes:   no two calls of one party with the same nonces: they hold a fresh one of its own.
    Reference: Bonawitz et al. 2017 (secure aggregation), its masks without its recovery of who drops out:
               here a set that is not complete is given up.
    """
    members = sorted(nonces)
    if own not in nonces or len(members) < 2:
        raise ValueError(f"Expected {own!r} and at least one more party in the answering set.")
    missing = [name for name in members if name != own and name not in keys]
    if missing:
        raise ValueError(
            f"Expected a mask key of every member of the answering set, got none of {missing[0]!r}."
        )
    told = "|".join([qid, *(f"{name}={nonces[name]}" for name in members), f"{shape[0]}x{shape[1]}"])
    context = hashlib.sha256(told.encode()).digest()
    total = np.zeros(shape, dtype=np.int64)
    for other in members:
        if other != own:
            stream = _stream(keys[other], context, shape)
            total = ring_sum([total, stream if own < other else ring_scaled(stream, -1)])
    return total


def lend(
    mask: Integers,
    *,
    cancelling: Integers | None = None,
    sigma: float | None = None,
    noise: Noise | None = None,
) -> Integers:
    """Return what a party sends to the guardian: its mask, what cancels, and its own share of noise."""
    parts = [mask]
    if cancelling is not None:
        parts.append(cancelling)
    if sigma is not None:
        if noise is None:
            raise TypeError("Expected a source of noise for a share of noise, got none. Use noise.secure().")
        parts.append(noise.discrete_gaussian(sigma, mask.shape))
    return ring_sum(parts)


def _stream(key: bytes, context: bytes, shape: tuple[int, int]) -> Integers:
    # A key of its own for every query, so that the counter may begin at zero.
    fresh = HKDF(algorithm=hashes.SHA256(), length=32, salt=context, info=b"tellers masks").derive(key)
    cipher = Cipher(algorithms.ChaCha20(fresh, bytes(16)), mode=None).encryptor()
    stream = cipher.update(bytes(8 * shape[0] * shape[1]))
    return np.frombuffer(stream, dtype="<i8").astype(np.int64).reshape(shape)


def _secret_key(secret: str) -> Any:
    require_cryptography()
    try:
        return x25519.X25519PrivateKey.from_private_bytes(bytes.fromhex(secret.strip()))
    except ValueError:
        # Not quoted: it may be a key but for one letter.
        raise ValueError("Expected a secret mask key of 64 hexadecimal digits, got something else.") from None
