"""A place apart for private costs: encrypted with the operator's key, and nothing of it in the ledger."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import MissingExtra
from ..rdp import RdpCurve
from ..sealed import Sealed


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
        """Return a fresh key, to be kept by the operator.

        >>> len(Vault.new_key())
        44
        """
        return str(_library().Fernet.generate_key().decode("ascii"))

    def put(self, key: str, cost: Sealed[RdpCurve]) -> None:
        """Add the private cost of a question.

        >>> import tempfile
        >>> vault = Vault(tempfile.mkdtemp() + "/costs.sealed", Vault.new_key())
        >>> vault.put("q0", Sealed(RdpCurve.zcdp(0.01)))
        """
        curve = cost.reveal()
        said = {"key": key, "orders": curve.orders.tolist(), "values": curve.values.tolist()}
        token = _fernet(self.key).encrypt(json.dumps(said).encode("utf-8")) + b"\n"
        # One write at the end of the file: several writers do not mix their lines.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, token)
        finally:
            os.close(file)

    def read(self) -> Sealed[dict[str, RdpCurve]]:
        """Return the private costs by the keys of their questions, sealed.

        >>> import tempfile
        >>> Vault(tempfile.mkdtemp() + "/costs.sealed", Vault.new_key()).read().reveal()
        {}
        """
        path, costs = Path(self.path), {}
        fernet, invalid = _fernet(self.key), _library().InvalidToken
        for number, token in enumerate(path.read_bytes().splitlines() if path.exists() else [], start=1):
            try:
                said = json.loads(fernet.decrypt(token))
            except invalid:
                raise ValueError(
                    f"Expected line {number} of {path.name} to be encrypted with this key; it was not, or it "
                    "was changed. Use the key it was written with."
                ) from None
            costs[said["key"]] = RdpCurve(said["orders"], said["values"])
        return Sealed(costs)


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
