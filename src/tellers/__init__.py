"""Private aggregation of teacher ensembles, with exact accounting.

Public names are loaded when first used, so `import tellers` costs nothing.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.2.0"


def _lazy(
    package: str, homes: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package whose names are loaded when first used."""

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name], package)
        return home if homes[name] == f".{name}" else getattr(home, name)

    names = sorted(homes)
    return names, load, lambda: names


_HOME = {
    "Accountant": ".privacy",
    "AdaptiveGNThreshold": ".mechanisms",
    "Binary": ".mechanisms",
    "Budget": ".privacy",
    "ConfidentBinary": ".mechanisms",
    "ConfidentDependentBinary": ".mechanisms",
    "ConfidentGNMax": ".mechanisms",
    "ConfidentGNThreshold": ".mechanisms",
    "ConfidentPowerset": ".mechanisms",
    "ConfidentTau": ".mechanisms",
    "Cost": ".privacy",
    "DependentBinary": ".mechanisms",
    "GNMax": ".mechanisms",
    "GNThreshold": ".mechanisms",
    "Implications": ".mechanisms",
    "InteractiveGNMax": ".mechanisms",
    "LNMax": ".mechanisms",
    "LabelVotes": ".privacy",
    "MemoryLedger": ".ledger",
    "NoisyHistogram": ".mechanisms",
    "OneOf": ".privacy",
    "PartialPowerset": ".mechanisms",
    "PateClassifier": ".runs",
    "PateMultilabelClassifier": ".runs",
    "PostgresLedger": ".ledger.sql",
    "Powerset": ".mechanisms",
    "RdpCurve": ".privacy",
    "Relation": ".privacy",
    "Release": ".privacy",
    "Room": ".runs",
    "SILENT": ".privacy",
    "Sealed": ".privacy",
    "SetOf": ".privacy",
    "SqliteLedger": ".ledger",
    "Tau": ".mechanisms",
    "Unit": ".privacy",
    "Votes": ".privacy",
    "describe": ".privacy",
    "exact_cost": ".accounting",
    "noise": ".privacy",
    "open_ledger": ".ledger",
}
__all__, __getattr__, _names = _lazy(__name__, _HOME)


def __dir__() -> list[str]:
    return [*_names(), "__version__"]


class _OldNames:
    """Finds modules by the names they had before 0.2, after everything else was tried."""

    @staticmethod
    def find_spec(name: str, _path: Any = None, _target: Any = None) -> Any:
        return (
            import_module(".runs._old_names", __name__).find_old(name)
            if name.startswith("tellers.")
            else None
        )


sys.meta_path.append(_OldNames)
