"""Torch students: few released labels, many public rows without one, on a CPU or a GPU."""

from importlib.util import find_spec

from ...errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for torch students, found none: pip install 'tellers[torch]'")

from ...nn.views import ImageViews, RowViews
from .features import PublicFeatures
from .gan import GanStudent
from .mean_teacher import MeanTeacherStudent
from .mixmatch import MixMatchStudent, MultilabelMixMatchStudent
from .training import PublicRows
from .vat import VatStudent

__all__ = [
    "GanStudent",
    "ImageViews",
    "MeanTeacherStudent",
    "MixMatchStudent",
    "MultilabelMixMatchStudent",
    "PublicFeatures",
    "PublicRows",
    "RowViews",
    "VatStudent",
]
