"""The teachers: which rows each learns from, training, votes and vote files."""

from .. import _lazy

_HOME = {
    "Ensemble": ".ensemble",
    "LabelEnsemble": ".ensemble",
    "LabelVoteFile": ".store",
    "Partition": ".partitions",
    "StoredVotes": ".store",
    "TorchClassifier": ".torch",
    "TorchEnsemble": ".torch",
    "TorchLabelEnsemble": ".torch",
    "VoteFile": ".store",
    "VoteWriter": ".store",
    "VotedPool": ".pool",
    "check_disjoint": ".partitions",
    "is_network": ".ensemble",
    "load_ensemble": ".ensemble",
    "load_label_ensemble": ".ensemble",
    "load_torch_ensemble": ".torch",
    "load_torch_label_ensemble": ".torch",
    "partition": ".partitions",
    "read_label_votes": ".store",
    "read_votes": ".store",
    "save_label_votes": ".store",
    "save_votes": ".store",
    "stored_votes": ".store",
    "train_ensemble": ".ensemble",
    "train_label_ensemble": ".ensemble",
    "train_label_teachers": ".ensemble",
    "train_teachers": ".ensemble",
    "train_torch_ensemble": ".torch",
    "train_torch_label_ensemble": ".torch",
    "vote_in_parts": ".store",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
