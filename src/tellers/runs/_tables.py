"""The tables of a run: private rows, a public pool and public test rows, with who agreed to which budget."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data._label_files import LABEL_LAYOUTS, labels_file, require_same_attributes
from ..data.annotations import read_label_names
from ..data.clips import class_clips, clip_notes, clips_folder, read_clip_table, require_same_features
from ..data.dataset import Dataset, MultilabelDataset
from ..data.embedded import LABEL_DATASETS, read_label_table
from ..data.named import load
from ..data.tables import MISSING, read_columns, read_features, read_table
from ..teachers._assignment import assignment_key, identities, positions
from .personal.consent import Consent, read_consent
from .settings.sections import CLIPS, DataConfig, PersonalConfig, RunConfig

# Who agreed to which budget: from a column, a file, or dealt at random


def budgets_from_file(path: Path, persons: ArrayLike, *, levels: bool) -> NDArray[Any]:
    """Return the budget, or with `levels` the level, of each row's person, by a CSV file of persons."""
    wanted, one = ("level", "a level") if levels else ("epsilon", "an epsilon")
    columns = read_columns(path)
    if "person" not in columns or wanted not in columns:
        why = "levels are declared" if levels else "no levels are declared"
        raise ValueError(
            f"{path.name}: Expected the columns person and {wanted}, as {why}, got {', '.join(columns)}."
        )
    agreed: dict[str, str] = {}
    for row, (person, said) in enumerate(zip(*(_words(columns[name]) for name in ("person", wanted)))):
        if person in MISSING or said in MISSING:
            raise ValueError(f"{path.name}: Expected a person and {one} in every row, none in row {row}.")
        if person in agreed:
            raise ValueError(f"{path.name}: Expected one row per person, got a second one in row {row}.")
        agreed[person] = said
    names = _words(np.asarray(persons))
    missing = [row for row, name in enumerate(names) if name not in agreed]
    if missing:
        raise ValueError(
            f"{path.name}: Expected {one} for every person, got none for the person of row "
            f"{missing[0]} of the data. Ask them, or leave their rows out."
        )
    entries = [agreed[name] for name in names]
    if levels:
        return np.array(entries)
    try:
        return np.array(entries, dtype=np.float64)
    except ValueError:
        raise ValueError(
            f"{path.name}: Expected numbers in epsilon, got words. Names need levels in [personal]."
        ) from None


def deal_levels(shares: dict[str, float], n_persons: int, *, seed: int) -> list[str]:
    """Return a level for each person, at random, each level as often as its share says, give or take one."""
    ends = np.rint(np.cumsum(list(shares.values())) * n_persons).astype(int)
    counts = np.diff(ends, prepend=0)
    counts[-1] += n_persons - ends[-1]
    dealt = np.repeat(np.array(list(shares)), counts)
    # Another stream than that of the partition, which has the same seed.
    levels: list[str] = np.random.default_rng([int(seed), 1]).permutation(dealt).tolist()
    return levels


def read_agreed(config: RunConfig, data: Dataset) -> Consent:
    """Return who agreed to what among the private rows; persons are those of the partition."""
    chosen = config.personal
    persons = data.persons if config.protects == "person" else None
    budgets: Any = data.budgets
    if chosen.shares:
        if persons is None:
            budgets = deal_levels(dict(chosen.shares), len(data), seed=config.seed)
        else:
            names = identities(persons, name="persons")
            drawn = positions(names, key=assignment_key(config.seed), purpose="level")
            ends = np.cumsum(list(chosen.shares.values()))[:-1]
            levels_of = list(chosen.shares)
            budgets = [levels_of[at] for at in np.searchsorted(ends, drawn, side="right")]
    if budgets is None:
        raise ValueError(f"Expected budgets in {data.name!r}, got none.")
    levels = dict(chosen.levels) or None
    if levels is not None:
        budgets = _words(np.asarray(budgets))
    try:
        return read_consent(
            budgets, delta=config.budget.delta, levels=levels, persons=persons, max_groups=chosen.max_groups
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config.where('personal', chosen.source)}: {error}") from error


