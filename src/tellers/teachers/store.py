"""Votes on disk: one NumPy file with the ballots, or the counts, of a batch of queries.

A vote file is an `.npy` with ballots (teachers x queries), or an `.npz` with either `ballots` or `counts`
(queries x classes) and, where they apply,

    student     the student's probabilities, queries x classes, public
    answered    which queries the teachers answered, one True or False per query, public
    truth       the true labels, one per query, for those who measure accuracy

Python objects are never unpickled: opening a stranger's file runs no code of theirs. What a file declares is
checked before it is read (`tellers.file_sizes`). Files are written whole or not at all.
"""

import io
import math
import os
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import FolderInUse, require_count
from ..file_sizes import DAMAGE, TooLarge, load_npy, load_npz
from ..votes import Votes

Arrays = dict[str, NDArray[Any]]

_KEYS = ("answered", "ballots", "counts", "student", "truth")
# Larger ids are record numbers or hashes, not classes; a table of counts over them would fill the memory.
_MOST_INFERRED = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class VoteFile:
    """What a vote file holds, checked; `notes` says what was not declared and had to be taken from it."""

    votes: Votes
    student: NDArray[np.float64] | None = None
    answered: NDArray[np.bool_] | None = None
    truth: NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        there = [name for name in ("student", "answered", "truth") if getattr(self, name) is not None]
        return f"VoteFile({', '.join([repr(self.votes), *there])})"


def read_votes(path: str | PathLike[str], *, n_classes: int | None = None) -> VoteFile:
    """Read a vote file and check that its parts fit together; of a folder of votes, the tallies.

    Without `n_classes` ballots are taken to use every class up to their largest id, and `notes` says so:
    that looks at private votes, so declare the classes wherever they are known.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "votes.npz"
    ...     np.savez(path, ballots=[[0, 1], [0, 1], [2, 1]], answered=[True, False])
    ...     read_votes(path, n_classes=3)
    VoteFile(Votes(<private>, n_queries=2, n_teachers=3, n_classes=3), answered)
    """
    place = Path(path)
    if n_classes is not None:
        require_count(2, n_classes=n_classes)
    if (place / "votes.json").is_file():
        return _from_parts(place, n_classes)
    arrays, names = load_arrays(place, _KEYS)
    given = [key for key in ("ballots", "counts") if key in arrays]
    if not given and any(name.startswith("label_") for name in names):
        raise ValueError(
            f"Expected votes for one class per query in {place.name}, got votes on many labels. Name a "
            "mechanism for many labels, such as binary, or read them with read_label_votes."
        )
    if len(given) != 1:
        found = "both" if given else f"neither (its arrays: {', '.join(names) or 'none'})"
        raise ValueError(f"Expected either 'ballots' or 'counts' in {place.name}, got {found}. Keep one.")
    try:
        if "ballots" in arrays:
            votes, notes = _from_ballots(arrays["ballots"], n_classes)
        else:
            votes, notes = _from_counts(arrays["counts"], n_classes), ()
        return VoteFile(
            votes,
            student=_student(arrays.get("student"), votes),
            answered=_answered(arrays.get("answered"), votes),
            truth=_truth(arrays.get("truth"), votes),
            notes=notes,
        )
    except (TypeError, ValueError) as error:
        # A file is input whatever is wrong with it: one kind of error, and it names the file.
        raise ValueError(f"{place.name}: {error}") from error


