"""GNThreshold: a label is given where the noisy sum of the teachers' votes reaches a share of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...privacy.noise import Noise
from ...privacy.rdp import Floats, RdpCurve
from ...privacy.release import SILENT, Cost, Release
from ...privacy.votes import Integers, Unit, Votes
from .._admission import require_label_votes, require_one_ballot
from .._fields import label_cap, label_count, label_share, noise_sigma, vote_parts
from ..published import gaussian_bound, log_accept
from ..registry import parameter, register
from ._outcomes import Gate, LabelOutcomes, all_of
from ._perlabel import Mask, PerLabel, is_number, require_cap, shares
from ._rules import BallotRule, few_labels, free_ballots

NOTE = (
    "The thesis behind this mechanism charges only the labels that a training sample has. A changed sample "
    "can move every label, or as many as max_labels lets a ballot have: these are charged."
)


class SumOverShare(PerLabel):
    """A sum that exceeds a share of all teachers gives the label; ballots may be capped at `max_labels`."""

    sigma: float
    share: float | tuple[float, ...]
    max_labels: int
    note: ClassVar[str] = NOTE

    def __post_init__(self) -> None:
        super().__post_init__()
        require_cap(self)
        each = shares(self.share, self.n_labels, "share")
        object.__setattr__(self, "share", each[0] if is_number(self.share) else each)

    @property
    def rule(self) -> BallotRule:
        """Return which ballots count: all, or those with few labels."""
        if self.max_labels:
            return few_labels(self.n_labels, self.max_labels, self.resolution)
        return free_ballots(self.n_labels, self.resolution)

    @property
    def sum_sigma(self) -> float:
        return self.sigma

    def limits(self, n_voters: ArrayLike) -> Integers:
        """Return the smallest sum above the share of each label."""
        total = np.asarray(n_voters, dtype=np.int64) * self.resolution
        wanted = np.array(shares(self.share, self.n_labels, "share")) * total
        # A sum must exceed the share; a share that is whole up to rounding counts as whole.
        return np.asarray(np.floor(wanted * (1 + 1e-12)) + 1, dtype=np.int64)

    def on_labels(self, known: NDArray[np.bool_]) -> "SumOverShare":
        """Return the mechanism on some of the labels."""
        n_labels = int(known.sum())
        changes: dict[str, Any] = {"n_labels": n_labels, "max_labels": min(self.max_labels, n_labels)}
        if isinstance(self.share, tuple):
            changes["share"] = tuple(np.asarray(self.share)[known].tolist())
        record: Any = self
        changed: SumOverShare = replace(record, **changes)
        return changed

    def published_rows(self, votes: Votes, grid: Floats, told: Mask | None, drawn: bool) -> Floats:
        """Return the thesis's data-dependent cost of every query, one q for all labels; private."""
        sigma = self.sigma * math.sqrt(2 / self.rule.furthest(self.n_labels))
        answers = gaussian_bound(self.joint_log_q(votes, drawn=drawn), sigma, orders=grid)
        return self._behind_gate(answers, votes, told, drawn=drawn, grid=grid)

    def _behind_gate(
        self, answers: Floats, votes: Votes, told: Mask | None, *, drawn: bool, grid: Floats
    ) -> Floats:
        """Return what answers cost, and the gate where there is one, (queries, orders)."""
        return answers

    def joint_log_q(self, votes: Votes, *, drawn: bool) -> Floats:
        """Return, per query, the log of the chance that some label is not told as is likely; private."""
        law = self.law(votes.n_teachers)
        limit = law.threshold if drawn else np.asarray(self.share) * votes.n_teachers * self.resolution
        sides = log_accept(self.fitted_sums(votes) - limit, law.sigma, drawn=drawn)
        return np.minimum(all_of(np.maximum(*sides), np.minimum(*sides))[1], 0.0)

    @property
    def gate_moves(self) -> int:
        """Return how many of the largest sums behind a gate a ballot can move, 0 without a gate."""
        return 0

    def plain_rates(self, n_labels: int | None = None) -> tuple[float, float]:
        """Return what gate and answers cost per order if all their noisy sums were told."""
        gate, answers = self.gate_moves, super().plain_rates(n_labels)[1]
        return gate / (2 * getattr(self, "sigma_gate", 1.0) ** 2), answers


@register("gnthreshold", "every label whose sum exceeds a share of the teachers")
@dataclass(frozen=True)
class GNThreshold(SumOverShare):
    """Give each label whose noisy sum of votes or probabilities exceeds `share` of the teachers.

    Guarantee: one query costs at most `price`: about 0.637 order / (2 sigma^2) for each label that a changed
               ballot can move, all of them, or 2 `max_labels` where ballots are capped.
    Assumes:   ballots in [0, 1], in whole units of 1 / `resolution`; `sigma` is a standard deviation in
               votes; `share` is public, one for all labels or one per label.
    Reference: the thesis on private audio tagging, section 4.2, charges as many labels as a training sample
               has; a changed sample can move every label. Its own numbers: `published_labels`.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[48, 3, 20]], n_teachers=50)
    >>> GNThreshold(sigma=2.0, n_labels=3, share=0.3).release(votes, noise.seeded(7)).labels
    array([[1, 0, 1]])
    """

    sigma: float = noise_sigma(example=7.0)
    n_labels: int = label_count()
    share: float | tuple[float, ...] = label_share()
    max_labels: int = label_cap()
    resolution: int = vote_parts()
    one_price: ClassVar[bool] = True
    lets_abstain: ClassVar[bool] = True
    confidential: ClassVar[bool] = True


