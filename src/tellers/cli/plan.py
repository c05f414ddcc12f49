"""`tellers plan`: what a budget buys, before anybody votes."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import label_options, options
from . import plan_labels as many_labels

if TYPE_CHECKING:
    from rich.console import Console

    from ..calibrate import LabelPlan


class AgainstName(StrEnum):
    """Which cost the budget is held against."""

    exact = "exact"
    public = "public"


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
    multilabel: many_labels.Multilabel = False,
    yes_rate: many_labels.YesRate = None,
    correlation: many_labels.Correlation = None,
    groups: label_options.Groups = None,
    max_loss: many_labels.MaxLoss = None,
    plots: many_labels.Plots = None,
    as_json: options.Json = False,
) -> None:
    """Plan a run: which noise and threshold give the most for a budget.

    Every setting is tried on public or made-up votes: expected labels, how many of them are right, what they
    cost. Nothing private is looked at, so everything here may be shown and nothing is spent.

    With --multilabel examples have many labels, and mechanisms that vote on them are compared.

    Example:

    \b
    tellers plan --teachers 250 --classes 10 --epsilon 2 --delta 1e-5 --queries 9000
    tellers plan --multilabel --teachers 50 --labels 22 --yes-rate 0.1 --epsilon 20 --delta 1e-5
    """
    if multilabel:
        single = {"classes": classes, "plot": plot, "against": against if against != "public" else None}
        many_labels.refuse(single, because="with --multilabel")
        assumed = many_labels.Assumed(teachers, labels, agreement, concentration, yes_rate, correlation)
        many_labels.plan(
            epsilon, delta, proxy=proxy, assumed=assumed, queries=queries, groups=groups, max_loss=max_loss,
            plots=plots, top=top, as_json=as_json,
        )  # fmt: skip
        return
    many = {
        "yes-rate": yes_rate,
        "correlation": correlation,
        "max-loss": max_loss,
        "plots": plots,
        "groups": groups,
    }
    many_labels.refuse(many, because="without --multilabel")
    from ..budget import Budget
    from ..calibrate import Consensus, plan_labels, sigma_for_labels
    from ..calibrate.labels import settings
    from . import show

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


def as_dict(plan: "LabelPlan") -> dict[str, Any]:
    """Return one setting as JSON; all of it is public."""
    from dataclasses import asdict

    from . import show

    return {
        "mechanism": type(plan.mechanism).__name__,
        "parameters": asdict(plan.mechanism),  # type: ignore[call-overload]
        "queries": plan.n_queries,
        "labels": plan.n_labels,
        "accuracy": plan.accuracy,
        "epsilon_exact": plan.epsilon_exact,
        "exact_kind": show.exact_kind(plan.bound_because),
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

    from . import show

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
            show.figure(plan.epsilon_exact),
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
