"""Torch students: few released labels, many public rows without one, on a CPU or a GPU."""

from importlib.util import find_spec

from ...errors import MissingExtra

if find_spec("torch") is None:
    raise MissingExtra("Expected torch for torch students, found none: pip install 'tellers[torch]'")

from .features import PublicFeatures
from .gan import GanStudent
from .lesson import PublicRows
from .mean_teacher import MeanTeacherStudent
from .mixmatch import MixMatchStudent
from .multilabel import MultilabelMixMatchStudent
from .vat import VatStudent
from .views import ImageViews, RowViews

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
