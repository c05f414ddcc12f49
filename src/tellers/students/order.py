"""In which order the rows of a public pool are asked; students who choose aside."""

from typing import Any, Literal

import numpy as np

from .base import Indices, count_rows
from .typical import same_spread, typical_first

Order = Literal["given", "shuffled", "typical", "active"]
ORDERS = ("given", "shuffled", "typical", "active")


def pool_order(X_pool: Any, order: Order, *, seed: int) -> Indices:
    """Return the rows of a pool in the order in which `label_pool` takes them, students aside.

    What is typical is decided on features of the same spread.

    >>> pool = np.arange(4.0)[:, None]
    >>> pool_order(pool, "given", seed=7), sorted(pool_order(pool, "shuffled", seed=7).tolist())
    (array([0, 1, 2, 3]), [0, 1, 2, 3])
    """
    n_pool = count_rows(X_pool)
    if order == "given":
        return np.arange(n_pool, dtype=np.int64)
    if order == "typical":
        return typical_first(same_spread(X_pool), seed=seed)
    return np.random.default_rng(seed).permutation(n_pool).astype(np.int64)