def _words(column: NDArray[Any]) -> list[str]:
    """Return entries as text, 3.0 as 3: a file may have stored a name as a number."""
    entries = column.tolist()
    return [str(int(e)) if isinstance(e, float) and e.is_integer() else str(e) for e in entries]


# Private rows for the teachers, a public pool, and public rows to test on: with classes

Rows = TypeVar("Rows", Dataset, MultilabelDataset)
_TEST_PART = ("adult", "fashion_mnist", "mnist", "svhn")


@dataclass(frozen=True, eq=False, repr=False)
class Tables:
    """What a run learns from, asks about, and tests on.

    `pool_y` are the pool's own labels where they are known: they are used to say how many released labels
    are right, and for nothing else. `test` may be missing, then nothing is said of the student's accuracy.
    `n_declared` is how many private rows there are said to be where some cannot be used, and `withheld` are
    notes for the operator alone. `apart` are the units that were set aside as public, by name.
    """

    private: Dataset
    pool: NDArray[Any]
    pool_y: NDArray[np.int64] | None = None
    test: Dataset | None = None
    notes: tuple[str, ...] = ()
    n_declared: int | None = None
    withheld: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()


def read_tables(
    config: DataConfig,
    *,
    seed: int,
    by: Literal["record", "person", "site"] = "record",
    personal: PersonalConfig | None = None,
) -> Tables:
    """Read or make the tables that a config names, with the budgets of `personal` where it names some.

    Rows that are set aside for the pool and the test are drawn by the seed; where persons or sites are
    protected, whole ones are set aside, and none of them stays behind among the private rows.
    """
    if config.name == "files":
        return _files(config, seed=seed, by=by, personal=personal or PersonalConfig())
    if config.name == "clips":
        tables = _clips(config, seed=seed, by=by)
        return replace(tables, **said_of_clips(_required(config.private_path), tables.private))
    options = dict(config.options)
    if config.name in ("synthetic", "diabetes130"):
        options.setdefault("seed", seed)
    if config.name == "synthetic":
        options.setdefault("n_rows", 5000)
        options.setdefault("difficulty", 0.5)
    where = config.directory_path
    whole = load(config.name, data_dir=where, **options)
    if personal is not None and personal.file and whole.persons is not None:
        whole = _agreed(whole, whole.persons, config, personal)
    if config.name not in _TEST_PART:
        return _set_aside(whole, config, seed=seed, by=by)
    published = load(config.name, data_dir=where, **{**options, "part": "test"})
    n_test = config.n_test or len(published) - config.n_public
    _require_rows(config.n_public + n_test, len(published), f"the test part of {config.name}", keep=0)
    order = np.random.default_rng(seed).permutation(len(published))
    public = published.take(order[: config.n_public])
    test = published.take(order[config.n_public : config.n_public + n_test])
    note = f"The pool and the test rows are from the published test part of {config.name}."
    return Tables(whole, public.X, public.y, test, (*whole.notes, note))


def digest(*arrays: NDArray[Any]) -> str:
    """Return a fingerprint of tables, to tell whether they are the same."""
    made = hashlib.sha256()
    for array in arrays:
        made.update(f"{array.dtype.str} {array.shape};".encode())
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


