"""Torch teachers: one network per part, all of them trained in one batched program or one after another."""

from importlib.util import find_spec

from ...errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for torch teachers, found none: pip install 'tellers[torch]'")

from .classifier import TorchClassifier
from .engines import Batched
from .ensemble import TorchEnsemble, train_torch_ensemble
from .label_classifier import TorchLabelClassifier
from .label_ensemble import TorchLabelEnsemble, load_torch_label_ensemble, train_torch_label_ensemble
from .loading import load_torch_ensemble

__all__ = [
    "Batched",
    "TorchClassifier",
    "TorchEnsemble",
    "TorchLabelClassifier",
    "TorchLabelEnsemble",
    "load_torch_ensemble",
    "load_torch_label_ensemble",
    "train_torch_ensemble",
    "train_torch_label_ensemble",
]
