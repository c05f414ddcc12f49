"""Drawings without a script: SVG that takes its colours from the page's style sheet."""

import math
from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT = 640, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 12, 40


def draw_burn(points: Sequence[tuple[int, float]], budget: float, *, title: str) -> str:
    """Draw how much of a budget was left after how many queries.

    >>> drawn = draw_burn([(0, 2.0), (10, 1.4)], 2.0, title="Left & spent")
    >>> drawn.startswith("<svg"), "Left &amp; spent" in drawn, "style" in drawn
    (True, True, False)
    """
    most = max(1, points[-1][0])
    wide, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def place(n: float, left: float) -> tuple[float, float]:
        return round(_LEFT + wide * n / most, 1), round(_TOP + tall * (1 - left / budget), 1)

    parts = []
    for tick in ticks(budget, 4):
        _, y = place(0, tick)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    for tick in ticks(most, 5):
        if tick == int(tick):
            x, _ = place(tick, 0)
            side = "end" if x > _WIDTH - 40 else "middle"
            parts.append(f'<text x="{x}" y="{_HEIGHT - 20}" text-anchor="{side}">{int(tick):,}</text>')
    line = step_path([place(*point) for point in points])
    floor = place(0, 0)[1]
    end = place(*points[-1])
    parts.append(f'<path class="area" d="{line} V{floor} H{_LEFT} Z"/><path class="line" d="{line}"/>')
    parts.append(f'<circle class="now" cx="{end[0]}" cy="{end[1]}" r="4"/>')
    middle = _LEFT + wide / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 3}" text-anchor="middle">queries asked</text>')
    opening = f'<svg class="burn" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    return f"{opening}<title>{escape(title)}</title>{''.join(parts)}</svg>"


def draw_spark(points: Sequence[tuple[int, float]], budget: float) -> str:
    """Draw the same, small enough for a row of a table; what it shows is beside it in words.

    >>> draw_spark([(0, 2.0), (10, 1.4)], 2.0).startswith('<svg class="spark"')
    True
    """
    most = max(1, points[-1][0])
    places = [(round(118 * n / most + 1, 1), round(22 * (1 - left / budget) + 1, 1)) for n, left in points]
    line = step_path([*places, (119.0, places[-1][1])])
    return (
        '<svg class="spark" viewBox="0 0 120 24" aria-hidden="true">'
        f'<path class="area" d="{line} V23 H1 Z"/><path class="line" d="{line}"/></svg>'
    )


def draw_bar(parts: Sequence[tuple[str, float]]) -> str:
    """Draw shares, in percent, side by side; each has the class of its colour.

    >>> draw_bar([("answered", 60.0)]).count("<rect")
    2
    """
    drawn, x = ['<rect class="rest" width="100%" height="100%"/>'], 0.0
    for kind, share in parts:
        place = f'x="{x:.3f}%" width="{max(0.0, share):.3f}%" height="100%"'
        drawn.append(f'<rect class="{escape(kind)}" {place}/>')
        x += share
    return f'<svg class="bar" aria-hidden="true">{"".join(drawn)}</svg>'


def step_path(places: Sequence[tuple[float, float]]) -> str:
    """Return the path of a line that falls in steps.

    >>> step_path([(0.0, 1.0), (5.0, 3.0)])
    'M0.0 1.0 H5.0 V3.0'
    """
    (x, y), *rest = places
    return " ".join([f"M{x} {y}", *(f"H{x} V{y}" for x, y in rest)])


def ticks(most: float, n: int) -> list[float]:
    """Return round numbers from 0 to a largest, about so many.

    >>> ticks(2.0, 4), ticks(30, 5)
    ([0.0, 0.5, 1.0, 1.5, 2.0], [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0])
    """
    raw = most / n
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * part for part in (1, 2, 2.5, 5, 10) if size * part >= raw * 0.8)
    return [round(step * i, 10) for i in range(int(most / step + 1e-9) + 1)]
