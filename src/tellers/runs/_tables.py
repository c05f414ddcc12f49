"""The tables of a run: private rows, a public pool and public test rows, and which rows each teacher gets."""

import hashlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..data._label_files import labels_file, require_same_attributes
from ..data._records import FILES
from ..data.annotations import read_label_names
from ..data.clips import clip_notes, one_class_each, read_collection, require_same_features
from ..data.dataset import Dataset, MultilabelDataset, TableLines
from ..data.named import load
from ..data.tables import read_columns, read_features, read_label_table, read_table
from ..privacy._files import write_whole
from ..privacy.votes import AnswerSpace, SetOf
from ..teachers.partitions import Partition, assignment_key, identities, partition, positions
from .personal.assignment import Assignment
from .settings.sections import CLIPS, RunConfig

# Private rows for the teachers, a public pool, and public rows to test on
#
# Whatever is wrong with a file or an image is found here, before anything is trained or charged.

Rows = TypeVar("Rows", Dataset, MultilabelDataset)
AnyRows = Dataset | MultilabelDataset
# Private rows, the pool and what is known of its labels, and rows to test on; a pool of None is set aside.
_Read = tuple[AnyRows, NDArray[Any] | None, NDArray[Any] | None, AnyRows | None]


@dataclass(frozen=True, eq=False, repr=False)
class Tables:
    """What a run learns from, asks about, and tests on: rows with one class each, or with many labels.

    `pool_y` are the pool's own labels where they are known: they are used to say how many released labels
    are right, and for nothing else. `test` may be missing, then nothing is said of the student's accuracy.
    `n_declared` is how many private rows there are said to be where some cannot be used, and `withheld` are
    notes for the operator alone. `apart` are the units that were set aside as public, by name.
    """

    private: Any  # a Dataset or a MultilabelDataset, and so is `test`
    pool: NDArray[Any]
    pool_y: NDArray[np.int64] | None = None
    test: Any = None
    notes: tuple[str, ...] = ()
    n_declared: int | None = None
    withheld: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def space(self) -> AnswerSpace:
        """Return what a ballot on a row says: one class, or a set of labels."""
        space: AnswerSpace = self.private.space
        return space

    @property
    def many_labels(self) -> bool:
        """Return whether a row has many labels, and not one class."""
        return self.space.kind == SetOf.kind

    @property
    def n_outputs(self) -> int:
        """Return how many classes, or labels, there are."""
        return self.space.n_answers


def read_tables(config: RunConfig) -> Tables:
    """Read or make the tables that a config names, with the budgets of its people where it names some.

    Rows that are set aside for the pool and the test are drawn by the seed; where persons or sites are
    protected, whole ones are set aside, and none of them stays behind among the private rows.
    """
    data = config.data
    if data.record.has_test_part:
        return _published_parts(config)
    if not data.is_files:
        private, pool, pool_y, test = _from_name(config), None, None, None
    else:
        private, pool, pool_y, test = (_from_table if data.name == FILES else _from_layout)(config)
    n_test = data.n_test if test is None else 0
    if pool is None:
        tables = _set_aside(private, config, n_public=data.n_public, n_test=n_test)
    elif n_test:
        tables = replace(_set_aside(private, config, n_public=0, n_test=n_test), pool=pool, pool_y=pool_y)
    else:
        tables = Tables(private, pool, pool_y, None, private.notes)
    tables = replace(tables, test=test or tables.test)
    if data.name != CLIPS:
        return tables
    # How many recordings are broken is a number of the private data. The places in the table are not: they
    # are declared, and a recording that breaks leaves them as they are.
    n_declared = None if tables.private.places is None else len(tables.private.places)
    withheld = clip_notes(read_collection(_private_path(config)))[1]
    return replace(tables, n_declared=n_declared, withheld=withheld)


def _from_name(config: RunConfig) -> AnyRows:
    """Return a data set that needs no file of one's own, whole."""
    data, record = config.data, config.data.record
    usual = record.begun.get("data", {}).get("options", {})
    usual = {**usual, "seed": config.seed} if "seed" in record.parameters() else usual
    options = {**usual, **data.options}
    if not record.load:
        found: AnyRows = record.reader()(config.labels.names, **options)
    else:
        found = _agreed(load(data.name, data_dir=data.directory_path, **options), config)
    return found


