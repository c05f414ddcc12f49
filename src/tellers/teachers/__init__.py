"""The teachers' side: where ballots come from, and the files that keep them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .ensemble import Ensemble, train_ensemble
from .store import VoteFile, read_votes, save_votes

if TYPE_CHECKING:
    from .torch import TorchClassifier, TorchEnsemble, train_torch_ensemble

__all__ = [
    "Ensemble",
    "TorchClassifier",
    "TorchEnsemble",
    "VoteFile",
    "read_votes",
    "save_votes",
    "train_ensemble",
    "train_torch_ensemble",
]


def __getattr__(name: str) -> Any:
    # Torch is an extra, and slow to import: it is looked for when it is used.
    if name in ("TorchClassifier", "TorchEnsemble", "train_torch_ensemble"):
        return getattr(import_module(".torch", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
