"""The scikit-learn face: private rows go in, a student and what it cost come out."""

from .classifier import NoGuaranteeWarning, PateClassifier

__all__ = ["NoGuaranteeWarning", "PateClassifier"]
