"""The plots of reports: inline SVG, the same bytes every time, in the colours of the page."""

import hashlib
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import as_file, files
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...data.metrics import LabelCurve

Data = ParamSpec("Data")
Point = TypeVar("Point")


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot with the words below it; `mark` says "private", for the red frame, or "simulated"."""

    svg: str
    heading: str
    caption: str
    mark: str = ""


# The canvas
#
# Colours are written as placeholders and become variables of the page's style, so one drawing serves a light
# page, a dark one and paper. Text stays text.


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
INK, LINE, ACCENT, RED, MUTED, SILENCE, *GROUPS = _COLOURS
N_COLOURS = len(GROUPS)


def draw_svg(draw: Callable[[Any], None], *, title: str) -> str:
    """Return what a function draws on axes as inline SVG, in the colours of the page around it.

    Without matplotlib the page says in words what would be drawn: a run that was paid for has its report.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError:
        return f"<p>{escape(title)} Not drawn: for plots, pip install 'tellers[report]'.</p>"
    written = io.StringIO()
    # From the defaults up, so that a user's own matplotlibrc does not change the page.
    style: Any = {key: value for key, value in matplotlib.rcParamsDefault.items() if "backend" not in key}
    with as_file(files(__package__) / "report.mplstyle") as own:
        style |= matplotlib.rc_params_from_file(own, use_default_template=False)
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(5.0, 3.1), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure.add_subplot())
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    drawing = written.getvalue()
    # As part of a page: no prolog, no metadata, colours of the page, and ids of its own, by what is drawn.
    name = f"drawing-{hashlib.sha256((title + drawing).encode()).hexdigest()[:12]}"
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


def _drawn(draw: Callable[Concatenate[Any, Data], None]) -> Callable[Concatenate[str, Data], str]:
    """Make of a function that draws on axes one that takes a title in their place and returns inline SVG."""

    def plot(title: str, /, *data: Data.args, **how: Data.kwargs) -> str:
        return draw_svg(lambda axes: draw(axes, *data, **how), title=title)

    return plot


_MOST_ROWS = 24


def thinned(points: Sequence[Point]) -> list[Point]:
    """Return at most about two dozen points, evenly taken, the last one always."""
    kept = np.linspace(0, len(points) - 1, min(len(points), _MOST_ROWS)).round()
    return [points[int(at)] for at in kept]


# Plots of a run: no name of a class or a column enters a drawing.

Points = Sequence[tuple[float, float]]


@_drawn
def plot_cost(axes: Any, public: Points, *, budget: float, exact: Points = (), word: str = "exact") -> None:
    """Draw epsilon over the number of queries, the budget as a line above it, the exact cost where given.

    `word` says what that is called: an upper bound, where it is one.
    """
    for points, colour, name in ((public, ACCENT, "public epsilon"), (exact, RED, f"{word}, private")):
        if points:
            axes.plot(*zip(*points), color=colour, label=name, marker="o" if len(points) == 1 else None)
    if math.isfinite(budget):
        axes.axhline(budget, color=INK, linewidth=1.2, linestyle=(0, (4, 3)), label="budget")
    axes.set(xlabel="questions asked", ylabel="epsilon spent", xlim=(0, None), ylim=(0, None))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="lower right")


@_drawn
def plot_clock(axes: Any, left: Points) -> None:
    """Draw the share of a clock that is left over the number of queries."""
    axes.plot([n for n, _ in left], [100 * share for _, share in left], color=ACCENT, label="left")
    axes.set(xlabel="questions asked", ylabel="% of the clock left", xlim=(0, None), ylim=(0, 100))
    axes.xaxis.get_major_locator().set_params(integer=True)


