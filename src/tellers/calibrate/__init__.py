"""The planner: what a setting will give and cost, computed on public votes before private ones are asked."""

from .consensus import Consensus
from .label_consensus import LabelConsensus
from .label_profile import BallotTraits, LabelProfile, ballot_traits
from .labels import LabelPlan, plan_labels, sigma_for_labels
from .multilabel import Advice, MultilabelPlan, advise, multilabel_settings
from .publication import plan_group_publication, plan_publication

__all__ = [
    "Advice",
    "BallotTraits",
    "Consensus",
    "LabelConsensus",
    "LabelPlan",
    "LabelProfile",
    "MultilabelPlan",
    "advise",
    "ballot_traits",
    "multilabel_settings",
    "plan_group_publication",
    "plan_labels",
    "plan_publication",
    "sigma_for_labels",
]
