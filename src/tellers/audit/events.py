"""The event that tells two inputs apart best: chosen on some releases, judged on others."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .intervals import epsilon_of_event

Floats = NDArray[np.float64]
Direction = Literal["here", "there"]
_MOST_CUTS = 400


@dataclass(frozen=True)
class Event:
    """The releases whose score is at least (or at most) a cut; likelier `here` (or `there`).

    >>> Event(0.5, "here").hits(np.array([0.1, 0.5, 0.9]))
    2
    """

    cut: float
    likelier: Direction

    def hits(self, scores: Floats) -> int:
        """Return how many scores lie in the event."""
        inside = scores >= self.cut if self.likelier == "here" else scores <= self.cut
        return int(inside.sum())

    def epsilon(self, here: Floats, there: Floats, *, delta: float, miss: float) -> float:
        """Return what the event proves on releases that it was not chosen on.

        >>> here, there = np.r_[np.ones(900), np.zeros(100)], np.r_[np.ones(100), np.zeros(900)]
        >>> round(Event(0.5, "here").epsilon(here, there, delta=0.0, miss=0.05), 2)
        1.99
        """
        own, other = (here, there) if self.likelier == "here" else (there, here)
        hits, others = self.hits(own), self.hits(other)
        return float(epsilon_of_event(hits, own.size, others, other.size, delta=delta, miss=miss))


def choose_event(here: Floats, there: Floats, *, delta: float, miss: float) -> tuple[Event, float]:
    """Return the event that would prove most on these scores, and that much; judge it on other scores.

    A high score speaks for `here`. Both directions are tried.

    >>> generator = np.random.default_rng(7)
    >>> here, there = generator.normal(1, 1, 999), generator.normal(0, 1, 999)
    >>> event, _ = choose_event(here, there, delta=0.0, miss=0.05)
    >>> Event(1.0, "here").hits(here) > Event(1.0, "here").hits(there), event.likelier
    (True, 'there')
    """
    cuts = np.unique(np.concatenate([here, there]))
    if cuts.size > _MOST_CUTS:
        # Even steps of rank in the middle, and every rank at both ends, where ratios are largest.
        ranks = np.concatenate([np.geomspace(1, cuts.size / 2, _MOST_CUTS // 2).astype(int)] * 2)
        ranks[_MOST_CUTS // 2 :] = cuts.size - ranks[_MOST_CUTS // 2 :]
        cuts = cuts[np.unique(ranks)]
    first, second = np.sort(here), np.sort(there)
    at_least = [(values.size - np.searchsorted(values, cuts, side="left")) for values in (first, second)]
    at_most = [np.searchsorted(values, cuts, side="right") for values in (first, second)]
    sizes = here.size, there.size
    proved = np.stack([
        epsilon_of_event(at_least[0], sizes[0], at_least[1], sizes[1], delta=delta, miss=miss),
        epsilon_of_event(at_most[1], sizes[1], at_most[0], sizes[0], delta=delta, miss=miss),
    ])  # fmt: skip
    way, place = np.unravel_index(int(np.argmax(proved)), proved.shape)
    return Event(float(cuts[place]), "here" if way == 0 else "there"), float(proved[way, place])
