"""Checks for whoever extends tellers: do a mechanism, a ledger, a way from rows to votes keep their word?"""

from .label_mechanism import check_label_mechanism, random_label_votes
from .ledger import check_ledger
from .mechanism import FALSE_ALARM, check_mechanism, random_votes
from .neighbours import Neighbours, TableVotes, check_neighbours

__all__ = [
    "FALSE_ALARM",
    "Neighbours",
    "TableVotes",
    "check_label_mechanism",
    "check_ledger",
    "check_mechanism",
    "check_neighbours",
    "random_label_votes",
    "random_votes",
]
