"""Clips split among teachers, student and test, their statistics, and mixtures of two clips."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...data.clips import Clips
from ...errors import require_count, require_finite, require_fraction
from ...privacy.sealed import Sealed
from ...teachers.partitions import (
    Partition,
    assignment_key,
    check_disjoint,
    identities,
    partition,
    positions,
    seat_of,
)
from .._folder import part_statistics

# --- Clips to teachers, student and test: disjoint, by clip or by source, with the table that goes with it.
#
# The published experiments deal the same clips several times: once to a single teacher (the baseline), then
# to 10, 20 and 50. The student's clips and the test's are the same each time, so that results can be
# compared.


Rows = NDArray[np.int64]
NOBODY, STUDENT, TEST = -1, -2, -3
"""Who has a clip that no teacher has, where owners are numbers."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Deal:
    """Which clips each teacher, the student and the test have, by number; no clip is in two places.

    `n_set_apart` clips were for teachers; where shares are even, a few of them may have gone to nobody.
    `n_left_out` are none of the task.

    One by one, places in the table are dealt, and not clips: the draw knows how many lines there are, and
    nothing else. So parts are of equal size, but for what drops out, and a clip can be replaced, removed (its
    line stays, without a recording) or added (on a line that had none) without moving another. Sources are
    seated by a keyed hash of their names: they may come and go, and teachers differ in size.

    Guarantee: a change of one `unit`, replaced, removed or added, changes the clips of one teacher, the
               student or the test alone.
    Assumes:   one by one, how many lines the table has is public and does not change: a line that is taken
               out moves others. The seed was not chosen by looking at the clips.
    Reference: Papernot et al. 2017, section 2.1 (disjoint training sets).

    >>> deal = deal_clips(100, 10, seed=7, test=0.1)
    >>> deal
    Deal(n_teachers=10, unit='one clip')
    >>> len(deal.teachers[0]), len(deal.student), len(deal.test)
    (7, 18, 10)
    >>> len(deal.only(np.arange(100) < 50).student)
    10
    """

    teachers: tuple[Rows, ...]
    student: Rows
    test: Rows
    unit: Literal["one clip", "one source"]
    n_clips: int
    n_set_apart: int
    n_left_out: int = 0
    n_places: int = 0
    """Lines of the table that teachers have, whatever is in them: a number that no clip changes."""

    def __post_init__(self) -> None:
        self.check_sources(None)
        for rows in (*self.teachers, self.student, self.test):
            rows.flags.writeable = False

    @property
    def n_teachers(self) -> int:
        """Return how many teachers there are."""
        return len(self.teachers)

    @property
    def partition(self) -> Partition:
        """Return the teachers' parts, as the rest of the package takes them."""
        return Partition(self.teachers, unit=self.unit)

    @property
    def owners(self) -> Rows:
        """Return who has each clip: the number of a teacher, STUDENT, TEST or NOBODY."""
        owner = np.full(self.n_clips, NOBODY, dtype=np.int64)
        for teacher, rows in enumerate(self.teachers):
            owner[rows] = teacher
        owner[self.student], owner[self.test] = STUDENT, TEST
        return owner

    def only(self, usable: ArrayLike) -> "Deal":
        """Return the deal without clips that cannot be used, by a mask: nobody gets those, none is moved."""
        mask = np.asarray(usable, dtype=bool)
        if mask.shape != (self.n_clips,):
            raise ValueError(f"Expected a mask of {self.n_clips} clips, got shape {mask.shape}.")
        parts = [rows[mask[rows]] for rows in (*self.teachers, self.student, self.test)]
        return replace(self, teachers=tuple(parts[:-2]), student=parts[-2], test=parts[-1])

    def check_sources(self, sources: ArrayLike | None) -> None:
        """Refuse a deal in which clips of one source are in two places.

        >>> deal_clips(4, 2, seed=7, student=0.5).check_sources(["a", "b", "a", "b"])
        Traceback (most recent call last):
            ...
        ValueError: Expected every person in one part, got the person of row ...
        """
        public = [rows for rows in (self.student, self.test) if len(rows)]
        check_disjoint([*self.teachers, *public], persons=sources)

    def __repr__(self) -> str:
        return f"Deal(n_teachers={self.n_teachers}, unit={self.unit!r})"


