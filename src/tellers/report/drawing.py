"""A drawing on the page: the plot, and the words around it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A plot with the words below it; `mark` says "private", for the red frame, or "simulated".

    >>> Drawing(svg="<svg></svg>", heading="Cost", caption="What it cost.").mark
    ''
    """

    svg: str
    heading: str
    caption: str
    mark: str = ""
