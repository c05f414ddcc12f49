"""Sweeps as tables and drawings: scores over epsilon, ensembles without noise, and how likely labels flip."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..bounds import published_gnmax
from ..errors import require_fraction
from ..label_bounds import published_label_cost
from ..label_votes import LabelVotes
from ..mechanisms.labels.adaptive import as_published_share
from ..mechanisms.labels.gnthreshold import GNThreshold
from ..metrics import auc, average_precision, mean_over_labels, precision_recall
from ..rdp import RdpCurve, check_orders
from ..release import SILENT
from ..report.drawing import Drawing
from ..report.plots import plot_flips, plot_sweep
from ..sealed import Sealed
from ..upset import log_q_gnmax
from ..votes import Votes
from .sweep import SweepRow, as_counted, as_indicators, flip_chances
from .sweep_setting import CLASS_KINDS, SweepSetting

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
    >>> from tellers.audio.sweep import sweep, sweep_settings
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
    >>> from tellers.audio.sweep import sweep, sweep_settings
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

    >>> votes = Votes.from_counts([[9, 1], [6, 4]], n_teachers=10)
    >>> table = noiseless_classes(votes, [0, 1], confident_shares=[None, 0.8]).reveal()
    >>> [(row["answered"], row["accuracy"]) for row in table]
    [(1.0, 0.5), (0.5, 1.0)]
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
        mechanism = setting.mechanism(
            n_teachers=votes.n_teachers, n_labels=votes.n_labels, resolution=votes.resolution
        )
        assert isinstance(mechanism, GNThreshold)
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
