"""Vote files: ballots or counts of a batch of queries, whole or in parts, on classes or on labels."""

import io
import json
import math
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import FolderInUse, require_count
from ..mechanisms._check import answered_mask
from ..privacy._files import (
    DAMAGE,
    MOST_TEXT,
    TooLarge,
    cap,
    load_npy,
    load_npz,
    read_bounded,
    require_size,
    write_whole,
)
from ..privacy.votes import LabelVotes, SetOf, Votes, keep

# --- Votes on disk: one NumPy file with the ballots, or their totals, of a batch of queries. ---
#
# A vote file for one class is an `.npy` with ballots (teachers x queries), or an `.npz` with either `ballots`
# or `counts` (queries x classes) and, where they apply,
#
# student     the student's probabilities, queries x classes, public
# answered    which queries the teachers answered, one True or False per query, public
# truth       the true labels, one per query, for those who measure accuracy
#
# A file of votes on many labels is an `.npz` with one of
#
# label_ballots                       teachers x queries x labels, 0 and 1 or probabilities
# label_data, label_indices,          the same as a sparse matrix in compressed rows, one row per teacher
# label_indptr, label_shape           and query, teacher by teacher; the shape has all three axes
# label_sums, label_teachers          queries x labels, and how many teachers there are
#
# and, where they apply, `label_resolution` (into how many parts a vote was divided: entries are then whole),
# and `answered` and `truth`, one True or False per query and label.
#
# Python objects are never unpickled: opening a stranger's file runs no code of theirs. What a file declares
# is checked before it is read (`tellers.privacy._files`). Files are written whole or not at all.


Arrays = dict[str, NDArray[Any]]

_BESIDE = ("student", "answered", "truth")
_CLASS_FORMS = (("ballots",), ("counts",))
_SPARSE = ("label_data", "label_indices", "label_indptr", "label_shape")
_SUMS = ("label_sums", "label_teachers")
_LABEL_FORMS = (("label_ballots",), _SPARSE, _SUMS)
_KEYS = {
    "classes": ("ballots", "counts", *_BESIDE),
    "labels": ("label_ballots", *_SPARSE, *_SUMS, "label_resolution", *_BESIDE),
}
# Larger ids are record numbers or hashes, not classes; a table of counts over them would fill the memory.
_MOST_INFERRED = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class VoteFile:
    """What a vote file holds, checked; `notes` says what was not declared and had to be taken from it.

    Of votes on many labels, `answered` and `truth` are True or False, (queries, labels).
    """

    votes: Votes
    student: NDArray[np.float64] | None = None
    answered: NDArray[np.bool_] | None = None
    truth: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        there = [name for name in _BESIDE if getattr(self, name) is not None]
        return f"VoteFile({', '.join([repr(self.votes), *there])})"


