"""`tellers plan`: what a budget buys before anybody votes, for classes and for many labels."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ..errors import MissingExtra
from . import options, show

if TYPE_CHECKING:
    from rich.console import Console

    from ..accounting.plan import LabelPlan
    from ..accounting.plan_multilabel import Advice, LabelScores, MultilabelPlan, Sweep


_COLOURS = ("#1b6ca8", "#d1495b", "#e89f1f", "#3a7d44", "#7b5ea7")
# Smaller ones on top of larger ones: mechanisms that do the same are all seen.
_MARKS = (("o", 10), ("s", 8), ("^", 6.5), ("D", 5), ("v", 3.5))

Metric = tuple[str, "Callable[[MultilabelPlan], float | None]", bool]


def require_folder(folder: Path) -> None:
    """Refuse to begin where the pictures could not be drawn."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"Expected a folder for --plots, got the file {folder}. Name another.")
    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("Expected matplotlib for --plots: pip install 'tellers[report]'") from None
    matplotlib.use("Agg")


def draw(
    folder: Path,
    sweeps: "Sequence[Sweep]",
    plans: "Sequence[dict[Any, MultilabelPlan]]",
    votes: Any,
    budget: Any,
    *,
    against_truth: bool,
) -> list[Path]:
    """Draw one picture per sweep and one of the gaps into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for sweep, found in zip(sweeps, plans, strict=True):
        path = folder / f"{sweep.parameter}.png"
        _save(_sweep(sweep, found, budget, against_truth), path)
        paths.append(path)
    path = folder / "gaps.png"
    _save(_gaps(votes), path)
    return [*paths, path]


def _metrics(against_truth: bool) -> list[Metric]:
    reference = "the truth" if against_truth else "the majority"
    return [
        ("queries, public price", lambda plan: plan.n_queries or None, True),
        ("queries, exact cost (forecast, private)", lambda plan: plan.n_queries_exact or None, True),
        ("share of labels told", lambda plan: plan.told, False),
        ("as the majority without noise", lambda plan: plan.agreement, False),
        (f"accuracy against {reference}", lambda plan: plan.scores.accuracy, False),
        (f"balanced accuracy against {reference}", lambda plan: plan.scores.balanced_accuracy, False),
        ("micro F1", lambda plan: plan.scores.micro_f1, False),
        ("macro F1", lambda plan: plan.scores.macro_f1, False),
    ]


def _sweep(sweep: "Sweep", plans: "dict[Any, MultilabelPlan]", budget: Any, against_truth: bool) -> Any:
    import matplotlib.pyplot as plt

    figure, grid = plt.subplots(2, 4, figsize=(15, 7.2), sharex=True)
    for axes, (title, metric, counts) in zip(grid.ravel(), _metrics(against_truth), strict=True):
        for (name, points), colour, (mark, width) in zip(sweep.series.items(), _COLOURS, _MARKS):
            axes.plot(
                [value for value, _ in points],
                [_or_nan(metric(plans[mechanism])) for _, mechanism in points],
                color=colour,
                marker=mark,
                markersize=width,
                label=name,
                alpha=0.85,
            )
        axes.set_title(title, fontsize=10)
        axes.grid(color="#e6e6e6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=9)
        if counts:
            _count_axis(axes)
        else:
            axes.set_ylim(max(-0.03, min(axes.get_ylim()[0], 0.78)), 1.02)
    for axes in grid[1]:
        axes.set_xlabel(sweep.parameter, fontsize=10)
    handles, names = grid[0, 0].get_legend_handles_labels()
    figure.suptitle(
        f"{sweep.parameter}: {sweep.meaning}. Budget: epsilon {budget.epsilon:g} at delta {budget.delta:g}",
        fontsize=12,
    )
    figure.legend(handles, names, loc="lower center", ncols=len(names), frameon=False, fontsize=10)
    figure.tight_layout(rect=(0, 0.05, 1, 0.98))
    return figure


def _count_axis(axes: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    if not any(len(line.get_ydata()) and line.get_ydata().max() > 0 for line in _finite(axes)):
        axes.text(0.5, 0.5, "none within the budget", transform=axes.transAxes, ha="center", color="#777777")
        return
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 12:  # less than a decade would show a single number
        axes.set_ylim(low / 2, high * 2)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 200 else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _finite(axes: Any) -> list[Any]:
    import numpy as np

    return [line for line in axes.lines if np.isfinite(line.get_ydata()).any()]


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _gaps(votes: Any) -> Any:
    import matplotlib.pyplot as plt
    import numpy as np

    from ..accounting.plan_multilabel import label_gaps, set_gaps

    n = votes.n_teachers
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    by_label, winning = label_gaps(votes).ravel(), (2 * votes.sums > n).ravel()
    edges = np.linspace(0, n, 26)
    for side, colour, name in ((~winning, "#1b6ca8", "no"), (winning, "#d1495b", "yes")):
        left.hist(
            by_label[side],
            bins=edges,
            histtype="step",
            linewidth=1.8,
            color=colour,
            label=f"the majority says {name}",
            weights=np.full(side.sum(), 1 / winning.size),
        )
    left.set(xlabel="votes between yes and no", ylabel="share of labels (log)", yscale="log")
    left.set_title(f"Gaps of single labels ({n} teachers)", fontsize=11)
    left.legend(frameon=False, fontsize=9, loc="upper left")
    gaps = set_gaps(votes)
    right.hist(gaps, bins=edges, color="#3a7d44", weights=np.full(gaps.size, 1 / gaps.size))
    right.set(xlabel="ballots between the first and the second set", ylabel="share of queries")
    right.set_title("Gaps of whole sets of labels", fontsize=11)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=110)
    plt.close(figure)


# --- Many labels. ---


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


def plan_multilabel(
    epsilon: float,
    delta: float,
    *,
    proxy: Path | None,
    assumed: Assumed,
    queries: int,
    mechanism: str | None,
    given: dict[str, Any],
    max_loss: float | None,
    plots: Path | None,
    top: int,
    as_json: bool,
) -> None:
    """Compare mechanisms for many labels on public or made-up votes, and show what was found."""
    from ..accounting.plan_multilabel import advise, ballot_traits, multilabel_settings
    from ..privacy.budget import Budget

    budget, groups = Budget(epsilon, delta), given.get("groups")
    declared = () if groups is None else options.parsed("groups", groups)
    if plots is not None:
        require_folder(plots)
    votes, truth, notes = _votes(proxy, assumed)
    if mechanism is None:
        tried = multilabel_settings(ballot_traits(votes[:_QUERIES]), groups=declared)
    else:
        tried = [options.build_mechanism(mechanism, n_labels=votes.n_labels, **given)]
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
        drawn = _draw_labels(plots, advice, votes, truth, budget, wanted=not as_json)
        notes.append(f"Drawn into {plots}: {', '.join(path.name for path in drawn)}.")
    if as_json:
        print(
            json.dumps({**labels_as_dict(advice, epsilon, delta), "notes": notes}, indent=2, allow_nan=False)
        )
        return
    _print(advice, budget, top)
    for text in notes:
        show.console().print(show.note(text))


def labels_as_dict(advice: "Advice", epsilon: float, delta: float) -> dict[str, Any]:
    """Return the advice as JSON; all of it is public."""
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
                "parameters": asdict(plan.mechanism),
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
    from ..accounting.plan_multilabel import LabelProfile
    from ..teachers.store import read_label_votes

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

    screen, regime, best = show.console(), advice.regime, advice.best
    screen.print(f"\nBudget: epsilon {budget.epsilon:g} at delta {budget.delta:g}.")
    if best is None:
        screen.print("No setting keeps the labels right within it. Raise the budget.", style="yellow")
    else:
        screen.print(
            Text.assemble(
                ("Best: ", "green"),
                (f"{best.n_queries:,} queries by {_called(best)}", "bold green"),
                (f" ({_label_parameters(best)}), under the public price.", "green"),
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
            Text.assemble(_called(plan), gap, (_label_parameters(plan), "dim")),
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


def _label_parameters(plan: "MultilabelPlan") -> str:
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
    given = asdict(plan.mechanism)
    return ", ".join(f"{short} {given[name]:g}" for name, short in names.items() if given.get(name))


def _draw_labels(
    folder: Path, advice: "Advice", votes: Any, truth: Any, budget: Any, *, wanted: bool
) -> list[Path]:
    from ..accounting.plan_multilabel import advise, sweeps_of

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
    return draw(folder, sweeps, plans, votes, budget, against_truth=advice.against_truth)


# --- One class per example. ---


class AgainstName(StrEnum):
    """Which cost the budget is held against."""

    exact = "exact"
    public = "public"


@options.takes_mechanism(after="mechanism")
def command(
    epsilon: Annotated[float, typer.Option("--epsilon", help="The budget.", show_default=False)],
    delta: options.Delta,
    teachers: Annotated[
        int | None, typer.Option("--teachers", help="How many teachers will vote.", show_default=False)
    ] = None,
    classes: options.Classes = None,
    queries: Annotated[int, typer.Option("--queries", help="How many public examples there are.")] = 10_000,
    labels: Annotated[
        int | None,
        typer.Option(
            "--labels",
            help="The inverse: the least noise that gives so many. With --multilabel: labels per example.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        AgainstName,
        typer.Option(
            "--against", help="Hold the budget against the exact cost (private) or the public price."
        ),
    ] = AgainstName.public,
    agreement: Annotated[
        float, typer.Option("--agreement", help="Assumed share of right votes, on average.")
    ] = 0.9,
    concentration: Annotated[
        float, typer.Option("--concentration", help="Below 2: most queries easy, a few hard.")
    ] = 1.5,
    proxy: Annotated[
        Path | None,
        typer.Option(
            "--proxy",
            help="Public votes to plan on instead of an assumed consensus; 'truth' in it where it is known.",
            show_default=False,
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Draw labels against accuracy into a file (.svg, .png).", show_default=False
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many settings to show.")] = 10,
    mechanism: options.Mechanism = None,
    multilabel: Multilabel = False,
    yes_rate: YesRate = None,
    correlation: Correlation = None,
    max_loss: MaxLoss = None,
    plots: Plots = None,
    as_json: options.Json = False,
    **given: Any,
) -> None:
    """Plan a run: which noise and threshold give the most for a budget.

    Every setting is tried on public or made-up votes: expected labels, how many of them are right, what they
    cost. Nothing private is looked at, so everything here may be shown and nothing is spent.

    With --multilabel examples have many labels, and mechanisms that vote on them are compared. With
    --mechanism and its parameters that one setting is tried.

    Example:

    \b
    tellers plan --teachers 250 --classes 10 --epsilon 2 --delta 1e-5 --queries 9000
    tellers plan --multilabel --teachers 50 --labels 22 --yes-rate 0.1 --epsilon 20 --delta 1e-5
    """
    named = None if mechanism is None else str(mechanism)
    _require_mechanism(named, given, labels=labels, multilabel=multilabel)
    if multilabel:
        single = {"classes": classes, "plot": plot, "against": against if against != "public" else None}
        refuse(single, because="with --multilabel")
        assumed = Assumed(teachers, labels, agreement, concentration, yes_rate, correlation)
        plan_multilabel(
            epsilon, delta, proxy=proxy, assumed=assumed, queries=queries, mechanism=named, given=given,
            max_loss=max_loss, plots=plots, top=top, as_json=as_json,
        )  # fmt: skip
        return
    many = {
        "yes-rate": yes_rate,
        "correlation": correlation,
        "max-loss": max_loss,
        "plots": plots,
        "groups": given["groups"],
    }
    refuse(many, because="without --multilabel")
    from ..accounting.plan import Consensus, plan_labels, settings, sigma_for_labels
    from ..privacy.budget import Budget

    budget = Budget(epsilon, delta)
    notes: list[str] = []
    if proxy is not None:
        from ..teachers.store import read_votes

        loaded = read_votes(proxy, n_classes=classes)
        votes, notes = loaded.votes, list(loaded.notes)
        if teachers is not None and teachers != votes.n_teachers:
            raise ValueError(f"Expected a proxy of {teachers} teachers, got one of {votes.n_teachers}.")
        truth = loaded.truth
        if truth is None:
            truth = votes.counts.argmax(axis=1)
            notes.append("The proxy holds no 'truth': accuracy is agreement with its plurality.")
        if len(votes) > 500:
            votes, truth = votes[:500], truth[:500]
            notes.append("The first 500 queries of the proxy were used.")
    else:
        if teachers is None or classes is None:
            raise ValueError(
                "Expected --teachers and --classes, or a --proxy that has them. For example: "
                "--teachers 250 --classes 10"
            )
        consensus = Consensus(agreement=agreement, concentration=concentration)
        votes, truth = consensus.votes(teachers, classes, n_queries=300, seed=0)
        notes.append(f"Planned on 300 made-up queries: {consensus}.")
    if against is AgainstName.exact:
        notes.append(
            "The exact cost of a real run is private. Fix the number of queries beforehand; stopping when it "
            "reaches the budget would leak."
        )
    if labels is not None:
        plans = [sigma_for_labels(labels, votes, truth, budget=budget, against=against.value)]
    else:
        tried = settings(votes.n_teachers)
        if named is not None:
            tried = [options.build_mechanism(named, **given)]
        with show.progress_bar(len(tried), "settings", wanted=not as_json) as progress:
            plans = plan_labels(
                votes,
                truth,
                budget=budget,
                n_public=queries,
                against=against.value,
                mechanisms=tried,
                progress=progress,
            )
    if any(plan.epsilon_exact is None for plan in plans):
        notes.append(
            f"{named} does not say how likely its outcomes are: there is no exact cost, and labels are "
            "counted in releases of the votes that were planned on."
        )
    if plot is not None:
        _draw(plans, plot, budget)
        notes.append(f"Drawn into {plot}.")
    if as_json:
        result = {
            "epsilon": epsilon,
            "delta": delta,
            "against": against.value,
            "plans": [as_dict(plan) for plan in plans],
            "notes": notes,
        }
        print(json.dumps(result, indent=2, allow_nan=False))
        return
    _print_plans(show.console(), plans, budget, against.value, top)
    for text in notes:
        show.console().print(show.note(text))


def _require_mechanism(
    name: str | None, given: dict[str, Any], *, labels: int | None, multilabel: bool
) -> None:
    """Refuse parameters of no mechanism, and a mechanism for other votes, or where noise is looked for."""
    if name is None:
        foreign = [p for p, value in given.items() if value is not None and p != "groups"]
        if foreign:
            flags = " and ".join(map(options.flag, foreign))
            raise ValueError(f"Expected --mechanism with {flags}, got none. For example: --mechanism gnmax")
    elif options.is_label_mechanism(name) != multilabel:
        raise ValueError(f"Expected --multilabel with a mechanism for many labels alone, got {name}.")
    elif labels is not None and not multilabel:
        raise ValueError("Expected no --mechanism with --labels, which looks for the noise of gnmax.")


def as_dict(plan: "LabelPlan") -> dict[str, Any]:
    """Return one setting as JSON; all of it is public."""
    from dataclasses import asdict

    return {
        "mechanism": type(plan.mechanism).__name__,
        "parameters": asdict(plan.mechanism),  # type: ignore[call-overload]
        "queries": plan.n_queries,
        "labels": plan.n_labels,
        "accuracy": plan.accuracy,
        "epsilon_exact": plan.epsilon_exact,
        "exact_kind": None if plan.epsilon_exact is None else show.exact_kind(plan.bound_because),
        "epsilon_public": plan.epsilon_public,
        "epsilon_charged": plan.epsilon_charged,
        "information_bits": plan.information,
    }


def _parameters(plan: "LabelPlan") -> tuple[str, str, str]:
    given = as_dict(plan)["parameters"]
    return tuple(  # type: ignore[return-value]
        f"{given[name]:g}" if name in given else "-" for name in ("sigma", "threshold", "sigma_threshold")
    )


def _print_plans(screen: "Console", plans: "list[LabelPlan]", budget: Any, against: str, top: int) -> None:
    from rich.text import Text

    best = plans[0]
    screen.print(
        f"\nBudget: epsilon {budget.epsilon:g} at delta {budget.delta:g}, held against the {against} cost."
    )
    if best.n_queries == 0:
        screen.print("No setting can answer a single query within it. Raise the budget.", style="yellow")
        return
    screen.print(
        Text.assemble(
            ("Best: ", "green"),
            (f"{best.n_labels:,.0f} labels, {best.accuracy:.1%} right", "bold green"),
            (f", from {best.n_queries:,} queries by {best.mechanism}.\n", "green"),
        )
    )
    rows = show.table(
        "sigma",
        "threshold",
        "its sigma",
        "queries",
        "labels",
        "right",
        "exact",
        "public",
        "tells (kbit)",
        "",
        numbers=range(9),
    )
    for plan in plans[:top]:
        rows.add_row(
            *_parameters(plan),
            f"{plan.n_queries:,}",
            f"{plan.n_labels:,.0f}",
            f"{plan.accuracy:.1%}",
            "-" if plan.epsilon_exact is None else show.figure(plan.epsilon_exact),
            show.figure(plan.epsilon_public),
            f"{plan.information / 1000:.2f}",
            Text(show.bar(plan.information, best.information, width=16), style="green"),
        )
    screen.print(show.indented(rows))
    if len(plans) > 1:
        screen.print(show.indented(_scatter(plans)))


def _scatter(plans: "list[LabelPlan]", *, width: int = 60, height: int = 12) -> Any:
    """Draw labels to the right and accuracy upwards, the best setting as a star."""
    from rich.text import Text

    most = max(plan.n_labels for plan in plans) or 1.0
    low, high = min(p.accuracy for p in plans), max(p.accuracy for p in plans)
    cells = [[" "] * (width + 1) for _ in range(height + 1)]
    for plan in reversed(plans):
        x = round(plan.n_labels / most * width)
        y = round((plan.accuracy - low) / ((high - low) or 1.0) * height)
        cells[height - y][x] = "*" if plan is plans[0] else "·"
    text = Text()
    for i, row in enumerate(cells):
        label = f"{high:.1%}" if i == 0 else f"{low:.1%}" if i == height else ""
        text.append(f"{label:>6} ┤", style="dim")
        line = "".join(row)
        star = line.find("*")
        text.append(line if star < 0 else line[:star])
        if star >= 0:
            text.append("*", style="bold green")
            text.append(line[star + 1 :])
        text.append("\n")
    text.append("       └" + "─" * width + "\n", style="dim")
    end = f"{most:,.0f} labels"
    text.append("        0" + end.rjust(width - 1) + "\n", style="dim")
    text.append("        right labels upwards, number of labels to the right, * the best", style="dim")
    return text


def _draw(plans: "list[LabelPlan]", path: Path, budget: Any) -> None:
    from ..errors import MissingExtra

    try:
        import matplotlib
    except ImportError:
        raise MissingExtra("Expected matplotlib for --plot: pip install 'tellers[report]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2))
    points = axes.scatter(
        [plan.n_labels for plan in plans],
        [100 * plan.accuracy for plan in plans],
        c=[plan.information / 1000 for plan in plans],
        cmap="viridis",
    )
    best = plans[0]
    axes.annotate(
        f"best: {', '.join(f'{k}={v:g}' for k, v in as_dict(best)['parameters'].items())}",
        (best.n_labels, 100 * best.accuracy),
        xytext=(0.97, 0.06),
        textcoords="axes fraction",
        ha="right",
        arrowprops={"arrowstyle": "-", "color": "#888888"},
    )
    figure.colorbar(points, label="information (kbit)")
    axes.set(xlabel="expected labels", ylabel="of them right (%)")
    axes.set_title(f"Settings within epsilon {budget.epsilon:g} at delta {budget.delta:g}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"Expected a file such as plan.svg for --plot, got {path}: {error}") from None
