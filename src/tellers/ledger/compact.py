"""Rewrite a ledger of an earlier version as one of this version: fewer bytes, and opened at once."""

import json
import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..errors import LedgerConflict
from ..privacy._files import sync_folder
from . import sqlite as _file
from ._bills import Bills, Payment, read_terms, write_terms
from ._inode import FileLock, is_in_use
from ._lines import SCHEMA, Line, LineReader, LineStore
from ._state import AccountSums, LedgerState, opening
from .opening import is_url

Progress = Callable[[int], object]

_PAGE = 500


@dataclass(frozen=True)
class Compacted:
    """What became of a ledger that was to be rewritten.

    `version` is the one it had, `old` is where the old ledger is now, or None where there was nothing to do.
    """

    where: str
    version: int
    old: str | None
    lines_before: int
    lines: int
    head: str


def compact_ledger(
    where: str | os.PathLike[str],
    *,
    to: str | None = None,
    name: str = "main",
    timeout: float = 30.0,
    progress: Progress | None = None,
) -> Compacted:
    """Rewrite a ledger of an earlier version as one of this version: the same in fewer bytes.

    A file keeps its name, and the old one stays beside it under another; with `to` the new one gets that name
    and the old one stays where it was. In a database the new one gets the name `to`, or the old name with
    "-4" behind it. Nobody else may have the file open. The old ledger is closed for good: it can be read, and
    nothing is spent from it. `progress` is told numbers of lines, which are twice those of the old ledger.

    Guarantee: budget, terms, accounts, keys, events, releases and charges are the same, compared one by one
               before the old ledger is closed. Until it is closed, nothing has changed; from then on nothing
               is spent but from the new one. Begun again after a crash, it goes on where it was.
    Assumes:   what a ledger assumes.
    Reference: none.

    >>> import tempfile
    >>> from tellers import Accountant, Budget, open_ledger
    >>> path = tempfile.mkdtemp() + "/spend.db"
    >>> open_ledger(path, Accountant(Budget(epsilon=1.0, delta=1e-5))).close()
    >>> compact_ledger(path).old is None  # it is of this version already
    True
    """
    if not is_url(where):
        return _compact_file(Path(os.path.realpath(where)), to, timeout, progress or _silent)
    from .sql.postgres import first_line, replaced

    url = os.fspath(where)
    version = _version(first_line(url, name=name, timeout=timeout))
    if version == SCHEMA:
        return _nothing_to_do(name, version)
    new = to or f"{name}-{SCHEMA}"
    with replaced(url, name, new, timeout=timeout) as (old, store):
        found = _rewrite(old, store, version, new, progress or _silent)
    return Compacted(new, version, name, *found)


def _silent(_: int) -> None:
    return


def _version(first: Line) -> int:
    return int(json.loads(first.body).get("schema", 2))


def _nothing_to_do(where: str, version: int) -> Compacted:
    return Compacted(where, version, None, 0, 0, "")


# --- A file ---
#
# Nobody else may have it open, or open it, for a log lies beside its name and would be taken for that of
# the new one. The lock is held from before the first line is read until after the names are exchanged. In
# between, what a crash leaves is either the old ledger as it was, or the old one closed and the new one,
# whole and with nothing in its log, beside the name it will have; whoever begins again finds that and goes
# on. There is no moment without a file under the name, at which a program would begin a new budget.


def _compact_file(path: Path, to: str | None, timeout: float, progress: Progress) -> Compacted:
    target = path if to is None else Path(os.path.abspath(to))
    new = target.with_name(f"{target.name}.compact")
    for one, other in ((target, new), *((path, _aside(path, version)) for version in range(1, SCHEMA))):
        if _is_same(one, other) and not is_in_use(one):
            other.unlink()  # names were about to be exchanged
    first = _file.first_line(path, timeout)
    version = _version(first)
    if version == SCHEMA:
        return _nothing_to_do(str(path), version)
    aside = _aside(path, version)
    if to is None and os.path.lexists(aside):
        raise LedgerConflict(
            f"Expected {aside.name} to be free for the old ledger, it is there. Nothing was written. Move it."
        )
    lock = FileLock(path)
    with _file.plain_words(path, timeout):
        lock.open()
        connection = sqlite3.connect(path, timeout=timeout, isolation_level=None)
        try:
            _take(connection, lock, path)
            old = _file.SqliteStore(connection, path.name)
            closed = old.last("closed")
            if closed is None:
                if to is not None:
                    _require_free(target)
                found = _write_file(old, new, version, target, path.stat(), timeout, progress)
                connection.execute("COMMIT")
            else:
                if not _is_finished(new, closed, target, timeout):
                    raise _closed_before(closed, path)
                head = old.head()
                assert head is not None
                into = json.loads(closed.body)["into"]
                found = head[0], into["lines"], into["head"]
            if to is None:
                path.with_name(f"{path.name}-journal").unlink(missing_ok=True)  # empty, and of the old file
                os.link(path, aside)
                os.replace(new, path)
            else:
                _link(new, target)
                new.unlink()
            _remove_log(new)
            sync_folder(target.parent)
        finally:
            lock.close([connection])
    where, left = (path, aside) if to is None else (target, path)
    return Compacted(str(where), version, str(left), *found)


