"""Attacks on students: what scores prove, and how rarely they prove too much."""

import numpy as np
import pytest
from scipy.stats import binom

from tellers.accounting.audit import audit_membership
from tellers.accounting.audit.membership import area_under_curve


def test_false_alarms_are_as_rare_as_stated():
    """400 audits at confidence 0.8 of scores whose epsilon is 1: this fails with chance below 1e-6."""
    rng = np.random.default_rng(7)
    share = np.exp(1.0) / (1 + np.exp(1.0))  # randomised response: epsilon is exactly 1 at delta 0
    found = []
    for _ in range(400):
        coin, other = rng.random(120) < share, rng.random(120) < 1 - share
        scores = {"coin": coin.astype(float), "noise": rng.normal(size=120)}
        without = {"coin": other.astype(float), "noise": rng.normal(size=120)}
        found.append(audit_membership(scores, without, claim=1.0, delta=1e-9, confidence=0.8).epsilon)
    assert sum(epsilon > 1.0 for epsilon in found) <= binom.ppf(1 - 1e-6, 400, 0.2)
    assert np.median(found) > 0.1


def test_the_better_attack_is_chosen():
    rng = np.random.default_rng(7)
    there = {"weak": rng.normal(0.2, 1, 300), "strong": rng.normal(4, 1, 300)}
    gone = {"weak": rng.normal(0, 1, 300), "strong": rng.normal(0, 1, 300)}
    audit = audit_membership(there, gone, claim=0.5, delta=1e-5)
    assert audit.attack == "strong"
    assert audit.auc > 0.98
    assert not audit.holds
    assert 0.5 < audit.epsilon <= audit.ceiling
    assert "The claim does not hold" in audit.summary


def test_an_attack_that_knows_nothing_proves_nothing():
    """With one seed; at this confidence something would be proved with chance at most 1e-6."""
    rng = np.random.default_rng(7)
    audit = audit_membership(
        {"noise": rng.normal(size=500)}, {"noise": rng.normal(size=500)}, claim=0.0, delta=1e-5,
        confidence=1 - 1e-6,
    )  # fmt: skip
    assert audit.epsilon == 0.0
    assert audit.holds
    assert 0.4 < audit.auc < 0.6


def test_a_perfect_attack_reaches_the_ceiling():
    audit = audit_membership({"all": np.ones(200)}, {"all": np.zeros(200)}, claim=9.0, delta=1e-5)
    assert audit.auc == 1.0
    assert audit.epsilon == pytest.approx(audit.ceiling)


def test_the_area_is_that_of_comparing_all_with_all():
    rng = np.random.default_rng(7)
    here, there = rng.integers(0, 5, 30), rng.integers(0, 5, 20)
    pairs = (here[:, None] > there).mean() + 0.5 * (here[:, None] == there).mean()
    assert area_under_curve(here, there) == pytest.approx(pairs)


def test_scores_that_do_not_fit_are_refused():
    few = {"loss": [1.0, 2.0]}
    with pytest.raises(ValueError, match="at least 4 scores"):
        audit_membership(few, few, claim=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="of the same attacks"):
        audit_membership({"loss": np.ones(9)}, {"other": np.ones(9)}, claim=1.0, delta=1e-5)
    with pytest.raises(ValueError, match="none of them NaN"):
        audit_membership({"loss": [np.nan] * 9}, {"loss": np.ones(9)}, claim=1.0, delta=1e-5)
