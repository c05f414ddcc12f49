"""Pages about sound: what a student hears in a clip, how good each label is, and what the votes say."""

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..curves import LabelCurve, best_and_worst, label_curves
from ..label_votes import LabelVotes
from ..mechanisms import GNMax
from ..mechanisms.labels.gnthreshold import GNThreshold
from ..report.drawing import Drawing
from ..report.sheet import SheetPart, SheetTable, write_sheet
from ..report.sound_plots import plot_label_curves, plot_log_mel
from ..votes import Votes
from .hearing import Hearing, Tagged
from .logmel import LogMel, mel_filters
from .sweep import SweepRow
from .sweep_report import (
    Epsilon,
    Score,
    draw_flips,
    draw_sweep,
    flip_buckets,
    noiseless_classes,
    noiseless_table,
)
from .sweep_setting import SweepSetting

SOUND_PAGE = "sound.html"
_MOST_CURVES = 6


def tag_parts(
    tagged: Sequence[Tagged], *, seconds: float, n_labels: int = 5, logmel: LogMel | None = None
) -> list[SheetPart]:
    """Return a part for each clip: its log-Mel picture, and the labels heard in it with their scores.

    With the settings of the pictures, `logmel`, pitch is told in Hz.

    >>> one = Tagged("a.wav", ("bell", "siren"), np.array([0.2, 0.9]), np.zeros((20, 8)))
    >>> part = tag_parts([one], seconds=0.4)[0]
    >>> part.heading, part.tables[0].rows
    ('a.wav', (('siren', 0.9), ('bell', 0.2)))
    """
    parts = []
    for number, one in enumerate(tagged, start=1):
        words = "" if one.finding is None else f"{one.finding.kind}: {one.finding.detail}."
        drawings: tuple[Drawing, ...] = ()
        tables: tuple[SheetTable, ...] = ()
        if one.picture is not None:
            svg = plot_log_mel(
                one.picture, seconds=seconds, name=f"clip-{number}", title=f"Log-Mel picture {number}",
                pitches=None if logmel is None else _pitches(logmel),
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


def curve_parts(
    truth: ArrayLike, scores: ArrayLike, label_names: Sequence[str], *, of: str = "the test clips"
) -> list[SheetPart]:
    """Return precision and recall, hits and false alarms label by label, and the best and worst labels.

    >>> parts = curve_parts([[1, 0], [0, 1], [1, 1], [0, 0]], np.random.default_rng(7).random((4, 2)), "ab")
    >>> [part.heading for part in parts], len(parts[0].drawings)
    (['Label by label'], 2)
    """
    curves = label_curves(truth, scores)
    if not curves:
        return []
    ranked = sorted(curves, key=lambda curve: -curve.area)
    best, worst = best_and_worst([curve.area for curve in curves], n_labels=_MOST_CURVES // 2)
    shown = ranked
    words = f"How well the labels are told apart on {of}, at every threshold."
    if len(ranked) > _MOST_CURVES:
        shown = [curves[i] for i in (*best, *reversed(worst))]
        words += f" Of {len(ranked)} labels the three best and the three worst are drawn."
    number = {curve.label: at + 1 for at, curve in enumerate(shown)}
    numbered = "Lines have the numbers and colours of the table."
    drawings = (
        Drawing(
            svg=plot_label_curves(shown, kind="precision", name="precision", title="Precision over recall"),
            heading="Precision over recall", caption=f"Towards the upper right is better. {numbered}",
        ),
        Drawing(
            svg=plot_label_curves(shown, kind="hits", name="hits", title="Hits over false alarms"),
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
    """Write the page of what a student hears in public test clips: some of them, and the curves of labels.

    >>> import tempfile
    >>> from tellers.audio.store import Features
    >>> class Deaf:
    ...     def predict_proba(self, X):
    ...         return np.random.default_rng(7).random((len(X), 2))
    >>> hearing, truth = Hearing(Deaf(), Features(), ("bell", "siren")), [[1, 0], [0, 1], [1, 1]]
    >>> place = Path(tempfile.mkdtemp()) / "sound.html"
    >>> page = write_sound(place, hearing, np.zeros((3, 20, 8)), truth=truth)
    >>> "Label by label" in page.read_text()
    True
    """
    known, scores = np.asarray(truth), hearing.scores(pictures)
    parts = curve_parts(known, scores, hearing.label_names)
    # One clip of each of the first labels, so that they are not all alike.
    chosen = list(dict.fromkeys(int(np.argmax(known[:, j])) for j in range(known.shape[1])))[:n_clips]
    for at in chosen:
        said = ", ".join(hearing.label_names[j] for j in np.flatnonzero(known[at])) or "none"
        one = Tagged(f"Test clip {at + 1} ({said})", hearing.label_names, scores[at], pictures[at])
        seconds = hearing.features.decoding.seconds
        parts += tag_parts([one], seconds=seconds, logmel=hearing.features.logmel)
    named = [_named(part, number) for number, part in enumerate(parts)]
    words = (
        "Test clips, which are public and protected by nothing, and what the student makes of them. Its own "
        "privacy is told by its card and by report.html beside this page."
    )
    return write_sheet(path, "What the student hears", parts=named, words=words)


def write_tags(
    path: str | PathLike[str], hearing: Hearing, tagged: Sequence[Tagged], *, n_labels: int = 5
) -> Path:
    """Write the page of recordings that were tagged: their pictures, and the likeliest labels.

    >>> import tempfile
    >>> from tellers.audio.store import Features
    >>> hearing = Hearing(None, Features(), ("bell", "siren"))
    >>> one = Tagged("a.wav", ("bell", "siren"), np.array([0.2, 0.9]), np.zeros((1001, 64)))
    >>> "pitch, Hz" in write_tags(Path(tempfile.mkdtemp()) / "tags.html", hearing, [one]).read_text()
    True
    """
    seconds, logmel = hearing.features.decoding.seconds, hearing.features.logmel
    words = "Pictures are made of the recordings and as private as these are. To tag them costs no privacy."
    parts = tag_parts(tagged, seconds=seconds, n_labels=n_labels, logmel=logmel)
    return write_sheet(path, "What the student hears", parts=parts, words=words)


def write_private_sound(
    path: str | PathLike[str], votes: LabelVotes | Votes, truth: ArrayLike, *, mechanism: Any, delta: float
) -> Path:
    """Write the private page about votes: ensembles without noise, and how likely labels flip at which cost.

    Votes on one class each come with their classes as the truth.

    >>> import tempfile
    >>> votes = LabelVotes.from_sums([[9, 1], [4, 3]], n_teachers=10)
    >>> page = write_private_sound(
    ...     Path(tempfile.mkdtemp()) / "p.html", votes, [[1, 0], [0, 1]], mechanism=GNThreshold(2.0, 2),
    ...     delta=1e-3,
    ... )
    >>> "How likely labels flip" in page.read_text()
    True
    >>> named = Votes.from_counts([[9, 1], [4, 6]], n_teachers=10)
    >>> page = write_private_sound(page, named, [0, 0], mechanism=GNMax(2.0), delta=1e-3)
    >>> "50.0 %" in page.read_text()  # one of two is right
    True
    """
    parts = [_noiseless(votes, truth)]
    share = getattr(mechanism, "share", None)
    if type(mechanism) is GNThreshold and isinstance(share, float):
        setting = SweepSetting(
            share=share, sigma=mechanism.sigma / votes.n_teachers,
            max_labels=mechanism.max_labels,
        )  # fmt: skip
        parts.append(_flips(votes, setting, delta=delta))
    if type(mechanism) is GNMax:
        setting = SweepSetting(kind="gnmax", sigma=mechanism.sigma / votes.n_teachers)
        parts.append(_flips(votes, setting, delta=delta))
    return write_sheet(path, "What the teachers said", parts=parts)


def write_sweep(
    path: str | PathLike[str],
    rows: Sequence[SweepRow],
    *,
    votes: LabelVotes | Votes,
    truth: ArrayLike,
    delta: float,
) -> Path:
    """Write the private page of a sweep: scores over epsilon, ensembles without noise, and how labels flip.

    Where clips have one class each, the score is the accuracy, over the exact epsilon and over the price.

    >>> import tempfile
    >>> from tellers import noise
    >>> from tellers.audio.sweep import sweep, sweep_settings
    >>> votes = LabelVotes.from_ballots([[[1, 0]] * 4] * 10, n_labels=2)
    >>> rows = sweep(votes, [[1, 0]] * 4, sweep_settings(sigmas=[0.2]), delta=1e-5, noise=noise.seeded(7))
    >>> place = Path(tempfile.mkdtemp()) / "sweep.html"
    >>> "PRIVATE" in write_sweep(place, rows, votes=votes, truth=[[1, 0]] * 4, delta=1e-5).read_text()
    True
    """
    warning = (
        "What each setting made of the same stored votes. To look at this and take the best lets the votes "
        "choose, and no epsilon covers that: choose on votes of teachers of public clips, or of other ones."
    )
    of_classes = isinstance(votes, Votes)
    plots: tuple[tuple[Score, Epsilon], ...] = (
        (("accuracy", "exact"), ("accuracy", "public"))
        if of_classes
        else (("macro_f1", "public"), ("mean_average_precision", "public"))
    )
    sigmas = sorted({row.setting.sigma for row in rows})
    noises = f"Epsilon at delta {delta:g}, for all queries together."
    if len(sigmas) > 1:
        of = "of variance a teacher" if rows[0].setting.noise == "variance" else "of the ensemble"
        noises += f" Along a line noise falls from {sigmas[-1]:g} to {sigmas[0]:g} {of}, left to right."
    parts = []
    for number, group in enumerate(_by_series(rows)):
        drawn = tuple(
            _renamed(draw_sweep(group, score=score, epsilon=cost), f"sweep-{number}-{score}-{cost}")
            for score, cost in plots
        )
        parts.append(SheetPart(heading="Scores over epsilon", words="" if number else noises, drawings=drawn))
    parts.append(_noiseless(votes, truth))
    plain = [row.setting for row in rows if row.setting.kind == ("gnmax" if of_classes else "gnthreshold")]
    plain = [one for one in plain if one.confident_share is None and one.noise == "deviation"]
    if plain:
        parts.append(_flips(votes, plain[0], delta=delta))
    return write_sheet(path, "Many ways to count the same votes", parts=parts, words=warning)


def _noiseless(votes: LabelVotes | Votes, truth: ArrayLike) -> SheetPart:
    if isinstance(votes, Votes):
        return _noiseless_classes(votes, truth)
    shares = noiseless_table(votes, truth, confident_shares=(None, 0.6)).reveal()
    rows = tuple(
        (
            f"{row['share']}" if isinstance(row["share"], str) else f"{row['share']:g}",
            "no check" if row["confident_share"] is None else f"{row['confident_share']:g}",
            *(_known(row[name]) for name in ("raw_map", "raw_auc", "answered", "precision", "recall", "f1")),
        )
        for row in shares
    )
    head = ("threshold", "check", "mAP", "AUC", "answered", "precision", "recall", "F1")
    words = f"{votes.n_teachers} teachers together on {len(votes)} queries, before any noise."
    table = SheetTable(caption="Means over labels.", head=head, rows=rows, mark="private")
    return SheetPart(heading="The ensemble without noise", words=words, tables=(table,))


def _noiseless_classes(votes: Votes, truth: ArrayLike) -> SheetPart:
    rows = tuple(
        (
            "no check" if row["confident_share"] is None else f"{row['confident_share']:g}",
            *(_known(row[name]) for name in ("answered", "accuracy", "precision", "recall", "f1")),
            *(_known(row[name]) for name in ("raw_map", "raw_auc")),
        )
        for row in noiseless_classes(votes, truth, confident_shares=(None, 0.6, 0.8)).reveal()
    )
    head = ("check", "answered", "accuracy", "precision", "recall", "F1", "mAP", "AUC")
    words = f"{votes.n_teachers} teachers together on {len(votes)} queries, before any noise."
    caption = "Precision, recall, F1, mAP and AUC are means over classes."
    table = SheetTable(caption=caption, head=head, rows=rows, mark="private")
    return SheetPart(heading="The ensemble without noise", words=words, tables=(table,))


def _flips(votes: LabelVotes | Votes, setting: SweepSetting, *, delta: float) -> SheetPart:
    drawing = draw_flips(flip_buckets(votes, setting, delta=delta))
    limit = "" if isinstance(votes, Votes) else f" at threshold {setting.share:g}"
    words = (
        f"Noise of {setting.sigma:g} of the ensemble{limit}. Where q is small, a query costs little by a "
        "look at the votes."
    )
    return SheetPart(heading="How likely labels flip, and what that costs", words=words, drawings=(drawing,))


def _by_series(rows: Sequence[SweepRow]) -> list[list[SweepRow]]:
    """Return rows in groups of at most as many lines as one plot has colours."""
    lines: dict[tuple[Any, ...], list[SweepRow]] = {}
    for row in rows:
        one = row.setting
        line = (one.kind, one.share, one.confident_share, one.sigma_gate, row.n_teachers, row.n_samples)
        lines.setdefault(line, []).append(row)
    each = list(lines.values())
    return [
        [row for line in each[start : start + _MOST_CURVES] for row in line]
        for start in range(0, len(each), _MOST_CURVES)
    ]


def _renamed(drawing: Drawing, name: str) -> Drawing:
    """Return a drawing whose ids are its own: several of one kind stand on a page."""
    return replace(drawing, svg=drawing.svg.replace("sweep-", f"{name}-"))


def _named(part: SheetPart, number: int) -> SheetPart:
    drawings = tuple(replace(one, svg=one.svg.replace("clip-1-", f"clip-{number}-")) for one in part.drawings)
    return replace(part, drawings=drawings)


def _known(value: float) -> str | float:
    return "–" if np.isnan(value) else float(value)
