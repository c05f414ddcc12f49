"""Places: a table of which some lines cannot be used, dealt as if all of them could.

Who shares a teacher with whom must not depend on what is in a record. So all lines of the table are dealt,
those that cannot be used too, and only then do these drop out: of the part they were dealt to, and of no
other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Places:
    """Where the rows of a data set stand in the table they were read from, and what is dealt as a whole.

    `at` is the line of each row, `units` the unit of every line: the name of its source, or the line itself.
    Lines without a row could not be used. `classes` are the classes of lines, to stratify by. Lines that lead
    to the same recording are still lines of their own: a unit is what the table declares.

    Guarantee: where all lines are dealt, and lines without a row dropped afterwards, two tables that differ
               in one unit differ in one part: its rows may be others, be missing, or be there where they
               were missing. Sources may come and go.
    Assumes:   where lines are dealt one by one, how many there are is public and the same in both. A line
               that is taken out of the table moves those after it; leave it, without its record.
    Reference: Papernot et al. 2017, section 2.1 (disjoint training sets).

    >>> places = Places(at=np.array([0, 2, 3]), units=np.arange(4))
    >>> places, places.rows_at([3, 1, 0]).tolist()
    (Places(n_lines=4, n_rows=3, unit='one clip'), [2, 0])
    >>> places.among(np.array([1, 2, 3])).at.tolist(), places.take([1, 2])
    ([1, 2], Places(n_lines=4, n_rows=2, unit='one clip'))
    """

    at: Indices
    units: NDArray[Any]
    unit: Literal["one clip", "one source"] = "one clip"
    classes: Indices | None = None
    notes: tuple[str, ...] = ()

    def rows_at(self, lines: ArrayLike) -> Indices:
        """Return the rows on some lines, in the order of the lines; those without one are left out."""
        row = np.full(len(self), -1, dtype=np.int64)
        row[self.at] = np.arange(len(self.at))
        found = row[np.asarray(lines, dtype=np.int64)]
        return found[found >= 0]

    def take(self, rows: ArrayLike) -> "Places":
        """Return the places of some rows in the same table."""
        return replace(self, at=self.at[np.asarray(rows)])

    def among(self, lines: Indices) -> "Places":
        """Return the places in the table of some lines alone; rows on other lines are gone."""
        kept = self.at[np.isin(self.at, lines)]
        return replace(
            self, at=np.searchsorted(lines, kept), units=self.units[lines],
            classes=None if self.classes is None else self.classes[lines],
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.units)

    def __repr__(self) -> str:
        return f"Places(n_lines={len(self)}, n_rows={len(self.at)}, unit={self.unit!r})"


def alike_recordings(
    pictures: Sequence[str | None], units: NDArray[Any], *, quiet: Sequence[bool] = ()
) -> tuple[tuple[int, int], ...]:
    """Return pairs of clips of two units that have the same recording, under two names; private.

    Pictures are named by the content of recordings. A unit is what the table says, whatever is in it: to deal
    such clips together, or to refuse them, would make the deal, or whether there is one, depend on what is in
    them. So this is for whoever owns the table, and nobody else. `quiet` marks clips in which nothing is
    heard: silence is nobody's.

    >>> alike_recordings(["p/1.npy", None, None, "p/1.npy"], np.array([0, 1, 2, 0]))
    ()
    >>> alike_recordings(["p/1.npy", None, None, "p/1.npy"], np.array([0, 1, 2, 3]))
    ((0, 3),)
    """
    first: dict[str, int] = {}
    twice = []
    for clip, picture in enumerate(pictures):
        if picture is None or (len(quiet) and quiet[clip]):
            continue
        before = first.setdefault(picture, clip)
        if units[before] != units[clip]:
            twice.append((before, clip))
    return tuple(twice)
