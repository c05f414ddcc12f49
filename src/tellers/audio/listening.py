"""A student of sounds: labels released within a budget, a network taught with them, its card and its pages.

What costs privacy is the pipeline's: the ledger is charged before noise is drawn, and what was asked before
is read and not drawn again. Here are the settings of such a run, and what is shown of sounds afterwards.
"""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..config import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    ReportConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
)
from ..pipeline import run_voted
from ..pipeline.overlap import Warn
from ..pipeline.steps import Show
from .hearing import Hearing
from .sheets import write_private_sound, write_sound
from .taught import Taught

TAGGER = "tellers.audio.tagger:AudioTagger"
SEMI_SUPERVISED = "multilabel_mixmatch"


def student_config(
    taught: Taught,
    *,
    mechanism: MechanismConfig,
    budget: BudgetConfig,
    n_queries: int = 0,
    model: str = TAGGER,
    parameters: Mapping[str, Any] | None = None,
    private: bool = False,
    seed: int | None = None,
) -> RunConfig:
    """Return the settings of a run that teaches a student of what some teachers said.

    `model` is a tagger, or "multilabel_mixmatch", which learns from all of the pool and not from what was
    told alone. `n_queries` 0 is the whole pool, or as much as the budget pays for.

    >>> import tempfile
    >>> from tellers.audio.collection import features_for, prepare_collection
    >>> from tellers.audio.generator import make_city
    >>> from tellers.audio.taught import Teaching, teach
    >>> place = Path(tempfile.mkdtemp())
    >>> clips = make_city(place / "sounds", 40, seed=7, seconds=0.5)
    >>> collection = prepare_collection(clips, place, features=features_for(rate=16_000, seconds=0.5))
    >>> tagger = {"iterations": 2, "batch_size": 4, "device": "cpu"}
    >>> taught = teach(collection, place / "ears", Teaching(n_teachers=3, seed=7, tagger=tagger), n_jobs=1)
    >>> config = student_config(
    ...     taught, mechanism=MechanismConfig(name="gnthreshold", sigma=2.0),
    ...     budget=BudgetConfig(epsilon=60.0, delta=1e-3), parameters=tagger,
    ... )
    >>> result, hearing = teach_student(taught, place / "study", config)
    >>> result["queries"]["n_asked"], hearing, sorted(p.name for p in (place / "study").glob("*.html"))
    (6, Hearing(n_labels=4), ['report.html', 'sound.html'])
    """
    settings, given = taught.settings, dict(parameters or {})
    if model == TAGGER:
        given["shape"] = list(taught.shape)
    clips = taught.collection.folder.absolute()
    return RunConfig(
        seed=settings.seed if seed is None else seed,
        data=DataConfig(
            name="clips", private=clips.name,
            folder=str(clips.parent), n_public=len(taught.pool),
            n_test=len(taught.test),
        ),
        labels=LabelsConfig(names=taught.label_names, resolution=settings.resolution),
        partition=PartitionConfig(
            n_teachers=settings.n_teachers,
            by="person" if taught.unit == "one source" else "record",
        ),
        teachers=TeachersConfig(
            model=TAGGER, parameters={**settings.tagger, "shape": list(taught.shape)}
        ),
        mechanism=mechanism,
        budget=budget,
        queries=QueriesConfig(n_queries=n_queries),
        student=StudentConfig(
            kind="semi_supervised" if model == SEMI_SUPERVISED else "supervised", model=model,
            parameters=given,
        ),
        report=ReportConfig(private=private),
    )  # fmt: skip


def teach_student(
    taught: Taught,
    folder: str | PathLike[str],
    config: RunConfig,
    *,
    resume: bool = False,
    show: Show | None = None,
    warn: Warn | None = None,
) -> tuple[dict[str, Any], Hearing]:
    """Release labels of the pool, teach a student, write its card and its pages; return numbers and student.

    The folder is that of a run (`tellers report`, `tellers ledger` and the others know it), with `sound.html`
    on top: what the student hears in some test clips, and the curves of every label. With private numbers
    asked for, `private/sound.private.html` shows how likely labels flip, and what that costs.
    See `student_config` for an example.

    >>> teach_student.__name__
    'teach_student'
    """
    voted = taught.voted()
    hearing = Hearing(None, taught.collection.features, taught.label_names)
    result, student = run_voted(
        config, folder, voted=voted, beside={"hearing.json": hearing.to_json()}, resume=resume, show=show,
        warn=warn,
    )  # fmt: skip
    hearing = Hearing(student, taught.collection.features, taught.label_names)
    place, test = Path(folder), voted.tables.test
    if test is not None:
        pictures = np.asarray(test.X).reshape(len(test), *taught.shape)
        write_sound(place / "sound.html", hearing, pictures, truth=test.y)
    if config.report.private:
        with np.load(place / "labels.npz", allow_pickle=False) as file:
            asked = file["rows"]
        write_private_sound(
            place / "private" / "sound.private.html", voted.votes[asked], taught.truth[asked],
            mechanism=config.build_mechanism(), delta=config.budget.delta,
        )  # fmt: skip
    return result, hearing
