"""One file, one name: a lock on the file itself, whatever it is called, and turns between programs.

SQLite keeps its log beside the *name* of a file. Under two names one ledger has two logs, and its budget is
spent twice.
"""

import fcntl
import hashlib
import os
import re
import sqlite3
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..errors import LedgerConflict
from .base import Unusable

# A name is a byte of the file, far behind its end; whoever uses a name holds a shared lock on its byte.
# These locks belong to the open file, and not to the process as SQLite's do: they hold against everybody, and
# closing another descriptor does not lose them.
_NAMES, _N_NAMES = 2**61, 2**40
# So is a log: whoever uses one that was removed holds another byte than who would begin a new one.
_LOGS = _NAMES + _N_NAMES
_LOOKS = 20
_QUEUE, _ALONE = 2**61 - 1, 2**61 - 2
# One of the bytes that SQLite locks for itself: who closes a ledger as the last one locks them all, empties
# the log into the file, and removes it. A process that opened and closed the file by itself, for a copy, say,
# has lost SQLite's lock, and would go on writing to a log that is gone. So there is a lock of our own on it.
_LOG = 2**30 + 2
_PER_OPEN_FILE: Final = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK")

_NETWORKS = re.compile(
    r"nfs\d*|cifs|smb\w*|ncpfs|afs|ceph|lustre|gpfs|ocfs2|davfs|"
    r"fuse\.(sshfs|glusterfs|ceph|s3fs|rclone|davfs2?|gcsfuse|smbnetfs|curlftpfs)"
)
MOUNTS = Path("/proc/self/mountinfo")


@dataclass(eq=False)
class _OpenFile:
    """A file that this process has open: one descriptor, who uses it, and the turns of its threads."""

    descriptor: int
    name: bytes
    real: Path
    place: tuple[int, int] = (0, 0)
    n_users: int = 0
    holds_log: bool = False
    is_alone: bool = False
    log: bytes | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)
    waiting: "_Waiting | None" = None


# SQLite's locks on a file are lost when a process closes any descriptor of it. So there is one descriptor per
# file, and it is closed after the last connection.
_open_files: dict[tuple[int, int], _OpenFile] = {}
_guard = threading.Lock()


def before_fork() -> None:
    """Let nobody open or close a file until the fork is over; ledgers were closed before."""
    _guard.acquire()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_parent=_guard.release, after_in_child=_guard.release)


