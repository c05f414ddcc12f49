"""Data sets without files."""

import math

import numpy as np
import pytest

from tellers.data import breast_cancer, digits, synthetic


def test_digits_are_scaled_images():
    data = digits()
    assert (data.X.min(), data.X.max()) == (0.0, 1.0)
    assert data.images.shape == (1797, 8, 8)
    assert np.bincount(data.y).min() > 170


def test_breast_cancer_keeps_its_units():
    data = breast_cancer()
    assert data.X.shape == (569, 30)
    assert data.feature_names[0] == "mean radius"
    assert np.bincount(data.y).tolist() == [212, 357]


def nearest(train, test):
    """Return the votes of a rule that knows only the mean of each class in its own rows."""
    centres = np.array([train.X[train.y == c].mean(axis=0) for c in range(train.n_classes)])
    return ((test.X[:, None, :] - centres) ** 2).sum(axis=2).argmin(axis=1)


@pytest.mark.parametrize("difficulty", [0.5, 1.0, 2.0])
def test_difficulty_is_the_error_of_the_best_rule(difficulty):
    # 20,000 trials: the rate's standard deviation is below 0.0035; 0.015 is over four of them, and leaves
    # room for the centres learnt from 20,000 rows. Deterministic by its seeds.
    train = synthetic(20_000, difficulty=difficulty, seed=1, n_classes=2, n_features=4)
    test = synthetic(20_000, difficulty=difficulty, seed=2, n_classes=2, n_features=4)
    error = np.mean(nearest(train, test) != test.y)
    assert error == pytest.approx(0.5 * math.erfc(1 / difficulty / math.sqrt(2)), abs=0.015)


def test_teachers_agree_less_as_difficulty_grows():
    shares = []
    for difficulty in (0.0, 0.45, 0.7, 1.0, 3.0):
        test = synthetic(300, difficulty=difficulty, seed=99, n_classes=4, n_features=6)
        ballots = [
            nearest(synthetic(80, difficulty=difficulty, seed=seed, n_classes=4, n_features=6), test)
            for seed in range(15)
        ]
        counts = np.array([[(column == c).sum() for c in range(4)] for column in np.array(ballots).T])
        shares.append(counts.max(axis=1).mean() / 15)
    assert shares[0] == 1.0
    assert np.all(np.diff(shares) < 0)
    assert shares[-1] < 0.6


def test_a_seed_decides_everything_but_the_task():
    one, same, other = (synthetic(50, difficulty=0.4, seed=s, n_persons=20) for s in (3, 3, 4))
    np.testing.assert_array_equal(one.X, same.X)
    np.testing.assert_array_equal(one.persons, same.persons)
    assert not np.array_equal(one.X, other.X)
    assert set(one.persons.tolist()) == set(range(20))
    still = [synthetic(200, difficulty=0.0, seed=s, n_classes=2, n_features=2) for s in (3, 4)]
    np.testing.assert_allclose(still[0].X[still[0].y == 0][0], still[1].X[still[1].y == 0][0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_rows": 0}, "n_rows >= 1"),
        ({"difficulty": -0.1}, "difficulty >= 0"),
        ({"difficulty": math.nan}, "finite number for difficulty"),
        ({"n_features": 5}, "n_features >= n_classes"),
        ({"n_persons": 101}, "at most one person per row"),
        ({"seed": -1}, "seed >= 0"),
    ],
)
def test_tasks_that_cannot_be_made(changes, words):
    with pytest.raises(ValueError, match=words):
        synthetic(**{"n_rows": 100, "difficulty": 0.5, "seed": 1, **changes})
