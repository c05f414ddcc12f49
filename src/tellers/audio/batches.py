"""In which order a network sees its rows: shuffled, or so that rare labels come as often as common ones.

Both are endless, draw from one seed alone, and look at nothing but the rows they are given: a teacher's
batches know of no other teacher's rows.
"""

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..label_models import label_table

Integers = NDArray[np.int64]


class RowStream(Protocol):
    """An endless order of row numbers, taken some at a time."""

    def take(self, n_rows: int) -> Integers:
        """Return the next row numbers."""
        ...


class ShuffledRows:
    """All rows in a random order, then all of them in another, and so on.

    >>> stream = ShuffledRows(3, seed=7)
    >>> sorted(stream.take(3).tolist()), len(stream.take(5))
    ([0, 1, 2], 5)
    """

    def __init__(self, n_rows: int, *, seed: int) -> None:
        require_count(n_rows=n_rows)
        self._deck = _Deck(np.arange(n_rows), np.random.default_rng(seed))

    def take(self, n_rows: int) -> Integers:
        """Return the next row numbers."""
        return np.array([self._deck.draw() for _ in range(n_rows)], dtype=np.int64)


class BalancedRows:
    """Rows drawn for one label after another, so that every label gets its turn equally often.

    Labels come in a random order, each once before any comes again; a label's turn shows the next of its own
    rows, each once before any comes again. A row has other labels too, so labels that accompany many others
    are still seen more often. Rows without any label are one more group with a turn of its own: a network
    that never heard nothing would hear something everywhere. A label that no row has gets no turn; what is
    not told (SILENT) does not count as a label.

    Guarantee: after n draws the turns of two groups differ by at most one, and so do the draws of two rows
               within one group's turns.
    Reference: the thesis on private audio tagging, section 4.4.2, which has no rows without a label.

    >>> stream = BalancedRows([[1, 0]] * 97 + [[1, 1]] * 3, seed=7)
    >>> rows, turns = stream.draw(100)
    >>> np.bincount(turns), bool((rows[turns == 1] >= 97).all())
    (array([50, 50]), True)
    >>> len(stream.take(64))
    64
    """

    def __init__(self, Y: ArrayLike, *, seed: int) -> None:
        given = np.asarray(Y)
        table = label_table(given, n_rows=len(given), silent=True) == 1
        self.n_labels = table.shape[1]
        rows = [np.flatnonzero(column) for column in table.T] + [np.flatnonzero(~table.any(axis=1))]
        order, own = np.random.SeedSequence(seed).spawn(2)
        generators = (np.random.default_rng(child) for child in own.spawn(len(rows)))
        self._rows = {
            group: _Deck(members, generator)
            for group, (members, generator) in enumerate(zip(rows, generators, strict=True))
            if members.size
        }
        self._groups = _Deck(np.array(list(self._rows)), np.random.default_rng(order))

    def draw(self, n_rows: int) -> tuple[Integers, Integers]:
        """Return the next row numbers, and whose turn each was; `n_labels` is that of rows without one."""
        turns = np.array([self._groups.draw() for _ in range(n_rows)], dtype=np.int64)
        return np.array([self._rows[int(turn)].draw() for turn in turns], dtype=np.int64), turns

    def take(self, n_rows: int) -> Integers:
        """Return the next row numbers."""
        return self.draw(n_rows)[0]


class _Deck:
    """Cards that are dealt to the last and then shuffled again."""

    def __init__(self, cards: Integers, generator: np.random.Generator) -> None:
        self._cards, self._generator = cards, generator
        self._left: list[int] = []

    def draw(self) -> int:
        if not self._left:
            self._left = self._generator.permutation(self._cards).tolist()
        return self._left.pop()
