"""The folder of a run: public and private files, one run at a time, the private record, and copied rows."""

import hashlib
import json
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..data._overlap import count_copies
from ..privacy._files import write_whole
from ..privacy.sealed import Sealed
from ..teachers.store import hold
from ._tables import LabelTables, Tables
from .result import PUBLICATION, write_json
from .settings.sections import RunConfig


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it makes. Everything under `private` is as private as the data."""

    path: Path
    round: str = ""

    def of_round(self, name: str) -> "RunFolder":
        """Return the folder as a round of teachers trained anew has it: teachers and votes of its own."""
        return replace(self, round=name)

    @property
    def config(self) -> Path:
        """Return where the settings of the run are."""
        return self.path / "config.toml"

    @property
    def labels(self) -> Path:
        """Return where the released labels are."""
        return self.path / "labels.npz"

    @property
    def student(self) -> Path:
        """Return the folder of the student and its card."""
        return self.path / "student"

    @property
    def result(self) -> Path:
        """Return where the public numbers are."""
        return self.path / "result.json"

    @property
    def plan(self) -> Path:
        """Return where the plan is by which groups of people take part, if they have budgets of their own."""
        return self.path / "plan.json"

    @property
    def publication(self) -> Path:
        """Return where it is kept what was published of the costs of groups."""
        return self.path / PUBLICATION

    @property
    def private(self) -> Path:
        """Return the folder of everything that must not leave."""
        return self.path / "private"

    @property
    def identity(self) -> Path:
        """Return where a fingerprint of the data and the partition is."""
        return self.private / "made_of.json"

    @property
    def partition(self) -> Path:
        """Return where the rows of each teacher are."""
        return self.private / self.round / "partition.npz"

    @property
    def teachers(self) -> Path:
        """Return the folder of the teachers."""
        return self.private / self.round / "teachers"

    @property
    def votes(self) -> Path:
        """Return where the votes on the pool are."""
        return self.private / self.round / "votes.npz"

    @property
    def test_votes(self) -> Path:
        """Return where the votes on the test rows are, if they were asked for."""
        return self.private / self.round / "test_votes.npz"

    @property
    def training(self) -> Path:
        """Return the folder of students that are still being taught."""
        return self.private / "training"

    def lesson(self, settings: object) -> Path:
        """Return the folder of a student that is being taught by some settings; others have another."""
        return self.training / hashlib.sha256(repr(settings).encode()).hexdigest()[:16]

    @property
    def summary(self) -> Path:
        """Return where the private numbers are."""
        return self.private / "summary.json"

    @property
    def record(self) -> Path:
        """Return where it is kept what the operator alone may know: see `tellers.runs._folder`."""
        return self.private / "record.json"

    @property
    def key(self) -> str:
        """Return the name of this run on its ledger, drawn once and kept: no two runs share a question."""
        place = self.path / "key.txt"
        if not place.exists():
            write_whole(place, secrets.token_hex(8).encode(), shared=True)
        return place.read_text()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep other runs out of it; the hold ends with the process, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.private.mkdir(exist_ok=True, mode=0o700)
        with hold(self.private / ".lock", place=self.path, who="another run"):
            yield


# The private record
#
# Whether teachers could learn, how many public rows are copies of private ones and which clips are alike are
# facts about private rows. A run neither prints nor returns them, and goes on whatever they are: they are
# written to one file in its private folder, which is there after every run. So that it is there says nothing.


FIRST = "first"
"""The name of the first round, which is that of all teachers where none are trained anew."""


def say_where(place: Path) -> str:
    """Return the line that tells the operator of the record, the same in every run."""
    return (
        "Teachers that could not learn, and public rows that are copies of private ones, are written to "
        f"{place}, whether there are any or not. It is as private as the rows."
    )


def keep_record(folder: RunFolder, **found: Any) -> None:
    """Write parts of the record down, and leave its other parts as they are."""
    there = json.loads(folder.record.read_bytes()) if folder.record.exists() else {}
    write_json(folder.record, {**there, **found}, public=False)


def keep_troubles(folder: RunFolder, troubles: Sealed[dict[int, str]]) -> None:
    """Write down which teachers of a round voted by the rule, and why."""
    there: Mapping[str, Any] = {}
    if folder.record.exists():
        there = json.loads(folder.record.read_bytes()).get("teachers", {})
    now = {str(number): why for number, why in sorted(troubles.reveal().items())}
    keep_record(folder, teachers={**there, folder.round or FIRST: now})


# Public rows that are copies of private ones

Warn = Callable[[str], object]


def check_overlap(config: RunConfig, tables: Tables | LabelTables, folder: RunFolder) -> None:
    """Count pool and test rows that are exact copies of private rows, for the record, or refuse them.

    What protects a private row does not protect its copy in a public table. The number looks at private rows:
    it is written to the private record of the run, beside what is known of alike clips, and told to nobody.
    A refusal, which the operator has to ask for, tells that there are some: one bit, and no number.
    """
    private = tables.private.X
    copies = {
        "pool": count_copies(tables.pool, private).reveal(),
        "test": 0 if tables.test is None else count_copies(tables.test.X, private).reveal(),
    }
    keep_record(folder, copies=copies, notes=list(tables.withheld))
    if config.data.overlap == "refuse" and any(copies.values()):
        raise ValueError(
            f"{config.where('data', 'overlap')}: Expected public rows that are none of the private ones, but "
            f"some of the pool or the test are copies of them; {folder.record} says how many. What is public "
            "is not protected, and labels of such rows say what the private ones were. Take them out of one "
            "of the two tables, unless rows with so few features are bound to meet. Or take overlap = "
            '"warn". That there are some is a fact about private rows: keep it to yourself.'
        )


def tell_units(tables: Tables | LabelTables, warn: Warn | None = None) -> None:
    """Warn where clips of one source were told to be dealt one by one; the card says the same."""
    for note in () if tables.private.places is None else tables.private.places.notes:
        if warn is None:
            warnings.warn(note, UserWarning, stacklevel=3)
        else:
            warn(note)
