"""Personalised budgets: everybody as private as they asked to be."""

from ... import _lazy

_HOME = {
    "Asked": ".accounting",
    "Consent": ".consent",
    "Group": ".consent",
    "GroupAssignment": ".assignment",
    "PersonalPlan": ".plan",
    "Rounds": ".rounds",
    "Upsampling": ".variants",
    "Vanishing": ".variants",
    "Weighting": ".variants",
    "arrange": ".assignment",
    "assign_by_plan": ".assignment",
    "budget_pure_partition": ".variants",
    "copies_for": ".variants",
    "deal": ".variants",
    "frequencies_for": ".variants",
    "make_plan": ".assignment",
    "plan_as_dict": ".assignment",
    "plan_from_dict": ".assignment",
    "publish_group_costs": ".publishing",
    "published_rows": ".accounting",
    "read_consent": ".consent",
    "rounds_on": ".rounds",
    "teachers_per_group": ".variants",
    "upsampled_partition": ".variants",
    "weights_for": ".variants",
}
# Names of before version 0.2 are found too.
_OLD = {"Seating": ".assignment", "seat": ".assignment"}
__all__, _, __dir__ = _lazy(__name__, _HOME)
__getattr__ = _lazy(__name__, _HOME | _OLD)[1]