def read_votes(
    path: str | PathLike[str],
    *,
    kind: Literal["classes", "labels"] | None = "classes",
    n_classes: int | None = None,
    resolution: int | None = None,
    thresholds: ArrayLike | None = None,
) -> VoteFile:
    """Read a vote file and check that its parts fit together; of a folder of votes, the tallies.

    Parameters
    ----------
    kind : what the votes are on; None takes what the file holds.
    n_classes : how many classes there are. Without it ballots are taken to use every class up to their
        largest id, and `notes` says so: that looks at private votes, so declare the classes where they are
        known.
    resolution : counts probabilities of labels in so many parts of a vote.
    thresholds : makes a yes of probabilities of labels that reach it, one for all labels or one each.
        Without either, ballots are 0 and 1.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "votes.npz"
    ...     np.savez(path, ballots=[[0, 1], [0, 1], [2, 1]], answered=[True, False])
    ...     read_votes(path, n_classes=3)
    ...     np.savez(path, label_ballots=[[[0.9, 0.2]], [[0.8, 0.6]]])
    ...     read_votes(path, kind="labels", resolution=10).votes.sums
    VoteFile(Votes(<private>, n_queries=2, n_teachers=3, n_classes=3), answered)
    array([[17,  8]])
    """
    place = Path(path)
    if n_classes is not None:
        require_count(2, n_classes=n_classes)
    if resolution is not None:
        require_count(resolution=resolution)
    if resolution is not None and thresholds is not None:
        raise ValueError("Expected a resolution or thresholds for probabilities, got both. Choose one.")
    if (place / FILE).is_file() and kind != "labels":
        return _from_parts(place, n_classes)
    arrays, names = load_arrays(place, {*_KEYS["classes"], *_KEYS["labels"]})
    if kind is None:
        kind = "labels" if any(name.startswith("label_") for name in names) else "classes"
    form = _form(kind, arrays, names, place.name)
    notes: tuple[str, ...] = ()
    try:
        if form == ("ballots",):
            votes, notes = _from_ballots(arrays["ballots"], n_classes)
        elif form == ("counts",):
            votes = _from_counts(arrays["counts"], n_classes)
        else:
            votes = _from_labels(arrays, form, resolution, thresholds)
        beside: dict[str, Any] = _beside(votes, {name: arrays.get(name) for name in _BESIDE})
        return VoteFile(votes, **beside, notes=notes)
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
    """Write a vote file that `read_votes` reads: the ballots, sparse if they are, or else the totals.

    Ballots take one byte each for up to 256 classes. The file is private, as the votes are: only its owner
    may read it.

    >>> import tempfile
    >>> votes = Votes.from_ballots([[0, 1], [0, 1], [2, 1]], n_classes=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_votes(Path(folder) / "votes.npz", votes, answered=[True, False])
    ...     read_votes(Path(folder) / "votes.npz", n_classes=3)
    VoteFile(Votes(<private>, n_queries=2, n_teachers=3, n_classes=3), answered)
    """
    given = {"student": student, "answered": answered, "truth": truth}
    beside = _beside(votes, {n: None if one is None else np.asarray(one) for n, one in given.items()})
    if not votes.space.by_query:
        raise ValueError(
            f"Expected votes on classes or labels for a vote file, got votes on {votes.space.kind}."
        )
    arrays = _class_arrays(votes) if votes.space.kind == "classes" else _label_arrays(votes)
    arrays |= {name: values for name, values in beside.items() if values is not None}
    written = io.BytesIO()
    np.savez(written, **arrays)
    write_whole(path, written.getvalue())


def _class_arrays(votes: Votes) -> Arrays:
    if votes.ballots is None:
        return {"counts": votes.counts.astype(np.min_scalar_type(votes.n_teachers))}
    # By the declared classes, not by the largest ballot: the size of the file says nothing private.
    return {"ballots": votes.ballots.astype(np.min_scalar_type(votes.n_classes - 1))}


def _label_arrays(votes: Votes) -> Arrays:
    votes.require_all_labels("a vote file")
    # By the declared resolution, not by the largest ballot.
    small = np.min_scalar_type(votes.resolution)
    arrays: Arrays = {"label_resolution": np.array(votes.resolution)}
    if votes.ballots is None:
        return arrays | {"label_sums": votes.sums, "label_teachers": np.array(votes.n_teachers)}
    if not votes.is_sparse:
        return arrays | {"label_ballots": votes.block().astype(small)}
    matrix: Any = votes.ballots
    shape = np.array([votes.n_teachers, votes.n_queries, votes.n_labels])
    stored = (matrix.data.astype(small), matrix.indices, matrix.indptr, shape)
    return arrays | dict(zip(_SPARSE, stored, strict=True))


@contextmanager
def hold(lock: str | PathLike[str], *, place: Path, who: str) -> Iterator[None]:
    """Keep others out of a place by a lock file; the hold ends with the process, however it ends."""
    with open(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)) as handle:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except ImportError:  # pragma: no cover - Windows has no flock; there runs must be kept apart by hand
            pass
        except OSError:
            raise FolderInUse(
                f"Expected {place} to be free, {who} is at work in it. Wait for it, or take another folder."
            ) from None
        yield


