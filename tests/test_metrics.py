"""Numbers of many labels agree with scikit-learn's, leave silence out, and say what is undefined."""

import numpy as np
import pytest
import sklearn.metrics as theirs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tellers import SILENT, Sealed
from tellers.data import measure, tune_thresholds
from tellers.data.metrics import LabelCounts, auc, average_precision, balanced_accuracy, micro_f1

SHAPE = (9, 3)
zeros_and_ones = arrays(np.int64, SHAPE, elements=st.integers(0, 1))
answers = arrays(np.int64, SHAPE, elements=st.integers(SILENT, 1))
# Few different values, so that ties are common.
ranks = arrays(np.float64, SHAPE, elements=st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0]))


@given(zeros_and_ones, answers, ranks)
def test_scikit_learn_agrees_label_by_label(truth, said, scores):
    counts = LabelCounts.of(truth, said)
    ours = {
        "accuracy": counts.accuracy,
        "balanced_accuracy": balanced_accuracy(truth, said),
        "f1": counts.f1,
        "auc": auc(truth, scores),
        "average_precision": average_precision(truth, scores),
    }
    for label in range(SHAPE[1]):
        told = said[:, label] != SILENT
        y, p, s = truth[told, label], said[told, label], scores[:, label]
        if told.any():
            assert ours["accuracy"][label] == pytest.approx(theirs.accuracy_score(y, p))
        if len(set(y)) == 2:
            wanted = theirs.balanced_accuracy_score(y, p)
            assert ours["balanced_accuracy"][label] == pytest.approx(wanted)
        else:
            assert np.isnan(ours["balanced_accuracy"][label])
        if (y | p).any():
            assert ours["f1"][label] == pytest.approx(theirs.f1_score(y, p))
        else:
            assert np.isnan(ours["f1"][label])
        if len(set(truth[:, label])) == 2:
            assert ours["auc"][label] == pytest.approx(theirs.roc_auc_score(truth[:, label], s))
            wanted = theirs.average_precision_score(truth[:, label], s)
            assert ours["average_precision"][label] == pytest.approx(wanted)
        else:
            assert np.isnan(ours["auc"][label])


@given(zeros_and_ones, zeros_and_ones)
def test_micro_f1_counts_all_labels_together(truth, said):
    ours = micro_f1(truth, said)
    if (truth | said).any():
        assert ours == pytest.approx(theirs.f1_score(truth, said, average="micro"))
    else:
        assert np.isnan(ours)


def test_all_numbers_at_once_and_what_they_leave_out():
    truth = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 0], [0, 0, 0]])
    said = np.array([[1, 0, 1], [0, 1, SILENT], [0, 0, 0], [0, 0, SILENT]])
    result = measure(truth, said)
    assert result.accuracy == pytest.approx((3 / 4 + 3 / 4 + 1) / 3)
    assert result.balanced_accuracy == pytest.approx((0.75 + 1.0) / 2)  # label 1 has no positives
    assert result.auc == pytest.approx(result.balanced_accuracy)  # 0 and 1 rank as they are
    assert result.undefined == {"balanced_accuracy": (1,), "auc": (1,), "average_precision": (1,)}
    assert result.n_silent == 2
    assert result.notes[0] == "2 silent entries were left out."
    ranked = measure(truth, said, scores=np.linspace(0, 1, 12).reshape(4, 3))
    assert ranked.auc != result.auc
    assert ranked.accuracy == result.accuracy


def test_silence_alone_has_no_numbers():
    result = measure([[1, 0]], [[SILENT, SILENT]])
    assert np.isnan(result.accuracy)
    assert result.undefined["accuracy"] == (0, 1)


@pytest.mark.parametrize(
    ("truth", "said"),
    [([[0, 2]], [[0, 1]]), ([[0, 1]], [[0, 3]]), ([[0, 1]], [[0, 1, 1]]), ([0, 1], [0, 1]), ([[]], [[]])],
)
def test_what_is_no_table_of_labels_is_refused(truth, said):
    with pytest.raises(ValueError, match="Expected"):
        measure(truth, said)


@pytest.mark.parametrize("metric", ["balanced_accuracy", "accuracy", "f1"])
def test_no_threshold_does_better_than_the_one_found(metric):
    rng = np.random.default_rng(7)
    truth = (rng.random((200, 4)) < 0.3).astype(int)
    chances = np.clip(0.3 * truth + rng.random((200, 4)) * 0.5, 0, 1)
    found = tune_thresholds(chances, truth, metric=metric)

    def number(truth, said):
        return getattr(LabelCounts.of(truth, said), metric)

    best = number(truth, (chances >= found).astype(int))
    for threshold in np.arange(1, 100) / 100:
        assert (number(truth, (chances >= threshold).astype(int)) <= best + 1e-9).all()
    assert (best >= number(truth, (chances >= 0.5).astype(int))).all()


def test_what_teachers_say_is_not_tuned_on():
    with pytest.raises(TypeError, match="learned from private rows"):
        tune_thresholds(Sealed(np.zeros((2, 2))), [[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="Expected metric"):
        tune_thresholds([[0.5]], [[1]], metric="luck")
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        tune_thresholds([[1.5]], [[1]])
    assert tune_thresholds([[0.7], [0.9]], [[1], [1]]).tolist() == [0.5]  # undefined: one half stays


def test_precision_and_recall_are_those_of_an_independent_implementation():
    from sklearn.metrics import precision_recall_fscore_support

    from tellers.data.metrics import precision_recall

    generator = np.random.default_rng(7)
    truth, said = generator.integers(2, size=(2, 80, 4))
    ours = precision_recall(truth, said)
    theirs = precision_recall_fscore_support(truth, said, average=None)
    for one, other in zip((ours.precision, ours.recall, ours.f1), theirs):
        assert np.allclose(one, other)
    for average in ("macro", "micro"):
        theirs = precision_recall_fscore_support(truth, said, average=average)[:3]
        mine = [getattr(ours, f"{average}_{name}") for name in ("precision", "recall", "f1")]
        assert np.allclose(mine, theirs)
