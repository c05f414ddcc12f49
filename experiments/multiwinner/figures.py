"""Figure 1 (metrics and queries against noise) and figures 3 and 4, drawn from the tables of a run."""

from pathlib import Path
from typing import Any

from tables import Table

LINES = {
    "Binary": "#5b8db8",
    "tau l2": "#c0392b",
    "tau l1": "#e39b2d",
    "Powerset": "#7d6ba8",
}


def draw(tables: list[Table], folder: Path) -> list[Path]:
    """Draw what there are tables for, and return the files."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "tellers"  # the same picture is the same file
    matplotlib.rcParams["font.size"] = 8
    folder.mkdir(parents=True, exist_ok=True)
    sweeps = [table for table in tables if table.key.endswith("/sweep")]
    curves = [table for table in tables if table.key.startswith("curve/")]
    made = []
    for name, wanted, picture in (("figure1", sweeps, _figure_1), ("figures3and4", curves, _figures_3_and_4)):
        if wanted:
            path = folder / f"multiwinner_{name}.svg"
            figure = picture(wanted)
            figure.tight_layout()
            figure.savefig(path, metadata={"Date": None})
            made.append(path)
    return made


def _figure_1(sweeps: list[Table]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(sweeps), figsize=(2.7 * len(sweeps) + 0.6, 5.4), squeeze=False)
    for at, table in enumerate(sweeps):
        top, bottom = axes[0][at], axes[1][at]
        lines: dict[str, list[Any]] = {}
        for row in table.rows:
            lines.setdefault(str(row.cells["voting"]), []).append(row.cells)
        # One norm of each, the largest that is tried.
        last = {next(name for name in LINES if words.startswith(name)): words for words in lines}
        for kind, words in last.items():
            cells = lines[words]
            x = [float(cell["sigma"]) for cell in cells]
            top.plot(x, [_number(cell["BAC"]) for cell in cells], color=LINES[kind], marker=".", label=words)
            for column, style in (("exact", "-"), ("as printed", "--"), ("data-independent", ":")):
                y = [max(_number(cell[f"20: {column}"]), 0.5) for cell in cells]
                bottom.plot(x, y, color=LINES[kind], linestyle=style, linewidth=1.2)
        top.set_title(table.key.split("/")[1], fontsize=9)
        top.set_ylim(0.45, 0.9)
        bottom.set(yscale="log", xlabel="sigma")
        top.legend(frameon=False, fontsize=6)
        for one in (top, bottom):
            one.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("balanced accuracy")
    axes[1][0].set_ylabel("queries at epsilon 20\nexact —, as printed - -, data-independent ···")
    return figure


def _figures_3_and_4(curves: list[Table]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(4.4 * len(curves), 3.6), squeeze=False)
    for one, table in zip(axes[0], curves, strict=True):
        head = table.columns[0]
        x = [int(str(row.cells[head])) for row in table.rows]
        for kind, colour in (("binary", LINES["Binary"]), ("powerset", LINES["Powerset"])):
            for name, style in (("exact", "-"), ("published", "--"), ("gauss", ":")):
                y = [max(_number(row.cells[f"{kind}, {name}"]), 0.5) for row in table.rows]
                words = {"exact": "exact", "published": "published", "gauss": "data-independent"}[name]
                one.plot(x, y, color=colour, linestyle=style, label=f"{kind.capitalize()}, {words}")
        one.set(yscale="log", xlabel=head, ylabel="queries answered")
        one.xaxis.get_major_locator().set_params(integer=True)
        one.set_title(table.title.split(":")[0], fontsize=9)
        one.spines[["top", "right"]].set_visible(False)
    axes[0][0].legend(frameon=False, fontsize=6)
    return figure


def _number(value: Any) -> float:
    return float(value[0] if isinstance(value, list) else value)