def deal_clips(
    clips: Clips | int,
    n_teachers: int,
    *,
    seed: int,
    student: float = 0.2,
    test: float | ArrayLike = 0.0,
    by_source: bool | None = None,
    even: bool = True,
) -> Deal:
    """Deal clips to teachers, student and test, at random and disjoint.

    `student` is the share of what is not the test's; `test` is a share of all clips, or a mask or numbers of
    those that the publisher set apart. With `even`, as published, every teacher has equally many clips and
    what is left over goes to nobody; without, sizes differ by one. `by_source` keeps clips of one source
    together and protects a source in place of a clip: a speaker, a street, a video. Each is then drawn on its
    own, for the test and the student with their shares as probabilities, and for a teacher; `even` says
    nothing there. Where it is not said, clips with known sources are dealt so. Clips that were left out for
    their labels are dealt too, and then taken from whoever has them (`Deal`).

    The seed decides who is student before it decides who teaches: other numbers of teachers leave student and
    test as they are.

    >>> baseline, ten = deal_clips(1000, 1, seed=7), deal_clips(1000, 10, seed=7)
    >>> bool((baseline.student == ten.student).all()), len(ten.teachers[3])
    (True, 80)
    """
    n_clips = clips if isinstance(clips, int) else len(clips)
    require_count(n_clips=n_clips, n_teachers=n_teachers)
    require_count(0, seed=seed)
    require_fraction(student=student)
    sources, wanted = (
        (None, np.ones(n_clips, dtype=bool)) if isinstance(clips, int) else (clips.sources, clips.wanted)
    )
    by_source = sources is not None if by_source is None else by_source
    given: dict[str, Any] = {"seed": int(seed), "student": student, "test": test}
    if by_source:
        of_clip = _deal_sources(sources, int(n_teachers), **given)
        private = of_clip >= 0
    else:
        of_clip, private = _deal_lines(n_clips, int(n_teachers), even=even, **given)
    n_places = int((of_clip >= 0).sum())
    of_clip[~wanted] = NOBODY
    return Deal(
        teachers=tuple(np.flatnonzero(of_clip == teacher) for teacher in range(int(n_teachers))),
        student=np.flatnonzero(of_clip == STUDENT),
        test=np.flatnonzero(of_clip == TEST),
        unit="one source" if by_source else "one clip",
        n_clips=n_clips,
        n_set_apart=int((private & wanted).sum()),
        n_left_out=int((~wanted).sum()),
        n_places=n_places,
    )


def deal_experiments(
    clips: Clips | int, n_teachers: Sequence[int] = (1, 10, 20, 50), *, seed: int, **options: Any
) -> dict[str, Deal]:
    """Deal the same clips to one teacher and to several numbers of them, with one student and one test.

    `options` are those of `deal_clips`: student, test, by_source and even.

    >>> list(deal_experiments(1000, seed=7))
    ['baseline', '10 teachers', '20 teachers', '50 teachers']
    """
    return {
        "baseline" if n == 1 else f"{n} teachers": deal_clips(clips, n, seed=seed, **options)
        for n in n_teachers
    }


def deal_table(deals: Mapping[str, Deal], *, n_labels: int) -> str:
    """Return the statistics of deals as a table in Markdown, in the form of the thesis's table 4.1.

    As there, the overall size is without the test. Where sources stay together teachers differ in size; the
    smallest and the largest are shown, which is a number of the private data: keep such a table to yourself.

    >>> print(deal_table(deal_experiments(95_696, (1, 10), seed=7), n_labels=15))
    | data set | baseline | 10 teachers |
    |---|---:|---:|
    | overall size | 95696 | 95696 |
    | classes | 15 | 15 |
    | set apart for teachers | 76556 | 76556 |
    | one teacher's clips | 76556 | 7655 |
    | student's clips | 19139 | 19139 |
    | test clips | 0 | 0 |
    """
    words = {"clips": "one teacher's clips", "student": "student's clips", "test": "test clips"}
    found = [_sizes(deal, n_labels) for deal in deals.values()]
    lines = [f"| data set | {' | '.join(deals)} |", "|---|" + "---:|" * len(deals)]
    for name in found[0]:
        row = " | ".join(_shown(one[name]) for one in found)
        lines.append(f"| {words.get(name, _LINES[name])} | {row} |")
    return "\n".join(lines)


