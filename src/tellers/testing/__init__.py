"""Checks for whoever extends tellers with a mechanism, a ledger, or a way from rows to votes."""

from .. import _lazy

_HOME = {
    "FALSE_ALARM": ".mechanism",
    "Neighbours": ".neighbours",
    "TableVotes": ".neighbours",
    "check_label_mechanism": ".mechanism",
    "check_ledger": ".ledger",
    "check_mechanism": ".mechanism",
    "check_neighbours": ".neighbours",
    "random_label_votes": ".mechanism",
    "random_votes": ".mechanism",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