def _is_same(path: Path, other: Path) -> bool:
    try:
        return os.path.samestat(path.lstat(), other.lstat())
    except FileNotFoundError:
        return False


def _require_free(target: Path) -> None:
    """Refuse a name that is taken, or has a log beside it, which SQLite would take for the new one's."""
    for end in ("", "-wal", "-shm", "-journal"):
        if os.path.lexists(f"{target}{end}"):
            raise LedgerConflict(
                f"Expected a file that is not there yet, got {target.name}{end}. Nothing was written. Name "
                "another."
            )


def _link(new: Path, target: Path) -> None:
    try:
        os.link(new, target)
    except FileExistsError:
        raise LedgerConflict(
            f"Expected the name {target.name} to be free for the new ledger, it was taken meanwhile. Move "
            "that file, and begin again: the new ledger is done, and waits for its name."
        ) from None


def _remove_log(file: Path) -> None:
    for end in ("-wal", "-shm"):
        file.with_name(f"{file.name}{end}").unlink(missing_ok=True)


def _aside(path: Path, version: int) -> Path:
    return path.with_name(f"{path.stem}.version-{version}{path.suffix}")


def _take(connection: sqlite3.Connection, lock: FileLock, path: Path) -> None:
    """Take a file for oneself, log and all, until the connection is closed."""
    connection.text_factory = _file._text
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")
    try:
        if not lock.be_alone():
            raise sqlite3.OperationalError("it is in use, or waited for")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        if mode != "delete":
            raise sqlite3.OperationalError("its log is in use")
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        raise LedgerConflict(
            f"Expected nobody else to have {path.name} open, somebody has ({error}). Nothing was written. "
            "Stop the programs that use it, and begin again."
        ) from error


