"""Neighbouring tables at the deal: one unit changes the rows of one teacher, and nothing else is changed."""

from dataclasses import replace

import numpy as np
import pytest
from tellers_tables import (
    CHOICES,
    LEVELS,
    N_TEACHERS,
    NAMES,
    OF_SITES,
    PERSONAL,
    SITES,
    a_clip_table,
    a_table,
    choices_of_clips,
    columns,
    tag,
    tried,
    write_clips,
    write_csv,
    write_pictures,
)

from tellers import GNMax
from tellers.runs import DataConfig, LabelsConfig, MechanismConfig, PartitionConfig, PersonalConfig, RunConfig
from tellers.runs._tables import assign_rows, read_tables
from tellers.runs.personal import arrange, read_consent
from tellers.teachers import partition
from tellers.testing import TableVotes, check_neighbours

FIELDS = ("unit", "change", "keeps", "public", "n_teachers")
MANY = {"mechanism": MechanismConfig(name="gnthreshold", sigma=5.0)}
VARIANTS = pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])


def dealt(parts, table, rows=None):
    """Return what every teacher learns from, and what is said of it."""
    x, y = (column if rows is None else rows(column) for column in (table["x"], table["y"]))
    relation = {name: getattr(getattr(parts, "relation", None), name, None) for name in FIELDS}
    public = {"n_teachers": len(parts), "notes": parts.notes, "relation": relation}
    return TableVotes([(x[part], y[part]) for part in parts], public=public)


def by(unit=None, *, argument=None, n_teachers=N_TEACHERS, dtype=None, **given):
    """Return a table, and the way to deal it by a column."""
    table = columns(a_table(), *filter(None, [unit]), "x", "y")
    if dtype is not None:
        table[unit] = table[unit].astype(dtype)

    def way(table):
        owners = {} if argument is None else {argument: table[unit]}
        return dealt(partition(len(table["x"]), n_teachers, seed=7, **owners, **given), table)

    return table, way


PERSONS = {"unit": "who", "argument": "persons"}
PLAIN = {
    "record": ({}, {}),
    "stratified": ({"unit": "y", "argument": "labels"}, {"unit": None, "keeps": ["y"]}),
    "persons": (PERSONS, {"unit": "who"}),
    "persons by number": ({**PERSONS, "dtype": int}, {"unit": "who"}),
    # One name makes a column of words, or of fractions, of all.
    "a word among numbers": ({**PERSONS, "dtype": int}, {"unit": "who", "names": ["x7", "01", "Ω"]}),
    "a fraction among numbers": ({**PERSONS, "dtype": int}, {"unit": "who", "names": [0.5, -1.5]}),
    "ids": ({"unit": "id", "argument": "ids"}, {"unit": "id"}),
    "sites": (
        {"unit": "site", "argument": "sites", "n_teachers": None, "site_names": list(SITES)},
        {"unit": "site", "change": "replace", "kinds": OF_SITES},
    ),
}


@tried(110, 14_000)
@pytest.mark.parametrize("case", PLAIN)
def test_one_unit_changes_the_rows_of_one_teacher(case, n_tables):
    how, given = PLAIN[case]
    table, way = by(**how)
    found = check_neighbours(way, table, target="y", choices=CHOICES, n_tables=n_tables, **given)
    assert found.n_tried > 0.8 * n_tables


@pytest.mark.parametrize("case", PLAIN)
def test_the_relation_that_is_told_is_the_one_that_was_tried(case):
    how, given = PLAIN[case]
    table, way = by(**how)
    told = way(table).public["relation"]
    assert told["change"] == ("add or remove" if given.get("unit") in ("who", "id") else "replace")
    assert told["keeps"] == (("label",) if "keeps" in given else ())
    assert told["n_teachers"] == 1


def personal(variant, *, persons):
    """Return a table, the way to deal it by budgets, and how many teachers learn from a person."""
    table = columns(a_table(), *["who"] * persons, "budget", "x", "y")
    copies = {}

    def way(table):
        who = table["who"] if persons else None
        consent = read_consent(table["budget"], delta=1e-5, levels=LEVELS, persons=who)
        seating = arrange(variant, consent, GNMax(4.0), n_teachers=N_TEACHERS, seed=7)
        names = [group.name for group in seating.plan.groups]
        copies.update(zip(names, getattr(seating.plan, "copies_of", [1] * len(names)), strict=True))
        found = dealt(seating.partition, table, seating.rows)
        return TableVotes(found.ballots, {**found.public, "plan": seating.plan.summary})

    return table, way, lambda rows: copies[str(rows["budget"][0])]


