"""What votes cost: the public price, the exact cost, what may be published, plans and audits."""

from .. import _lazy

_HOME = {
    "costs": "account budget_for compared_costs public_cost stated_cost",
    "exact": "exact_cost exact_cost_of_parts teacher_costs",
    "plan": "Consensus LabelConsensus LabelPlan plan_labels sigma_for_labels",
    "plan_multilabel": (
        "Advice BallotTraits LabelProfile MultilabelPlan advise ballot_traits multilabel_settings"
    ),
    "plan_tested": "TestPlan plan_most_tested plan_test",
    "smooth": "price_2018 publish release_price",
    "sum_plan": "SumPlan plan_sum",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