def load_arrays(place: Path, keys: Collection[str]) -> tuple[Arrays, list[str]]:
    """Return those arrays of a vote file that are asked for, and the names of all there are."""
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


def _form(kind: str, arrays: Arrays, names: Sequence[str], file: str) -> tuple[str, ...]:
    """Return the arrays in which a file holds votes of a kind, refusing votes of the other one."""
    known = _CLASS_FORMS if kind == "classes" else _LABEL_FORMS
    forms = [keys for keys in known if set(keys) <= arrays.keys()]
    if len(forms) == 1:
        return forms[0]
    found = "" if forms else f" (its arrays: {', '.join(names) or 'none'})"
    if kind == "classes":
        if not forms and any(name.startswith("label_") for name in names):
            raise ValueError(
                f"Expected votes for one class per query in {file}, got votes on many labels. Name a "
                "mechanism for many labels, such as binary, or read them with read_label_votes."
            )
        found = "both" if forms else f"neither{found}"
        raise ValueError(f"Expected either 'ballots' or 'counts' in {file}, got {found}. Keep one.")
    if {"ballots", "counts"} & set(names):
        raise ValueError(
            f"Expected votes on many labels in {file}, got votes for one class per query. Name a "
            "mechanism for those, such as gnmax, or save label ballots as 'label_ballots'."
        )
    found = "several of them" if forms else f"none of them{found}"
    raise ValueError(
        f"Expected 'label_ballots', a sparse form of it, or 'label_sums' with 'label_teachers' in "
        f"{file}, got {found}. Keep one."
    )


def _beside(votes: Votes, given: dict[str, NDArray[Any] | None]) -> dict[str, NDArray[Any] | None]:
    """Return what comes beside votes, checked."""
    if votes.space.kind == "labels":
        if given["student"] is not None:
            raise ValueError("Expected a student's probabilities beside votes for one class alone.")
        checked = {name: _mask(name, given[name], votes) for name in ("answered", "truth")}
        return {"student": None, **checked}
    truth, student = given["truth"], given["student"]
    if truth is not None:
        if truth.shape != (len(votes),) or truth.dtype.kind not in "iu":
            raise ValueError(
                f"Expected truth with one class id for each of {len(votes)} queries, "
                f"got shape {truth.shape} of {truth.dtype}."
            )
        truth = truth.astype(np.int64)
    if student is not None:
        if student.shape != votes.counts.shape:
            raise ValueError(
                f"Expected student probabilities of shape (queries, classes) = {votes.counts.shape}, "
                f"got shape {student.shape}."
            )
        if student.dtype.kind not in "iuf":
            raise ValueError(f"Expected student probabilities as numbers, got dtype {student.dtype}.")
        student = student.astype(np.float64)
    return {
        "student": student,
        "answered": _mask("answered", given["answered"], votes),
        "truth": truth,
    }


def _mask(name: str, mask: NDArray[Any] | None, votes: Votes) -> NDArray[np.bool_] | None:
    return None if mask is None else answered_mask(mask, votes, name)