@register("confident-gnthreshold", "gnthreshold, silent where few sums are large")
@dataclass(frozen=True)
class ConfidentGNThreshold(SumOverShare):
    """Answer a query only where its `n_top` largest noisy sums all reach `confident_share` of the teachers.

    Guarantee: one query costs at most `price`: the gate, at most min(n_top, what a ballot moves) labels of
               noise `sigma_gate`, and the answers. A silent query pays for its gate alone.
    Assumes:   as `GNThreshold`. Sorting is a contraction: the n largest sums move no further than all sums.
    Reference: the thesis, section 4.2.2, charges answered queries for the answer alone, and takes the n
               largest as given; both releases compose.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[48, 3, 2], [26, 20, 2]], n_teachers=50)
    >>> confident = ConfidentGNThreshold(sigma=2.0, n_labels=3, n_top=1, confident_share=0.8, sigma_gate=2.0)
    >>> confident.release(votes, noise.seeded(7)).labels
    array([[ 1,  0,  0],
           [-1, -1, -1]])
    >>> confident.gate(50), bool((confident.check_price(votes.unit, [2.0]).values < 0.33).all())
    (Gate(sigma=2.0, height=40, n_top=1), True)
    >>> confident.outcomes(LabelVotes.from_ballots([[[1, 0, 0]]] * 9, n_labels=3)).gate.n_top
    1
    """

    sigma: float = noise_sigma(example=7.0)
    n_labels: int = label_count()
    n_top: int = parameter("so many of the largest sums must reach confident_share", least=1, example=2)
    confident_share: float = parameter("the share of the teachers that they must reach", example=0.6)
    sigma_gate: float = parameter("the noise of that check, in votes", above=0, example=12.0, in_votes=1)
    share: float | tuple[float, ...] = label_share()
    max_labels: int = label_cap()
    resolution: int = vote_parts()
    exact_is_bound: ClassVar[str] = "the gate and the labels are bounded apart"
    answers_whole_queries: ClassVar[bool] = True
    publishable: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_top > self.n_labels:
            raise ValueError(f"Expected n_top <= n_labels={self.n_labels}, got n_top={self.n_top}.")

    def gate(self, n_teachers: int) -> Gate:
        """Return the check of a whole query."""
        height = math.ceil(self.confident_share * n_teachers * self.resolution * (1 - 1e-12))
        return Gate(self.sigma_gate * self.resolution, height, self.n_top)

    def check_price(self, unit: Unit, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the gate costs, which is what silence costs."""
        require_one_ballot(unit)
        # How many teachers there are moves the height, and no height is dearer than the supremum.
        return self.gate(1).price(self.rule, orders)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Check every query, answer those that pass on all labels, and charge both."""
        require_label_votes(self, votes)
        law, gate, sums = self.law(votes.n_teachers), self.gate(votes.n_teachers), self.fitted_sums(votes)
        top = gate.top(sums)
        opened = (top + noise.discrete_gaussian(gate.sigma, top.shape) >= 0).all(axis=1)
        given = sums + noise.discrete_gaussian(law.sigma, sums.shape) >= law.threshold
        told = np.broadcast_to(opened[:, None], sums.shape).copy()
        labels = np.where(told, given.astype(np.int64), SILENT)
        answers = self.answer_price(votes.unit, self.n_labels) * int(opened.sum())
        return Release(labels, Cost(self.check_price(votes.unit) * len(votes) + answers), told)

    def outcomes(self, votes: Votes) -> LabelOutcomes:
        """Return the law of every label behind the gate, and the distinct ballots."""
        require_label_votes(self, votes)
        if votes.ballots is None:
            raise ValueError("Expected votes with ballots, got sums alone: a gate needs to know them.")
        return replace(super().outcomes(votes), gate=self.gate(votes.n_teachers))

    def _behind_gate(
        self, answers: Floats, votes: Votes, told: Mask | None, *, drawn: bool, grid: Floats
    ) -> Floats:
        """Add the gate of every query to its answers, by their chance or as they were given."""
        gate, sums = self.gate(votes.n_teachers), self.fitted_sums(votes)
        if drawn:
            opened, shut = gate.log_pass_and_fail(sums)
        else:
            height = self.confident_share * votes.n_teachers * self.resolution
            opened, shut = all_of(*log_accept(gate.top(sums) + gate.height - height, gate.sigma))
        sigma = self.sigma_gate * math.sqrt(2 / self.gate_moves)
        checks = gaussian_bound(np.minimum(np.minimum(opened, shut), 0.0), sigma, orders=grid)
        weights = np.exp(opened) if told is None else told.any(axis=1).astype(np.float64)
        return np.asarray(checks + answers * weights[:, None])

    @property
    def gate_moves(self) -> int:
        """Return how many of the largest sums a ballot can move: sorting is a contraction."""
        return min(self.n_top, self.n_labels, 2 * self.rule.most)


def published_labels(n_labels: int, *, variance: float, n_queries: int, orders: Sequence[float]) -> RdpCurve:
    """Return the thesis's own data-independent cost: n labels of one sample, order / (2 variance) each.

    Guarantee: none. A changed training sample can move the votes on all labels, not only on its own.
    Assumes:   the noise has this *variance*, in votes squared, as the thesis's tables have it.
    Reference: the thesis on private audio tagging, table 5.4: 418.4 for 2,000 queries with 3 labels of
               variance 15, at order 2 and delta 1e-8.
    """
    return RdpCurve.zcdp(n_labels / (2 * variance), orders) * n_queries
