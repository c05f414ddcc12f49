"""A confidential Gaussian sum: no two parties compute together, as the pool is public.

Each answering party computes v, its norm-bounded scores of the pool in whole numbers, alone. It sends v - m
to the asker and lends m, a fresh uniform mask, to the guardian, modulo 2^64. The guardian charges, adds noise
z to the sum of the masks and hands it over; with the shares the asker then has the sum of all v and z, and
nothing else. Masks may cancel between parties, and have noise of the parties below them, as for queries.

**Price.** An asker sends nothing that goes into the sum, and cannot change it. Whatever an answering party
sends, true or not, moves the sum by what does not depend on others, and noise on whole numbers costs the same
wherever it is, also modulo 2^64: the price holds for each party that keeps its own norm, whoever else lies.

**What is believed.** That an answering party's scores are of the agreed norm, and learned from its rows. A
liar shifts the sum as it likes, unseen by anybody. What is as large as no sum of so many norms with noise is
seen by the asker in the clear (`open_sum`), after the release. There is no check on single answers: one that
an asker could make fail by changing its share would be an oracle for that answer.
"""

import hashlib
import io
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..mechanisms.gaussian_sum import GaussianSum
from ..privacy._files import cap, read_bounded, require_archive, write_whole
from ..privacy.noise import Noise
from ._ring import Integers, ring_scaled, ring_sum
from .collaboration.sums import ScoredPool

_ARRAYS = ("X", "middle", "size", "directions")
_FAR = 9.0  # Noise is further out with probability below 2^-55.


def share_of(answer: Integers, mask: Integers) -> Integers:
    """Return what an answering party sends to the asker: one row, its answer less its mask."""
    return ring_sum([answer.reshape(1, -1), ring_scaled(mask, -1)])


def noisy_sum(mechanism: GaussianSum, masks: Integers, noise: Noise) -> Integers:
    """Return the guardian's part of a sum: the sum of the masks, with the mechanism's fresh noise.

    Guarantee: with the asker's shares it is the clear sum plus noise of the law that `GaussianSum` prices.
    Assumes:   the price is on the ledger, and no masks are told twice.
    Reference: `GaussianSum.release`.
    """
    return ring_sum(
        [masks, noise.discrete_gaussian(Fraction(mechanism.sigma) * mechanism.steps, masks.shape)]
    )


def open_sum(
    total: Integers, mechanism: GaussianSum, pool: ScoredPool, *, n_parties: int, share_sigma: float = 0.0
) -> Integers:
    """Return noisy sums, directions x labels, or refuse what no honest parties can have summed to.

    Guarantee: sums of so many answers of the agreed norm are refused with probability below 2^-55.
    Assumes:   noise of the guardian, and of each party `share_sigma` norms, or none.
    Reference: Hsu, Kakade and Zhang 2012, Theorem 1: norms of subgaussian vectors, as this noise is.
    """
    noisy = total.reshape(pool.directions.shape[1], pool.n_columns)
    length = math.sqrt(sum(int(entry) ** 2 for entry in noisy.ravel()))
    sigma = math.sqrt(mechanism.sigma**2 + n_parties * share_sigma**2)
    noise = sigma * (math.sqrt(noisy.size) + _FAR)
    if length > (n_parties + noise) * mechanism.steps:
        raise ValueError(
            f"Expected a noisy sum that {n_parties} parties of the agreed norm can have, got a longer one: "
            "one of them broke its bound. The sum is charged; only they can say whose it was."
        )
    return noisy


def digest_of(pool: ScoredPool) -> str:
    """Return the hash of a pool: its rows, their scale, and its directions."""
    told = hashlib.sha256()
    for name in _ARRAYS:
        table = np.ascontiguousarray(getattr(pool, name), dtype="<f8")
        told.update(f"{name}{table.shape}".encode() + table.tobytes())
    return told.hexdigest()


def write_pool(path: Path, pool: ScoredPool) -> str:
    """Write a pool and return its hash: one party does so, as directions computed elsewhere may differ."""
    content = io.BytesIO()
    np.savez(content, **{name: getattr(pool, name) for name in _ARRAYS})
    write_whole(path, content.getvalue(), shared=True)
    return digest_of(pool)


def read_pool(path: Path, n_columns: int, *, digest: str, n_directions: int) -> ScoredPool:
    """Return the pool of a file, if it is the one that was agreed on."""
    content = read_bounded(path, most=cap())
    require_archive(content, name=path.name)
    with np.load(io.BytesIO(content), allow_pickle=False) as found:
        tables: dict[str, Any] = {name: found[name] for name in _ARRAYS if name in found}
    if len(tables) == len(_ARRAYS):
        pool = ScoredPool(n_columns=n_columns, **tables)
        if digest_of(pool) == digest and pool.directions.shape[1] == n_directions:
            return pool
    raise ValueError(
        f"Expected the pool with the digest and directions that were agreed on at {path.name}, got another. "
        "Get the file of whoever wrote it with `tellers party pool`."
    )
