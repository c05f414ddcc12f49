"""The directions in which public rows differ: what scores of a whole pool are brought onto."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count


def public_directions(X: ArrayLike, n_directions: int) -> NDArray[np.float64]:
    """Return the r directions in which public rows differ most, queries x r with orthonormal columns.

    They are the left singular vectors of the rows, centred: what linear scores of the rows can be, without
    the directions that hardly occur. At most as many as the rows have are returned.

    >>> rows = np.array([[0.0, 1.0], [1.0, 1.1], [2.0, 0.9], [3.0, 1.0]])
    >>> directions = public_directions(rows, 1)
    >>> directions.shape, round(float((directions**2).sum()), 9)
    ((4, 1), 1.0)
    """
    require_count(n_directions=n_directions)
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 2 or not np.isfinite(rows).all():
        raise ValueError(f"Expected at least two finite public rows, got shape {rows.shape} or others.")
    left, size, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    kept = int((size > 1e-6 * max(size[0], 1e-300)).sum())
    if not kept:
        raise ValueError("Expected public rows that differ, got equal ones.")
    return np.ascontiguousarray(left[:, : min(n_directions, kept)])
