"""A student of sounds: taught from released labels within a budget, exported, and asked for tags."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ...ledger.opening import is_url
from .._folder import RunFolder, Warn, require_left
from ..pipeline import Show, charged_to, check_voted, run_voted
from ..report.sweep import write_votes
from ..result import RunResult
from ..settings.files import config_as_dict, read_config, with_absolute_paths
from ..settings.labels import LabelsConfig
from ..settings.mechanism import MechanismConfig
from ..settings.sections import (
    BudgetConfig,
    DataConfig,
    PartitionConfig,
    QueriesConfig,
    ReportConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
)
from .tagging import Hearing
from .teaching import MAY_CHANGE, Taught, books_of, settle_books

# --- A student of sounds: labels released within a budget, a network taught with them, its card and its
# pages.
#
# What costs privacy is the pipeline's: the ledger is charged before noise is drawn, and what was asked before
# is read and not drawn again. Here are the settings of such a run, and what is shown of sounds afterwards.


TAGGER = "tellers.runs.sound:AudioTagger"
CLASSIFIER = "tellers.runs.sound:audio_classifier"
SEMI_SUPERVISED = ("mean_teacher", "mixmatch", "multilabel_mixmatch", "vat")


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
    told alone; where clips have one class each, a classifier made of the tagger, or "mixmatch",
    "mean_teacher" or "vat". `n_queries` 0 is the whole pool, or as much as the budget pays for.

    >>> import tempfile
    >>> from tellers.data.sound import features_for, prepare_collection
    >>> from tellers.data.sound import make_city
    >>> from tellers.runs.sound import Teaching, teach
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
    >>> result.queries.n_asked, hearing, sorted(p.name for p in (place / "study").glob("*.html"))
    (6, Hearing(n_labels=4), ['report.html', 'sound.html'])
    """
    settings, given = taught.settings, dict(parameters or {})
    one_class, names = settings.one_class, taught.label_names
    own: dict[str, Any] = {"shape": list(taught.shape)}
    if one_class:
        own["n_classes"] = len(names)
    if model == TAGGER:
        model, given = CLASSIFIER if one_class else TAGGER, given | own
    clips = taught.collection.folder.absolute()
    return RunConfig(
        seed=settings.seed if seed is None else seed,
        data=DataConfig(
            name="clips", private=clips.name,
            folder=str(clips.parent), n_public=len(taught.pool),
            n_test=len(taught.test), classes=names if one_class else (),
            options={"by_clip": True} if taught.partition().notes else {},
        ),
        labels=LabelsConfig() if one_class else LabelsConfig(names=names, resolution=settings.resolution),
        partition=PartitionConfig(
            n_teachers=settings.n_teachers,
            by="person" if taught.unit == "one source" else "record",
        ),
        teachers=TeachersConfig(
            model=CLASSIFIER if one_class else TAGGER,
            # Not what another training may change: a student said twice is the same student.
            parameters={k: v for k, v in settings.tagger.items() if k not in MAY_CHANGE} | own,
        ),
        mechanism=mechanism,
        budget=budget,
        queries=QueriesConfig(n_queries=n_queries),
        student=StudentConfig(
            kind="semi_supervised" if model in SEMI_SUPERVISED else "supervised", model=model,
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
) -> tuple[RunResult, Hearing]:
    """Release labels of the pool, teach a student, write its card and its pages; return numbers and student.

    The folder is that of a run (`tellers report`, `tellers ledger` and the others know it), with `sound.html`
    on top: what the student hears in some test clips, and the curves of every label. With private numbers
    asked for, `private/sound.private.html` shows how right the teachers are together without noise, and how
    likely labels, or classes, flip at which cost.

    All students of the same teachers are charged to one ledger, that of `books_of`: a budget that names
    another ledger is for the first of them. Called again with the same settings, it answers from what was
    released and charges nothing. See `student_config` for an example.

    >>> teach_student.__name__
    'teach_student'
    """
    place, wanted = Path(folder), config.budget.ledger
    if wanted == BudgetConfig().ledger:
        wanted = ""
    elif not is_url(wanted):
        wanted = str((place / wanted).absolute())
    voted = taught.voted(wanted)
    config = charged_to(config, voted.ledger, place)
    resume = resume or _is_done(place, config)
    if config.report.private and taught.test.size:
        taught.require_pictures()  # a model of all private clips is told beside the student: see first
    if not (resume or RunFolder(place).config.exists()):
        # All that can be refused is, before books are begun: their budget is for good.
        check_voted(config, voted)
        require_left(config, RunFolder(place), ledger=voted.ledger)
        settle_books(taught.folder, voted.ledger)
        config = charged_to(config, books_of(taught.folder), place)  # somebody else may have been faster
    result, student = run_voted(config, folder, voted=voted, resume=resume, show=show, warn=warn)
    hearing = Hearing(student, taught.collection.features, taught.label_names)
    if config.report.private:
        with np.load(place / "labels.npz", allow_pickle=False) as file:
            asked = file["rows"]
        write_votes(
            place / "private" / "sound.private.html", voted.votes[asked], taught.truth[asked],
            mechanism=config.build_mechanism(), delta=config.budget.delta,
        )  # fmt: skip
    return result, hearing


def _is_done(place: Path, config: RunConfig) -> bool:
    """Say whether these very settings were carried out in a folder: to go on then does nothing that costs."""
    folder = RunFolder(place)
    if not (folder.config.exists() and folder.result.exists()):
        return False
    there, here = read_config(folder.config), with_absolute_paths(config)
    return config_as_dict(there) == config_as_dict(here)
