"""Mechanisms for many labels per example: what leaves is a yes, a no or a silence for every label."""

from ... import _lazy

_HOME = {
    "adaptive": "AdaptiveGNThreshold",
    "binary": "Binary ConfidentBinary",
    "dependent": "ConfidentDependentBinary DependentBinary Implications",
    "gnthreshold": "ConfidentGNThreshold GNThreshold",
    "powerset": "ConfidentPowerset PartialPowerset Powerset",
    "tau": "ConfidentTau Tau",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
