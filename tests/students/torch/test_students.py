"""The manners of torch students: seeds, silence, estimator conventions, files, and what they refuse."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

torch = pytest.importorskip("torch")

from tellers import SILENT  # noqa: E402
from tellers.nn.views import ImageViews, RowViews  # noqa: E402
from tellers.runs import ModelCard, export_student, load_student  # noqa: E402
from tellers.runs._catalogue import SEMI_SUPERVISED, make_model  # noqa: E402
from tellers.students import fit_semi_supervised  # noqa: E402
from tellers.students.torch import (  # noqa: E402
    GanStudent,
    MeanTeacherStudent,
    MixMatchStudent,
    MultilabelMixMatchStudent,
    PublicRows,
    VatStudent,
)
from tellers.students.torch.training import hold_out  # noqa: E402

SOURCES = Path(__file__).resolve().parents[3] / "src"
KINDS = [GanStudent, MeanTeacherStudent, MixMatchStudent, VatStudent]
TINY = {"steps": 6, "width": 2, "batch_size": 8, "pool_batch_size": 16, "random_state": 3, "device": "cpu"}


def rows(n, seed=0, n_features=5):
    return np.random.default_rng(seed).normal(size=(n, n_features))


X, POOL = rows(20), rows(60, 1)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)


def fitted(kind, y=Y, **settings):
    if kind is MultilabelMixMatchStudent:
        y = np.column_stack([y == 0, y == 1]).astype(int)
    return kind(**{**TINY, **settings}).fit(X, y, POOL)


@pytest.mark.parametrize("kind", [*KINDS, MultilabelMixMatchStudent])
def test_the_same_seed_gives_the_same_student_and_another_gives_another(kind):
    before = torch.random.get_rng_state()
    one, same, other = fitted(kind), fitted(kind), fitted(kind, random_state=4)
    assert torch.equal(before, torch.random.get_rng_state())  # what others draw is not disturbed
    np.testing.assert_array_equal(one.predict_proba(POOL), same.predict_proba(POOL))
    assert not np.array_equal(one.predict_proba(POOL), other.predict_proba(POOL))


@pytest.mark.parametrize("kind", KINDS)
def test_silent_rows_are_unlabelled_rows(kind):
    y, moved = Y.copy(), X.copy()
    y[::2] = SILENT
    moved[::2] = moved[::2][::-1] * [1, -1, 1, 1, 1]
    student = kind(**TINY).fit(X, y)  # no other unlabelled rows are needed
    assert student.classes_.tolist() == sorted(set(y) - {SILENT})
    # They are learned from: others in their place make another student.
    assert not np.array_equal(student.predict_proba(POOL), kind(**TINY).fit(moved, y).predict_proba(POOL))


@pytest.mark.parametrize("kind", [*KINDS, MultilabelMixMatchStudent])
def test_scikit_learn_can_handle_it(kind):
    student = kind(**TINY, smoothing=0.05)
    copy = clone(student)
    assert copy is not student
    assert copy.get_params() == student.get_params()
    assert is_classifier(student)
    assert copy.set_params(steps=9).steps == 9
    with pytest.raises(ValueError, match=r"Expected one of network, .* got 'epochs'"):
        copy.set_params(epochs=3)
    with pytest.raises(ValueError, match=r"Expected a fitted .*Student. Call fit"):
        copy.predict(X)


@pytest.mark.parametrize("kind", KINDS)
def test_probabilities_sum_to_one_and_do_not_depend_on_who_else_is_asked(kind):
    student = fitted(kind, test_views=3, n_classes=4)
    said = student.predict_proba(POOL)
    assert student.classes_.tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(said.sum(axis=1), 1)
    np.testing.assert_allclose(student.predict_proba(POOL[7:9]), said[7:9], atol=1e-6)
    np.testing.assert_array_equal(student.predict(POOL), said.argmax(axis=1))


@pytest.mark.parametrize(
    ("kind", "shape", "image_shape"),
    [
        *((kind, (16, 16), None) for kind in (*KINDS, MultilabelMixMatchStudent)),
        *((kind, (3, 12, 12), None) for kind in (GanStudent, MultilabelMixMatchStudent)),
        *((kind, (192,), (8, 8, 3)) for kind in (GanStudent, MixMatchStudent)),
    ],
)
def test_images_of_many_shapes(kind, shape, image_shape):
    images = np.random.default_rng(0).random((24, *shape))
    y = np.arange(24) % 3
    if kind is MultilabelMixMatchStudent:
        y = np.eye(3, dtype=int)[y]
    student = kind(**{**TINY, "steps": 2}, image_shape=image_shape).fit(images[:12], y[:12], images[12:])
    assert student.predict_proba(images).shape == (24, 3)


@pytest.mark.parametrize("name", sorted(SEMI_SUPERVISED))
def test_a_student_by_name_is_exported_and_read_again(name, tmp_path):
    model = make_model(name, {**TINY, "views": {"noise": 0.1}}, n_classes=3)
    y = np.eye(3, dtype=int)[Y] if name == "multilabel_mixmatch" else Y
    student = fit_semi_supervised(model, X, y, POOL, seed=1)
    card = ModelCard(
        task="tell 3 classes apart", classes=("a", "b", "c"), unit="one record", n_teachers=60,
        mechanism="GNMax", parameters={"sigma": 12.0}, epsilon=2.0, delta=1e-5, is_guarantee=True,
        n_queries=20, n_labels=20, student=name, accuracy=None, not_guaranteed=(),
    )  # fmt: skip
    again = load_student(export_student(student, tmp_path / "student", card=card))
    assert type(again) is type(student)
    np.testing.assert_array_equal(again.predict_proba(POOL), student.predict_proba(POOL))


def test_a_network_of_ones_own():
    def own():
        return torch.nn.Sequential(torch.nn.Linear(5, 3))

    student = VatStudent(**{**TINY, "network": own}).fit(X, Y, POOL)
    again = VatStudent.from_bytes(student.to_bytes(), network=own)
    np.testing.assert_array_equal(again.predict(POOL), student.predict(POOL))
    with pytest.raises(ValueError, match="the function that made the network"):
        VatStudent.from_bytes(student.to_bytes())
    with pytest.raises(TypeError, match="parts called features and head"):
        GanStudent(**{**TINY, "network": own}).fit(X, Y, POOL)
    with pytest.raises(ValueError, match="Expected a network that makes 2 numbers"):
        VatStudent(**{**TINY, "network": own}).fit(X, np.minimum(Y, 1), POOL)


BAD = {
    "no unlabelled rows": (X, Y, None, "neither X_unlabelled nor silent rows. Pass the public pool"),
    "one class": (X, np.zeros(20, int), POOL, "at least 2 classes, got class 0 alone, 20 times"),
    "silence": (X, np.full(20, SILENT), POOL, "got silence for every row"),
    "NaN": (np.where(np.arange(5) == 2, np.nan, X), Y, POOL, "NaN or infinity in row 0, feature 2"),
    "NaN in the pool": (X, Y, np.full((3, 5), np.inf), "NaN or infinity in row 0, feature 0"),
    "too few labels": (X, Y[:-1], POOL, "one label per row, 20 of them"),
    "a pool of another shape": (
        X,
        Y,
        rows(9, 2, 4),
        r"Expected rows of shape \(5,\).* got rows of shape \(4,\)",
    ),
    "text": (X, np.array(["a", "b"] * 10), POOL, "Expected whole labels"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_rows_are_refused(what):
    bad_X, bad_y, pool, words = BAD[what]
    with pytest.raises(ValueError, match=words):
        MeanTeacherStudent(**TINY).fit(bad_X, bad_y, pool)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"steps": 0}, "steps >= 1"),
        ({"batch_size": 1}, "batch_size >= 2"),
        ({"average": 1.0}, "0 < average < 1"),
        ({"weight": -1.0}, "weight >= 0"),
        ({"threshold": 1.0}, "0 <= threshold < 1"),
        ({"class_shares": [0.5, 0.5]}, "3 positive class_shares"),
        ({"class_shares": "even"}, "'labels', 'equal', None or shares"),
        ({"network": "vit"}, "'auto', 'cnn', 'mlp'"),
        ({"network": "cnn"}, "Expected square images"),
        ({"image_shape": (2, 2)}, "rows that make images"),
        ({"n_classes": 2}, r"Expected classes 0..1 in y"),
        ({"device": "cudda"}, "device 'auto', 'cpu' or 'cuda'"),
        ({"precision": "float16"}, "'bfloat16'"),
        ({"label_noise": 0.9}, "label_noise from 0 to below"),
        ({"label_noise": np.eye(2)}, "3 x 3 chances"),
        ({"noise_handling": "backward"}, "noise_handling in"),
        ({"views": {"rotation": 3}}, "settings of RowViews"),
        ({"views": ImageViews()}, "Expected images for ImageViews"),
        ({"views": {"borrowed": 1.5}}, "0 <= borrowed <= 0.9"),
        ({"learning_rate": 1e30}, "loss that is a finite number"),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        MeanTeacherStudent(**{**TINY, **settings}).fit(X, Y, POOL)


def test_views_of_ones_own():
    student = MeanTeacherStudent(**TINY, views=RowViews(noise=0.0, borrowed=0.0)).fit(X, Y, POOL)
    assert "views=RowViews" in repr(student)
    assert repr(VatStudent(label_noise=np.eye(2), steps=5)).startswith(
        "VatStudent(steps=5, label_noise=array("
    )


@pytest.mark.parametrize("kind", [*KINDS, MultilabelMixMatchStudent])
def test_mixed_precision_learns_too(kind):
    """Rounded to bfloat16 the weights still move, all of them, and end near those of float32."""
    start, exact, mixed = (
        fitted(kind, steps=n, learning_rate=1e-3, precision=precision, average=0.01, weight_decay=0.0)
        for n, precision in ((1, "float32"), (10, "float32"), (10, "bfloat16"))
    )
    for name in ("features.1.weight", "head.weight"):
        moved, apart = (np.abs(one.state_[name] - mixed.state_[name]).mean() for one in (start, exact))
        assert 0 < apart < moved


def test_validation_takes_released_or_public_labels_alone():
    with pytest.raises(TypeError, match="release that nobody charged"):
        fitted_with((X, Y))
    with pytest.raises(TypeError, match="got 'private'"):
        fitted_with("private")
    with pytest.raises(ValueError, match="validation labels among the classes"):
        fitted_with(PublicRows(X, Y + 5))
    assert fitted_with(None).checked_ is None
    for validation in ("released", PublicRows(X, Y)):
        assert fitted_with(validation).checked_ > 0


def fitted_with(validation, **settings):
    student = MeanTeacherStudent(**{**TINY, "check_every": 2, **settings})
    return student.fit(X, Y, POOL, validation=validation)


def test_training_stops_when_checks_get_worse():
    steps = []
    # The rows to check on say the opposite of what is taught: the first check is the best one.
    student = MeanTeacherStudent(
        **{**TINY, "steps": 60, "check_every": 5, "patience": 2, "learning_rate": 0.05}
    )
    student.fit(X, (X[:, 0] > 0).astype(int), POOL, validation=PublicRows(X, (X[:, 0] <= 0).astype(int)),
                progress=lambda done, total: steps.append(done))  # fmt: skip
    assert student.n_steps_ < steps[-1] < 60


def test_labels_that_are_held_out_are_not_learned_from():
    _, held = hold_out(len(Y), 0.5, seed=3)
    other = Y.copy()
    other[held] = (other[held] + 1) % 3
    settings = {**TINY, "steps": 4, "check_every": 4, "holdout": 0.5, "n_classes": 3}  # one check, at the end
    one, same = (MeanTeacherStudent(**settings).fit(X, y, POOL, validation="released") for y in (Y, other))
    np.testing.assert_array_equal(one.predict_proba(POOL), same.predict_proba(POOL))
    assert one.checked_ != same.checked_


def test_without_torch_the_extra_is_named():
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "from tellers.errors import MissingExtra\n"
        "from tellers.catalogue import make_model\n"
        "import tellers.students\n"
        "try: make_model('mean_teacher')\n"
        "except MissingExtra as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=SOURCES, check=True
    )
    assert (
        done.stdout.strip() == "Expected torch for torch students, found none: pip install 'tellers[torch]'"
    )


def test_numpy_and_torch_are_enough():
    code = (
        "import sys\n"
        "for name in ('sklearn', 'scipy', 'safetensors', 'pydantic', 'joblib'): sys.modules[name] = None\n"
        "import numpy as np\n"
        "from tellers.students.torch import MeanTeacherStudent\n"
        "X = np.random.default_rng(0).normal(size=(40, 4))\n"
        "student = MeanTeacherStudent(steps=2, width=1, device='cpu').fit(X[:9], np.arange(9) % 2, X[9:])\n"
        "print(student.predict(X).shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=SOURCES, check=True
    )
    assert done.stdout.strip() == "(40,)"
