"""The students: what learns from public inputs and released answers, and has never heard of a vote."""

from .. import _lazy

_HOME = {
    "fit_distilled": ".fitting",
    "fit_self_taught": ".fitting",
    "fit_semi_supervised": ".fitting",
    "fit_sum": ".sums",
    "fit_supervised": ".fitting",
    "least_confident": ".order",
    "released_frequencies": ".sums",
    "shrunk_scores": ".sums",
    "soft_targets": ".fitting",
    "typical_first": ".order",
}
__all__, _, __dir__ = _lazy(__name__, _HOME)
# A name of before version 0.2 is found too, and warns when it is called.
__getattr__ = _lazy(__name__, _HOME | {"fit_labels": ".fitting"})[1]