@dataclass(eq=False)
class FileLock:
    """Holds the one name of a file while it is open, and lets programs write in the order in which they came.

    Guarantee: while one program has the file open under a name, whoever comes by another name is refused; so
               is a file with a second hard link, one that is mounted by itself, and one whose log was removed
               while somebody has it open. A program that waits to write waits for those that came before it,
               and not longer than it says.
    Assumes:   Linux, one kernel, and a file system that locks; on other systems hard links alone are seen. A
               copy of the file, or a file that was moved without its log, is not seen.
    Reference: fcntl(2), open file description locks.
    """

    path: Path
    _file: _OpenFile | None = field(default=None, init=False, repr=False)
    _place: tuple[int, int] | None = field(default=None, init=False, repr=False)

    def open(self) -> None:
        """Take the name, or refuse it; a file that is not there is made, empty."""
        with _guard:
            if self._file is not None:
                return
            real = Path(os.path.realpath(self.path))
            refuse_file_system(real)
            try:
                there = real.stat()
            except FileNotFoundError:
                there = None
            found = None if there is None else _open_files.get((there.st_dev, there.st_ino))
            if there is None or found is None:
                found = self._opened(real)
            elif found.name != _name(real):
                raise _two_names(self.path)
            elif found.is_alone:
                raise _kept_alone(self.path)
            else:
                _require_one_link(there, self.path)
            found.n_users += 1
            self._file, self._place = found, found.place

    def _opened(self, real: Path) -> _OpenFile:
        try:
            descriptor = os.open(real, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        except OSError as error:
            raise unusable(self.path, error.strerror) from error
        found = _OpenFile(descriptor, _name(real), real)
        try:
            there = os.fstat(descriptor)
            _require_one_link(there, self.path)
            _take_name(found, self.path)
            _require_one_log(found)
        except BaseException:
            os.close(descriptor)
            raise
        found.place = there.st_dev, there.st_ino
        _open_files[found.place] = found
        return found

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def be_alone(self) -> bool:
        """Let nobody else open the file until it is closed; say whether nobody else has it open."""
        file = self._file
        assert file is not None
        with _guard:
            if file.n_users > 1:
                return False
            # Who comes takes a name and looks for this: of two at the same time none overlooks the other.
            _set_lock(file.descriptor, fcntl.F_RDLCK, _ALONE)
            file.is_alone = not _is_locked(file.descriptor, _NAMES, _N_NAMES)
            if not file.is_alone:
                _set_lock(file.descriptor, fcntl.F_UNLCK, _ALONE)
            return file.is_alone

    def hold_log(self) -> None:
        """Let nobody remove the log of the file, which a connection to it has open by now."""
        file = self._file
        assert file is not None
        with _guard:
            if not file.holds_log:
                _set_lock(file.descriptor, fcntl.F_RDLCK, _LOG)
                file.holds_log = True
                if _PER_OPEN_FILE:
                    file.log = _log(file.real)
                    _set_lock(file.descriptor, fcntl.F_RDLCK, _LOGS + _byte_of(file.log))
                    try:
                        _require_one_log(file)
                    except BaseException:
                        _let_log_go(file)  # whoever tries again is looked at again
                        raise

    def close(self, connections: Iterable[sqlite3.Connection] = ()) -> None:
        """Close connections to the file, and give its name back; the last one empties the log."""
        with _guard:
            found, self._file = self._file, None
            if found is not None:
                found.n_users -= 1
                if not found.n_users:
                    _let_log_go(found)
            for connection in connections:
                with suppress(sqlite3.Error):
                    connection.close()
            if found is not None and not found.n_users:
                _open_files.pop(found.place, None)
                os.close(found.descriptor)  # and with it whatever it holds

    def require_same(self) -> None:
        """Refuse a file that was moved, replaced or given a second name since it was first opened.

        One that lost its log is refused too: others would begin a new one.
        """
        file = self._file
        try:
            there = self.path.stat()
            is_moved = self._place not in (None, (there.st_dev, there.st_ino))
            if file is not None and file.real != self.path:
                # A link on the way may lead to where the file was moved; its log is beside its old name.
                is_moved = is_moved or not os.path.samestat(there, file.real.stat())
        except FileNotFoundError:
            there, is_moved = None, True
        if there is None or is_moved:
            # Writing to a file that was moved away, or making a new one, would begin the budget again.
            if self._place is not None:
                raise LedgerConflict(
                    f"{self.path.name} was moved, removed or replaced while it was in use. "
                    "Nothing was written. Put it back, and open it again."
                )
        else:
            _require_one_link(there, self.path)
            if file is not None and file.log is not None and file.log != _log(file.real):
                raise _lost_log(self.path)

    def take_turn(self, deadline: float) -> bool:
        """Wait for those who write, here and in other programs, as they came; say whether in time."""
        file = self._file
        assert file is not None
        if not file.turn.acquire(timeout=max(0.0, min(deadline - time.monotonic(), 1e6))):
            return False
        came = False
        try:
            came = _take_turn(file, deadline)
        finally:
            if not came:
                self.end_turn()
        return came

    def end_turn(self) -> None:
        """Let the next one in."""
        file = self._file
        assert file is not None
        try:
            fcntl.flock(file.descriptor, fcntl.LOCK_UN)
        finally:
            file.turn.release()


def _take_turn(file: _OpenFile, deadline: float) -> bool:
    while True:
        waiting = file.waiting
        if waiting is None or waiting.is_over:
            file.waiting = None
            if not _is_queued(file) and _try_flock(file.descriptor):
                return True
            waiting = file.waiting = _Waiting(file)
        if waiting.wait(deadline):
            file.waiting = None
            return True
        if not waiting.is_over:
            return False  # it keeps its place for whoever comes next


class _Waiting:
    """Waits for a lock in a thread of its own: a wait for a file cannot be told when to end.

    Where nobody wants it any more when it comes, it is given back; whoever wants it before that waits on.
    """

    def __init__(self, file: _OpenFile) -> None:
        self._file, self._changed = file, threading.Condition()
        self._came, self._is_wanted, self.is_over = False, True, False
        _set_lock(file.descriptor, fcntl.F_RDLCK, _QUEUE)
        threading.Thread(target=self._run, name="ledger turn", daemon=True).start()

    def _run(self) -> None:
        file = self._file
        with suppress(OSError):  # closed meanwhile
            fcntl.flock(file.descriptor, fcntl.LOCK_EX)
        # While nobody closes the file: the number of a closed one may be another file's by then.
        with _guard, self._changed:
            if file.n_users:
                _set_lock(file.descriptor, fcntl.F_UNLCK, _QUEUE)
                if not self._is_wanted:
                    fcntl.flock(file.descriptor, fcntl.LOCK_UN)
            self._came = self._is_wanted
            self.is_over = not self._came
            self._changed.notify_all()

    def wait(self, deadline: float) -> bool:
        """Say whether the lock came in time; one that is over does not come."""
        with self._changed:
            self._is_wanted = True
            try:
                self._changed.wait_for(
                    lambda: self._came or self.is_over, max(0.0, min(deadline - time.monotonic(), 1e6))
                )
            except BaseException:  # Ctrl-C, with the lock in hand
                if self._came:
                    fcntl.flock(self._file.descriptor, fcntl.LOCK_UN)
                self.is_over, self._came = self.is_over or self._came, False
                raise
            finally:
                self._is_wanted = self._came
            return self._came


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_bytes(kind: int, start: int, length: int) -> bytes:
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)


