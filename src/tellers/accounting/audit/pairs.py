"""Neighbouring votes to try a mechanism on: candidates, stated laws, and the search for the worst pair."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import require_count, require_fraction
from ...mechanisms._admission import is_multilabel
from ...mechanisms.base import Mechanism, label_space
from ...mechanisms.registry import listens
from ...privacy.noise import Noise
from ...privacy.rdp import Floats
from ...privacy.votes import Votes
from .evidence import DrawnOutcomes, Pair, draw_rows, prove_by_queries, stated_law

# --- Neighbouring votes to try a mechanism on, chosen without asking it anything. ---
#
# A mistake sits where nobody looks: at one exact count, for one class, at unanimity, at an empty class. So
# every count of every class is tried, alone against one rival, against all others, and tied for the lead;
# then random votes. What the mechanism says of itself plays no part.


_RANDOM_SHARE = 8


@dataclass(frozen=True, eq=False, repr=False)
class Moves:
    """Many neighbouring pairs: query i of `here` and query i of `there` differ in one ballot.

    `student` is one row of probabilities for all of them, or one for each, where a mechanism asks for it.
    """

    here: Votes
    there: Votes
    student: Floats | None = None

    def __len__(self) -> int:
        return len(self.here)

    def __repr__(self) -> str:
        return f"Moves({len(self)} pairs)"

    @property
    def both(self) -> Votes:
        """Return the votes of classes of both sides, all of here before all of there."""
        counts = np.concatenate([self.here.counts, self.there.counts])
        return Votes.from_counts(counts, n_teachers=self.here.n_teachers)

    def pair(self, at: int) -> Pair:
        """Return one of the pairs."""
        own = self.student if self.student is None or len(self.student) == 1 else self.student[[at]]
        return Pair(self.here[[at]], self.there[[at]], own)


def class_moves(
    n_teachers: int, n_classes: int, rng: np.random.Generator, *, n_most: int = 1200
) -> tuple[Votes, Votes]:
    """Return votes and neighbours: every count of every class in three settings, and random ones.

    Where there are more than `n_most` (classes times teachers is large), the counts near the ends, near the
    middle and tied for the lead are kept, and as many of the others as fit, at random.
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
            rest = np.setdiff1d(np.arange(n_classes), [own, rival] if tied else [own])
            n = int(left[at] - tied * count[at])  # as evenly as can be
            row[rest] += n // rest.size
            row[rest[: n % rest.size]] += 1
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


