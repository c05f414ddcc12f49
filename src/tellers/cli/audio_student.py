"""`tellers audio student`: labels within a budget, a student, its card and its pages."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import audio_options, label_options, options

if TYPE_CHECKING:
    from ..config import BudgetConfig

# Of the ensemble, where nothing is said: a label that all teachers agree on comes out right 39 times in 40.
_USUAL_NOISE = 0.25
# What can be asked of teachers that name one class each.
_OF_CLASSES = (options.MechanismName.gnmax, options.MechanismName.confident)


class Learner(StrEnum):
    """What learns from released labels."""

    tagger = "tagger"
    multilabel_mixmatch = "multilabel_mixmatch"
    mixmatch = "mixmatch"
    mean_teacher = "mean_teacher"
    vat = "vat"


# Those that learn from all of the pool: many labels, and one class each.
_WHOLE_POOL = {
    False: (Learner.multilabel_mixmatch,),
    True: (Learner.mixmatch, Learner.mean_teacher, Learner.vat),
}


def student(
    ears: Annotated[
        Path, typer.Argument(metavar="EARS", help="The folder of `tellers audio train`.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the run: labels, student, report.")
    ] = Path("study"),
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="The budget of all students of these teachers together.")
    ] = 8.0,
    delta: Annotated[
        float, typer.Option("--delta", help="Failure probability, well below 1 / private clips.")
    ] = 1e-4,
    ledger: Annotated[
        str,
        typer.Option(
            "--ledger",
            metavar="WHERE",
            help="For the first student of these teachers: a file or a database that all of them are charged "
            "to. Without it: ledger.db in EARS.",
        ),
    ] = "",
    queries: Annotated[
        int, typer.Option("--queries", help="Ask so many; 0: as the budget and the pool allow.", min=0)
    ] = 0,
    mechanism: options.Mechanism = None,
    sigma: Annotated[
        float | None,
        typer.Option(
            "--sigma",
            help="Gaussian noise on every sum, in votes. Without it: a quarter of the teachers.",
            rich_help_panel="Mechanism",
        ),
    ] = None,
    threshold: options.Threshold = None,
    sigma_threshold: options.SigmaThreshold = None,
    max_norm: label_options.MaxNorm = None,
    norm: label_options.Norm = None,
    max_labels: label_options.MaxLabels = None,
    share: label_options.Share = None,
    shares: label_options.Shares = None,
    scale: label_options.Scale = None,
    n_top: label_options.NTop = None,
    confident_share: label_options.ConfidentShare = None,
    sigma_gate: label_options.SigmaGate = None,
    learner: Annotated[
        Learner,
        typer.Option(
            "--student",
            help="tagger: from what was told. multilabel_mixmatch (one class: mixmatch, mean_teacher, vat): "
            "from all of the pool.",
            rich_help_panel=audio_options.NETWORK,
        ),
    ] = Learner.tagger,
    network: Annotated[
        str, typer.Option("--network", help="tagger: as for train.", rich_help_panel=audio_options.NETWORK)
    ] = "small",
    iterations: audio_options.Iterations = 200,
    batch_size: audio_options.BatchSize = 16,
    learning_rate: audio_options.LearningRate = 3e-3,
    pretrained: audio_options.Pretrained = None,
    held_out: audio_options.HeldOut = 0.0,
    log_folder: audio_options.LogFolder = None,
    device: audio_options.Device = "auto",
    private: Annotated[
        bool, typer.Option("--private", help="Write private pages and numbers too, for the operator's eyes.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was cut short; begin it if there is none.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Release labels of the pool within a budget, and teach a student that may leave.

    Every answer is charged to the ledger before noise is drawn, and all students of the same teachers to the
    same ledger: a second one pays from what the first left of the budget. The folder is that of a run: the
    released labels, the student with its model card, report.html, and sound.html with what the student hears
    and the curves of every label. No teacher is asked again: what they said is kept. Said twice, it answers
    from what was released and charges nothing. Without --mechanism it is gnthreshold, and gnmax of teachers
    that were trained with --one-class.

    Example: tellers audio student ears --out study --epsilon 8 --delta 1e-4
    """
    from ..audio.listening import TAGGER, student_config, teach_student
    from ..audio.sheets import SOUND_PAGE
    from ..audio.taught import read_taught
    from ..config import MechanismConfig
    from .outcome import say_record, say_warning, steps_shown, tell, tell_sound

    taught = read_taught(ears)
    name = _mechanism(mechanism, one_class=taught.settings.one_class)
    _require_learner(learner, one_class=taught.settings.one_class)
    given = {
        "sigma": _USUAL_NOISE * taught.settings.n_teachers if sigma is None else sigma,
        "threshold": threshold, "sigma_threshold": sigma_threshold, "max_norm": max_norm, "norm": norm,
        "max_labels": max_labels, "share": share, "shares": shares, "scale": scale, "n_top": n_top,
        "confident_share": confident_share, "sigma_gate": sigma_gate,
    }  # fmt: skip
    options.require_parameters(name, given)
    values = {p: label_options.parsed(p, value) for p, value in given.items() if value is not None}
    config = student_config(
        taught, mechanism=MechanismConfig(name=name, **values),
        budget=_budget(epsilon, delta, ledger), n_queries=queries,
        model=TAGGER if learner is Learner.tagger else learner.value,
        parameters=_parameters(
            learner, network=network, iterations=iterations, batch_size=batch_size,
            learning_rate=learning_rate, device=device,
            more=audio_options.network_options(
                iterations=iterations, pretrained=pretrained, held_out=held_out, log_folder=log_folder
            ),
        ),
        private=private,
    )  # fmt: skip
    say_record(out / "private" / "record.json")
    with steps_shown(wanted=not as_json) as show:
        result, _ = teach_student(taught, out, config, resume=resume, show=show, warn=say_warning)
    if as_json:
        print(json.dumps({**result, "folder": str(out)}))
        return
    tell(result, out)
    from . import show as screen

    page = out / SOUND_PAGE
    if page.exists():
        tell_sound(page)
    else:
        screen.console().print(screen.note("no clips were set apart to test on, so there is no sound.html."))


