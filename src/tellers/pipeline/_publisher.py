"""What every kind of run must know for its cost to be published."""

from os import PathLike
from typing import Protocol

from ..card.published import PublishedCost
from ..label_votes import LabelVotes
from ..ledger.base import Entry
from ..ledger.chained import ChainedLedger
from ..noise import Noise
from ..publishable import Method
from ..smooth import PublishPlan
from ..votes import Votes
from ._bills import Bill
from .closed import ClosedRun
from .closed_pool import ClosedPool


class Publisher(Protocol):
    """What one kind of run knows about publishing its cost; see `PoolPublisher` and `GroupPublisher`."""

    @property
    def run(self) -> ClosedRun | ClosedPool:
        """Return the finished run."""
        ...

    @property
    def kind(self) -> str:
        """Return what it released: classes, labels, or to groups."""
        ...

    def require(self, ledger: ChainedLedger) -> None:
        """Refuse a run of which no cost can be published."""
        ...

    def n_queries(self, ledger: ChainedLedger) -> int:
        """Return how many queries the cost is of."""
        ...

    def plan(
        self,
        ledger: ChainedLedger,
        *,
        method: Method | None,
        confidence: float,
        proxy: "Votes | LabelVotes | str | PathLike[str] | None",
    ) -> tuple[PublishPlan, tuple[str, ...]]:
        """Return a plan that can be paid, made of public numbers."""
        ...

    def bill(self, ledger: ChainedLedger, plan: PublishPlan, noise_name: str) -> Bill:
        """Return what a plan costs."""
        ...

    def release(self, ledger: ChainedLedger, plan: PublishPlan, noise: Noise) -> list[float]:
        """Draw the noise."""
        ...

    def independent(self, ledger: ChainedLedger) -> list[tuple[float, float]]:
        """Return public prices."""
        ...

    def lines(
        self, ledger: ChainedLedger, uppers: list[float], charged: list[float], entry: Entry | None
    ) -> tuple[PublishedCost, ...]:
        """Return what is told."""
        ...
