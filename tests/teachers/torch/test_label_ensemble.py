"""Networks on many labels: the same alone and together, right, kept on disk, and asked in a room."""

import numpy as np
import pytest
import torch

from tellers.data import measure
from tellers.nn.batched import Batched
from tellers.nn.classifier import TorchClassifier
from tellers.nn.losses import row_losses
from tellers.privacy.votes import SetOf
from tellers.teachers import Partition, load_ensemble, partition, train_ensemble

RNG = np.random.default_rng(7)
X = RNG.normal(size=(500, 6)).astype(np.float32)
Y = (X[:, :3] + 0.5 * X[:, 3:] > 0).astype(int)
PARTS = partition(400, 4, seed=7)
MODEL = TorchClassifier("mlp", epochs=30, batch_size=20, learning_rate=0.01, device="cpu")


def train(model=MODEL, targets=Y[:400], **options):
    settings = {"space": SetOf(3), "seed": 7, "engine": "loop", "n_jobs": 1, **options}
    return train_ensemble(model, X[:400], targets, PARTS, **settings)


def test_the_loss_is_the_mean_of_the_cross_entropy_of_each_label():
    answers, targets = torch.tensor([[2.0, -1.0]]), torch.tensor([[1.0, 0.0]])
    wanted = -(np.log(1 / (1 + np.exp(-2.0))) + np.log(1 - 1 / (1 + np.exp(1.0)))) / 2
    assert float(row_losses(answers, targets)[0]) == pytest.approx(wanted)


def test_networks_learn_all_labels_alone_and_together_alike():
    alone, together = train(), train(engine=Batched(chunk=4))
    said = [ensemble.probabilities(X[400:]).reveal() for ensemble in (alone, together)]
    np.testing.assert_allclose(said[0], said[1], atol=2e-3)
    majority = (2 * alone.vote(X[400:]).sums > 4).astype(int)
    assert measure(Y[400:], majority).balanced_accuracy > 0.85
    assert (alone.accuracies(X[400:], Y[400:]).reveal() > 0.8).all()


def test_labels_that_are_constant_in_a_part_do_no_harm():
    targets = Y[:400].copy()
    targets[PARTS[0], 1] = 1
    ballots = train(targets=targets).vote(X[400:]).block()
    assert ballots[0, :, 1].mean() > 0.95
    assert ballots.shape == (4, 100, 3)


def test_images_and_thresholds():
    images = RNG.normal(size=(60, 8, 8)).astype(np.float32)
    truth = np.stack([images.mean(axis=(1, 2)) > 0, images[:, 0, 0] > 0], axis=1).astype(int)
    model = TorchClassifier("cnn", epochs=2, batch_size=10, device="cpu")
    ensemble = train_ensemble(
        model, images, truth, partition(60, 2, seed=7), space=SetOf(2), seed=7, engine="loop",
        thresholds=(0.01, 1.0),
    )  # fmt: skip
    said = ensemble.probabilities(images).reveal()
    np.testing.assert_array_equal(ensemble.vote(images).block(), said >= np.array([0.01, 1.0]))


def test_networks_come_back_from_their_folder(tmp_path):
    first = train(folder=tmp_path, thresholds=0.4)
    assert repr(first) == "TorchEnsemble(n_teachers=4, n_labels=3, engine='loop')"
    seen = []
    again = train(folder=tmp_path, thresholds=0.4, progress=lambda done, of: seen.append((done, of)))
    assert seen == [(4, 4)]  # nothing was trained
    loaded = load_ensemble(tmp_path, space=SetOf(3), thresholds=0.4)
    for other in (again, loaded):
        np.testing.assert_array_equal(other.vote(X[400:]).block(), first.vote(X[400:]).block())
    with pytest.raises(ValueError, match="n_classes=3"):
        load_ensemble(tmp_path, n_classes=3)
    with pytest.raises(ValueError, match="n_labels=4"):
        load_ensemble(tmp_path, space=SetOf(4))
    with pytest.raises(ValueError, match="different: rows"):
        train(folder=tmp_path, targets=1 - Y[:400])


def test_networks_of_classes_are_not_taken_for_networks_of_labels(tmp_path):
    train_ensemble(
        TorchClassifier("mlp", epochs=1, device="cpu"), X[:400], Y[:400, 0], PARTS, n_classes=2, seed=7,
        engine="loop", folder=tmp_path, n_jobs=1,
    )  # fmt: skip
    assert len(load_ensemble(tmp_path, n_classes=2)) == 4
    with pytest.raises(ValueError, match="n_labels=2"):
        load_ensemble(tmp_path, space=SetOf(2))


def test_labels_are_declared():
    with pytest.raises(ValueError, match="each of the 4 labels declared"):
        train(space=SetOf(4))


def test_networks_teach_in_the_classifier_too():
    from tellers import Budget, PateMultilabelClassifier

    model = TorchClassifier("mlp", epochs=5, batch_size=20, device="cpu")
    pate = PateMultilabelClassifier(
        teacher=model, n_labels=3, n_teachers=10, budget=Budget(epsilon=20.0, delta=1e-4), n_queries=5
    )
    pate.fit(X[:400], Y[:400], public=X[400:450])
    assert pate.labels_.shape == (5, 3)
    assert pate.predict(X[450:]).shape == (50, 3)


@pytest.mark.parametrize("engine", ["loop", Batched(chunk=2)], ids=["loop", "batched"])
@pytest.mark.parametrize("case", ["empty", "too large"])
def test_a_teacher_that_cannot_learn_says_no_to_every_label(engine, case, recwarn):
    rows, parts = X[:400].astype(np.float64), PARTS
    if case == "empty":
        parts = Partition((*PARTS.parts[:2], PARTS[2][:0], PARTS[3]), unit="one record")
    else:
        rows[PARTS[2]] *= 1e300
    model = TorchClassifier("mlp", epochs=3, batch_size=20, device="cpu")
    how = {"space": SetOf(3), "seed": 7, "engine": engine, "n_jobs": 1}
    wanted = train_ensemble(model, X[:400], Y[:400], PARTS, **how).vote(X[400:]).block()
    made = train_ensemble(model, rows, Y[:400], parts, **how)
    found = made.vote(X[400:]).block()
    np.testing.assert_array_equal(found[[0, 1, 3]], wanted[[0, 1, 3]])
    assert (found[2] == 0).all()
    assert made.troubles.reveal() == {2: {"empty": "it has no rows", "too large": "ValueError"}[case]}
    assert not recwarn.list
