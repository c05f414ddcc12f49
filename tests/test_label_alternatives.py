"""The dearest other ballot, found without looking at all of them, against looking at all of them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import LabelVotes
from tellers.accounting._label_exact import dearest_alternatives
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


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.95])
def test_packs_of_queries_change_nothing(rate, monkeypatch):
    rng = np.random.default_rng(7)
    votes = LabelVotes.from_ballots((rng.random((20, 30, 12)) < rate).astype(np.int64), n_labels=12)
    outcomes = Tau(3.0, 12, max_norm=1.5).outcomes(votes)
    at_once = dearest_alternatives(outcomes, ORDERS)
    monkeypatch.setattr("tellers.accounting._label_exact._CELLS", 100)
    assert np.array_equal(dearest_alternatives(outcomes, ORDERS), at_once)
