"""Interactive-GNMax: answer only where the teachers contradict the student."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import as_floats, require_finite, require_positive
from ..noise import Noise
from ..rdp import RdpCurve
from ..release import SILENT, Release
from ..votes import Unit, Votes
from .argmax import group_classes, win_probabilities
from .check import check_outcomes, whole_thresholds
from .confident import answer, check_price
from .gnmax import GNMax
from .laws import DiscreteGaussian
from .outcomes import Outcomes, assemble


@dataclass(frozen=True)
class InteractiveGNMax:
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

    sigma: float
    threshold: float
    sigma_threshold: float
    student_confidence: float

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma, sigma_threshold=self.sigma_threshold)
        require_finite(threshold=self.threshold, student_confidence=self.student_confidence)
        whole_thresholds(self.threshold)  # refuses what no count can be compared with
        as_floats(self)
        if not 0 <= self.student_confidence <= 1:
            raise ValueError(f"Expected student_confidence in [0, 1], got {self.student_confidence}.")

    def price(self, unit: Unit) -> RdpCurve:
        """Return the most one query can cost: its check and its answer.

        >>> from tellers import Unit
        >>> mechanism = InteractiveGNMax(40.0, threshold=90, sigma_threshold=150.0, student_confidence=0.8)
        >>> mechanism.price(Unit()).epsilon(1e-5) > 0
        True
        """
        return self.check_price(unit) + GNMax(self.sigma).price(unit)

    def check_price(self, unit: Unit) -> RdpCurve:
        """Return the most the check alone can cost, which is what a query without an answer costs.

        >>> from tellers import Unit
        >>> mechanism = InteractiveGNMax(40.0, threshold=90, sigma_threshold=150.0, student_confidence=0.8)
        >>> bool(mechanism.check_price(Unit()).values[0] < 1.25 / (2 * 150**2))
        True
        """
        return check_price(self.sigma_threshold, unit)

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

    def _thresholds(self, votes: Votes, belief: NDArray[np.float64]) -> NDArray[np.int64]:
        return whole_thresholds(self.threshold, votes.n_votes[:, None] * belief)


def student_probabilities(student: ArrayLike, votes: Votes) -> NDArray[np.float64]:
    """Return the student's probabilities, checked: one row per query, rows in [0, 1] that sum to 1.

    >>> from tellers import Votes
    >>> student_probabilities([[0.5, 0.6]], Votes.from_counts([[2, 1]], n_teachers=3))
    Traceback (most recent call last):
        ...
    ValueError: Expected student probabilities that sum to 1 in every row, which row 0 does not.
    """
    belief = np.asarray(student, dtype=np.float64)
    if belief.shape != votes.counts.shape:
        raise ValueError(
            f"Expected student probabilities of shape (queries, classes) = {votes.counts.shape}, "
            f"got {belief.shape}."
        )
    outside = ~((belief >= 0) & (belief <= 1)).all(axis=1)
    if outside.any():
        raise ValueError(
            f"Expected student probabilities in [0, 1], which row {int(outside.argmax())} is not."
        )
    unequal = np.abs(belief.sum(axis=1) - 1) > 1e-6
    if unequal.any():
        raise ValueError(
            "Expected student probabilities that sum to 1 in every row, "
            f"which row {int(unequal.argmax())} does not."
        )
    return belief