def _set_lock(descriptor: int, kind: int, start: int) -> None:
    if _PER_OPEN_FILE:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _lock_bytes(kind, start, 1))


def _is_locked(descriptor: int, start: int, length: int) -> bool:
    """Return whether another open file has a lock on these bytes."""
    if not _PER_OPEN_FILE or not length:
        return False
    found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _lock_bytes(fcntl.F_WRLCK, start, length))
    return bool(struct.unpack("hhqqi4x", found)[0] != fcntl.F_UNLCK)


def _is_queued(file: _OpenFile) -> bool:
    return _is_locked(file.descriptor, _QUEUE, 1)


def _name(real: Path) -> bytes:
    """Return what tells the name of a file from all its other names: its folder itself, and its last part.

    A folder that is mounted at two places is one folder, and the log in it is one log.
    """
    folder = real.parent.stat()
    said = f"{folder.st_dev}:{folder.st_ino}/{real.name}"
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).digest()


def _log(real: Path) -> bytes:
    """Return what tells the log of a file, and the index of it, from any others; no log is a log too."""
    found = list[tuple[int, int]]()
    for end in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            there = os.stat(f"{real}{end}", follow_symlinks=False)
            found.append((there.st_dev, there.st_ino))
    return hashlib.sha256(repr(found).encode()).digest()


def _let_log_go(file: _OpenFile) -> None:
    if file.holds_log:
        _set_lock(file.descriptor, fcntl.F_UNLCK, _LOG)
        if file.log is not None:
            _set_lock(file.descriptor, fcntl.F_UNLCK, _LOGS + _byte_of(file.log))
    file.holds_log, file.log = False, None


def _byte_of(name: bytes) -> int:
    return int.from_bytes(name[:8], "big") % _N_NAMES


def _require_one_log(file: _OpenFile) -> None:
    """Refuse a log, or none, beside a file that others use with another."""
    for _ in range(_LOOKS):
        own = _byte_of(_log(file.real))
        others = _is_locked(file.descriptor, _LOGS, own)
        if not others and not _is_locked(file.descriptor, _LOGS + own + 1, _N_NAMES - own - 1):
            return
        time.sleep(0.01)  # others may have begun or ended one just now
    raise _lost_log(file.real)