def save_votes(
    path: str | PathLike[str],
    votes: Votes,
    *,
    student: ArrayLike | None = None,
    answered: ArrayLike | None = None,
    truth: ArrayLike | None = None,
) -> None:
    """Write a vote file that `read_votes` reads: the ballots, or the counts where no ballots are known.

    Ballots take one byte each for up to 256 classes. The file is private, as the votes are: only its owner
    may read it.

    >>> import tempfile
    >>> votes = Votes.from_ballots([[0, 1], [0, 1], [2, 1]], n_classes=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_votes(Path(folder) / "votes.npz", votes, answered=[True, False])
    ...     read_votes(Path(folder) / "votes.npz", n_classes=3)
    VoteFile(Votes(<private>, n_queries=2, n_teachers=3, n_classes=3), answered)
    """
    beside = {
        "student": _student(None if student is None else np.asarray(student), votes),
        "answered": _answered(None if answered is None else np.asarray(answered), votes),
        "truth": _truth(None if truth is None else np.asarray(truth), votes),
    }
    if votes.ballots is None:
        arrays = {"counts": votes.counts.astype(np.min_scalar_type(votes.n_teachers))}
    else:
        # By the declared classes, not by the largest ballot: the size of the file says nothing private.
        arrays = {"ballots": votes.ballots.astype(np.min_scalar_type(votes.n_classes - 1))}
    arrays |= {name: values for name, values in beside.items() if values is not None}
    written = io.BytesIO()
    np.savez(written, **arrays)
    write_whole(path, written.getvalue())


def write_whole(path: str | PathLike[str], content: bytes, *, shared: bool = False) -> None:
    """Write a file so that its name leads to all of the content, or to what was there before.

    The content goes to a temporary file in the same folder, is flushed to the disk, and then takes the name.
    Only the owner may read it; with `shared`, whoever may read the owner's other new files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "note", b"all of it")
    ...     [(file.name, file.read_bytes()) for file in Path(folder).iterdir()]
    [('note', b'all of it')]
    """
    place = Path(path)
    name = place.parent / f".{place.name}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(name, flags, 0o666 if shared else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, place)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable; Windows cannot open a folder, there the renaming has to do.

    >>> sync_folder(Path("."))
    """
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def hold(lock: str | PathLike[str], *, place: Path, who: str) -> Iterator[None]:
    """Keep others out of a place by a lock file; the hold ends with the process, however it ends.

    >>> import tempfile
    >>> place = Path(tempfile.mkdtemp())
    >>> with hold(place / ".lock", place=place, who="another run"):
    ...     [file.name for file in place.iterdir()]
    ['.lock']
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        _lock(handle, place, who)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, place: Path, who: str) -> None:
    try:
        import fcntl
    except ImportError:  # pragma: no cover - Windows has no flock; there two runs must be kept apart by hand
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise FolderInUse(
            f"Expected {place} to be free, {who} is at work in it. Wait for it, or take another folder."
        ) from None


def load_arrays(place: Path, keys: Collection[str]) -> tuple[Arrays, list[str]]:
    """Return those arrays of a vote file that are asked for, and the names of all there are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "votes.npz", ballots=[[0, 1]], other=[3])
    ...     load_arrays(Path(folder) / "votes.npz", ("ballots",))
    ({'ballots': array([[0, 1]])}, ['ballots', 'other'])
    """
    if place.is_dir():
        raise ValueError(f"Expected a vote file, got the directory {place}.")
    try:
        with place.open("rb") as file:
            start = file.read(6)
    except FileNotFoundError:
        raise ValueError(f"Expected a vote file, found nothing at {place}. Check the path.") from None
    except OSError as error:
        raise ValueError(f"Expected a readable file at {place}, got: {error.strerror or error}.") from error
    if start != b"\x93NUMPY" and start[:4] not in (b"PK\x03\x04", b"PK\x05\x06"):
        raise ValueError(
            f"Expected a NumPy file (.npy or .npz), got something else in {place.name}. "
            "Write it with numpy.save(path, ballots) or numpy.savez(path, ballots=ballots)."
        )
    try:
        if start == b"\x93NUMPY":
            return {"ballots": load_npy(place)}, ["ballots"]
        return load_npz(place, keys, name=place.name)
    except TooLarge:
        raise
    except DAMAGE as error:
        if "pickle" in str(error).lower():
            raise ValueError(
                f"Expected arrays of plain numbers in {place.name}, got Python objects, which are never "
                "loaded: unpickling runs code. Convert them with numpy.asarray(ballots, dtype=int)."
            ) from None
        raise ValueError(f"Expected a whole NumPy file, {place.name} is damaged. Write it again.") from error


