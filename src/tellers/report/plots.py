"""The plots of the report: inline SVG, the same bytes every time, in the colours of the page around them.

Colours are written as placeholders and become variables of the page's style, so one drawing serves a light
page, a dark one and paper. Text stays text. No name of a class or a column enters a drawing.
"""

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from ..errors import MissingExtra

# What matplotlib is told, and what the page makes of it.
_COLOURS = {
    "#0a0b01": "var(--ink)",
    "#0a0b02": "var(--line)",
    "#0a0b03": "var(--accent)",
    "#0a0b04": "var(--red)",
    "#0a0b05": "var(--muted)",
    "#0a0b06": "var(--silent)",
    "#0a0b11": "var(--group-1)",
    "#0a0b12": "var(--group-2)",
    "#0a0b13": "var(--group-3)",
    "#0a0b14": "var(--group-4)",
    "#0a0b15": "var(--group-5)",
    "#0a0b16": "var(--group-6)",
}
_INK, _LINE, _ACCENT, _RED, _MUTED, _SILENT, *_GROUPS = _COLOURS
N_COLOURS = len(_GROUPS)
_STYLE: dict[str, Any] = {
    "axes.edgecolor": _LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": _MUTED,
    "axes.labelsize": 9.5,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    "lines.linewidth": 2.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "tellers",
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _LINE,
    "xtick.labelcolor": _MUTED,
    "ytick.color": _LINE,
    "ytick.labelcolor": _MUTED,
    "ytick.left": False,
}
Points = Sequence[tuple[float, float]]


def plot_cost(public: Points, *, budget: float, title: str, exact: Points = ()) -> str:
    """Draw epsilon over the number of queries, the budget as a line above it, the exact cost where given.

    >>> plot_cost([(10, 0.5), (20, 0.7)], budget=1.0, title="Cost").startswith("<svg")
    True
    """

    def draw(axes: Any) -> None:
        for points, colour, word in ((public, _ACCENT, "public epsilon"), (exact, _RED, "exact, private")):
            if points:
                axes.plot(*zip(*points), color=colour, label=word, marker="o" if len(points) == 1 else None)
        if math.isfinite(budget):
            axes.axhline(budget, color=_INK, linewidth=1.2, linestyle=(0, (4, 3)), label="budget")
        axes.set_xlabel("questions asked")
        axes.set_ylabel("epsilon spent")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(loc="lower right")

    return _svg(draw, name="cost", title=title)


def plot_groups(
    curves: Sequence[Points], *, budgets: Sequence[float], title: str, exact: Sequence[Points] = ()
) -> str:
    """Draw the epsilon of each group over the number of queries, its budget as a line in the same colour.

    Groups are numbered from 1: their names are anybody's, and stay out of the drawing.

    >>> curves = [[(10, 0.5), (20, 0.7)], [(10, 1.0), (20, 1.4)]]
    >>> drawn = plot_groups(curves, budgets=[0.7, 1.4], title="Cost")
    >>> "var(--group-2)" in drawn
    True
    """

    def draw(axes: Any) -> None:
        from matplotlib.lines import Line2D

        for at, (points, budget) in enumerate(zip(curves, budgets, strict=True)):
            colour = _GROUPS[at % N_COLOURS]
            if math.isfinite(budget):
                axes.axhline(budget, color=colour, linewidth=1.2, linestyle=(0, (5, 3)))
                # Beside its budget, where no curve runs through it.
                place = axes.get_yaxis_transform()
                axes.text(1.012, budget, f"{at + 1}", transform=place, va="center", fontsize=8.5)
            if points:
                axes.plot(*zip(*points), color=colour, marker="o" if len(points) == 1 else None)
            if len(exact) > at and exact[at]:
                axes.plot(*zip(*exact[at]), color=colour, linestyle=(0, (1, 1.4)))
        kinds: list[tuple[str, Any, float]] = [("charged", "-", 2.0), ("budget", (0, (5, 3)), 1.2)]
        kinds += [("exact, private", (0, (1, 1.4)), 2.0)] if any(exact) else []
        keys = [Line2D([], [], color=_INK, linestyle=how, linewidth=w, label=word) for word, how, w in kinds]
        axes.legend(handles=keys, loc="upper left", fontsize=8.5, ncols=3)
        # Room for the legend above the highest line.
        tops = [*(budget for budget in budgets if math.isfinite(budget)), *(p[-1][1] for p in curves if p)]
        axes.set_ylim(0, 1.2 * max(tops, default=1.0))
        axes.set_xlim(left=0)
        axes.set_xlabel("questions asked")
        axes.set_ylabel("epsilon spent")
        axes.xaxis.get_major_locator().set_params(integer=True)

    return _svg(draw, name="groups", title=title)


