"""Made-up votes follow the assumption that was written down, and nothing else."""

import numpy as np
import pytest

from tellers.accounting import Consensus


def test_votes_are_ballots_of_the_declared_shape():
    votes, truth = Consensus().votes(30, 6, n_queries=40, seed=7)
    assert (votes.n_teachers, votes.n_classes, len(votes)) == (30, 6, 40)
    assert votes.ballots is not None
    assert np.all(votes.counts.sum(axis=1) == 30)
    assert truth.shape == (40,)
    assert set(truth) <= set(range(6))


def test_one_seed_one_result():
    one, two, other = (Consensus().votes(20, 4, n_queries=30, seed=seed) for seed in (7, 7, 8))
    np.testing.assert_array_equal(one[0].counts, two[0].counts)
    np.testing.assert_array_equal(one[1], two[1])
    assert not np.array_equal(one[0].counts, other[0].counts)


@pytest.mark.parametrize("agreement", [0.5, 0.9])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_teachers_are_right_as_often_as_assumed(agreement, n_classes):
    # The mean of 4,000 queries has a standard error of at most 0.008; 5 of them, once in two million runs.
    votes, truth = Consensus(agreement=agreement).votes(50, n_classes, n_queries=4000, seed=7)
    right = votes.counts[np.arange(4000), truth] / 50
    assert right.mean() == pytest.approx(agreement, abs=0.04)


def test_wrong_votes_favour_one_class():
    votes, truth = Consensus(agreement=0.6, concentration=5.0, focus=0.8).votes(400, 5, n_queries=500, seed=7)
    wrong = votes.counts.copy()
    wrong[np.arange(500), truth] = 0
    wrong = wrong[wrong.sum(axis=1) > 40]
    # The rival's share is 0.8 of the wrong votes; what other classes get by chance stays below it.
    assert (wrong.max(axis=1) / wrong.sum(axis=1)).mean() == pytest.approx(0.8, abs=0.03)


def test_a_low_concentration_makes_a_few_hard_queries():
    spread = [
        Consensus(concentration=concentration).votes(200, 5, n_queries=1000, seed=7)[0].top.std()
        for concentration in (0.5, 5.0, 500.0)
    ]
    assert spread[0] > spread[1] > spread[2]


def test_no_class_is_special():
    # Each class is true in a tenth of 20,000 queries, give or take 42; 300 is seven times that.
    _, truth = Consensus().votes(1, 10, n_queries=20_000, seed=7)
    assert np.all(np.abs(np.bincount(truth, minlength=10) - 2000) < 300)


@pytest.mark.parametrize(
    "wrong", [{"agreement": 1.0}, {"agreement": 0.0}, {"focus": 1.5}, {"concentration": 0.0}]
)
def test_wrong_assumptions_are_named(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Consensus(**wrong)


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="n_classes"):
        Consensus().votes(10, 1, n_queries=5, seed=7)
    with pytest.raises(ValueError, match="n_teachers"):
        Consensus().votes(0, 3, n_queries=5, seed=7)
    with pytest.raises(ValueError, match="n_queries"):
        Consensus().votes(10, 3, n_queries=0, seed=7)
