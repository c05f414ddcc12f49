"""The server of `tellers witness serve`: it remembers the last line of ledgers, and signs what it saw.

It is meant to be read whole. It takes a request of at most 4 KiB within ten seconds, sees that whoever sent
it knows the token, notes a line in a file that never goes back, and answers, signed. It holds nothing
private: numbers and hashes of lines. A request is

    POST / HTTP/1.1
    Authorization: HMAC (SHA-256 of the body, keyed by the token, in hexadecimal)

    {"do": "note", "ledger": ..., "head": [number, hash], "mark": ...}

where `do` is note, history or trust. A trust says `instead_of`, and a note may say `after`, the last line
that the sender knows of; where the witness knows another, a note changes nothing. The answer repeats `mark`
and `ledger`, has `history`, a list of [number, hash, time], newest first, and is signed (Ed25519) in
Tellers-Signature.
"""

import asyncio
import hmac
import json
import os
import re
import secrets
import signal
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

from ..errors import LedgerConflict
from .base import Head, canonical
from .vault import read_owned
from .witness import FileWitness, Seen, ed25519, proof

_MOST_BYTES = 4096
_MOST_CONNECTIONS = 64
_SECONDS = 10.0


class WitnessServer:
    """What a witness keeps in its folder, and how it answers a request."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.token_file, key_file = folder / "token", folder / "signing.key"
        for file in (self.token_file, key_file):
            _make_secret(file)
        make = "tellers witness serve"
        self._token = _whole(read_owned(self.token_file, "the token of a witness", make, most=256)).encode()
        seed = _whole(read_owned(key_file, "the signing key of a witness", make, most=256))
        self._key = ed25519().Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))
        self.public_key: str = self._key.public_key().public_bytes_raw().hex()
        self._witness = FileWitness(folder / "heads")
        self._n_open = 0

    def answer(self, authorization: str, body: bytes) -> tuple[int, bytes, str]:
        """Return status, body and signature of what is said to a request."""
        if not hmac.compare_digest(authorization.encode(), f"HMAC {proof(self._token, body)}".encode()):
            return 401, b"", ""
        status, told = 200, dict[str, Any]()
        try:
            said = json.loads(body)
            told = {"mark": str(said["mark"]), "ledger": str(said["ledger"])}
            told["history"] = self._do(said, told["ledger"])
        except LedgerConflict as error:
            status, told["error"] = 409, str(error)
        except (ValueError, TypeError, KeyError, RecursionError):
            status, told["error"] = 400, "Expected a request to a witness, got something else."
        except OSError:
            status, told["error"] = 503, "The file of the witness cannot be written."
        signed = canonical(told).encode("ascii")
        return status, signed, self._key.sign(signed).hex()

    def _do(self, said: dict[str, Any], ledger: str) -> list[Seen]:
        if said["do"] == "history":
            return self._witness.history(ledger)
        head = _head(said["head"])
        if said["do"] == "trust":
            # It says what it replaces, so that one that is sent again later does nothing.
            self._witness.trust(ledger, head, instead_of=Seen(*_head(said["instead_of"]), ""))
        elif said["do"] != "note":
            raise ValueError(said["do"])
        after = said.get("after")
        return [self._witness.note(ledger, head, after=None if after is None else _head(after))]

    async def serve(self, host: str, port: int, *, ready: Callable[[int], object]) -> None:
        """Answer until the process is told to stop; `ready` is told the port."""
        server = await asyncio.start_server(self._take, host, port, limit=_MOST_BYTES)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        async with server:
            ready(server.sockets[0].getsockname()[1])
            await stopped.wait()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; whoever is slow, or one too many, is let go without an answer."""
        self._n_open += 1
        try:
            if self._n_open <= _MOST_CONNECTIONS:
                async with asyncio.timeout(_SECONDS):
                    writer.write(await self._reply(reader))
                    await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._n_open -= 1
            writer.close()

    async def _reply(self, reader: asyncio.StreamReader) -> bytes:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        named = (line.partition(":")[::2] for line in head[1:])
        sent = {name.strip().lower(): value.strip() for name, value in named}
        length = sent.get("content-length", "")
        n_bytes = int(length) if length.isdecimal() and len(length) < 6 else _MOST_BYTES + 1
        if not head[0].startswith("POST ") or n_bytes > _MOST_BYTES:
            status, body, signature = 400, b"", ""
        else:
            body = await reader.readexactly(n_bytes)
            status, body, signature = self.answer(sent.get("authorization", ""), body)
        lines = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "Content-Type: application/json",
            f"Content-Length: {len(body)}", f"Tellers-Signature: {signature}", "Connection: close", "", "",
        )  # fmt: skip
        return "\r\n".join(lines).encode("ascii") + body


def _head(said: Any) -> Head:
    number, digest = said
    if not isinstance(number, int) or not isinstance(digest, str):
        raise TypeError("Expected a number and a hash.")
    return Head(number, digest)


def _whole(secret: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", secret):
        raise ValueError(
            "Expected 64 hexadecimal digits in the files token and signing.key of a witness, got something "
            "else: one was cut short, or changed. Remove it; the next start makes another, for services to "
            "be told of."
        )
    return secret


def _make_secret(file: Path) -> None:
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(opened, "w", encoding="ascii") as secret:
        secret.write(secrets.token_hex(32) + "\n")
        secret.flush()
        os.fsync(secret.fileno())
