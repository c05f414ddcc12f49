"""Mechanisms for many labels per example: what leaves is a yes, a no or a silence for every label."""

from .adaptive import AdaptiveGNThreshold
from .binary import Binary, ConfidentBinary
from .dependent import ConfidentDependentBinary, DependentBinary, Implications
from .gnthreshold import ConfidentGNThreshold, GNThreshold
from .powerset import ConfidentPowerset, PartialPowerset, Powerset
from .tau import ConfidentTau, Tau

__all__ = [
    "AdaptiveGNThreshold",
    "Binary",
    "ConfidentBinary",
    "ConfidentDependentBinary",
    "ConfidentGNThreshold",
    "ConfidentPowerset",
    "ConfidentTau",
    "DependentBinary",
    "GNThreshold",
    "Implications",
    "PartialPowerset",
    "Powerset",
    "Tau",
]