def _published_parts(config: RunConfig) -> Tables:
    """Return a data set that was published in two parts: pool and test rows are from the second."""
    data, private = config.data, _from_name(config)
    published = load(data.name, data_dir=data.directory_path, **{**data.options, "part": "test"})
    n_test = data.n_test or len(published) - data.n_public
    _require_rows(data.n_public + n_test, len(published), f"the test part of {data.name}", keep=0)
    order = np.random.default_rng(config.seed).permutation(len(published))
    public = published.take(order[: data.n_public])
    test = published.take(order[data.n_public : data.n_public + n_test])
    note = f"The pool and the test rows are from the published test part of {data.name}."
    return Tables(private, public.X, public.y, test, (*private.notes, note))


def _from_table(config: RunConfig) -> _Read:
    """Read up to three tables of one's own, with a column of classes, or one for each of many labels."""
    data, names, path = config.data, config.labels.names, _private_path(config)
    given: dict[str, Any] = {"person": data.person or None, "id": data.id or None, "site": data.site or None}
    read: Callable[..., AnyRows] = partial(read_label_table, label_names=names)
    if not names:
        read = partial(read_table, target=data.target)
        given |= {"classes": list(data.classes) or None, "budget": config.personal.column or None}
    private = _agreed(read(path, **given, **data.options), config)
    undeclared = [note for note in private.notes if note.startswith("The categories of")]
    if undeclared:
        # One row with a new word would renumber the words of every teacher's rows.
        raise ValueError(
            f'{path.name}: {undeclared[0]} In [data]: options = {{categories = {{column = ["a", "b"]}}}}'
        )
    same: dict[str, Any] = {
        "features": _column_names(private), "categories": data.options.get("categories") or {},
    }  # fmt: skip
    if isinstance(private, Dataset):
        read = partial(read, classes=private.class_names)
    test = pool = pool_y = None
    if data.test_path is not None:
        test = read(data.test_path, **same)
        _require_features(test.n_features, private, data.test_path)
    if data.public_path is not None:
        # The pool may lack the labels, and any of its columns that is one of them is no feature.
        roles = (*(names or (data.target,)), data.person, data.id, data.site, config.personal.column)
        whole = () if same["features"] else ("Y",)
        pool = read_features(data.public_path, **same, leave_out=(*filter(None, roles), *whole))
        _require_features(pool.shape[1], private, data.public_path)
        if names and {*names} <= read_columns(data.public_path).keys():
            pool_y = read(data.public_path, **same).y
    return private, pool, pool_y, test


def _from_layout(config: RunConfig) -> _Read:
    """Read the same layout up to three times; rows that are learned from, or tested on, need every label."""
    data, names, path = config.data, config.labels.names, _private_path(config)
    options, read = dict(data.options), partial(data.record.reader(), label_names=names or data.classes)
    if data.name == "mulan":
        options["xml"] = str(labels_file(path, str(options.get("xml", ""))).absolute())
        for other in filter(None, (data.public_path, data.test_path)):
            require_same_attributes(other, path, labels=read_label_names(options["xml"]))
    if data.name == CLIPS:
        require_same_features(path, data.public_path, data.test_path)
    person = {"person": data.person} if data.person else {}
    private: Any = _labelled(read(path, **options, **person), path)
    test: Any = None
    if data.test_path is not None:
        test = _labelled(read(data.test_path, **options), data.test_path)
    if not names:  # one label each is one class each
        private, test = one_class_each(private), None if test is None else one_class_each(test)
    if data.public_path is None:
        return private, None, None, test
    pool = read(data.public_path, need_labels=False, **options)
    _require_features(pool.n_features, private, data.public_path)
    return private, pool.X, pool.y if names and pool.known.all() else None, test


def _labelled(table: MultilabelDataset, path: Path) -> MultilabelDataset:
    try:
        _ = table.y
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None
    return table


def _agreed(data: Any, config: RunConfig) -> Any:
    """Return rows with what their people agreed to, where a file says it."""
    chosen = config.personal
    if not chosen.file or data.persons is None:
        return data
    from ._groups import budgets_from_file

    place = config.data.path(chosen.file)
    assert place is not None  # something is written
    return replace(data, budgets=budgets_from_file(place, data.persons, levels=bool(chosen.levels)))