def _take_name(file: _OpenFile, path: Path) -> None:
    own = _byte_of(file.name)
    try:
        _set_lock(file.descriptor, fcntl.F_RDLCK, _NAMES + own)
        others = _is_locked(file.descriptor, _NAMES, own)
        others = others or _is_locked(file.descriptor, _NAMES + own + 1, _N_NAMES - own - 1)
        is_kept = _is_locked(file.descriptor, _ALONE, 1)
    except OSError as error:
        raise OSError(
            f"Expected a file system that locks files for {path}, got one that does not ({error.strerror}). "
            "Nothing was written. Put the ledger on a local disk, or in PostgreSQL."
        ) from error
    if others:
        raise _two_names(path)
    if is_kept:
        raise _kept_alone(path)


def _require_one_link(there: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(there.st_mode):
        raise unusable(path, "it is no file")
    if there.st_nlink > 1:
        raise _two_names(path)


def unusable(path: Path, why: object) -> OSError:
    """Return what to raise where a file cannot be opened, read or written."""
    return OSError(
        f"Expected to read and write {path}: {why}. Nothing was written. Does its folder exist, may you "
        "write to both, and is there space left?"
    )


def _two_names(path: Path) -> LedgerConflict:
    return Unusable(
        f"Expected one name for the ledger {path.name}, got a file that has another one too (a hard link, or "
        "a second mount): under two names its budget would be spent twice. Nothing was written. Remove the "
        "other name."
    )


def _kept_alone(path: Path) -> LedgerConflict:
    return Unusable(
        f"Expected to open {path.name}, it is being rewritten just now (tellers ledger compact). Nothing was "
        "written. Try again when that is done."
    )


def is_in_use(path: Path) -> bool:
    """Say whether anybody has a file open as a ledger, under whatever name."""
    with _guard:
        there = path.stat()
        if (there.st_dev, there.st_ino) in _open_files:
            return True
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _is_locked(descriptor, _NAMES, _N_NAMES)
        finally:
            os.close(descriptor)


def _lost_log(path: Path) -> LedgerConflict:
    return LedgerConflict(
        f"The log of {path.name} (-wal and -shm beside it) was moved, removed or replaced while it was in "
        "use. Nothing was written. End the programs that have it open, which writes what they know into it, "
        "and open it again."
    )


def refuse_file_system(
    path: Path, *, read: Callable[[], str] = lambda: MOUNTS.read_text("utf-8", "surrogateescape")
) -> None:
    """Refuse a file that is mounted by itself, and a file on a network.

    >>> mounts = "30 1 8:1 / / rw - ext4 /dev/sda rw\\n31 30 0:9 / /share rw - nfs4 host:/share rw\\n"
    >>> refuse_file_system(Path("/srv/spend.db"), read=lambda: mounts)
    >>> refuse_file_system(Path("/share/spend.db"), read=lambda: mounts)
    Traceback (most recent call last):
        ...
    OSError: Expected a local file system for /share/spend.db, got nfs4. ...
    """
    try:
        mounts = [line.split() for line in read().splitlines()]
    except OSError:
        return  # another system
    best, kind = "", ""
    for fields in mounts:
        at = re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        if at == str(path):
            raise LedgerConflict(
                f"Expected the ledger {path.name} in a folder, got a file that is mounted by itself: its log "
                "would lie beside another name. Nothing was written. Mount the folder that it lies in."
            )
        if (str(path) + "/").startswith(at.rstrip("/") + "/") and len(at) >= len(best):
            best, kind = at, fields[fields.index("-") + 1]
    if _NETWORKS.fullmatch(kind):
        raise OSError(
            f"Expected a local file system for {path}, got {kind}. Nothing was written. On a network two "
            "machines cannot share its log: put the ledger on a local disk, or in PostgreSQL."
        )