def _deal_lines(
    n_clips: int, n_teachers: int, *, seed: int, student: float, test: float | ArrayLike, even: bool
) -> tuple[Rows, NDArray[np.bool_]]:
    """Return who has the clip of each line, and which lines were for teachers."""
    draw = np.random.default_rng([seed, 0])
    is_test = _set_apart(test, n_clips)
    if isinstance(is_test, float):
        drawn = draw.permutation(n_clips)[: _floor(is_test * n_clips)]
        is_test = np.isin(np.arange(n_clips), drawn)
    rest = draw.permutation(np.flatnonzero(~is_test))
    # Both shares are rounded down, as in the published table; a clip may be left to nobody.
    n_student, n_private = _floor(student * len(rest)), _floor((1 - student) * len(rest))
    if n_private < n_teachers or n_student < 1:
        raise ValueError(
            f"Expected at least one of the clips for each teacher and for the student, got {len(rest)} for "
            f"{n_teachers} teachers. Take fewer teachers."
        )
    private = rest[n_student : n_student + n_private]
    owner = np.full(n_clips, NOBODY, dtype=np.int64)
    parts = partition(n_private, n_teachers, seed=np.random.default_rng([seed, 1, n_teachers]))
    size = n_private // n_teachers
    for teacher, part in enumerate(parts):
        owner[private[part[:size] if even else part]] = teacher
    owner[rest[:n_student]], owner[is_test] = STUDENT, TEST
    return owner, np.isin(np.arange(n_clips), private)


def _deal_sources(
    known: ArrayLike | None, n_teachers: int, *, seed: int, student: float, test: float | ArrayLike
) -> Rows:
    """Return who has the clips of each line's source, every source for itself."""
    if known is None:
        raise ValueError(
            "Expected clips with sources, to deal by source, got none. Name what they are cut from "
            "(tellers audio prepare --source COLUMN)."
        )
    sources = identities(known, name="sources")
    key = assignment_key(seed)
    owner = seat_of(sources, n_teachers, key=key)
    owner[positions(sources, key=key, purpose="student") < student] = STUDENT
    is_test = _set_apart(test, len(sources))
    if isinstance(is_test, float):
        is_test = positions(sources, key=key, purpose="test") < is_test
    apart = {source for source, chosen in zip(sources, is_test, strict=True) if chosen}
    if any(source in apart for source, chosen in zip(sources, is_test, strict=True) if not chosen):
        raise ValueError(
            "Expected no source in the test and outside of it, got one. Take all clips of a source, or deal "
            "clips one by one, which protects one clip and not its source."
        )
    owner[is_test] = TEST
    return owner


def _set_apart(test: float | ArrayLike, n_clips: int) -> NDArray[np.bool_] | float:
    """Return which clips the publisher set apart for the test, or the share that is drawn."""
    given, mask = np.asarray(test), np.zeros(n_clips, dtype=bool)
    if given.ndim == 0:
        share = float(given)
        if not 0 <= share < 1:
            raise ValueError(f"Expected a share 0 <= test < 1, or clips, got test={share:g}.")
        return share
    if given.dtype.kind not in "bui" or (given.dtype.kind == "b" and given.shape != mask.shape):
        raise ValueError(f"Expected a mask or numbers of clips for test, got {given.dtype} of {given.shape}.")
    mask[given] = True
    return mask


def _floor(value: float) -> int:
    # 0.8 of ten is eight, whatever the last bit of the product says.
    return int(np.floor(value + 1e-9))


# --- The statistics of deals: how many clips and labels a teacher has, in the form of the thesis's table 4.1.


