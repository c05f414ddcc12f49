"""Figures 2, 3 and 5 of the paper, drawn from the measures of a run."""

import sys
from pathlib import Path
from typing import Any

from common.measure import Measure

COLOURS = {10: "#9aa0a6", 100: "#5b8db8", 250: "#c0392b"}
LINES = {"plurality": "#9aa0a6", "T=1": "#5b8db8", "T=5": "#c0392b"}


def draw(numbers: dict[str, Measure], folder: Path) -> list[Path]:
    """Draw what there are numbers for, and return the files."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("The pictures need matplotlib: pip install 'tellers[report]'")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tellers"  # the same picture is the same file
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, picture in (("figure2", _figure_2), ("figure3", _figure_3), ("figure5", _figure_5)):
        figure = picture(numbers)
        if figure is None:
            continue
        path = folder / f"pate2017_{name}.svg"
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        made.append(path)
    return made


def _axes() -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.8))
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _figure_2(numbers: dict[str, Measure]) -> Any:
    lines: dict[int, list[tuple[float, float]]] = {}
    for key, m in numbers.items():
        if key.startswith("figure2/"):
            _, n, gamma = key.split("/")
            lines.setdefault(int(n), []).append((float(gamma), 100 * m.mean))
    if not lines:
        return None
    figure, axes = _axes()
    for n, points in sorted(lines.items()):
        axes.plot(
            *zip(*sorted(points)), marker="o", markersize=3, label=f"{n} teachers", color=COLOURS.get(n)
        )
    axes.set(xscale="log", xlabel="gamma per label query (noise of scale 1/gamma)", ylabel="accuracy, %")
    axes.set_ylim(0, 100)
    axes.set_title("Noisy aggregation: how much noise can a label take?", fontsize=10)
    axes.legend(frameon=False)
    return figure


def _figure_3(numbers: dict[str, Measure]) -> Any:
    gaps = {int(k.split("/")[1]): 100 * m.mean for k, m in numbers.items() if k.startswith("gap/")}
    if not gaps:
        return None
    figure, axes = _axes()
    names = [str(n) for n in sorted(gaps)]
    axes.bar(
        names, [gaps[int(n)] for n in names], color=[COLOURS.get(int(n), "#5b8db8") for n in names], width=0.5
    )
    line = {"color": "#333333", "linewidth": 1, "linestyle": "--"}
    axes.axhline(60, label="60 %: the paper's text says it stays above", **line)
    axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, -0.34))
    axes.set(xlabel="teachers", ylabel="gap / teachers, %", ylim=(0, 100))
    axes.set_title("Gap between the two most frequent labels", fontsize=10)
    return figure


def _figure_5(numbers: dict[str, Measure]) -> Any:
    kinds = {key.split("/")[3] for key in numbers if key.startswith("distil/")}
    if not kinds:
        return None
    kind = sorted(kinds)[0]
    lines: dict[str, list[tuple[int, float, float]]] = {}
    for key, m in numbers.items():
        if key.startswith("distil/") and key.endswith(f"/{kind}"):
            _, n, name, _ = key.split("/")
            lines.setdefault(name, []).append((int(n), 100 * m.mean, 100 * m.error))
    figure, axes = _axes()
    for name, points in lines.items():
        x, y, error = zip(*sorted(points))
        axes.errorbar(x, y, error, marker="o", markersize=3, capsize=2, label=name, color=LINES[name])
    axes.set(xscale="log", xlabel="queries, answered without noise", ylabel="student accuracy, %")
    axes.set_title(f"Distillation against plurality labels ({kind})", fontsize=10)
    axes.legend(frameon=False)
    return figure
