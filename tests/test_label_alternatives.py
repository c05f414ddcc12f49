"""The dearest other ballot, found without looking at all of them, against looking at all of them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import LabelVotes
from tellers.accounting._label_exact import _Choice, dearest_alternatives
from tellers.mechanisms import ConfidentTau, GNThreshold, Tau
from tellers.mechanisms.divergence import pair_divergences
from tellers.mechanisms.labels._outcomes import LabelOutcomes

ORDERS = np.array([1.5, 4.0, 32.0, 256.0])


def by_looking(outcomes: LabelOutcomes) -> np.ndarray:
    """The largest sum of divergences over every allowed ballot, one after the other."""
    k, values = outcomes.rule.n_labels, outcomes.rule.values
    result = np.zeros((2, len(outcomes.ballots), ORDERS.size))
    for row, (own, query) in enumerate(zip(outcomes.ballots, outcomes.query, strict=True)):
        sums = outcomes.sums[query]
        for ones, value in enumerate(values):
            for labels in combinations(range(k), ones):
                other = np.zeros(k, dtype=np.int64)
                other[list(labels)] = value
                here, there = (outcomes.law.log_outcomes(total) for total in (sums, sums - own + other))
                result[:, row] = np.maximum(result[:, row], pair_divergences(here, there, ORDERS).sum(axis=1))
    return result


@st.composite
def elections(draw):
    n_labels, n_teachers = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    seed = draw(st.integers(0, 2**32 - 1))
    sure = draw(st.sampled_from([0.1, 0.5, 0.9]))
    rng = np.random.default_rng(seed)
    shape = (n_teachers, draw(st.integers(1, 3)), n_labels)
    sigma = draw(st.sampled_from([0.7, 2.0, 6.0]))
    kind = draw(st.sampled_from(["l2", "l1", "bar", "few", "shares"]))
    yes = (rng.random(shape) < sure).astype(np.int64)
    if kind in ("few", "shares"):
        votes = LabelVotes.from_ballots(yes, n_labels=n_labels)
        if kind == "shares":
            votes = LabelVotes.from_probabilities(rng.random(shape), n_labels=n_labels)
        most = draw(st.integers(1, n_labels))
        return GNThreshold(sigma=sigma, n_labels=n_labels, max_labels=most), votes
    votes = LabelVotes.from_ballots(yes, n_labels=n_labels)
    norm = draw(st.sampled_from([0.6, 1.0, 1.5, 2.3]))
    if kind == "bar":
        height = draw(st.integers(0, n_teachers + 1))
        return ConfidentTau(sigma, n_labels, max_norm=norm, threshold=height, sigma_threshold=sigma), votes
    return Tau(sigma, n_labels, max_norm=norm, norm=kind), votes


@settings(max_examples=90, deadline=None)
@given(elections())
def test_no_ballot_is_dearer(election):
    mechanism, votes = election
    outcomes = mechanism.outcomes(votes)
    found = dearest_alternatives(outcomes, ORDERS)
    np.testing.assert_allclose(found, by_looking(outcomes), rtol=1e-9, atol=1e-12)


def by_sorting(outcomes: LabelOutcomes) -> np.ndarray:
    """For each ballot and number of ones what every label adds, sorted, the first so many."""
    result = np.zeros((2, len(outcomes.ballots), ORDERS.size))
    for row, (own, query) in enumerate(zip(outcomes.ballots, outcomes.query, strict=True)):
        sums = outcomes.sums[query]
        here = outcomes.law.log_outcomes(sums)
        none = pair_divergences(here, outcomes.law.log_outcomes(sums - own), ORDERS)
        for ones, value in enumerate(outcomes.rule.values):
            there = outcomes.law.log_outcomes(sums - own + value)
            adds = np.sort(pair_divergences(here, there, ORDERS) - none, axis=1)[:, ::-1]
            result[:, row] = np.maximum(result[:, row], none.sum(axis=1) + adds[:, :ones].sum(axis=1))
    return result


@pytest.mark.parametrize("sigma", [0.7, 6.0])
@pytest.mark.parametrize("rate", [0.04, 0.3, 0.8, 0.97])
@pytest.mark.parametrize("kind", ["l2", "l1", "bar", "few"])
def test_many_labels_cost_what_sorting_says(kind, rate, sigma):
    """Numbers of ones are passed over, ballots have unequal lengths, some say yes to all."""
    k, rng = 41, np.random.default_rng(3)
    yes = rng.random((7, 2, k)) < rate * rng.beta(2, 1, (7, 2, 1))
    yes[0, 0], yes[1, 0, 2:], yes[0, 1] = True, True, False
    votes = LabelVotes.from_ballots(yes.astype(np.int64), n_labels=k)
    mechanism = {
        "l2": Tau(sigma, k, max_norm=2.0),
        "l1": Tau(sigma, k, max_norm=3.0, norm="l1"),
        "bar": ConfidentTau(sigma, k, max_norm=2.0, threshold=5, sigma_threshold=sigma),
        "few": GNThreshold(sigma=sigma, n_labels=k, max_labels=5),
    }[kind]
    outcomes = mechanism.outcomes(votes)
    np.testing.assert_allclose(
        dearest_alternatives(outcomes, ORDERS), by_sorting(outcomes), rtol=1e-12, atol=1e-13
    )


def test_what_is_passed_over_adds_no_more():
    """Labels add just too little for 6 ones to be better than 2, or one adds too much."""
    rng = np.random.default_rng(1)
    lacked, own, few, many = rng.exponential(size=(9, 60)), rng.normal(size=(6, 60)), 2, 6
    rival = _Choice(few, lacked, own, (own > 0).any(axis=1))
    gain, change = lacked * few / many * 0.999, np.where(own > 0, own * few / many * 0.999, own)
    gain[3, :20] *= 1.002
    change[4, 20:40] = np.maximum(own[4, 20:40], 0.01) * few / many * 1.002
    found = _Choice(many, gain, change, (change > 0).any(axis=1)).may_beat(rival)
    assert np.array_equal(found, np.arange(60) < 40)
    adds, before = (np.sort(np.concatenate(tables), axis=0) for tables in ((gain, change), (lacked, own)))
    assert (adds[-many:].sum(axis=0) <= before[-few:].sum(axis=0))[~found].all()


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.95])
def test_packs_of_queries_change_nothing(rate, monkeypatch):
    rng = np.random.default_rng(7)
    votes = LabelVotes.from_ballots((rng.random((20, 30, 12)) < rate).astype(np.int64), n_labels=12)
    outcomes = Tau(3.0, 12, max_norm=1.5).outcomes(votes)
    at_once = dearest_alternatives(outcomes, ORDERS)
    monkeypatch.setattr("tellers.accounting._label_exact._CELLS", 100)
    assert np.array_equal(dearest_alternatives(outcomes, ORDERS), at_once)
