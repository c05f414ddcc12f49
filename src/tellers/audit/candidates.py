"""Neighbouring votes to try a mechanism on, chosen without asking it anything.

A mistake sits where nobody looks: at one exact count, for one class, at unanimity, at an empty class. So
every count of every class is tried, alone against one rival, against all others, and tied for the lead;
then random votes. What the mechanism says of itself plays no part.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count
from ..label_votes import LabelVotes
from ..votes import Votes
from .law import AnyVotes, Pair

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
_RANDOM_SHARE = 8


@dataclass(frozen=True, eq=False, repr=False)
class Moves:
    """Many neighbouring pairs: query i of `here` and query i of `there` differ in one ballot.

    `student` is one row of probabilities for all of them, or one for each, where a mechanism asks for it.

    >>> Moves(*class_moves(5, 2, np.random.default_rng(7)))
    Moves(10 pairs)
    """

    here: AnyVotes
    there: AnyVotes
    student: Floats | None = None

    def __len__(self) -> int:
        return len(self.here)

    def __repr__(self) -> str:
        return f"Moves({len(self)} pairs)"

    @property
    def both(self) -> Votes:
        """Return the votes of classes of both sides, all of here before all of there.

        >>> Moves(*class_moves(5, 2, np.random.default_rng(7))).both
        Votes(<private>, n_queries=20, n_teachers=5, n_classes=2)
        """
        if not isinstance(self.here, Votes) or not isinstance(self.there, Votes):
            raise TypeError("Expected votes for one class of several, got votes on labels.")
        counts = np.concatenate([self.here.counts, self.there.counts])
        return Votes.from_counts(counts, n_teachers=self.here.n_teachers)

    def pair(self, at: int) -> Pair:
        """Return one of the pairs.

        >>> Moves(*class_moves(5, 2, np.random.default_rng(7))).pair(0)
        Pair([1, 4] | [0, 5], n_teachers=5)
        """
        own = self.student if self.student is None or len(self.student) == 1 else self.student[[at]]
        return Pair(self.here[[at]], self.there[[at]], own)


def class_moves(
    n_teachers: int, n_classes: int, rng: np.random.Generator, *, n_most: int = 1200
) -> tuple[Votes, Votes]:
    """Return votes and neighbours: every count of every class in three settings, and random ones.

    Where there are more than `n_most` (classes times teachers is large), the counts near the ends, near the
    middle and tied for the lead are kept, and as many of the others as fit, at random.

    >>> here, there = class_moves(60, 4, np.random.default_rng(7))
    >>> len(here), sorted(set(here.counts[:, 3])) == list(range(61))
    (657, True)
    """
    require_count(n_teachers=n_teachers, n_most=n_most)
    require_count(2, n_classes=n_classes)
    first, count, setting = (
        grid.ravel()
        for grid in np.meshgrid(range(n_classes), range(1, n_teachers + 1), range(3), indexing="ij")
    )
    left = n_teachers - count
    fits = (setting < 2) | ((count <= left) & (n_classes > 2))
    # What the other classes have where two are tied; where it is less, these two lead.
    lead = (setting == 2) & (-(-(left - count) // max(1, n_classes - 2)) <= count)
    near = lead | (np.minimum(np.minimum(count, left), np.abs(2 * count - n_teachers)) <= 2)
    # First of all: everybody for one class, two camps, and all classes as even as can be.
    evenest = lead & (count == count[lead].min(initial=n_teachers))
    core = evenest | (left == 0) | ((setting == 0) & (np.abs(2 * count - n_teachers) <= 1))
    n_random = max(1, min(int(fits.sum()), n_most) // _RANDOM_SHARE)
    drawn = rng.random(fits.size)
    kind = np.where(evenest, 0, np.where(left == 0, 1, 2))
    turn = np.zeros(fits.size)
    for one in range(3):  # in turn, so that a few hold some of each
        these = np.flatnonzero(core & (kind == one))
        turn[these[np.argsort(drawn[these])]] = np.arange(these.size) + one / 3
    order = np.lexsort((drawn, turn, ~near, ~core, ~fits))
    kept = np.sort(order[: min(int(fits.sum()), max(1, n_most - n_random))])
    rivals = (np.arange(n_classes) + 1 + rng.integers(n_classes - 1, size=n_classes)) % n_classes
    rows, ways = [], []
    for at in kept:
        own, rival = int(first[at]), int(rivals[first[at]])
        row = np.zeros(n_classes, dtype=np.int64)
        row[own] = count[at]
        if setting[at] == 0:
            row[rival] = left[at]
        else:
            tied = int(setting[at] == 2)
            row[rival] = tied * count[at]
            rest = np.flatnonzero(
                (np.arange(n_classes) != own) & ~((np.arange(n_classes) == rival) & bool(tied))
            )
            _spread(row, rest, int(left[at] - tied * count[at]))
        rows.append(row)
        ways.append((own, rival))
    for _ in range(n_random):
        row = rng.multinomial(n_teachers, rng.dirichlet(np.full(n_classes, 10 ** rng.uniform(-1.7, 1.3))))
        source = int(rng.choice(np.flatnonzero(row)))
        rows.append(row)
        ways.append((source, (source + 1 + int(rng.integers(n_classes - 1))) % n_classes))
    counts, moves = np.stack(rows), np.array(ways)
    _, distinct = np.unique(np.concatenate([counts, moves], axis=1), axis=0, return_index=True)
    counts, moves = counts[np.sort(distinct)], moves[np.sort(distinct)]
    moved, each = counts.copy(), np.arange(len(counts))
    moved[each, moves[:, 0]] -= 1
    moved[each, moves[:, 1]] += 1
    here, there = (Votes.from_counts(table, n_teachers=n_teachers) for table in (counts, moved))
    return here, there


def _spread(row: Integers, places: Integers, n: int) -> None:
    """Add n votes to some classes, as evenly as can be."""
    row[places] += n // places.size
    row[places[: n % places.size]] += 1


def label_moves(
    mechanism: Any, n_teachers: int, rng: np.random.Generator, *, n_most: int = 400
) -> tuple[LabelVotes, LabelVotes]:
    """Return votes on labels and neighbours: every sum of every label, alone and together, and random ones.

    One teacher's ballot changes on one label, on all of them, or from one camp's to the other's.

    >>> from tellers import Binary
    >>> here, there = label_moves(Binary(2.0, 3), 5, np.random.default_rng(7))
    >>> here.sums.shape == there.sums.shape, sorted(set(here.sums[:, 2].tolist()))
    (True, [0, 1, 2, 3, 4, 5])
    """
    require_count(2, n_teachers=n_teachers)
    k = int(mechanism.n_labels)
    found: list[tuple[Floats, Floats]] = []
    zero, one = np.zeros(k), np.ones(k)
    others = n_teachers - 1
    counts = range(others + 1)
    if n_teachers > 40:
        middle = n_teachers // 2
        near = {*range(3), *range(middle - 3, middle + 4), *range(others - 2, others + 1)}
        counts = sorted(near | set(np.linspace(0, others, 24).round().astype(int).tolist()))  # type: ignore[assignment]
    for n_yes in counts:
        yes = (np.arange(others) < n_yes).astype(np.float64)
        found.append((_cast(np.outer(yes, one), one), _cast(np.outer(yes, one), zero)))
        for size in sorted(camp_sizes(mechanism)):
            first, second = zero.copy(), zero.copy()
            first[:size], second[size : 2 * size] = 1, 1
            camps = np.where(yes[:, None] > 0, first, second)
            few = np.where((np.arange(others) < 2 * n_yes)[:, None], camps, 0)
            for rest in (camps, few):
                found.append((_cast(rest, first), _cast(rest, second)))
        for label in range(k):
            only = np.eye(k)[label]
            for rest in (np.outer(yes, only), _half(others, k)):
                rest = rest.copy()
                rest[:, label] = yes
                found.append((_cast(rest, only), _cast(rest, zero)))
    kept = [found[i] for i in np.sort(rng.permutation(len(found))[:n_most])] if len(found) > n_most else found
    for _ in range(len(kept) // _RANDOM_SHARE):
        rest = (rng.random((others, k)) < rng.beta(0.4, 0.4, size=k)).astype(np.float64)
        mine, other = (rng.random((2, k)) < 0.5).astype(np.float64)
        kept.append((_cast(rest, mine), _cast(rest, other)))
    parts = int(getattr(mechanism, "votes_resolution", getattr(mechanism, "resolution", 1)))
    here, there = (
        LabelVotes.from_ballots(np.stack([pair[side] for pair in kept], axis=1), n_labels=k, resolution=parts)
        for side in (0, 1)
    )
    return here, there


def _cast(rest: Floats, own: Floats) -> Floats:
    return np.concatenate([rest, own[None]])


def _half(n_teachers: int, k: int) -> Floats:
    return ((np.arange(n_teachers)[:, None] + np.arange(k)) % 2).astype(np.float64)


def camp_sizes(mechanism: Any) -> set[int]:
    """Return how many labels a camp's ballots hold: one, as many as count before they are cut, half.

    >>> from tellers import Tau
    >>> sorted(camp_sizes(Tau(sigma=2.0, n_labels=6, max_norm=2**0.5)))
    [1, 2, 3, 6]
    """
    k = int(mechanism.n_labels)
    cap = int(getattr(mechanism, "max_labels", 0)) or k
    # A hair more, lest sqrt(2)^2 be below 2.
    whole = int(getattr(mechanism, "max_norm", k) ** 2 * (1 + 1e-9))
    return {1, cap, max(1, min(cap, k // 2)), max(1, min(whole, k // 2))}
