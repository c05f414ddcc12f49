"""Private aggregation of teacher ensembles, with exact accounting.

Public names are loaded when first used, so `import tellers` costs nothing.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Accountant": "budget",
    "AdaptiveGNThreshold": "mechanisms.labels",
    "Binary": "mechanisms.labels",
    "Budget": "budget",
    "ConfidentBinary": "mechanisms.labels",
    "ConfidentDependentBinary": "mechanisms.labels",
    "ConfidentGNMax": "mechanisms",
    "ConfidentGNThreshold": "mechanisms.labels",
    "ConfidentPowerset": "mechanisms.labels",
    "ConfidentTau": "mechanisms.labels",
    "Cost": "release",
    "DependentBinary": "mechanisms.labels",
    "GNMax": "mechanisms",
    "GNThreshold": "mechanisms.labels",
    "Implications": "mechanisms.labels",
    "InteractiveGNMax": "mechanisms",
    "LNMax": "mechanisms",
    "LabelVotes": "label_votes",
    "MemoryLedger": "ledger",
    "NoisyHistogram": "mechanisms",
    "PartialPowerset": "mechanisms.labels",
    "PateClassifier": "estimator",
    "PateMultilabelClassifier": "estimator",
    "PostgresLedger": "ledger.sql",
    "Powerset": "mechanisms.labels",
    "RdpCurve": "rdp",
    "Relation": "relation",
    "Release": "release",
    "Room": "door",
    "SILENT": "release",
    "Sealed": "sealed",
    "SqliteLedger": "ledger",
    "Tau": "mechanisms.labels",
    "Unit": "votes",
    "Votes": "votes",
    "describe": "release",
    "exact_cost": "exact",
    "noise": "",
    "open_ledger": "ledger",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tellers' has no attribute {name!r}")
    home = _HOME[name]
    return getattr(import_module(f".{home}", __name__), name) if home else import_module(f".{name}", __name__)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
