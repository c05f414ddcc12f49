"""The teachers' side: where ballots come from, and the files that keep them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .backends import is_network, train_label_teachers, train_teachers
from .ensemble import Ensemble, train_ensemble
from .label_ensemble import LabelEnsemble, load_label_ensemble, train_label_ensemble
from .label_store import LabelVoteFile, read_label_votes, save_label_votes
from .loading import load_ensemble
from .parts import StoredVotes, VoteWriter, stored_votes, vote_in_parts
from .store import VoteFile, read_votes, save_votes

if TYPE_CHECKING:
    from .torch import (
        TorchClassifier,
        TorchEnsemble,
        TorchLabelEnsemble,
        load_torch_ensemble,
        load_torch_label_ensemble,
        train_torch_ensemble,
        train_torch_label_ensemble,
    )

__all__ = [
    "Ensemble",
    "LabelVoteFile",
    "LabelEnsemble",
    "StoredVotes",
    "TorchClassifier",
    "TorchEnsemble",
    "TorchLabelEnsemble",
    "VoteFile",
    "VoteWriter",
    "is_network",
    "load_ensemble",
    "load_label_ensemble",
    "load_torch_ensemble",
    "read_label_votes",
    "load_torch_label_ensemble",
    "read_votes",
    "save_label_votes",
    "save_votes",
    "stored_votes",
    "train_ensemble",
    "train_label_ensemble",
    "train_label_teachers",
    "train_teachers",
    "train_torch_ensemble",
    "train_torch_label_ensemble",
    "vote_in_parts",
]


def __getattr__(name: str) -> Any:
    # Torch is an extra, and slow to import: it is looked for when it is used.
    if name in __all__ and "torch" in name.lower():
        return getattr(import_module(".torch", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
