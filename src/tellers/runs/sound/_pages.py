"""Pages about sound: what a student hears in clips, with their pictures, and how good each label is."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...data.metrics import LabelCurve, best_and_worst, label_curves
from ...data.sound.logmel import LogMel, mel_filters
from .._tables import Tables
from ..report._plots import N_COLOURS, Drawing, plot_label_curves, plot_log_mel
from ..report.write import SheetPart, SheetTable, write_sheet
from .tagging import Hearing, Tagged, load_hearing

SOUND_PAGE = "sound.html"


def tag_parts(hearing: Hearing, tagged: Sequence[Tagged], *, n_labels: int = 5) -> list[SheetPart]:
    """Return a part for each clip: its log-Mel picture, and the labels heard in it with their scores."""
    features = hearing.features
    parts = []
    for number, one in enumerate(tagged, start=1):
        words = "" if one.finding is None else f"{one.finding.kind}: {one.finding.detail}."
        drawings: tuple[Drawing, ...] = ()
        tables: tuple[SheetTable, ...] = ()
        if one.picture is not None:
            svg = plot_log_mel(
                f"Log-Mel picture {number}", one.picture, seconds=features.decoding.seconds,
                pitches=_pitches(features.logmel),
            )  # fmt: skip
            low, high = float(np.min(one.picture)), float(np.max(one.picture))
            caption = f"From dark to bright: {low:.0f} to {high:.0f} dB."
            drawings = (Drawing(svg=svg, heading="Log-Mel picture", caption=caption),)
            rows = tuple((name, score) for name, score in one.top(n_labels))
            tables = (SheetTable(caption="What the student hears.", head=("label", "score"), rows=rows),)
        parts.append(SheetPart(heading=Path(one.path).name, words=words, drawings=drawings, tables=tables))
    return parts


def _pitches(settings: LogMel) -> NDArray[np.float64]:
    """Return the middle of each filter in Hz; NaN where a filter lies between two frequencies."""
    bank = mel_filters(settings)
    frequencies, weight = np.fft.rfftfreq(settings.window, 1.0 / settings.rate), bank.sum(axis=0)
    found: NDArray[np.float64] = np.where(weight > 0, frequencies @ bank / np.maximum(weight, 1e-300), np.nan)
    return found


def curve_parts(truth: ArrayLike, scores: ArrayLike, label_names: Sequence[str]) -> list[SheetPart]:
    """Return precision and recall, hits and false alarms label by label, and the best and worst labels."""
    curves = label_curves(truth, scores)
    if not curves:
        return []
    ranked = sorted(curves, key=lambda curve: -curve.area)
    best, worst = best_and_worst([curve.area for curve in curves], n_labels=N_COLOURS // 2)
    shown = ranked
    words = "How well the labels are told apart on the test clips, at every threshold."
    if len(ranked) > N_COLOURS:
        shown = [curves[i] for i in (*best, *reversed(worst))]
        words += f" Of {len(ranked)} labels the three best and the three worst are drawn."
    number = {curve.label: at + 1 for at, curve in enumerate(shown)}
    numbered = "Lines have the numbers and colours of the table."
    drawings = (
        Drawing(
            svg=plot_label_curves("Precision over recall", shown, kind="precision"),
            heading="Precision over recall", caption=f"Towards the upper right is better. {numbered}",
        ),
        Drawing(
            svg=plot_label_curves("Hits over false alarms", shown, kind="hits"),
            heading="Hits over false alarms", caption=f"The dotted line is guessing. {numbered}",
        ),
    )  # fmt: skip
    table = np.asarray(truth)

    def row(curve: LabelCurve) -> tuple[str | float, ...]:
        at = number.get(curve.label)
        name = f"{at}.\u00a0{label_names[curve.label]}" if at else label_names[curve.label]
        return name, curve.area, curve.auc, f"{int(table[:, curve.label].sum())}"

    rows = tuple(row(curve) for curve in ranked)
    colours = tuple(number.get(curve.label, 0) for curve in ranked)
    caption = f"From the best label to the worst, on {len(table)} clips."
    head = ("label", "average precision", "AUC", "clips with it")
    return [
        SheetPart(
            heading="Label by label", words=words, drawings=drawings,
            tables=(SheetTable(caption=caption, head=head, rows=rows, colours=colours),),
        )
    ]  # fmt: skip


def write_sound(
    path: str | PathLike[str], hearing: Hearing, pictures: NDArray[Any], *, truth: ArrayLike, n_clips: int = 4
) -> Path:
    """Write the page of what a student hears in public test clips: some of them, and the curves of labels."""
    known, scores = np.asarray(truth), hearing.scores(pictures)
    parts = curve_parts(known, scores, hearing.label_names)
    # One clip of each of the first labels, so that they are not all alike.
    chosen = list(dict.fromkeys(int(np.argmax(known[:, j])) for j in range(known.shape[1])))[:n_clips]
    shown = []
    for at in chosen:
        said = ", ".join(hearing.label_names[j] for j in np.flatnonzero(known[at])) or "none"
        shown.append(Tagged(f"Test clip {at + 1} ({said})", hearing.label_names, scores[at], pictures[at]))
    parts += tag_parts(hearing, shown)
    words = (
        "Test clips, which are public and protected by nothing, and what the student makes of them. Its own "
        "privacy is told by its card and by report.html beside this page."
    )
    return write_sheet(path, "What the student hears", parts=parts, words=words)


def write_tags(
    path: str | PathLike[str], hearing: Hearing, tagged: Sequence[Tagged], *, n_labels: int = 5
) -> Path:
    """Write the page of recordings that were tagged: their pictures, and the likeliest labels."""
    words = "Pictures are made of the recordings and as private as these are. To tag them costs no privacy."
    parts = tag_parts(hearing, tagged, n_labels=n_labels)
    return write_sheet(path, "What the student hears", parts=parts, words=words)


# --- The page of sound beside the report of a run on prepared clips. ---


def write_run_sound(folder: str | PathLike[str], tables: Tables) -> Path | None:
    """Write what the student of a run on clips hears in its test clips, and return the page.

    Test clips are public: the page needs no guarantee and costs nothing. None where none were set apart to
    test on.
    """
    if tables.test is None:
        return None
    hearing, truth = load_hearing(folder), np.asarray(tables.test.y)
    if not tables.many_labels:
        truth = np.eye(tables.n_outputs, dtype=np.int64)[truth]
    pictures = np.asarray(tables.test.X).reshape(len(truth), *hearing.features.shape)
    return write_sound(Path(folder) / SOUND_PAGE, hearing, pictures, truth=truth)
