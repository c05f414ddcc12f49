"""The mechanisms: how votes become outcomes.

`MECHANISMS` maps the names used in files and on command lines to classes; code passes objects. The noisy
histogram has no name there: the command line prices labels. `EVENTS` maps the names that stored events hold.
"""

from .base import Mechanism
from .confident import ConfidentGNMax
from .gnmax import GNMax
from .histogram import NoisyHistogram
from .interactive import InteractiveGNMax
from .lnmax import LNMax

MECHANISMS: dict[str, type] = {
    "confident": ConfidentGNMax,
    "gnmax": GNMax,
    "interactive": InteractiveGNMax,
    "lnmax": LNMax,
}
EVENTS: dict[str, type] = {kind.__name__: kind for kind in (*MECHANISMS.values(), NoisyHistogram)}

__all__ = [
    "EVENTS",
    "MECHANISMS",
    "ConfidentGNMax",
    "GNMax",
    "InteractiveGNMax",
    "LNMax",
    "Mechanism",
    "NoisyHistogram",
]
