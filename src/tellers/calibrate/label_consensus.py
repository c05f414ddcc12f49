"""An assumed consensus on many labels: votes made up from public assumptions, to plan with."""

from dataclasses import dataclass

import numpy as np

from ..errors import require_count, require_fraction, require_positive
from ..label_votes import LabelVotes


@dataclass(frozen=True)
class LabelConsensus:
    """How much the teachers are expected to agree on each label, as a distribution over queries and labels.

    A label is right with probability `positive`. Of a label that is right a teacher says yes with a
    probability drawn from a Beta distribution of mean `found`, of one that is not with mean `spurious`;
    `concentration` below 2 makes a few labels hard and most easy, as in practice.

    Nothing in it comes from private data; a wrong assumption only gives a worse plan.

    >>> LabelConsensus()
    LabelConsensus(positive=0.1, found=0.8, spurious=0.08, concentration=4.0)
    """

    positive: float = 0.1
    found: float = 0.8
    spurious: float = 0.08
    concentration: float = 4.0

    def __post_init__(self) -> None:
        require_fraction(positive=self.positive, found=self.found, spurious=self.spurious)
        require_positive(concentration=self.concentration)

    def votes(
        self, n_teachers: int, n_labels: int, *, n_queries: int, seed: int, resolution: int = 1
    ) -> LabelVotes:
        """Return made-up votes; with a `resolution` above 1 teachers give their probability instead of a yes.

        >>> LabelConsensus().votes(50, 22, n_queries=4, seed=7)
        LabelVotes(<private>, n_queries=4, n_teachers=50, n_labels=22)
        """
        require_count(n_teachers=n_teachers, n_labels=n_labels, n_queries=n_queries)
        rng = np.random.default_rng(seed)
        right = rng.random((n_queries, n_labels)) < self.positive
        mean = np.where(right, self.found, self.spurious)
        chance = rng.beta(self.concentration * mean, self.concentration * (1 - mean))
        shape = (n_teachers, n_queries, n_labels)
        if resolution > 1:
            spread = rng.beta(8 * np.clip(chance, 0.01, 0.99), 8 * np.clip(1 - chance, 0.01, 0.99), shape)
            return LabelVotes.from_ballots(spread, n_labels=n_labels, resolution=resolution)
        return LabelVotes.from_ballots(rng.random(shape) < chance, n_labels=n_labels)
