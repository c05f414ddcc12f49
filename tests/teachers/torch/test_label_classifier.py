"""One network as a student of many labels: taught by what was told, kept as numbers, refused in time."""

import numpy as np
import pytest
import torch

from tellers import Binary, Budget, PateMultilabelClassifier
from tellers.nn.classifier import TorchClassifier, TorchLabelClassifier
from tellers.nn.losses import row_losses, told_loss
from tellers.nn.teacher_training import Recipe, TrainingSet, train_alone
from tellers.privacy import SILENT
from tellers.runs import ModelCard, export_student, load_student
from tellers.students import fit_supervised

RNG = np.random.default_rng(7)
X = RNG.normal(size=(400, 4)).astype(np.float32)
Y = (X[:, :3] > 0).astype(int)
OPTIONS = {"epochs": 25, "batch_size": 20, "learning_rate": 0.01, "device": "cpu", "random_state": 7}
CARD = ModelCard(
    task="say yes or no to 3 labels", classes=("no", "yes"), unit="one record", n_teachers=60,
    mechanism="Binary", parameters={"sigma": 12.0}, epsilon=2.0, delta=1e-5, is_guarantee=True,
    n_queries=100, n_labels=300, student="mlp", accuracy=0.9, not_guaranteed=(),
)  # fmt: skip


def model(network="mlp", **changes):
    return TorchLabelClassifier(TorchClassifier(network, **{**OPTIONS, **changes}))


def test_the_loss_counts_every_label_that_was_told_alike():
    answers = torch.tensor([[2.0, -1.0], [0.5, 3.0]])
    targets = torch.tensor([[1.0, -1.0], [0.0, 1.0]])
    cells = torch.nn.functional.binary_cross_entropy_with_logits(
        answers, targets.clamp(min=0), reduction="none"
    )
    wanted = (cells[0, 0] + cells[1, 0] + cells[1, 1]) / 3
    assert float(told_loss(answers, targets)) == pytest.approx(float(wanted))
    everything = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert float(told_loss(answers, everything)) == pytest.approx(
        float(row_losses(answers, everything).mean())
    )


def test_silence_teaches_nothing():
    """Whatever an untold label would have been, the weights are the same: it is not in the table."""
    told = np.where(RNG.random(Y.shape) < 0.4, SILENT, Y)
    student = model().fit(X[:300], told[:300])
    assert (student.predict(X[300:]) == Y[300:]).mean() > 0.85
    # The gradient of an untold label is zero: its output does not move from where it began.
    silent = Y.copy()
    silent[:, 1] = SILENT
    table = silent.astype(np.float32)
    torch.manual_seed(7)
    network = torch.nn.Linear(4, 3)
    before = network.weight.detach().clone()
    lesson = TrainingSet(X, table, [len(X)], [7], Recipe(epochs=2, batch_size=20))
    after = train_alone(network, lesson, device=torch.device("cpu")).states["weight"][0]
    assert torch.equal(before[1], after[1])
    assert not torch.equal(before[0], after[0])


def test_a_label_that_never_came_out_is_no_and_named():
    silent = Y.copy()
    silent[:, 2] = SILENT
    student = model(epochs=2).fit(X, silent)
    assert student.silent_labels_ == [2]
    assert not student.predict_proba(X)[:, 2].any()


def test_the_same_seed_is_the_same_student():
    one, same, other = (
        fit_supervised(model(random_state=None, epochs=2), X, Y, seed=seed) for seed in (7, 7, 8)
    )
    assert isinstance(one, TorchLabelClassifier)
    assert np.array_equal(one.predict_proba(X), same.predict_proba(X))
    assert not np.array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("network", ["mlp", "function"])
def test_it_is_exported_and_comes_back_the_same(network, tmp_path):
    def line():
        return torch.nn.Linear(4, 3)

    silent = Y.copy()
    silent[:, 2] = SILENT
    student = model(line if network == "function" else network, epochs=2).fit(X, silent)
    place = export_student(student, tmp_path / "student", card=CARD)
    if network == "function":
        with pytest.raises(ValueError, match="the function that made the network"):
            load_student(place)
    needed = {"network": line} if network == "function" else {}
    back = load_student(place, **needed)
    assert np.array_equal(back.predict_proba(X), student.predict_proba(X))
    assert back.silent_labels_ == [2]


def test_images_keep_their_shape(tmp_path):
    images = RNG.random(size=(40, 8 * 6 * 3)).astype(np.float32)
    labels = (images[:, :2] > 0.5).astype(int)
    student = model("cnn", epochs=1, image_shape=(8, 6, 3)).fit(images, labels)
    back = TorchLabelClassifier.from_bytes(student.to_bytes())
    assert back.classifier.image_shape == (8, 6, 3)
    assert np.array_equal(back.predict_proba(images), student.predict_proba(images))


@pytest.mark.parametrize(
    ("made", "shape", "says"),
    [
        (model("cnn"), (10, 20), "square images"),
        (model("cnn", image_shape=(5, 5)), (10, 20), "rows that make images"),
        (model(epochs=0), (10, 4), "epochs"),
        (model(lambda: torch.nn.Linear(4, 2)), (10, 4), "makes 3 numbers"),
    ],
)
def test_what_cannot_be_trained_is_refused_beforehand(made, shape, says):
    with pytest.raises(ValueError, match=says):
        made.require_fit(shape, n_labels=3)


def test_damaged_bytes_are_one_kind_of_error():
    content = model(epochs=1).fit(X, Y).to_bytes()
    for damaged in (content[:100], b"", TorchClassifier("mlp", epochs=1).fit(X, Y[:, 0]).to_bytes()):
        with pytest.raises(ValueError, match=r"bytes of TorchLabelClassifier\.to_bytes"):
            TorchLabelClassifier.from_bytes(damaged)


def test_before_it_is_fitted_it_says_so():
    for ask in (lambda m: m.predict(X), lambda m: m.to_bytes()):
        with pytest.raises(ValueError, match=r"fit\(X, Y\) first"):
            ask(model())


def test_the_estimator_takes_it_for_a_student():
    pate = PateMultilabelClassifier(
        mechanism=Binary(sigma=1.0, n_labels=3), budget=Budget(epsilon=300.0, delta=1e-4), n_teachers=5,
        student=model(random_state=None), random_state=7,
    )  # fmt: skip
    pate.fit(X[:200], Y[:200], public=X[200:300])
    assert isinstance(pate.student_, TorchLabelClassifier)
    assert pate.score(X[300:], Y[300:]) > 0.75