@_drawn
def plot_groups(
    axes: Any, curves: Sequence[Points], *, budgets: Sequence[float], exact: Sequence[Points] = ()
) -> None:
    """Draw the epsilon of each group over the number of queries, its budget as a line in the same colour.

    Groups are numbered from 1: their names are anybody's, and stay out of the drawing.
    """
    from matplotlib.lines import Line2D

    for at, (points, budget) in enumerate(zip(curves, budgets, strict=True)):
        colour = GROUPS[at % N_COLOURS]
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
    keys = [Line2D([], [], color=INK, linestyle=how, linewidth=w, label=word) for word, how, w in kinds]
    axes.legend(handles=keys, loc="upper left", fontsize=8.5, ncols=3)
    # Room for the legend above the highest line.
    tops = [*(budget for budget in budgets if math.isfinite(budget)), *(p[-1][1] for p in curves if p)]
    top = 1.2 * max(tops, default=1.0)
    axes.set(xlabel="questions asked", ylabel="epsilon spent", xlim=(0, None), ylim=(0, top))
    axes.xaxis.get_major_locator().set_params(integer=True)


@_drawn
def plot_told(axes: Any, counts: Sequence[tuple[int, int, int]]) -> None:
    """Draw what came out label by label: yes, no and silence, as shares of the questions.

    Labels are numbered from 1: their names are anybody's, and stay out of the drawing.
    """
    at, below = range(1, len(counts) + 1), [0.0] * len(counts)
    for kind, (word, colour) in enumerate((("yes", ACCENT), ("no", MUTED), ("silence", SILENCE))):
        heights = [100 * one[kind] / max(1, sum(one)) for one in counts]
        if kind < 2 or any(heights):
            axes.bar(at, heights, bottom=below, color=colour, label=word, width=0.72)
        below = [b + h for b, h in zip(below, heights)]
    axes.set(xlabel="label", ylabel="% of questions", xlim=(0.4, len(counts) + 0.6), ylim=(0, 122))
    axes.set_yticks(range(0, 101, 20))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(loc="upper right", ncols=3)


@_drawn
def plot_gaps(
    axes: Any,
    gaps: Sequence[int],
    *,
    n_teachers: int,
    private: bool,
    between: str = "votes between the winner and the next class",
    of: str = "% of questions",
) -> None:
    """Draw how far ahead the winning class was, as shares of the questions."""
    n_bins = min(20, n_teachers + 1)
    edges = [-0.5 + (n_teachers + 1) * i / n_bins for i in range(n_bins + 1)]
    weights = [100 / len(gaps)] * len(gaps)
    axes.hist(gaps, bins=edges, weights=weights, color=RED if private else ACCENT, rwidth=0.88)
    axes.set(xlabel=between, ylabel=of, xlim=(edges[0], edges[-1]))


@_drawn
def plot_noise(axes: Any, curve: Points, *, here: float | None, chance: float, private: bool) -> None:
    """Draw how right released labels are as the noise grows; a mark where the run was."""
    noises, shares = zip(*curve)
    axes.plot(noises, [100 * share for share in shares], color=RED if private else ACCENT)
    axes.axhline(100 * chance, color=MUTED, linewidth=1, linestyle=":")
    place = axes.get_yaxis_transform()
    axes.text(0.015, 100 * chance + 1.5, "guessing", color=MUTED, transform=place, fontsize=8.5)
    if here is not None:
        axes.axvline(here, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        side = "left" if here < math.sqrt(noises[0] * noises[-1]) * 1.5 else "right"
        place = axes.get_xaxis_transform()
        pad = 1.06 if side == "left" else 1 / 1.06
        axes.text(here * pad, 0.03, "this run", transform=place, ha=side, va="bottom", fontsize=8.5)
    _log_scale(axes, noises[0], noises[-1])
    axes.set(xlabel="noise on every count, in votes", ylabel="% of labels right", ylim=(0, 103))


@_drawn
def plot_sweep(
    axes: Any, series: Mapping[str, Points], *, score: str, reference: float | None = None
) -> None:
    """Draw a score over epsilon, on a logarithmic scale, a line for each of up to six series; private.

    Points are (epsilon, score); those without a finite epsilon have no place. `reference` is a score without
    noise, as a line.
    """
    low, high = math.inf, 0.0
    for (word, points), colour in zip(series.items(), GROUPS, strict=False):
        placed = sorted(point for point in points if math.isfinite(point[0]) and point[0] > 0)
        if placed:
            costs, scores = zip(*placed)
            shown = [100 * score for score in scores]
            axes.plot(costs, shown, color=colour, label=word, marker="o", markersize=4)
            low, high = min(low, placed[0][0]), max(high, placed[-1][0])
    if reference is not None:
        axes.axhline(100 * reference, color=INK, linewidth=1.2, linestyle=(0, (4, 3)), label="without noise")
    _log_scale(axes, low / 1.15, high * 1.15)
    axes.set(xlabel="epsilon", ylabel=f"{score}, %", ylim=(0, None))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8.5)


