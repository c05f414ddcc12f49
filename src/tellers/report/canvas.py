"""The canvas of the report's plots: inline SVG, the same bytes every time, in the colours of the page.

Colours are written as placeholders and become variables of the page's style, so one drawing serves a light
page, a dark one and paper. Text stays text.
"""

import io
import re
from collections.abc import Callable
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
INK, LINE, ACCENT, RED, MUTED, SILENCE, *GROUPS = _COLOURS
N_COLOURS = len(GROUPS)
_STYLE: dict[str, Any] = {
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9.5,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.linewidth": 2.0,
    "svg.fonttype": "none",
    "svg.hashsalt": "tellers",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.color": LINE,
    "ytick.labelcolor": MUTED,
    "ytick.left": False,
}


def draw_svg(
    draw: Callable[[Any], None], *, name: str, title: str, size: tuple[float, float] = (5.0, 3.1)
) -> str:
    """Return what a function draws on axes as inline SVG, in the colours of the page around it.

    >>> drawn = draw_svg(lambda axes: axes.plot([0, 1], color=ACCENT), name="line", title="A line")
    >>> drawn.startswith("<svg"), "var(--accent)" in drawn
    (True, True)
    """
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
        figure = Figure(figsize=size, layout="constrained")
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
