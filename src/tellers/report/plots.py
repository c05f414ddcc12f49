"""The plots of the report: inline SVG, the same bytes every time, in the colours of the page around them.

No name of a class or a column enters a drawing.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .canvas import ACCENT, GROUPS, INK, MUTED, N_COLOURS, RED, SILENCE, draw_svg

Points = Sequence[tuple[float, float]]


def plot_cost(public: Points, *, budget: float, title: str, exact: Points = (), word: str = "exact") -> str:
    """Draw epsilon over the number of queries, the budget as a line above it, the exact cost where given.

    `word` says what that is called: an upper bound, where it is one.

    >>> plot_cost([(10, 0.5), (20, 0.7)], budget=1.0, title="Cost").startswith("<svg")
    True
    """

    def draw(axes: Any) -> None:
        for points, colour, name in ((public, ACCENT, "public epsilon"), (exact, RED, f"{word}, private")):
            if points:
                axes.plot(*zip(*points), color=colour, label=name, marker="o" if len(points) == 1 else None)
        if math.isfinite(budget):
            axes.axhline(budget, color=INK, linewidth=1.2, linestyle=(0, (4, 3)), label="budget")
        axes.set_xlabel("questions asked")
        axes.set_ylabel("epsilon spent")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(loc="lower right")

    return draw_svg(draw, name="cost", title=title)


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
        axes.set_ylim(0, 1.2 * max(tops, default=1.0))
        axes.set_xlim(left=0)
        axes.set_xlabel("questions asked")
        axes.set_ylabel("epsilon spent")
        axes.xaxis.get_major_locator().set_params(integer=True)

    return draw_svg(draw, name="groups", title=title)


def plot_told(counts: Sequence[tuple[int, int, int]], *, title: str) -> str:
    """Draw what came out label by label: yes, no and silence, as shares of the questions.

    Labels are numbered from 1: their names are anybody's, and stay out of the drawing.

    >>> "var(--silent)" in plot_told([(30, 50, 20), (5, 95, 0)], title="Told")
    True
    """

    def draw(axes: Any) -> None:
        at, below = range(1, len(counts) + 1), [0.0] * len(counts)
        for kind, (word, colour) in enumerate((("yes", ACCENT), ("no", MUTED), ("silence", SILENCE))):
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

    return draw_svg(draw, name="told", title=title)


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
        axes.hist(gaps, bins=edges, weights=weights, color=RED if private else ACCENT, rwidth=0.88)
        axes.set_xlabel(between)
        axes.set_ylabel(of)
        axes.set_xlim(edges[0], edges[-1])

    return draw_svg(draw, name="gaps", title=title)


def plot_noise(curve: Points, *, here: float | None, chance: float, private: bool, title: str) -> str:
    """Draw how right released labels are as the noise grows; a mark where the run was.

    >>> "questions" in plot_noise([(1, 0.9), (9, 0.7)], here=4.0, chance=0.1, private=False, title="Noise")
    False
    """

    def draw(axes: Any) -> None:
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
        axes.set_xscale("log")
        axes.set_xlim(noises[0], noises[-1])
        axes.set_ylim(0, 103)
        ticks = _log_ticks(noises[0], noises[-1])
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel("noise on every count, in votes")
        axes.set_ylabel("% of labels right")

    return draw_svg(draw, name="noise", title=title)


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
        for (word, points), colour in zip(series.items(), GROUPS, strict=False):
            placed = sorted(point for point in points if math.isfinite(point[0]) and point[0] > 0)
            if placed:
                costs, scores = zip(*placed)
                shown = [100 * score for score in scores]
                axes.plot(costs, shown, color=colour, label=word, marker="o", markersize=4)
                low, high = min(low, placed[0][0]), max(high, placed[-1][0])
        if reference is not None:
            axes.axhline(
                100 * reference, color=INK, linewidth=1.2, linestyle=(0, (4, 3)), label="without noise"
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

    return draw_svg(draw, name="sweep", title=title)


def plot_flips(buckets: Sequence[tuple[float, float, int, float]], *, title: str) -> str:
    """Draw how many queries have which chance q to come out otherwise, and what they cost; private.

    A bucket is (lowest q, highest q, queries, mean epsilon of 1000 such queries).

    >>> "queries" in plot_flips([(0.001, 0.01, 5, 2.0), (0.01, 0.1, 9, 7.0)], title="q")
    True
    """

    def draw(axes: Any) -> None:
        for low, high, n_queries, _ in buckets:
            axes.bar(low, n_queries, width=0.92 * (high - low), align="edge", color=MUTED, alpha=0.6)
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
            costs.plot(*zip(*marked), color=RED, marker="o", markersize=4, linestyle="none")
        costs.set_ylabel("epsilon of 1000 such queries")
        costs.set_ylim(bottom=0)
        costs.grid(visible=False)

    return draw_svg(draw, name="flips", title=title)


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
        axes.hist(shares, bins=edges, color=RED, rwidth=0.88)
        mean = sum(shares) / len(shares)
        axes.axvline(mean, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        place = axes.get_xaxis_transform()
        axes.text(mean, 1.02, f"mean {mean:.1f} %", transform=place, ha="center", fontsize=8.5)
        axes.set_xlabel("accuracy on the test rows, %")
        axes.set_ylabel("teachers")
        axes.yaxis.get_major_locator().set_params(integer=True)

    return draw_svg(draw, name="teachers", title=title)


def plot_before_after(
    before: Sequence[float], after: Sequence[tuple[str, Sequence[float]]], *, what: str, title: str
) -> str:
    """Draw for each asker how good it was before, and how good after, once for each way of asking.

    Askers are numbered from 1: their names are anybody's, and stay out of the drawing.

    >>> drawn = plot_before_after([0.5, 0.6], [("sound", [0.7, 0.7])], what="accuracy", title="Askers")
    >>> "asker 2" in drawn, drawn.endswith("</svg>")
    (True, True)
    """

    def draw(axes: Any) -> None:
        places = list(range(len(before)))
        width = 0.8 / (1 + len(after))
        bars = [("before", before, SILENCE)]
        bars += [(word, scores, GROUPS[at % N_COLOURS]) for at, (word, scores) in enumerate(after)]
        for at, (word, scores, colour) in enumerate(bars):
            shifted = [place - 0.4 + width * (at + 0.5) for place in places]
            axes.bar(shifted, [100 * one for one in scores], width=0.92 * width, color=colour, label=word)
        axes.set_xticks(places, [f"asker {place + 1}" for place in places])
        axes.set_ylabel(f"{what} on the test rows, %")
        axes.set_ylim(0, 118)
        axes.set_yticks(range(0, 101, 20))
        axes.legend(loc="upper left", fontsize=8, ncols=2)

    return draw_svg(draw, name="before-after", title=title)


def _log_ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two, at most about eight: 1, 2 and 5 times powers of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    return [tick for tick in ticks if low <= tick <= high]
