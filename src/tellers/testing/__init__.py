"""Checks for whoever extends tellers with a mechanism, a ledger, or a way from rows to votes."""

from .. import _lazy

_HOME = {
    "ledger": "check_ledger",
    "mechanism": "FALSE_ALARM check_label_mechanism check_mechanism random_label_votes random_votes",
    "neighbours": "Neighbours TableVotes check_neighbours",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
