"""The Dataset: what it accepts, what it refuses, and that it does not talk."""

import numpy as np
import pytest

from tellers.data import DATASETS, Dataset, load

X = np.arange(12.0).reshape(4, 3)
GOOD = {"name": "t", "X": X, "y": [0, 1, 1, 0], "n_classes": 2}


def make(**changes):
    return Dataset(**{**GOOD, **changes})


def test_names_are_given_where_none_are():
    data = make()
    assert data.class_names == ("0", "1")
    assert data.feature_names == ("x0", "x1", "x2")
    assert (len(data), data.n_features) == (4, 3)
    assert data.persons is data.budgets is data.sites is None


def test_a_repr_has_no_rows():
    secret = make(persons=["SECRET"] * 4, budgets=[777.0] * 4, X=X + 777)
    assert repr(secret) == "Dataset('t', n_rows=4, n_features=3, n_classes=2, persons, budgets)"
    assert "777" not in str(secret)
    assert "SECRET" not in str(secret)


def test_rows_cannot_be_written():
    data = make(persons=[1, 2, 3, 4])
    for column in (data.X, data.y, data.persons):
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 0
    X[0, 0] = X[0, 0]  # the caller's own array is left as it was


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_classes": 1}, "n_classes >= 2"),
        ({"X": X[0]}, r"shape \(rows, features\)"),
        ({"X": np.empty((0, 3)), "y": []}, r"shape \(rows, features\)"),
        ({"X": np.where(X == 7, np.nan, X)}, "row 2, feature 1"),
        ({"X": np.where(X == 7, -np.inf, np.where(X == 8, np.inf, X))}, "row 2, feature 1"),
        ({"y": [0, 1, 2, 0]}, r"classes 0\.\.1 .* in row 2"),
        ({"y": [0, -1, 1, 0]}, "in row 1"),
        ({"y": [0, 1]}, "y with one entry for each of 4 rows"),
        ({"class_names": ("a",)}, "2 different class names"),
        ({"class_names": ("a", "a")}, "2 different class names"),
        ({"feature_names": ("a", "b")}, "3 different feature names"),
        ({"persons": [1, 2, 3]}, "persons with one entry"),
        ({"persons": ["a", None, "b", "c"]}, "persons, got none in row 1"),
        ({"sites": [0.0, 1.0, np.nan, 0.0]}, "sites, got none in row 2"),
        ({"budgets": [1.0, 0.0, 1.0, 1.0]}, "budgets > 0 and finite, got another in row 1"),
        ({"budgets": [1.0, 1.0, 1.0, np.nan]}, "in row 3"),
        ({"image_shape": (2, 2)}, "images of 3 numbers"),
    ],
)
def test_what_does_not_fit_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        make(**changes)


@pytest.mark.parametrize(
    "changes", [{"X": X.astype(str)}, {"y": [0.0, 1.0, 1.0, 0.0]}, {"budgets": [True] * 4}]
)
def test_wrong_types_are_type_errors(changes):
    with pytest.raises(TypeError, match="Expected"):
        make(**changes)


def test_a_sum_that_overflows_is_not_an_infinity():
    assert len(make(X=np.full((4, 3), 3e38, dtype=np.float32))) == 4


def test_take_keeps_what_belongs_to_a_row():
    data = make(
        persons=list("abca"), budgets=[1, 2, 3, 4], sites=[0, 0, 1, 1], image_shape=(3, 1), notes=("n",)
    )
    some = data.take([3, 1])
    assert some.persons.tolist() == ["a", "b"]
    assert some.budgets.tolist() == [4.0, 2.0]
    assert some.sites.tolist() == [1, 0]
    assert some.images.shape == (2, 3, 1)
    assert some.notes == ("n",)
    np.testing.assert_array_equal(data.take(data.y == 1).X, X[1:3])


@pytest.mark.parametrize("rows", [[], [[0]], [0.0], 1])
def test_take_wants_rows(rows):
    with pytest.raises(ValueError, match="row numbers or a mask"):
        make().take(rows)


def test_only_images_have_images():
    with pytest.raises(ValueError, match="no image_shape"):
        make().images  # noqa: B018


def test_the_registry_is_a_sorted_dict_of_loaders():
    assert list(DATASETS) == sorted(DATASETS)
    assert load("digits", data_dir="anywhere").name == "digits"
    with pytest.raises(ValueError, match=r"Expected one of adult, .* got 'cifar'"):
        load("cifar")
    with pytest.raises(TypeError, match="Expected no options for the data set 'digits', got part"):
        load("digits", part="train")
