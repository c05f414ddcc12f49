"""Clips to teachers, student and test: disjoint, by clip or by source, with the table that goes with it.

The published experiments deal the same clips several times: once to a single teacher (the baseline), then to
10, 20 and 50. The student's clips and the test's are the same each time, so that results can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_fraction
from ..teachers.assignment import assignment_key, identities, positions
from ..teachers.partition import Partition, check_disjoint, partition, seat_of
from .clips import Clips

Rows = NDArray[np.int64]
_NOBODY, _STUDENT, _TEST = -1, -2, -3


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
        everyone = [*self.teachers, *(rows for rows in (self.student, self.test) if len(rows))]
        check_disjoint(everyone)
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

    def only(self, usable: ArrayLike) -> "Deal":
        """Return the deal without clips that cannot be used, by a mask: nobody gets those, none is moved."""
        mask = np.asarray(usable, dtype=bool)
        if mask.shape != (self.n_clips,):
            raise ValueError(f"Expected a mask of {self.n_clips} clips, got shape {mask.shape}.")
        parts = [rows[mask[rows]] for rows in (*self.teachers, self.student, self.test)]
        return replace(self, teachers=tuple(parts[:-2]), student=parts[-2], test=parts[-1])

    def check_sources(self, sources: ArrayLike) -> None:
        """Refuse a deal in which clips of one source are in two places.

        >>> deal_clips(4, 2, seed=7, student=0.5).check_sources(["a", "b", "a", "b"])
        Traceback (most recent call last):
            ...
        ValueError: Expected every person in one part, got the person of row ...
        """
        everyone = [*self.teachers, *(rows for rows in (self.student, self.test) if len(rows))]
        check_disjoint(everyone, persons=sources)

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
    by_source = (isinstance(clips, Clips) and clips.sources is not None) if by_source is None else by_source
    if by_source:
        of_clip = _deal_sources(_sources(clips), int(n_teachers), seed=int(seed), student=student, test=test)
        private = of_clip >= 0
    else:
        of_clip, private = _deal_lines(
            n_clips, int(n_teachers), seed=int(seed), student=student, test=test, even=even
        )
    n_places = int((of_clip >= 0).sum())
    if isinstance(clips, Clips):
        of_clip[~clips.wanted] = _NOBODY
        private = private & clips.wanted
    return Deal(
        teachers=tuple(np.flatnonzero(of_clip == teacher) for teacher in range(int(n_teachers))),
        student=np.flatnonzero(of_clip == _STUDENT),
        test=np.flatnonzero(of_clip == _TEST),
        unit="one source" if by_source else "one clip",
        n_clips=n_clips,
        n_set_apart=int(private.sum()),
        n_left_out=int((~clips.wanted).sum()) if isinstance(clips, Clips) else 0,
        n_places=n_places,
    )


def deal_experiments(
    clips: Clips | int,
    n_teachers: Sequence[int] = (1, 10, 20, 50),
    *,
    seed: int,
    student: float = 0.2,
    test: float | ArrayLike = 0.0,
    by_source: bool | None = None,
    even: bool = True,
) -> dict[str, Deal]:
    """Deal the same clips to one teacher and to several numbers of them, with one student and one test.

    >>> list(deal_experiments(1000, seed=7))
    ['baseline', '10 teachers', '20 teachers', '50 teachers']
    """
    return {
        "baseline" if n == 1 else f"{n} teachers": deal_clips(
            clips, n, seed=seed, student=student, test=test, by_source=by_source, even=even
        )
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

    def sizes(deal: Deal) -> str:
        each = [len(rows) for rows in deal.teachers]
        return str(each[0]) if min(each) == max(each) else f"{min(each)} to {max(each)}"

    lines = {
        "overall size": [str(deal.n_clips - deal.n_left_out - len(deal.test)) for deal in deals.values()],
        "classes": [str(n_labels)] * len(deals),
        "set apart for teachers": [str(deal.n_set_apart) for deal in deals.values()],
        "one teacher's clips": [sizes(deal) for deal in deals.values()],
        "student's clips": [str(len(deal.student)) for deal in deals.values()],
        "test clips": [str(len(deal.test)) for deal in deals.values()],
    }
    head = [f"| data set | {' | '.join(deals)} |", "|---|" + "---:|" * len(deals)]
    return "\n".join(head + [f"| {name} | {' | '.join(row)} |" for name, row in lines.items()])


def _deal_lines(
    n_clips: int, n_teachers: int, *, seed: int, student: float, test: float | ArrayLike, even: bool
) -> tuple[Rows, NDArray[np.bool_]]:
    """Return who has the clip of each line, and which lines were for teachers."""
    draw = np.random.default_rng([seed, 0])
    is_test = _given(test, n_clips)
    if is_test is None:
        is_test = np.zeros(n_clips, dtype=bool)
        is_test[draw.permutation(n_clips)[: _floor(_share(test) * n_clips)]] = True
    rest = draw.permutation(np.flatnonzero(~is_test))
    # Both shares are rounded down, as in the published table; a clip may be left to nobody.
    n_student, n_private = _floor(student * len(rest)), _floor((1 - student) * len(rest))
    if n_private < n_teachers or n_student < 1:
        raise ValueError(
            f"Expected at least one of the clips for each teacher and for the student, got {len(rest)} for "
            f"{n_teachers} teachers. Take fewer teachers."
        )
    private = rest[n_student : n_student + n_private]
    owner = np.full(n_clips, _NOBODY, dtype=np.int64)
    parts = partition(n_private, n_teachers, seed=np.random.default_rng([seed, 1, n_teachers]))
    size = n_private // n_teachers
    for teacher, part in enumerate(parts):
        owner[private[part[:size] if even else part]] = teacher
    owner[rest[:n_student]], owner[is_test] = _STUDENT, _TEST
    return owner, np.isin(np.arange(n_clips), private)


def _deal_sources(
    sources: list[str], n_teachers: int, *, seed: int, student: float, test: float | ArrayLike
) -> Rows:
    """Return who has the clips of each line's source, every source for itself."""
    key = assignment_key(seed)
    owner = seat_of(sources, n_teachers, key=key)
    owner[positions(sources, key=key, purpose="student") < student] = _STUDENT
    is_test = _given(test, len(sources))
    if is_test is None:
        is_test = positions(sources, key=key, purpose="test") < _share(test)
    apart = {source for source, chosen in zip(sources, is_test, strict=True) if chosen}
    if any(source in apart for source, chosen in zip(sources, is_test, strict=True) if not chosen):
        raise ValueError(
            "Expected no source in the test and outside of it, got one. Take all clips of a source, or deal "
            "clips one by one, which protects one clip and not its source."
        )
    owner[is_test] = _TEST
    return owner


def _sources(clips: Clips | int) -> list[str]:
    if isinstance(clips, int) or clips.sources is None:
        raise ValueError(
            "Expected clips with sources, to deal by source, got none. Name what they are cut from "
            "(tellers audio prepare --source COLUMN)."
        )
    return identities(clips.sources, name="sources")


def _given(test: float | ArrayLike, n_clips: int) -> NDArray[np.bool_] | None:
    """Return which clips the publisher set apart for the test, or None where a share is drawn."""
    if np.ndim(test) == 0:
        return None
    given, mask = np.asarray(test), np.zeros(n_clips, dtype=bool)
    if given.dtype.kind not in "bui" or (given.dtype.kind == "b" and given.shape != mask.shape):
        raise ValueError(f"Expected a mask or numbers of clips for test, got {given.dtype} of {given.shape}.")
    mask[given] = True
    return mask


def _share(test: float | ArrayLike) -> float:
    share = float(np.asarray(test))
    if not 0 <= share < 1:
        raise ValueError(f"Expected a share 0 <= test < 1, or clips, got test={share:g}.")
    return share


def _floor(value: float) -> int:
    # 0.8 of ten is eight, whatever the last bit of the product says.
    return int(np.floor(value + 1e-9))
