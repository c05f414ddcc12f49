"""The check of neighbouring tables is itself tried: on ways that are sound, and on faults planted in them."""

import hashlib
from collections import Counter

import numpy as np
import pytest

from tellers.testing import TableVotes, check_neighbours

N_TEACHERS = 9
CHOICES = {"y": [0, 1, 2]}  # declared; no row has the last one


def a_table(n_rows=60, n_persons=24, *, seed=7):
    """Return a table of persons with one row, with some and with many; their names look like numbers."""
    rng = np.random.default_rng(seed)
    who = np.sort(rng.integers(n_persons, size=n_rows) // (1 + rng.integers(3, size=n_rows)))
    return {
        "who": np.array([str(name) for name in rng.permutation(who)]),
        "x": rng.normal(size=n_rows),
        "y": rng.integers(2, size=n_rows),
    }


def seat(name, n=N_TEACHERS):
    return int.from_bytes(hashlib.blake2b(str(name).encode(), key=b"7").digest()[:8], "big") % n


def learn(table, owner, *, public=None, classes=(0, 1, 2)):
    """Return ballots of teachers that answer with the mean of their rows, and the class most of them have."""
    owner, ballots = np.asarray(owner), []
    for teacher in range(N_TEACHERS):
        x, y = table["x"][owner == teacher], table["y"][owner == teacher]
        ballots.append((x.sum(), [int((y == one).sum()) for one in classes]))
    return TableVotes(ballots, public={"n_teachers": N_TEACHERS, **(public or {})})


def by_name(table):
    return learn(table, [seat(name) for name in table["who"].tolist()])


def by_place(table):
    return learn(table, np.arange(len(table["x"])) % N_TEACHERS)


def by_place_within_a_class(table):
    order = np.argsort(table["y"], kind="stable")
    owner = np.empty(len(order), dtype=int)
    owner[order] = np.arange(len(order)) % N_TEACHERS
    return learn(table, owner)


def twice(table):
    """Teach two teachers with everybody who is called by an even number, and one with the others."""
    names = table["who"].tolist()
    first = [seat(name, 4) for name in names]
    second = [4 + seat(name, 4) if copies(name) == 2 else 8 for name in names]
    one, other = (learn(table, owner).ballots for owner in (first, second))
    return [*one[:4], *other[4:8]]


def copies(name):
    return 2 if len(name) % 2 else 1


def test_sound_ways_pass_and_every_kind_is_tried():
    found = check_neighbours(by_name, a_table(), unit="who", target="y", choices=CHOICES, n_tables=1001)
    assert found.n_tried == 1001
    assert found.tried == dict.fromkeys(found.tried, 91)
    assert found.worst == {kind: 2 if kind in ("rename", "hand over") else 1 for kind in found.tried}
    assert found.summary.startswith("1,001 neighbouring tables: at most 1 ballot changed by ")
    assert found.summary.endswith((", 2 by rename, hand over", ", 2 by hand over, rename"))


@pytest.mark.parametrize(
    ("way", "given"),
    [
        (by_place, {"target": "y"}),
        (by_place_within_a_class, {"target": "y", "keeps": ["y"]}),
        (twice, {"unit": "who", "n_ballots": lambda rows: copies(rows["who"][0])}),
        (by_name, {"unit": "who", "change": "replace"}),
    ],
    ids=["by place", "stratified", "copies", "units that stay"],
)
def test_every_relation_has_sound_ways(way, given):
    found = check_neighbours(way, a_table(), choices=CHOICES, n_tables=110, **given)
    assert found.n_tried == 110


def first_appearance(table):
    seen = {}
    return learn(table, [seen.setdefault(name, len(seen)) % N_TEACHERS for name in table["who"].tolist()])


def sorted_names(table):
    return learn(table, np.unique(table["who"], return_inverse=True)[1] % N_TEACHERS)


def scaled_by_all_rows(table):
    x = table["x"]
    return by_name({**table, "x": (x - x.mean()) / x.std()})


def classes_read_off(table):
    return learn(
        table, [seat(name) for name in table["who"].tolist()], classes=np.unique(table["y"]).tolist()
    )


def categories_read_off(table):
    codes = np.unique(table["x"], return_inverse=True)[1]
    return by_name({**table, "x": codes.astype(float)})


def balanced_by_rows(table):
    owner, load = {}, [0] * N_TEACHERS
    for name, n in sorted(Counter(table["who"].tolist()).items(), key=lambda item: (-item[1], item[0])):
        owner[name] = load.index(min(load))
        load[owner[name]] += n
    return learn(table, [owner[name] for name in table["who"].tolist()])


def stratified_by_label(table):
    return by_place_within_a_class(table)


def a_count_is_told(table):
    names = table["who"].tolist()
    return learn(table, [seat(name) for name in names], public={"data": {"n_private": len(names)}})


def empty_teachers_are_told(table):
    owner = [seat(name) for name in table["who"].tolist()]
    notes = [f"teacher {n} has no rows" for n in range(N_TEACHERS) if n not in owner]
    return learn(table, owner, public={"warnings": notes})


def seeded_by_the_data(table):
    seed = hashlib.blake2b(table["x"].tobytes()).digest()[:4]
    return learn(table, [seat(f"{seed!r}{name}") for name in table["who"].tolist()])


def duplicates_dropped_across_persons(table):
    # The first of two equal rows stays, whosever it is.
    _, first = np.unique(np.round(table["x"], 0), return_index=True)
    return by_name({name: column[np.sort(first)] for name, column in table.items()})


def dtype_of_all_names(table):
    try:
        names = table["who"].astype(int).tolist()
    except ValueError:
        names = [f"word {name}" for name in table["who"].tolist()]
    return learn(table, [seat(name) for name in names])


def width_of_all_names(table):
    width = table["who"].dtype.itemsize
    return learn(table, [seat(name.ljust(width)) for name in table["who"].tolist()])


def empty_parts_are_taken_out(table):
    owner = np.array([seat(name) for name in table["who"].tolist()])
    return [table["x"][owner == teacher] for teacher in np.unique(owner)]


def rows_dealt_within_a_person(table):
    turn, owner = Counter(), []
    for name in table["who"].tolist():
        owner.append((seat(name) + turn[name]) % N_TEACHERS)
        turn[name] += 1
    return learn(table, owner)


def outliers_refused(table):
    if np.abs(table["x"]).max() > 1e5:
        raise ValueError("Expected numbers below 1e5.")
    return by_name(table)


def shuffled_by_the_number_of_rows(table):
    order = np.random.default_rng(7).permutation(len(table["x"]))
    return by_name({name: column[order] for name, column in table.items()} | {"x": np.cumsum(table["x"])})


FAULTS = [
    first_appearance,
    sorted_names,
    scaled_by_all_rows,
    classes_read_off,
    categories_read_off,
    balanced_by_rows,
    stratified_by_label,
    a_count_is_told,
    empty_teachers_are_told,
    seeded_by_the_data,
    duplicates_dropped_across_persons,
    dtype_of_all_names,
    width_of_all_names,
    empty_parts_are_taken_out,
    rows_dealt_within_a_person,
    outliers_refused,
    shuffled_by_the_number_of_rows,
]


@pytest.mark.parametrize("way", FAULTS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("seed", [7, 8])
def test_planted_faults_are_found(way, seed):
    with pytest.raises(AssertionError, match="Expected one unit to change 1 ballot and nothing public"):
        check_neighbours(way, a_table(), unit="who", target="y", choices=CHOICES, n_tables=220, seed=seed)


@pytest.mark.parametrize("kinds", [["replace"], ["relabel"]])
def test_a_stratified_deal_is_no_deal_for_a_changed_label(kinds):
    with pytest.raises(AssertionError, match="ballots changed, 1 allowed"):
        check_neighbours(
            by_place_within_a_class, a_table(), target="y", choices=CHOICES, kinds=kinds, n_tables=50
        )


def test_missing_values_and_new_categories_are_tried_where_a_way_takes_them():
    def filled_in(table):
        return by_name({**table, "x": np.where(np.isnan(table["x"]), np.nanmean(table["x"]), table["x"])})

    given = {"unit": "who", "n_tables": 110, "choices": {"x": [np.nan, 0.0]}}
    assert check_neighbours(by_name, a_table(), **given).n_tried
    with pytest.raises(AssertionError, match="ballots changed"):
        check_neighbours(filled_in, {**a_table(), "x": np.r_[np.nan, np.nan, a_table()["x"][2:]]}, **given)


def test_the_report_says_which_change_and_how_much():
    with pytest.raises(AssertionError) as found:
        check_neighbours(first_appearance, a_table(), unit="who", kinds=["delete row"], n_tables=50)
    lines = str(found.value).splitlines()
    assert lines[0].endswith("of 50 neighbouring tables did more:")
    assert "delete row, " in lines[1]
    assert f" of {N_TEACHERS} ballots changed, 1 allowed (" in lines[1]
    with pytest.raises(AssertionError, match=r"data.n_private was 60 and is 6[1-9]"):
        check_neighbours(a_count_is_told, a_table(), unit="who", kinds=["insert row"], n_tables=3)
    with pytest.raises(AssertionError, match="it is refused, ValueError: Expected numbers below 1e5"):
        check_neighbours(outliers_refused, a_table(), unit="who", kinds=["replace"], n_tables=50)


def test_who_is_set_aside_is_skipped_and_counted_and_others_are_not():
    def aside(table):
        names = np.array(table["who"].tolist())
        public = np.array([seat(f"pool {name}", 4) == 0 for name in names.tolist()])
        kept = {name: column[~public] for name, column in table.items()}
        return TableVotes(by_name(kept).ballots, {"pool": table["x"][public]}, set(names[public].tolist()))

    found = check_neighbours(aside, a_table(), unit="who", target="y", choices=CHOICES, n_tables=220)
    assert found.n_skipped > 22
    assert found.n_tried + found.n_skipped == 220
    assert "skipped, whose unit is public anyway" in found.summary

    def the_largest(table):
        # Who is set aside depends on how many rows there are: to be so is then no choice that was made.
        largest = Counter(table["who"].tolist()).most_common(1)[0][0]
        kept = {name: column[table["who"] != largest] for name, column in table.items()}
        return TableVotes(by_name(kept).ballots, {"pool": [largest]}, {largest})

    with pytest.raises(AssertionError, match=r"insert row, .*public: pool"):
        check_neighbours(the_largest, a_table(), unit="who", n_tables=440)

    def whole(table):
        return TableVotes(by_name(table).ballots, set_aside=set(table["who"].tolist()))

    with pytest.raises(AssertionError, match="Expected tables to compare, got none: 50 were skipped"):
        check_neighbours(whole, a_table(), unit="who", n_tables=50)

    def newcomers(table):
        known = set(a_table()["who"].tolist())
        return TableVotes(by_name(table).ballots, set_aside=set(table["who"].tolist()) - known)

    with pytest.raises(AssertionError, match="Expected tables to compare, got none by insert unit: 20 were"):
        check_neighbours(newcomers, a_table(), unit="who", kinds=["move", "insert unit"], n_tables=40)


def test_a_way_must_repeat_itself_and_look_at_the_table():
    draws = iter(range(10**6))
    with pytest.raises(AssertionError, match="the same table twice"):
        check_neighbours(lambda _: [next(draws)], a_table(), unit="who", n_tables=50)
    with pytest.raises(AssertionError, match="Expected ballots that depend on the table"):
        check_neighbours(lambda _: [0, 1], a_table(), unit="who", n_tables=50)
    with pytest.raises(ValueError, match="Expected kinds among replace, relabel, got 'move'"):
        check_neighbours(by_place, a_table(), kinds=["move"])


def test_columns_of_numbers_and_tables_of_images_have_neighbours_too():
    table = {**a_table(), "who": a_table()["who"].astype(int)}
    # A name that is a word makes words of all: a way that reads them so is sound.
    assert check_neighbours(by_name, table, unit="who", names=["x7", "-3"], n_tables=110).n_tried == 110
    with pytest.raises(AssertionError, match="ballots changed"):
        check_neighbours(by_name, table, unit="who", names=[1.5], kinds=["insert unit"], n_tables=10)
    images = np.random.default_rng(7).integers(255, size=(60, 2, 2), dtype=np.uint8)

    def look(table):
        return [
            table["image"][[seat(name) == n for name in table["who"].tolist()]] for n in range(N_TEACHERS)
        ]

    assert check_neighbours(
        look, {"who": a_table()["who"], "image": images}, unit="who", n_tables=110
    ).n_tried
