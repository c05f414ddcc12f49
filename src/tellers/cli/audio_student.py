"""`tellers audio student`: labels within a budget, a student, its card and its pages."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from . import label_options, options

_STUDENT = "Student"
# Of the ensemble, where nothing is said: a label that all teachers agree on comes out right 39 times in 40.
_USUAL_NOISE = 0.25


class Learner(StrEnum):
    """What learns from released labels."""

    tagger = "tagger"
    multilabel_mixmatch = "multilabel_mixmatch"


def student(
    ears: Annotated[
        Path, typer.Argument(metavar="EARS", help="The folder of `tellers audio train`.", show_default=False)
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the run: ledger, labels, student, report.")
    ] = Path("study"),
    epsilon: Annotated[
        float, typer.Option("--epsilon", help="The budget; no run with this ledger passes it.")
    ] = 8.0,
    delta: Annotated[
        float, typer.Option("--delta", help="Failure probability, well below 1 / private clips.")
    ] = 1e-4,
    ledger: Annotated[
        str, typer.Option("--ledger", help="The ledger: a file from the folder of the run, or a database.")
    ] = "ledger.db",
    queries: Annotated[
        int, typer.Option("--queries", help="Ask so many; 0: as the budget and the pool allow.", min=0)
    ] = 0,
    mechanism: options.Mechanism = options.MechanismName.gnthreshold,
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
            help="tagger: from what was told. multilabel_mixmatch: from all of the pool.",
            rich_help_panel=_STUDENT,
        ),
    ] = Learner.tagger,
    network: Annotated[
        str, typer.Option("--network", help="tagger: as for train.", rich_help_panel=_STUDENT)
    ] = "small",
    iterations: Annotated[
        int, typer.Option("--iterations", help="Batches to learn from.", min=1, rich_help_panel=_STUDENT)
    ] = 200,
    batch_size: Annotated[
        int, typer.Option("--batch-size", help="Clips in a batch.", min=2, rich_help_panel=_STUDENT)
    ] = 16,
    learning_rate: Annotated[
        float, typer.Option("--learning-rate", help="Near 1e-4 for large networks.", rich_help_panel=_STUDENT)
    ] = 3e-3,
    pretrained: Annotated[
        Path | None,
        typer.Option("--pretrained", metavar="FILE", help="Public weights.", rich_help_panel=_STUDENT),
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="cpu, cuda or auto.", rich_help_panel=_STUDENT)
    ] = "auto",
    private: Annotated[
        bool, typer.Option("--private", help="Write private pages and numbers too, for the operator's eyes.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was cut short; begin it if there is none.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Release labels of the pool within a budget, and teach a student that may leave.

    Every answer is charged to the ledger before noise is drawn. The folder is that of a run: the ledger, the
    released labels, the student with its model card, report.html, and sound.html with what the student hears
    and the curves of every label. No teacher is asked again: what they said is kept.

    Example: tellers audio student ears --out study --epsilon 8 --delta 1e-4
    """
    from ..audio.listening import SEMI_SUPERVISED, TAGGER, student_config, teach_student
    from ..audio.taught import read_taught
    from ..config import BudgetConfig, MechanismConfig
    from .outcome import say_warning, steps_shown, tell

    taught = read_taught(ears)
    given = {
        "sigma": _USUAL_NOISE * taught.settings.n_teachers if sigma is None else sigma,
        "threshold": threshold, "sigma_threshold": sigma_threshold, "max_norm": max_norm, "norm": norm,
        "max_labels": max_labels, "share": share, "shares": shares, "scale": scale, "n_top": n_top,
        "confident_share": confident_share, "sigma_gate": sigma_gate,
    }  # fmt: skip
    name = (mechanism or options.MechanismName.gnthreshold).value
    options.require_parameters(name, given)
    values = {p: label_options.parsed(p, value) for p, value in given.items() if value is not None}
    config = student_config(
        taught, mechanism=MechanismConfig(name=name, **values),
        budget=BudgetConfig(epsilon=epsilon, delta=delta, ledger=ledger), n_queries=queries,
        model=TAGGER if learner is Learner.tagger else SEMI_SUPERVISED,
        parameters=_parameters(
            learner, network=network, iterations=iterations, batch_size=batch_size,
            learning_rate=learning_rate, pretrained=pretrained, device=device,
        ),
        private=private,
    )  # fmt: skip
    with steps_shown(wanted=not as_json) as show:
        result, _ = teach_student(taught, out, config, resume=resume, show=show, warn=say_warning)
    if as_json:
        print(json.dumps({**result, "folder": str(out)}))
        return
    tell(result, out)
    from . import show as screen

    screen.console().print(f"What it hears, and curves of every label: {out / 'sound.html'}", markup=False)


def _parameters(learner: Learner, **given: Any) -> dict[str, Any]:
    if learner is Learner.tagger:
        given["pretrained"] = str(given["pretrained"].absolute()) if given["pretrained"] else ""
        return {name: value for name, value in given.items() if value != ""}
    return {
        "steps": given["iterations"], "batch_size": given["batch_size"],
        "learning_rate": given["learning_rate"], "device": given["device"], "width": 8,
        "pool_batch_size": 2 * given["batch_size"],
    }  # fmt: skip
