"""The students: what learns from public inputs and released answers, and has never heard of a vote."""

from .active import least_confident
from .distil import fit_distilled, soft_targets
from .labels import fit_labels
from .supervised import fit_supervised

__all__ = ["fit_distilled", "fit_labels", "fit_supervised", "least_confident", "soft_targets"]
