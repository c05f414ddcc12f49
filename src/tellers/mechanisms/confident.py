"""Confident-GNMax: answer only where the teachers agree, and stay silent elsewhere."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy.noise import Noise
from ..privacy.rdp import Floats
from ..privacy.release import SILENT, Release
from ..privacy.votes import Integers, Votes
from ._check import whole_thresholds
from ._fields import check_sigma, check_threshold, noise_sigma, silence_share
from ._gaussian import CheckedArgmax, require_no_student
from ._outcomes import Outcomes
from .gap_bounds import confident_envelope
from .published import check_margins
from .registry import register
from .sensitivity import CheckedMargins


@register("confident", "gnmax, silent where the teachers do not agree")
@dataclass(frozen=True, repr=False)
class ConfidentGNMax(CheckedArgmax):
    """Answer by GNMax(sigma) where the noisy top count reaches the threshold; else stay silent.

    Guarantee: one query costs at most `price`. Where the numbers of teachers and classes are known that is
               what the whole outcome can cost, less than the check and the answer together. `release`
               charges silence less than an answer, since it is public: its check alone, or what
               `expected_silence` makes of it.
    Assumes:   one unit moves one vote, gives it, or keeps it back; the check's noise has standard deviation
               sigma_threshold.
    Reference: Papernot et al. 2018, Algorithm 1 and section 4.2; the check has sensitivity 1. "The joint
               price of a check and its answer".

    >>> from tellers import Votes, noise
    >>> votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    >>> mechanism = ConfidentGNMax(sigma=5.0, threshold=200, sigma_threshold=9.0)
    >>> mechanism.release(votes, noise.seeded(7)).labels, mechanism.likely_answered(votes)
    (array([ 0, -1]), array([ True, False]))
    >>> mechanism.checked_against(votes)[0], mechanism.margins(votes, None, 250).highest
    (array([200, 200]), 50)
    >>> np.exp(mechanism.outcomes(votes).log_labels).round(3)
    array([[0., 1., 0.],
           [1., 0., 0.]])
    >>> alone, known = mechanism.price(votes.unit), mechanism.price(votes.unit, n_teachers=250, n_classes=2)
    >>> bool((known.values <= alone.values).all()), known.epsilon(1e-5) < 0.8 * alone.epsilon(1e-5)
    (True, True)
    """

    sigma: float = noise_sigma(example=40.0)
    threshold: float = check_threshold(example=200.0)
    sigma_threshold: float = check_sigma(example=150.0)
    expected_silence: float | None = silence_share()
    symmetric: ClassVar[bool] = True
    publishable: ClassVar[tuple[str, ...]] = ("envelope", "gnss")
    confidential: ClassVar[bool] = True

    def release(self, votes: Votes, noise: Noise) -> Release:
        """Check every query, answer those that pass, and charge both."""
        labels = np.full(len(votes), SILENT, dtype=np.int64)
        return self._release(votes, noise, thresholds=self.checked_against(votes), labels=labels)

    def outcomes(self, votes: Votes) -> Outcomes:
        """Return how likely silence and each class are, at these votes and at every neighbour."""
        return self._outcomes(votes, self.checked_against(votes))

    def checked_against(self, votes: Votes, student: ArrayLike | None = None) -> Integers:
        """Return the whole threshold of every count, (queries, classes)."""
        require_no_student(self, student)
        return np.broadcast_to(whole_thresholds(self.threshold), votes.counts.shape)

    def likely_answered(self, votes: Votes) -> NDArray[np.bool_]:
        """Return which queries the check would most likely let through; private."""
        return np.asarray(votes.top >= self.threshold)

    def _checked_envelope(
        self, answers: Floats, votes: Votes, student: ArrayLike | None, **how: Any
    ) -> tuple[Floats, Integers]:
        """Return the envelope over top counts and gaps."""
        require_no_student(self, student)
        table = confident_envelope(
            answers.size - 1, votes.n_classes, sigma=self.sigma, threshold=self.threshold,
            sigma_threshold=self.sigma_threshold, **how,
        )  # fmt: skip
        return table, votes.top

    def margins(self, votes: Votes, student: ArrayLike | None, n_votes: int) -> CheckedMargins:
        """Return the margins of the top counts, and the least and the largest there can be."""
        whole, fewest = math.ceil(self.threshold), -(-n_votes // votes.n_classes)
        margins = check_margins(votes, self.threshold)
        return CheckedMargins(self.sigma_threshold, margins, fewest - whole, n_votes - whole)
