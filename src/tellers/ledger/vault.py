"""A file for private costs, encrypted with an operator's key; the ledger holds nothing of them."""

import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import MissingExtra
from ..privacy.rdp import RdpCurve
from ..privacy.sealed import Sealed


@dataclass(frozen=True)
class Vault:
    """Keep the private cost of every settled question in a file of its own, encrypted with an operator's key.

    A ledger without a vault keeps no private cost at all. Who has the file and not the key learns how many
    costs are in it; who has both learns what the votes gave away.

    Guarantee: what is in the file is encrypted and authenticated (Fernet: AES-128-CBC and HMAC-SHA256).
    Assumes:   the key is kept elsewhere than the file.
    Reference: the Fernet specification, as implemented by the library cryptography.

    >>> import tempfile
    >>> vault = Vault(tempfile.mkdtemp() + "/costs.sealed", Vault.new_key())
    >>> vault.require_usable()
    >>> vault.put("q0", Sealed(RdpCurve.zcdp(0.01)))
    >>> vault.read()
    Sealed(<private>)
    >>> list(vault.read().reveal())
    ['q0']
    """

    path: str | os.PathLike[str]
    key: str = field(repr=False)

    def __post_init__(self) -> None:
        _fernet(self.key)  # a key that is none is said now, and not after the first question

    @staticmethod
    def new_key() -> str:
        """Return a fresh key, to be kept by the operator."""
        return str(_library().Fernet.generate_key().decode("ascii"))

    def require_usable(self) -> None:
        """Refuse a file that cannot be written, or that was begun with another key; make a missing one."""
        os.close(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
        with open(self.path, "rb") as file:
            self._decrypt(file.readline().rstrip(b"\n"), number=1)

    def put(self, key: str, cost: Sealed[RdpCurve]) -> None:
        """Add the private cost of a question."""
        curve = cost.reveal()
        said = {"key": key, "orders": curve.orders.tolist(), "values": curve.values.tolist()}
        token = _fernet(self.key).encrypt(json.dumps(said).encode("utf-8")) + b"\n"
        # One write at the end of the file: several writers do not mix their lines.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(file, token) != len(token):
                raise OSError(
                    errno.ENOSPC,
                    f"Expected room for a private cost in {Path(self.path).name}, got less. Make room, and "
                    "remove its last line, which was cut short",
                )
        finally:
            os.close(file)

    def read(self) -> Sealed[dict[str, RdpCurve]]:
        """Return the private costs by the keys of their questions, sealed."""
        path, costs = Path(self.path), {}
        for number, token in enumerate(path.read_bytes().splitlines() if path.exists() else [], start=1):
            said = self._decrypt(token, number=number)
            if said is not None:
                costs[said["key"]] = RdpCurve(said["orders"], said["values"])
        return Sealed(costs)

    def _decrypt(self, token: bytes, *, number: int) -> dict[str, Any] | None:
        if not token:
            return None
        try:
            said: dict[str, Any] = json.loads(_fernet(self.key).decrypt(token))
        except _library().InvalidToken:
            raise ValueError(
                f"Expected line {number} of {Path(self.path).name} to be encrypted with this key; it was "
                "not, or it was changed. Use the key it was written with."
            ) from None
        return said


def read_key(*, file: str | os.PathLike[str] | None = None, variable: str | None = None) -> str:
    """Return the key of a vault from a file that only its owner reads, or from the environment."""
    if (file is None) == (variable is None):
        raise TypeError("Expected either file or variable, where the key of a vault is, got both or neither.")
    if variable is not None:
        key = os.environ.get(variable, "").strip()
        if not key:
            raise ValueError(
                f"Expected the key of a vault in the environment variable {variable}, got none. Make one "
                "with: tellers ledger vault-key"
            )
        return key
    # A file of another size is none of ours, and it may be anything.
    return read_owned(
        Path(os.fspath(file or "")), "the key of a vault", "tellers ledger vault-key FILE", most=256
    )


def read_owned(path: Path, what: str, make: str, *, most: int) -> str:
    """Return the text of a secret file that its owner alone may read; `make` is a command to make one."""
    try:
        with path.open("rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            words = opened.read(most).decode("ascii", errors="replace").strip()
    except OSError as error:
        raise ValueError(
            f"Expected {what} in {path}, could not read it ({error.strerror}). Make one with: {make}"
        ) from None
    if mode & 0o077:
        raise ValueError(
            f"Expected a key that its owner alone may read in {path}, got mode {mode & 0o777:04o}. "
            f"Others may have seen it; if not: chmod 600 {path}"
        )
    return words


def write_key(path: str | os.PathLike[str]) -> None:
    """Write a fresh key to a new file that its owner alone may read."""
    key = Vault.new_key()
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ValueError(
            f"Expected a new file for the key, {os.fspath(path)} is there. Nothing was written: what is "
            "sealed with a key that is lost can never be read."
        ) from None
    with os.fdopen(file, "w", encoding="ascii") as opened:
        opened.write(key + "\n")
        opened.flush()
        os.fsync(opened.fileno())


def _library() -> Any:
    try:
        from cryptography import fernet
    except ImportError:
        raise MissingExtra(
            "Sealing private costs needs the library cryptography: pip install 'tellers[sealed]'."
        ) from None
    return fernet


def _fernet(key: str) -> Any:
    library = _library()
    try:
        return library.Fernet(key)
    except (ValueError, TypeError):
        # The text is not quoted: it may be a key but for one letter.
        raise ValueError("Expected a key of 44 letters, as Vault.new_key() makes one.") from None
