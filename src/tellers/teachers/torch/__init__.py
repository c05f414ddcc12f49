"""Torch teachers: one network per part, all of them trained in one batched program or one after another."""

from importlib.util import find_spec

from ...errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for torch teachers, found none: pip install 'tellers[torch]'")

from ...nn.batched import Batched
from ...nn.classifier import TorchClassifier, TorchLabelClassifier
from .ensemble import (
    TorchEnsemble,
    TorchLabelEnsemble,
    load_torch_ensemble,
    load_torch_label_ensemble,
    train_torch_ensemble,
    train_torch_label_ensemble,
)

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
