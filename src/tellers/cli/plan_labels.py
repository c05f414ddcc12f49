"""`tellers plan --multilabel`: which mechanism for many labels, what it answers, and how right that is."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

if TYPE_CHECKING:
    from ..calibrate import Advice, MultilabelPlan
    from ..calibrate.label_scores import LabelScores

_PANEL = "Many labels"
# Queries looked at: made-up ones, and those of a proxy.
_QUERIES = 200
# Pictures need shapes more than decimals.
_DRAWN = 60

Multilabel: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--multilabel",
        help="Plan for many labels per example; --proxy is then an npz of 'label_ballots' (teachers x "
        "queries x labels), and 'truth' (queries x labels) where it is known.",
        rich_help_panel=_PANEL,
    ),
]
YesRate: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--yes-rate",
        help="Assumed share of examples that have a label, 0.1 if not said.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Correlation: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--correlation",
        help="Assumed correlation of labels, and of mistakes, 0 if not said.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
MaxLoss: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--max-loss",
        help="Accuracy that noise may cost, 0.03 if not said.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Plots: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--plots",
        metavar="DIR",
        help="Draw every metric against sigma, max_norm and T, and the distribution of gaps.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Assumed:
    """What is assumed where there is no proxy."""

    teachers: int | None
    labels: int | None
    agreement: float
    concentration: float
    yes_rate: float | None
    correlation: float | None


def refuse(given: dict[str, Any], *, because: str) -> None:
    """Refuse options that mean nothing here."""
    named = [f"--{name}" for name, value in given.items() if value is not None]
    if named:
        raise ValueError(
            f"Expected no {' and no '.join(named)} {because}, where it means nothing. Leave it out. "
            "See: tellers plan --help"
        )


def plan(
    epsilon: float,
    delta: float,
    *,
    proxy: Path | None,
    assumed: Assumed,
    queries: int,
    groups: str | None,
    max_loss: float | None,
    plots: Path | None,
    top: int,
    as_json: bool,
) -> None:
    """Compare mechanisms for many labels on public or made-up votes, and show what was found."""
    from ..budget import Budget
    from ..calibrate import advise, ballot_traits, multilabel_settings
    from . import label_options, plan_pictures, show

    budget, declared = (
        Budget(epsilon, delta),
        () if groups is None else label_options.parsed("groups", groups),
    )
    if plots is not None:
        plan_pictures.require_folder(plots)
    votes, truth, notes = _votes(proxy, assumed)
    tried = multilabel_settings(ballot_traits(votes[:_QUERIES]), groups=declared)
    with show.progress_bar(len(tried), "settings", wanted=not as_json) as progress:
        advice = advise(
            votes,
            truth,
            budget=budget,
            n_public=queries,
            seed=0,
            max_loss=0.03 if max_loss is None else max_loss,
            n_sample=_QUERIES,
            mechanisms=tried,
            progress=progress,
        )
    if len(votes) > _QUERIES:
        notes.append(f"{_QUERIES} queries of the proxy, drawn from a fixed seed, were used.")
    if not advice.against_truth:
        notes.append("The proxy holds no 'truth': labels are measured against its majority without noise.")
    notes.append(
        "The forecast is of the exact cost, which is private in a real run. Fix the number of queries first: "
        f"stopping when it reaches the budget would leak. Where ballots are clipped it is from "
        f"{advice.n_forecast} queries."
    )
    if plots is not None:
        drawn = _draw(plots, advice, votes, truth, budget, wanted=not as_json)
        notes.append(f"Drawn into {plots}: {', '.join(path.name for path in drawn)}.")
    if as_json:
        print(json.dumps({**as_dict(advice, epsilon, delta), "notes": notes}, indent=2, allow_nan=False))
        return
    _print(advice, budget, top)
    for text in notes:
        show.console().print(show.note(text))


def as_dict(advice: "Advice", epsilon: float, delta: float) -> dict[str, Any]:
    """Return the advice as JSON; all of it is public."""
    from . import show

    return {
        "epsilon": epsilon,
        "delta": delta,
        "regime": asdict(advice.regime),
        "ballots": asdict(advice.traits),
        "noiseless": asdict(advice.noiseless),
        "against": "truth" if advice.against_truth else "majority",
        "plans": [
            {
                "mechanism": type(plan.mechanism).__name__,
                "parameters": asdict(plan.mechanism),  # type: ignore[arg-type]
                "queries_public": plan.n_queries,
                "epsilon_public": plan.epsilon_public,
                "queries_exact_forecast": plan.n_queries_exact,
                "exact_kind": show.exact_kind(plan.bound_because),
                "told": plan.told,
                "agreement": plan.agreement,
                **asdict(plan.scores),
                "keeps": plan.keeps,
            }
            for plan in advice.plans
        ],
    }


def _votes(proxy: Path | None, assumed: Assumed) -> tuple[Any, Any, list[str]]:
    from ..calibrate import LabelProfile
    from ..teachers import read_label_votes

    if proxy is not None:
        refuse({"yes-rate": assumed.yes_rate, "correlation": assumed.correlation}, because="with --proxy")
        loaded = read_label_votes(proxy)
        votes = loaded.votes
        for what, wanted, there in (
            ("teachers", assumed.teachers, votes.n_teachers),
            ("labels", assumed.labels, votes.n_labels),
        ):
            if wanted is not None and wanted != there:
                raise ValueError(f"Expected a proxy of {wanted} {what}, got one of {there}.")
        return votes, loaded.truth, []
    if assumed.teachers is None or assumed.labels is None:
        raise ValueError(
            "Expected --teachers and --labels, or a --proxy that has them. For example: "
            "--multilabel --teachers 50 --labels 22 --yes-rate 0.1"
        )
    profile = LabelProfile(
        yes_rate=0.1 if assumed.yes_rate is None else assumed.yes_rate,
        agreement=assumed.agreement,
        correlation=assumed.correlation or 0.0,
        concentration=assumed.concentration,
    )
    votes, truth = profile.votes(assumed.teachers, assumed.labels, n_queries=_QUERIES, seed=0)
    return votes, truth, [f"Planned on {_QUERIES} made-up queries: {profile}."]


def _print(advice: "Advice", budget: Any, top: int) -> None:
    from rich.text import Text

    from . import show

    screen, regime, best = show.console(), advice.regime, advice.best
    screen.print(f"\nBudget: epsilon {budget.epsilon:g} at delta {budget.delta:g}.")
    if best is None:
        screen.print("No setting keeps the labels right within it. Raise the budget.", style="yellow")
    else:
        screen.print(
            Text.assemble(
                ("Best: ", "green"),
                (f"{best.n_queries:,} queries by {_called(best)}", "bold green"),
                (f" ({_parameters(best)}), under the public price.", "green"),
            )
        )
    screen.print(Text.assemble(("\nBallots: ", "bold"), (regime.name, "bold"), f". {regime.why}"))
    screen.print(f"{regime.advice}\n")
    against = "truth" if advice.against_truth else "majority"
    wide = screen.width >= 120
    heads = ["queries", "forecast", "told", *(["majority"] if wide else []), "accuracy", "balanced", "F1"]
    rows = show.table("best of each", *heads, "", numbers=range(1, len(heads) + 1))
    rows.columns[0].min_width = 20
    most = best.worth if best is not None else 0.0
    gap = " " if wide else "\n"
    shown = _of_each(advice)[:top]
    for plan in shown:
        end = Text(show.bar(plan.worth, most, width=6), "green") if plan.keeps else Text("lossy", "dim")
        rows.add_row(
            Text.assemble(_called(plan), gap, (_parameters(plan), "dim")),
            f"{plan.n_queries:,}",
            "-" if plan.n_queries_exact is None else _forecast(plan),
            f"{plan.told:.0%}",
            *([f"{plan.agreement:.1%}"] if wide else []),
            *_figures(plan.scores),
            end,
            style="" if plan.keeps else "dim",
        )
    rows.add_row("no noise", "", "", "100%", *(["100.0%"] if wide else []), *_figures(advice.noiseless), "")
    screen.print(show.indented(rows))
    screen.print(
        "queries: under the public price. forecast: under the exact cost, in the private books"
        + (
            ", which is an upper bound where ≥ stands. "
            if any(plan.bound_because for plan in shown)
            else ". "
        )
        + "lossy: more accuracy is lost than may be. "
        + ("majority: share of told labels that equal the majority without noise. " if wide else "")
        + f"Accuracies are against the {against}.\n",
        style="dim",
    )


def _forecast(plan: "MultilabelPlan") -> str:
    # A cost that is an upper bound leaves room for more queries.
    return f"{'≥ ' if plan.bound_because else ''}{plan.n_queries_exact:,}"


def _figures(scores: "LabelScores") -> tuple[str, str, str]:
    return f"{scores.accuracy:.1%}", f"{scores.balanced_accuracy:.1%}", f"{scores.micro_f1:.2f}"


def _of_each(advice: "Advice") -> "list[MultilabelPlan]":
    """Return the first, that is the best, setting of each kind of mechanism."""
    found: dict[str, MultilabelPlan] = {}
    for plan in advice.plans:
        found.setdefault(_called(plan), plan)
    return list(found.values())


def _called(plan: "MultilabelPlan") -> str:
    norm = getattr(plan.mechanism, "norm", "")
    return f"{type(plan.mechanism).__name__}{f' {norm}' if norm else ''}"


def _parameters(plan: "MultilabelPlan") -> str:
    names = {
        "sigma": "sigma",
        "max_norm": "norm",
        "max_labels": "labels",
        "threshold": "T",
        "sigma_threshold": "its sigma",
        "confident_share": "share",
        "sigma_gate": "its sigma",
        "scale": "scale",
    }
    given = asdict(plan.mechanism)  # type: ignore[arg-type]
    return ", ".join(f"{short} {given[name]:g}" for name, short in names.items() if given.get(name))


def _draw(folder: Path, advice: "Advice", votes: Any, truth: Any, budget: Any, *, wanted: bool) -> list[Path]:
    from ..calibrate import advise
    from ..calibrate.sweeps import sweeps_of
    from . import plan_pictures, show

    chosen = advice.best or advice.plans[0]
    sigma = float(getattr(chosen.mechanism, "sigma"))  # noqa: B009
    if type(chosen.mechanism).__name__.endswith("GNThreshold"):
        sigma = round(sigma * 2**0.5, 2)  # one noise on the sum is as strong as two on both counts
    sweeps = sweeps_of(advice.traits, sigma)
    plans = []
    with show.progress_bar(sum(len(one.mechanisms) for one in sweeps), "pictures", wanted=wanted) as progress:
        for sweep in sweeps:
            found = advise(
                votes,
                truth,
                budget=budget,
                n_public=10**9,
                seed=0,
                n_sample=_DRAWN,
                mechanisms=sweep.mechanisms,
                forecast_all=True,
                progress=progress,
            )
            plans.append({plan.mechanism: plan for plan in found.plans})
    return plan_pictures.draw(folder, sweeps, plans, votes, budget, against_truth=advice.against_truth)
