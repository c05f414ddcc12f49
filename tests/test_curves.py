"""Curves, against an independent implementation."""

import numpy as np
import pytest
from sklearn.metrics import precision_recall_curve, roc_curve

from tellers.data.metrics import best_and_worst, label_curves


def test_curves_lie_on_those_of_an_independent_implementation():
    generator = np.random.default_rng(7)
    truth = generator.integers(2, size=(60, 3))
    scores = generator.integers(12, size=(60, 3)) / 12  # with many ties
    for curve in label_curves(truth, scores):
        precision, recall, thresholds = precision_recall_curve(truth[:, curve.label], scores[:, curve.label])
        # Theirs ascends and ends with a point that no threshold has.
        assert np.allclose(curve.thresholds, thresholds[::-1])
        assert np.allclose(curve.precision, precision[-2::-1])
        assert np.allclose(curve.recall, recall[-2::-1])
        alarms, hits, _ = roc_curve(truth[:, curve.label], scores[:, curve.label], drop_intermediate=False)
        assert np.allclose(curve.false_alarms, alarms[1:])
        assert np.allclose(curve.recall, hits[1:])
        steps = np.diff(np.concatenate([[0.0], curve.recall]))
        assert np.isclose((steps * curve.precision).sum(), curve.area)


def test_labels_without_a_yes_or_a_no_have_no_curve():
    curves = label_curves([[1, 0, 1], [0, 0, 1]], [[0.3, 0.2, 0.1], [0.1, 0.2, 0.3]])
    assert [curve.label for curve in curves] == [0]
    assert best_and_worst([np.nan, 0.4, 0.6]) == ([2, 1], [1, 2])
    with pytest.raises(ValueError, match="n_labels >= 1"):
        best_and_worst([0.4], n_labels=0)
