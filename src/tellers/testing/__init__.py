"""Checks for whoever extends tellers: does a mechanism, or a ledger, keep its promises?"""

from .ledger import check_ledger
from .mechanism import FALSE_ALARM, check_mechanism, random_votes

__all__ = ["FALSE_ALARM", "check_ledger", "check_mechanism", "random_votes"]
