"""The mechanisms: how votes become outcomes.

`MECHANISMS` maps the names used in files and on command lines to classes; code passes objects. The noisy
histogram has no name there: the command line prices labels. `LABEL_MECHANISMS` has the names of those that
answer with many labels. `EVENTS` maps the names that stored events hold.
"""

from .base import Mechanism
from .confident import ConfidentGNMax
from .gnmax import GNMax
from .histogram import NoisyHistogram
from .interactive import InteractiveGNMax
from .labels import (
    AdaptiveGNThreshold,
    Binary,
    ConfidentBinary,
    ConfidentDependentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    DependentBinary,
    GNThreshold,
    PartialPowerset,
    Powerset,
    Tau,
)
from .lnmax import LNMax

MECHANISMS: dict[str, type] = {
    "confident": ConfidentGNMax,
    "gnmax": GNMax,
    "interactive": InteractiveGNMax,
    "lnmax": LNMax,
}
LABEL_MECHANISMS: dict[str, type] = {
    "adaptive-gnthreshold": AdaptiveGNThreshold,
    "binary": Binary,
    "confident-binary": ConfidentBinary,
    "confident-gnthreshold": ConfidentGNThreshold,
    "confident-powerset": ConfidentPowerset,
    "confident-tau": ConfidentTau,
    "gnthreshold": GNThreshold,
    "partial-powerset": PartialPowerset,
    "powerset": Powerset,
    "tau": Tau,
}
_UNNAMED = (NoisyHistogram, DependentBinary, ConfidentDependentBinary)
EVENTS: dict[str, type] = {
    kind.__name__: kind for kind in (*MECHANISMS.values(), *LABEL_MECHANISMS.values(), *_UNNAMED)
}

__all__ = [
    "EVENTS",
    "LABEL_MECHANISMS",
    "MECHANISMS",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "Mechanism",
    "NoisyHistogram",
]