@tried(72, 8_000)
@pytest.mark.parametrize("persons", [False, True], ids=["records", "persons"])
@VARIANTS
def test_with_budgets_of_their_own_a_unit_changes_its_copies(variant, persons, n_tables):
    table, way, copies = personal(variant, persons=persons)
    given = {"unit": "who", "change": "replace", "kinds": PERSONAL} if persons else {}
    found = check_neighbours(
        way, table, target="y", keeps=["budget"], choices=CHOICES, n_ballots=copies, n_tables=n_tables,
        **given,
    )  # fmt: skip
    n_copies = 2 if variant == "upsampling" else 1
    assert max(found.worst.values()) == (2 if persons else 1) * n_copies


@pytest.mark.parametrize("persons", [False, True], ids=["records", "persons"])
@VARIANTS
def test_the_relation_of_budgets_says_what_a_unit_keeps(variant, persons):
    table, way, _ = personal(variant, persons=persons)
    told = way(table).public["relation"]
    assert (told["keeps"], told["n_teachers"]) == (("budget",), 2 if variant == "upsampling" else 1)


def read(config, owners):
    """Return what every teacher of a run learns from; `owners` says whose rows were set aside."""
    found = read_tables(config)
    seated = assign_rows(config, found)
    parts, X, y = seated.partition, seated.rows(found.private.X), seated.rows(found.private.y)
    test = np.zeros((0, X.shape[1])) if found.test is None else found.test.X
    return TableVotes(
        [(X[part], y[part]) for part in parts],
        public={"pool": found.pool, "test": test, "notes": [*found.notes, *parts.notes]},
        set_aside=owners([*found.pool, *test]),
    )


@pytest.fixture
def files(tmp_path):
    """Return the way from a table through a file, of which rows or whole units are set aside."""

    def make(unit, *, many=False, partition=None, personal=None, **data):
        given = {"n_public": 12, "n_test": 8, "target": "" if many else "y", **data}
        config = RunConfig(
            data=DataConfig(
                name="files", private="rows.csv", folder=str(tmp_path),
                classes=() if many else ("0", "1", "2"), **given,
            ),
            labels=LabelsConfig(names=("y", "z")) if many else LabelsConfig(),
            partition=PartitionConfig(**{"n_teachers": N_TEACHERS, "by": "record", **(partition or {})}),
            personal=PersonalConfig(**(personal or {})), **(MANY if many else {}),
        )  # fmt: skip

        def way(table):
            units = range(len(table["x"])) if unit is None else table[unit].tolist()
            # A feature that says whose a row is: in the pool it is known again by that.
            written = {"tag": np.array([tag(one) for one in units]), **table}
            if many:
                written |= {"y": (table["y"] > 0).astype(int), "z": (table["y"] > 1).astype(int)}
            write_csv(tmp_path / "rows.csv", written)
            tags = {tag(one): one for one in units}
            return read(config, lambda rows: {tags[float(row[0])] for row in rows if float(row[0]) in tags})

        return way

    return make


FILES = {
    "record": ({"unit": None}, {}, {}),
    "stratified": ({"unit": None}, {"stratified": True}, {"keeps": ["y"]}),
    "ids": ({"unit": "id", "id": "id"}, {}, {"unit": "id"}),
    "ids, many labels": ({"unit": "id", "id": "id", "many": True}, {}, {"unit": "id"}),
    "persons": ({"unit": "who", "person": "who"}, {"by": "person"}, {"unit": "who"}),
    "persons, many labels": (
        {"unit": "who", "person": "who", "many": True}, {"by": "person"}, {"unit": "who"},
    ),
    "sites": (
        {"unit": "site", "site": "site", "n_public": 0, "n_test": 0, "public": "pool.csv"},
        {"by": "site", "n_teachers": 0, "sites": SITES},
        {"unit": "site", "change": "replace", "kinds": OF_SITES},
    ),
}  # fmt: skip


@tried(44, 5_000)
@pytest.mark.parametrize("case", FILES)
def test_files_of_which_units_are_set_aside(files, tmp_path, case, n_tables):
    data, partition, given = FILES[case]
    table = columns(a_table(), *filter(None, [data["unit"]]), "x", "y")
    write_csv(tmp_path / "pool.csv", {"tag": np.arange(9.0), "x": np.arange(9.0)})
    way = files(**data, partition=partition)
    found = check_neighbours(way, table, target="y", choices=CHOICES, n_tables=n_tables, **given)
    assert found.n_tried > n_tables / 3


