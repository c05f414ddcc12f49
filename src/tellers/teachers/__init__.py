"""The teachers: which rows each learns from, training, votes and vote files."""

from .. import _lazy

_HOME = {
    "ensemble": "Ensemble is_network load_ensemble train_ensemble",
    "frequencies": "LabelFrequencies",
    "options": "TrainingOptions",
    "partitions": "Partition check_disjoint partition",
    "pool": "VotedPool",
    "store": "StoredVotes VoteFile VoteWriter read_votes save_votes stored_votes vote_in_parts",
    "torch": "TorchClassifier TorchEnsemble",
}
# Names of before version 0.2 are found too, and warn when they are called.
_OLD = {
    "_old_names": (
        "LabelEnsemble LabelVoteFile load_label_ensemble load_torch_ensemble load_torch_label_ensemble "
        "read_label_votes save_label_votes train_label_ensemble train_label_teachers train_teachers "
        "train_torch_ensemble train_torch_label_ensemble"
    ),
    "torch": "TorchLabelEnsemble",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME, old=_OLD)
