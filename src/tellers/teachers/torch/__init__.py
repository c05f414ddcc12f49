"""Torch teachers: one network per part, all of them trained in one batched program or one after another."""

from importlib.util import find_spec

from ...errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for torch teachers, found none: pip install 'tellers[torch]'")

from ...nn.batched import Batched
from ...nn.classifier import TorchClassifier, TorchLabelClassifier
from .._old_names import (
    load_torch_ensemble as load_torch_ensemble,
)
from .._old_names import (
    load_torch_label_ensemble as load_torch_label_ensemble,
)
from .._old_names import (
    train_torch_ensemble as train_torch_ensemble,
)
from .._old_names import (
    train_torch_label_ensemble as train_torch_label_ensemble,
)
from .ensemble import TorchEnsemble

TorchLabelEnsemble = TorchEnsemble  # by the name of before

__all__ = [
    "Batched",
    "TorchClassifier",
    "TorchEnsemble",
    "TorchLabelClassifier",
]
