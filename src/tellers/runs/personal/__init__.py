"""Personalised budgets: everybody as private as they asked to be."""

from ... import _lazy

_HOME = {
    "Asked": ".accounting",
    "Consent": ".consent",
    "Group": ".consent",
    "PersonalPlan": ".plan",
    "Rounds": ".rounds",
    "Seating": ".seating",
    "Upsampling": ".variants",
    "Vanishing": ".variants",
    "Weighting": ".variants",
    "arrange": ".seating",
    "budget_pure_partition": ".variants",
    "copies_for": ".variants",
    "deal": ".variants",
    "frequencies_for": ".variants",
    "make_plan": ".seating",
    "plan_as_dict": ".seating",
    "plan_from_dict": ".seating",
    "publish_group_costs": ".publishing",
    "published_rows": ".accounting",
    "read_consent": ".consent",
    "rounds_on": ".rounds",
    "seat": ".seating",
    "teachers_per_group": ".variants",
    "upsampled_partition": ".variants",
    "weights_for": ".variants",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
