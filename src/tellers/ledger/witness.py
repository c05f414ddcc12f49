"""Witnesses: who remembers elsewhere how far a ledger had come, so that a ledger that lost lines is noticed.

A backup that is put back, a disk that lies, a database that is rolled back: the chain of such a ledger holds
together, and what was spent since could be spent again. So the last line is noted with a witness before an
answer is handed out, and a ledger that does not hold what its witness saw is not spent from.
"""

import fcntl
import hmac
import http.client
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

from ..errors import LedgerConflict, MissingExtra, Unwitnessed
from ..privacy._files import sync_folder, write_whole
from ._chain import ChainedLedger
from .base import Head, canonical
from .opening import is_url
from .vault import read_owned

_SECONDS = 5.0
"""How long a witness may take for one answer."""

_PAUSE = 1.0
"""Seconds in which a witness that did not answer is not asked again."""

_SMALL = 4 * 2**20
_MOST_BYTES = 65_536
_HEX = re.compile("[0-9a-f]{64}")
_HEADER = b'{"tellers":"witness","format":1}\n'


IF_TRUSTED = (
    "Spent from as it is, budget that was spent could be spent again. Restore a newer backup. If a new "
    "ledger is meant, or what was lost has been accounted for, start once with --trust-ledger."
)


class Seen(NamedTuple):
    """A line that a witness was told of, and when, by its own clock."""

    number: int
    hash: str
    when: str

    @property
    def head(self) -> Head:
        return Head(self.number, self.hash)


class Witness(Protocol):
    """Remembers the last line of ledgers, and never goes back by itself.

    Ledgers are known by ids of 64 hexadecimal digits.
    """

    name: str

    def note(self, ledger: str, head: Head, *, after: Head | None = None) -> Seen:
        """Remember a line, durably, and return the last one that is known.

        A lower number than is known changes nothing; the same number with another hash is a second history,
        and a LedgerConflict. Nothing changes either where a line is known and it is not `after`, the one
        that whoever notes knows to be the ledger's. Whoever cannot remember it now raises an OSError.
        """
        ...

    def history(self, ledger: str) -> list[Seen]:
        """Return lines that were noted, newest first: the last one, and the fewer the older."""
        ...

    def trust(self, ledger: str, head: Head, *, instead_of: Seen) -> None:
        """Forget a ledger's lines, of which the last is `instead_of`, and begin with another head."""
        ...


def last(witness: Witness, ledger: str) -> Seen | None:
    """Return the last line that a witness was told of, or None.

    >>> import tempfile
    >>> witness = FileWitness(tempfile.mkdtemp() + "/heads")
    >>> witness.note("a" * 64, Head(7, "b" * 64)).number
    7
    >>> last(witness, "a" * 64).head == Head(7, "b" * 64), last(witness, "c" * 64)
    (True, None)
    """
    return next(iter(witness.history(ledger)), None)


def open_witness(
    where: str | os.PathLike[str], *, token_file: str = "", public_key: str = "", timeout: float = _SECONDS
) -> Witness:
    """Return the witness in a file, in a PostgreSQL database, or at the address of a `tellers witness serve`.

    The token and the public key are those of the last kind.

    >>> import tempfile
    >>> open_witness(tempfile.mkdtemp() + "/heads").note("a" * 64, Head(7, "b" * 64)).number
    7
    """
    place = os.fspath(where)
    if place.startswith(("http://", "https://")):
        if not token_file or not public_key:
            raise ValueError(
                "Expected a token file and a public key for a witness at an http(s):// address, got none. "
                "tellers witness serve shows both on the machine of the witness; copy the token from there."
            )
        make = "tellers witness serve, on the machine of the witness; then copy it from there"
        token = read_owned(Path(token_file), "the token of a witness", make, most=256)
        return HttpWitness(place, token, public_key, timeout=timeout)
    if token_file or public_key:
        raise ValueError("Expected a token and a public key for a witness at an http(s):// address alone.")
    if is_url(place):
        from .sql._witness import open_database

        return open_database(place, timeout=timeout)
    if "://" in place:
        # The text is not quoted: it may hold a password.
        raise ValueError("Expected a path, or a postgresql:// or http(s):// address, for a witness.")
    return FileWitness(place)


def sample() -> int:
    """Return where a line is kept for history: at n with a chance of one in 2^n, in place of the one before.

    So a line that is kept at n was noted about 2^n lines ago, and forty of them reach back to the beginning.
    """
    bits = secrets.randbits(40) | 1 << 40
    return (bits & -bits).bit_length()


