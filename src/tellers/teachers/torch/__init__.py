"""Torch teachers: one network per part, all of them trained in one batched program or one after another."""

from importlib.util import find_spec

from ... import _lazy
from ...errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for torch teachers, found none: pip install 'tellers[torch]'")

_HOME = {
    "..nn.batched": "Batched",
    "..nn.classifier": "TorchClassifier TorchLabelClassifier",
    "ensemble": "TorchEnsemble",
}
_OLD = {
    "._old_names": (
        "load_torch_ensemble load_torch_label_ensemble train_torch_ensemble train_torch_label_ensemble"
    ),
    "ensemble": "TorchLabelEnsemble",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME, old=_OLD)