def _files(config: DataConfig, *, seed: int, by: str, personal: PersonalConfig) -> Tables:
    columns: dict[str, Any] = {
        "target": config.target,
        "person": config.person or None,
        "id": config.id or None,
        "site": config.site or None,
        "classes": list(config.classes) or None,
        "budget": personal.column or None,
        **config.options,
    }
    private = read_table(_required(config.private_path), **columns)
    if personal.file:
        assert private.persons is not None  # a rule of the settings
        private = _agreed(private, private.persons, config, personal)
    undeclared = [note for note in private.notes if note.startswith("The categories of")]
    separate = config.public_path is not None or config.test_path is not None
    if undeclared:
        # One row with a new word would renumber the words of every teacher's rows.
        raise ValueError(
            f"{_required(config.private_path).name}: {undeclared[0]} In [data]: "
            'options = {categories = {column = ["a", "b"]}}'
        )
    if not separate:
        return _set_aside(private, config, seed=seed, by=by)
    categories = config.options.get("categories") or {}
    test = None
    if config.test_path is not None:
        test = read_table(
            config.test_path, config.target, classes=private.class_names, categories=categories,
            features=private.feature_names if _named(private) else None,
        )  # fmt: skip
        _require_features(test.n_features, private, config.test_path)
    if config.public_path is None:
        kept = _set_aside(private, config, seed=seed, by=by)
        return replace(kept, test=test or kept.test)
    roles = (config.target, config.person, config.id, config.site, personal.column)
    pool = read_features(
        config.public_path,
        private.feature_names if _named(private) else None,
        categories=categories,
        leave_out=roles,
    )
    _require_features(pool.shape[1], private, config.public_path)
    if test is None and config.n_test:
        return replace(_set_aside(private, config, seed=seed, by=by, n_public=0), pool=pool, pool_y=None)
    return Tables(private, pool, None, test, private.notes)


def said_of_clips(folder: str | PathLike[str], private: Dataset | MultilabelDataset) -> dict[str, Any]:
    """Return how many private clips a run states, and what it withholds.

    How many recordings are broken is a number of the private data. The places in the table are not: they are
    declared, and a recording that breaks leaves them as they are.
    """
    withheld = clip_notes(read_clip_table(folder))[1]
    return {"n_declared": None if private.places is None else len(private.places), "withheld": withheld}


def _clips(config: DataConfig, *, seed: int, by: str) -> Tables:
    require_same_features(_required(config.private_path), config.public_path, config.test_path)
    private = class_clips(_required(config.private_path), config.classes, **config.options)
    test = None if config.test_path is None else class_clips(config.test_path, config.classes)
    if config.public_path is None:
        kept = _set_aside(private, config, seed=seed, by=by)
        return replace(kept, test=test or kept.test)
    pool = clips_folder(config.public_path, config.classes, need_labels=False).X
    _require_features(pool.shape[1], private, config.public_path)
    if test is None and config.n_test:
        return replace(_set_aside(private, config, seed=seed, by=by, n_public=0), pool=pool, pool_y=None)
    return Tables(private, pool, None, test, private.notes)


def _agreed(data: Dataset, names: NDArray[Any], config: DataConfig, personal: PersonalConfig) -> Dataset:
    place = _required(config.path(personal.file))
    budgets = budgets_from_file(place, names, levels=bool(personal.levels))
    return replace(data, budgets=budgets)


def set_aside(
    data: Rows, *, n_public: int, n_test: int, seed: int, by: str
) -> tuple[Rows, NDArray[np.int64], NDArray[np.int64], str]:
    """Draw rows, or whole units, for the pool and the test; whoever they belong to is not protected.

    Returns what stays, the numbers of the rows of the pool and of the test, and words on what was set aside.
    Units with a name are taken in the order of a keyed hash of it, until there are rows enough. One that is
    not taken has no say in that: it may come, go or change, and the same ones are set aside. Rows without a
    name are drawn by their places. Where rows have places, all lines of the table are drawn from, and those
    without a row drop out afterwards (`TableLines`): pool and test are then smaller by them.
    """
    places, word = data.places, by
    n = len(data) if places is None else len(places)
    _require_rows(n_public + n_test, n, f"the data set {data.name!r}", keep=1)
    owners = {"person": data.persons, "site": data.sites, "record": data.ids}[by]
    if places is not None:
        word = places.unit.removeprefix("one ")
        owners = places.units if word == "source" else None
    if owners is not None:
        place = _hashed_order(identities(owners, name=f"{word}s"), key=assignment_key(seed))
        # Rows in the order of their owners: a cut between two owners cuts between two rows.
        order = np.argsort(place, kind="stable")
        ends = np.flatnonzero(np.diff(place[order], append=-1))
        first, second = (_cut(ends, m) for m in (n_public, n_public + n_test))
    else:
        order = np.random.default_rng(seed).permutation(n)
        first, second = n_public, n_public + n_test
    whole = owners is not None and word != "record"
    what, whose = (f", of whole {word}s,", f"these {word}s") if whole else ("", "them")
    note = f"{second} rows{what} were set aside as public: nothing protects {whose}."
    if second >= n:
        raise ValueError(
            f"Expected private rows to be left in {data.name!r}, all were set aside. Set fewer aside."
        )
    kept, asked, test = np.sort(order[second:]), order[:first], order[first:second]
    if places is None:
        return data.take(kept), asked, test, note
    rows, asked, test = (places.rows_at(lines) for lines in (kept, asked, test))
    if not rows.size or (n_public and not asked.size) or (n_test and not test.size):
        raise ValueError(
            f"Expected rows that can be used for the teachers, the pool and the test in {data.name!r}, got "
            "none for one of them. Mend the table, or set more aside."
        )
    return replace(data.take(rows), places=places.among(kept)), asked, test, note


