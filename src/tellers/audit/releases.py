"""Many releases at the same votes: what came out, as numbers that can be compared."""

import inspect
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..mechanisms import Mechanism
from ..noise import Noise
from ..release import SILENT, Release
from .law import AnyVotes, Floats

Outcomes = NDArray[np.int32]
Progress = Callable[[int], object]
_CHUNK = 40_000  # queries released at once; keeps the memory flat


def draw_releases(
    mechanism: Mechanism,
    votes: AnyVotes,
    student: Floats | None,
    n_samples: int,
    n_queries: int,
    noise: Noise,
    *,
    progress: Progress | None = None,
) -> Outcomes:
    """Return outcomes of many releases of the same query, asked `n_queries` times each.

    (releases, queries, columns), as `draw_rows`.

    >>> from tellers import GNMax, Votes, noise
    >>> votes = Votes.from_counts([[30, 20]], n_teachers=50)
    >>> draw_releases(GNMax(sigma=5.0), votes, None, 10, 3, noise.seeded(7)).shape
    (10, 3, 1)
    """
    rows = np.zeros(n_samples * n_queries, dtype=np.int64)
    drawn = draw_rows(mechanism, votes, rows, noise, student=student, progress=progress)
    return drawn.reshape(n_samples, n_queries, -1)


def draw_rows(
    mechanism: Mechanism,
    votes: AnyVotes,
    rows: NDArray[np.int64],
    noise: Noise,
    *,
    student: Floats | None = None,
    progress: Progress | None = None,
) -> Outcomes:
    """Return one outcome for each row of votes that is named, (rows, columns).

    A class is one column; of many labels each is one, 0 or 1; SILENT where nothing is told, and -2 - label
    where a label is told that no teacher gave. Where noisy counts are released they follow.

    >>> from tellers import GNMax, Votes, noise
    >>> votes = Votes.from_counts([[50, 0], [0, 50]], n_teachers=50)
    >>> draw_rows(GNMax(sigma=5.0), votes, np.array([0, 0, 1]), noise.seeded(7)).tolist()
    [[0], [0], [1]]
    """
    belief = student if hears_student(mechanism) else None
    found = []
    for start in range(0, len(rows), _CHUNK):
        asked = rows[start : start + _CHUNK]
        n = len(asked)
        more = {} if belief is None else {"student": belief[asked] if len(belief) > 1 else _tiled(belief, n)}
        release = mechanism.release(votes[asked], noise, **more)
        found.append(outcomes_of(release))
        if progress is not None:
            progress(n)
    return np.concatenate(found)


def outcomes_of(release: Release) -> Outcomes:
    """Return all that a release tells, (queries, columns), as `draw_rows` does.

    >>> from tellers import RdpCurve, Release
    >>> from tellers.release import Cost
    >>> by_teachers = np.array([True, False, False])
    >>> outcomes_of(Release(np.array([3, -1, 3]), Cost(RdpCurve.zero()), by_teachers)).T
    array([[ 3, -1, -5]], dtype=int32)
    """
    unasked = np.where(release.labels == SILENT, SILENT, -2 - release.labels)
    told = np.where(release.answered, release.labels, unasked).reshape(len(release), -1)
    if release.values is not None:
        told = np.concatenate([told, release.values], axis=1)
    return told.astype(np.int32)


def hears_student(mechanism: object) -> bool:
    """Return whether a mechanism asks what the student believes.

    >>> from tellers import GNMax
    >>> hears_student(GNMax(sigma=5.0))
    False
    """
    return "student" in inspect.signature(mechanism.release).parameters  # type: ignore[attr-defined]


def _tiled(belief: ArrayLike, n: int) -> Floats:
    return np.repeat(np.atleast_2d(np.asarray(belief, dtype=np.float64)), n, axis=0)