def require_noted(ledger: str, head: Head, known: Seen | None) -> None:
    """Refuse a line that contradicts the last one that is known."""
    if not _HEX.fullmatch(ledger) or not _HEX.fullmatch(head.hash) or not 0 <= head.number < 2**63:
        raise ValueError("Expected 64 hexadecimal digits for a ledger and for its line, and a number from 0.")
    if known is not None and known.number == head.number and known.hash != head.hash:
        raise LedgerConflict(
            f"Expected line {known.number} of the ledger to be the one that its witness saw at {known.when}, "
            "it is another one: there are two histories. Stop whoever spends, and find out which is right."
        )


def require_known(known: Seen | None, instead_of: Seen) -> None:
    """Refuse to begin anew where something else is known than was said."""
    if known is None or known.head != instead_of.head:
        raise LedgerConflict("Expected the last line that the witness saw, it saw another. Look again.")


class FileWitness:
    """A witness in a file, best on another disk than the ledger's; any number of processes share it.

    It is only appended to, and written anew, whole, when it is long. A last line that was cut short by a
    crash was never acknowledged, and is ignored.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(os.path.realpath(path))  # a link stays one when the file is written anew
        self.name = self._path.name
        self._lock = threading.Lock()
        self._read_to = (0, 0, b"")  # the file, how far, and the line before that
        self._kept: dict[str, dict[int, Seen]] = {}
        self._longest = _SMALL

    def note(self, ledger: str, head: Head, *, after: Head | None = None) -> Seen:
        with self._lock:
            file = self._open()
            try:
                known = next(iter(self._newest(ledger)), None)
                require_noted(ledger, head, known)
                if known is not None and (known.number >= head.number or after not in (None, known.head)):
                    os.fsync(file)  # whoever wrote it may have been killed before he did
                    return known
                return self._append(file, ledger, head, 0 if known is None else sample())
            finally:
                os.close(file)

    def history(self, ledger: str) -> list[Seen]:
        if not self._path.exists():
            if not self._path.parent.is_dir():
                raise FileNotFoundError(
                    f"Expected a folder for the witness at {self._path}, there is none. Is its disk mounted?"
                )
            return []
        with self._lock:
            os.close(self._open())
            return self._newest(ledger)

    def trust(self, ledger: str, head: Head, *, instead_of: Seen) -> None:
        with self._lock:
            file = self._open()
            try:
                require_known(next(iter(self._newest(ledger)), None), instead_of)
                require_noted(ledger, head, None)
                self._append(file, ledger, head, 0)
            finally:
                os.close(file)

    def _newest(self, ledger: str) -> list[Seen]:
        return sorted(self._kept.get(ledger, {}).values(), reverse=True)

    def _open(self) -> int:
        """Return the file, locked, with all that others wrote read in and nothing after it."""
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                _lock(file, self.name)
                status = os.fstat(file)
                if self._path.exists() and os.path.samestat(status, self._path.stat()):
                    self._read(file, status.st_ino, status.st_size)
                    return file
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # somebody wrote it anew meanwhile

    def _read(self, file: int, which: int, size: int) -> None:
        known, at, line = self._read_to
        if known != which or at > size or os.pread(file, len(line), at - len(line)) != line:
            at = 0  # another file, which may have the number of one that is gone
        if not at:
            self._kept, at, line = {}, len(_HEADER), _HEADER
            start = os.pread(file, at, 0)
            if start != _HEADER:
                if not _HEADER.startswith(start):
                    raise _not_ours(self.name)
                os.ftruncate(file, 0)
                _write(file, _HEADER, self.name)
                sync_folder(self._path.parent)
        before, lines = line, os.pread(file, max(0, size - at), at).split(b"\n")
        for n, line in enumerate(lines):
            is_last = n == len(lines) - 1 or (n == len(lines) - 2 and not lines[-1])
            try:
                found = _parsed(line, self.name)
            except OSError:
                if not is_last:
                    raise
                found = None
            if found is None or n == len(lines) - 1:
                os.ftruncate(file, at)
                break
            self._keep(*found)
            at += len(line) + 1
            before = line + b"\n"
        self._read_to = which, at, before

    def _keep(self, ledger: str, slot: int, seen: Seen) -> None:
        if not slot:
            self._kept.pop(ledger, None)
        self._kept.setdefault(ledger, {})[slot] = seen

    def _append(self, file: int, ledger: str, head: Head, slot: int) -> Seen:
        seen = Seen(*head, now())
        line, (which, at, _) = _line(ledger, slot, seen), self._read_to
        try:
            _write(file, line, self.name)
        except OSError:
            with suppress(OSError):  # what may not be on the disk must not be taken for what is
                os.ftruncate(file, at)
            raise
        self._keep(ledger, slot, seen)
        self._read_to = which, at + len(line), line
        if self._read_to[1] > self._longest:
            # By number: what was trusted comes first again.
            said = [
                _line(ledger, slot, seen)
                for ledger, kept in self._kept.items()
                for slot, seen in sorted(kept.items(), key=lambda item: item[1].number)
            ]
            self._longest = max(_SMALL, 2 * sum(map(len, said)))
            try:
                write_whole(self._path, b"".join([_HEADER, *said]))
            except OSError:  # it is noted all the same, in a file that stays long for a while
                self._longest = 2 * self._read_to[1]
        return seen


def _line(ledger: str, slot: int, seen: Seen) -> bytes:
    return (canonical([ledger, slot, *seen]) + "\n").encode("ascii")


def _lock(file: int, name: str) -> None:
    """Wait for a file, but not for ever: whoever holds it may have been stopped."""
    until = time.monotonic() + _SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(
                    f"Expected {name} to be free within {_SECONDS:g} s, another program holds it."
                ) from None
            time.sleep(0.001)


def _write(file: int, content: bytes, name: str) -> None:
    if os.write(file, content) != len(content):
        raise OSError(f"Expected room for a line in {name}, got less. Make room.")
    os.fsync(file)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _parsed(line: bytes, name: str) -> tuple[str, int, Seen]:
    try:
        ledger, slot, number, digest, when = json.loads(line)
        require_noted(ledger, Head(int(number), digest), None)
        return ledger, int(slot), Seen(int(number), digest, str(when))
    except (ValueError, TypeError, RecursionError):
        raise _not_ours(name) from None


def _not_ours(name: str) -> OSError:
    return OSError(
        f"Expected the lines of a witness in {name}, got something else. It was changed, or it is another "
        "file. Nothing was written. Name the file of a witness, or one that is not there yet."
    )


class HttpWitness:
    """The witness of a `tellers witness serve`: what it says is believed where its pinned key signed it.

    Every request has a mark of its own, which the signed answer repeats, so an old answer is none. Requests
    are authenticated by a secret that both know; it does not travel, and what does is public.
    """

    def __init__(self, url: str, token: str, public_key: str, *, timeout: float = _SECONDS) -> None:
        parts = urlsplit(url)
        if not parts.hostname or "@" in parts.netloc or not token:
            raise ValueError(
                "Expected http://host:port for a witness, without a user, and a token of its own."
            )
        kind: type[http.client.HTTPConnection] = http.client.HTTPConnection
        if parts.scheme == "https":
            kind = http.client.HTTPSConnection
        self.name = f"{parts.scheme}://{parts.netloc}"
        self._path = parts.path or "/"
        self._connect = partial(kind, parts.hostname, parts.port, timeout=timeout)
        self._seconds = timeout
        self._token, self._key = token.encode(), read_public_key(public_key)

    def note(self, ledger: str, head: Head, *, after: Head | None = None) -> Seen:
        heads = {"head": head} if after is None else {"head": head, "after": after}
        known = self._ask("note", ledger, **heads)[0]
        is_before = known.number < head.number and after in (None, known.head)
        if is_before or (known.number == head.number and known.hash != head.hash):
            raise ConnectionError(f"Expected a receipt for line {head.number} of {self.name}, got another.")
        return known

    def history(self, ledger: str) -> list[Seen]:
        return self._ask("history", ledger)

    def trust(self, ledger: str, head: Head, *, instead_of: Seen) -> None:
        self._ask("trust", ledger, head=head, instead_of=instead_of.head)

    def _ask(self, do: str, ledger: str, **heads: Head) -> list[Seen]:
        mark = secrets.token_hex(16)
        body = canonical({"do": do, "ledger": ledger, "mark": mark, **heads}).encode("ascii")
        sent = {"Authorization": f"HMAC {proof(self._token, body)}", "Connection": "close"}
        connection, until = self._connect(), time.monotonic() + self._seconds
        ends = None
        try:
            connection.connect()
            # The connection's own timeout is one for each byte.
            ends = threading.Timer(until - time.monotonic(), _cut, [connection.sock])
            ends.daemon = True
            ends.start()
            connection.request("POST", self._path, body, sent)
            reply = connection.getresponse()
            status, said = reply.status, reply.read(_MOST_BYTES)
            signature = reply.headers.get("Tellers-Signature", "")
            if time.monotonic() >= until:
                raise TimeoutError
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(
                f"Expected the witness at {self.name} to answer, it does not. See whether it runs, and "
                "whether a firewall lets you through."
            ) from error
        finally:
            if ends is not None:
                ends.cancel()
            connection.close()
        if status == 401:
            raise ConnectionError(
                f"Expected the token of the witness at {self.name}, it knows another. Copy the file `token` "
                "from its folder again."
            )
        try:
            self._key.verify(bytes.fromhex(signature), said)
            told = json.loads(said)
            if told["mark"] != mark or told["ledger"] != ledger:
                raise ValueError("an old receipt, or another ledger's")
        except Exception:  # a signature that does not fit has an error of the library's own
            raise ConnectionError(
                f"Expected a receipt by {self.name}, signed by its key for this very request, got something "
                "else. It is not believed. See public_key, and who answers there."
            ) from None
        if status == 409:
            raise LedgerConflict(str(told["error"]))
        if status != 200:
            said_so = told.get("error", f"status {status}")
            raise ConnectionError(f"Expected the witness at {self.name} to answer, it could not: {said_so}")
        return [Seen(int(number), str(digest), str(when)) for number, digest, when in told["history"]]


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def proof(token: bytes, body: bytes) -> str:
    """Return what shows that whoever sent a request knows the token."""
    return hmac.digest(token, body, "sha256").hex()


def ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingExtra(
            "A witness over HTTP needs the library cryptography: pip install 'tellers[witness]'."
        ) from None
    return ed25519


def read_public_key(text: str) -> Any:
    if not _HEX.fullmatch(text):
        raise ValueError(
            "Expected the public key of a witness, 64 hexadecimal digits, as tellers witness serve shows it."
        )
    return ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(text))


# --- A ledger and its witness. ---


@dataclass(frozen=True)
class Gap:
    """What a witness saw of a ledger that does not hold it; `kept` is the last that both know."""

    key: str
    noted: Seen
    seen: Seen
    kept: Seen | None
    head: Head
    is_other: bool

    def __str__(self) -> str:
        """Say which lines are gone, and since when."""
        since = f"after {self.kept.when}" if self.kept else "from the beginning"
        n = self.seen.number - self.first + 1
        lines = (
            f"{n} lines, {self.first} to {self.seen.number}, acknowledged {since} and until {self.seen.when}"
        )
        if self.is_other:
            return f"it is another ledger than the one that was here, of which {lines}, are not in it"
        if self.head.number < self.seen.number:
            return f"it ends at line {self.head.number}; {lines}, are gone"
        return f"it has another line {self.seen.number} than was acknowledged; up to {lines}, are gone"

    @property
    def first(self) -> int:
        """Return the first line that is gone for certain, or else the first that may be."""
        kept = self.kept.number if self.kept else -1
        return (max(kept, self.head.number) if self._is_short else kept) + 1

    @property
    def _is_short(self) -> bool:
        return not self.is_other and self.head.number < self.seen.number

    def said(self) -> dict[str, Any]:
        """Return what a `trusted` line says of it."""
        return {
            "first_gone": self.first,
            "last_gone": self.seen.number,
            "hash": self.seen.hash,
            "seen": self.seen.when,
        }


class Anchor:
    """Tells a witness the last line of a ledger before anybody is told what the line says.

    `ledger.anchor = anchor` after `anchor.start()`. A ledger is known by the hash of its first line, which
    moves with it, and which nothing but that ledger has. `place` is the id of where it is kept, by which
    another ledger in its place is noticed. Ledgers of versions 1 to 3, whose first lines may be alike, are
    known by it alone.

    Guarantee: when somebody is told an answer, the witness knows its line or a later one; with a larger
               `every`, all but the last `every` - 1 lines.
    Assumes:   the witness is not put back together with the ledger.
    Reference: none.

    >>> import tempfile
    >>> from tellers import Accountant, Budget, SqliteLedger
    >>> folder, accountant = tempfile.mkdtemp(), Accountant(Budget(1.0, 1e-5))
    >>> ledger, witness = SqliteLedger(folder + "/spend.db", accountant), FileWitness(folder + "/heads")
    >>> anchor = Anchor(ledger, witness, place="a" * 64)
    >>> anchor.start()
    >>> ledger.anchor = anchor
    >>> ledger.open_account("student/alice", Budget(0.5, 1e-5))
    >>> anchor.stop(), anchor.catch_up(), anchor.require()
    (None, None, None)
    >>> Anchor(SqliteLedger(folder + "/new.db", accountant), witness, place="a" * 64).start()
    Traceback (most recent call last):
        ...
    tellers.errors.LedgerConflict: Expected a ledger that holds what its witness heads saw; it is another ...
    """

    def __init__(self, ledger: ChainedLedger, witness: Witness, *, place: str = "", every: int = 1) -> None:
        self.ledger, self.witness, self.place, self.every = ledger, witness, place, every
        [first] = ledger._look(lambda store: store.numbered([0]))
        is_marked = "mark" in json.loads(first.body)
        if not is_marked and not place:
            raise ValueError(
                "Expected a ledger of version 4, got an older one, which has no id of its own. Rewrite it "
                "with tellers ledger compact, or give an id of its place: Anchor(..., place=...)."
            )
        self.key = first.hash if is_marked else place
        self._first = Head(0, first.hash)
        self._lock = threading.Lock()
        self._noted = -1
        self._last = self._first  # of the lines that the witness knows, the last that is the ledger's
        self._waiting: Head | None = None
        self._again_at = 0.0

    def _keys(self) -> Mapping[str, Head]:
        """Return the ids that something is noted under, and what."""
        placed = {self.place: self._first} if self.place and self.place != self.key else {}
        return {**placed, self.key: self.ledger.head}

    @property
    def is_known(self) -> bool:
        """Return whether the witness saw this ledger, or one in its place, before."""
        return any(last(self.witness, key) for key in self._keys())

    def _gaps(self) -> list[Gap]:
        """Return what the witness saw and the ledger does not hold.

        The ledger is looked at last, so that what others write meanwhile is none.
        """
        found = []
        for key in self._keys():
            history = self.witness.history(key)
            if history and not self.ledger.holds(history[0].head):
                is_other = key != self.key
                # What was in this place was known by its first line.
                told = (self.witness.history(history[0].hash) if is_other else []) or history
                kept = next((seen for seen in told if self.ledger.holds(seen.head)), None)
                found.append(Gap(key, history[0], told[0], kept, self.ledger.head, is_other))
        return found

    def require(self) -> None:
        """Refuse a ledger that does not hold what its witness saw."""
        gaps = self._gaps()
        if gaps:
            raise LedgerConflict(
                f"Expected a ledger that holds what its witness {self.witness.name} saw; "
                f"{'; '.join(map(str, gaps))}. {IF_TRUSTED}"
            )

    def start(self, *, trusted: bool = False) -> None:
        """Refuse a ledger that does not hold what its witness saw, and note its last line.

        One that is trusted all the same gets a line that says what was seen of it; the witness begins anew.
        """
        if not trusted:
            self.require()
        gaps = self._gaps() if trusted else []
        if gaps:
            self.ledger.trust({"witness": self.witness.name, "gone": [gap.said() for gap in gaps]})
        for gap in gaps:
            self.witness.trust(gap.key, self._keys()[gap.key], instead_of=gap.noted)
        for key, head in self._keys().items():
            self._noted = self._told(key, head, self.witness.note).number

    def stop(self) -> None:
        """Note the last line, so that nothing is left unnoted."""
        with self._lock:
            self._note(self.ledger.head)

    def __call__(self, head: Head) -> None:
        with self._lock:
            if self._waiting is not None or head.number - self._noted >= self.every:
                self._note(head)

    def catch_up(self) -> None:
        """Note what could not be noted before, or say that the witness does still not answer."""
        with self._lock:
            if self._waiting is not None:
                self._note(self._waiting)

    def _note(self, head: Head) -> None:
        is_away = self._waiting is not None and time.monotonic() < self._again_at
        self._waiting = max(head, self._waiting or head)
        if is_away:
            raise self._away()
        self._noted = self._told(self.key, self._waiting, self._note_or_say).number
        self._waiting = None

    def _told(self, key: str, head: Head, note: Callable[..., Seen]) -> Seen:
        """Note a line, and return the last one that is known; it, and each it follows, is the ledger's.

        A copy that is behind, and writes many lines at once, would otherwise overtake what the witness saw.
        """
        known = note(key, head, after=self._last)
        while known.head != head:
            if not self.ledger.holds(known.head):
                raise LedgerConflict(
                    f"Expected the ledger to hold line {known.number}, which its witness {self.witness.name} "
                    f"saw at {known.when}: another copy of it is spent from. Stop both, and find out which "
                    "is right."
                )
            if known.number > head.number:
                break
            known = note(key, head, after=known.head)
        self._last = known.head
        return known

    def _note_or_say(self, key: str, head: Head, *, after: Head) -> Seen:
        try:
            return self.witness.note(key, head, after=after)
        except OSError as error:
            self._again_at = time.monotonic() + _PAUSE
            raise self._away() from error

    def _away(self) -> Unwitnessed:
        return Unwitnessed(
            f"Expected the witness {self.witness.name} to note the last line, it does not answer. What was "
            "asked is on the books, and is told once the witness knows of it: ask again with the same key."
        )
