"""The statistics of deals: how many clips and labels a teacher has, in the form of the thesis's table 4.1."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..sealed import Sealed
from .dealing import Deal

Span = tuple[int, int]


def deal_statistics(
    deals: Mapping[str, Deal], Y: ArrayLike, *, usable: ArrayLike | None = None
) -> Sealed[dict[str, dict[str, Any]]]:
    """Return, deal by deal, the sizes of parts and how labels are spread among teachers; private.

    Of what teachers have, the smallest and the largest number are told: clips, those of them that can be used
    (`usable`, all where it is left out), and clips with a label, over all teachers and labels. Labels per
    clip are a mean over the teachers' usable clips. As in the table, the overall size is without the test.

    Reference: the thesis on private audio tagging, table 4.1.

    >>> from tellers.audio.dealing import deal_experiments
    >>> Y = np.eye(4, dtype=int)[np.arange(100) % 4]
    >>> found = deal_statistics(deal_experiments(100, (1, 10), seed=7), Y)
    >>> found
    Sealed(<private>)
    >>> ten = found.reveal()["10 teachers"]
    >>> ten["set_apart"], ten["clips"], ten["labels_per_clip"], ten["student"]
    (80, (8, 8), 1.0, 20)
    """
    table = np.asarray(Y)
    kept = np.ones(len(table), dtype=np.bool_) if usable is None else np.asarray(usable, dtype=np.bool_)
    return Sealed({name: _statistics(deal, table, kept) for name, deal in deals.items()})


def statistics_rows(found: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the lines of the table: what a line tells, and then its entry for every deal.

    >>> from tellers.audio.dealing import deal_experiments
    >>> deals = deal_experiments(8, (1, 2), seed=7, student=0.25)
    >>> rows = statistics_rows(deal_statistics(deals, np.ones((8, 1), dtype=int)).reveal())
    >>> rows[3], rows[5]
    (('clips of a teacher', '6', '3'), ('labels per clip', '1.00', '1.00'))
    """
    return [(words, *(_shown(one[name]) for one in found.values())) for name, words in _LINES.items()]


_LINES = {
    "overall": "overall size", "labels": "classes", "set_apart": "set apart for teachers",
    "clips": "clips of a teacher", "usable": "of them usable", "labels_per_clip": "labels per clip",
    "with_a_label": "clips of a teacher with a class", "without": "classes that a teacher has no clip of",
    "student": "clips of the student", "test": "clips of the test",
}  # fmt: skip


def _statistics(deal: Deal, Y: NDArray[Any], usable: NDArray[np.bool_]) -> dict[str, Any]:
    parts = [rows[usable[rows]] for rows in deal.teachers]
    each = np.array([Y[rows].sum(axis=0) for rows in parts])
    heard = np.concatenate(parts)
    return {
        "overall": deal.n_clips - deal.n_left_out - len(deal.test),
        "labels": int(Y.shape[1]),
        "set_apart": deal.n_set_apart,
        "clips": _span([len(rows) for rows in deal.teachers]),
        "usable": _span([len(rows) for rows in parts]),
        "labels_per_clip": float(Y[heard].sum(axis=1).mean()) if heard.size else 0.0,
        "with_a_label": _span(each),
        "without": _span((each == 0).sum(axis=1)),
        "student": len(deal.student),
        "test": len(deal.test),
    }


def _span(values: ArrayLike) -> Span:
    return int(np.min(values)), int(np.max(values))


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        low, high = value
        return f"{low}" if low == high else f"{low} to {high}"
    return f"{value:.2f}" if isinstance(value, float) else f"{value}"
