"""Label votes: what they accept, what they refuse and how they are stored."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from tellers import Binary, LabelVotes, Tau, exact_cost
from tellers.errors import SealedValue


def test_sparse_and_dense_ballots_are_the_same_votes():
    rng = np.random.default_rng(1)
    dense = rng.random((7, 20, 30)) < 0.1
    votes = LabelVotes.from_ballots(dense, n_labels=30)
    thin = LabelVotes.from_ballots([csr_array(one) for one in dense], n_labels=30)
    assert thin.is_sparse
    assert not votes.is_sparse
    assert (thin.sums == votes.sums).all()
    assert (thin.block(slice(3, 9)) == votes.block(slice(3, 9))).all()
    assert (thin[5:9].block() == votes[5:9].block()).all()
    for mechanism in (Binary(3.0, 30), Tau(3.0, 30, 1.5)):
        one, other = (exact_cost(mechanism, v, orders=[2.0, 8.0]).cost.reveal().values for v in (thin, votes))
        assert np.allclose(one, other)


@pytest.mark.parametrize(
    ("ballots", "words"),
    [
        ([[[0, 2]]], "in [0, 1]"),
        ([[[0, -1]]], "in [0, 1]"),
        ([[[0, float("nan")]]], "in [0, 1]"),
        ([[[0, 0.5]]], "got a fraction at teacher 0, query 0, label 1"),
        ([[[0, 1, 1]]], "the 2 labels declared, got 3"),
        ([[[0]]], "the 2 labels declared, got 1"),
        ([[0, 1]], "(teachers, queries, labels)"),
        ([], "(teachers, queries, labels)"),
        ([csr_array(np.array([[0, 3]]))], "teacher 0"),
        ([csr_array(np.array([[0, 1]])), csr_array(np.array([[0, 1, 0]]))], "from teacher 1"),
    ],
)
def test_bad_ballots_are_refused(ballots, words):
    with pytest.raises((ValueError, TypeError), match="Expected") as refusal:
        LabelVotes.from_ballots(ballots, n_labels=2)
    assert words in str(refusal.value)


def test_probabilities():
    votes = LabelVotes.from_ballots([[[0.404, 1.0]], [[0.0, 0.996]]], n_labels=2, resolution=100)
    assert votes.sums.tolist() == [[40, 200]]
    with pytest.raises(ValueError, match="one per label"):
        LabelVotes.from_probabilities([[[0.4, 1.0]]], n_labels=2, thresholds=[0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match="in \\[0, 1\\]"):
        LabelVotes.from_probabilities([[[0.4, 1.2]]], n_labels=2)


def test_sums_are_checked():
    with pytest.raises(ValueError, match="from 0 to 4"):
        LabelVotes.from_sums([[5, 0]], n_teachers=4)
    with pytest.raises(ValueError, match="whole sums"):
        LabelVotes.from_sums([[0.5, 0]], n_teachers=4)


def test_votes_do_not_leak():
    votes = LabelVotes.from_ballots([[[1, 0]]], n_labels=2)
    assert repr(votes) == "Votes(<private>, n_queries=1, n_teachers=1, n_labels=2)"
    with pytest.raises(SealedValue):
        np.asarray(votes)
    with pytest.raises(ValueError, match="Keep the ballots"):
        LabelVotes.from_sums([[1, 0]], n_teachers=4).block()
    with pytest.raises(IndexError):
        votes[3]


@pytest.mark.parametrize("resolution", [100, 3001, 9999])
def test_half_precision_never_passes_a_whole_vote(resolution):
    ballots = np.array([[[1.0, 0.0]], [[1.0, 0.25]]], dtype=np.float16)
    votes = LabelVotes.from_ballots(ballots, n_labels=2, resolution=resolution)
    assert votes.sums.tolist() == [[2 * resolution, round(0.25 * resolution)]]


@pytest.mark.parametrize(
    ("ballots", "words"),
    [
        ([[[1, 0]], [[1]]], "rows of different lengths"),
        (csr_array(np.array([[1, 0]])), "one sparse matrix"),
        ([csr_array(np.array([[1, 0]])), [[1, 0]]], "some of them sparse"),
    ],
)
def test_what_is_no_table_is_refused_in_words(ballots, words):
    with pytest.raises(ValueError, match="Expected ballots of shape") as refusal:
        LabelVotes.from_ballots(ballots, n_labels=2)
    assert words in str(refusal.value)
