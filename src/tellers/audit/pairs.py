"""The search for bad neighbours: votes at which one changed ballot is easiest to notice.

A mechanism's price is a supremum over all votes. Every candidate is tried by releases, in three rounds: a few
of all of them, more of the best, many of the very best. What the mechanism states of itself adds one
candidate, the votes that its own law calls worst, and decides nothing else.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..admission import is_multilabel
from ..errors import require_count, require_fraction
from ..label_votes import LabelVotes
from ..mechanisms import Mechanism
from ..noise import Noise
from ..votes import Votes
from .candidates import Moves, camp_sizes, class_moves, label_moves
from .law import Pair, stated_law
from .learned import prove_by_queries
from .releases import Outcomes, draw_rows, hears_student

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_STEPS = 33
ROUNDS = ((40, 600), (6, 4000))
Judge = Callable[[Outcomes, Outcomes], float]
_FIRST = 60
# How sure the search is that releases show more than the stated law before it leaves the law's worst votes.
_MISS = 0.02


def bad_pair(
    mechanism: Mechanism,
    n_teachers: int,
    *,
    delta: float,
    noise: Noise,
    n_queries: int = 1,
    n_classes: int = 10,
    student: ArrayLike | None = None,
) -> Pair:
    """Return two neighbouring votes at which a mechanism says much about the ballot that changed.

    Of votes that seem equally bad those that the stated law calls worst are taken. The search is no proof
    that there are none worse: an audit at them still proves what it proves. Mechanisms for many labels say
    themselves how many there are, and `n_classes` is not read.

    Guarantee: the votes differ in one ballot, and in nothing else.
    Assumes:   the noise of the audit itself is drawn afresh. A leak that comes with probability p at votes
               that are tried n times is not seen with chance (1 - p)^n; n is 60 for each candidate.
    Reference: "Audit".

    >>> from tellers import GNMax, noise
    >>> bad_pair(GNMax(sigma=5.0), 50, delta=0.01, noise=noise.seeded(7), n_queries=20, n_classes=2)
    Pair([24, 26] | [23, 27], n_teachers=50)
    """
    require_count(2, n_teachers=n_teachers)
    require_count(n_queries=n_queries)
    require_fraction(delta=delta)
    stated, at_most = _worst_by_law(
        mechanism, n_teachers, n_classes, student, n_queries=n_queries, delta=delta
    )
    moves = candidate_moves(mechanism, n_teachers, n_classes=n_classes, noise=noise, student=student)

    def judge(here: Outcomes, there: Outcomes) -> float:
        return prove_by_queries(here, there, n_queries=n_queries, delta=delta, miss=_MISS)[0]

    at, proved = search_moves(mechanism, moves, noise=noise, judge=judge)[0]
    if stated is not None and proved <= at_most:
        return stated
    return moves.pair(at)


def candidate_moves(
    mechanism: Mechanism,
    n_teachers: int,
    *,
    n_classes: int,
    noise: Noise,
    student: ArrayLike | None = None,
) -> Moves:
    """Return the votes that a search tries: every count of every class or label, and random ones.

    >>> from tellers import GNMax, noise
    >>> candidate_moves(GNMax(sigma=5.0), 50, n_classes=3, noise=noise.seeded(7))
    Moves(399 pairs)
    """
    rng = np.random.default_rng(int(noise.integers_below(np.array([2**40]))[0]))
    if is_multilabel(mechanism):
        return Moves(*label_moves(mechanism, n_teachers, rng))
    belief = _belief(mechanism, n_classes, student)
    return Moves(*class_moves(n_teachers, n_classes, rng), belief)


def search_moves(
    mechanism: Mechanism,
    moves: Moves,
    *,
    noise: Noise,
    judge: Judge,
    rounds: Sequence[tuple[int, int]] = ROUNDS,
) -> list[tuple[int, float]]:
    """Return the candidates whose releases differ most, and what the judge says of each, best first.

    In every round so many candidates go on, with so many releases at each of their two votes. The judge gets
    the outcomes of both sides, (releases, columns).

    >>> from tellers import GNMax, noise
    >>> moves = Moves(*class_moves(20, 3, np.random.default_rng(7)))
    >>> def judge(here, there):
    ...     return abs(here.mean() - there.mean())
    >>> at, seems = search_moves(GNMax(sigma=0.5), moves, noise=noise.seeded(7), judge=judge)[0]
    >>> bool(np.diff(np.sort(moves.here.counts[at])[-2:])[0] <= 2), seems > 0.4
    (True, True)
    """
    ranks = _first_look(mechanism, moves, noise)
    alive = np.argsort(-ranks, kind="stable")
    seems = np.zeros(0)
    for n_alive, n_each in rounds:
        alive = alive[:n_alive]
        rows = np.repeat(alive, n_each)
        sides = [
            draw_rows(mechanism, votes, rows, noise, student=moves.student).reshape(alive.size, n_each, -1)
            for votes in (moves.here, moves.there)
        ]
        seems = np.array([judge(here, there) for here, there in zip(*sides, strict=True)])
        order = np.argsort(-seems, kind="stable")
        alive, seems = alive[order], seems[order]
    return [(int(at), float(proved)) for at, proved in zip(alive, seems, strict=True)]


def _first_look(mechanism: Mechanism, moves: Moves, noise: Noise) -> Floats:
    """Return how different a few releases of every candidate look; a rank, and no proof."""
    n = len(moves)
    rows = np.repeat(np.arange(n), _FIRST)
    here, there = (
        draw_rows(mechanism, votes, rows, noise, student=moves.student) for votes in (moves.here, moves.there)
    )
    n_told = getattr(moves.here, "n_labels", 1)
    best = np.zeros(n)
    for column in range(here.shape[1]):
        if column < n_told:
            values = np.unique(np.concatenate([here[:, column], there[:, column]]))
            for value in values[:200]:
                best = np.maximum(best, _apart(here[:, column] == value, there[:, column] == value))
        else:  # a noisy count: is it at least what it was before the ballot moved?
            limit = moves.here.counts[rows, column - n_told]  # type: ignore[union-attr]
            best = np.maximum(best, _apart(here[:, column] >= limit, there[:, column] >= limit))
    return best


def _apart(here: NDArray[np.bool_], there: NDArray[np.bool_]) -> Floats:
    p, q = ((side.reshape(-1, _FIRST).sum(axis=1) + 0.5) / (_FIRST + 1) for side in (here, there))
    error = np.sqrt((p * (1 - p) + q * (1 - q)) / _FIRST)
    gap = np.maximum(np.abs(p - q) - error, 0.0)
    rarest = np.minimum(np.minimum(p, 1 - p), np.minimum(q, 1 - q))
    return np.asarray(gap**2 / rarest)


def _belief(mechanism: Mechanism, n_classes: int, student: ArrayLike | None) -> Floats | None:
    if not hears_student(mechanism):
        return None
    even = np.full((1, n_classes), 1 / n_classes)
    return even if student is None else np.asarray(student, dtype=np.float64).reshape(1, -1)


def _worst_by_law(
    mechanism: Mechanism,
    n_teachers: int,
    n_classes: int,
    student: ArrayLike | None,
    *,
    n_queries: int,
    delta: float,
) -> tuple[Pair | None, float]:
    """Return the votes that a mechanism's own law calls worst, by their Rényi cost, and that cost."""
    best, most = None, -1.0
    for pair in _candidates(mechanism, n_teachers, n_classes, student):
        law = stated_law(mechanism, pair)
        if law is None:
            break
        found = law.epsilon(n_queries, delta=delta)
        # Votes that are as bad to rounding are as good; the first of them is kept.
        if found > most * (1 + 1e-9):
            best, most = pair, found
    return best, most