def _set_aside(
    data: Dataset, config: DataConfig, *, seed: int, by: str, n_public: int | None = None
) -> Tables:
    kept, asked, test, note = set_aside(
        data, n_public=config.n_public if n_public is None else n_public,
        n_test=config.n_test if config.test_path is None else 0, seed=seed, by=by,
    )  # fmt: skip
    return Tables(kept, **_apart(data, asked, test, note=note, by=by))


def _apart(
    data: Dataset | MultilabelDataset,
    asked: NDArray[np.int64],
    test: NDArray[np.int64],
    *,
    note: str,
    by: str,
) -> dict[str, Any]:
    """Return what tables say of rows that were set aside: the pool, the test, and whose they were."""
    return {
        "pool": data.X[asked],
        "pool_y": data.y[asked],
        "test": data.take(test) if test.size else None,
        "notes": (*data.notes, note),
        "apart": units_apart(data, asked, test, by=by),
    }


def units_apart(data: Dataset | MultilabelDataset, *rows: NDArray[np.int64], by: str) -> tuple[str, ...]:
    """Return the units of rows that were set aside, by name where they have one."""
    owners = {"person": data.persons, "site": data.sites, "record": data.ids}[by]
    found = np.concatenate(rows)
    if owners is None or not found.size:
        return ()
    return tuple(dict.fromkeys(identities(owners[found], name=f"{by}s")))


def _hashed_order(names: Sequence[str], *, key: bytes) -> NDArray[np.int64]:
    """Return the place of every row's unit when units are sorted by a hash of their names."""
    distinct = list(dict.fromkeys(names))
    drawn = positions(distinct, key=key, purpose="set aside")
    place = {name: at for at, name in enumerate(sorted(distinct, key=dict(zip(distinct, drawn)).__getitem__))}
    return np.array([place[name] for name in names], dtype=np.int64)


def _cut(ends: NDArray[np.int64], n: int) -> int:
    """Return the first end of an owner's rows with at least n rows before it."""
    if n == 0:
        return 0
    return int(ends[min(int(np.searchsorted(ends + 1, n)), len(ends) - 1)]) + 1


def _named(data: Dataset) -> bool:
    """Say whether the columns have names of their own; an npz with one matrix X has none."""
    return data.feature_names != tuple(f"x{j}" for j in range(data.n_features))


def _require_rows(wanted: int, there: int, what: str, *, keep: int) -> None:
    if wanted + keep > there:
        left = " and some left for the teachers" if keep else ""
        raise ValueError(
            f"Expected {wanted} rows for the pool and the test{left} in {what}, got {there} rows. "
            "Lower [data] n_public or n_test."
        )


def _require_features(n_features: int, private: Dataset | MultilabelDataset, path: Path) -> None:
    if n_features != private.n_features:
        raise ValueError(
            f"{path.name}: Expected the {private.n_features} features of the private rows, got {n_features}."
        )


