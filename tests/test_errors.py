"""The exception tree and the checks that raise it."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tellers import errors

PRIVACY = ["BudgetExhausted", "InsecureNoise", "LedgerConflict", "MissingExtra", "SealedValue"]


@pytest.mark.parametrize("name", PRIVACY)
def test_one_tree(name):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.TellersError)
    assert name in errors.__doc__
    with pytest.raises(errors.TellersError, match="why"):
        raise kind("why")


def test_what_looks_like_a_builtin_is_one():
    assert issubclass(errors.SealedValue, TypeError)
    assert issubclass(errors.MissingExtra, ImportError)
    assert not issubclass(errors.BudgetExhausted, ValueError)


@pytest.mark.parametrize("good", [1, 0.5, 1e-300, np.float32(2), np.int64(3), Fraction(1, 3)])
def test_positive_numbers_pass(good):
    errors.require_positive(sigma=good)


@pytest.mark.parametrize("bad", [0, -1, 0.0, -0.0, math.nan, math.inf, -math.inf, None, "40", True, [1.0]])
def test_what_is_not_positive_is_refused(bad):
    with pytest.raises(ValueError, match=r"Expected sigma > 0 and finite, got sigma="):
        errors.require_positive(sigma=bad)


@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "x", False, 10**400])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(ValueError, match="finite number for threshold"):
        errors.require_finite(threshold=bad)
    errors.require_finite(threshold=-3.5)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 2, math.nan, None, "0.5", True])
def test_what_is_no_fraction_is_refused(bad):
    with pytest.raises(ValueError, match="0 < delta < 1"):
        errors.require_fraction(delta=bad)
    errors.require_fraction(delta=1e-300)


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, math.inf, None, "3", True])
def test_what_is_no_count_is_refused(bad):
    with pytest.raises(ValueError, match="whole number n_teachers >= 1"):
        errors.require_count(n_teachers=bad)


def test_counts_have_their_own_minimum():
    errors.require_count(0, seed=0)
    errors.require_count(n_teachers=np.int64(5), n_classes=3.0)
    with pytest.raises(ValueError, match="n_classes >= 2, got n_classes=1"):
        errors.require_count(2, n_classes=1)


def test_the_first_bad_argument_is_named():
    with pytest.raises(ValueError, match="sigma_threshold"):
        errors.require_positive(sigma=1.0, sigma_threshold=-1.0)


def test_numpy_numbers_are_shown_as_numbers():
    with pytest.raises(ValueError, match=r"got sigma=-1\.0\."):
        errors.require_positive(sigma=np.float64(-1))


class Unknown:
    """A missing value that cannot be compared."""

    def __ne__(self, other):
        raise TypeError


@pytest.mark.parametrize(
    "bad", [None, math.nan, "", "  ", np.float32("nan"), np.datetime64("NaT"), Unknown()]
)
def test_missing_entries_are_refused_by_their_row(bad):
    with pytest.raises(ValueError, match="every row of persons, got none in row 1"):
        errors.require_present(persons=["a", bad, "b"])


def test_zero_and_false_are_values():
    errors.require_present(persons=[0, 0.0, False, "0"], sites=np.array([0, 1]))
