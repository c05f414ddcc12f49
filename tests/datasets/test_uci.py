"""Adult and Diabetes: small files made here, and the published ones where they are at hand."""

import csv
import lzma

import numpy as np
import pytest

from tellers.data import adult, diabetes130
from tellers.data.uci import _DIABETES, _KEPT_OF_THE_REST

ADULT = """\
|1x3 Cross validator
25, Private, 226802, 11th, 7, Divorced, Sales, Own-child, Black, Male, 0, 0, 40, United-States, <=50K.
38, ?, 89814, HS-grad, 9, Divorced, ?, Husband, White, Female, 0, 0, 50, Trinadad&Tobago, >50K.

"""


@pytest.fixture
def census(tmp_path):
    (tmp_path / "adult").mkdir()

    def write(text=ADULT):
        (tmp_path / "adult" / "adult.test").write_text(text)
        return tmp_path

    return write


def test_adult_words_become_codes_of_sorted_names(census):
    data = adult("test", data_dir=census(), verify=False)
    assert data.y.tolist() == [0, 1]
    workclass = data.feature_names.index("workclass")
    # "?" sorts before letters; Private is fourth of the eight names.
    assert data.X[:, workclass].tolist() == [4.0, 0.0]
    assert data.X[:, data.feature_names.index("sex")].tolist() == [2.0, 1.0]
    assert data.X[:, 0].tolist() == [25.0, 38.0]
    assert data.notes == ()


def test_adult_rows_with_missing_values_can_be_left_out(census):
    data = adult("test", data_dir=census(), missing="drop", verify=False)
    assert len(data) == 1
    assert "Partition the whole table first" in data.notes[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Private", "Privat", "declared categories in 'workclass', got another in row 0"),
        (">50K.", "50K", "declared categories in 'income', got another in row 1"),
        ("25, ", "young, ", "numbers in 'age'"),
        (ADULT, "\n", "rows in adult/adult.test, got none"),
        ("25, ", "", "15 fields in every row of adult/adult.test, got 14 in row 0"),
    ],
)
def test_adult_surprises_are_refused(census, old, new, words):
    with pytest.raises(ValueError, match=words):
        adult("test", data_dir=census(ADULT.replace(old, new)), verify=False)


def test_adult_wants_known_options(census):
    with pytest.raises(ValueError, match="part 'train' or 'test'"):
        adult("extra", data_dir=census())
    with pytest.raises(ValueError, match="missing='category' or 'drop'"):
        adult("test", data_dir=census(), missing="mean")


def visit(patient, readmitted, **changes):
    row = {name: words.split()[0] if words else "3" for name, words in _DIABETES.items()}
    return {
        "encounter_id": "1",
        "patient_nbr": str(patient),
        "race": "?",
        **row,
        "readmitted": readmitted,
        **changes,
    }


@pytest.fixture
def visits(tmp_path):
    (tmp_path / "diabetes130").mkdir()

    def write(rows, pack=lzma.compress, suffix=".xz"):
        path = tmp_path / "made.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        (tmp_path / "diabetes130" / f"diabetic_data.csv{suffix}").write_bytes(pack(path.read_bytes()))
        return tmp_path

    return write


@pytest.mark.parametrize(("pack", "suffix"), [(lzma.compress, ".xz"), (bytes, "")])
def test_diabetes_knows_its_patients(visits, pack, suffix):
    rows = [visit(8, "<30"), visit(9, ">30", age="[90-100)"), visit(8, "NO", insulin="Up")]
    data = diabetes130(data_dir=visits(rows, pack, suffix), verify=False)
    assert data.y.tolist() == [0, 1, 1]
    assert data.persons.tolist() == [8, 9, 8]
    assert data.n_features == 40
    assert data.X[:, data.feature_names.index("age")].tolist() == [0.0, 9.0, 0.0]
    assert data.X[:, data.feature_names.index("insulin")].tolist() == [0.0, 0.0, 3.0]
    assert not {"race", "patient_nbr", "encounter_id", "weight"} & set(data.feature_names)


def test_diabetes_refuses_a_missing_value_and_a_missing_column(visits):
    with pytest.raises(ValueError, match="value in every row of 'gender', got a missing one in row 1"):
        diabetes130(data_dir=visits([visit(1, "NO"), visit(2, "NO", gender="?")]), verify=False)
    row = visit(1, "NO")
    del row["insulin"], row["patient_nbr"]
    with pytest.raises(ValueError, match="none called insulin, patient_nbr"):
        diabetes130(data_dir=visits([row]), verify=False)


def test_balancing_one_visit_leaves_the_others_alone(visits):
    # Whether a row is kept depends on its own label and coin: changing one label touches that row only.
    rows = [visit(i, "<30" if i % 9 == 0 else "NO", num_medications=str(i)) for i in range(400)]
    column = list(_DIABETES).index("num_medications")
    before = diabetes130(data_dir=visits(rows), balanced=True, seed=7, verify=False)
    rows[0]["readmitted"] = "NO"
    generator = np.random.default_rng(7)
    after = diabetes130(data_dir=visits(rows), balanced=True, seed=generator, verify=False)
    assert set(before.X[:, column]) ^ set(after.X[:, column]) <= {0.0}
    assert "Partition the whole table first" in before.notes[0]
    # Of the 355 others a binomial number with a deviation of 6.2 is kept: six of them, fixed seed.
    assert np.bincount(before.y)[0] == 45
    assert abs(np.bincount(before.y)[1] - 355 * _KEPT_OF_THE_REST) < 38
    with pytest.raises(ValueError, match="seed for balanced=True"):
        diabetes130(data_dir=visits(rows), balanced=True)


def test_published_adult(published):
    place = published("adult")
    train, test = adult(data_dir=place), adult("test", data_dir=place)
    assert (len(train), len(test), train.n_features) == (32_561, 16_281, 14)
    assert np.bincount(train.y).tolist() == [24_720, 7_841]
    assert np.bincount(test.y).tolist() == [12_435, 3_846]
    assert len(adult(data_dir=place, missing="drop")) == 30_162


def test_published_diabetes(published):
    place = published("diabetes130")
    data = diabetes130(data_dir=place)
    assert (len(data), len(np.unique(data.persons))) == (101_766, 71_518)
    assert np.bincount(data.y).tolist() == [11_357, 90_409]
    assert round(90_409 * _KEPT_OF_THE_REST) == 11_357  # balanced, the classes come out about equal
