"""Make and store the spectrograms of recordings: in parallel, once for each content, resumable."""

import contextlib
import hashlib
import io
import itertools
import json
import os
import sqlite3
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import ClipsRefused, FolderInUse, MissingExtra, require_count
from ...privacy._files import write_whole
from ..clips import PICTURES
from .decoding import (
    Decoding,
    Finding,
    Kind,
    Samples,
    beyond_scale,
    decode_bytes,
    findings_table,
    read_recording,
    silence,
)
from .logmel import LogMel, log_mel

# --- Store ---
#
# FOLDER/5b1f.../settings.json          how the pictures in this folder are made; other settings, another
# folder FOLDER/5b1f.../index.db               which file had which content, and what came of it
# FOLDER/5b1f.../pictures/3f/3f9a...npy one picture, written beside and moved into place
#
# A picture is complete or absent, whenever a process dies. The index is a memory and no more: without it,
# or with the last part of it lost, contents are read again and their pictures found. A file whose size and
# time of change are those of last time is not read again, unless asked for.

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


def features_from_dict(said: Mapping[str, Any]) -> Features:
    """Return settings of pictures as they were written down."""
    try:
        decoding, logmel = dict(said["decoding"]), dict(said["logmel"])
        decoding["rates"] = tuple(decoding["rates"])
        return Features(decoding=Decoding(**decoding), logmel=LogMel(**logmel), dtype=said["dtype"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            "Expected the settings of log-Mel pictures, got others. Were they written by another version?"
        ) from error


def write_picture(place: Path, picture: Picture) -> int:
    """Write a picture beside its place and move it there; return the sum that it is checked by."""
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
    """Return a picture and its sum, or None where there is none, or not a whole one."""
    try:
        picture: Picture = np.load(place, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if picture.shape != shape or picture.dtype != dtype:
        return None
    return picture, zlib.crc32(np.ascontiguousarray(picture).data)


class Store:
    """A folder of pictures made with one group of settings; one process writes to its index at a time."""

    def __init__(self, folder: str | PathLike[str], features: Features) -> None:
        self.features = features
        self.folder = Path(folder) / features.name
        # Names of pictures tell who has the recording whether it is here, and the index tells its path.
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(OSError):  # one that an earlier version made, or that is somebody else's
            self.folder.chmod(0o700)
        if not (self.folder / "settings.json").exists():
            write_whole(self.folder / "settings.json", features.text.encode())
        self._index = _open_index(self.folder / "index.db")
        head, kind = io.BytesIO(), np.dtype(features.dtype)
        about = {"descr": kind.str, "fortran_order": False, "shape": features.shape}
        np.lib.format.write_array_header_1_0(head, about)  # type: ignore[no-untyped-call]
        self._n_bytes = head.tell() + int(np.prod(features.shape)) * kind.itemsize

    def place(self, key: str) -> Path:
        """Return where the picture of a key lies, or would lie."""
        return self.folder / "pictures" / key[:2] / f"{key}.npy"

    def recall(self, name: str, stamp: Stamp) -> tuple[str, Finding | None] | None:
        """Return the key, and the finding if any, of a file that did not change since it was read."""
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
        """Write down what came of files: name, stamp, key, the picture's sum, a finding; all or none."""
        with self._index:
            for name, (size, changed), key, total, found in rows:
                kind, detail = (None, None) if found is None else (str(found.kind), found.detail)
                self._index.execute("REPLACE INTO contents VALUES (?, ?, ?, ?)", (key, total, kind, detail))
                self._index.execute("REPLACE INTO files VALUES (?, ?, ?, ?)", (name, size, changed, key))

    def load(self, key: str) -> Picture:
        """Return the picture of a key, compared with the sum that was written down."""
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
        """Remove what processes that died left half written; return how many files that were."""
        parts = list((self.folder / "pictures").glob("*/*.part"))
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink()
        return len(parts)

    def close(self) -> None:
        self._index.close()


@contextlib.contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a folder for one process, or say that another one is at work."""
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


# --- Worker processes ---

# Clips are spread over processes; threads inside of each would stand in one another's way.
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Every clip needs the same few megabytes again: glibc would give them back after each, page by page.
_KEPT_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**27), "MALLOC_TRIM_THRESHOLD_": str(2**27)}


@dataclass(frozen=True)
class ClipJob:
    """One clip to look at: its number, its name, recordings with their gains, and what is known of it."""

    row: int
    name: str
    parts: tuple[tuple[str, float], ...]
    known: "Made | None"


@dataclass(frozen=True)
class Made:
    """What came of a clip: the key of its picture, any finding, whether it was known, and its number.

    Stamp and total, the sum that the picture is checked by, are for the index.
    """

    stamp: Stamp | None
    key: str | None
    total: int | None
    finding: Finding | None
    known: bool
    row: int = -1  # a worker does not know it


def stamp_of(parts: Sequence[tuple[str, float]]) -> Stamp | None:
    """Return the size and the time of change of recordings, in two numbers; None where one cannot be seen."""
    try:
        seen = [os.stat(path) for path, _ in parts]
    except (OSError, ValueError):
        return None
    times = repr([(one.st_size, one.st_mtime_ns) for one in seen]).encode()
    changed = int.from_bytes(hashlib.blake2b(times, digest_size=7).digest(), "big")
    return sum(one.st_size for one in seen), changed


def make_picture(name: str, parts: Sequence[tuple[str, float]], *, folder: str, features: Features) -> Made:
    """Read the recordings of a clip, and draw and store its picture unless it is there; runs in a worker."""
    stamp = stamp_of(parts)  # before reading: a file that changes meanwhile has another one next time
    # The key of a picture is of the settings, and of every recording in the clip, with its gain.
    contents, named = [], hashlib.blake2b(features.text.encode(), digest_size=20)
    for path, gain in parts:
        content = read_recording(path, name=name)
        if isinstance(content, Finding):
            return Made(None, None, None, content, False)
        contents.append((content, gain))
        named.update(hashlib.sha256(content).digest())  # has instructions of its own on most processors
        named.update(float(gain).hex().encode())
    key = named.hexdigest()
    samples = _mixed(name, contents, features)
    if isinstance(samples, Finding):
        return Made(stamp, key, None, samples, False)
    finding = silence(name, samples, features.decoding)
    place = Path(folder) / "pictures" / key[:2] / f"{key}.npy"
    there = read_picture(place, shape=features.shape, dtype=features.dtype)
    if there is not None:
        return Made(stamp, key, there[1], finding, True)
    picture = log_mel(samples, features.logmel).astype(features.dtype, copy=False)
    return Made(stamp, key, write_picture(place, picture), finding, False)


def _mixed(name: str, contents: Sequence[tuple[bytes, float]], features: Features) -> Samples | Finding:
    together: Samples | None = None
    for content, gain in contents:
        try:
            decoded = decode_bytes(content, features.decoding, path=name)
        except MissingExtra:
            raise
        except Exception as error:  # one recording that nobody thought of is no end of a hundred thousand
            return Finding(name, Kind.BROKEN, f"reading it fails: {type(error).__name__}")
        if isinstance(decoded, Finding):
            return decoded
        if gain != 1.0:
            decoded *= np.float32(gain)
        together = decoded if together is None else together + decoded
    assert together is not None  # a clip is at least one recording
    return together if len(contents) == 1 else beyond_scale(name, together) or together


def make_all(jobs: Sequence[ClipJob], folder: str, features: Features) -> list[Made]:
    return [make_picture(job.name, job.parts, folder=folder, features=features) for job in jobs]


class Workers:
    """So many processes, made again when one of them dies; or, for one, this process itself."""

    def __init__(self, n_jobs: int, store: Store) -> None:
        self.n_jobs = n_jobs
        self._store = (str(store.folder), store.features)
        self._pools: dict[int, Any] = {}

    def submit(self, jobs: Sequence[ClipJob]) -> "Future[list[Made]]":
        """Send jobs to a process that is free, or will be."""
        sent: Future[list[Made]] = Future()
        if self.n_jobs == 1 or not jobs:
            sent.set_result(make_all(jobs, *self._store))
            return sent
        try:
            sent = self._pool(self.n_jobs).submit(make_all, jobs, *self._store)
        except BrokenProcessPool as error:
            sent.set_exception(error)
        return sent

    def result(self, future: "Future[list[Made]]", group: Sequence[ClipJob]) -> list[Made]:
        """Return what came of jobs; one that ends every process that looks at it is a finding."""
        try:
            return future.result()
        except BrokenProcessPool:
            # Every task under way is lost with the process, most of them without guilt: one by one, then.
            return [self._alone(job) for job in group]

    def _alone(self, job: ClipJob) -> Made:
        try:
            # A process of its own: the others may be at work again.
            made: Made = self._pool(1).submit(make_all, [job], *self._store).result()[0]
            return made
        except BrokenProcessPool:
            found = Finding(job.name, Kind.CRASHED, "reading it ends the process")
            return Made(None, None, None, found, False)

    def _pool(self, n_jobs: int) -> Any:
        # Not the standard library's: that one runs the caller's script again in every worker.
        from joblib.externals.loky import ProcessPoolExecutor

        there = self._pools.get(n_jobs)
        if there is not None and there._flags.broken is not None:
            there.shutdown(wait=True, kill_workers=True)
            there = None
        if there is None:
            there = ProcessPoolExecutor(max_workers=n_jobs, env=_ONE_THREAD | _KEPT_MEMORY)
        self._pools[n_jobs] = there
        return there

    def close(self) -> None:
        for pool in self._pools.values():
            pool.shutdown(wait=True, kill_workers=True)
        self._pools.clear()


# --- Preparation ---
#
# A run can be stopped at any time and begun again; what was made is found. Recordings come and go one by one,
# so that memory does not grow with their number, and one that cannot be used is a line in a table and no end.

ClipSource: TypeAlias = str | PathLike[str] | Sequence[tuple[str | PathLike[str], float]]
"""What a clip is made of: a recording, or several at once, each with its gain."""
Answer = Literal["skip", "refuse", "keep"]
Progress = Callable[[int, int], object]

_AT_ONCE = 8  # clips in a task: enough to hide the way there and back, few enough to be done again


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """The pictures of a run, by clip number, and what could not be used.

    `rows` are the clips that have a picture, in order; `findings` name the others, and those that were kept
    in spite of one. `n_known` says how many were there already.

    >>> import tempfile
    >>> from tellers.data.sound import Decoding, LogMel, make_city
    >>> features = Features(decoding=Decoding(rate=16_000, seconds=1.0), logmel=LogMel(rate=16_000, hop=160))
    >>> clips = make_city(tempfile.mkdtemp(), 4, seed=7, seconds=1.0)
    >>> prepared = prepare_clips([*clips.paths, "gone.wav"], tempfile.mkdtemp(), features=features)
    >>> prepared, prepared.rows.tolist()
    (Prepared(n_clips=5, n_pictures=4, n_findings=1), [0, 1, 2, 3])
    >>> prepared.pictures([0, 2]).shape, prepared.picture_files()[4]
    ((2, 101, 64), None)
    >>> print(prepared.table())
    1 recording cannot be used: 1 missing
      missing      gone.wav  no such file
    """

    store_folder: Path
    features: Features
    rows: NDArray[np.int64]
    keys: NDArray[np.bytes_]
    findings: tuple[Finding, ...]
    n_clips: int
    n_known: int

    def pictures(self, rows: ArrayLike | None = None) -> Picture:
        """Return the pictures of some clips in one array, by clip number; of all that have one by default."""
        wanted = self.rows if rows is None else np.asarray(rows, dtype=np.int64)
        at = np.searchsorted(self.rows, wanted)
        there = at < len(self.rows)
        there[there] = self.rows[at[there]] == wanted[there]
        if not there.all():
            missing = int(wanted[~there][0])
            raise KeyError(f"Expected clips with a picture, clip {missing} has none. Take numbers from rows.")
        stack = np.empty((len(wanted), *self.features.shape), dtype=self.features.dtype)
        with closing(Store(self.store_folder, self.features)) as store:
            for i, place in enumerate(at):
                stack[i] = store.load(self.keys[place].decode())
        return stack

    def picture_files(self) -> list[str | None]:
        """Return where the picture of each clip lies, from the folder of clips; None where there is none."""
        files: list[str | None] = [None] * self.n_clips
        for row, key in zip(self.rows.tolist(), self.keys.tolist()):
            name = key.decode()
            files[row] = f"{PICTURES}/{self.features.name}/pictures/{name[:2]}/{name}.npy"
        return files

    def table(self, *, n_rows: int = 20) -> str:
        """Return the findings as a table in text."""
        return findings_table(self.findings, n_rows=n_rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return (
            f"Prepared(n_clips={self.n_clips}, n_pictures={len(self.rows)}, n_findings={len(self.findings)})"
        )


def prepare_clips(
    recordings: Sequence[ClipSource],
    folder: str | PathLike[str],
    *,
    features: Features | None = None,
    n_jobs: int = 1,
    on_finding: Answer | Mapping[Kind, Answer] = "skip",
    progress: Progress | None = None,
    recheck: bool = False,
) -> Prepared:
    """Make the pictures of recordings, those that are not in the folder yet, and return them all.

    `on_finding` is "skip", "refuse", or one of them for each kind (a silent clip may also be "keep"); to
    refuse is to raise `ClipsRefused` with the whole table, after all clips were looked at. `n_jobs` above one
    works in so many processes and also survives a recording that kills its reader. A file of the size and
    time of change that it had before is not read again, unless `recheck`. `progress` is called with how many
    are done, of how many.

    >>> import tempfile
    >>> prepare_clips(["gone.wav"], tempfile.mkdtemp(), on_finding="refuse")
    Traceback (most recent call last):
        ...
    tellers.errors.ClipsRefused: 1 recording cannot be used: 1 missing
      missing      gone.wav  no such file
    Mend or leave out these recordings, or pass on_finding="skip".
    """
    features = features or Features()
    answers = _answers(on_finding)
    total = len(recordings)
    rows: list[int] = []
    keys = bytearray()
    findings: list[Finding] = []
    refused, n_known, done = False, 0, 0
    for outcome in stream_clips(
        recordings, folder, features=features, n_jobs=n_jobs, keep_silent=answers[Kind.SILENT] == "keep",
        recheck=recheck,
    ):  # fmt: skip
        done += 1
        n_known += outcome.known
        if outcome.finding is not None:
            findings.append(outcome.finding)
            refused |= answers[outcome.finding.kind] == "refuse"
        if outcome.key is not None:
            rows.append(outcome.row)
            keys += outcome.key.encode()
        if progress is not None:
            progress(done, total)
    if refused:
        what = findings_table(f for f in findings if answers[f.kind] == "refuse")
        raise ClipsRefused(
            f'{what}\nMend or leave out these recordings, or pass on_finding="skip".', findings=findings
        )
    return Prepared(
        store_folder=Path(folder), features=features, rows=np.array(rows, dtype=np.int64),
        keys=np.frombuffer(bytes(keys), dtype="S40"), findings=tuple(findings), n_clips=done, n_known=n_known,
    )  # fmt: skip


def stream_clips(
    recordings: Iterable[ClipSource],
    folder: str | PathLike[str],
    *,
    features: Features,
    n_jobs: int = 1,
    keep_silent: bool = False,
    recheck: bool = False,
) -> Iterator[Made]:
    """Make pictures of recordings as they come, and yield what came of each, in their order.

    Nothing is kept but what is under way, so that recordings may come without end.

    >>> import tempfile
    >>> outcomes = stream_clips(["gone.wav"], tempfile.mkdtemp(), features=Features())
    >>> [outcome.finding.kind for outcome in outcomes]
    [<Kind.MISSING: 'missing'>]
    """
    require_count(n_jobs=n_jobs)
    store_folder = Path(folder) / features.name
    with (
        sole_writer(store_folder),
        closing(Store(folder, features)) as store,
        closing(Workers(int(n_jobs), store)) as workers,
    ):
        store.sweep()
        for job, made in _in_order(_jobs(recordings, store, recheck=recheck), workers, store):
            usable = made.finding is None or (made.finding.kind is Kind.SILENT and keep_silent)
            yield replace(made, row=job.row, key=made.key if usable else None)


def _jobs(recordings: Iterable[ClipSource], store: Store, *, recheck: bool) -> Iterator[ClipJob]:
    for row, recording in enumerate(recordings):
        if isinstance(recording, (str, os.PathLike)):
            parts: tuple[tuple[str, float], ...] = ((os.fspath(recording), 1.0),)
            name = parts[0][0]
        else:
            parts = tuple((os.fspath(path), float(gain)) for path, gain in recording)
            name = " + ".join(f"{gain:g} x {path}" for path, gain in parts)
        stamp = None if recheck else stamp_of(parts)
        remembered = None if stamp is None else store.recall(_index_name(parts), stamp)
        known = None
        if remembered is not None:
            key, finding = remembered
            if finding is not None:
                finding = Finding(name, finding.kind, finding.detail)
            known = Made(stamp, key, None, finding, True)
        yield ClipJob(row, name, parts, known)


def _index_name(parts: Sequence[tuple[str, float]]) -> str:
    return "\0".join(f"{os.path.abspath(path)}\0{gain.hex()}" for path, gain in parts)


def _in_order(jobs: Iterator[ClipJob], workers: Workers, store: Store) -> Iterator[tuple[ClipJob, Made]]:
    """Yield what came of each job, in order, with so many tasks under way that no worker waits."""
    under_way: deque[tuple[list[ClipJob], list[ClipJob], Future[list[Made]]]] = deque()

    def finish() -> Iterator[tuple[ClipJob, Made]]:
        group, new, future = under_way.popleft()
        made = workers.result(future, new)
        store.record(
            (_index_name(job.parts), one.stamp, one.key, one.total, one.finding)
            for job, one in zip(new, made)
            if one.key is not None and one.stamp is not None
        )
        found = iter(made)
        for job in group:
            yield job, job.known or next(found)

    while True:
        # Known clips ride along with unknown ones, so that order is kept and nothing piles up.
        group: list[ClipJob] = []
        new: list[ClipJob] = []
        for job in itertools.islice(jobs, 64):
            group.append(job)
            if job.known is None:
                new.append(job)
            if len(new) == _AT_ONCE:
                break
        if not group:
            break
        under_way.append((group, new, workers.submit(new)))
        if len(under_way) > 2 * workers.n_jobs:
            yield from finish()
    while under_way:
        yield from finish()


def _answers(on_finding: Answer | Mapping[Kind, Answer]) -> dict[Kind, Answer]:
    given = dict.fromkeys(Kind, on_finding) if isinstance(on_finding, str) else dict(on_finding)
    answers: dict[Kind, Answer] = {kind: given.get(kind, "skip") for kind in Kind}
    for kind, answer in answers.items():
        if answer not in ("skip", "refuse") and not (answer == "keep" and kind is Kind.SILENT):
            raise ValueError(
                f"Expected 'skip' or 'refuse' (or 'keep', for silent clips) on a {kind} clip, got {answer!r}."
            )
    return answers
