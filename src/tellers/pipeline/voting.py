"""Teachers and their votes on the pool: those on disk, or those of teachers that are trained now.

Where a group of upsampling has left, the others vote with teachers trained anew: a round of its own, with a
folder of its own for its partition, its teachers and its votes.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from ..catalogue import make_model
from ..config import RunConfig
from ..personal import Seating, Upsampling
from ..personal.rounds import Names, round_name, round_seed, seat_without
from ..teachers.pool import VotedPool
from ..teachers.store import read_votes, save_votes
from ..votes import Votes
from .data import Tables
from .electorate import Electorate, save_partition
from .folder import RunFolder
from .teaching import taught

Step = Callable[[str], AbstractContextManager[None]]
Progress = Callable[[int, int], object]


@dataclass(frozen=True, eq=False, repr=False)
class Voting:
    """Where the votes of a run come from, round by round; who is absent names the round.

    `step` and `progress` are told what goes on: "teachers" and "votes" at first, "anew" afterwards.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from tellers.config import DataConfig, PartitionConfig, TeachersConfig
    >>> from tellers.pipeline.data import read_tables
    >>> from tellers.pipeline.electorate import seat_teachers
    >>> config = RunConfig(
    ...     data=DataConfig(name="breast_cancer", n_public=20, n_test=100),
    ...     partition=PartitionConfig(n_teachers=5), teachers=TeachersConfig(model="naive_bayes"),
    ... )
    >>> tables, folder = read_tables(config.data, seed=7), RunFolder(Path(tempfile.mkdtemp()))
    >>> with folder.held():
    ...     voting = Voting(config, tables, folder, seat_teachers(config, tables))
    ...     voting.votes(), voting.anew(None, ()), voting.cast(()), voting.test_votes(())
    (Votes(<private>, n_queries=20, n_teachers=5, n_classes=2),
     VotedPool(n_rows=20, n_teachers=5, n_classes=2),
     (Electorate(plain, n_teachers=5), Votes(<private>, n_queries=20, n_teachers=5, n_classes=2)),
     None)
    >>> voting.place(()).votes.exists()
    True
    """

    config: RunConfig
    tables: Tables
    folder: RunFolder
    electorate: Electorate
    step: Step | None = None
    progress: Callable[[str], Progress] | None = None

    def place(self, absent: Names) -> RunFolder:
        """Return the folder with teachers and votes of a round."""
        plan = self.electorate.plan
        return self.folder.of_round(round_name(plan, absent)) if isinstance(plan, Upsampling) else self.folder

    def seated(self, absent: Names) -> Electorate:
        """Return who learns from whom in a round: all groups, or those who did not leave.

        >>> from tellers.teachers.partition import partition
        >>> plain = Electorate(partition(10, 2, seed=7))
        >>> Voting(RunConfig(), None, None, plain).seated(()) is plain
        True
        """
        plan, consent = self.electorate.plan, self.electorate.consent
        if not absent or consent is None or not isinstance(plan, Upsampling):
            return self.electorate
        return self._at(seat_without(plan, consent, absent, seed=self.config.seed))

    def votes(self, absent: Names = ()) -> Votes:
        """Return the votes of the first round on the pool, and see that there are those on the test rows."""
        place, tables = self.place(absent), self.tables
        on_test = tables.test.X if self.config.report.private and tables.test is not None else None
        if not place.votes.exists() or not (on_test is None or place.test_votes.exists()):
            with ExitStack() as teachers:
                with self._step("teachers"):
                    ask = teachers.enter_context(self._trained(self.seated(absent), absent, "teachers"))
                with self._step("votes"):
                    save_votes(place.votes, ask(tables.pool, self._progress("votes")))
                    if on_test is not None:
                        save_votes(place.test_votes, ask(on_test, None))
        return self._read(absent)

    def anew(self, seating: Seating, absent: Names) -> VotedPool:
        """Return the votes of a round, for a room: what `Rounds` asks for."""
        place = self.place(absent)
        if not place.votes.exists():
            with self._step("anew"), self._trained(self._at(seating), absent, "anew") as ask:
                save_votes(place.votes, ask(self.tables.pool, None))
        return VotedPool(self._read(absent))

    def cast(self, absent: Names) -> tuple[Electorate, Votes]:
        """Return who learned from whom in a round that was asked, and its votes on the pool."""
        return self.seated(absent), self._read(absent)

    def test_votes(self, absent: Names) -> Votes | None:
        """Return the votes of the first round on the test rows, where they were wanted."""
        place = self.place(absent)
        if self.tables.test is None or not place.test_votes.exists():
            return None
        return read_votes(place.test_votes, n_classes=self.tables.private.n_classes).votes

    def _step(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.step is None else self.step(name)

    def _read(self, absent: Names) -> Votes:
        return read_votes(self.place(absent).votes, n_classes=self.tables.private.n_classes).votes

    def _at(self, seating: Seating) -> Electorate:
        return replace(self.electorate, partition=seating.partition, source=seating.source, plan=seating.plan)

    def _progress(self, step: str) -> Progress | None:
        return None if self.progress is None else self.progress(step)

    def _trained(self, electorate: Electorate, absent: Names, step: str) -> AbstractContextManager[Any]:
        chosen, data, place = self.config.teachers, self.tables.private, self.place(absent)
        if place.round:
            place.votes.parent.mkdir(exist_ok=True, mode=0o700)
            save_partition(place.partition, electorate)
        model = make_model(
            chosen.model, chosen.parameters, n_classes=data.n_classes, image_shape=data.image_shape
        )
        return taught(
            self.config, model, electorate.rows(data.X), electorate.rows(data.y),
            partition=electorate.partition, n_classes=data.n_classes,
            seed=round_seed(self.config.seed, absent), folder=place, pool=self.tables.pool,
            progress=self._progress(step),
        )  # fmt: skip
