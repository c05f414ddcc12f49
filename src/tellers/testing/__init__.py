"""Checks for whoever extends tellers: does a mechanism, or a ledger, keep its promises?"""

from .label_mechanism import check_label_mechanism, random_label_votes
from .ledger import check_ledger
from .mechanism import FALSE_ALARM, check_mechanism, random_votes

__all__ = [
    "FALSE_ALARM",
    "check_label_mechanism",
    "check_ledger",
    "check_mechanism",
    "random_label_votes",
    "random_votes",
]
