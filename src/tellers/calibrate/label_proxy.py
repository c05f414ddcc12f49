"""Public votes on many labels, from a file, to plan with."""

import zipfile
import zlib
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..label_votes import LabelVotes


@dataclass(frozen=True, eq=False)
class LabelProxy:
    """Votes of a public proxy, and which labels are true where the file says so, (queries, labels)."""

    votes: LabelVotes
    truth: NDArray[np.bool_] | None


def read_label_proxy(path: str | PathLike[str]) -> LabelProxy:
    """Read public votes: an npz with `label_ballots` (teachers x queries x labels) of 0 and 1, maybe `truth`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "proxy.npz", label_ballots=[[[1, 0]], [[1, 1]]], truth=[[1, 0]])
    ...     proxy = read_label_proxy(Path(folder) / "proxy.npz")
    >>> proxy.votes.n_labels, proxy.truth
    (2, array([[ True, False]]))
    """
    place = Path(path)
    if not place.is_file():
        raise ValueError(f"Expected a file of public votes, found none at {place}. Check the path.")
    try:
        with np.load(place, allow_pickle=False) as content:
            arrays: dict[str, NDArray[Any]] = {name: content[name] for name in content.files}
    except (TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{place.name}: expected an npz of plain arrays, could not read it.") from error
    if "label_ballots" not in arrays:
        found = ", ".join(arrays) or "none"
        raise ValueError(
            f"{place.name}: expected an array 'label_ballots' (teachers x queries x labels), got {found}."
        )
    ballots = arrays["label_ballots"]
    try:
        if ballots.ndim != 3:
            raise ValueError(f"expected label_ballots in three dimensions, got shape {ballots.shape}.")
        votes = LabelVotes.from_ballots(ballots, n_labels=max(1, ballots.shape[2]))
        truth = arrays.get("truth")
        if truth is not None and (
            truth.shape != votes.sums.shape
            or truth.dtype.kind not in "biuf"
            or not np.isin(truth, (0, 1)).all()
        ):
            raise ValueError(
                f"expected truth of 0 and 1 and of shape {votes.sums.shape}, got {truth.shape} "
                f"of {truth.dtype}."
            )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place.name}: {error}") from error
    return LabelProxy(votes, None if truth is None else truth.astype(bool))
