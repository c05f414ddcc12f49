"""Audits: what can be proved of epsilon from outside, beside what is claimed.

A claim is an upper bound from a proof; an audit is a lower bound from releases. One above the other means
that the claim, the code or the noise is wrong. One below it shows that nothing was found, and no more.
"""

from ... import _lazy

_HOME = {
    "evidence": "Pair",
    "mechanism": "AdaptiveAsPublished MechanismAudit audit_mechanism published_claim",
    "membership": "MembershipAudit audit_membership",
    "pairs": "bad_pair",
    "sums": "audit_sum",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