def _from_parts(folder: Path, n_classes: int | None) -> VoteFile:
    from .parts import stored_votes  # which is made of the files of this module

    stored = stored_votes(folder)
    if n_classes not in (None, stored.n_classes):
        raise ValueError(
            f"Expected the classes the votes were written with, {stored.n_classes}, got {n_classes}."
        )
    note = "Of a folder of votes the tallies are read: the exact cost adds up each query's worst ballot."
    return VoteFile(stored.tallies(), notes=(note,) if stored.has_ballots else ())


def _from_ballots(ballots: NDArray[Any], n_classes: int | None) -> tuple[Votes, tuple[str, ...]]:
    if n_classes is not None:
        return Votes.from_ballots(ballots, n_classes=n_classes), ()
    sensible = ballots.ndim == 2 and ballots.size > 0 and ballots.dtype.kind in "iuf"
    largest = float(ballots.max()) if sensible else 0.0
    if math.isfinite(largest) and largest >= _MOST_INFERRED:
        raise ValueError(
            f"Expected class ids below {_MOST_INFERRED} where classes are not declared, got a larger one. "
            "If these are class ids, declare the number of classes (--classes)."
        )
    # Whatever else is wrong with the ballots (NaN, fractions, shape) is found and named by Votes.
    inferred = max(2, int(largest) + 1) if math.isfinite(largest) else 2
    note = (
        f"The number of classes was not declared: {inferred} were taken, the largest class id in the ballots "
        "plus one. That reads a number off private votes; declare it (--classes)."
    )
    return Votes.from_ballots(ballots, n_classes=inferred), (note,)


def _from_counts(counts: NDArray[Any], n_classes: int | None) -> Votes:
    if n_classes is not None and counts.ndim == 2 and counts.shape[1] != n_classes:
        raise ValueError(
            f"Expected counts with one column for each of {n_classes} classes, got shape {counts.shape} "
            "(queries, classes)."
        )
    n_teachers = 1
    if counts.ndim == 2 and counts.size and counts.dtype.kind in "iuf":
        first = float(counts[0].sum())
        if first == 0:
            raise ValueError("Expected counts of at least one teacher, got none in query 0.")
        if np.isfinite(first) and first >= 1:
            n_teachers = int(first)
    try:
        return Votes.from_counts(counts, n_teachers=n_teachers)
    except ValueError as error:
        if "sum to n_teachers" not in str(error):
            raise
        raise ValueError(f"{error} The number of teachers is that of query 0.") from None


def _student(student: NDArray[Any] | None, votes: Votes) -> NDArray[np.float64] | None:
    if student is None:
        return None
    if student.shape != votes.counts.shape:
        raise ValueError(
            f"Expected student probabilities of shape (queries, classes) = {votes.counts.shape}, "
            f"got shape {student.shape}."
        )
    if student.dtype.kind not in "iuf":
        raise ValueError(f"Expected student probabilities as numbers, got dtype {student.dtype}.")
    return student.astype(np.float64)


def _answered(answered: NDArray[Any] | None, votes: Votes) -> NDArray[np.bool_] | None:
    if answered is None:
        return None
    if answered.shape != (len(votes),):
        raise ValueError(
            f"Expected answered with one True or False for each of {len(votes)} queries, "
            f"got shape {answered.shape}."
        )
    if answered.dtype != np.bool_:
        raise ValueError(
            f"Expected answered as a mask of True and False, got dtype {answered.dtype}. "
            "Convert it with answered.astype(bool)."
        )
    return np.asarray(answered)


def _truth(truth: NDArray[Any] | None, votes: Votes) -> NDArray[np.int64] | None:
    if truth is None:
        return None
    if truth.shape != (len(votes),) or truth.dtype.kind not in "iu":
        raise ValueError(
            f"Expected truth with one class id for each of {len(votes)} queries, "
            f"got shape {truth.shape} of {truth.dtype}."
        )
    return truth.astype(np.int64)
