"""Torch students: few released labels, many public rows without one, on a CPU or a GPU."""

from importlib.util import find_spec

from ... import _lazy
from ...errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for torch students, found none: pip install 'tellers[torch]'")

_HOME = {
    "..nn.views": "ImageViews RowViews",
    "features": "PublicFeatures",
    "gan": "GanStudent",
    "mean_teacher": "MeanTeacherStudent",
    "mixmatch": "MixMatchStudent MultilabelMixMatchStudent",
    "training": "PublicRows",
    "vat": "VatStudent",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
