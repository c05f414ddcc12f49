"""The tables of a run with many labels per row: private rows, a public pool, and public rows to test on.

Whatever is wrong with a file or an image is found here, before anything is trained or charged.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..config import RunConfig
from ..config.sections import CLIPS
from ..datasets.clips import require_same_features
from ..datasets.label_files import LABEL_LAYOUTS, labels_file, require_same_attributes
from ..datasets.made_labels import LABEL_DATASETS, read_label_table
from ..datasets.mulan import read_label_names
from ..datasets.multilabel import MultilabelDataset
from ..datasets.tables import read_columns, read_features
from .data import said_of_clips, set_aside, units_apart

Rows: TypeAlias = "NDArray[Any] | None"
# Private rows, the pool and what is known of its labels, and rows to test on.
_Read: TypeAlias = "tuple[MultilabelDataset, Rows, Rows, MultilabelDataset | None]"


@dataclass(frozen=True, eq=False, repr=False)
class LabelTables:
    """What a run with many labels learns from, asks about, and tests on; `pool_y` where that is known.

    `n_declared`, `withheld` and `apart` are those of `Tables`.
    """

    private: MultilabelDataset
    pool: NDArray[Any]
    pool_y: NDArray[np.int64] | None = None
    test: MultilabelDataset | None = None
    notes: tuple[str, ...] = ()
    n_declared: int | None = None
    withheld: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


def read_label_tables(config: RunConfig) -> LabelTables:
    """Read or make the tables that a config with labels names; rows are set aside as in `read_tables`.

    >>> from tellers.config import default_config
    >>> tables = read_label_tables(default_config("made_multilabel"))
    >>> tables.private, tables.pool.shape, tables.test.y.shape
    (MultilabelDataset('made_multilabel', n_rows=5000, n_labels=5, n_features=20), (400, 20), (600, 5))
    """
    tables, path = _read_tables(config), config.data.private_path
    if config.data.name != CLIPS or path is None:
        return tables
    return replace(tables, **said_of_clips(path, tables.private))


def _read_tables(config: RunConfig) -> LabelTables:
    data, names, by = config.data, config.labels.names, config.protects
    if data.name in LABEL_DATASETS:
        options = {"seed": config.seed % 2**32, **data.options}
        whole = LABEL_DATASETS[data.name](names, **options)
        return _set_aside(whole, config, n_public=data.n_public, n_test=data.n_test, by=by)
    if data.private_path is None:  # pragma: no cover - the rules of the settings ask for it
        raise ValueError(f'Expected [data] private for name = "{data.name}", got none.')
    read = _from_layout if data.name in LABEL_LAYOUTS else _from_table
    private, pool, pool_y, test = read(config, data.private_path)
    if pool is None:
        kept = _set_aside(private, config, n_public=data.n_public, n_test=0 if test else data.n_test, by=by)
        return replace(kept, test=test or kept.test)
    if test is None and data.n_test:
        kept = _set_aside(private, config, n_public=0, n_test=data.n_test, by=by)
        return replace(kept, pool=pool, pool_y=pool_y)
    return LabelTables(private, pool, pool_y, test, private.notes)


def _from_table(config: RunConfig, path: Path) -> _Read:
    data, names = config.data, config.labels.names
    private = read_label_table(
        path, names, person=data.person or None, id=data.id or None, site=data.site or None, **data.options
    )
    categories = data.options.get("categories") or {}
    features = private.feature_names or None
    test = None
    if data.test_path is not None:
        test = read_label_table(data.test_path, names, features=features, categories=categories)
        _require_features(test.X, private, data.test_path.name)
    if data.public_path is None:
        return private, None, None, test
    # The pool may lack the labels, and any of its columns that is one of them is no feature.
    others = tuple(filter(None, (*names, data.person, data.id, data.site, "" if features else "Y")))
    pool = read_features(data.public_path, features, categories=categories, leave_out=others)
    _require_features(pool, private, data.public_path.name)
    known = {*names} <= read_columns(data.public_path).keys()
    pool_y = None
    if known:
        pool_y = read_label_table(data.public_path, names, features=features, categories=categories).y
    return private, pool, pool_y, test


def _from_layout(config: RunConfig, path: Path) -> _Read:
    """Read the same layout up to three times; rows that are learned from, or tested on, need every label."""
    data, names, options = config.data, config.labels.names, dict(config.data.options)
    read = LABEL_LAYOUTS[data.name]
    if data.name == "mulan":
        options["xml"] = str(labels_file(path, str(options.get("xml", ""))).absolute())
        for other in filter(None, (data.public_path, data.test_path)):
            require_same_attributes(other, path, labels=read_label_names(options["xml"]))
    if data.name == CLIPS:
        require_same_features(path, data.public_path, data.test_path)
    private = _labelled(
        read(path, names, **options, **({"person": data.person} if data.person else {})), path
    )
    test = _labelled(read(data.test_path, names, **options), data.test_path) if data.test_path else None
    if data.public_path is None:
        return private, None, None, test
    pool = read(data.public_path, names, need_labels=False, **options)
    return private, pool.X, pool.y if pool.known.all() else None, test


def _labelled(table: MultilabelDataset, path: Path) -> MultilabelDataset:
    try:
        _ = table.y
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    return table


def _set_aside(
    table: MultilabelDataset, config: RunConfig, *, n_public: int, n_test: int,
    by: Literal["record", "person", "site"],
) -> LabelTables:  # fmt: skip
    kept, asked, test, note = set_aside(table, n_public=n_public, n_test=n_test, seed=config.seed, by=by)
    return LabelTables(
        private=kept,
        pool=table.X[asked],
        pool_y=table.y[asked],
        test=table.take(test) if test.size else None,
        notes=(*table.notes, note),
        apart=units_apart(table, asked, test, by=by),
    )


def _require_features(rows: NDArray[Any], private: MultilabelDataset, file: str) -> None:
    if rows.shape[1] != private.n_features:
        raise ValueError(
            f"{file}: Expected the {private.n_features} features of the private rows, got {rows.shape[1]}."
        )
