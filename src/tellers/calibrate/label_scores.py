"""What a label mechanism is expected to say, label by label, and how right that is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from ..label_bounds import LabelMechanism
from ..label_votes import LabelVotes
from ..mechanisms.labels import AdaptiveGNThreshold
from ..mechanisms.labels.powerset import SetVoting
from ..metrics import LabelCounts, mean_over_labels
from ..noise import seeded
from ..release import SILENT

Floats = NDArray[np.float64]

# Draws of mechanisms whose chances are not computed label by label.
_DRAWS = 4


@dataclass(frozen=True)
class LabelScores:
    """How right labels are expected to be, silent ones left out.

    `balanced_accuracy` is the mean of the shares of right yes and right no, per label, over labels of which
    there are both; `macro_f1` is over labels that are true, or said to be, somewhere.
    """

    accuracy: float
    balanced_accuracy: float
    micro_f1: float
    macro_f1: float


def label_chances(mechanism: LabelMechanism, votes: LabelVotes, *, seed: int) -> Floats:
    """Return how likely every label is no, yes or silent, (3, queries, labels); private where votes are.

    Computed where labels are decided one by one; else shares of a few draws, from the seed.

    >>> from tellers import Binary
    >>> votes = LabelVotes.from_sums([[48, 25]], n_teachers=50)
    >>> label_chances(Binary(sigma=5.0, n_labels=2), votes, seed=7).round(2).tolist()
    [[[0.0, 0.56]], [[1.0, 0.44]], [[0.0, 0.0]]]
    """
    votes.require_all_labels("a plan")
    if isinstance(mechanism, AdaptiveGNThreshold):
        choice = softmax(mechanism.scores(votes) / (mechanism.scale * mechanism.resolution), axis=1)
        sums, chances = mechanism.at(0).fitted_sums(votes), np.zeros((3, len(votes), votes.n_labels))
        for place, chosen in enumerate(choice.T):
            told = np.exp(mechanism.at(place).law(votes.n_teachers).log_outcomes(sums))
            chances[: len(told)] += told * chosen[:, None]
        return chances
    if isinstance(mechanism, SetVoting):
        source = seeded(seed)
        draws = np.stack([mechanism.release(votes, source).labels for _ in range(_DRAWS)])
        return np.stack([(draws == label).mean(axis=0) for label in (0, 1, SILENT)])
    sums = mechanism.fitted_sums(votes)
    chances = np.zeros((3, *sums.shape))
    told = np.exp(mechanism.law(votes.n_teachers).log_outcomes(sums))
    chances[: len(told)] = told
    gate = getattr(mechanism, "gate", None)
    if gate is not None:
        opened, shut = gate(votes.n_teachers).log_pass_and_fail(sums)
        chances *= np.exp(opened)[:, None]
        chances[2] += np.exp(shut)[:, None]
    return chances


def expected_scores(chances: Floats, truth: ArrayLike) -> LabelScores:
    """Return how right labels of these chances are expected to be, against what is true, (queries, labels).

    Ratios are those of expected numbers.

    >>> sure = np.array([[[0.0, 1.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]])
    >>> expected_scores(sure, [[True, False], [False, True]])
    LabelScores(accuracy=0.75, balanced_accuracy=0.75, micro_f1=0.666..., macro_f1=0.5)
    """
    true = np.asarray(truth, dtype=bool)
    no, yes = chances[0], chances[1]
    counts = LabelCounts(
        hits=(yes * true).sum(axis=0),
        misses=(no * true).sum(axis=0),
        false_alarms=(yes * ~true).sum(axis=0),
        rejections=(no * ~true).sum(axis=0),
    )
    right, micro = np.nan_to_num(counts.together.accuracy[0]), np.nan_to_num(counts.together.f1[0])
    balanced, macro = mean_over_labels(counts.balanced_accuracy), mean_over_labels(counts.f1)
    return LabelScores(
        float(right),
        float(right) if np.isnan(balanced) else balanced,
        float(micro),
        0.0 if np.isnan(macro) else macro,
    )
