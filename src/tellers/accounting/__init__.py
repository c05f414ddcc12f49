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
    "account": ".costs",
    "advise": ".plan_multilabel",
    "ballot_traits": ".plan_multilabel",
    "budget_for": ".public",
    "compared_costs": ".public",
    "exact_cost": ".exact",
    "exact_cost_of_parts": ".exact",
    "multilabel_settings": ".plan_multilabel",
    "plan_labels": ".plan",
    "price_2018": ".smooth",
    "public_cost": ".public",
    "publish": ".smooth",
    "release_price": ".smooth",
    "sigma_for_labels": ".plan",
    "stated_cost": ".public",
    "teacher_costs": ".exact",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