def _from_labels(
    arrays: Arrays, form: tuple[str, ...], resolution: int | None, thresholds: ArrayLike | None
) -> Votes:
    parts = 1
    if "label_resolution" in arrays:
        parts = _whole("label_resolution", arrays["label_resolution"])
        if resolution not in (None, parts):
            raise ValueError(
                f"Expected the resolution the votes were counted with, {parts}, got {resolution}."
            )
    if form == _SUMS:
        teachers = _whole("label_teachers", arrays["label_teachers"])
        parts = parts if resolution is None else resolution
        return LabelVotes.from_sums(arrays["label_sums"], n_teachers=teachers, resolution=parts)
    ballots: Any = _matrices(arrays) if form == _SPARSE else arrays["label_ballots"]
    if form != _SPARSE and ballots.ndim != 3:
        raise ValueError(
            f"Expected label_ballots of shape (teachers, queries, labels), got shape {ballots.shape}."
        )
    n_labels = max(1, int((ballots[0] if form == _SPARSE else ballots).shape[-1]))
    if parts > 1:
        # Whole units on disk, a probability in memory: read as it was counted.
        scaled = [one / parts for one in ballots] if form == _SPARSE else ballots / parts
        return Votes.from_ballots(scaled, SetOf(n_labels, parts))
    if thresholds is not None:
        dense = np.stack([one.toarray() for one in ballots]) if form == _SPARSE else ballots
        return LabelVotes.from_probabilities(dense, n_labels=n_labels, thresholds=thresholds)
    return Votes.from_ballots(ballots, SetOf(n_labels, resolution or 1))


def _matrices(arrays: Arrays) -> list[Any]:
    """Return one sparse matrix per teacher, refusing indices that lead nowhere."""
    data, indices, pointers, shape = (arrays[key] for key in _SPARSE)
    if shape.shape != (3,) or shape.dtype.kind not in "iu" or shape.min() < 1:
        raise ValueError("Expected label_shape as teachers, queries and labels, three whole numbers.")
    teachers, queries, labels = (int(n) for n in shape)
    whole = indices.dtype.kind in "iu" and pointers.dtype.kind in "iu"
    if not whole or pointers.shape != (teachers * queries + 1,) or data.shape != indices.shape:
        raise ValueError(
            "Expected a sparse matrix with one row per teacher and query, got parts that do not fit."
        )
    inside = indices.size == 0 or (indices.min() >= 0 and indices.max() < labels)
    if not inside or pointers[0] != 0 or pointers[-1] != data.size or (np.diff(pointers) < 0).any():
        raise ValueError("Expected label_indices below the number of labels and label_indptr that ascends.")
    from scipy.sparse import csr_array

    matrix = csr_array((data, indices, pointers), shape=(teachers * queries, labels))
    return [matrix[i * queries : (i + 1) * queries] for i in range(teachers)]


def _whole(name: str, value: NDArray[Any]) -> int:
    if value.shape != () or value.dtype.kind not in "iu" or int(value) < 1:
        raise ValueError(f"Expected {name} as one whole number, got shape {value.shape} of {value.dtype}.")
    return int(value)


# --- Votes on disk, too many to hold in memory: a folder of vote files, one for each part of the queries.
#
# votes.json              how many teachers and classes; once all parts are there, how many queries each has
# counts-00000000.npz     the tallies of the first part, an ordinary vote file
# ballots-00000000.npz    its ballots, where they are kept
#
# A part is written whole or not at all, ballots first: it is there once its counts are. The votes as a
# whole are there once `votes.json` lists the parts; until then they can be continued, and not read.
# Everything in the folder is as private as the votes, and only its owner may enter it.


FILE = "votes.json"
_FORMAT = 1
# Queries asked at once: parts of ten megabytes for ten thousand teachers.
_PART = 1024


