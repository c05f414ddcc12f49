"""The students: what learns from public inputs and released answers, and has never heard of a vote."""

from .active import least_confident
from .distil import fit_distilled, soft_targets
from .labels import fit_labels
from .self_taught import fit_self_taught
from .semi_supervised import fit_semi_supervised
from .supervised import fit_supervised
from .typical import typical_first

__all__ = [
    "fit_distilled",
    "fit_labels",
    "fit_self_taught",
    "fit_semi_supervised",
    "fit_supervised",
    "least_confident",
    "soft_targets",
    "typical_first",
]