def label_moves(
    mechanism: Any, n_teachers: int, rng: np.random.Generator, *, n_most: int = 400
) -> tuple[Votes, Votes]:
    """Return votes on labels and neighbours: every sum of every label, alone and together, and random ones.

    One teacher's ballot changes on one label, on all of them, or from one camp's to the other's.
    """
    require_count(2, n_teachers=n_teachers)
    k = int(mechanism.n_labels)
    found: list[tuple[Floats, Floats, Floats]] = []  # the others' ballots, one's own, and another
    zero, one = np.zeros(k), np.ones(k)
    others = n_teachers - 1
    counts = range(others + 1)
    if n_teachers > 40:
        middle = n_teachers // 2
        near = {*range(3), *range(middle - 3, middle + 4), *range(others - 2, others + 1)}
        counts = sorted(near | set(np.linspace(0, others, 24).round().astype(int).tolist()))  # type: ignore[assignment]
    for n_yes in counts:
        yes = (np.arange(others) < n_yes).astype(np.float64)
        found.append((np.outer(yes, one), one, zero))
        for size in sorted(camp_sizes(mechanism)):
            first, second = zero.copy(), zero.copy()
            first[:size], second[size : 2 * size] = 1, 1
            camps = np.where(yes[:, None] > 0, first, second)
            few = np.where((np.arange(others) < 2 * n_yes)[:, None], camps, 0)
            for rest in (camps, few):
                found.append((rest, first, second))
        for label in range(k):
            only = np.eye(k)[label]
            half = ((np.arange(others)[:, None] + np.arange(k)) % 2).astype(np.float64)
            half[:, label] = yes
            for rest in (np.outer(yes, only), half):
                found.append((rest, only, zero))
    kept = [found[i] for i in np.sort(rng.permutation(len(found))[:n_most])] if len(found) > n_most else found
    for _ in range(len(kept) // _RANDOM_SHARE):
        rest = (rng.random((others, k)) < rng.beta(0.4, 0.4, size=k)).astype(np.float64)
        mine, other = (rng.random((2, k)) < 0.5).astype(np.float64)
        kept.append((rest, mine, other))
    space = label_space(mechanism)
    here, there = (
        Votes.from_ballots(np.stack([np.vstack([one[0], one[side]]) for one in kept], axis=1), space)
        for side in (1, 2)
    )
    return here, there


def camp_sizes(mechanism: Any) -> set[int]:
    """Return how many labels a camp's ballots hold: one, as many as count before they are cut, half."""
    k = int(mechanism.n_labels)
    cap = int(getattr(mechanism, "max_labels", 0)) or k
    # A hair more, lest sqrt(2)^2 be below 2.
    whole = int(getattr(mechanism, "max_norm", k) ** 2 * (1 + 1e-9))
    return {1, cap, max(1, min(cap, k // 2)), max(1, min(whole, k // 2))}


# --- The search for bad neighbours: votes at which one changed ballot is easiest to notice. ---
#
# A mechanism's price is a supremum over all votes. Every candidate is tried by releases, in three rounds: a
# few of all of them, more of the best, many of the very best. What the mechanism states of itself adds one
# candidate, the votes that its own law calls worst, and decides nothing else.


_STEPS = 33
ROUNDS = ((40, 600), (6, 4000))
Judge = Callable[[DrawnOutcomes, DrawnOutcomes], float]
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

    def judge(here: DrawnOutcomes, there: DrawnOutcomes) -> float:
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
    """Return the votes that a search tries: every count of every class or label, and random ones."""
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
            limit = moves.here.counts[rows, column - n_told]
            best = np.maximum(best, _apart(here[:, column] >= limit, there[:, column] >= limit))
    return best


def _apart(here: NDArray[np.bool_], there: NDArray[np.bool_]) -> Floats:
    p, q = ((side.reshape(-1, _FIRST).sum(axis=1) + 0.5) / (_FIRST + 1) for side in (here, there))
    error = np.sqrt((p * (1 - p) + q * (1 - q)) / _FIRST)
    gap = np.maximum(np.abs(p - q) - error, 0.0)
    rarest = np.minimum(np.minimum(p, 1 - p), np.minimum(q, 1 - q))
    return np.asarray(gap**2 / rarest)


def _belief(mechanism: Mechanism, n_classes: int, student: ArrayLike | None) -> Floats | None:
    if not listens(mechanism):
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
    for first in _spread_pairs(n_teachers):
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
    space, seen = label_space(mechanism), set()
    for size in sorted(camp_sizes(mechanism)):
        one, other = np.zeros((2, space.n_labels), dtype=np.int64)
        one[:size] = 1
        other[size : 2 * size] = 1
        for first in _spread_pairs(n_teachers):
            for second in {n_teachers - first, min(first, n_teachers - first)}:
                camps = [(one, first), (other, second), (0 * one, n_teachers - first - second)]
                key = (size, first, second)
                if first + second > n_teachers or key in seen:
                    continue
                seen.add(key)
                ballots = np.concatenate([np.tile(ballot, (n, 1)) for ballot, n in camps])[:, None]
                moved = ballots.copy()
                moved[0, 0] = other
                yield Pair(Votes.from_ballots(ballots, space), Votes.from_ballots(moved, space))


def _spread_pairs(n_teachers: int) -> list[int]:
    """Return numbers of teachers from 1 to all, every one near the middle."""
    middle = n_teachers // 2
    near = range(max(1, middle - _STEPS // 4), min(n_teachers, middle + _STEPS // 4) + 1)
    far = np.linspace(1, n_teachers, _STEPS).round().astype(int)
    # The middle first: of equally bad votes an even split reads best.
    return sorted({*near, *far.tolist()}, key=lambda first: (abs(2 * first - n_teachers), first))
