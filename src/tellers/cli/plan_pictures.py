"""The pictures of `tellers plan --multilabel`: every metric against one parameter, and the gaps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra

if TYPE_CHECKING:
    from ..calibrate import MultilabelPlan
    from ..calibrate.sweeps import Sweep

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

    from ..calibrate.label_profile import label_gaps, set_gaps

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
