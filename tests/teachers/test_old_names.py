"""Names of before there were answer spaces do what they did, and say what does it now."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import tellers.teachers as teachers
from tellers import LabelVotes
from tellers.teachers.models import ConstantLabels

X, Y = np.arange(40.0)[:, None], np.stack([np.arange(40) % 2, np.arange(40) > 20], axis=1).astype(int)
PARTS = teachers.partition(40, 2, seed=7)


def test_votes_on_labels_are_saved_and_read(tmp_path):
    votes = LabelVotes.from_ballots([[[1, 0]], [[1, 1]]], n_labels=2)
    with pytest.warns(DeprecationWarning, match="save_label_votes is now save_votes"):
        teachers.save_label_votes(tmp_path / "votes.npz", votes)
    with pytest.warns(DeprecationWarning, match="read_label_votes is now read_votes"):
        found = teachers.read_label_votes(tmp_path / "votes.npz")
    assert isinstance(found, teachers.LabelVoteFile)
    np.testing.assert_array_equal(found.votes.sums, [[2, 1]])


@pytest.mark.parametrize("train", ["train_label_ensemble", "train_label_teachers"])
def test_teachers_of_labels_are_trained_and_loaded(tmp_path, train):
    options = {"n_labels": 2, "thresholds": 0.4, "resolution": 10}
    with pytest.warns(DeprecationWarning, match=rf"{train} is now train_ensemble\(\.\.\., space=SetOf"):
        made = getattr(teachers, train)(
            DecisionTreeClassifier(), X, Y, PARTS, seed=7, n_jobs=1, folder=tmp_path, **options
        )
    with pytest.warns(DeprecationWarning, match="load_label_ensemble is now load_ensemble"):
        loaded = teachers.load_label_ensemble(tmp_path, **options)
    np.testing.assert_array_equal(loaded.vote(X).block(), made.vote(X).block())
    assert (made.n_labels, made.resolution) == (2, 10)


def test_an_ensemble_of_labels_is_made():
    with pytest.warns(DeprecationWarning, match="LabelEnsemble is now Ensemble"):
        made = teachers.LabelEnsemble((ConstantLabels((0, 1)),), 2, 0.4, resolution=10)
    np.testing.assert_array_equal(made.vote(X[:1]).sums, [[0, 10]])


def test_networks_are_trained_and_loaded(tmp_path):
    pytest.importorskip("torch")
    from tellers.nn.classifier import TorchClassifier
    from tellers.teachers import torch

    model = TorchClassifier("mlp", epochs=1, device="cpu")
    with pytest.warns(DeprecationWarning, match="train_torch_ensemble is now train_ensemble"):
        made = torch.train_torch_ensemble(
            model, X, Y[:, 0], PARTS, n_classes=2, seed=7, engine="loop", folder=tmp_path / "one"
        )
    with pytest.warns(DeprecationWarning, match="load_torch_ensemble is now load_ensemble"):
        assert len(torch.load_torch_ensemble(tmp_path / "one", n_classes=2, device="cpu")) == len(made) == 2
    with pytest.warns(DeprecationWarning, match="train_torch_label_ensemble is now train_ensemble"):
        made = torch.train_torch_label_ensemble(
            model, X, Y, PARTS, n_labels=2, seed=7, engine="loop", folder=tmp_path / "many"
        )
    assert isinstance(made, torch.TorchLabelEnsemble)
    with pytest.warns(DeprecationWarning, match="load_torch_label_ensemble is now load_ensemble"):
        loaded = torch.load_torch_label_ensemble(tmp_path / "many", n_labels=2, device="cpu")
    np.testing.assert_array_equal(loaded.vote(X).block(), made.vote(X).block())
