"""An assumed consensus: votes made up from public assumptions, to plan with before real ones exist."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count, require_fraction, require_positive
from ..votes import Votes


@dataclass(frozen=True)
class Consensus:
    """How much the teachers are expected to agree, as a distribution over queries.

    On each query a teacher is right with a probability drawn from a Beta distribution of mean
    `agreement`; `concentration` below 2 makes a few queries hard and most easy, as in practice. Wrong
    votes favour one wrong class (`focus` is its share) and spread over the others.

    The default profile resembles 250 small networks on handwritten digits. Nothing in it comes from
    private data; a better assumption gives a better plan, a wrong one only a worse plan.

    >>> Consensus()
    Consensus(agreement=0.9, concentration=1.5, focus=0.6)
    """

    agreement: float = 0.9
    concentration: float = 1.5
    focus: float = 0.6

    def __post_init__(self) -> None:
        require_fraction(agreement=self.agreement, focus=self.focus)
        require_positive(concentration=self.concentration)

    def votes(
        self, n_teachers: int, n_classes: int, *, n_queries: int, seed: int
    ) -> tuple[Votes, NDArray[np.int64]]:
        """Return made-up votes and the classes that were right.

        >>> votes, truth = Consensus().votes(50, 10, n_queries=4, seed=7)
        >>> votes.n_teachers, truth.shape
        (50, (4,))
        """
        require_count(n_teachers=n_teachers, n_queries=n_queries)
        require_count(2, n_classes=n_classes)
        rng = np.random.default_rng(seed)
        right = rng.beta(
            self.concentration * self.agreement, self.concentration * (1 - self.agreement), size=n_queries
        )
        truth = rng.integers(n_classes, size=n_queries)
        rival = (truth + rng.integers(1, n_classes, size=n_queries)) % n_classes
        chances = np.full((n_queries, n_classes), 1.0 / max(1, n_classes - 2))
        chances *= ((1 - right) * (1 - self.focus))[:, None]
        rows = np.arange(n_queries)
        chances[rows, rival] = (1 - right) * (self.focus if n_classes > 2 else 1.0)
        chances[rows, truth] = right
        chances /= chances.sum(axis=1, keepdims=True)
        edges = np.cumsum(chances, axis=1)[:, :-1]
        ballots = np.zeros((n_teachers, n_queries), dtype=np.int64)
        for teacher in range(n_teachers):
            draws = rng.random((n_queries, 1))
            ballots[teacher] = (draws > edges).sum(axis=1)
        return Votes.from_ballots(ballots, n_classes=n_classes), truth
