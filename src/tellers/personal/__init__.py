"""Personalised budgets: everybody as private as they asked to be."""

from .consent import Consent, Group, read_consent
from .dealing import budget_pure_partition, deal, teachers_per_group
from .plan import PersonalPlan
from .seating import Seating, arrange, make_plan, seat
from .upsampling import Upsampling, copies_for, upsampled_partition
from .vanishing import Vanishing, frequencies_for
from .weighting import Weighting, weights_for

__all__ = [
    "Consent",
    "Group",
    "PersonalPlan",
    "Seating",
    "Upsampling",
    "Vanishing",
    "Weighting",
    "arrange",
    "budget_pure_partition",
    "copies_for",
    "deal",
    "frequencies_for",
    "make_plan",
    "read_consent",
    "seat",
    "teachers_per_group",
    "upsampled_partition",
    "weights_for",
]