def plot_told(counts: Sequence[tuple[int, int, int]], *, title: str) -> str:
    """Draw what came out label by label: yes, no and silence, as shares of the questions.

    Labels are numbered from 1: their names are anybody's, and stay out of the drawing.

    >>> "var(--silent)" in plot_told([(30, 50, 20), (5, 95, 0)], title="Told")
    True
    """

    def draw(axes: Any) -> None:
        at, below = range(1, len(counts) + 1), [0.0] * len(counts)
        for kind, (word, colour) in enumerate((("yes", _ACCENT), ("no", _MUTED), ("silence", _SILENT))):
            heights = [100 * one[kind] / max(1, sum(one)) for one in counts]
            if kind < 2 or any(heights):
                axes.bar(at, heights, bottom=below, color=colour, label=word, width=0.72)
            below = [b + h for b, h in zip(below, heights)]
        axes.set_xlabel("label")
        axes.set_ylabel("% of questions")
        axes.set_xlim(0.4, len(counts) + 0.6)
        axes.set_ylim(0, 122)
        axes.set_yticks(range(0, 101, 20))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(loc="upper right", ncols=3)

    return _svg(draw, name="told", title=title)


def plot_gaps(
    gaps: Sequence[int],
    *,
    n_teachers: int,
    private: bool,
    title: str,
    between: str = "votes between the winner and the next class",
    of: str = "% of questions",
) -> str:
    """Draw how far ahead the winning class was, as shares of the questions.

    >>> "<title" in plot_gaps([3, 40, 60], n_teachers=60, private=False, title="Leads")
    True
    """

    def draw(axes: Any) -> None:
        n_bins = min(20, n_teachers + 1)
        edges = [-0.5 + (n_teachers + 1) * i / n_bins for i in range(n_bins + 1)]
        weights = [100 / len(gaps)] * len(gaps)
        axes.hist(gaps, bins=edges, weights=weights, color=_RED if private else _ACCENT, rwidth=0.88)
        axes.set_xlabel(between)
        axes.set_ylabel(of)
        axes.set_xlim(edges[0], edges[-1])

    return _svg(draw, name="gaps", title=title)


def plot_noise(curve: Points, *, here: float | None, chance: float, private: bool, title: str) -> str:
    """Draw how right released labels are as the noise grows; a mark where the run was.

    >>> "questions" in plot_noise([(1, 0.9), (9, 0.7)], here=4.0, chance=0.1, private=False, title="Noise")
    False
    """

    def draw(axes: Any) -> None:
        noises, shares = zip(*curve)
        axes.plot(noises, [100 * share for share in shares], color=_RED if private else _ACCENT)
        axes.axhline(100 * chance, color=_MUTED, linewidth=1, linestyle=":")
        place = axes.get_yaxis_transform()
        axes.text(0.015, 100 * chance + 1.5, "guessing", color=_MUTED, transform=place, fontsize=8.5)
        if here is not None:
            axes.axvline(here, color=_INK, linewidth=1.2, linestyle=(0, (4, 3)))
            side = "left" if here < math.sqrt(noises[0] * noises[-1]) * 1.5 else "right"
            place = axes.get_xaxis_transform()
            pad = 1.06 if side == "left" else 1 / 1.06
            axes.text(here * pad, 0.03, "this run", transform=place, ha=side, va="bottom", fontsize=8.5)
        axes.set_xscale("log")
        axes.set_xlim(noises[0], noises[-1])
        axes.set_ylim(0, 103)
        ticks = _log_ticks(noises[0], noises[-1])
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("noise on every count, in votes")
        axes.set_ylabel("% of labels right")

    return _svg(draw, name="noise", title=title)


def plot_sweep(
    series: Mapping[str, Points], *, score: str, title: str, reference: float | None = None
) -> str:
    """Draw a score over epsilon, on a logarithmic scale, a line for each of up to six series; private.

    Points are (epsilon, score); those without a finite epsilon have no place. `reference` is a score without
    noise, as a line.

    >>> "macro F1" in plot_sweep({"share 0.2": [(3, 0.2), (30, 0.4)]}, score="macro F1", title="Sweep")
    True
    """
    if len(series) > N_COLOURS:
        raise ValueError(f"Expected at most {N_COLOURS} series in one plot, got {len(series)}.")

    def draw(axes: Any) -> None:
        low, high = math.inf, 0.0
        for (word, points), colour in zip(series.items(), _GROUPS, strict=False):
            placed = sorted(point for point in points if math.isfinite(point[0]) and point[0] > 0)
            if placed:
                costs, scores = zip(*placed)
                shown = [100 * score for score in scores]
                axes.plot(costs, shown, color=colour, label=word, marker="o", markersize=4)
                low, high = min(low, placed[0][0]), max(high, placed[-1][0])
        if reference is not None:
            axes.axhline(
                100 * reference, color=_INK, linewidth=1.2, linestyle=(0, (4, 3)), label="without noise"
            )
        axes.set_xscale("log")
        if high > 0:
            axes.set_xlim(low / 1.15, high * 1.15)
            ticks = _log_ticks(low / 1.15, high * 1.15)
            axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set_xlabel("epsilon")
        axes.set_ylabel(f"{score}, %")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="best", fontsize=8.5)

    return _svg(draw, name="sweep", title=title)


