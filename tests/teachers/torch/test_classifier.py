"""The torch classifier: a well-behaved estimator, a file without code, clear refusals."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from tellers.data import digits
from tellers.errors import TeacherFailed
from tellers.nn.classifier import TorchClassifier
from tellers.teachers import partition, train_ensemble
from tellers.teachers.models import describe_estimator

SOURCES = Path(__file__).resolve().parents[3] / "src"
DATA = digits()
X, Y, REST, TRUTH = DATA.X[:500], DATA.y[:500], DATA.X[500:], DATA.y[500:]


def line():
    return nn.Linear(64, 10)


def mlp(**options):
    how = {
        "epochs": 15,
        "batch_size": 20,
        "learning_rate": 0.01,
        "random_state": 7,
        "device": "cpu",
        **options,
    }
    return TorchClassifier("mlp", **how)


def test_it_learns_and_is_the_same_from_one_seed():
    assert mlp().fit(X, Y).score(REST, TRUTH) > 0.85
    model, same, other = (mlp(epochs=2, random_state=seed).fit(X, Y) for seed in (7, 7, 8))
    np.testing.assert_array_equal(model.predict_proba(REST), same.predict_proba(REST))
    assert (model.predict_proba(REST) != other.predict_proba(REST)).any()
    np.testing.assert_allclose(model.predict_proba(REST).sum(axis=1), 1)
    cnn = TorchClassifier(
        "cnn", epochs=6, learning_rate=0.01, shift=0.05, rotation=5, random_state=7, device="cpu"
    )
    assert cnn.fit(X, Y).score(REST, TRUTH) > 0.85


def test_scikit_learn_takes_it_for_one_of_its_own():
    model = mlp(epochs=2)
    assert clone(model).get_params() == model.get_params()
    assert is_classifier(model)
    pipeline = make_pipeline(StandardScaler(), model)
    assert cross_val_score(pipeline, X, Y, cv=2).mean() > 0.3
    with pytest.raises(ValueError, match=r"Expected one of network, epochs.*'wings'"):
        model.set_params(wings=2)


def test_flat_rows_make_images_with_channels_last_as_data_sets_have_them():
    model = TorchClassifier("cnn", epochs=1, image_shape=(4, 5, 3))
    flat = np.arange(2 * 60.0).reshape(2, 60)
    shape = model.row_shape(flat.shape)
    images = model.as_rows(flat, shape)
    assert images.shape == (2, *shape) == (2, 3, 4, 5)
    np.testing.assert_array_equal(images[0, 1], flat[0].reshape(4, 5, 3)[:, :, 1])
    for same in (images, flat.reshape(2, 4, 5, 3)):
        np.testing.assert_array_equal(model.as_rows(same, shape), images)
    assert model.fit(flat, [0, 1]).predict(flat).shape == (2,)


def test_classes_are_declared_or_read_off():
    names = np.array(["even", "odd"])
    model = mlp(epochs=5).fit(X, names[Y % 2])
    assert set(model.predict(REST)) <= set(names)
    assert model.classes_.tolist() == ["even", "odd"]
    few = Y < 5
    assert mlp(epochs=1, n_classes=10).fit(X[few], Y[few]).predict_proba(REST).shape[1] == 10
    assert mlp(epochs=1).fit(X[few], Y[few]).predict_proba(REST).shape[1] == 5
    with pytest.raises(ValueError, match=r"classes 0..4"):
        mlp(n_classes=5).fit(X, Y)
    with pytest.raises(ValueError, match="Declare n_classes"):
        TorchClassifier(line, epochs=1).fit(X[few], Y[few])


@pytest.mark.parametrize("network", ["mlp", "cnn", line])
def test_a_file_holds_numbers_and_no_code(network):
    model = TorchClassifier(
        network, epochs=2, random_state=7, image_shape=(8, 8) if network == "cnn" else None
    )
    content = model.fit(X, Y).to_bytes()
    function = None if isinstance(network, str) else network
    again = TorchClassifier.from_bytes(content, network=function)
    np.testing.assert_array_equal(again.predict_proba(REST), model.predict_proba(REST))
    assert again.get_params() == {**model.get_params(), "network": network}
    if function:
        with pytest.raises(ValueError, match="the function that made the network"):
            TorchClassifier.from_bytes(content)
        with pytest.raises(ValueError, match="weights of this network, got others"):
            TorchClassifier.from_bytes(content, network=lambda: nn.Linear(64, 9))
    for damaged in (content[:100], b"", pickle.dumps(model)):
        with pytest.raises(ValueError, match="something else"):
            TorchClassifier.from_bytes(damaged, network=function)
    assert (pickle.loads(pickle.dumps(model)).predict(REST) == model.predict(REST)).all()


def test_it_is_a_teacher_like_any_other(tmp_path):
    parts = partition(500, 4, seed=3)
    for _ in range(2):
        made = train_ensemble(mlp(), X, Y, parts, n_classes=10, seed=7, folder=tmp_path, n_jobs=1)
    assert made.accuracies(REST, TRUTH).reveal().mean() > 0.6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs >= 1"),
        ({"batch_size": 1}, "batch_size >= 2"),
        ({"learning_rate": 0}, "learning_rate > 0"),
        ({"weight_decay": -1}, "weight_decay >= 0"),
        ({"shift": 0.1}, "images to turn and shift"),
        ({"image_shape": (8, 9)}, r"images of shape \(8, 9\), got rows of shape \(64,\)"),
        ({"image_shape": (64,)}, r"image_shape=\(height, width\)"),
        ({"device": "abacus"}, "device 'auto', 'cpu' or 'cuda'"),
        ({"network": "rnn"}, "'cnn', 'mlp' or a function"),
        ({"random_state": -1}, "random_state >= 0"),
        ({"network": lambda: nn.Flatten()}, "weights to learn"),
    ],
)
def test_bad_parameters_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        mlp().set_params(**options).fit(X, Y)


def test_folders_know_it_by_the_name_it_had_first():
    """A manifest holds a digest of this text: another name would refuse every folder that was kept."""
    said = describe_estimator(TorchClassifier("mlp"))
    assert said.startswith("tellers.teachers.torch.classifier.TorchClassifier(batch_size=40, ")


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match="Call fit"):
        mlp().predict(X)
    with pytest.raises(ValueError, match="one class for each of 500 rows"):
        mlp().fit(X, Y[1:])
    with pytest.raises(ValueError, match="NaN or infinity in row 0"):
        mlp().fit(np.full((500, 64), 1e300), Y)
    with pytest.raises(TeacherFailed, match="loss that is a finite number"):
        mlp().fit(X * 1e38, Y)
    with pytest.raises(ValueError, match="square images"):
        TorchClassifier("cnn").fit(X[:, :63], Y)
    with pytest.raises(TypeError, match=r"torch.nn.Module, got int"):
        TorchClassifier(lambda: 3).fit(X, Y)
    model = mlp(epochs=1).fit(X, Y)
    with pytest.raises(ValueError, match="Expected rows of shape"):
        model.predict(REST[:, 1:])


def run(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False, cwd=SOURCES
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_torch_the_rest_imports_and_the_extra_is_named():
    code = """
import sys
sys.modules["torch"] = None
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else real(name, *rest)
import tellers.teachers
from tellers.errors import MissingExtra
try:
    tellers.teachers.TorchClassifier
except MissingExtra as error:
    print(error)
"""
    assert run(code) == "Expected torch for torch teachers, found none: pip install 'tellers[torch]'"


def test_importing_teachers_does_not_import_torch_and_torch_teachers_import_little_else():
    assert run("import sys, tellers.teachers; print('torch' in sys.modules)") == "False"
    code = """
import sys
import torch
before = set(sys.modules)
from tellers.nn.classifier import TorchClassifier
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new & {"sklearn", "joblib", "skops", "scipy", "pandas", "threadpoolctl", "safetensors"}))
"""
    assert run(code) == "[]"