def _required(path: Path | None) -> Path:
    if path is None:
        raise ValueError(
            'Expected [data] private, the file with the private rows, for name = "files", got none.'
        )
    return path


# The same with many labels per row
#
# Whatever is wrong with a file or an image is found here, before anything is trained or charged.


RowNumbers: TypeAlias = "NDArray[Any] | None"
# Private rows, the pool and what is known of its labels, and rows to test on.
_ReadLabels: TypeAlias = "tuple[MultilabelDataset, RowNumbers, RowNumbers, MultilabelDataset | None]"


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


def model_shape(tables: Tables | LabelTables) -> dict[str, Any]:
    """Return what a network is told of the rows: how many classes, or labels, and the shape of images."""
    rows = tables.private
    n_outputs = rows.n_labels if isinstance(rows, MultilabelDataset) else rows.n_classes
    return {"n_classes": n_outputs, "image_shape": rows.image_shape}


def read_label_tables(config: RunConfig) -> LabelTables:
    """Read or make the tables that a config with labels names; rows are set aside as in `read_tables`."""
    tables, path = _read_tables(config), config.data.private_path
    if config.data.name != CLIPS or path is None:
        return tables
    return replace(tables, **said_of_clips(path, tables.private))


def _read_tables(config: RunConfig) -> LabelTables:
    data, names, by = config.data, config.labels.names, config.protects
    if data.name in LABEL_DATASETS:
        options = {"seed": config.seed % 2**32, **data.options}
        whole = LABEL_DATASETS[data.name](names, **options)
        return _set_aside_labels(whole, config, n_public=data.n_public, n_test=data.n_test, by=by)
    if data.private_path is None:  # pragma: no cover - the rules of the settings ask for it
        raise ValueError(f'Expected [data] private for name = "{data.name}", got none.')
    read = _from_layout if data.name in LABEL_LAYOUTS else _from_table
    private, pool, pool_y, test = read(config, data.private_path)
    if pool is None:
        kept = _set_aside_labels(
            private, config, n_public=data.n_public, n_test=0 if test else data.n_test, by=by
        )
        return replace(kept, test=test or kept.test)
    if test is None and data.n_test:
        kept = _set_aside_labels(private, config, n_public=0, n_test=data.n_test, by=by)
        return replace(kept, pool=pool, pool_y=pool_y)
    return LabelTables(private, pool, pool_y, test, private.notes)


def _from_table(config: RunConfig, path: Path) -> _ReadLabels:
    data, names = config.data, config.labels.names
    private = read_label_table(
        path, names, person=data.person or None, id=data.id or None, site=data.site or None, **data.options
    )
    categories = data.options.get("categories") or {}
    features = private.feature_names or None
    test = None
    if data.test_path is not None:
        test = read_label_table(data.test_path, names, features=features, categories=categories)
        _require_features(test.n_features, private, data.test_path)
    if data.public_path is None:
        return private, None, None, test
    # The pool may lack the labels, and any of its columns that is one of them is no feature.
    others = tuple(filter(None, (*names, data.person, data.id, data.site, "" if features else "Y")))
    pool = read_features(data.public_path, features, categories=categories, leave_out=others)
    _require_features(pool.shape[1], private, data.public_path)
    known = {*names} <= read_columns(data.public_path).keys()
    pool_y = None
    if known:
        pool_y = read_label_table(data.public_path, names, features=features, categories=categories).y
    return private, pool, pool_y, test


def _from_layout(config: RunConfig, path: Path) -> _ReadLabels:
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


def _set_aside_labels(
    table: MultilabelDataset, config: RunConfig, *, n_public: int, n_test: int,
    by: Literal["record", "person", "site"],
) -> LabelTables:  # fmt: skip
    kept, asked, test, note = set_aside(table, n_public=n_public, n_test=n_test, seed=config.seed, by=by)
    return LabelTables(kept, **_apart(table, asked, test, note=note, by=by))