class VoteWriter:
    """Write votes part by part, as they come, without ever holding all of them.

    Guarantee: an appended part is on the disk when `append` returns, and survives a crash. Votes can be read
               once the writer was left without an error; what a crash left behind is never read as a whole.
    Assumes:   a continued folder gets the votes of the same teachers on the queries that follow.

    `ballots=False` keeps tallies alone: a few bytes per query, and the exact cost then adds up each query's
    worst ballot. `resume=True` continues after the parts that are there.

    >>> import tempfile
    >>> votes = Votes.from_ballots([[0, 1, 1], [0, 1, 0], [2, 1, 1]], n_classes=3)
    >>> folder = Path(tempfile.mkdtemp()) / "votes"
    >>> with VoteWriter(folder) as writer:
    ...     writer.append(votes[:2])
    ...     writer.append(votes[2:])
    >>> stored_votes(folder)
    StoredVotes(<private>, n_queries=3, n_teachers=3, n_classes=3, n_parts=2, ballots)
    """

    def __init__(self, folder: str | PathLike[str], *, ballots: bool = True, resume: bool = False) -> None:
        self._folder, self._keep, self._resume = Path(folder), bool(ballots), bool(resume)
        self._sizes: list[int] = []
        self._shape: tuple[int, int] | None = None
        self._held = ExitStack()

    @property
    def n_queries(self) -> int:
        """Return how many queries are on the disk."""
        return sum(self._sizes)

    def __enter__(self) -> "VoteWriter":
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._held.enter_context(
            hold(self._folder / ".lock", place=self._folder, who="another writer of votes")
        )
        try:
            self._begin()
        except BaseException:
            self._held.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._held:
            if kind is None:
                self._finish()

    def append(self, votes: Votes) -> None:
        """Write one more part: at best a thousand queries or so, which fit in memory and keep files few."""
        if votes.weights is not None or (self._keep and votes.ballots is None):
            came = "weighted ones" if votes.weights is not None else "counts alone: use ballots=False"
            raise ValueError(f"Expected votes with ballots that count one vote each, got {came}.")
        shape = (votes.n_teachers, votes.n_classes)
        if len(votes) == 0:
            return
        if self._shape is None:
            self._shape = shape
            self._write_head(None)
        if shape != self._shape:
            raise ValueError(
                f"Expected votes of {self._shape[0]} teachers on {self._shape[1]} classes as in the first "
                f"part, got {shape[0]} and {shape[1]}."
            )
        number = len(self._sizes)
        if self._keep:
            save_votes(_place(self._folder, "ballots", number), votes)
        # The counts come last: with them the part is there.
        save_votes(_place(self._folder, "counts", number), Votes(votes.counts, votes.n_teachers))
        self._sizes.append(len(votes))

    def _begin(self) -> None:
        # What a killed writer was at; nobody else is in here.
        for rest in self._folder.glob(".*.tmp"):
            rest.unlink()
        if not (self._folder / FILE).exists():
            return
        head = _head(self._folder)
        if head["sizes"] is not None:
            raise ValueError(f"Expected a folder for new votes, {self._folder} holds finished ones.")
        if not self._resume:
            raise ValueError(
                f"Expected a folder for new votes, {self._folder} holds unfinished ones. Continue them with "
                "resume=True, or take another folder."
            )
        if head["ballots"] != self._keep:
            kept = "with ballots" if head["ballots"] else "as counts alone"
            raise ValueError(f"Expected to continue the votes as they were begun, {kept}.")
        self._shape = (head["n_teachers"], head["n_classes"])
        while _place(self._folder, "counts", len(self._sizes)).exists():
            part = _read(self._folder, "counts", len(self._sizes), self._shape)
            self._sizes.append(len(part))

    def _finish(self) -> None:
        if not self._sizes:
            raise ValueError("Expected at least one part of votes, got none.")
        self._write_head(self._sizes)

    def _write_head(self, sizes: list[int] | None) -> None:
        assert self._shape is not None  # there is a first part
        head = {
            "format": _FORMAT, "n_teachers": self._shape[0], "n_classes": self._shape[1],
            "ballots": self._keep, "sizes": sizes,
        }  # fmt: skip
        write_whole(self._folder / FILE, json.dumps(head).encode())


