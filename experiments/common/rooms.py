"""A room over recorded ballots: what the library's own door and labelling see in these experiments."""

from dataclasses import dataclass

import numpy as np

from tellers import Accountant, Budget, MemoryLedger, Room, Votes, noise
from tellers.mechanisms import Mechanism


@dataclass(frozen=True, eq=False)
class Recorded:
    """Teachers whose ballots on the pool are on file: asked by row number."""

    votes: Votes

    @property
    def n_classes(self) -> int:
        """Return how many classes there are."""
        return self.votes.n_classes

    def vote(self, rows: np.ndarray) -> Votes:
        """Return the ballots on some rows of the pool."""
        return self.votes[np.asarray(rows)]


def open_room(votes: Votes, mechanism: Mechanism, *, delta: float, seed: int, epsilon: float = 1e3) -> Room:
    """Return a room with seeded noise and a budget that ends nothing unless it is given."""
    ledger = MemoryLedger(Accountant(Budget(epsilon=epsilon, delta=delta)), allow_seeded=True)
    return Room(Recorded(votes), mechanism, ledger, noise.seeded(seed))