def digest(*arrays: NDArray[Any]) -> str:
    """Return a fingerprint of tables, to tell whether they are the same."""
    made = hashlib.sha256()
    for array in arrays:
        made.update(f"{array.dtype.str} {array.shape};".encode())
        made.update(np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


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


def _set_aside(data: Any, config: RunConfig, *, n_public: int, n_test: int) -> Tables:
    by = config.protects
    kept, asked, test, note = set_aside(data, n_public=n_public, n_test=n_test, seed=config.seed, by=by)
    owners = {"person": data.persons, "site": data.sites, "record": data.ids}[by]
    found, apart = np.concatenate([asked, test]), list[str]()
    if owners is not None and found.size:
        apart = identities(owners[found], name=f"{by}s")
    return Tables(
        kept, data.X[asked], data.y[asked], data.take(test) if test.size else None, (*data.notes, note),
        apart=tuple(dict.fromkeys(apart)),
    )  # fmt: skip


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


def _column_names(data: AnyRows) -> tuple[str, ...] | None:
    """Return the names of the columns where they have some; an npz with one matrix X has none."""
    made_up = tuple(f"x{j}" for j in range(data.n_features)) if isinstance(data, Dataset) else ()
    return None if data.feature_names == made_up else data.feature_names


def _require_rows(wanted: int, there: int, what: str, *, keep: int) -> None:
    if wanted + keep > there:
        left = " and some left for the teachers" if keep else ""
        raise ValueError(
            f"Expected {wanted} rows for the pool and the test{left} in {what}, got {there} rows. "
            "Lower [data] n_public or n_test."
        )


def _require_features(n_features: int, private: AnyRows, path: Path) -> None:
    if n_features != private.n_features:
        raise ValueError(
            f"{path.name}: Expected the {private.n_features} features of the private rows, got {n_features}."
        )


def _private_path(config: RunConfig) -> Path:
    path: Path | None = config.data.private_path
    assert path is not None  # settings of files without it are refused
    return path


# Who the teachers learn from

_RECORDS_ALONE = (
    "It is known whose row each one is, and the settings protect one record all the same: a person with "
    "several rows is protected for each of them alone, not for all of them together."
)


def _dealt_by_place(config: RunConfig, name: str, places: TableLines) -> Partition:
    """Deal all lines of a table; those that cannot be used drop out of the part they were dealt to."""
    chosen = config.partition
    if config.protects == "person" and places.unit != "one source":
        raise ValueError(
            f'Expected the sources of clips in {name!r} for [partition] by = "person", got clips one by one. '
            "Name their sources when preparing them, and leave out by_clip."
        )
    if chosen.stratified and places.unit == "one source":
        raise ValueError(
            f"Expected clips that are dealt one by one in {name!r} for [partition] stratified = true, "
            "got some that stay together. Leave it out, or in [data]: options = {by_clip = true}"
        )
    dealt = partition(
        len(places), chosen.n_teachers, seed=config.seed,
        labels=places.classes if chosen.stratified else None,
        persons=places.units if places.unit == "one source" else None,
    )  # fmt: skip
    parts = tuple(np.sort(places.rows_at(part)) for part in dealt)
    relation = replace(dealt.relation, unit="source" if places.unit == "one source" else "clip")
    return Partition(parts, unit=places.unit, notes=(*dealt.notes, *places.notes), relation=relation)


def deal_rows(config: RunConfig, tables: Tables) -> Partition:
    """Return which private rows each teacher gets."""
    chosen, data = config.partition, tables.private
    if data.places is not None:
        return _dealt_by_place(config, data.name, data.places)
    if config.protects == "site":
        apart = set(identities(tables.apart, name="sites")) if tables.apart else set()
        names = [name for name in identities(chosen.sites, name="sites") if name not in apart]
        return partition(len(data), sites=data.sites, site_names=names, persons=data.persons)
    if config.protects == "person":
        if data.persons is None:
            raise ValueError(
                f'Expected a column of persons in {data.name!r} for [partition] by = "person", got none. '
                "Name it in [data] person."
            )
        return partition(len(data), chosen.n_teachers, seed=config.seed, persons=data.persons)
    labels = data.y if chosen.stratified else None
    dealt = partition(len(data), chosen.n_teachers, seed=config.seed, labels=labels, ids=data.ids)
    return dealt if data.persons is None else replace(dealt, notes=(*dealt.notes, _RECORDS_ALONE))


def assign_rows(config: RunConfig, tables: Tables) -> Assignment:
    """Return which private rows each teacher gets, by the plan of the groups where there are any."""
    if not config.personal.variant or (config.protects == "person" and tables.private.persons is None):
        return Assignment(deal_rows(config, tables))  # or says what is missing
    from ._groups import seat_groups

    return seat_groups(config, tables.private)


def save_partition(path: Path, assignment: Assignment) -> None:
    """Write down which rows each teacher has, and of which rows those are copies."""
    flat, parts = io.BytesIO(), assignment.partition
    copied = {} if assignment.source is None else {"source": assignment.source}
    np.savez(flat, rows=np.concatenate(list(parts)), sizes=parts.sizes, **copied)
    write_whole(path, flat.getvalue())
