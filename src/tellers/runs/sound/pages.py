"""Pages about sound: tags of clips, scores of labels, sweeps as tables and drawings."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...data.metrics import (
    LabelCurve,
    auc,
    average_precision,
    best_and_worst,
    label_curves,
    mean_over_labels,
    precision_recall,
)
from ...data.sound.logmel import LogMel, mel_filters
from ...errors import require_fraction
from ...mechanisms._flip_probability import log_q_gnmax
from ...mechanisms.labels._published import published_label_cost
from ...mechanisms.labels.adaptive import as_published_share
from ...mechanisms.published import published_gnmax
from ...mechanisms.registry import name_of
from ...privacy.rdp import RdpCurve, check_orders
from ...privacy.release import SILENT
from ...privacy.sealed import Sealed
from ...privacy.votes import LabelVotes, Votes
from .._tables import read_label_tables, read_tables
from ..report._plots import Drawing, plot_flips, plot_label_curves, plot_log_mel, plot_sweep
from ..report.write import SheetPart, SheetTable, write_sheet
from ..settings.sections import (
    CLIPS,
    RunConfig,
)
from .sweeps import CLASS_KINDS, SweepRow, SweepSetting, as_counted, as_indicators, flip_chances
from .tagging import Hearing, Tagged, load_hearing

# --- Sweeps as tables and drawings: scores over epsilon, ensembles without noise, and how likely labels flip.


Score = Literal["accuracy", "macro_f1", "micro_f1", "mean_average_precision"]
Epsilon = Literal["public", "exact", "published", "dependent"]
_WORDS = {
    "accuracy": "accuracy of what was told",
    "macro_f1": "macro F1", "micro_f1": "micro F1", "mean_average_precision": "mAP of the labels told",
}  # fmt: skip
_EPSILONS = {
    "public": "Epsilon is the price, which holds for any votes.",
    "exact": "Epsilon is the exact cost of these votes, and private.",
    "published": "Epsilon is the thesis's own, for its tables: no bound.",
    "dependent": "Epsilon is the thesis's own with a look at the votes, for its tables: no bound.",
}
_DEPENDENT_OF_CLASSES = (
    "Epsilon is the published bound of 2018 on these votes, along the path taken; private."
)


def sweep_table(rows: Sequence[SweepRow]) -> Sealed[list[dict[str, Any]]]:
    """Return rows as flat records, sealed: setting, ensemble, public epsilon and every private number.

    >>> from tellers import noise
    >>> from tellers.runs.sound import sweep, sweep_settings
    >>> votes = LabelVotes.from_ballots([[[1, 0]] * 4] * 10, n_labels=2)
    >>> settings = sweep_settings(sigmas=[0.2])
    >>> table = sweep_table(sweep(votes, [[1, 0]] * 4, settings, delta=1e-5, noise=noise.seeded(7)))
    >>> table, table.reveal()[0]["kind"], table.reveal()[0]["answered"]
    (Sealed(<private>), 'gnthreshold', 1.0)
    """
    return Sealed(
        [
            {
                **asdict(row.setting), "n_teachers": row.n_teachers, "n_samples": row.n_samples,
                "public_epsilon": row.public_epsilon, **asdict(row.private.reveal()),
            }
            for row in rows
        ]
    )  # fmt: skip


def draw_sweep(
    rows: Sequence[SweepRow],
    *,
    score: Score = "macro_f1",
    epsilon: Epsilon = "public",
    reference: float | None = None,
) -> Drawing:
    """Draw a score over epsilon, a line for each setting up to its noise; private, whichever epsilon it is.

    Reference: the thesis on private audio tagging, figures 5.13c to 5.15c and 5.17 to 5.19.

    >>> from tellers import noise
    >>> from tellers.runs.sound import sweep, sweep_settings
    >>> votes = LabelVotes.from_ballots([[[1, 0]] * 4] * 10, n_labels=2)
    >>> settings = sweep_settings(sigmas=[0.1, 0.2], shares=[0.3, 0.5])
    >>> drawing = draw_sweep(sweep(votes, [[1, 0]] * 4, settings, delta=1e-5, noise=noise.seeded(7)))
    >>> drawing.mark, drawing.svg.count("threshold 0.3")
    ('private', 1)
    """
    if score not in _WORDS or epsilon not in _EPSILONS:
        raise ValueError(
            f"Expected score to be one of {', '.join(_WORDS)} and epsilon one of {', '.join(_EPSILONS)}, got "
            f"{score!r} and {epsilon!r}."
        )
    series: dict[str, list[tuple[float, float]]] = {}
    sizes, lengths = {row.n_teachers for row in rows}, {row.n_samples for row in rows}
    for row in rows:
        numbers = row.private.reveal()
        cost = row.public_epsilon if epsilon == "public" else getattr(numbers, f"{epsilon}_epsilon")
        value = getattr(numbers, score)
        points = series.setdefault(_name(row, sizes=len(sizes) > 1, lengths=len(lengths) > 1), [])
        if math.isfinite(value) and math.isfinite(cost):
            points.append((cost, value))
    word = _WORDS[score]
    title = f"{word} over {'the exact epsilon' if epsilon == 'exact' else 'epsilon'}"
    svg = plot_sweep(series, score=word, title=title, reference=reference)
    which = _EPSILONS[epsilon]
    if epsilon == "dependent" and rows and all(row.setting.kind in CLASS_KINDS for row in rows):
        which = _DEPENDENT_OF_CLASSES
    caption = f"What each setting made of the same stored votes. {which}"
    return Drawing(svg=svg, heading=title, caption=caption, mark="private")


def noiseless_table(
    votes: LabelVotes,
    truth: ArrayLike,
    *,
    shares: Sequence[float | Literal["adaptive"]] = ("adaptive", 0.2, 0.4, 0.6),
    confident_shares: Sequence[float | None] = (None,),
) -> Sealed[list[dict[str, Any]]]:
    """Return how right an ensemble is without noise, at every threshold; sealed, as nothing protects it.

    "raw" numbers rank by the mean votes themselves. A query is answered where one label's mean reaches the
    confident share; "adaptive" is the middle of the largest gap.

    Reference: the thesis on private audio tagging, tables 5.1 to 5.3.

    >>> votes = LabelVotes.from_sums([[9, 1], [4, 3]], n_teachers=10)
    >>> table = noiseless_table(votes, [[1, 0], [0, 1]], shares=[0.5], confident_shares=[None, 0.8])
    >>> [(row["answered"], row["precision"], row["recall"]) for row in table.reveal()]
    [(1.0, 1.0, 0.5), (0.5, 1.0, 1.0)]
    """
    known, means = np.asarray(truth), votes.sums / (votes.n_teachers * votes.resolution)
    raw = {
        "raw_map": mean_over_labels(average_precision(known, means)),
        "raw_auc": mean_over_labels(auc(known, means)),
    }
    table = []
    for share in shares:
        limits = (
            np.array([as_published_share(list(row)) for row in means]) if share == "adaptive"
            else np.full(len(means), float(share))
        )[:, None]  # fmt: skip
        # A share that is whole up to rounding counts as whole.
        given = (means > limits * (1 + 1e-12)).astype(np.int64)
        for confident in confident_shares:
            told = np.ones(len(means), dtype=bool) if confident is None else means.max(axis=1) >= confident
            found = precision_recall(known, np.where(told[:, None], given, SILENT))
            table.append(
                {
                    "n_teachers": votes.n_teachers, "share": share, "confident_share": confident, **raw,
                    "answered": float(told.mean()), "precision": found.macro_precision,
                    "recall": found.macro_recall, "f1": found.macro_f1, "micro_f1": found.micro_f1,
                }
            )  # fmt: skip
    return Sealed(table)


def noiseless_classes(
    votes: Votes, truth: ArrayLike, *, confident_shares: Sequence[float | None] = (None,)
) -> Sealed[list[dict[str, Any]]]:
    """Return how right teachers that name one class each are together, without noise; sealed.

    The class with the most votes is told, the first one where several have as many, and only where its share
    of the votes reaches the confident share. "raw" numbers rank by the shares themselves.
    """
    classes, means = np.asarray(truth), votes.counts / votes.n_teachers
    known, winners = as_indicators(classes, votes.n_classes), means.argmax(axis=1)
    raw = {
        "raw_map": mean_over_labels(average_precision(known, means)),
        "raw_auc": mean_over_labels(auc(known, means)),
    }
    table = []
    for confident in confident_shares:
        told = np.ones(len(means), dtype=bool) if confident is None else means.max(axis=1) >= confident
        found = precision_recall(known, as_indicators(np.where(told, winners, SILENT), votes.n_classes))
        table.append(
            {
                "n_teachers": votes.n_teachers, "confident_share": confident, **raw,
                "answered": float(told.mean()),
                "accuracy": float((winners == classes)[told].mean()) if told.any() else math.nan,
                "precision": found.macro_precision, "recall": found.macro_recall, "f1": found.macro_f1,
            }
        )  # fmt: skip
    return Sealed(table)


def flip_buckets(
    votes: LabelVotes | Votes,
    setting: SweepSetting,
    *,
    delta: float,
    n_buckets: int = 12,
    lowest: float = 1e-4,
) -> Sealed[list[tuple[float, float, int, float]]]:
    """Return queries by their q, in buckets of equal logarithmic width, with their mean cost; sealed.

    A bucket is (lowest q, highest q, queries, epsilon of 1000 queries like its mean one); its cost is the
    published bound at a sound sensitivity. What is below `lowest` is counted in the first bucket.

    Reference: the thesis on private audio tagging, figure 5.16.

    >>> votes = LabelVotes.from_sums([[50, 0], [26, 24]], n_teachers=50)
    >>> buckets = flip_buckets(votes, SweepSetting(share=0.5, sigma=0.2), delta=1e-8, n_buckets=4).reveal()
    >>> [n for _, _, n, _ in buckets]
    [0, 0, 1, 1]
    """
    require_fraction(delta=delta, lowest=lowest)
    kind = "gnmax" if isinstance(votes, Votes) else "gnthreshold"
    if setting.kind != kind or setting.confident_share is not None:
        raise ValueError(f"Expected a setting of kind {kind!r} without a check: q is that of its labels.")
    grid = check_orders(None)
    if isinstance(votes, Votes):
        sigma = setting.votes(setting.sigma, votes.n_teachers)
        q = np.exp(log_q_gnmax(votes.counts, sigma))
        costs = published_gnmax(votes, sigma, orders=grid)
    else:
        mechanism: Any = setting.mechanism(
            n_teachers=votes.n_teachers, n_labels=votes.n_labels, resolution=votes.resolution
        )
        q = flip_chances(as_counted(mechanism, votes), setting.share, mechanism.sigma)
        costs = published_label_cost(mechanism, votes, orders=grid)
    edges = np.geomspace(lowest, 1.0, n_buckets + 1)
    place = np.clip(np.searchsorted(edges, q, side="right") - 1, 0, n_buckets - 1)
    found = []
    for number in range(n_buckets):
        members = place == number
        epsilon = math.nan
        if members.any():
            epsilon = RdpCurve(grid, 1000 * costs[members].mean(axis=0)).epsilon(delta)
        found.append((float(edges[number]), float(edges[number + 1]), int(members.sum()), epsilon))
    return Sealed(found)


def draw_flips(buckets: Sealed[list[tuple[float, float, int, float]]]) -> Drawing:
    """Draw the buckets of `flip_buckets`; private.

    >>> votes = LabelVotes.from_sums([[50, 0], [26, 24]], n_teachers=50)
    >>> draw_flips(flip_buckets(votes, SweepSetting(share=0.5, sigma=0.2), delta=1e-8)).mark
    'private'
    """
    svg = plot_flips(buckets.reveal(), title="How likely labels flip")
    caption = (
        "Queries by q, smaller further right; marks are what 1000 queries of a bucket's mean cost would cost."
    )
    return Drawing(svg=svg, heading="How likely labels flip", caption=caption, mark="private")


def _name(row: SweepRow, *, sizes: bool, lengths: bool) -> str:
    """Say which line a row belongs to: everything but the noise on the labels, if it differs at all."""
    setting, said = row.setting, []
    said.append(f"threshold {setting.share:g}" if setting.kind == "gnthreshold" else setting.kind)
    if setting.confident_share is not None:
        said.append(f"check {setting.confident_share:g}, noise {setting.sigma_gate:g}")
    if sizes:
        said.append(f"{row.n_teachers} teachers")
    if lengths:
        said.append(f"{row.n_samples} queries")
    return ", ".join(said)


# --- Pages about sound: what a student hears in a clip, how good each label is, and what the votes say. ---


SOUND_PAGE = "sound.html"
_MOST_CURVES = 6


def tag_parts(
    tagged: Sequence[Tagged], *, seconds: float, n_labels: int = 5, logmel: LogMel | None = None
) -> list[SheetPart]:
    """Return a part for each clip: its log-Mel picture, and the labels heard in it with their scores.

    With the settings of the pictures, `logmel`, pitch is told in Hz.
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
    """Return precision and recall, hits and false alarms label by label, and the best and worst labels."""
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
    """Write the page of what a student hears in public test clips: some of them, and the curves of labels."""
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
    """Write the page of recordings that were tagged: their pictures, and the likeliest labels."""
    seconds, logmel = hearing.features.decoding.seconds, hearing.features.logmel
    words = "Pictures are made of the recordings and as private as these are. To tag them costs no privacy."
    parts = tag_parts(tagged, seconds=seconds, n_labels=n_labels, logmel=logmel)
    return write_sheet(path, "What the student hears", parts=parts, words=words)