@dataclass(frozen=True, repr=False)
class StoredVotes:
    """Finished votes in a folder: `parts` reads them one part at a time.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "votes"
    >>> with VoteWriter(folder) as writer:
    ...     writer.append(Votes.from_ballots([[0, 1, 1], [0, 1, 0]], n_classes=2))
    >>> [part.n_queries for part in stored_votes(folder).parts()]
    [3]
    >>> stored_votes(folder).tallies()
    Votes(<private>, n_queries=3, n_teachers=2, n_classes=2)
    """

    folder: Path
    n_teachers: int
    n_classes: int
    sizes: tuple[int, ...]
    has_ballots: bool

    def parts(
        self, first: int = 0, last: int | None = None, *, ballots: bool | None = None
    ) -> Iterator[Votes]:
        """Yield the votes of each part, or of those from `first` to before `last`, checked as they are read.

        `ballots=False` reads the tallies alone, a few bytes per query; else ballots come where they are.
        """
        wanted = self.has_ballots if ballots is None else ballots
        if wanted and not self.has_ballots:
            raise ValueError(f"Expected votes with ballots in {self.folder}, counts alone were kept.")
        for number in range(*slice(first, last).indices(len(self.sizes))):
            yield self._part(number, wanted)

    def tallies(self) -> Votes:
        """Return the tallies of all queries at once: eight bytes for every query and class."""
        require_size(8 * len(self) * self.n_classes, str(self.folder), most=cap())
        counts = np.empty((len(self), self.n_classes), dtype=np.int64)
        start = 0
        for part in self.parts(ballots=False):
            counts[start : start + len(part)] = part.counts
            start += len(part)
        return Votes.from_counts(counts, n_teachers=self.n_teachers)

    def __len__(self) -> int:
        return sum(self.sizes)

    def __repr__(self) -> str:
        kept = "ballots" if self.has_ballots else "counts"
        return (
            f"StoredVotes(<private>, n_queries={len(self)}, n_teachers={self.n_teachers}, "
            f"n_classes={self.n_classes}, n_parts={len(self.sizes)}, {kept})"
        )

    def _part(self, number: int, ballots: bool) -> Votes:
        shape = (self.n_teachers, self.n_classes)
        part = counts = _read(self.folder, "counts", number, shape)
        if ballots:
            part = _read(self.folder, "ballots", number, shape)
        if len(counts) != self.sizes[number] or not np.array_equal(part.counts, counts.counts):
            raise ValueError(
                f"Expected the votes that were written, part {number} in {self.folder} is another. "
                "Restore the folder, or write the votes again."
            )
        return part


def stored_votes(folder: str | PathLike[str]) -> StoredVotes:
    """Return finished votes in a folder; unfinished ones are refused.

    >>> import tempfile
    >>> stored_votes(tempfile.mkdtemp())
    Traceback (most recent call last):
        ...
    ValueError: Expected a folder of votes, found no votes.json in ...
    """
    place = Path(folder)
    head = _head(place)
    if head["sizes"] is None:
        raise ValueError(
            f"Expected finished votes in {place}, whoever wrote them was interrupted. Continue with "
            "VoteWriter(folder, resume=True)."
        )
    return StoredVotes(place, head["n_teachers"], head["n_classes"], tuple(head["sizes"]), head["ballots"])


def vote_in_parts(
    ensemble: Any,
    X: NDArray[Any],
    folder: str | PathLike[str],
    *,
    n_queries: int = _PART,
    ballots: bool = True,
    resume: bool = False,
    progress: Callable[[int], None] | None = None,
) -> StoredVotes:
    """Let an ensemble vote on many rows, some at a time, and keep the votes in a folder.

    The rows may be a memory map. With `resume`, the rows that were voted on are left out: give the same ones,
    and the same teachers. `progress` is called with the number of queries of each part.

    >>> import tempfile
    >>> from tellers.teachers import Ensemble
    >>> from tellers.teachers.models import ConstantTeacher
    >>> ensemble = Ensemble((ConstantTeacher(0), ConstantTeacher(2)), n_classes=3)
    >>> vote_in_parts(ensemble, np.zeros((5, 1)), Path(tempfile.mkdtemp()) / "votes", n_queries=2)
    StoredVotes(<private>, n_queries=5, n_teachers=2, n_classes=3, n_parts=3, ballots)
    """
    require_count(n_queries=n_queries)
    with VoteWriter(folder, ballots=ballots, resume=resume) as writer:
        if writer.n_queries > len(X):
            raise ValueError(
                f"Expected the rows that were begun with, got {len(X)}: fewer than were voted on."
            )
        for start in range(writer.n_queries, len(X), n_queries):
            rows = X[start : start + n_queries]
            writer.append(ensemble.vote(rows))
            if progress is not None:
                progress(len(rows))
    return stored_votes(folder)


