"""The teachers' side: where ballots come from, and the files that keep them."""

from .store import VoteFile, read_votes

__all__ = ["VoteFile", "read_votes"]
