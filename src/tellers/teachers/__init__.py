"""The teachers' side: where ballots come from, and the files that keep them."""

from .ensemble import Ensemble, train_ensemble
from .store import VoteFile, read_votes, save_votes

__all__ = ["Ensemble", "VoteFile", "read_votes", "save_votes", "train_ensemble"]
