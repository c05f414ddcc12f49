"""Tables of one's own: three formats, one result, and clear refusals."""

import gzip
import sys

import numpy as np
import pytest

from tellers.data import read_table
from tellers.errors import MissingExtra

CSV = """\
age,ward,who,agreed,clinic,back
61,B,ann,1.5,north,no
48,A,bo,2,south,yes
62,B,ann,1.5,north,no
"""
ROLES = {"person": "who", "budget": "agreed", "site": "clinic"}
COLUMNS = {
    "age": [61.0, 48.0, 62.0],
    "ward": ["B", "A", "B"],
    "who": ["ann", "bo", "ann"],
    "agreed": [1.5, 2.0, 1.5],
    "clinic": ["north", "south", "north"],
    "back": ["no", "yes", "no"],
}


@pytest.fixture
def write(tmp_path):
    def save(text=CSV, name="visits.csv"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return save


def assert_the_visits(data):
    assert repr(data) == "Dataset('visits', n_rows=3, n_features=2, n_classes=2, persons, budgets, sites)"
    assert data.X.tolist() == [[61.0, 1.0], [48.0, 0.0], [62.0, 1.0]]
    assert data.y.tolist() == [0, 1, 0]
    assert (data.class_names, data.feature_names) == (("no", "yes"), ("age", "ward"))
    assert data.persons.tolist() == ["ann", "bo", "ann"]
    assert data.budgets.tolist() == [1.5, 2.0, 1.5]
    assert data.sites.tolist() == ["north", "south", "north"]


def test_csv(write):
    assert_the_visits(read_table(write(), "back", **ROLES))
    assert_the_visits(read_table(str(write(gzip.compress(CSV.encode()), "visits.csv.gz")), "back", **ROLES))
    # A byte order mark, Windows line ends and spaces are how spreadsheets say hello.
    foreign = "\ufeff" + CSV.replace(",", ", ").replace("\n", "\r\n")
    assert_the_visits(read_table(write(foreign), "back", **ROLES))


def test_npz(tmp_path):
    np.savez(tmp_path / "visits.npz", **{name: np.array(column) for name, column in COLUMNS.items()})
    assert_the_visits(read_table(tmp_path / "visits.npz", "back", **ROLES))


def test_npz_with_one_matrix(tmp_path):
    np.savez(tmp_path / "m.npz", X=np.eye(3), y=[2.0, 0.0, 1.0], persons=[7, 7, 8])
    data = read_table(tmp_path / "m.npz", "y", person="persons", classes=[0, 1, 2])
    assert data.y.tolist() == [2, 0, 1]
    assert data.persons.tolist() == ["7", "7", "8"]
    np.testing.assert_array_equal(data.X, np.eye(3))


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow (the extra 'data')")
    from pyarrow import parquet

    table = pyarrow.table({**COLUMNS, "ward": pyarrow.array(COLUMNS["ward"]).dictionary_encode()})
    parquet.write_table(table, tmp_path / "visits.parquet")
    assert_the_visits(read_table(tmp_path / "visits.parquet", "back", **ROLES))
    parquet.write_table(pyarrow.table({"a": [1, None, 3], "y": [0, 1, 0]}), tmp_path / "holes.parquet")
    with pytest.raises(
        ValueError, match=r"holes\.parquet: Expected a value in every row of a, got none in row 1"
    ):
        read_table(tmp_path / "holes.parquet", "y")
    whole = (tmp_path / "visits.parquet").read_bytes()
    (tmp_path / "half.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="whole Parquet file"):
        read_table(tmp_path / "half.parquet", "y")


def test_parquet_without_pyarrow_names_the_extra(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"tellers\[data\]"):
        read_table(write(b"PAR1....", "visits.parquet"), "back")


def test_what_was_not_declared_is_noted(write):
    path = write()
    notes = read_table(path, "back", features=["age", "ward"]).notes
    assert len(notes) == 2
    assert "classes in 'back' were read off the rows" in notes[0]
    assert "categories of ward were read off the rows" in notes[1]
    declared = read_table(
        path, "back", features=["ward", "age"], classes=["yes", "no"], categories={"ward": ["A", "B", "C"]}
    )
    assert declared.notes == ()
    assert declared.y.tolist() == [1, 0, 1]
    assert declared.X.tolist() == [[1.0, 61.0], [0.0, 48.0], [1.0, 62.0]]


def test_numeric_classes_sort_as_numbers(write):
    data = read_table(write("a,y\n1,10\n2,9\n3,100\n"), "y")
    assert data.class_names == ("9", "10", "100")


@pytest.mark.parametrize("hole", ["", "?", "NA", "nan", " "])
@pytest.mark.parametrize("column", ["age", "ward", "who", "agreed", "clinic", "back"])
def test_missing_values_are_refused_wherever_they_are(write, hole, column):
    lines = [line.split(",") for line in CSV.splitlines()]
    lines[2][lines[0].index(column)] = hole
    path = write("\n".join(",".join(line) for line in lines))
    with pytest.raises(
        ValueError, match=rf"visits\.csv: .*every row of '{column}', got a missing one in row 1"
    ):
        read_table(path, "back", **ROLES)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        (CSV, {"target": "gone"}, "a column 'gone', got age, ward"),
        (CSV, {"person": "gone"}, "a column 'gone'"),
        (CSV, {"features": ["gone"]}, "a column 'gone'"),
        (CSV, {"features": []}, "at least one feature"),
        (CSV, {"features": ["back"]}, "none that is target"),
        (CSV, {"person": "back"}, "a column of its own"),
        (CSV, {"classes": ["yes", "maybe"]}, "2 declared categories in 'back', got another in row 0"),
        (CSV, {"classes": ["yes", "no", "no"]}, "got one twice"),
        (CSV, {"categories": {"ward": ["A"]}}, "1 declared categories in 'ward', got another in row 0"),
        (CSV.replace("yes", "no"), {}, "at least 2 classes"),
        (CSV.replace("61", "inf"), {}, "NaN or infinity in row 0"),
        (CSV.replace("ward", "age"), {}, "different name for every column"),
        (CSV + "1,2\n", {}, "6 fields in every row, got 2 in row 3"),
        ("a,y\n", {}, "header and at least one row"),
        (b"\xff\xfe\x00", {}, "CSV in UTF-8, Parquet or npz"),
        (b"PK\x03\x04 cut", {}, "whole npz file"),
    ],
)
def test_refusals_name_the_file_and_not_the_value(write, text, options, words):
    with pytest.raises(ValueError, match=words) as caught:
        read_table(write(text), **{"target": "back", **options})
    assert str(caught.value).startswith("visits.csv: ")
    assert "ann" not in str(caught.value)


