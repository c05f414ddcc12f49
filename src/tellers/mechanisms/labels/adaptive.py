"""GNThreshold with a share chosen query by query: far from every sum, and chosen with noise."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...privacy._price import Item
from ...privacy._scipy import softmax
from ...privacy.noise import Noise
from ...privacy.rdp import Floats, RdpCurve
from ...privacy.release import Cost, Release
from ...privacy.votes import Integers, Unit, Votes
from .._admission import require_label_votes, require_one_ballot
from .._clock import RangeClock
from .._fields import label_cap, label_count, noise_sigma, vote_parts
from ..registry import check_parameters, parameter, register
from ._outcomes import LabelLaw, LabelOutcomes
from ._perlabel import Mask, listed
from ._perlabel import shares as checked_shares
from .gnthreshold import NOTE, GNThreshold

_GRID = tuple(round(0.1 * tenth, 1) for tenth in range(1, 10))


@dataclass(frozen=True, eq=False, repr=False)
class ChosenOutcomes:
    """The label outcomes at every share that may be chosen, and how likely each is; private, like votes.

    `log_choice` is (queries, shares).
    """

    base: LabelOutcomes
    laws: tuple[LabelLaw, ...]
    scale: float
    log_choice: NDArray[np.float64]

    def at(self, place: int) -> LabelOutcomes:
        """Return the outcomes if the share at this place is chosen."""
        return replace(self.base, law=self.laws[place])

    def __len__(self) -> int:
        return len(self.base)

    def __repr__(self) -> str:
        return f"ChosenOutcomes(<private>, n_queries={len(self)})"


@register("adaptive-gnthreshold", "gnthreshold at a share that is chosen query by query")
@dataclass(frozen=True)
class AdaptiveGNThreshold:
    """Choose for every query, with noise, a share that no sum is near; then decide by GNThreshold at it.

    A share's score is by how many votes the nearest sum misses it; it is chosen with probability proportional
    to exp(score / `scale`), exactly.

    Guarantee: one query costs at most `price`: order / (2 scale^2) for the choice, and the labels.
    Assumes:   as `GNThreshold`; the grid of `shares` is public, `scale` is in votes.
    Reference: Cesar and Rogers 2021 (bounded range implies zCDP); "Many labels". The thesis on private audio
               tagging, Definition 11, takes the middle of the largest gap as it is, free of charge, although
               it moves with the votes: `as_published_share`.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[0, 5, 40, 50, 0]], n_teachers=50)
    >>> AdaptiveGNThreshold(sigma=2.0, n_labels=5, scale=2.0).release(votes, noise.seeded(7)).labels
    array([[0, 0, 1, 1, 0]])
    >>> votes = LabelVotes.from_sums([[4, 46]], n_teachers=50)
    >>> one = AdaptiveGNThreshold(sigma=2.0, n_labels=2, scale=2.0, shares=(0.2, 0.5))
    >>> one.scores(votes), [(chance.round(3).tolist(), at.share) for chance, at in one.choices(votes)]
    (array([[ 6, 20]]), [([0.001], 0.2), ([0.999], 0.5)])
    >>> one.outcomes(votes), one.plain_rates(), one.published_rows(votes, np.array([8.0]), None, False)
    (ChosenOutcomes(<private>, n_queries=1), (0.125, 0.25), array([[3.]]))
    >>> choice, labels = one.check_price(votes.unit), one.answer_price(votes.unit, 2)
    >>> bool((one.price(votes.unit).values == (choice + labels).values).all())
    True
    >>> bool((labels.values == one.at(1).price(votes.unit).values).all())
    True
    """

    sigma: float = noise_sigma(example=7.0)
    n_labels: int = label_count()
    scale: float = parameter(
        "the noise of the choice of a share, in votes", above=0, example=10.0, in_votes=1
    )
    shares: tuple[float, ...] = parameter(
        "the shares to choose from; 0.1 to 0.9 where they are left out",
        default=_GRID,
        form="numbers",
        above=0,
        below=1,
        example=(0.3, 0.5, 0.7),
    )
    max_labels: int = label_cap()
    resolution: int = vote_parts()
    one_price: ClassVar[bool] = True
    multilabel: ClassVar[bool] = True
    price_method: ClassVar[str] = "labels-rdp"
    choice_is_gaussian: ClassVar[bool] = False
    note: ClassVar[str] = NOTE
    exact_is_bound: ClassVar[str] = "the choice of a share and the labels are bounded apart"

    def __post_init__(self) -> None:
        check_parameters(self)
        given = listed(self.shares)
        if not given:
            raise ValueError(f"Expected a list of shares to choose from, got {self.shares!r}.")
        object.__setattr__(self, "shares", checked_shares(given, len(given), "shares"))
        self.at(0)  # which refuses a cap that is out of range

    @property
    def needs_ballots(self) -> bool:
        """Return whether sums alone do not do: where ballots are capped."""
        return self.at(0).needs_ballots

    def at(self, place: int) -> GNThreshold:
        """Return GNThreshold at one of the shares."""
        return GNThreshold(self.sigma, self.n_labels, self.shares[place], self.max_labels, self.resolution)

    def price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most one query can cost: the choice and the labels."""
        return self.check_price(unit, orders) + self.answer_price(unit, self.n_labels, orders)

    def check_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the choice of a share costs."""
        require_one_ballot(unit)
        curve = RdpCurve.zcdp(1 / (2 * self.scale**2), orders).as_price()
        # A score moves by one vote at most: losses lie in a range of 2 / scale.
        return Item((curve,), RangeClock(2 / self.scale)).price()

    def answer_price(self, unit: Unit, n_labels: int, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that telling `n_labels` of the labels costs, at any share."""
        return self.at(0).answer_price(unit, n_labels, orders)

    def plain_rates(self, n_labels: int | None = None) -> tuple[float, float]:
        """Return what the choice, and the answers if all their noisy sums were told, cost per order."""
        return 1 / (2 * self.scale**2), self.at(0).plain_rates(n_labels)[1]

    def published_rows(self, votes: Votes, grid: Floats, told: Mask | None, drawn: bool) -> Floats:
        """Return the thesis's data-dependent cost of every query at its dearest share; private."""
        # The choice is a price; whichever share is chosen, the labels cost no more than at their dearest.
        places = range(len(self.shares))
        rows = np.maximum.reduce([self.at(i).published_rows(votes, grid, told, drawn) for i in places])
        return np.asarray(rows + grid * self.plain_rates()[0])

    def scores(self, votes: Votes) -> Integers:
        """Return by how many units the nearest sum misses each share, (queries, shares); private."""
        sums = self.at(0).fitted_sums(votes)
        found = []
        for place in range(len(self.shares)):
            limits = self.at(place).limits(votes.n_teachers)
            # A sum of `limit` is just above and one of limit - 1 just below: both score 0.
            found.append(np.where(sums >= limits, sums - limits, limits - 1 - sums).min(axis=1))
        return np.stack(found, axis=1)

    def choices(self, votes: Votes) -> Iterator[tuple[Floats, GNThreshold]]:
        """Yield how likely each share is chosen, for every query, and GNThreshold at it; private."""
        chances = softmax(self.scores(votes) / (self.scale * self.resolution), axis=1)
        for place, chosen in enumerate(chances.T):
            yield chosen, self.at(place)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Choose a share for every query, decide every label at it, and charge both."""
        require_label_votes(self, votes)
        chosen = noise.choose(self.scores(votes), self.scale * self.resolution)
        limits = np.stack([self.at(place).limits(votes.n_teachers) for place in range(len(self.shares))])
        sums = self.at(0).fitted_sums(votes)
        given = sums + noise.discrete_gaussian(self.sigma * self.resolution, sums.shape) >= limits[chosen]
        return Release(given.astype(np.int64), Cost(self.price(votes.unit) * len(votes)))

    def outcomes(self, votes: Votes) -> ChosenOutcomes:
        """Return the law of every label at every share, and the distinct ballots."""
        require_label_votes(self, votes)
        laws = tuple(self.at(place).law(votes.n_teachers) for place in range(len(self.shares)))
        weights = self.scores(votes) / (self.scale * self.resolution)
        log_choice = weights - np.logaddexp.reduce(weights, axis=1, keepdims=True)
        return ChosenOutcomes(self.at(0).outcomes(votes), laws, self.scale, log_choice)


def as_published_share(means: Sequence[float]) -> float:
    """Return the thesis's adaptive threshold: the middle of the largest gap of the sorted mean votes.

    Guarantee: none. The threshold moves with the votes, and jumps: whatever is decided with it is not private
               at the price of the labels alone.
    Assumes:   one mean vote per label; of equal gaps the upper one counts.
    Reference: the thesis on private audio tagging, Definition 11 and the example before it.
    """
    ordered = sorted((float(mean) for mean in means), reverse=True)
    if len(ordered) < 2 or not all(math.isfinite(mean) for mean in ordered):
        raise ValueError(f"Expected the mean votes of at least two labels, got {len(ordered)}.")
    gaps = [above - below for above, below in pairwise(ordered)]
    place = max(range(len(gaps)), key=lambda i: (gaps[i], -i))
    return round((ordered[place] + ordered[place + 1]) / 2, 12)
