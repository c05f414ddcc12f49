"""One place decides which backend a model belongs to, and torch is loaded for its own alone."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from tellers.teachers import Ensemble, is_network, partition, train_ensemble

X, Y = np.arange(40.0)[:, None], np.arange(40) % 2
PARTS = partition(40, 4, seed=7)
SRC = Path(__file__).resolve().parents[2] / "src"


def test_networks_go_to_torch_and_others_do_not():
    pytest.importorskip("torch")
    from tellers.nn.classifier import TorchClassifier
    from tellers.teachers.torch import TorchEnsemble

    class MyNetwork(TorchClassifier):
        """Somebody's own, elsewhere."""

    network = TorchClassifier("mlp", epochs=1, device="cpu")
    assert is_network(network)
    assert is_network(MyNetwork("mlp"))
    assert not is_network(DecisionTreeClassifier())
    how = {"n_classes": 2, "seed": 7, "n_jobs": 1}
    assert isinstance(train_ensemble(network, X, Y, PARTS, engine="loop", **how), TorchEnsemble)
    assert isinstance(train_ensemble(DecisionTreeClassifier(), X, Y, PARTS, timeout=60.0, **how), Ensemble)
    with pytest.raises(ValueError, match="no time limit for networks"):
        train_ensemble(network, X, Y, PARTS, timeout=60.0, **how)


def test_a_wrapped_network_is_trained_as_any_estimator():
    pytest.importorskip("torch")
    from sklearn.pipeline import make_pipeline

    from tellers.nn.classifier import TorchClassifier

    assert not is_network(make_pipeline(TorchClassifier("mlp")))


def test_without_torch_everything_else_works(tmp_path):
    code = f"""
import sys
class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nowhere())  # as where it is not installed
sys.path.insert(0, {str(SRC)!r})
import numpy as np
from sklearn.tree import DecisionTreeClassifier
import tellers.service, tellers.runs, tellers.runs
from tellers.teachers import load_ensemble, train_ensemble
from tellers.teachers import partition
X, y = np.arange(40.0)[:, None], np.arange(40) % 2
parts = partition(40, 4, seed=7)
train_ensemble(DecisionTreeClassifier(), X, y, parts, n_classes=2, seed=7, folder="some", n_jobs=1)
print(len(load_ensemble("some", n_classes=2)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120
    )
    assert (done.stdout.strip(), done.returncode) == ("4", 0), done.stderr