def _place(folder: Path, kind: str, number: int) -> Path:
    return folder / f"{kind}-{number:08d}.npz"


def _read(folder: Path, kind: str, number: int, shape: tuple[int, int]) -> Votes:
    votes = read_votes(_place(folder, kind, number), n_classes=shape[1]).votes
    if votes.n_teachers != shape[0] or (votes.ballots is None) != (kind == "counts"):
        raise ValueError(f"Expected {kind} of {shape[0]} teachers in part {number} of {folder}.")
    return votes


def _head(folder: Path) -> dict[str, Any]:
    try:
        text = read_bounded(folder / FILE, most=cap(MOST_TEXT))
    except OSError:
        raise ValueError(
            f"Expected a folder of votes, found no {FILE} in {folder}. Check the path."
        ) from None
    head: dict[str, Any] = {}
    try:
        head = json.loads(text)
        fits = head["format"] == _FORMAT and isinstance(head["ballots"], bool)
        sizes = [] if head["sizes"] is None else head["sizes"]
        numbers = [head["n_teachers"], head["n_classes"], *sizes]
    except (ValueError, KeyError, TypeError):
        fits, numbers = False, []
    if not fits or not all(type(n) is int and n > 0 for n in numbers):
        raise ValueError(f"Expected the head of a folder of votes in {folder / FILE}, got something else.")
    return head


# --- Vote files for those who may not read votes. ---


@dataclass(frozen=True, eq=False)
class HeldVotes:
    """A handle for votes in a file: what anyone may know of them, to have them priced and published.

    `width` is the number of classes, or of labels per query; `resolution` in how many parts of a vote labels
    are counted. `notes` say what was not declared and had to be taken from the file.

    Guarantee: nothing that can be reached from here is a ballot or a count. `accounting.account` takes it in
               place of votes, and `runs` publishes what it costs.
    Assumes:   whoever holds it does not import `privacy.votes`, which is held by a linter.
    Reference: docs/architecture.md, "Votes stay in the room".

    >>> import tempfile
    >>> from tellers import GNMax
    >>> from tellers.accounting import account
    >>> path = Path(tempfile.mkdtemp()) / "votes.npz"
    >>> save_votes(path, Votes.from_counts([[240, 10], [130, 120]], n_teachers=250))
    >>> votes = open_votes(path, n_classes=2)
    >>> votes
    HeldVotes(kind='classes', n_queries=2, n_teachers=250, width=2, resolution=1, notes=())
    >>> round(account(GNMax(sigma=40.0), votes, delta=1e-5).public.epsilon, 2)
    0.15
    """

    kind: Literal["classes", "labels"]
    n_queries: int
    n_teachers: int
    width: int
    resolution: int = 1
    notes: tuple[str, ...] = ()


def open_votes(
    path: str | PathLike[str],
    *,
    kind: Literal["classes", "labels"] = "classes",
    n_classes: int | None = None,
    resolution: int | None = None,
    thresholds: ArrayLike | None = None,
) -> HeldVotes:
    """Read a vote file, check it, and hand out what may be asked of it (see `read_votes`)."""
    given = {"n_classes": n_classes, "resolution": resolution}
    return hold_votes(read_votes(path, kind=kind, thresholds=thresholds, **given))


def hold_votes(file: VoteFile) -> HeldVotes:
    """Take votes into the room, and return what stands for them outside."""
    votes, space = file.votes, file.votes.space
    kind: Any = space.kind
    parts = getattr(space, "resolution", 1)
    held = HeldVotes(kind, len(votes), votes.n_teachers, space.n_answers, parts, file.notes)
    keep(held, file)
    return held
