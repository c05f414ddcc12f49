"""The planner: what a setting will give and cost, computed on public votes before private ones are asked."""

from .consensus import Consensus
from .label_consensus import LabelConsensus
from .labels import LabelPlan, plan_labels, sigma_for_labels
from .publication import plan_group_publication, plan_publication

__all__ = [
    "Consensus",
    "LabelConsensus",
    "LabelPlan",
    "plan_group_publication",
    "plan_labels",
    "plan_publication",
    "sigma_for_labels",
]