def _write_file(
    old: LineStore,
    new: Path,
    version: int,
    becomes: Path,
    like: os.stat_result,
    timeout: float,
    progress: Progress,
) -> tuple[int, int, str]:
    """Write the new file, durably, and close the old ledger, which is not committed here."""
    new.unlink(missing_ok=True)  # what a crash left; the old ledger was never closed for it
    _remove_log(new)
    try:
        _make(new, like)
        with _file.held(new, timeout):
            connection = _file.connect(new, (), timeout)
            try:
                connection.execute("BEGIN IMMEDIATE")
                store = _file.SqliteStore(connection, new.name)
                found = _rewrite(old, store, version, becomes.name, progress)
                connection.execute("COMMIT")
                # Its log has another name than the one that the file will have.
                (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if is_busy:
                    raise LedgerConflict(
                        f"Expected nobody to open {new.name} while it is written, somebody has. Nothing was "
                        "changed. Begin again."
                    )
            finally:
                connection.close()
        probe = new.with_name(f"{new.name}.link")
        probe.unlink(missing_ok=True)
        os.link(new, probe)  # where that is not possible it is said now
        probe.unlink()
        sync_folder(new.parent)
    except BaseException:
        new.unlink(missing_ok=True)
        _remove_log(new)
        raise
    return found


def _make(new: Path, like: os.stat_result) -> None:
    """Make an empty file that is open to nobody to whom the old one was not."""
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if hasattr(os, "fchown"):
            with suppress(PermissionError):
                os.fchown(descriptor, like.st_uid, like.st_gid)
            os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
    finally:
        os.close(descriptor)


def _is_finished(beside: Path, closed: Line, path: Path, timeout: float) -> bool:
    """Say whether the ledger that a closed one names is there, waiting for its name."""
    into = json.loads(closed.body)["into"]
    return (
        into["name"] == path.name
        and beside.is_file()
        and _file.first_line(beside, timeout).hash == into["first"]
    )


def _closed_before(closed: Line, path: Path) -> LedgerConflict:
    into = json.loads(closed.body)["into"]
    return LedgerConflict(
        f"Expected a ledger that is in use, {path.name} was rewritten into {into['name']!r} before. "
        "Nothing was written. Open that one."
    )


# --- Lines ---


def _rewrite(
    old: LineStore, new: LineStore, version: int, name: str, progress: Progress
) -> tuple[int, int, str]:
    """Write all lines anew, compare, and close the old ledger; return lines before, lines, and the head."""
    old.require_rules()
    head, closed = old.head(), old.last("closed")
    if closed is not None:
        raise _closed_before(closed, Path("the ledger"))
    if head is None:
        raise LedgerConflict("Expected a ledger, got one that lost its first line. Restore it.")
    before = {"head": head[1], "lines": head[0] + 1, "version": version}
    again = _Rewriting(new, before)
    for line in old.after(-1):
        again.add(line)
        progress(1)
    again.flush()
    _require_same_sums(again.old, again.new)
    _require_same_lines(old, new, progress)
    assert again.old.head is not None
    assert again.new.head is not None
    if again.old.head.hash != head[1]:
        raise LedgerConflict("Expected nobody to write meanwhile, somebody did. Nothing was changed.")
    n_lines, last = again.new.head.number + 1, again.new.head.hash
    into = {"first": again.first.hash, "head": last, "lines": n_lines, "name": name, "version": SCHEMA}
    old.append(again.old.write_note("closed", {"into": into}))
    return head[0] + 1, n_lines, last


@dataclass(eq=False)
class _Rewriting:
    """Reads old lines, each checked, and writes new ones that say the same."""

    store: LineStore
    before: dict[str, Any]
    old: LedgerState = field(default_factory=LedgerState)
    new: LedgerState = field(default_factory=LedgerState)
    _lines: list[Line] = field(default_factory=list)

    @property
    def first(self) -> Line:
        (line,) = self.store.numbered([0])
        return line

    def add(self, line: Line) -> None:
        old, new = self.old, self.new
        old.add(line)
        body, key, lines = json.loads(line.body), line.key, self._lines
        if line.kind == "opened":
            lines.append(opening(read_terms(body), before=self.before))
            new.add(lines[-1])
        elif line.kind == "account":
            lines.append(new.note_account(key, write_terms(read_terms(body))))
        elif line.kind == "reserved":
            mark, paid = str(body.get("mark", "")), self._carried(old.pending[key].paid)
            event = body.get("event", {})
            lines += new.note_reserved(key, paid, event=event, mark=mark, store=self.store)
        elif line.kind == "settled":
            charged = self._carried(old.payments(body["charged"], body.get("also", {})))
            lines += new.note_settled(key, new.pending[key], charged, shown=body["release"])
        elif line.kind != "price":  # those have new lines where they are first paid for
            raise LedgerConflict(f"Expected a line of an old ledger, got {line.kind!r}. Nothing was changed.")
        lines += new.write_checkpoint()
        if len(lines) >= _PAGE:
            self.flush()

    def flush(self) -> None:
        self.store.append(self._lines)
        self._lines.clear()

    def _carried(self, paid: dict[str | None, Payment]) -> dict[str | None, Payment]:
        """Return payments in the items of the new ledger."""
        old, new = self.old.bills, self.new.bills
        return {
            account: payment._replace(
                terms=tuple((n, new.note(old.items[name]), kind) for n, name, kind in payment.terms)
            )
            for account, payment in paid.items()
        }


def _require_same_sums(old: LedgerState, new: LedgerState) -> None:
    same = old.sums.keys() == new.sums.keys()
    same = same and (old.n_questions, old.n_settled) == (new.n_questions, new.n_settled)
    for account in old.sums if same else ():
        one, other = old.sums[account], new.sums[account]
        same = same and one.accountant == other.accountant
        same = same and (one.ticks, one.events, one.deltas) == (other.ticks, other.events, other.deltas)
        same = same and one.held == other.held and _counts(one) == _counts(other)
    if not same:
        raise _not_the_same("the sums")


def _counts(sums: AccountSums) -> dict[Any, int]:
    return {(sums.bills.items[name].key, kind): n for (name, kind), n in sums.paid.items()}


def _require_same_lines(old: LineReader, new: LineReader, progress: Progress) -> None:
    told = _told(new)
    for one, other in zip_longest(_told(old, progress), told):
        if one != other:
            raise _not_the_same("a question" if one is None else f"{one[0]} {one[1]!r}")


def _not_the_same(what: str) -> LedgerConflict:
    return LedgerConflict(
        f"Expected a new ledger that says what the old one does, {what} came out otherwise. Nothing was "
        "changed. Go on with the old one, and report this."
    )


def _told(reader: LineReader, progress: Progress = _silent) -> Iterator[tuple[Any, ...]]:
    """Yield what the lines of a ledger say, in whatever version they say it."""
    state, events = LedgerState(), dict[int, dict[str, Any]]()
    for line in reader.after(-1):
        state.add(line)
        progress(1)
        body = json.loads(line.body)
        said: tuple[Any, ...]
        if line.kind in ("opened", "account"):
            said = (write_terms(read_terms(body)),)
        elif line.kind == "event":
            events[line.number] = body
            continue
        elif line.kind == "reserved":
            event = {**events[body["event"]], **body["asked"]} if "asked" in body else body.get("event", {})
            said = (event, _paid(state.bills, state.pending[line.key].paid))
        elif line.kind == "settled":
            charged = state.payments(body["charged"], body.get("also", {}))
            said = (body["release"], _paid(state.bills, charged))
        else:
            continue
        yield line.kind, line.key, *said


def _paid(bills: Bills, paid: dict[str | None, Payment]) -> dict[str | None, Any]:
    return {
        account: (
            {(bills.items[name].key, kind): n for n, name, kind in payment.terms},
            bills.price(payment).values.tobytes(),
            payment.delta,
            payment.ticks,
        )
        for account, payment in paid.items()
    }
