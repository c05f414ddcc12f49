"""Interactive-GNMax: answer only where the teachers contradict the student."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy.noise import Noise
from ..privacy.rdp import Floats
from ..privacy.release import SILENT, Release
from ..privacy.votes import Integers, Votes
from ._check import student_probabilities, whole_thresholds
from ._fields import check_sigma, noise_sigma, silence_share
from ._gaussian import CheckedArgmax
from ._outcomes import Outcomes
from .confident import ConfidentGNMax
from .gap_bounds import margin_envelope
from .registry import parameter, register
from .sensitivity import CheckedMargins


@register("interactive", "confident, and only where the student is wrong or unsure")
@dataclass(frozen=True, repr=False)
class InteractiveGNMax(CheckedArgmax):
    """Answer where the votes exceed the student's expectation; else confirm a sure student, or stay silent.

    The check compares max_j (n_j - K p_j) with the threshold, p being the student's probabilities.
    Where it fails, a student surer than `student_confidence` keeps its own label at no further cost.

    Guarantee: one query costs at most `price`, whatever the student believes: as `ConfidentGNMax`.
    Assumes:   the student's probabilities depend on released labels and public data only; one unit
               moves one vote. Queries chosen by earlier answers make exact costs sums along the path.
    Reference: Papernot et al. 2018, Algorithm 2 and section 4.3. "The joint price of a check and its answer".

    >>> from tellers import Votes, noise
    >>> votes = Votes.from_counts([[240, 10], [240, 10]], n_teachers=250)
    >>> mechanism = InteractiveGNMax(sigma=5.0, threshold=90, sigma_threshold=9.0, student_confidence=0.8)
    >>> release = mechanism.release(votes, noise.seeded(7), student=[[0.4, 0.6], [0.9, 0.1]])
    >>> release.labels, release.answered
    (array([0, 0]), array([ True, False]))
    >>> even = {"student": [[0.5, 0.5], [0.5, 0.5]]}
    >>> mechanism.checked_against(votes, **even)[0], mechanism.margins(votes, n_votes=250, **even).margins
    (array([215, 215]), array([25, 25]))
    >>> np.exp(mechanism.outcomes(votes, **even).log_labels[0]).round(3)
    array([0.002, 0.998, 0.   ])
    >>> mechanism.warm_up(20.0)
    ConfidentGNMax(sigma=5.0, threshold=20.0, sigma_threshold=9.0)
    """

    sigma: float = noise_sigma(example=40.0)
    threshold: float = parameter(
        "votes the noisy top count must reach beyond the student's share", example=100.0, in_votes=1
    )
    sigma_threshold: float = check_sigma(example=150.0)
    student_confidence: float = parameter(
        "a student surer than this keeps its own label", least=0, most=1, example=0.8
    )
    expected_silence: float | None = silence_share()
    checked_by: ClassVar[Literal["classes", "margin"]] = "margin"

    def release(self, votes: Votes, noise: Noise, *, student: ArrayLike) -> Release:
        """Check every query against the student, answer those that differ, and charge both."""
        belief = student_probabilities(student, votes)
        sure = belief.max(axis=1) > self.student_confidence
        labels = np.where(sure, belief.argmax(axis=1), SILENT).astype(np.int64)
        return self._release(votes, noise, thresholds=self._thresholds(votes, belief), labels=labels)

    def outcomes(self, votes: Votes, *, student: ArrayLike) -> Outcomes:
        """Return how likely each answer and no answer are, at these votes and at every neighbour.

        A confirmed label and silence are one outcome: which of the two it is depends on the student
        alone, and `log_labels` lists it first.
        """
        return self._outcomes(votes, self.checked_against(votes, student))

    def checked_against(self, votes: Votes, student: ArrayLike | None = None) -> Integers:
        """Return the whole threshold of every count, (queries, classes): it moves with the student."""
        if student is None:
            raise ValueError("Expected the student's probabilities (queries x classes), got none.")
        return self._thresholds(votes, student_probabilities(student, votes))

    def _checked_envelope(
        self, answers: Floats, votes: Votes, student: ArrayLike | None, **how: Any
    ) -> tuple[Floats, Integers]:
        """Return the envelope over margins and gaps."""
        found = self.margins(votes, student, votes.n_teachers)
        limits = {"order": how["order"], "sigma_threshold": found.sigma, "weight": how["weight"]}
        table = margin_envelope(answers, found.lowest, found.highest, **limits)
        return table, found.margins - found.lowest

    def warm_up(self, threshold: float) -> ConfidentGNMax:
        """Return what answers while there is no student to hear: confident voting with the same noise."""
        return ConfidentGNMax(self.sigma, threshold, self.sigma_threshold, self.expected_silence)

    def _thresholds(self, votes: Votes, belief: NDArray[np.float64]) -> Integers:
        return whole_thresholds(self.threshold, votes.n_votes[:, None] * belief)

    def margins(self, votes: Votes, student: ArrayLike | None, n_votes: int) -> CheckedMargins:
        """Return the margins beyond the student's share, and their least and largest: public."""
        thresholds = self.checked_against(votes, student)
        highest = (votes.n_votes - thresholds.min(axis=1)).max()
        # The largest of m differences is at least their mean.
        lowest = (-((thresholds.sum(axis=1) - votes.n_votes) // votes.n_classes)).min()
        margins = (votes.counts - thresholds).max(axis=1)
        return CheckedMargins(self.sigma_threshold, margins, int(lowest), int(highest))
