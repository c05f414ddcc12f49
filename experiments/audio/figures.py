"""Pictures from what was kept: labels and students over epsilon, curves by class, chances to flip."""

from pathlib import Path
from typing import Any

import numpy as np
from asking import label_votes
from forms import table_54
from kept import Kept
from plan import DELTA, FOLDS, LARGEST, Task
from reading import CLASSES, SETTING, flips, pooled_curves

from tellers import noise
from tellers.data.metrics import best_and_worst
from tellers.runs.sound import sweep, sweep_settings

COLOURS = ("#5b8db8", "#c0392b", "#e39b2d", "#7d6ba8", "#4d9a6a", "#777777")


def draw(kept: Kept, folder: Path) -> list[Path]:
    """Draw everything into a folder, and return the files."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "tellers", "svg.fonttype": "none", "font.size": 8}
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, picture in (
        ("sweep", _sweeps),
        ("students", _students),
        ("curves", _curves),
        ("flips", _flips),
    ):
        path = folder / f"audio_{name}.svg"
        figure = picture(kept)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        path.write_text("\n".join(line.rstrip() for line in path.read_text().splitlines()) + "\n")
        made.append(path)
    return made


def _axes(n: int, **size: Any) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, n, **{"figsize": (3.6 * n, 3.0), "squeeze": False, **size})
    for one in axes[0]:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes[0]


def _logarithmic(axis: Any) -> None:
    """Write round numbers along a logarithmic axis, and not too many."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _sweeps(kept: Kept) -> Any:
    """F1 of the labels over the exact epsilon, as figures 5.13c to 5.15c; mean over folds."""
    figure, axes = _axes(2)
    tasks: tuple[Task, ...] = ("multi", "city")
    for axis, task in zip(axes, tasks):
        settings = sweep_settings(
            sigmas=[0.05, 0.1, 0.2, 0.3, 0.5],
            shares=[0.2, 0.4, 0.6],
            checks=[None, (0.6, 0.6)],
        )
        points: dict[str, dict[float, list[tuple[float, float]]]] = {}
        for fold in FOLDS[task]:
            said = kept.said(task, fold, "small", LARGEST[task])
            votes = label_votes(said, parts=task != "city")
            for row in sweep(
                votes, kept.truth(task, fold), settings, delta=DELTA[task], noise=noise.seeded(fold)
            ):
                one, found = row.setting, row.private.reveal()
                name = f"th_e {one.share:g}" + ("" if one.confident_share is None else ", th_c 0.6")
                points.setdefault(name, {}).setdefault(one.sigma, []).append(
                    (found.exact_epsilon, found.macro_f1)
                )
        for at, (name, by_sigma) in enumerate(points.items()):
            line = np.array([np.nanmean(values, axis=0) for values in by_sigma.values()])
            style = "--" if "th_c" in name else "-"
            axis.plot(line[:, 0], line[:, 1], style, marker=".", color=COLOURS[at // 2], label=name)
        axis.set(xscale="log", xlabel="exact epsilon (private)", ylabel="macro F1 of labels told")
        _logarithmic(axis.xaxis)
        axis.set_title(
            f"{'ESC-10, two at once' if task == 'multi' else 'city'}, {LARGEST[task]} teachers", fontsize=9
        )
        axis.legend(frameon=False, fontsize=6)
    return figure


def _students(kept: Kept) -> Any:
    """MAP of students over epsilon, as figures 5.17 to 5.19, from the rows of table 5.4."""
    figure, axes = _axes(2)
    tasks: tuple[Task, ...] = ("multi", "city")
    for axis, task in zip(axes, tasks):
        rows = table_54(kept, task, "small", FOLDS[task]).rows
        for at, share in enumerate(("0.2", "0.4", "adaptive")):
            for size, marker in (("a quarter", "o"), ("all", "s")):
                chosen = [cells for name, cells in rows.items() if name.startswith(f"{size}: {share},")]
                x = [float(np.mean(cells["dep."])) for cells in chosen]  # type: ignore[arg-type]
                y = [float(np.mean(cells["mAP"])) for cells in chosen]  # type: ignore[arg-type]
                label = f"th_e {share}, {size} of the pool"
                axis.scatter(x, y, marker=marker, color=COLOURS[at], label=label, s=18)
        axis.set(
            xscale="log",
            xlabel="epsilon, the thesis's, data-dependent: no bound",
            ylabel="mAP of the student",
        )
        _logarithmic(axis.xaxis)
        axis.set_title("ESC-10, two at once" if task == "multi" else "city", fontsize=9)
        axis.legend(frameon=False, fontsize=6)
    return figure


def _curves(kept: Kept) -> Any:
    """Precision over recall and hits over false alarms, of the best and the worst two classes."""
    figure, axes = _axes(4, figsize=(13, 3.2))
    for at, (who, title) in enumerate(
        (("baseline", "baseline"), ("student/5/noiseless", "student of 5 teachers"))
    ):
        curves = pooled_curves(kept, "multi", "small", who)
        best, worst = best_and_worst([curve.area for curve in curves], n_labels=2)
        for place, label in enumerate([*best, *reversed(worst)]):
            curve, name = curves[label], CLASSES[label].replace("_", " ")
            style: Any = {"color": COLOURS[place], "linewidth": 1.1}
            axes[at].plot(curve.recall, curve.precision, label=f"{name}, {curve.area:.2f}", **style)
            axes[2 + at].plot(
                [0, *curve.false_alarms], [0, *curve.recall], label=f"{name}, {curve.auc:.2f}", **style
            )
        axes[at].set(xlabel="recall", ylabel="precision", title=title, ylim=(0, 1.02))
        axes[2 + at].set(xlabel="false alarms", ylabel="hits", title=title)
        for axis in (axes[at], axes[2 + at]):
            axis.legend(frameon=False, fontsize=6)
    return figure


def _flips(kept: Kept) -> Any:
    """How many queries have which q, and what 1000 such queries would cost, as figure 5.16."""
    figure, axes = _axes(2)
    tasks: tuple[Task, ...] = ("multi", "city")
    for axis, task in zip(axes, tasks):
        rows = flips(kept, task, "small", FOLDS[task]).rows
        names = list(rows)[::-1]  # large q first, as in the thesis
        counts = [float(np.mean(rows[name]["queries"])) for name in names]  # type: ignore[arg-type]
        costs = [
            float(np.mean(rows[name]["epsilon of 1000"])) if rows[name]["epsilon of 1000"] else np.nan
            for name in names
        ]  # type: ignore[arg-type]
        axis.bar(range(len(names)), counts, color="#c9d6e2")
        axis.set_xticks(range(len(names)), [name.split(" to ")[1] for name in names], rotation=45)
        axis.set(xlabel="q, up to", ylabel="queries")
        other = axis.twinx()
        other.plot(range(len(names)), costs, "o", color="#c0392b", markersize=3)
        other.set(ylabel="epsilon of 1000 queries", yscale="log")
        _logarithmic(other.yaxis)
        axis.set_title(
            f"{'ESC-10, two at once' if task == 'multi' else 'city'}, sigma_e {SETTING.sigma:g}", fontsize=9
        )
    return figure