def _candidates(
    mechanism: Mechanism, n_teachers: int, n_classes: int, student: ArrayLike | None
) -> Iterator[Pair]:
    if is_multilabel(mechanism):
        yield from _label_candidates(mechanism, n_teachers)
        return
    require_count(2, n_classes=n_classes)
    belief = _belief(mechanism, n_classes, student)
    for first in _spread(n_teachers):
        rest = n_teachers - first
        # All others for one class, or as even as can be among all of them.
        for others in {1, n_classes - 1}:
            counts = np.zeros(n_classes, dtype=np.int64)
            counts[0] = first
            counts[1 : 1 + others] = rest // others
            counts[1 : 1 + rest % others] += 1
            moved = counts.copy()
            moved[[0, 1]] += (-1, 1)
            here, there = (Votes.from_counts(c[None], n_teachers=n_teachers) for c in (counts, moved))
            yield Pair(here, there, belief)


def _label_candidates(mechanism: Any, n_teachers: int) -> Iterator[Pair]:
    """Yield two camps with ballots that share no label, and how many teachers say both, or nothing."""
    n_labels = int(mechanism.n_labels)
    resolution = int(getattr(mechanism, "votes_resolution", getattr(mechanism, "resolution", 1)))
    seen = set()
    for size in sorted(camp_sizes(mechanism)):
        one, other = np.zeros((2, n_labels), dtype=np.int64)
        one[:size] = 1
        other[size : 2 * size] = 1
        for first in _spread(n_teachers):
            for second in {n_teachers - first, min(first, n_teachers - first)}:
                camps = [(one, first), (other, second), (0 * one, n_teachers - first - second)]
                key = (size, first, second)
                if first + second > n_teachers or key in seen:
                    continue
                seen.add(key)
                ballots = np.concatenate([np.tile(ballot, (n, 1)) for ballot, n in camps])[:, None]
                moved = ballots.copy()
                moved[0, 0] = other
                here, there = (
                    LabelVotes.from_ballots(cast, n_labels=n_labels, resolution=resolution)
                    for cast in (ballots, moved)
                )
                yield Pair(here, there)


def _spread(n_teachers: int) -> list[int]:
    """Return numbers of teachers from 1 to all, every one near the middle."""
    middle = n_teachers // 2
    near = range(max(1, middle - _STEPS // 4), min(n_teachers, middle + _STEPS // 4) + 1)
    far = np.linspace(1, n_teachers, _STEPS).round().astype(int)
    # The middle first: of equally bad votes an even split reads best.
    return sorted({*near, *far.tolist()}, key=lambda first: (abs(2 * first - n_teachers), first))
