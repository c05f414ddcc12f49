"""Two clips of one part, heard at once: a task with many labels out of one with a single label each.

Mixing comes after dealing. A clip is mixed with clips of the same teacher, of the student or of the test, and
with no others, so it reaches the place that it was dealt to and no second one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count, require_finite
from .clips import Clips
from .dealing import Deal

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Mixtures:
    """Pairs of clips with their gains, the labels of both, and a deal of the pairs themselves.

    A pair of a clip with itself is that clip alone, and its second gain is zero.

    Guarantee: a change of one unit changes the mixtures of the part that it was dealt to, and no others.
    Assumes:   the deal that was mixed is disjoint, and keeps units together where they are sources.
    Reference: Papernot et al. 2017, section 2.1 (disjoint training sets).

    >>> from tellers.audio.dealing import deal_clips
    >>> clips = Clips(name="t", paths=list("abcdef"), Y=np.eye(2)[[0, 1, 0, 1, 0, 1]], label_names="xy")
    >>> mixed = mix_within(clips, deal_clips(clips, 1, seed=7, student=0.5), seed=7, alone=1.0)
    >>> mixed.heard(clips.paths)[0][0][1], len(mixed.heard(clips.paths)[0])
    (1.0, 1)
    """

    pairs: Rows
    gains: NDArray[np.float64]
    Y: NDArray[np.int8]
    label_names: tuple[str, ...]
    deal: Deal

    def heard(self, paths: Sequence[Path]) -> list[list[tuple[Path, float]]]:
        """Return what is heard in each mixture, as `prepare_clips` takes it, given the paths of the clips."""
        found = []
        for (first, second), (loud, soft) in zip(self.pairs.tolist(), self.gains.tolist()):
            both = [(paths[first], loud)]
            if second != first:
                both.append((paths[second], soft))
            found.append(both)
        return found

    def __len__(self) -> int:
        return len(self.pairs)

    def __repr__(self) -> str:
        return f"Mixtures(n_mixtures={len(self)}, n_labels={len(self.label_names)}, {self.deal!r})"


def mix_within(
    clips: Clips, deal: Deal, *, seed: int, times: int = 1, alone: float = 0.0, spread: float = 6.0
) -> Mixtures:
    """Mix clips of each part in pairs of different labels, every clip as the first of `times` pairs.

    The second is drawn among the clips of the same part whose labels differ (among all of them where none
    differ) and is up to `spread` decibels louder or softer. A share `alone` of the mixtures is one clip by
    itself, and the one clip of a part always is. Parts draw apart from one another, so that a changed clip
    changes no other part's mixtures; pool and test are the same with any number of teachers.

    >>> from tellers.audio.dealing import deal_clips
    >>> paths = [f"{i}.wav" for i in range(40)]
    >>> clips = Clips(name="t", paths=paths, Y=np.eye(4, dtype=int)[np.arange(40) % 4], label_names="abcd")
    >>> mixed = mix_within(clips, deal_clips(clips, 4, seed=7), seed=7, times=2)
    >>> mixed, mixed.Y.sum(axis=1).max()
    (Mixtures(n_mixtures=80, n_labels=4, Deal(n_teachers=4, unit='one clip')), 2)
    >>> [len(both) for both in mixed.heard(clips.paths)[:3]]
    [2, 2, 2]
    """
    require_count(0, seed=seed)
    require_count(times=times)
    require_finite(spread=spread, alone=alone)
    if not 0 <= alone <= 1 or spread < 0:
        raise ValueError(f"Expected 0 <= alone <= 1 and spread >= 0, got alone={alone:g}, spread={spread:g}.")
    if deal.n_clips != len(clips):
        raise ValueError(f"Expected a deal of these {len(clips)} clips, got one of {deal.n_clips}.")
    pairs, gains, places = [], [], []
    n_so_far = 0
    # Pool and test are mixed as beside a single teacher, however many there are: all ensembles hear the same.
    # A stream that a teacher has as well gives it the same draws, among other clips.
    streams = (*range(deal.n_teachers), 1, 2)
    for number, rows in zip(streams, (*deal.teachers, deal.student, deal.test)):
        draw = np.random.default_rng([int(seed), number])
        firsts = np.tile(rows, times)
        seconds = _seconds(firsts, rows, clips.Y, draw) if len(rows) > 1 else firsts
        solo = (draw.random(len(firsts)) < alone) | (len(rows) == 1)
        level = 10.0 ** (draw.uniform(-spread, spread, len(firsts)) / 20.0)
        pairs.append(np.stack([firsts, np.where(solo, firsts, seconds)], axis=1))
        gains.append(np.stack([np.ones_like(level), np.where(solo, 0.0, level)], axis=1))
        places.append(np.arange(n_so_far, n_so_far + len(firsts)))
        n_so_far += len(firsts)
    both = np.concatenate(pairs)
    return Mixtures(
        pairs=both,
        gains=np.concatenate(gains),
        Y=clips.Y[both[:, 0]] | clips.Y[both[:, 1]],
        label_names=clips.label_names,
        deal=Deal(
            teachers=tuple(places[:-2]), student=places[-2], test=places[-1],
            unit=deal.unit, n_clips=n_so_far, n_set_apart=sum(len(rows) for rows in places[:-2]),
        ),
    )  # fmt: skip


def _seconds(firsts: Rows, rows: Rows, Y: NDArray[np.int8], draw: np.random.Generator) -> Rows:
    """Return another clip of the part for each, with other labels where there is one."""
    found = np.full(len(firsts), -1, dtype=np.int64)
    # Nearly always one of a few guesses will do; looking through a large part for each clip would not.
    for _ in range(16):
        open_ones = np.flatnonzero(found < 0)
        guess = rows[draw.integers(len(rows), size=len(open_ones))]
        fits = (Y[guess] != Y[firsts[open_ones]]).any(axis=1)
        found[open_ones[fits]] = guess[fits]
    for at in np.flatnonzero(found < 0):
        others = rows[rows != firsts[at]]
        different = others[(Y[others] != Y[firsts[at]]).any(axis=1)]
        found[at] = draw.choice(different if len(different) else others)
    return found
