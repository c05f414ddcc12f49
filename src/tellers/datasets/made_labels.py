"""Rows with many labels each: a table of them, read from a file or made by scikit-learn's generator."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count, require_present
from ..label_models import label_table
from .multilabel import MultilabelDataset
from .tables import read_columns, read_features

_YES_OR_NO = {"0": 0, "1": 1, "False": 0, "True": 1, "false": 0, "true": 1}


def read_label_table(
    path: str | PathLike[str],
    label_names: Sequence[str],
    *,
    person: str | None = None,
    id: str | None = None,
    site: str | None = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[object]] | None = None,
) -> MultilabelDataset:
    """Read a table with a column of 0 and 1 for each label: CSV with a header, Parquet, or npz.

    Every other column, or those in `features`, is a feature, but for those that say person, id or site.
    Words need declared `categories`. In an npz a two-dimensional `X` holds all features, and a `Y` all
    labels, in the order of their names.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "days.csv"
    ...     _ = path.write_text("pressure,rain,wind\\n1003,1,1\\n1020,0,1\\n")
    ...     read_label_table(path, ["rain", "wind"]).y.tolist()
    [[1, 1], [0, 1]]
    """
    place = Path(path)
    columns = read_columns(place)
    try:
        whole = columns.get("Y") if label_names and label_names[0] not in columns else None
        if whole is not None and whole.ndim == 2:
            labels, taken = label_table(whole, n_rows=len(whole), n_labels=len(label_names)), ["Y"]
        else:
            labels = np.column_stack([_answers(columns, name) for name in label_names])
            taken = list(label_names)
        owners: dict[str, Any] = {}
        for role, column in (("persons", person), ("ids", id), ("sites", site)):
            if column is not None:
                _require_column(columns, column)
                words = columns[column].astype(str).tolist()
                require_present(**{column: words})
                owners[role] = np.array(words)
                taken.append(column)
        if features is not None and set(features) & set(taken):
            raise ValueError("Expected features that are no label, person, id or site.")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place.name}: {error}") from error
    rows = read_features(place, features, categories=categories, leave_out=taken)
    has_matrix = features is None and "X" in columns and columns["X"].ndim == 2
    named = features if features is not None else [name for name in columns if name not in taken]
    return MultilabelDataset(
        name=place.name.split(".")[0], X=rows, Y=labels.astype(np.int8), label_names=tuple(label_names),
        feature_names=() if has_matrix else tuple(named), **owners,
    )  # fmt: skip


def made_multilabel(
    label_names: Sequence[str],
    *,
    n_rows: int = 6000,
    n_features: int = 20,
    n_labels_per_row: int = 2,
    seed: int = 7,
) -> MultilabelDataset:
    """Make rows of word counts with a few labels each, by scikit-learn's generator; nobody is in them.

    >>> made_multilabel(["rain", "wind"], n_rows=100, seed=7)
    MultilabelDataset('made_multilabel', n_rows=100, n_labels=2, n_features=20)
    """
    from sklearn.datasets import make_multilabel_classification

    require_count(n_rows=n_rows, n_features=n_features, n_labels_per_row=n_labels_per_row)
    X, Y = make_multilabel_classification(
        n_rows, n_features, n_classes=len(label_names), n_labels=n_labels_per_row, random_state=seed
    )
    # Counts become small numbers by a factor that is the same whatever the rows are.
    return MultilabelDataset(name="made_multilabel", X=X / 10.0, Y=Y, label_names=tuple(label_names))


LABEL_DATASETS: dict[str, Callable[..., MultilabelDataset]] = {"made_multilabel": made_multilabel}


def _answers(columns: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.int64]:
    _require_column(columns, name)
    column = columns[name]
    words = [str(word) for word in (column.astype(int) if column.dtype.kind == "b" else column).tolist()]
    known = [_YES_OR_NO.get(word.removesuffix(".0"), -1) for word in words]
    if -1 in known:
        raise ValueError(
            f"Expected 0 or 1 in every row of the label {name!r}, got another entry in row {known.index(-1)}."
        )
    return np.array(known, dtype=np.int64)


def _require_column(columns: Mapping[str, NDArray[Any]], name: str) -> None:
    if name not in columns:
        raise ValueError(f"Expected a column {name!r}, got {', '.join(columns)}.")
