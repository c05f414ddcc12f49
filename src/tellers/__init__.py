"""Private aggregation of teacher ensembles, with exact accounting.

Public names are loaded when first used, so `import tellers` costs nothing.
"""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.2.0"


def _lazy(
    package: str, homes: Mapping[str, str], *, old: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package whose names are loaded when first used.

    `homes` are the names that each module has; those of `old` are found too, and not listed.
    """
    names = sorted(name for told in homes.values() for name in told.split())
    places = {name: home for home, told in [*homes.items(), *(old or {}).items()] for name in told.split()}

    def load(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(f".{places[name]}", package)
        return home if places[name] == name else getattr(home, name)

    return names, load, lambda: names


_HOME = {
    "accounting": "exact_cost",
    "ledger": "MemoryLedger SqliteLedger open_ledger",
    "ledger.sql": "PostgresLedger",
    "mechanisms": (
        "AdaptiveGNThreshold Binary ConfidentBinary ConfidentDependentBinary ConfidentGNMax "
        "ConfidentGNThreshold ConfidentPowerset ConfidentTau DependentBinary GNMax GNThreshold Implications "
        "InteractiveGNMax LNMax NoisyHistogram PartialPowerset Powerset Tau"
    ),
    "privacy": (
        "Accountant Budget Cost LabelVotes OneOf RdpCurve Relation Release SILENT Sealed SetOf Unit Votes "
        "describe noise"
    ),
    "runs": "PateClassifier PateMultilabelClassifier Room",
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
