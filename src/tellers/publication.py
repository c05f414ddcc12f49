"""The record of publications: what was planned, charged and published for one set of votes.

An append-only file of JSON lines, public throughout. The charge is on disk before noise is drawn, so that a
crash in between leaves it charged; the value follows. A second publication of the same votes keeps the
plan of the first, since a plan is fixed before voting, and pays on top of it.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .errors import LedgerConflict
from .mechanisms import Mechanism
from .noise import Noise
from .release import describe
from .smooth import PublishedEpsilon, PublishPlan


@dataclass(frozen=True)
class PublicationRecord:
    """The publications of one set of votes, in a file of their own.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> record = PublicationRecord(Path(folder.name) / "votes.publications.jsonl")
    >>> record.plan(), record.charged
    (None, 0.0)
    """

    path: Path

    def entries(self) -> list[dict[str, Any]]:
        """Return everything on record, oldest first.

        >>> PublicationRecord(Path("nowhere.jsonl")).entries()
        []
        """
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").split("\n")
        entries = []
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                if not isinstance(entry, dict) or entry.get("entry") not in ("charged", "published"):
                    raise ValueError(line)
            except ValueError:
                raise LedgerConflict(
                    f"Expected a record of publications in {self.path.name}, line {number} is not one. "
                    "Nothing was spent. Restore the file, or name another with --record."
                ) from None
            entries.append(entry)
        return entries

    def plan(self) -> PublishPlan | None:
        """Return the plan the first publication fixed, or None.

        >>> PublicationRecord(Path("nowhere.jsonl")).plan() is None
        True
        """
        for entry in self.entries():
            if entry["entry"] == "charged":
                return PublishPlan(**entry["plan"])
        return None

    @property
    def charged(self) -> float:
        """Return the sum of all charges so far, at the order of the plan.

        >>> PublicationRecord(Path("nowhere.jsonl")).charged
        0.0
        """
        return float(sum(entry["charge"] for entry in self.entries() if entry["entry"] == "charged"))

    def charge(self, mechanism: Mechanism, plan: PublishPlan, *, delta: float, noise: Noise) -> None:
        """Write the charge down, durably, before any noise is drawn.

        >>> import tempfile
        >>> from tellers import GNMax, noise
        >>> record = PublicationRecord(Path(tempfile.mkdtemp()) / "votes.publications.jsonl")
        >>> plan = PublishPlan("envelope", 12.0, 0.02, 30.0, confidence=0.95, expected_epsilon=1.3)
        >>> record.charge(GNMax(sigma=40.0), plan, delta=1e-5, noise=noise.secure())
        >>> record.charged == plan.price
        True
        """
        event = describe(mechanism, noise)
        for entry in self.entries():
            if entry["entry"] == "charged" and (entry["event"], entry["delta"]) != (event, delta):
                raise LedgerConflict(
                    f"Expected the mechanism and delta that {self.path.name} was begun with, got others. "
                    "The plan was fixed for those; use them again, or another --record for other votes."
                )
        self._append(
            {"entry": "charged", "event": event, "delta": delta, "plan": asdict(plan), "charge": plan.price}
        )

    def settle(self, published: PublishedEpsilon) -> None:
        """Write the published value down.

        >>> import tempfile
        >>> record = PublicationRecord(Path(tempfile.mkdtemp()) / "votes.publications.jsonl")
        >>> record.settle(PublishedEpsilon(1.3, 1e-5, 0.95, 12.0, "envelope", 0.1, "both directions"))
        >>> record.entries()[0]["epsilon_upper"]
        1.3
        """
        self._append({"entry": "published", **asdict(published)})

    def _append(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, sort_keys=True, allow_nan=False) + "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