def test_python_objects_are_not_unpickled(tmp_path):
    np.savez(tmp_path / "o.npz", X=np.eye(2), y=np.array([0, None], dtype=object))
    with pytest.raises(ValueError, match="never loaded: unpickling runs code"):
        read_table(tmp_path / "o.npz", "y")


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (np.array(["2020-01-01", "2020-01-02"], dtype="M8[D]"), "numbers or words in 'a', got datetime64"),
        (np.zeros((2, 2)), r"one entry per row in 'a', got shape \(2, 2\)"),
        (np.array([1.0, np.nan]), "finite numbers in 'a', got NaN or infinity in row 1"),
    ],
)
def test_columns_of_another_kind_are_refused(tmp_path, column, words):
    np.savez(tmp_path / "odd.npz", a=column, y=[0, 1])
    with pytest.raises(ValueError, match=words):
        read_table(tmp_path / "odd.npz", "y")
    np.savez(tmp_path / "odd.npz", X=np.eye(2), a=column)
    with pytest.raises(ValueError, match="'a'"):
        read_table(tmp_path / "odd.npz", "a")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="found none at"):
        read_table(tmp_path / "gone.csv", "y")


def test_budgets_may_be_names_of_levels(tmp_path):
    place = tmp_path / "visits.csv"
    place.write_text("age,agreed,back\n61,low,no\n48,high,yes\n")
    data = read_table(place, "back", budget="agreed")
    assert data.budgets.tolist() == ["low", "high"]
    assert data.feature_names == ("age",)
    place.write_text("age,agreed,back\n61,low,no\n48,,yes\n")
    with pytest.raises(ValueError, match=r"visits.csv: Expected a value in every row of 'agreed'.*row 1"):
        read_table(place, "back", budget="agreed")
