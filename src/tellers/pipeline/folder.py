"""The folder of a run: what is public in it, what is private, and one run at a time."""

import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..card.published import FILE
from ..teachers.store import hold, write_whole


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it makes. Everything under `private` is as private as the data.

    >>> folder = RunFolder(Path("study"))
    >>> folder.result.as_posix(), folder.votes.as_posix()
    ('study/result.json', 'study/private/votes.npz')
    """

    path: Path
    round: str = ""

    def of_round(self, name: str) -> "RunFolder":
        """Return the folder as a round of teachers trained anew has it: teachers and votes of its own.

        >>> RunFolder(Path("study")).of_round("without_0").votes.as_posix()
        'study/private/without_0/votes.npz'
        """
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
        return self.path / FILE

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
        """Return the folder of a student that is being taught by some settings; others have another.

        >>> RunFolder(Path("study")).lesson("vat") == RunFolder(Path("study")).lesson("gan")
        False
        """
        return self.training / hashlib.sha256(repr(settings).encode()).hexdigest()[:16]

    @property
    def summary(self) -> Path:
        """Return where the private numbers are."""
        return self.private / "summary.json"

    @property
    def record(self) -> Path:
        """Return where it is kept what the operator alone may know: see `tellers.pipeline.record`."""
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
        """Make the folder and keep other runs out of it; the hold ends with the process, however it ends.

        >>> import tempfile
        >>> folder = RunFolder(Path(tempfile.mkdtemp()) / "study")
        >>> with folder.held():
        ...     folder.private.is_dir()
        True
        """
        self.path.mkdir(parents=True, exist_ok=True)
        self.private.mkdir(exist_ok=True, mode=0o700)
        with hold(self.private / ".lock", place=self.path, who="another run"):
            yield


def write_json(path: Path, content: Mapping[str, Any], *, public: bool) -> None:
    """Write numbers for machines; infinities and NaN are refused, since JSON has none.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "note.json"
    >>> write_json(path, {"epsilon": 1.5}, public=False)
    >>> path.stat().st_mode & 0o777 == 0o600
    True
    """
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_whole(path, text.encode(), shared=public)
