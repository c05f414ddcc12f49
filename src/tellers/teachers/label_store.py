"""Votes on many labels on disk: one NumPy archive with the ballots, or their sums, of a batch of queries.

A file of label votes is an `.npz` with one of

    label_ballots                       teachers x queries x labels, 0 and 1 or probabilities
    label_data, label_indices,          the same as a sparse matrix in compressed rows, one row per teacher
    label_indptr, label_shape           and query, teacher by teacher; the shape has all three axes
    label_sums, label_teachers          queries x labels, and how many teachers there are

and, where they apply, `label_resolution` (into how many parts a vote was divided: entries are then whole),
and `answered` and `truth`, one True or False per query and label. Python objects are never unpickled, and
files are written whole or not at all.
"""

import io
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..label_votes import LabelVotes
from .store import Arrays, load_arrays, write_whole

_SPARSE = ("label_data", "label_indices", "label_indptr", "label_shape")
_SUMS = ("label_sums", "label_teachers")
_KEYS = ("label_ballots", *_SPARSE, *_SUMS, "label_resolution", "answered", "truth")


@dataclass(frozen=True, eq=False, repr=False)
class LabelVoteFile:
    """What a file of label votes holds, checked; `answered` and `truth` are (queries, labels)."""

    votes: LabelVotes
    answered: NDArray[np.bool_] | None = None
    truth: NDArray[np.bool_] | None = None

    def __repr__(self) -> str:
        there = [name for name in ("answered", "truth") if getattr(self, name) is not None]
        return f"LabelVoteFile({', '.join([repr(self.votes), *there])})"


def read_label_votes(
    path: str | PathLike[str], *, resolution: int | None = None, thresholds: ArrayLike | None = None
) -> LabelVoteFile:
    """Read a file of label votes and check that its parts fit together.

    Probabilities are counted in parts of a vote with a `resolution`, or become a yes where they reach
    `thresholds`, one for all labels or one each. Without either, ballots are 0 and 1.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "votes.npz"
    ...     np.savez(path, label_ballots=[[[0.9, 0.2]], [[0.8, 0.6]]])
    ...     read_label_votes(path, thresholds=0.5), read_label_votes(path, resolution=10).votes.sums
    (LabelVoteFile(LabelVotes(<private>, n_queries=1, n_teachers=2, n_labels=2)), array([[17,  8]]))
    """
    place = Path(path)
    if resolution is not None:
        require_count(resolution=resolution)
    if resolution is not None and thresholds is not None:
        raise ValueError("Expected a resolution or thresholds for probabilities, got both. Choose one.")
    arrays, names = load_arrays(place, _KEYS)
    forms = [keys for keys in (("label_ballots",), _SPARSE, _SUMS) if set(keys) <= arrays.keys()]
    if len(forms) != 1:
        if {"ballots", "counts"} & set(names):
            raise ValueError(
                f"Expected votes on many labels in {place.name}, got votes for one class per query. Name a "
                "mechanism for those, such as gnmax, or save label ballots as 'label_ballots'."
            )
        found = "several of them" if forms else f"none of them (its arrays: {', '.join(names) or 'none'})"
        raise ValueError(
            f"Expected 'label_ballots', a sparse form of it, or 'label_sums' with 'label_teachers' in "
            f"{place.name}, got {found}. Keep one."
        )
    try:
        votes = _votes(arrays, forms[0], resolution, thresholds)
        return LabelVoteFile(
            votes,
            answered=_mask("answered", arrays.get("answered"), votes),
            truth=_mask("truth", arrays.get("truth"), votes),
        )
    except (TypeError, ValueError) as error:
        # A file is input whatever is wrong with it: one kind of error, and it names the file.
        raise ValueError(f"{place.name}: {error}") from error


def save_label_votes(
    path: str | PathLike[str],
    votes: LabelVotes,
    *,
    answered: ArrayLike | None = None,
    truth: ArrayLike | None = None,
) -> None:
    """Write a file that `read_label_votes` reads: the ballots, sparse if they are, or the sums.

    The file is private, as the votes are: only its owner may read it.

    >>> import tempfile
    >>> votes = LabelVotes.from_ballots([[[1, 0]], [[1, 1]]], n_labels=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_label_votes(Path(folder) / "votes.npz", votes, truth=[[True, False]])
    ...     read_label_votes(Path(folder) / "votes.npz")
    LabelVoteFile(LabelVotes(<private>, n_queries=1, n_teachers=2, n_labels=2), truth)
    """
    votes.require_all_labels("a vote file")
    # By the declared resolution, not by the largest ballot: the size of the file says nothing private.
    small = np.min_scalar_type(votes.resolution)
    arrays: Arrays = {"label_resolution": np.array(votes.resolution)}
    if votes.ballots is None:
        arrays |= {"label_sums": votes.sums, "label_teachers": np.array(votes.n_teachers)}
    elif votes.is_sparse:
        matrix: Any = votes.ballots
        shape = np.array([votes.n_teachers, votes.n_queries, votes.n_labels])
        stored = (matrix.data.astype(small), matrix.indices, matrix.indptr, shape)
        arrays |= dict(zip(_SPARSE, stored, strict=True))
    else:
        arrays["label_ballots"] = votes.block().astype(small)
    for name, given in (("answered", answered), ("truth", truth)):
        mask = _mask(name, None if given is None else np.asarray(given), votes)
        if mask is not None:
            arrays[name] = mask
    written = io.BytesIO()
    np.savez(written, **arrays)
    write_whole(path, written.getvalue())


def _votes(
    arrays: Arrays, form: tuple[str, ...], resolution: int | None, thresholds: ArrayLike | None
) -> LabelVotes:
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
    n_labels = _n_labels(ballots)
    if parts > 1:
        # Whole units on disk, a probability in memory: read as it was counted.
        scaled = [one / parts for one in ballots] if form == _SPARSE else ballots / parts
        return LabelVotes.from_ballots(scaled, n_labels=n_labels, resolution=parts)
    if thresholds is not None:
        dense = np.stack([one.toarray() for one in ballots]) if form == _SPARSE else ballots
        return LabelVotes.from_probabilities(dense, n_labels=n_labels, thresholds=thresholds)
    return LabelVotes.from_ballots(ballots, n_labels=n_labels, resolution=resolution or 1)


def _n_labels(ballots: Any) -> int:
    if not isinstance(ballots, list) and ballots.ndim != 3:
        raise ValueError(
            f"Expected label_ballots of shape (teachers, queries, labels), got shape {ballots.shape}."
        )
    return max(1, int((ballots[0] if isinstance(ballots, list) else ballots).shape[-1]))


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


def _mask(name: str, mask: NDArray[Any] | None, votes: LabelVotes) -> NDArray[np.bool_] | None:
    if mask is None:
        return None
    if mask.shape != votes.sums.shape or mask.dtype != np.bool_:
        raise ValueError(
            f"Expected {name} with one True or False per query and label, shape {votes.sums.shape}, got "
            f"shape {mask.shape} of {mask.dtype}. Convert it with {name}.astype(bool)."
        )
    return np.asarray(mask)
