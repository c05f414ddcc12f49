"""Label votes on disk come back as they were, dense, sparse, in parts or as sums."""

import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tellers import LabelVotes
from tellers.teachers import read_votes, save_votes


@given(seed=st.integers(0, 2**32 - 1), sparse=st.booleans(), resolution=st.sampled_from([1, 7, 100, 1000]))
@settings(max_examples=40, deadline=None)
def test_they_come_back_as_they_were(seed, sparse, resolution, tmp_path_factory):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(1, 7, 3))
    ballots = rng.random(shape) * (rng.random(shape) < 0.4)
    if resolution == 1:
        ballots = (ballots > 0).astype(int)
    given_ballots = [csr_array(one) for one in ballots] if sparse else ballots
    votes = LabelVotes.from_ballots(given_ballots, n_labels=shape[2], resolution=resolution)
    path = tmp_path_factory.mktemp("votes") / "votes.npz"
    save_votes(path, votes, answered=rng.random(shape[1:]) < 0.5)
    again = read_votes(path, kind="labels")
    assert again.votes.is_sparse == sparse
    assert again.votes.resolution == resolution
    assert np.array_equal(again.votes.sums, votes.sums)
    assert np.array_equal(again.votes.block(), votes.block())
    assert again.answered.shape == shape[1:]
    assert again.truth is None


def test_sums_come_back(tmp_path):
    votes = LabelVotes.from_sums([[30, 4]], n_teachers=5, resolution=10)
    save_votes(tmp_path / "votes.npz", votes)
    again = read_votes(tmp_path / "votes.npz", kind="labels").votes
    assert (again.n_teachers, again.resolution, again.ballots) == (5, 10, None)
    assert np.array_equal(again.sums, votes.sums)


def test_only_the_owner_may_read_them_and_a_wrong_mask_is_refused(tmp_path):
    votes = LabelVotes.from_ballots([[[1, 0]]], n_labels=2)
    path = tmp_path / "votes.npz"
    save_votes(path, votes)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ValueError, match=r"shape \(1, 2\), got shape \(1,\)"):
        save_votes(path, votes, truth=[True])
    with pytest.raises(ValueError, match="got votes on many labels"):
        read_votes(path)
    with pytest.raises(ValueError, match="got both"):
        read_votes(path, resolution=10, thresholds=0.5, kind="labels")
