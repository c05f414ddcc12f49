"""The three tables of a run: who is private, who is public, and nobody both."""

import numpy as np
import pytest

from tellers.runs import DataConfig, PartitionConfig, RunConfig
from tellers.runs._tables import read_tables


def read(data, *, seed=7, **partition):
    return read_tables(RunConfig(data=data, seed=seed, partition=PartitionConfig(**partition)))


def rows_of(table):
    return {row.tobytes() for row in np.ascontiguousarray(table)}


def test_rows_are_set_aside_once_and_by_the_seed():
    config = DataConfig(name="synthetic", n_public=100, n_test=50, options={"n_rows": 400, "difficulty": 0.5})
    first, again, other = (read(config, seed=seed) for seed in (7, 7, 8))
    assert (len(first.private), len(first.pool), len(first.test)) == (250, 100, 50)
    private, pool, test = rows_of(first.private.X), rows_of(first.pool), rows_of(first.test.X)
    assert len(private | pool | test) == 400
    assert (first.pool == again.pool).all()
    assert not (first.pool == other.pool).all()
    assert "nothing protects them" in first.notes[-1]


def test_persons_are_set_aside_whole():
    options = {"n_rows": 400, "difficulty": 0.5, "n_persons": 60}
    config = DataConfig(name="synthetic", n_public=100, n_test=50, options=options)
    tables = read(config, by="person")
    left, tested = set(tables.private.persons), set(tables.test.persons)
    assert not left & tested
    assert len(tables.pool) >= 100
    assert len(tables.test) >= 1
    n_rows = len(tables.private) + len(tables.pool) + len(tables.test)
    assert n_rows == 400
    # Whoever has a row in the pool has none among the private ones.
    pool = rows_of(tables.pool)
    assert not pool & rows_of(tables.private.X)
    assert left | tested < set(range(60))


def test_more_rows_than_there_are_cannot_be_set_aside():
    with pytest.raises(ValueError, match="Lower \\[data\\] n_public or n_test"):
        read(DataConfig(name="breast_cancer", n_public=400, n_test=169))


@pytest.fixture
def tables(tmp_path):
    rng = np.random.default_rng(7)

    def write(name, n_rows, *, target=True, columns="age,ward", words=True):
        lines = [columns + (",back" if target else "")]
        for _ in range(n_rows):
            ward = rng.choice(["A", "B"]) if words else rng.integers(2)
            lines.append(f"{rng.integers(90)},{ward}" + (f",{rng.choice(['no', 'yes'])}" if target else ""))
        (tmp_path / name).write_text("\n".join(lines) + "\n")

    write("private.csv", 50)
    write("test.csv", 20)
    write("public.csv", 30, target=False)

    def config(**changes):
        settings = {
            "name": "files", "private": "private.csv", "public": "public.csv", "test": "test.csv",
            "target": "back", "classes": ("no", "yes"), "folder": str(tmp_path),
            "options": {"categories": {"ward": ["A", "B"]}},
        } | changes  # fmt: skip
        return DataConfig(**settings)

    config.write = write
    return config


def test_files_of_ones_own(tables):
    found = read(tables())
    assert (len(found.private), len(found.pool), len(found.test)) == (50, 30, 20)
    assert found.pool_y is None
    assert found.private.class_names == ("no", "yes")


def test_a_pool_may_have_its_columns_in_another_order(tables, tmp_path):
    found = read(tables())
    lines = [line.split(",") for line in (tmp_path / "public.csv").read_text().splitlines()]
    (tmp_path / "public.csv").write_text("\n".join(f"{ward},{age}" for age, ward in lines) + "\n")
    assert (read(tables()).pool == found.pool).all()


def test_one_file_is_split(tables):
    found = read(tables(public="", test="", n_public=10, n_test=15))
    assert (len(found.private), len(found.pool), len(found.test)) == (25, 10, 15)


@pytest.mark.parametrize("files", [{}, {"public": "", "test": "", "n_public": 10, "n_test": 10}])
def test_words_that_were_not_declared_are_refused(tables, files):
    # One record with a new word would renumber the words in the rows of every teacher.
    with pytest.raises(ValueError, match="categories of ward"):
        read(tables(options={}, **files))


def test_sites_are_set_aside_whole(tmp_path):
    rng = np.random.default_rng(7)
    rows = [f"{rng.integers(90)}.{number},{rng.integers(12)},{rng.integers(2)}" for number in range(300)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,site,back", *rows]) + "\n")
    config = DataConfig(
        name="files", private="rows.csv", target="back", site="site", classes=("0", "1"),
        n_public=50, n_test=30, folder=str(tmp_path),
    )  # fmt: skip
    tables = read(config, by="site", n_teachers=0, sites=tuple(map(str, range(12))))
    assert not set(tables.private.sites) & set(tables.test.sites)
    assert not rows_of(tables.private.X) & rows_of(tables.pool)
    assert len(set(tables.private.sites)) < 12
    assert "of whole sites" in tables.notes[-1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"private": "nowhere.csv"}, "nowhere.csv"),
        ({"target": "outcome"}, "outcome"),
        ({"classes": ("no", "maybe")}, "private.csv"),
    ],
)
def test_files_that_do_not_fit_are_named(tables, changes, message):
    with pytest.raises(ValueError, match=message):
        read(tables(**changes))
