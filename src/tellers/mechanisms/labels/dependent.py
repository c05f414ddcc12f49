"""Binary voting with implications: causes are asked first, and what follows from them is not asked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from ...errors import require_count
from ...privacy.noise import Noise
from ...privacy.rdp import RdpCurve
from ...privacy.release import SILENT, Cost, Release
from ...privacy.votes import Integers, Unit, Votes
from .._admission import require_label_votes, require_one_ballot
from .._fields import check_sigma, label_count, noise_sigma, side_threshold, silence_share, vote_parts
from ..registry import register
from ._perlabel import FreeMajority, dearest_pair
from .binary import Binary, ConfidentBinary

# --- Implications between labels. ---
#
# Two kinds, both public. Positive: where `cause` is present, so is `effect`. Negative: where `cause` is
# absent, so is `effect` ("no A, hence no B"). Causes are asked before their effects; what follows is not
# asked.


Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Implications:
    """Which label follows from which: pairs (cause, effect), of presence and of absence.

    A label may have several causes and several effects, and effects may be causes in turn, but no label may
    follow from itself: then nobody could say which to ask first. `names` are for messages and tables.

    >>> names = ("opacity", "consolidation", "pneumonia")
    >>> Implications(3, positive=((2, 1), (1, 0)), names=names).levels
    ((2,), (1,), (0,))
    >>> Implications(2, positive=((0, 1),), negative=((1, 0),), names=("opacity", "pneumonia"))
    Traceback (most recent call last):
        ...
    ValueError: Expected implications without a cycle, got: opacity -> pneumonia -> opacity. Leave out one ...
    """

    n_labels: int
    positive: Pairs = ()
    negative: Pairs = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_count(n_labels=self.n_labels)
        if self.names and len(self.names) != self.n_labels:
            raise ValueError(f"Expected {self.n_labels} names of labels, got {len(self.names)}.")
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        for kind in ("positive", "negative"):
            object.__setattr__(self, kind, self._pairs(getattr(self, kind), kind))
        cycle = find_cycle(self.n_labels, (*self.positive, *self.negative))
        if cycle:
            shown = " -> ".join(self.name(label) for label in cycle)
            raise ValueError(
                f"Expected implications without a cycle, got: {shown}. Leave out one of these: causes are "
                "asked before their effects."
            )

    def _pairs(self, pairs: Any, kind: str) -> Pairs:
        found = []
        if not isinstance(pairs, Iterable):
            raise ValueError(
                f"Expected {kind} implications as a list of pairs (cause, effect), got {pairs!r}."
            )
        for pair in pairs:
            two = tuple(pair) if isinstance(pair, Iterable) else ()
            if len(two) != 2 or not all(self._is_label(label) for label in two) or two[0] == two[1]:
                raise ValueError(
                    f"Expected {kind} implications as pairs (cause, effect) of two labels in "
                    f"0..{self.n_labels - 1}, got {pair!r}."
                )
            found.append((int(two[0]), int(two[1])))
        return tuple(dict.fromkeys(found))

    def _is_label(self, label: Any) -> bool:
        whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
        return whole and 0 <= label < self.n_labels

    def name(self, label: int) -> str:
        """Return what a label is called.

        >>> Implications(2, names=("cat", "dog")).name(1), Implications(2).name(1)
        ('dog', 'label 1')
        """
        return self.names[label] if self.names else f"label {label}"

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Return the labels in the order of asking: first those that follow from none, then the next."""
        depth = [0] * self.n_labels
        for _ in range(self.n_labels):
            for cause, effect in (*self.positive, *self.negative):
                depth[effect] = max(depth[effect], depth[cause] + 1)
        return tuple(
            tuple(label for label in range(self.n_labels) if depth[label] == level)
            for level in range(max(depth) + 1)
        )

    def infer(self, labels: Integers, effects: Sequence[int]) -> Integers:
        """Return what follows for some labels from the others, (queries, effects); SILENT where nothing does.

        Where causes contradict each other the first declared one counts, positive ones before negative ones.

        >>> Implications(2, negative=((0, 1),)).infer(np.array([[0, -1], [1, -1]]), [1])
        array([[ 0],
               [-1]])
        """
        found = np.full((len(labels), len(effects)), SILENT, dtype=np.int64)
        for pairs, value in ((self.positive, 1), (self.negative, 0)):
            for cause, effect in pairs:
                if effect in effects:
                    column = found[:, list(effects).index(effect)]
                    column[(labels[:, cause] == value) & (column == SILENT)] = value
        return found