def plot_flips(buckets: Sequence[tuple[float, float, int, float]], *, title: str) -> str:
    """Draw how many queries have which chance q to come out otherwise, and what they cost; private.

    A bucket is (lowest q, highest q, queries, mean epsilon of 1000 such queries).

    >>> "queries" in plot_flips([(0.001, 0.01, 5, 2.0), (0.01, 0.1, 9, 7.0)], title="q")
    True
    """

    def draw(axes: Any) -> None:
        for low, high, n_queries, _ in buckets:
            axes.bar(low, n_queries, width=0.92 * (high - low), align="edge", color=_MUTED, alpha=0.6)
        axes.set_xscale("log")
        lowest, highest = min(low for low, *_ in buckets), max(high for _, high, *_ in buckets)
        axes.set_xlim(highest, lowest)  # the surer, the further right
        # Fractions of our own: powers are not typeset here, and decimals are cut after the second place.
        powers = range(round(-math.log10(highest)), round(-math.log10(lowest)) + 1)
        axes.set_xticks([10.0**-power for power in powers], [f"1/{10**power}" for power in powers])
        axes.minorticks_off()
        axes.set_xlabel("q, the chance that the likeliest labels do not come out")
        axes.set_ylabel("queries")
        costs = axes.twinx()
        marked = [(math.sqrt(low * high), cost) for low, high, n, cost in buckets if n]
        if marked:
            costs.plot(*zip(*marked), color=_RED, marker="o", markersize=4, linestyle="none")
        costs.set_ylabel("epsilon of 1000 such queries")
        costs.set_ylim(bottom=0)
        costs.grid(visible=False)

    return _svg(draw, name="flips", title=title)


def plot_teachers(accuracies: Sequence[float], *, title: str) -> str:
    """Draw how many teachers are how accurate, and their mean.

    >>> plot_teachers([0.7, 0.8, 0.75], title="Teachers").endswith("</svg>")
    True
    """

    def draw(axes: Any) -> None:
        shares = [100 * accuracy for accuracy in accuracies]
        low, high = math.floor(min(shares)) - 0.5, math.ceil(max(shares)) + 0.5
        n_bins = min(20, max(1, round(high - low)))
        edges = [low + (high - low) * i / n_bins for i in range(n_bins + 1)]
        axes.hist(shares, bins=edges, color=_RED, rwidth=0.88)
        mean = sum(shares) / len(shares)
        axes.axvline(mean, color=_INK, linewidth=1.2, linestyle=(0, (4, 3)))
        place = axes.get_xaxis_transform()
        axes.text(mean, 1.02, f"mean {mean:.1f} %", transform=place, ha="center", fontsize=8.5)
        axes.set_xlabel("accuracy on the test rows, %")
        axes.set_ylabel("teachers")
        axes.yaxis.get_major_locator().set_params(integer=True)

    return _svg(draw, name="teachers", title=title)


def _log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two, at most about eight: 1, 2 and 5 times powers of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]


def _svg(draw: Callable[[Any], None], *, name: str, title: str) -> str:
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra(
            "Expected matplotlib for the plots of the report, found none. "
            "Install it: pip install 'tellers[report]'"
        ) from error
    written = io.StringIO()
    # From the defaults up, so that a user's own matplotlibrc does not change the page.
    style: Any = {key: value for key, value in matplotlib.rcParamsDefault.items() if "backend" not in key}
    style |= _STYLE
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(5.0, 3.1), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return _inline(written.getvalue(), name=name, title=title)


def _inline(drawing: str, *, name: str, title: str) -> str:
    """Return a drawing as part of a page: no prolog, no metadata, ids of its own, colours of the page."""
    svg = drawing[drawing.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([\w.-]+)', svg))
    svg = re.sub(r' id="([\w.-]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    box = re.search(r'viewBox="([^"]+)"', svg)
    head = f'<svg role="img" aria-labelledby="{name}-title" viewBox="{box[1] if box else ""}">'
    svg = head + f'<title id="{name}-title">{escape(title)}</title>' + svg[svg.index(">") + 1 :]
    for placeholder, variable in _COLOURS.items():
        svg = svg.replace(placeholder, variable)
    # The page's own typeface, however this version of matplotlib spells the one it measured with.
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r"(\.\d\d)\d+", r"\1", svg)
    return re.sub(r"\s*\n\s*", "\n", svg)
