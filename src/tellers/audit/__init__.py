"""Audits: what can be proved of epsilon from outside, beside what is claimed.

A claim is an upper bound from a proof; an audit is a lower bound from releases. One above the other means
that the claim, the code or the noise is wrong. One below it shows that nothing was found, and no more.
"""

from .law import Pair
from .mechanism import MechanismAudit, audit_mechanism
from .membership import MembershipAudit, audit_membership
from .pairs import bad_pair
from .published import AdaptiveAsPublished, published_claim

__all__ = [
    "AdaptiveAsPublished",
    "MechanismAudit",
    "MembershipAudit",
    "Pair",
    "audit_mechanism",
    "audit_membership",
    "bad_pair",
    "published_claim",
]
