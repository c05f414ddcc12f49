"""Which rows a student is least sure of. How they are asked for is tested with the labelling of pools."""

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier

from tellers.students import least_confident


class Fixed:
    """A fitted student with probabilities as they are given."""

    def predict_proba(self, X):
        return np.asarray(X)


def test_the_least_confident_come_first():
    pool = [[0.9, 0.1], [0.5, 0.5], [0.3, 0.7], [0.5, 0.5]]
    assert least_confident(Fixed(), pool, 3).tolist() == [1, 3, 2]
    assert least_confident(Fixed(), pool, 9).tolist() == [1, 3, 2, 0]
    assert least_confident(Fixed(), pool, 0).tolist() == []
    assert least_confident(Fixed(), pool, 1).dtype == np.int64


def test_margins_do_where_there_are_no_probabilities():
    two = RidgeClassifier().fit([[0.0], [1.0]], [0, 1])
    assert least_confident(two, [[0.0], [0.45], [2.0]], 2).tolist() == [1, 0]

    class Three:
        def decision_function(self, X):
            return np.array([[5.0, 4.9, 0.0], [1.0, 0.0, 0.0], [0.0, 0.2, 0.5]])

    assert least_confident(Three(), np.zeros((3, 1)), 3).tolist() == [0, 2, 1]
    with pytest.raises(TypeError, match="predict_proba or decision_function, got object"):
        least_confident(object(), [[0.0]], 1)
