"""Teachers that do not know every label: majorities of those who do, and prices above every cost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from tellers import (
    SILENT,
    Accountant,
    Binary,
    Budget,
    ConfidentBinary,
    ConfidentTau,
    GNThreshold,
    LabelVotes,
    MemoryLedger,
    Powerset,
    Room,
    Tau,
    Unit,
    noise,
)
from tellers.accounting._label_exact import label_blocks
from tellers.mechanisms.divergence import pair_divergences
from tellers.mechanisms.labels._published import published_label_cost
from tellers.teachers import save_votes

ORDERS = np.array([1.5, 2.0, 8.0, 64.0])
KNOWS = np.array([[1, 1, 0, 0], [1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 0, 0]], dtype=bool)


def mechanisms(k, n, sigma=2.0):
    bar = {"threshold": 0.6 * n, "sigma_threshold": 1.5 * sigma}
    yield Binary(sigma, k)
    yield ConfidentBinary(sigma, k, **bar)
    yield Tau(sigma, k, 1.2)
    yield ConfidentTau(sigma, k, 1.2, **bar)
    yield GNThreshold(sigma, k, 0.3)
    yield GNThreshold(sigma, k, 0.4, max_labels=max(1, k // 2))


def test_who_does_not_know_a_label_says_nothing_of_it_and_is_not_counted():
    ballots = np.ones((5, 2, 4), dtype=int)
    votes = LabelVotes.from_ballots(ballots, n_labels=4, knows=KNOWS)
    np.testing.assert_array_equal(votes.n_voters, [5, 3, 0, 2])
    np.testing.assert_array_equal(votes.sums, [[5, 3, 0, 2]] * 2)
    np.testing.assert_array_equal(votes.block().sum(axis=0), votes.sums)
    sparse = LabelVotes.from_ballots([csr_array(b) for b in ballots], n_labels=4, knows=KNOWS)
    alone = LabelVotes.from_sums(votes.sums, n_teachers=5, n_voters=votes.n_voters)
    likely = LabelVotes.from_probabilities(ballots * 0.9, n_labels=4, knows=KNOWS)
    for other in (sparse, alone, likely, votes[[0, 1]], votes[:2]):
        np.testing.assert_array_equal(other.sums, votes.sums)
        np.testing.assert_array_equal(other.n_voters, votes.n_voters)
    assert LabelVotes.from_ballots(ballots, n_labels=4, knows=np.ones((5, 4))).voters is None
    assert LabelVotes.from_sums([[3, 2]], n_teachers=5, n_voters=[5, 5]).voters is None


# Prices of parts of a vote take long without noise; tau voting is compared with its law below.
WHOLE = [m for m in mechanisms(4, 5, sigma=1e-3) if m.resolution == 1]


@pytest.mark.parametrize("mechanism", WHOLE, ids=lambda m: type(m).__name__)
def test_without_noise_those_who_know_a_label_decide_it(mechanism):
    rng = np.random.default_rng(5)
    ballots = rng.integers(0, 2, (5, 60, 4))
    votes = LabelVotes.from_ballots(ballots, n_labels=4, knows=KNOWS)
    labels = mechanism.release(votes, noise.secure()).labels
    units, n = mechanism.resolution, KNOWS.sum(axis=0)
    sums = mechanism.rule.fit(ballots * KNOWS[:, None]).sum(axis=0)
    share = getattr(mechanism, "share", 0.5)
    expected = np.where(sums > share * n * units, 1, 0)
    if mechanism.has_bar:
        expected[np.maximum(sums, n * units - sums) < mechanism.threshold * units] = SILENT
    expected[:, n == 0] = SILENT
    np.testing.assert_array_equal(labels, expected)
    assert len(np.unique(labels)) >= 2


@pytest.mark.parametrize("mechanism", list(mechanisms(4, 5)), ids=lambda m: type(m).__name__)
def test_the_same_noise_decides_labels_that_all_know_as_if_nobody_abstained(mechanism):
    ballots = np.random.default_rng(6).integers(0, 2, (5, 300, 4))
    knows = np.ones((5, 4), dtype=bool)
    knows[:, 3] = False  # a label of nobody, so that the others stay what they were
    ballots[:, :, 3] = 0
    everybody = LabelVotes.from_ballots(ballots, n_labels=4)
    some = LabelVotes.from_ballots(ballots, n_labels=4, knows=knows)
    one, other = (mechanism.release(votes, noise.seeded(3)) for votes in (everybody, some))
    np.testing.assert_array_equal(one.labels[:, :3], other.labels[:, :3])
    assert (other.labels[:, 3] == SILENT).all()
    assert not other.answered[:, 3].any()
    if getattr(mechanism, "one_price", False):
        np.testing.assert_allclose(other.cost.worst.values, 300 * mechanism.price(Unit()).values)
    else:
        assert (other.cost.worst.values <= one.cost.worst.values * (1 + 1e-12)).all()


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_no_cost_passes_the_price_and_none_of_a_ballot_that_may_be_cast_passes_the_exact_one(seed):
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(1, 7)), int(rng.integers(1, 4))
    knows = rng.random((n, k)) < 0.7
    ballots = rng.integers(0, 2, (n, 1, k))
    votes = LabelVotes.from_ballots(ballots, n_labels=k, knows=knows)
    teacher = int(rng.integers(n))
    for mechanism in mechanisms(k, n, float(rng.uniform(0.7, 5.0))):
        price = mechanism.price(Unit(), ORDERS).values
        [(_, costs, of_teacher, _)] = label_blocks(mechanism, votes, ORDERS)
        assert (costs <= price * (1 + 1e-9) + 1e-12).all()
        law = mechanism.law(votes.n_voters)

        def outcomes(block, law=law, mechanism=mechanism):
            return law.log_outcomes(mechanism.rule.fit(block).sum(axis=0))[..., votes.n_voters > 0]

        here = ballots[:, 0] * knows
        for code in range(2**k):
            there = here.copy()
            there[teacher] = [(code >> j) & 1 for j in range(k)] * knows[teacher]
            found = pair_divergences(outcomes(here), outcomes(there), ORDERS).sum(axis=1)
            assert (found <= costs[:, of_teacher[teacher, 0]] * (1 + 1e-9) + 1e-12).all()


def test_exact_costs_know_that_labels_have_different_totals():
    """Two labels of equal sums and equal limits, and bars against other totals: not one cell."""
    mechanism = ConfidentBinary(2.0, 2, threshold=3, sigma_threshold=1.0)
    votes = LabelVotes.from_sums([[2, 2]], n_teachers=5, n_voters=[5, 4])
    assert mechanism.limits(votes.n_voters).tolist() == [3, 3]
    [(_, both, *_)] = label_blocks(mechanism, votes, ORDERS)
    alone = ConfidentBinary(2.0, 1, threshold=3, sigma_threshold=1.0)
    each = [
        costs
        for n in (5, 4)
        for _, costs, *_ in label_blocks(alone, LabelVotes.from_sums([[2]], n_teachers=n), ORDERS)
    ]
    np.testing.assert_allclose(both, each[0] + each[1])
    assert not np.allclose(each[0], each[1])


class Ensemble:
    """Teachers with label sets of their own."""

    def vote(self, X):
        ballots = np.random.default_rng(0).integers(0, 2, (5, len(X), 4))
        return LabelVotes.from_ballots(ballots, n_labels=4, knows=KNOWS)


@pytest.mark.parametrize("mechanism", list(mechanisms(4, 5)), ids=lambda m: type(m).__name__)
def test_a_room_answers_and_never_charges_more_than_the_price(mechanism):
    ledger = MemoryLedger(Accountant(Budget(epsilon=500.0, delta=1e-5)))
    release = Room(Ensemble(), mechanism, ledger, noise.secure()).ask(np.zeros((9, 2)), key="q")
    assert (release.labels[:, 2] == SILENT).all()
    assert (ledger.spent.values <= 9 * mechanism.price(Unit()).values * (1 + 1e-12)).all()


def test_what_is_not_provided_for_is_refused(tmp_path):
    votes = LabelVotes.from_ballots(np.ones((5, 1, 4), dtype=int), n_labels=4, knows=KNOWS)
    with pytest.raises(ValueError, match="know all labels for Powerset"):
        Powerset(2.0, 4).release(votes, noise.secure())
    with pytest.raises(ValueError, match="know all labels"):
        published_label_cost(Binary(2.0, 4), votes, orders=ORDERS)
    with pytest.raises(ValueError, match="know all labels"):
        Binary(2.0, 4).envelope(votes, order=2.0)
    with pytest.raises(ValueError, match="know all labels"):
        save_votes(tmp_path / "votes.npz", votes)
    for knows in (KNOWS[:4], KNOWS * 2, KNOWS[:, :3]):
        with pytest.raises(ValueError, match="Expected knows"):
            LabelVotes.from_ballots(np.ones((5, 1, 4), dtype=int), n_labels=4, knows=knows)
    for n_voters in ([5], [5, 6], [5, -1], [5.0, 2.0]):
        with pytest.raises(ValueError, match="Expected n_voters"):
            LabelVotes.from_sums([[1, 1]], n_teachers=5, n_voters=n_voters)
    with pytest.raises(ValueError, match="query 0, label 1"):
        LabelVotes.from_sums([[1, 2]], n_teachers=5, n_voters=[5, 1])
