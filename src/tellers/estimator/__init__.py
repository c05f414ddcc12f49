"""The scikit-learn face: private rows go in, a student and what it cost come out."""

from ._repeats import RepeatedFitWarning
from .classifier import NoGuaranteeWarning, PateClassifier
from .multilabel import PateMultilabelClassifier

__all__ = ["NoGuaranteeWarning", "PateClassifier", "PateMultilabelClassifier", "RepeatedFitWarning"]
