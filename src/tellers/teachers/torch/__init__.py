"""Torch teachers: one network per part, all of them trained in one batched program or one after another."""

from importlib.util import find_spec

from ...errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for torch teachers, found none: pip install 'tellers[torch]'")

from ...nn.batched import Batched
from ...nn.classifier import TorchClassifier, TorchLabelClassifier
from .. import _old_names
from .ensemble import TorchEnsemble

# By the names of before.
TorchLabelEnsemble = TorchEnsemble
load_torch_ensemble = _old_names.load_torch_ensemble
load_torch_label_ensemble = _old_names.load_torch_label_ensemble
train_torch_ensemble = _old_names.train_torch_ensemble
train_torch_label_ensemble = _old_names.train_torch_label_ensemble

__all__ = [
    "Batched",
    "TorchClassifier",
    "TorchEnsemble",
    "TorchLabelClassifier",
]
