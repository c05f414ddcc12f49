"""The students: what learns from public inputs and released answers, and has never heard of a vote."""

from .. import _lazy

_HOME = {
    "fitting": "fit_distilled fit_self_taught fit_semi_supervised fit_supervised soft_targets",
    "order": "least_confident typical_first",
    "sums": "fit_sum released_frequencies shrunk_scores",
}
# A name of before version 0.2 is found too, and warns when it is called.
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME, old={"fitting": "fit_labels"})
