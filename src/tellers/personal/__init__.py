"""Personalised budgets: everybody as private as they asked to be."""

from .consent import Consent, Group, read_consent
from .dealing import budget_pure_partition, deal, teachers_per_group
from .plan import PersonalPlan
from .weighting import Weighting, weights_for

__all__ = [
    "Consent",
    "Group",
    "PersonalPlan",
    "Weighting",
    "budget_pure_partition",
    "deal",
    "read_consent",
    "teachers_per_group",
    "weights_for",
]
