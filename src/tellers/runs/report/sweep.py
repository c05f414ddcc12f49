"""Sweeps as tables, drawings and a private page: scores over epsilon, ensembles without noise, and flips."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ...data.metrics import auc, average_precision, mean_over_labels, precision_recall
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
from ..card import shown_epsilon
from ..sweeps import (
    CLASS_KINDS,
    SweepRow,
    SweepSetting,
    accuracy_told,
    as_counted,
    as_indicators,
    flip_chances,
    mechanism_for,
)
from ._plots import N_COLOURS, Drawing, plot_flips, plot_sweep
from .write import SheetPart, SheetTable, write_sheet

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
    if len(series) > N_COLOURS:
        raise ValueError(f"Expected at most {N_COLOURS} series in one plot, got {len(series)}.")
    svg = plot_sweep(title, series, score=word, reference=reference)
    which = _EPSILONS[epsilon]
    if epsilon == "dependent" and rows and all(row.setting.kind in CLASS_KINDS for row in rows):
        which = _DEPENDENT_OF_CLASSES
    caption = f"What each setting made of the same stored votes. {which}"
    return Drawing(svg=svg, heading=title, caption=caption, mark="private")


def noiseless_table(
    votes: LabelVotes | Votes,
    truth: ArrayLike,
    *,
    shares: Sequence[float | Literal["adaptive"]] = ("adaptive", 0.2, 0.4, 0.6),
    confident_shares: Sequence[float | None] = (None,),
) -> Sealed[list[dict[str, Any]]]:
    """Return how right an ensemble is without noise, at every threshold; sealed, as nothing protects it.

    "raw" numbers rank by the mean votes themselves. A query is answered where one label's mean reaches the
    confident share; "adaptive" is the middle of the largest gap. Of teachers that name one class each, that
    with the most votes is told, the first one where several have as many, and there are no `shares`.

    Reference: the thesis on private audio tagging, tables 5.1 to 5.3.

    >>> votes = LabelVotes.from_sums([[9, 1], [4, 3]], n_teachers=10)
    >>> table = noiseless_table(votes, [[1, 0], [0, 1]], shares=[0.5], confident_shares=[None, 0.8])
    >>> [(row["answered"], row["precision"], row["recall"]) for row in table.reveal()]
    [(1.0, 1.0, 0.5), (0.5, 1.0, 1.0)]
    """
    means: Any
    if not isinstance(votes, LabelVotes):
        means = votes.counts / votes.n_teachers
        known = as_indicators(truth, votes.n_classes)
        told_at: list[tuple[Any, Any]] = [(None, as_indicators(means.argmax(axis=1), votes.n_classes))]
    else:
        means, known = votes.sums / (votes.n_teachers * votes.resolution), np.asarray(truth)
        told_at = []
        for share in shares:
            limits: Any = share
            if share == "adaptive":
                limits = np.array([as_published_share(list(row)) for row in means])[:, None]
            # A share that is whole up to rounding counts as whole.
            told_at.append((share, (means > limits * (1 + 1e-12)).astype(np.int64)))
    raw = {
        "raw_map": mean_over_labels(average_precision(known, means)),
        "raw_auc": mean_over_labels(auc(known, means)),
    }
    table = []
    for share, given in told_at:
        for confident in confident_shares:
            told = np.ones(len(means), dtype=bool) if confident is None else means.max(axis=1) >= confident
            found = precision_recall(known, np.where(told[:, None], given, SILENT))
            row = {"n_teachers": votes.n_teachers, "confident_share": confident, **raw}
            row |= {"answered": float(told.mean()), "precision": found.macro_precision}
            row |= {"recall": found.macro_recall, "f1": found.macro_f1, "micro_f1": found.micro_f1}
            if not isinstance(votes, LabelVotes):
                row["accuracy"] = accuracy_told(np.asarray(truth), means.argmax(axis=1), told)
            else:
                row["share"] = share
            table.append(row)
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
    kind = "gnthreshold" if isinstance(votes, LabelVotes) else "gnmax"
    if setting.kind != kind or setting.confident_share is not None:
        raise ValueError(f"Expected a setting of kind {kind!r} without a check: q is that of its labels.")
    grid = check_orders(None)
    mechanism = mechanism_for(setting, votes)
    if not isinstance(votes, LabelVotes):
        q = np.exp(log_q_gnmax(votes.counts, mechanism.sigma))
        costs = published_gnmax(votes, mechanism.sigma, orders=grid)
    else:
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
    svg = plot_flips("How likely labels flip", buckets.reveal())
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


# --- Pages for whoever may see the votes. ---


def write_votes(
    path: str | PathLike[str], votes: LabelVotes | Votes, truth: ArrayLike, *, mechanism: Any, delta: float
) -> Path:
    """Write the private page about votes: ensembles without noise, and how likely labels flip at which cost.

    Votes on one class each come with their classes as the truth.
    """
    parts = [_noiseless(votes, truth)]
    kind, setting = name_of(mechanism), None
    if kind == "gnmax":
        setting = SweepSetting(kind="gnmax", sigma=mechanism.sigma / votes.n_teachers)
    elif kind == "gnthreshold" and isinstance(mechanism.share, float):
        sigma = mechanism.sigma / votes.n_teachers
        setting = SweepSetting(share=mechanism.share, sigma=sigma, max_labels=mechanism.max_labels)
    if setting is not None:
        parts.append(_flips(votes, setting, delta=delta))
    return write_sheet(path, "What the teachers said", parts=parts)


def write_sweep(
    path: str | PathLike[str],
    rows: Sequence[SweepRow],
    *,
    votes: LabelVotes | Votes,
    truth: ArrayLike | None,
    delta: float,
) -> Path:
    """Write the private page of a sweep: scores over epsilon, ensembles without noise, and how labels flip.

    Where rows have one class each, the score is the accuracy, over the exact epsilon and over the price.
    Where the truth is not known there are costs alone.
    """
    warning = (
        "What each setting made of the same stored votes. To look at this and take the best lets the votes "
        "choose, and no epsilon covers that: choose on votes of teachers of public rows, or of other ones."
    )
    parts = [] if truth is None else [*_over_epsilon(rows, votes, delta=delta), _noiseless(votes, truth)]
    kind = "gnthreshold" if isinstance(votes, LabelVotes) else "gnmax"
    plain = [row.setting for row in rows if row.setting.kind == kind]
    plain = [one for one in plain if one.confident_share is None and one.noise == "deviation"]
    if plain:
        parts.append(_flips(votes, plain[0], delta=delta))
    parts.append(_costs(rows, delta=delta))
    return write_sheet(path, "Many ways to count the same votes", parts=parts, words=warning)


def _over_epsilon(rows: Sequence[SweepRow], votes: LabelVotes | Votes, *, delta: float) -> list[SheetPart]:
    plots: tuple[tuple[Score, Epsilon], ...] = (
        (("accuracy", "exact"), ("accuracy", "public"))
        if not isinstance(votes, LabelVotes)
        else (("macro_f1", "public"), ("mean_average_precision", "public"))
    )
    sigmas = sorted({row.setting.sigma for row in rows})
    noises = f"Epsilon at delta {delta:g}, for all queries together."
    if len(sigmas) > 1:
        of = "of variance a teacher" if rows[0].setting.noise == "variance" else "of the ensemble"
        noises += f" Along a line noise falls from {sigmas[-1]:g} to {sigmas[0]:g} {of}, left to right."
    parts = []
    for number, group in enumerate(_by_series(rows)):
        drawn = tuple(draw_sweep(group, score=score, epsilon=cost) for score, cost in plots)
        parts.append(SheetPart(heading="Scores over epsilon", words="" if number else noises, drawings=drawn))
    return parts


def _costs(rows: Sequence[SweepRow], *, delta: float) -> SheetPart:
    told: list[tuple[str | float, ...]] = []
    for row in rows:
        numbers = row.private.reveal()
        setting = f"{_name(row, sizes=True, lengths=True)}, noise {row.setting.sigma:g}"
        costs = shown_epsilon(row.public_epsilon), shown_epsilon(numbers.exact_epsilon)
        told.append((setting, *costs, numbers.answered))
    caption = f"All queries together, at delta {delta:g}. The price holds for any votes."
    head = ("setting", "price", "exact cost", "answered")
    table = SheetTable(caption=caption, head=head, rows=tuple(told), mark="private")
    return SheetPart(heading="What each setting costs", tables=(table,))


def _noiseless(votes: LabelVotes | Votes, truth: ArrayLike) -> SheetPart:
    of_classes = not isinstance(votes, LabelVotes)
    columns = _OF_CLASSES if of_classes else _OF_LABELS
    checks = (None, 0.6, 0.8) if of_classes else (None, 0.6)
    rows = tuple(
        tuple(_cell(name, row[name]) for name in columns)
        for row in noiseless_table(votes, truth, confident_shares=checks).reveal()
    )
    caption = "Means over labels."
    if of_classes:
        caption = "Precision, recall, F1, mAP and AUC are means over classes."
    words = f"{votes.n_teachers} teachers together on {len(votes)} queries, before any noise."
    head = tuple(_HEADS.get(name, name) for name in columns)
    table = SheetTable(caption=caption, head=head, rows=rows, mark="private")
    return SheetPart(heading="The ensemble without noise", words=words, tables=(table,))


_SCORES = ("precision", "recall", "f1")
_RANKED = ("raw_map", "raw_auc")
_OF_LABELS = ("share", "confident_share", *_RANKED, "answered", *_SCORES)
_OF_CLASSES = ("confident_share", "answered", "accuracy", *_SCORES, *_RANKED)
# The others are called as they are.
_HEADS = {"share": "threshold", "confident_share": "check", "raw_map": "mAP", "raw_auc": "AUC", "f1": "F1"}


def _cell(name: str, value: Any) -> str | float:
    if name in ("share", "confident_share"):
        return "no check" if value is None else value if isinstance(value, str) else f"{value:g}"
    return "–" if np.isnan(value) else float(value)


def _flips(votes: LabelVotes | Votes, setting: SweepSetting, *, delta: float) -> SheetPart:
    drawing = draw_flips(flip_buckets(votes, setting, delta=delta))
    limit = f" at threshold {setting.share:g}" if isinstance(votes, LabelVotes) else ""
    words = (
        f"Noise of {setting.sigma:g} of the ensemble{limit}. Where q is small, a query costs little by a "
        "look at the votes."
    )
    return SheetPart(heading="How likely labels flip, and what that costs", words=words, drawings=(drawing,))


def _by_series(rows: Sequence[SweepRow]) -> list[list[SweepRow]]:
    """Return rows in groups of at most as many lines as one plot has colours."""
    lines: dict[str, list[SweepRow]] = {}
    for row in rows:
        lines.setdefault(_name(row, sizes=True, lengths=True), []).append(row)
    each = list(lines.values())
    return [
        [row for line in each[start : start + N_COLOURS] for row in line]
        for start in range(0, len(each), N_COLOURS)
    ]