def find_cycle(n_labels: int, pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the labels of one cycle, its first one again at the end, or nothing where there is none."""
    causes: dict[int, list[int]] = {label: [] for label in range(n_labels)}
    for cause, effect in pairs:
        causes[effect].append(cause)
    try:
        TopologicalSorter(causes).prepare()
    except CycleError as error:
        cycle: list[int] = error.args[1][1:]
        first = cycle.index(min(cycle))
        return (*cycle[first:], *cycle[: first + 1])
    return ()


class CausesFirst(FreeMajority):
    """Ask label after label in the order of their implications, and charge those that were asked.

    Before a query the price of all labels is reserved. What is charged is the price of the labels asked: each
    is a release of its own whose price does not depend on the votes, and whether it happens depends on
    earlier outcomes alone, which is what a Rényi filter allows.
    """

    positive: Pairs
    negative: Pairs
    exact_is_bound: ClassVar[str] = (
        "it is that of telling all labels, and those that follow from others are not asked"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        found = self.implications  # refuses cycles, and pairs that are none
        object.__setattr__(self, "positive", found.positive)
        object.__setattr__(self, "negative", found.negative)

    @property
    def implications(self) -> Implications:
        """Return what follows from what."""
        return Implications(self.n_labels, self.positive, self.negative)

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Ask, infer, and charge what was asked; `answered` are the labels that teachers told."""
        require_label_votes(self, votes)
        law, sums, implications = self.law(votes.n_teachers), self.fitted_sums(votes), self.implications
        labels = np.full(sums.shape, SILENT, dtype=np.int64)
        asked, told = np.zeros(sums.shape, dtype=np.bool_), np.zeros(sums.shape, dtype=np.bool_)
        for level in implications.levels:
            here = list(level)
            labels[:, here] = implications.infer(labels, here)
            open_ = labels[:, here] == SILENT
            asked[:, here] = open_
            # Noise is drawn for all of them, and dropped unseen where nothing is asked.
            given = sums[:, here] + noise.discrete_gaussian(law.sigma, open_.shape) >= law.threshold[here]
            sure = open_
            if law.bar is not None:
                margin = law.bar.margin(sums[:, here])
                sure = open_ & (margin + noise.discrete_gaussian(law.bar.sigma, open_.shape) >= 0)
            labels[:, here] = np.where(sure, given.astype(np.int64), labels[:, here])
            told[:, here] = sure
        # Every ballot counts, so the price of labels is the sum of their prices.
        item, n_asked, n_told = (
            self.item(votes.unit, n_teachers=votes.n_teachers),
            int(asked.sum()),
            int(told.sum()),
        )
        if item is None:
            cost = self.asked_price(votes.unit, n_asked) + self.answer_price(votes.unit, 1) * n_told
        else:
            cost = item.price(0) * (n_asked - n_told) + item.price(1) * n_told
        return Release(labels, Cost(cost), told)

    def asked_price(self, unit: Unit, n_asked: int, orders: ArrayLike | None = None) -> RdpCurve:
        """Return the most that the checks of so many labels cost; those that follow are not asked."""
        require_one_ballot(unit)
        if not self.has_bar:
            return RdpCurve.zero(orders)
        return dearest_pair(self.rule, self.bar_sigma * self.resolution, 1, orders) * n_asked


@register()
@dataclass(frozen=True)
class DependentBinary(CausesFirst):
    """Binary voting with implications: labels that follow from others are inferred, and not charged.

    `positive` and `negative` are pairs (cause, effect) as in `Implications`, declared or learned from public
    label sets (`dependencies.learn_implications`).

    Guarantee: one query costs at most `price`, that of `Binary` on all labels, and is charged the labels that
               were asked. `outcomes` are those of all labels: what is released can be made from them, so
               the exact cost is an upper bound here.
    Assumes:   as `Binary`; the implications are public.
    Reference: Dullerud et al. 2022, appendix E (label dependencies); Feldman and Zrnic 2021 (filters).

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[3, 48, 30]], n_teachers=50)
    >>> one = DependentBinary(sigma=2.0, n_labels=3, positive=((1, 2),), negative=((0, 2),))
    >>> one.release(votes, noise.seeded(7)).labels
    array([[0, 1, 1]])
    """

    sigma: float = noise_sigma(example=10.0)
    n_labels: int = label_count()
    positive: Pairs = ()
    negative: Pairs = ()
    resolution: int = vote_parts()

    adds_implications_to: ClassVar[type] = Binary


@register()
@dataclass(frozen=True, repr=False)
class ConfidentDependentBinary(CausesFirst):
    """Binary voting with implications that tells a label only where enough teachers agree.

    A label that stays silent implies nothing: its effects are asked.

    Guarantee: one query costs at most `price`, that of `ConfidentBinary` on all labels; a label that was
               asked is charged its check, and its answer where it was told.
    Assumes:   as `ConfidentBinary` and `DependentBinary`.
    Reference: as `DependentBinary`.

    >>> from tellers import LabelVotes, noise
    >>> votes = LabelVotes.from_sums([[3, 48], [26, 48]], n_teachers=50)
    >>> one = ConfidentDependentBinary(
    ...     sigma=2.0, n_labels=2, threshold=40, sigma_threshold=3.0, negative=((0, 1),)
    ... )
    >>> one.release(votes, noise.seeded(7)).labels
    array([[ 0,  0],
           [-1,  1]])
    """

    sigma: float = noise_sigma(example=10.0)
    n_labels: int = label_count()
    threshold: float = side_threshold()
    sigma_threshold: float = check_sigma(example=15.0)
    positive: Pairs = ()
    negative: Pairs = ()
    resolution: int = vote_parts()
    expected_silence: float | None = silence_share()
    has_bar: ClassVar[bool] = True
    adds_implications_to: ClassVar[type] = ConfidentBinary
