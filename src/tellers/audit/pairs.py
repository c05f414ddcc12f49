"""Bad neighbours: votes at which one changed ballot is easiest to notice.

A mechanism's price is a supremum over all votes; its worst votes are near a tie, near a threshold, or in the
tail of one. A few hundred such votes are tried, each by its exact Rényi cost where the mechanism states its
law, else by a handful of releases.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..admission import is_multilabel
from ..errors import require_count, require_fraction
from ..label_votes import LabelVotes
from ..mechanisms import InteractiveGNMax, Mechanism
from ..noise import Noise
from ..votes import Votes
from .events import choose_event
from .law import Pair, stated_law
from .releases import draw_releases, guessed_losses

Integers = NDArray[np.int64]
_PILOT = 1000
_STEPS = 33


def bad_pair(
    mechanism: Mechanism,
    n_teachers: int,
    *,
    delta: float,
    noise: Noise,
    n_queries: int = 1,
    n_classes: int = 3,
    student: ArrayLike | None = None,
) -> Pair:
    """Return two neighbouring votes at which a mechanism says much about the ballot that changed.

    The search is no proof that there are none worse: an audit at them still proves what it proves. Mechanisms
    for many labels say themselves how many there are, and `n_classes` is not read.

    Guarantee: the votes differ in one ballot, and in nothing else.
    Assumes:   the noise of the audit itself is drawn afresh.
    Reference: "Audit".

    >>> from tellers import GNMax, noise
    >>> bad_pair(GNMax(sigma=5.0), 50, delta=0.01, noise=noise.seeded(7), n_queries=500, n_classes=2)
    Pair([25, 25] | [24, 26], n_teachers=50)
    """
    require_count(2, n_teachers=n_teachers)
    require_count(n_queries=n_queries)
    require_fraction(delta=delta)
    best, most = None, -1.0
    for pair in _candidates(mechanism, n_teachers, n_classes, student):
        law = stated_law(mechanism, pair)
        if law is not None:
            found = law.epsilon(n_queries, delta=delta)
        else:
            both = (pair.here, pair.there)
            sides = [draw_releases(mechanism, votes, pair.student, _PILOT, 1, noise) for votes in both]
            found = choose_event(*guessed_losses(*sides)(*sides), delta=delta, miss=0.3)[1]
        # Votes that are as bad to rounding are as good; the first of them is kept.
        if found > most * (1 + 1e-9):
            best, most = pair, found
    if best is None:
        raise ValueError(f"Expected at least 2 teachers to move a ballot among, got {n_teachers}.")
    return best


def _candidates(
    mechanism: Mechanism, n_teachers: int, n_classes: int, student: ArrayLike | None
) -> Iterator[Pair]:
    if is_multilabel(mechanism):
        yield from _label_candidates(mechanism, n_teachers)
        return
    require_count(2, n_classes=n_classes)
    belief = None
    if isinstance(mechanism, InteractiveGNMax):
        even = np.full((1, n_classes), 1 / n_classes)
        belief = even if student is None else np.asarray(student, dtype=np.float64).reshape(1, -1)
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


def _label_candidates(mechanism: Mechanism, n_teachers: int) -> Iterator[Pair]:
    """Yield two camps with ballots that share no label, and how many teachers say both, or nothing."""
    n_labels = int(mechanism.n_labels)  # type: ignore[attr-defined]
    resolution = int(getattr(mechanism, "votes_resolution", getattr(mechanism, "resolution", 1)))
    cap = int(getattr(mechanism, "max_labels", 0)) or n_labels
    # As many ones as a ballot may have before they are clipped; a hair more, lest sqrt(2)^2 be below 2.
    whole = int(getattr(mechanism, "max_norm", n_labels) ** 2 * (1 + 1e-9))
    sizes = {1, cap, max(1, min(cap, n_labels // 2)), max(1, min(whole, n_labels // 2))}
    seen = set()
    for size in sorted(sizes):
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
