"""One whole run: data, partition, teachers, votes, labels, student, and what it cost.

Every step leaves something whole in the folder, so a run that was killed goes on where it was: teachers and
votes are not made again, and what is on the ledger is read from there, never charged twice.
"""

from os import PathLike
from pathlib import Path
from typing import Any

from ..config import RunConfig
from ..config.sections import CLIPS
from ..datasets.clips import hearing_of
from .beginning import begin
from .classes import ShowGroups, run_classes
from .folder import RunFolder
from .labels import run_labels
from .outcome import write_outcome
from .overlap import Warn
from .publishing import with_published
from .steps import Show, Steps


def run(
    config: RunConfig,
    folder: str | PathLike[str],
    *,
    resume: bool = False,
    show: Show | None = None,
    show_groups: ShowGroups | None = None,
    warn: Warn | None = None,
) -> dict[str, Any]:
    """Do everything that a config says, in a folder, and return the public numbers of `result.json`.

    With `resume` a run that was cut short goes on: it must be the same config on the same data. Of a run that
    was finished nothing is done twice. `show(step, done, total)` is called as the steps go on, and where
    people have budgets of their own, `show_groups(rows, lines)` before anything is trained: a row per group,
    a line on the plan, one on each group, and warnings. `warn(words)` is told if clips of one source are
    dealt one by one; without it that is a Python warning.

    Nothing in the private rows stops a run: every teacher votes, one that could not learn by a public rule
    (`tellers.teachers.fallback`). Who that was, and how many public rows are copies of private ones, is in
    `private/record.json`, which every run writes, and nowhere else.

    Guarantee: all releases together keep to the budget of the ledger, whenever and however often the run was
               killed; partitions and teachers are the same as without interruption.
    Assumes:   the rows were prepared without a look at private ones; pool and test rows are public; the
               settings were not tuned on private results.
    Reference: Papernot et al. 2017, section 2; Papernot et al. 2018, section 2.

    >>> import tempfile
    >>> from tellers.config import DataConfig, PartitionConfig, RunConfig
    >>> small = RunConfig(
    ...     data=DataConfig(name="breast_cancer", n_public=100, n_test=100),
    ...     partition=PartitionConfig(n_teachers=40),
    ... )
    >>> result = run(small, tempfile.mkdtemp())
    >>> result["spent"]["epsilon"] <= 8.0, result["student"]["accuracy"] > 0.5
    (True, True)
    """
    place = RunFolder(Path(folder))
    with place.held():
        begin(place, config, resume=resume)
        state = Steps(show or _silent)
        if config.labels.names:
            result, student, numbers = run_labels(config, place, state, warn)
        else:
            result, student, numbers = run_classes(config, place, state, warn, show_groups=show_groups)
        result = with_published(result, place, config)
        with state.step("report"):
            write_outcome(place, result=result, student=student, numbers=numbers, beside=_beside(config))
    return result


def _beside(config: RunConfig) -> dict[str, bytes] | None:
    """Return the files that go with a student of sounds, so that it can be handed a recording."""
    if config.data.name != CLIPS or config.data.private_path is None:
        return None
    return hearing_of(config.data.private_path, config.labels.names or config.data.classes)


def _silent(_step: str, _done: int, _total: int) -> None:
    return None
