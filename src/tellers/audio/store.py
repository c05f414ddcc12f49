"""Pictures on disk, found by what the recording contains and not by what it is called.

    FOLDER/5b1f.../settings.json          how the pictures in this folder are made; other settings, another
    folder FOLDER/5b1f.../index.db               which file had which content, and what came of it
    FOLDER/5b1f.../pictures/3f/3f9a...npy one picture, written beside and moved into place

A picture is complete or absent, whenever a process dies. The index is a memory and no more: without it, or
with the last part of it lost, contents are read again and their pictures found. A file whose size and time of
change are those of last time is not read again, unless asked for.
"""

import contextlib
import hashlib
import io
import json
import os
import sqlite3
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import FolderInUse
from .decoding import Decoding, Finding, Kind
from .logmel import LogMel

Picture = NDArray[np.floating[Any]]
Stamp: TypeAlias = tuple[int, int]
"""A file's size and time of change."""

_TABLES = """
CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, size INTEGER, changed INTEGER, digest TEXT);
CREATE TABLE IF NOT EXISTS contents (digest TEXT PRIMARY KEY, sum INTEGER, kind TEXT, detail TEXT);
"""


@dataclass(frozen=True, kw_only=True)
class Features:
    """All that a picture depends on, but for the recording: how it is decoded, drawn and stored.

    `dtype="float16"` halves the disk, at an error of at most 0.03 dB down to -64 dB and 0.06 dB at -100.

    >>> Features(decoding=Decoding(rate=16_000, seconds=5.0), logmel=LogMel(rate=16_000, hop=160)).shape
    (501, 64)
    >>> Features(decoding=Decoding(rate=16_000))
    Traceback (most recent call last):
        ...
    ValueError: Expected one rate to decode and to draw at, got 16000 and 44100 Hz.
    """

    decoding: Decoding = field(default_factory=Decoding)
    logmel: LogMel = field(default_factory=LogMel)
    dtype: Literal["float32", "float16"] = "float32"

    def __post_init__(self) -> None:
        if self.decoding.rate != self.logmel.rate:
            raise ValueError(
                f"Expected one rate to decode and to draw at, "
                f"got {self.decoding.rate} and {self.logmel.rate} Hz."
            )
        if self.dtype not in ("float32", "float16"):
            raise ValueError(f"Expected dtype 'float32' or 'float16', got {self.dtype!r}.")

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of every picture: frames, filters."""
        return self.logmel.shape(self.decoding.seconds)

    @property
    def name(self) -> str:
        """Return a short name of the settings, for a folder."""
        return hashlib.blake2b(self.text.encode(), digest_size=6).hexdigest()

    @property
    def text(self) -> str:
        """Return the settings as text, the same for equal settings; part of every key."""
        return json.dumps({"version": 2, **asdict(self)}, sort_keys=True)


def content_key(settings_text: str, contents: Sequence[tuple[bytes, float]]) -> str:
    """Return the key of a picture: of the settings, and of every recording that is heard, with its gain.

    >>> content_key("{}", [(b"some bytes", 1.0)])[:12]
    '7be96fe520e7'
    """
    found = hashlib.blake2b(settings_text.encode(), digest_size=20)
    for content, gain in contents:
        found.update(hashlib.sha256(content).digest())  # has instructions of its own on most processors
        found.update(float(gain).hex().encode())
    return found.hexdigest()


def write_picture(place: Path, picture: Picture) -> int:
    """Write a picture beside its place and move it there; return the sum that it is checked by.

    >>> place = Path(tempfile.mkdtemp()) / "3f" / "3f9a.npy"
    >>> write_picture(place, np.zeros((2, 3), dtype=np.float32)) == zlib.crc32(bytes(24))
    True
    >>> np.load(place).shape
    (2, 3)
    """
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, beside = tempfile.mkstemp(dir=place.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.save(file, picture, allow_pickle=False)
        os.replace(beside, place)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    return zlib.crc32(np.ascontiguousarray(picture).data)


def read_picture(place: Path, *, shape: tuple[int, int], dtype: str) -> tuple[Picture, int] | None:
    """Return a picture and its sum, or None where there is none, or not a whole one.

    >>> read_picture(Path("nowhere.npy"), shape=(2, 3), dtype="float32") is None
    True
    """
    try:
        picture: Picture = np.load(place, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if picture.shape != shape or picture.dtype != dtype:
        return None
    return picture, zlib.crc32(np.ascontiguousarray(picture).data)


class Store:
    """A folder of pictures made with one group of settings; one process writes to its index at a time.

    >>> with Store(tempfile.mkdtemp(), Features()) as store:
    ...     store.recall("a.wav", (10, 20))
    """

    def __init__(self, folder: str | PathLike[str], features: Features) -> None:
        self.features = features
        self.folder = Path(folder) / features.name
        # Names of pictures tell who has the recording whether it is here, and the index tells its path.
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(OSError):  # one that an earlier version made, or that is somebody else's
            self.folder.chmod(0o700)
        _write_settings(self.folder / "settings.json", features)
        self._index = _open_index(self.folder / "index.db")
        self._n_bytes = _file_size(features)

    def place(self, key: str) -> Path:
        """Return where the picture of a key lies, or would lie.

        >>> with Store(tempfile.mkdtemp(), Features()) as store:
        ...     store.place("3f9a").name
        '3f9a.npy'
        """
        return self.folder / "pictures" / key[:2] / f"{key}.npy"

    def recall(self, name: str, stamp: Stamp) -> tuple[str, Finding | None] | None:
        """Return the key, and the finding if there was one, of a file that did not change since it was read.

        >>> with Store(tempfile.mkdtemp(), Features()) as store:
        ...     store.record([("a.wav", (10, 20), "3f9a", None, Finding("a.wav", Kind.BROKEN, "so"))])
        ...     store.recall("a.wav", (10, 20))[1].kind, store.recall("a.wav", (10, 21))
        (<Kind.BROKEN: 'broken'>, None)
        """
        row = self._index.execute(
            "SELECT digest, kind, detail FROM files JOIN contents USING (digest) "
            "WHERE path = ? AND size = ? AND changed = ?",
            (name, *stamp),
        ).fetchone()
        if row is None:
            return None
        key, kind, detail = row
        found = None if kind is None else Finding(name, Kind(kind), detail)
        if found is not None and found.kind is not Kind.SILENT:  # of silence there is a picture too
            return key, found
        try:
            whole = self.place(key).stat().st_size == self._n_bytes
        except OSError:
            whole = False
        return (key, found) if whole else None

    def record(self, rows: Iterable[tuple[str, Stamp, str, int | None, Finding | None]]) -> None:
        """Write down what came of files: name, stamp, key, the picture's sum, a finding; all or none.

        >>> with Store(tempfile.mkdtemp(), Features()) as store:
        ...     store.record([])
        """
        with self._index:
            for name, (size, changed), key, total, found in rows:
                kind, detail = (None, None) if found is None else (str(found.kind), found.detail)
                self._index.execute("REPLACE INTO contents VALUES (?, ?, ?, ?)", (key, total, kind, detail))
                self._index.execute("REPLACE INTO files VALUES (?, ?, ?, ?)", (name, size, changed, key))

    def load(self, key: str) -> Picture:
        """Return the picture of a key, compared with the sum that was written down.

        >>> with Store(tempfile.mkdtemp(), Features()) as store:
        ...     store.load("3f9a")
        Traceback (most recent call last):
            ...
        FileNotFoundError: Expected a whole picture in the store, got none, or a damaged one. Prepare again.
        """
        read = read_picture(self.place(key), shape=self.features.shape, dtype=self.features.dtype)
        known = self._index.execute("SELECT sum FROM contents WHERE digest = ?", (key,)).fetchone()
        if read is None or (known is not None and known[0] is not None and known[0] != read[1]):
            with contextlib.suppress(OSError):
                self.place(key).unlink()  # so that the next run makes it again
            raise FileNotFoundError(
                "Expected a whole picture in the store, got none, or a damaged one. Prepare again."
            )
        return read[0]

    def sweep(self) -> int:
        """Remove what processes that died left half written; return how many files that were.

        >>> with Store(tempfile.mkdtemp(), Features()) as store:
        ...     store.sweep()
        0
        """
        parts = list((self.folder / "pictures").glob("*/*.part"))
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink()
        return len(parts)

    def close(self) -> None:
        """Close the index.

        >>> Store(tempfile.mkdtemp(), Features()).close()
        """
        self._index.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a folder for one process, or say that another one is at work.

    >>> with sole_writer(Path(tempfile.mkdtemp())):
    ...     pass
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A lock of SQLite's dies with its process and works everywhere; a file with a number in it would not.
    lock = sqlite3.connect(folder / "writer.db", timeout=0, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError:
        lock.close()
        raise FolderInUse(
            "Another process prepares recordings into the same folder. Wait for it, or name another."
        ) from None
    try:
        yield
    finally:
        lock.close()


def _open_index(path: Path) -> sqlite3.Connection:
    try:
        return _connected(path)
    except sqlite3.DatabaseError:
        # A memory that cannot be read is forgotten: the pictures are found again by content.
        path.unlink(missing_ok=True)
        return _connected(path)


def _connected(path: Path) -> sqlite3.Connection:
    index = sqlite3.connect(path, timeout=30)
    try:
        # A lost last part costs a second reading and nothing else; waiting for the disk each time costs more.
        index.execute("PRAGMA synchronous = OFF")
        index.executescript(_TABLES)
        index.execute("SELECT 1 FROM files LIMIT 1").fetchone()
    except sqlite3.DatabaseError:
        index.close()
        raise
    return index


def _write_settings(path: Path, features: Features) -> None:
    if not path.exists():
        beside = path.with_suffix(".part")
        beside.write_text(features.text, encoding="utf-8")
        os.replace(beside, path)


def _file_size(features: Features) -> int:
    head = io.BytesIO()
    kind = np.dtype(features.dtype)
    about = {"descr": kind.str, "fortran_order": False, "shape": features.shape}
    np.lib.format.write_array_header_1_0(head, about)  # type: ignore[no-untyped-call]
    return head.tell() + int(np.prod(features.shape)) * kind.itemsize
