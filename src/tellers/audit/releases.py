"""Many releases at the same votes, and what their outcomes say of which votes they were."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..mechanisms import Mechanism
from ..noise import Noise
from ..release import SILENT
from .law import AnyVotes, Floats

Outcomes = NDArray[np.int16]
Losses = Callable[[Outcomes, Outcomes], tuple[Floats, Floats]]
Progress = Callable[[int], object]
_CHUNK = 40_000  # queries released at once; keeps the memory flat
_MOST_CLASSES = 30_000


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

    (releases, queries, columns): a class, or 0 and 1 for every label; SILENT where teachers told nothing.

    >>> from tellers import GNMax, Votes, noise
    >>> votes = Votes.from_counts([[30, 20]], n_teachers=50)
    >>> draw_releases(GNMax(sigma=5.0), votes, None, 10, 3, noise.seeded(7)).shape
    (10, 3, 1)
    """
    listens = "student" in inspect.signature(mechanism.release).parameters
    found = []
    total, done = n_samples * n_queries, 0
    while done < total:
        n = min(_CHUNK, total - done)
        asked = {"student": np.repeat(student, n, axis=0)} if listens and student is not None else {}
        release = mechanism.release(votes[np.zeros(n, dtype=np.int64)], noise, **asked)
        if release.values is not None:
            raise ValueError(
                f"Expected a mechanism that releases labels, got {type(mechanism).__name__}, which releases "
                "counts: its noise is Gaussian, and its price is exact."
            )
        told = np.where(release.answered, release.labels, SILENT)
        if told.max(initial=0) > _MOST_CLASSES:
            raise ValueError(f"Expected at most {_MOST_CLASSES} classes in an audit, got more.")
        found.append(told.reshape(n, -1).astype(np.int16))
        done += n
        if progress is not None:
            progress(n)
    return np.concatenate(found).reshape(n_samples, n_queries, -1)


def guessed_losses(here: Outcomes, there: Outcomes) -> Losses:
    """Return scores that were learned from releases: how much oftener each answer came here than there.

    An answer is all columns of a query together; the scores of a release's queries are added. An answer that
    was not among those learned from scores 0.

    >>> here, there = np.zeros((9, 1, 1), dtype=np.int16), np.ones((9, 1, 1), dtype=np.int16)
    >>> score = guessed_losses(here, there)
    >>> [float(part[0].round(2)) for part in score(here[:1], there[:1])]
    [2.94, -2.94]
    """
    both = np.concatenate([_flat(here), _flat(there)])
    known, inverse = np.unique(both, return_inverse=True)
    inverse = inverse.reshape(-1)
    n_here = here.shape[0] * here.shape[1]
    counts = [np.bincount(part, minlength=known.size) for part in (inverse[:n_here], inverse[n_here:])]
    # Half a hit each: an answer that came on one side alone is not taken for impossible on the other.
    weights = np.log(counts[0] + 0.5) - np.log(counts[1] + 0.5)

    def score(first: Outcomes, second: Outcomes) -> tuple[Floats, Floats]:
        sides = []
        for outcomes in (first, second):
            flat = _flat(outcomes)
            place = np.minimum(np.searchsorted(known, flat), known.size - 1)
            each = np.where(known[place] == flat, weights[place], 0.0)
            sides.append(each.reshape(outcomes.shape[:2]).sum(axis=1))
        return sides[0], sides[1]

    return score


def _flat(outcomes: Outcomes) -> NDArray[Any]:
    """Return one comparable value per query: numbers where there is one column, else bytes."""
    rows = np.ascontiguousarray(outcomes.reshape(-1, outcomes.shape[2]))
    if rows.shape[1] == 1:
        return rows[:, 0]
    # Shifted and big-endian, so that bytes sort and none of them ends in zeros.
    moved = (rows + np.int16(2)).astype(">u2")
    return np.asarray(moved.view(f"S{2 * rows.shape[1]}").reshape(-1))
