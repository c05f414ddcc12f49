"""Tables with many labels per row: read from any kind of file, and refused without quoting an entry."""

import numpy as np
import pytest

from tellers.data import MultilabelDataset
from tellers.data.named import made_multilabel
from tellers.data.tables import read_label_table

NAMES = ["rain", "wind"]
X = [[1003.0, 4.0], [1020.5, 2.0], [998.0, 7.0]]
Y = [[1, 1], [0, 1], [1, 0]]


def as_csv(path):
    rows = [f"{a},{b},{r},{w},ann" for (a, b), (r, w) in zip(X, Y)]
    path.write_text("\n".join(["pressure,speed,rain,wind,who", *rows]) + "\n")


def as_columns(path):
    table, labels = np.array(X), np.array(Y)
    np.savez(
        path, pressure=table[:, 0], speed=table[:, 1], rain=labels[:, 0].astype(bool),
        wind=labels[:, 1] * 1.0, who=np.array(["ann"] * 3),
    )  # fmt: skip


def as_arrays(path):
    np.savez(path, X=np.array(X), Y=np.array(Y), who=np.array(["ann"] * 3))


def as_parquet(path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table, labels = np.array(X), np.array(Y)
    columns = {"pressure": table[:, 0], "speed": table[:, 1], "rain": labels[:, 0], "wind": labels[:, 1]}
    parquet.write_table(pyarrow.table({**columns, "who": ["ann"] * 3}), path)


@pytest.mark.parametrize("write", [as_csv, as_columns, as_arrays, as_parquet])
def test_the_same_rows_from_every_kind_of_file(write, tmp_path):
    name = {as_csv: "days.csv", as_parquet: "days.parquet"}.get(write, "days.npz")
    write(tmp_path / name)
    table = read_label_table(tmp_path / name, NAMES, person="who")
    assert table.name == "days"
    assert table.X.tolist() == X
    assert table.y.tolist() == Y
    assert table.persons.tolist() == ["ann", "ann", "ann"]
    assert repr(table) == "MultilabelDataset('days', n_rows=3, n_labels=2, n_features=2, persons)"


def test_features_may_be_named(tmp_path):
    as_csv(tmp_path / "days.csv")
    table = read_label_table(tmp_path / "days.csv", NAMES, features=["speed"])
    assert table.X.tolist() == [[4.0], [2.0], [7.0]]
    with pytest.raises(ValueError, match="features that are no label"):
        read_label_table(tmp_path / "days.csv", NAMES, features=["speed", "rain"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pressure,rain,wind\n1,1,1\n2,maybe,0\n", "0 or 1 in every row of the label 'rain', .* in row 1"),
        ("pressure,rain,wind\n1,1,1\n2,,0\n", "0 or 1 in every row of the label 'rain', .* in row 1"),
        ("pressure,rain\n1,1\n2,0\n", "a column 'wind', got pressure, rain"),
    ],
)
def test_what_is_wrong_is_said_and_not_quoted(text, says, tmp_path):
    (tmp_path / "days.csv").write_text(text)
    with pytest.raises(ValueError, match=f"days.csv: Expected {says}") as caught:
        read_label_table(tmp_path / "days.csv", NAMES)
    assert "maybe" not in str(caught.value)


def test_more_labels_declared_than_present(tmp_path):
    as_arrays(tmp_path / "days.npz")
    with pytest.raises(ValueError, match="a column for each of the 3 labels declared, got 2"):
        read_label_table(tmp_path / "days.npz", [*NAMES, "snow"])


def test_made_rows_are_those_of_their_seed():
    one, again, other = (made_multilabel(NAMES, n_rows=50, seed=seed) for seed in (7, 7, 8))
    assert (one.X == again.X).all()
    assert (one.y == again.y).all()
    assert not (one.X == other.X).all()


def test_some_rows_keep_who_they_belong_to():
    table = MultilabelDataset(name="tiny", X=X, Y=Y, label_names=NAMES, persons=np.array([4, 5, 5]))
    assert table.take([2, 0]).persons.tolist() == [5, 4]