def write_private_sound(
    path: str | PathLike[str], votes: LabelVotes | Votes, truth: ArrayLike, *, mechanism: Any, delta: float
) -> Path:
    """Write the private page about votes: ensembles without noise, and how likely labels flip at which cost.

    Votes on one class each come with their classes as the truth.
    """
    parts = [_noiseless(votes, truth)]
    share = getattr(mechanism, "share", None)
    if name_of(mechanism) == "gnthreshold" and isinstance(share, float):
        setting = SweepSetting(
            share=share, sigma=mechanism.sigma / votes.n_teachers,
            max_labels=mechanism.max_labels,
        )  # fmt: skip
        parts.append(_flips(votes, setting, delta=delta))
    if name_of(mechanism) == "gnmax":
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


# --- The page of sound beside the report of a run on prepared clips, as a student of `ears` has it too. ---


def write_run_sound(folder: str | PathLike[str], config: RunConfig) -> Path | None:
    """Write what the student of a finished run hears in its test clips, and return the page.

    Test clips are public: the page needs no guarantee and costs nothing. None where the rows of a run are no
    clips, or where none were set apart to test on.
    """
    if config.data.name != CLIPS:
        return None
    found = _test_clips(config)
    if found is None:
        return None
    hearing = load_hearing(folder)
    X, truth = found
    pictures = X.reshape(len(X), *hearing.features.shape)
    return write_sound(Path(folder) / SOUND_PAGE, hearing, pictures, truth=truth)


def _test_clips(config: RunConfig) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """Return the pictures that a run set apart to test on, flat, and which labels each has."""
    if config.labels.names:
        labelled = read_label_tables(config).test
        return None if labelled is None else (np.asarray(labelled.X), np.asarray(labelled.y))
    # By the very settings of the run: with others these would be private clips.
    tables = read_tables(config.data, seed=config.seed, by=config.protects, personal=config.personal)
    if tables.test is None:
        return None
    return np.asarray(tables.test.X), np.eye(tables.test.n_classes, dtype=np.int64)[tables.test.y]