def _budget(epsilon: float, delta: float, ledger: str) -> "BudgetConfig":
    from ..config import BudgetConfig

    if not ledger:
        return BudgetConfig(epsilon=epsilon, delta=delta)
    where = ledger if "://" in ledger else str(Path(ledger).absolute())
    return BudgetConfig(epsilon=epsilon, delta=delta, ledger=where)


def _mechanism(chosen: options.MechanismName | None, *, one_class: bool) -> str:
    if not one_class:
        return (chosen or options.MechanismName.gnthreshold).value
    if chosen not in (None, *_OF_CLASSES):
        raise ValueError(
            f"Expected --mechanism {' or '.join(_OF_CLASSES)} where every clip has one class, got {chosen}."
        )
    return (chosen or options.MechanismName.gnmax).value


def _require_learner(learner: Learner, *, one_class: bool) -> None:
    known = (Learner.tagger, *_WHOLE_POOL[one_class])
    if learner not in known:
        *some, last = known
        what = "one class" if one_class else "many labels"
        raise ValueError(
            f"Expected --student {', '.join(some)} or {last} where clips have {what}, got {learner}."
        )


def _parameters(learner: Learner, *, more: dict[str, Any], **given: Any) -> dict[str, Any]:
    if learner is Learner.tagger:
        return given | more
    if more:
        raise ValueError(
            "Expected --pretrained, --held-out and --log-folder with --student tagger alone, got one with "
            f"--student {learner}. Leave it out."
        )
    return {
        "steps": given["iterations"], "batch_size": given["batch_size"],
        "learning_rate": given["learning_rate"], "device": given["device"], "width": 8,
        "pool_batch_size": 2 * given["batch_size"],
    }  # fmt: skip
