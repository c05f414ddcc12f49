"""Fits on the same rows again: noticed where one process makes them, and said.

A clone is a new object, a fold is another table, and neither knows of the others' fits. So a process
remembers the rows of its fits: eight bytes of a keyed hash for each, under a key that is drawn when it
starts, in memory alone, never on an estimator and never on a disk. Without the key, which dies with the
process, they say nothing. Rows are compared by their features, so that another target on the same people is
noticed too.
"""

import hashlib
import math
import os
import secrets
import sys
import threading
import warnings
import weakref
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..privacy.budget import Budget

Hashes = NDArray[np.uint64]

_KEY = secrets.token_bytes(32)
_LOCK = threading.Lock()
# Of a larger table the smallest hashes are kept: the same rows are then kept of every table that has them.
_MOST_ROWS = 2**18
_MOST_HASHES = 2**22
# Rows that two tables of different people share by chance are fewer, unless there are few features.
_SHARE = 0.01
_WHAT_TO_DO = (
    'Fit once: choose models and parameters on public rows. Or give all fits one ledger (ledger="fits.db", '
    "with a budget): then epsilon_ covers all that is on it."
)


class RepeatedFitWarning(UserWarning):
    """Rows are fitted again without a ledger: `epsilon_` is of this fit alone, and the fits add up."""


@dataclass(eq=False)
class Remembered:
    """One fit: its rows, as hashes, the ledger that it was charged to, and what it stated."""

    hashes: Hashes
    is_whole: bool
    books: Hashable | None
    epsilon: float = math.inf
    delta: float = 0.0


_FITS: list[Remembered] = []
# A name for each ledger that has none; an address in memory may be another's later.
_OBJECTS: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def notice(X: NDArray[Any], ledger: Any) -> Remembered:
    """Warn if rows of X were fitted before and no shared ledger covers both; return what to remember of this.

    With a ledger nothing is said of fits on the same one. A search by scikit-learn is told by whoever called:
    its other fits may be in other processes.
    """
    hashes, is_whole = _hashes(X)
    fit = Remembered(hashes, is_whole, _books(ledger))
    with _LOCK:
        earlier = [
            other
            for other in _FITS
            if (fit.books is None or other.books != fit.books) and _overlap(fit, other) >= _SHARE
        ]
    if earlier:
        # Of fits on one ledger each states all of it.
        stated = list({(one.books or id(one)): (one.epsilon, one.delta) for one in earlier}.values())
        epsilon, delta = (sum(part) for part in zip(*stated, strict=True))
        fits = "an earlier fit" if len(earlier) == 1 else f"{len(earlier)} earlier fits"
        _warn(
            f"Rows of this fit were in {fits} of this process, or look exactly like those. Every fit spends: "
            f"the earlier stated epsilon {epsilon:.4g} (delta {delta:.2g}) in sum, and what holds for all of "
            f"them together is that and this one's epsilon_ added, not one fit's epsilon_. {_WHAT_TO_DO}"
        )
    elif fit.books is None and _is_searched():
        _warn(
            "scikit-learn's model selection (GridSearchCV, cross_val_score, ...) makes many fits on the same "
            "rows, and every one spends. epsilon_, that of best_estimator_ too, is of one fit; what holds "
            "for all of them together is the sum, and no epsilon covers a choice by private rows. "
            f"{_WHAT_TO_DO}"
        )
    return fit


def _warn(words: str) -> None:
    warnings.warn(words, RepeatedFitWarning, stacklevel=5)  # at whoever called fit


def _hashes(X: NDArray[Any]) -> tuple[Hashes, bool]:
    table = np.ascontiguousarray(X, dtype=np.float64) + 0.0  # -0.0 is 0.0
    width = max(1, table.shape[1]) * table.itemsize
    content, digest = memoryview(table.data).cast("B"), hashlib.blake2b
    each = [
        digest(content[at : at + width], digest_size=8, key=_KEY).digest()
        for at in range(0, len(content), width)
    ]
    found: Hashes = np.unique(np.frombuffer(b"".join(each), dtype=np.uint64))
    return found[:_MOST_ROWS].copy(), len(found) <= _MOST_ROWS


def _overlap(new: Remembered, old: Remembered) -> float:
    """Return which share of the new fit's rows the old one had, as far as both know."""
    known = [int(one.hashes[-1]) for one in (new, old) if not one.is_whole]
    upto = min(known, default=2**64 - 1)
    mine = new.hashes[: np.searchsorted(new.hashes, np.uint64(upto), side="right")]
    if not len(mine):
        return 0.0
    return float(np.isin(mine, old.hashes, assume_unique=True).mean())


def _n_held() -> int:
    return sum({id(fit.hashes): len(fit.hashes) for fit in _FITS}.values())


def _books(ledger: Any) -> Hashable | None:
    """Return what tells one ledger from another; copies of a durable one are the same."""
    if ledger is None:
        return None
    place = ledger if isinstance(ledger, (str, PathLike)) else getattr(ledger, "path", None)
    if place is not None:
        return ("file", os.path.abspath(place))
    url = getattr(ledger, "url", None)
    if url is not None:
        return ("url", str(url), str(getattr(ledger, "name", "")))
    return ("object", _OBJECTS.setdefault(ledger, secrets.token_hex(8)))


def _is_searched() -> bool:
    """Return whether scikit-learn's model selection is among the callers."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("sklearn.model_selection"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def remembered(fit: Remembered | None, estimator: Any, budget: Budget) -> Iterator[None]:
    """Keep a fit in mind from its first question on, whatever becomes of it, and what it states then."""
    if fit is None:
        yield
        return
    with _LOCK:
        for other in _FITS:  # the same table again takes no more room
            if np.array_equal(other.hashes, fit.hashes):
                fit.hashes = other.hashes
        _FITS.append(fit)
        while len(_FITS) > 1 and _n_held() > _MOST_HASHES:
            _FITS.pop(0)
    try:
        yield
    finally:
        fit.epsilon, fit.delta = getattr(estimator, "epsilon_", budget.epsilon), budget.delta