def deal_statistics(
    deals: Mapping[str, Deal], Y: ArrayLike, *, usable: ArrayLike | None = None
) -> Sealed[dict[str, dict[str, Any]]]:
    """Return, deal by deal, the sizes of parts and how labels are spread among teachers; private.

    Of what teachers have, the smallest and the largest number are told: clips, those of them that can be used
    (`usable`, all where it is left out), and clips with a label, over all teachers and labels. Labels per
    clip are a mean over the teachers' usable clips. As in the table, the overall size is without the test.

    Reference: the thesis on private audio tagging, table 4.1.

    >>> from tellers.runs.sound import deal_experiments
    >>> Y = np.eye(4, dtype=int)[np.arange(100) % 4]
    >>> found = deal_statistics(deal_experiments(100, (1, 10), seed=7), Y)
    >>> found
    Sealed(<private>)
    >>> ten = found.reveal()["10 teachers"]
    >>> ten["set_apart"], ten["clips"], ten["labels_per_clip"], ten["student"]
    (80, (8, 8), 1.0, 20)
    """
    table = np.asarray(Y)
    kept = np.ones(len(table), dtype=np.bool_) if usable is None else np.asarray(usable, dtype=np.bool_)
    said = {}
    for name, deal in deals.items():
        found = part_statistics(table, [rows[kept[rows]] for rows in deal.teachers])
        found |= {"usable": found["rows"], "labels_per_clip": found["labels_per_row"]}
        told = _sizes(deal, int(table.shape[1])) | found
        said[name] = {line: told[line] for line in _LINES}
    return Sealed(said)


def statistics_rows(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the lines of the table: what a line tells, and then its entry for every deal."""
    return [(words, *(_shown(one[name]) for one in found.values())) for name, words in _LINES.items()]


_LINES = {
    "overall": "overall size", "labels": "classes", "set_apart": "set apart for teachers",
    "clips": "clips of a teacher", "usable": "of them usable", "labels_per_clip": "labels per clip",
    "with_a_label": "clips of a teacher with a class", "without": "classes that a teacher has no clip of",
    "student": "clips of the student", "test": "clips of the test",
}  # fmt: skip


def _sizes(deal: Deal, n_labels: int) -> dict[str, Any]:
    each = [len(rows) for rows in deal.teachers]
    return {
        "overall": deal.n_clips - deal.n_left_out - len(deal.test),
        "labels": n_labels,
        "set_apart": deal.n_set_apart,
        "clips": (min(each), max(each)),
        "student": len(deal.student),
        "test": len(deal.test),
    }


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        low, high = value
        return f"{low}" if low == high else f"{low} to {high}"
    return f"{value:.2f}" if isinstance(value, float) else f"{value}"


# --- Two clips of one part, heard at once: a task with many labels out of one with a single label each. ---
#
# Mixing comes after dealing. A clip is mixed with clips of the same teacher, of the student or of the test,
# and with no others, so it reaches the place that it was dealt to and no second one.


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Mixtures:
    """Pairs of clips with their gains, the labels of both, and a deal of the pairs themselves.

    A pair of a clip with itself is that clip alone, and its second gain is zero.

    Guarantee: a change of one unit changes the mixtures of the part that it was dealt to, and no others.
    Assumes:   the deal that was mixed is disjoint, and keeps units together where they are sources.
    Reference: Papernot et al. 2017, section 2.1 (disjoint training sets).

    >>> from tellers.runs.sound import deal_clips
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

    >>> from tellers.runs.sound import deal_clips
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
    pairs, gains = [], []
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
    both = np.concatenate(pairs)
    places = np.split(np.arange(len(both)), np.cumsum([len(part) for part in pairs])[:-1])
    return Mixtures(
        pairs=both,
        gains=np.concatenate(gains),
        Y=clips.Y[both[:, 0]] | clips.Y[both[:, 1]],
        label_names=clips.label_names,
        deal=Deal(
            teachers=tuple(places[:-2]), student=places[-2], test=places[-1],
            unit=deal.unit, n_clips=len(both), n_set_apart=sum(len(rows) for rows in places[:-2]),
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