@tried(24, 2_000)
@VARIANTS
def test_files_with_budgets_of_which_persons_are_set_aside(files, variant, n_tables):
    settings = {"variant": variant, "column": "budget", "levels": LEVELS}
    way = files("who", person="who", partition={"by": "person"}, personal=settings)
    found = check_neighbours(
        way, columns(a_table(), "who", "budget", "x", "y"), unit="who", target="y", change="replace",
        keeps=["budget"], kinds=PERSONAL, choices=CHOICES, n_tables=n_tables,
        n_ballots=2 if variant == "upsampling" else 1,
    )  # fmt: skip
    assert found.n_tried > n_tables / 3


@tried(11, 1_000)
@pytest.mark.parametrize("many", [False, True], ids=["classes", "labels"])
@pytest.mark.parametrize("unit", ["source", None], ids=["sources", "clips"])
def test_clips_of_which_units_are_set_aside(tmp_path, unit, many, n_tables):
    features = write_pictures(tmp_path, 120)
    shown = {np.load(tmp_path / f"pictures/{n}.npy").tobytes(): n for n in range(120)}
    config = RunConfig(
        data=DataConfig(
            name="clips", private=".", folder=str(tmp_path), classes=() if many else NAMES, n_public=10,
            options={} if unit else {"by_clip": True},
        ),
        labels=LabelsConfig(names=NAMES) if many else LabelsConfig(),
        partition=PartitionConfig(n_teachers=N_TEACHERS, by="person" if unit else "record"),
        **(MANY if many else {}),
    )  # fmt: skip

    def way(table):
        units = table[unit].tolist() if unit else list(range(len(table["path"])))
        # Who is set aside shows where all recordings are whole: a broken one stands in no pool.
        write_clips(tmp_path, {**table, "picture": np.arange(len(units))}, features)
        aside = read(config, lambda rows: {units[shown[row.tobytes()]] for row in rows}).set_aside
        write_clips(tmp_path, table, features)
        try:
            return replace(read(config, lambda _: ()), set_aside=aside)
        except ValueError as error:  # a pool of broken recordings alone
            return TableVotes([], {"error": str(error)}, aside)

    # A line may lead to the recording of another one: it stays where it is.
    found = check_neighbours(
        way, a_clip_table(), unit=unit, target="label", choices=choices_of_clips(), n_tables=n_tables
    )
    assert found.n_tried > n_tables / 3


@tried(22, 800)
@pytest.mark.parametrize("unit", ["who", None], ids=["persons", "records"])
def test_images_of_which_units_are_set_aside(tmp_path, unit, n_tables):
    image = pytest.importorskip("PIL.Image", reason="images need Pillow (the extra 'images')")
    draw = np.random.default_rng(7)
    for number in range(60):
        pixels = draw.integers(256, size=(4, 4), dtype=np.uint8)
        pixels.flat[0] = number  # by which an image is known again
        image.fromarray(pixels).save(tmp_path / f"{number}.png")
    config = RunConfig(
        data=DataConfig(
            name="image_table", private="rows.csv", folder=str(tmp_path), n_public=6, n_test=4,
            person=unit or "", options={"image": "file", "size": [4, 4], "grey": True},
        ),
        labels=LabelsConfig(names=("y", "z")),
        partition=PartitionConfig(n_teachers=N_TEACHERS, by="person" if unit else "record"), **MANY,
    )  # fmt: skip

    def way(table):
        files = np.array([f"{number}.png" for number in table["x"].tolist()])
        labels = {"y": (table["y"] > 0).astype(int), "z": (table["y"] > 1).astype(int)}
        write_csv(tmp_path / "rows.csv", {"file": files, **columns(table, *filter(None, [unit])), **labels})
        units = dict(zip(table["x"].tolist(), range(len(files)) if unit is None else table[unit].tolist()))
        return read(config, lambda rows: {units[round(255 * float(row[0]))] for row in rows})

    table = {**columns(a_table(40, 20), *filter(None, [unit]), "y"), "x": np.arange(40)}
    choices = {**CHOICES, "x": range(40, 60)}
    found = check_neighbours(way, table, unit=unit, target="y", choices=choices, n_tables=n_tables)
    assert found.n_tried > n_tables / 3
