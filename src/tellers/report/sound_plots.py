"""Plots about sound: a log-Mel picture, and the curves of every label."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .canvas import GROUPS, MUTED, N_COLOURS, draw_svg

if TYPE_CHECKING:
    from ..curves import LabelCurve

_MOST_FRAMES = 600
_OCTAVES = (250, 500, 1000, 2000, 4000, 8000, 16000)  # Hz


def plot_log_mel(
    picture: ArrayLike, *, seconds: float, name: str, title: str, pitches: ArrayLike | None = None
) -> str:
    """Draw a log-Mel picture, (frames, filters) in decibels: time to the right, pitch upwards.

    `pitches` are the middles of the filters in Hz; without them filters are numbered. `name` keeps several
    pictures apart on one page. A long picture is thinned to what a page can show.

    >>> drawn = plot_log_mel(np.zeros((20, 8)), seconds=0.4, name="clip-1", title="A clip")
    >>> "<image" in drawn, "seconds" in drawn
    (True, True)
    """
    shown = np.asarray(picture, dtype=np.float64)
    step = -(-len(shown) // _MOST_FRAMES)
    # The loudest of the frames that fall together, so that a click does not vanish.
    rows = np.stack([shown[at : at + step].max(axis=0) for at in range(0, len(shown), step)])

    def draw(axes: Any) -> None:
        axes.imshow(
            rows.T, origin="lower", aspect="auto", extent=(0, seconds, 0, rows.shape[1]), cmap="magma",
            interpolation="nearest",
        )  # fmt: skip
        axes.grid(visible=False)
        axes.set_xlabel("seconds")
        if pitches is None:
            axes.set_ylabel("Mel filter")
        else:
            places, words = _pitch_ticks(np.asarray(pitches, dtype=np.float64))
            axes.set_yticks(places, words)
            axes.set_ylabel("pitch, Hz")

    return draw_svg(draw, name=name, title=title, size=(5.0, 2.3))


def _pitch_ticks(pitches: NDArray[np.float64]) -> tuple[list[float], list[str]]:
    """Return where octaves lie among filters, and their names; filters that hear nothing have no place."""
    known = np.flatnonzero(np.isfinite(pitches))
    if not known.size:
        return [], []
    shown = [hertz for hertz in _OCTAVES if pitches[known[0]] <= hertz <= pitches[known[-1]]]
    places = np.interp(shown, pitches[known], known + 0.5)
    words = [f"{hertz / 1000:g}k" if hertz >= 1000 else f"{hertz}" for hertz in shown]
    return places.tolist(), words


def plot_label_curves(
    curves: "Sequence[LabelCurve]", *, kind: Literal["precision", "hits"], name: str, title: str
) -> str:
    """Draw curves of labels: precision over recall, or hits over false alarms.

    Up to six labels have a colour each and are numbered from 1 in the order given; of more, all are grey.

    >>> from tellers.curves import label_curves
    >>> curves = label_curves([[1], [0], [1]], [[0.9], [0.7], [0.5]])
    >>> "recall" in plot_label_curves(curves, kind="precision", name="pr", title="Curves")
    True
    >>> "false alarms" in plot_label_curves(curves, kind="hits", name="roc", title="Curves")
    True
    """
    few = len(curves) <= N_COLOURS

    def draw(axes: Any) -> None:
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
        if kind == "precision":
            axes.set_xlabel("recall, %")
            axes.set_ylabel("precision, %")
        else:
            axes.plot([0, 100], [0, 100], color=MUTED, linewidth=1, linestyle=":")
            axes.set_xlabel("false alarms, %")
            axes.set_ylabel("hits, %")
        axes.set_xlim(-1, 101)
        axes.set_ylim(0, 103)
        if few and len(curves) > 1:
            # Above the plot: wherever else it stood, somebody's curves would run through it.
            axes.legend(
                loc="lower left", bbox_to_anchor=(0, 1), ncols=len(curves), fontsize=8.5, borderaxespad=0
            )

    return draw_svg(draw, name=name, title=title)
