"""Interactive-GNMax: answer only where the teachers contradict the student."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy.noise import Noise
from ..privacy.release import SILENT, Release
from ..privacy.votes import Votes
from ._argmax import group_classes, win_probabilities
from ._check import check_outcomes, student_probabilities, whole_thresholds
from ._fields import check_sigma, check_threshold, noise_sigma
from ._gaussian import CheckedArgmax
from ._laws import DiscreteGaussian
from ._outcomes import Outcomes, assemble
from .confident import ConfidentGNMax, answer
from .gap_bounds import EnvelopeCost, margin_envelope, top_and_gap_cost
from .registry import check_parameters, parameter, register
from .sensitivity import CheckedMargins


@register("interactive", "confident, and only where the student is wrong or unsure")
@dataclass(frozen=True)
class InteractiveGNMax(CheckedArgmax):
    """Answer where the votes exceed the student's expectation; else confirm a sure student, or stay silent.

    The check compares max_j (n_j - K p_j) with the threshold, p being the student's probabilities.
    Where it fails, a student surer than `student_confidence` keeps its own label at no further cost.

    Guarantee: one query costs at most `price`: the check and the answer together.
    Assumes:   the student's probabilities depend on released labels and public data only; one unit
               moves one vote. Queries chosen by earlier answers make exact costs sums along the path.
    Reference: Papernot et al. 2018, Algorithm 2 and section 4.3.

    >>> from tellers import Votes, noise
    >>> votes = Votes.from_counts([[240, 10], [240, 10]], n_teachers=250)
    >>> mechanism = InteractiveGNMax(sigma=5.0, threshold=90, sigma_threshold=9.0, student_confidence=0.8)
    >>> release = mechanism.release(votes, noise.seeded(7), student=[[0.4, 0.6], [0.9, 0.1]])
    >>> release.labels, release.answered
    (array([0, 0]), array([ True, False]))
    """

    sigma: float = noise_sigma(example=40.0)
    threshold: float = check_threshold(
        100.0, "votes the noisy top count must reach beyond the student's share"
    )
    sigma_threshold: float = check_sigma(example=150.0)
    student_confidence: float = parameter(
        "a student surer than this keeps its own label", least=0, most=1, example=0.8
    )

    def __post_init__(self) -> None:
        check_parameters(self)
        whole_thresholds(self.threshold)  # refuses what no count can be compared with

    def release(self, votes: Votes, noise: Noise, *, student: ArrayLike) -> Release:
        """Check every query against the student, answer those that differ, and charge both.

        >>> from tellers import Votes, noise
        >>> votes = Votes.from_counts([[240, 10]], n_teachers=250)
        >>> mechanism = InteractiveGNMax(sigma=5.0, threshold=90, sigma_threshold=9.0, student_confidence=0.8)
        >>> len(mechanism.release(votes, noise.secure(), student=[[0.5, 0.5]]))
        1
        """
        belief = student_probabilities(student, votes)
        margin = (votes.counts - self._thresholds(votes, belief)).max(axis=1)
        answered = margin + noise.discrete_gaussian(self.sigma_threshold, margin.shape) >= 0
        sure = belief.max(axis=1) > self.student_confidence
        labels = np.where(sure, belief.argmax(axis=1), SILENT).astype(np.int64)
        return answer(
            votes, noise, sigma=self.sigma, check=self.check_price(votes.unit), where=answered, labels=labels
        )

    def outcomes(self, votes: Votes, *, student: ArrayLike) -> Outcomes:
        """Return how likely each answer and no answer are, at these votes and at every neighbour.

        A confirmed label and silence are one outcome: which of the two it is depends on the student
        alone, and `log_labels` lists it first.

        >>> from tellers import Votes
        >>> mechanism = InteractiveGNMax(sigma=5.0, threshold=9, sigma_threshold=9.0, student_confidence=0.8)
        >>> outcomes = mechanism.outcomes(Votes.from_counts([[20, 5]], n_teachers=25), student=[[0.5, 0.5]])
        >>> bool(np.isclose(np.exp(outcomes.log_labels).sum(), 1))
        True
        """
        belief = student_probabilities(student, votes)
        groups = group_classes(votes.counts, self._thresholds(votes, belief), unit=votes.unit)
        wins = win_probabilities(groups, DiscreteGaussian(self.sigma))
        return assemble(groups, wins, check_outcomes(groups, self.sigma_threshold))

    def checked_against(self, votes: Votes, student: ArrayLike | None = None) -> NDArray[np.int64]:
        """Return the whole threshold of every count, (queries, classes): it moves with the student.

        >>> votes = Votes.from_counts([[20, 5]], n_teachers=25)
        >>> mechanism = InteractiveGNMax(5.0, threshold=9, sigma_threshold=9.0, student_confidence=0.8)
        >>> mechanism.checked_against(votes, student=[[0.5, 0.5]])
        array([[22, 22]])
        """
        if student is None:
            raise ValueError("Expected the student's probabilities (queries x classes), got none.")
        return self._thresholds(votes, student_probabilities(student, votes))

    def envelope(
        self,
        votes: Votes,
        *,
        student: ArrayLike | None = None,
        order: float,
        n_votes: int | None = None,
        n_fewest: int | None = None,
        weight: int = 1,
        **moved: Any,
    ) -> EnvelopeCost:
        """Return the envelope of the exact cost over margins and gaps, as `GNMax.envelope`; private.

        >>> votes = Votes.from_counts([[20, 5]], n_teachers=25)
        >>> mechanism = InteractiveGNMax(5.0, threshold=9, sigma_threshold=9.0, student_confidence=0.8)
        >>> mechanism.envelope(votes, order=8.0, student=[[0.5, 0.5]]).local.size
        12
        """
        answers = self.gaps(votes, order, n_votes, weight)
        found = self.margins(votes, student, votes.n_teachers)
        table = margin_envelope(
            answers, found.lowest, found.highest, order=order, sigma_threshold=found.sigma, weight=weight
        )
        return top_and_gap_cost(table, found.margins - found.lowest, votes.gap, **moved)

    def warm_up(self, threshold: float) -> ConfidentGNMax:
        """Return what answers while there is no student to hear: confident voting with the same noise.

        >>> InteractiveGNMax(5.0, threshold=9, sigma_threshold=9.0, student_confidence=0.8).warm_up(20.0)
        ConfidentGNMax(sigma=5.0, threshold=20.0, sigma_threshold=9.0)
        """
        return ConfidentGNMax(self.sigma, threshold, self.sigma_threshold)

    def _thresholds(self, votes: Votes, belief: NDArray[np.float64]) -> NDArray[np.int64]:
        return whole_thresholds(self.threshold, votes.n_votes[:, None] * belief)

    def margins(self, votes: Votes, student: ArrayLike | None, n_votes: int) -> CheckedMargins:
        """Return the margins beyond the student's share, and the least and the largest there can be: public.

        >>> votes = Votes.from_counts([[20, 5]], n_teachers=25)
        >>> mechanism = InteractiveGNMax(5.0, threshold=9, sigma_threshold=9.0, student_confidence=0.8)
        >>> mechanism.margins(votes, [[0.5, 0.5]], 25).margins
        array([-2])
        """
        thresholds = self.checked_against(votes, student)
        highest = (votes.n_votes - thresholds.min(axis=1)).max()
        # The largest of m differences is at least their mean.
        lowest = (-((thresholds.sum(axis=1) - votes.n_votes) // votes.n_classes)).min()
        margins = (votes.counts - thresholds).max(axis=1)
        return CheckedMargins(self.sigma_threshold, margins, int(lowest), int(highest))
