"""What votes cost: the public price, the exact cost, what may be published, plans and audits."""

from .. import _lazy

_HOME = {
    "Advice": ".plan_multilabel",
    "BallotTraits": ".plan_multilabel",
    "Consensus": ".plan",
    "LabelConsensus": ".plan",
    "LabelPlan": ".plan",
    "LabelProfile": ".plan_multilabel",
    "MultilabelPlan": ".plan_multilabel",
    "SumPlan": ".sum_plan",
    "TestPlan": ".plan_tested",
    "account": ".costs",
    "advise": ".plan_multilabel",
    "ballot_traits": ".plan_multilabel",
    "budget_for": ".costs",
    "compared_costs": ".costs",
    "exact_cost": ".exact",
    "exact_cost_of_parts": ".exact",
    "multilabel_settings": ".plan_multilabel",
    "plan_labels": ".plan",
    "plan_most_tested": ".plan_tested",
    "plan_sum": ".sum_plan",
    "plan_test": ".plan_tested",
    "price_2018": ".smooth",
    "public_cost": ".costs",
    "publish": ".smooth",
    "release_price": ".smooth",
    "sigma_for_labels": ".plan",
    "stated_cost": ".costs",
    "teacher_costs": ".exact",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
