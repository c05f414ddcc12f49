"""Implications from public label sets, and the two tables about them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tellers import SILENT, Binary, Budget, DependentBinary, LabelVotes, noise
from tellers.runs import dependency_table, inference_report, learn_implications
from tellers.runs.dependencies import compare_mechanisms
from tellers.runs.labelling import Labels

tables = arrays(np.int64, (12, 4), elements=st.integers(0, 1))


@given(tables, st.sampled_from(["negative", "positive"]))
def test_the_table_is_a_share_of_rows(table, kind):
    share = dependency_table(table, kind=kind)
    value = 1 if kind == "positive" else 0
    for cause in range(4):
        for effect in range(4):
            rows = table[table[:, cause] == value]
            if cause == effect or not len(rows):
                assert np.isnan(share[cause, effect])
            else:
                assert share[cause, effect] == pytest.approx((rows[:, effect] == value).mean())


@given(tables, st.sampled_from([0.6, 0.8, 1.0]), st.integers(1, 6))
def test_what_is_learned_is_sure_enough_and_has_no_cycle(table, sure, n_rows):
    found = learn_implications(table, min_confidence=sure, min_rows=n_rows)
    for kind, value in (("positive", 1), ("negative", 0)):
        share = dependency_table(table, kind=kind)
        for cause, effect in getattr(found, kind):
            assert share[cause, effect] >= sure
            assert (table[:, cause] == value).sum() >= n_rows
    assert found.levels  # an order exists, or it would have been refused


def test_the_surer_of_two_that_close_a_cycle_is_kept():
    # Without A there is never B; without B there is A once in four.
    table = np.array([[0, 0]] * 30 + [[1, 0]] * 10 + [[1, 1]] * 10)
    found = learn_implications(table, min_confidence=0.7, kinds=("negative",), names=("A", "B"))
    assert found.negative == ((0, 1),)
    assert found.names == ("A", "B")


@pytest.mark.parametrize("settings", [{"min_confidence": 0.5}, {"min_confidence": 1.1}, {"min_rows": 0}])
def test_what_cannot_be_meant_is_refused(settings):
    with pytest.raises(ValueError, match="Expected"):
        learn_implications([[0, 1], [1, 0]], **settings)
    with pytest.raises(ValueError, match="Expected 0 or 1"):
        learn_implications([[0, 2], [1, 0]])


def test_the_report_counts_questions_and_right_answers():
    labels = np.array([[0, 0, 0], [1, SILENT, 1]])
    told = np.array([[True, False, False], [True, False, True]])
    released = Labels(np.array([0, 1]), labels, told)
    report = inference_report(released, truth=[[0, 0, 1], [1, 1, 0]])
    assert (report.n_questions, report.n_asked, report.n_inferred) == (6, 4, 2)
    assert report.share_saved == pytest.approx(1 / 3)
    assert (report.inferred_right, report.told_right) == (0.5, pytest.approx(2 / 3))
    blank = inference_report(released)
    assert (blank.inferred_right, blank.told_right) == (None, None)
    with pytest.raises(ValueError, match="rows x labels"):
        inference_report(Labels(np.array([0]), np.array([1]), np.array([True])))


def test_more_queries_at_a_lower_accuracy_where_one_does_not_ask():
    """The paper's table 4 in form, on labels that follow from the first one nearly always."""
    rng = np.random.default_rng(7)
    root = rng.random(400) < 0.4
    truth = np.stack([root, *(root & (rng.random(400) < 0.5) for _ in range(3))], axis=1).astype(int)
    flips = rng.random((50, 400, 4)) < 0.15
    votes = LabelVotes.from_ballots(np.where(flips, 1 - truth, truth), n_labels=4)
    public = truth[:200]
    found = learn_implications(public, min_confidence=0.95, kinds=("negative",))
    assert {(0, 1), (0, 2), (0, 3)} <= set(found.negative)
    few = DependentBinary(sigma=7.0, n_labels=4, negative=((0, 1), (0, 2), (0, 3)))
    table = compare_mechanisms(
        {"all": Binary(sigma=7.0, n_labels=4), "noise": Binary(sigma=14.0, n_labels=4), "few": few},
        votes, truth, budget=Budget(epsilon=8.0, delta=1e-5), noise=noise.seeded(7),
    ).reveal()  # fmt: skip
    plain, noisy, fewer = table
    assert fewer["n_queries"] > 1.3 * plain["n_queries"]
    assert fewer["balanced_accuracy"] > noisy["balanced_accuracy"]
    assert (plain["share_saved"], fewer["share_saved"] > 0.3) == (0.0, True)
    broke = compare_mechanisms(
        {"all": Binary(sigma=0.5, n_labels=4)}, votes, truth, budget=Budget(0.1, 1e-5), noise=noise.seeded(7)
    ).reveal()
    assert broke == [{"name": "all", "n_queries": 0}]
