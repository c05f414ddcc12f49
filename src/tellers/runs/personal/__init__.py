"""Personalised budgets: everybody as private as they asked to be."""

from ... import _lazy

_HOME = {
    "accounting": "Asked published_rows",
    "assignment": "GroupAssignment arrange assign_by_plan make_plan plan_as_dict plan_from_dict",
    "consent": "Consent Group read_consent",
    "plan": "PersonalPlan",
    "publishing": "publish_group_costs",
    "rounds": "Rounds rounds_on",
    "variants": (
        "Upsampling Vanishing Weighting budget_pure_partition copies_for deal frequencies_for "
        "teachers_per_group upsampled_partition weights_for"
    ),
}
# Names of before version 0.2 are found too.
_OLD = {
    "assignment": "Seating seat",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME, old=_OLD)