@_drawn
def plot_flips(axes: Any, buckets: Sequence[tuple[float, float, int, float]]) -> None:
    """Draw how many queries have which chance q to come out otherwise, and what they cost; private.

    A bucket is (lowest q, highest q, queries, mean epsilon of 1000 such queries).
    """
    for low, high, n_queries, _ in buckets:
        axes.bar(low, n_queries, width=0.92 * (high - low), align="edge", color=MUTED, alpha=0.6)
    axes.set_xscale("log")
    lowest, highest = min(low for low, *_ in buckets), max(high for _, high, *_ in buckets)
    axes.set_xlim(highest, lowest)  # the surer, the further right
    # Fractions of our own: powers are not typeset here, and decimals are cut after the second place.
    powers = range(round(-math.log10(highest)), round(-math.log10(lowest)) + 1)
    axes.set_xticks([10.0**-power for power in powers], [f"1/{10**power}" for power in powers])
    axes.minorticks_off()
    axes.set(xlabel="q, the chance that the likeliest labels do not come out", ylabel="queries")
    costs = axes.twinx()
    marked = [(math.sqrt(low * high), cost) for low, high, n, cost in buckets if n]
    if marked:
        costs.plot(*zip(*marked), color=RED, marker="o", markersize=4, linestyle="none")
    costs.set(ylabel="epsilon of 1000 such queries", ylim=(0, None))
    costs.grid(visible=False)


