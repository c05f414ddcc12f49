"""The teachers: which rows each learns from, training, votes and vote files."""

from .. import _lazy

_HOME = {
    "Ensemble": ".ensemble",
    "LabelFrequencies": ".frequencies",
    "Partition": ".partitions",
    "StoredVotes": ".store",
    "TorchClassifier": ".torch",
    "TorchEnsemble": ".torch",
    "TrainingOptions": ".options",
    "VoteFile": ".store",
    "VoteWriter": ".store",
    "VotedPool": ".pool",
    "check_disjoint": ".partitions",
    "is_network": ".ensemble",
    "load_ensemble": ".ensemble",
    "partition": ".partitions",
    "read_votes": ".store",
    "save_votes": ".store",
    "stored_votes": ".store",
    "train_ensemble": ".ensemble",
    "vote_in_parts": ".store",
}
# Names of before version 0.2 are found too, and warn when they are called.
_OLD = {
    "TorchLabelEnsemble": ".torch",
    "LabelEnsemble": "._old_names",
    "LabelVoteFile": "._old_names",
    "load_label_ensemble": "._old_names",
    "load_torch_ensemble": "._old_names",
    "load_torch_label_ensemble": "._old_names",
    "read_label_votes": "._old_names",
    "save_label_votes": "._old_names",
    "train_label_ensemble": "._old_names",
    "train_label_teachers": "._old_names",
    "train_teachers": "._old_names",
    "train_torch_ensemble": "._old_names",
    "train_torch_label_ensemble": "._old_names",
}
__all__, _, __dir__ = _lazy(__name__, _HOME)
__getattr__ = _lazy(__name__, _HOME | _OLD)[1]