@_drawn
def plot_teachers(axes: Any, accuracies: Sequence[float]) -> None:
    """Draw how many teachers are how accurate, and their mean."""
    shares = [100 * accuracy for accuracy in accuracies]
    low, high = math.floor(min(shares)) - 0.5, math.ceil(max(shares)) + 0.5
    n_bins = min(20, max(1, round(high - low)))
    edges = [low + (high - low) * i / n_bins for i in range(n_bins + 1)]
    axes.hist(shares, bins=edges, color=RED, rwidth=0.88)
    mean = sum(shares) / len(shares)
    axes.axvline(mean, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
    place = axes.get_xaxis_transform()
    axes.text(mean, 1.02, f"mean {mean:.1f} %", transform=place, ha="center", fontsize=8.5)
    axes.set(xlabel="accuracy on the test rows, %", ylabel="teachers")
    axes.yaxis.get_major_locator().set_params(integer=True)


@_drawn
def plot_before_after(
    axes: Any, before: Sequence[float], after: Sequence[tuple[str, Sequence[float]]], *, what: str
) -> None:
    """Draw for each asker how good it was before, and how good after, once for each way of asking.

    Askers are numbered from 1: their names are anybody's, and stay out of the drawing.
    """
    places = list(range(len(before)))
    width = 0.8 / (1 + len(after))
    bars = [("before", before, SILENCE)]
    bars += [(word, scores, GROUPS[at % N_COLOURS]) for at, (word, scores) in enumerate(after)]
    for at, (word, scores, colour) in enumerate(bars):
        shifted = [place - 0.4 + width * (at + 0.5) for place in places]
        axes.bar(shifted, [100 * one for one in scores], width=0.92 * width, color=colour, label=word)
    axes.set_xticks(places, [f"asker {place + 1}" for place in places])
    axes.set(ylabel=f"{what} on the test rows, %", ylim=(0, 118))
    axes.set_yticks(range(0, 101, 20))
    axes.legend(loc="upper left", fontsize=8, ncols=2)


def _log_scale(axes: Any, low: float, high: float) -> None:
    """Make an axis logarithmic, with round numbers on it: 1, 2 and 5 times powers of ten."""
    axes.set_xscale("log")
    if 0 < low < high:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        shown = [tick for tick in ticks if low <= tick <= high]
        axes.set_xlim(low, high)
        axes.set_xticks(shown, [f"{tick:g}" for tick in shown])
    axes.minorticks_off()


# Plots about sound

_MOST_FRAMES = 600
_OCTAVES = (250, 500, 1000, 2000, 4000, 8000, 16000)  # Hz


@_drawn
def plot_log_mel(axes: Any, picture: ArrayLike, *, seconds: float, pitches: ArrayLike | None = None) -> None:
    """Draw a log-Mel picture, (frames, filters) in decibels: time to the right, pitch upwards.

    `pitches` are the middles of the filters in Hz; without them filters are numbered. A long picture is
    thinned to what a page can show.
    """
    shown = np.asarray(picture, dtype=np.float64)
    step = -(-len(shown) // _MOST_FRAMES)
    # The loudest of the frames that fall together, so that a click does not vanish.
    rows = np.stack([shown[at : at + step].max(axis=0) for at in range(0, len(shown), step)])
    axes.imshow(
        rows.T, origin="lower", aspect="auto", extent=(0, seconds, 0, rows.shape[1]), cmap="magma",
        interpolation="nearest",
    )  # fmt: skip
    axes.figure.set_size_inches(5.0, 2.3)
    axes.grid(visible=False)
    axes.set_xlabel("seconds")
    if pitches is None:
        axes.set_ylabel("Mel filter")
    else:
        places, words = _pitch_ticks(np.asarray(pitches, dtype=np.float64))
        axes.set_yticks(places, words)
        axes.set_ylabel("pitch, Hz")


def _pitch_ticks(pitches: NDArray[np.float64]) -> tuple[list[float], list[str]]:
    """Return where octaves lie among filters, and their names; filters that hear nothing have no place."""
    known = np.flatnonzero(np.isfinite(pitches))
    if not known.size:
        return [], []
    shown = [hertz for hertz in _OCTAVES if pitches[known[0]] <= hertz <= pitches[known[-1]]]
    places = np.interp(shown, pitches[known], known + 0.5)
    words = [f"{hertz / 1000:g}k" if hertz >= 1000 else f"{hertz}" for hertz in shown]
    return places.tolist(), words


@_drawn
def plot_label_curves(axes: Any, curves: Sequence[LabelCurve], *, kind: Literal["precision", "hits"]) -> None:
    """Draw curves of labels: precision over recall, or hits over false alarms.

    Up to six labels have a colour each and are numbered from 1 in the order given; of more, all are grey.
    """
    few = len(curves) <= N_COLOURS
    for at, curve in enumerate(curves):
        if kind == "precision":
            # A threshold above all scores says no to everything: nothing is found, and nothing is wrong.
            x, y = np.append(0.0, curve.recall), np.append(curve.precision[:1], curve.precision)
        else:
            x, y = np.append(0.0, curve.false_alarms), np.append(0.0, curve.recall)
        axes.step(
            100 * x, 100 * y, where="post", color=GROUPS[at] if few else MUTED,
            alpha=1.0 if few else 0.5, linewidth=1.6, label=f"{at + 1}" if few else None,
        )  # fmt: skip
    words = {"xlabel": "recall, %", "ylabel": "precision, %"}
    if kind == "hits":
        axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle=":")
        words = {"xlabel": "false alarms, %", "ylabel": "hits, %"}
    axes.set(**words, xlim=(-1, 101), ylim=(0, 103))
    if few and len(curves) > 1:
        # Above the plot: wherever else it stood, somebody's curves would run through it.
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=len(curves), fontsize=8.5, borderaxespad=0)
