"""A share chosen with noise: at the right frequencies, for a price that covers it."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from tellers import AdaptiveGNThreshold, GNThreshold, LabelVotes, Unit, describe, exact_cost, noise
from tellers.accounting._label_exact import label_blocks
from tellers.mechanisms.divergence import pair_divergences
from tellers.mechanisms.labels._published import published_label_cost
from tellers.mechanisms.labels.adaptive import as_published_share

ORDERS = np.array([1.5, 2.0, 8.0, 20.0])
# Two-sided level of every frequency below; 24 of them are tested, so a sound build fails one run in 40,000.
LEVEL = 1e-6
DRAWS = 6000


def joint(mechanism, sums, n_teachers):
    """The law of share and labels together, from the definitions."""
    votes = LabelVotes.from_sums(sums[None], n_teachers=n_teachers)
    weight = replace(mechanism, max_labels=0).scores(votes)[0] / mechanism.scale
    log_choice = weight - np.logaddexp.reduce(weight)
    found = []
    for place, chosen in enumerate(log_choice):
        each = mechanism.at(place).law(n_teachers).log_outcomes(sums)
        for bits in itertools.product((0, 1), repeat=sums.size):
            found.append([chosen + sum(each[bit, i] for i, bit in enumerate(bits))])
    return np.array(found)


@pytest.mark.parametrize("scale", [0.7, 2.0, 9.0])
@pytest.mark.parametrize("max_labels", [0, 1])
def test_no_ballot_costs_more_than_the_account_or_the_price(scale, max_labels):
    rng = np.random.default_rng(int(10 * scale))
    for _ in range(4):
        k, n = int(rng.integers(2, 4)), int(rng.integers(2, 7))
        block = (rng.random((n, k)) < rng.random()).astype(np.int64)
        mechanism = AdaptiveGNThreshold(1.2, k, scale, shares=(0.2, 0.5, 0.8), max_labels=max_labels)
        fit = mechanism.at(0).rule.fit
        votes = LabelVotes.from_ballots(block[:, None, :], n_labels=k)
        [(_, costs, of_teacher, _)] = label_blocks(mechanism, votes, ORDERS)
        published = published_label_cost(mechanism, votes, orders=ORDERS, drawn=True)[0]
        here = joint(mechanism, fit(block).sum(axis=0), n)
        price = mechanism.price(Unit(), ORDERS).values
        for teacher in range(n):
            ours = costs[:, of_teacher[teacher, 0]]
            assert (ours <= price * (1 + 1e-9)).all()
            for other in itertools.product((0, 1), repeat=k):
                changed = block.copy()
                changed[teacher] = other
                there = joint(mechanism, fit(changed).sum(axis=0), n)
                true = pair_divergences(here, there, ORDERS)[:, 0]
                assert (true <= ours * (1 + 1e-9) + 1e-12).all()
                assert (true[0] <= published * (1 + 1e-9) + 1e-12).all()


def test_shares_that_are_never_chosen_cost_little():
    """Clear votes around a share amid them: the dearest share alone would cost nearly the price."""
    votes = LabelVotes.from_sums([[2, 48, 5, 45]] * 50, n_teachers=50)
    mechanism = AdaptiveGNThreshold(5.0, 4, 10.0, shares=(0.1, 0.5, 0.9))

    def cost(one):
        return exact_cost(one, votes, orders=[2.0]).cost.reveal().values[0]

    choice = 50 * 2.0 / (2 * 10.0**2)
    assert cost(mechanism.at(1)) + choice < cost(mechanism) < 0.6 * (cost(mechanism.at(0)) + choice)


def test_the_choice_alone_is_within_its_price_for_any_scores():
    """Scores that one ballot moves by at most one vote, in every combination of directions."""
    rng = np.random.default_rng(3)
    for scale in (0.5, 1.0, 3.0):
        for _ in range(50):
            scores = rng.integers(0, 6, 4)
            here = scores / scale - np.logaddexp.reduce(scores / scale)
            moved = (scores + np.array(list(itertools.product((-1, 0, 1), repeat=4)))).T / scale
            there = moved - np.logaddexp.reduce(moved)
            true = pair_divergences(np.broadcast_to(here[:, None], there.shape), there, ORDERS)
            assert (true <= ORDERS / (2 * scale**2) + 1e-12).all()


def test_scores_move_by_at_most_the_vote_that_moved():
    rng = np.random.default_rng(4)
    for resolution in (1, 10):
        mechanism = AdaptiveGNThreshold(2.0, 4, 3.0, resolution=resolution)
        for _ in range(100):
            ballots = rng.random((9, 1, 4)) if resolution > 1 else rng.random((9, 1, 4)) < 0.5
            other = ballots.copy()
            other[3] = rng.random((1, 4)) if resolution > 1 else rng.random((1, 4)) < 0.5
            before, after = (
                mechanism.scores(LabelVotes.from_ballots(b, n_labels=4, resolution=resolution))
                for b in (ballots, other)
            )
            assert np.abs(before - after).max() <= resolution


def test_places_are_chosen_as_often_as_they_should_be():
    for scale in (0.4, 2, 2.5, 40.0):
        scores = np.array([0, 3, 4, 1, 4, 0], dtype=np.int64)
        chosen = noise.seeded(5).choose(np.tile(scores, (DRAWS, 1)), scale)
        law = np.exp(scores / scale - np.logaddexp.reduce(scores / scale))
        for place, probability in enumerate(law):
            assert binomtest(int((chosen == place).sum()), DRAWS, probability).pvalue > LEVEL


def test_labels_come_out_as_often_as_choice_and_noise_say():
    sums, mechanism = np.array([1, 4]), AdaptiveGNThreshold(1.5, 2, 1.0, shares=(0.3, 0.7))
    votes = LabelVotes.from_sums(np.tile(sums, (DRAWS, 1)), n_teachers=5)
    labels = mechanism.release(votes, noise.seeded(6)).labels
    law = np.exp(joint(mechanism, sums, 5)).reshape(2, 2, 2).sum(axis=0)
    for bits in itertools.product((0, 1), repeat=2):
        hits = (labels == bits).all(axis=1).sum()
        assert binomtest(int(hits), DRAWS, float(law[bits])).pvalue > LEVEL


def test_a_query_is_charged_its_choice_and_its_labels():
    votes = LabelVotes.from_sums([[48, 3, 20]] * 4, n_teachers=50)
    mechanism = AdaptiveGNThreshold(6.0, 3, 8.0)
    release = mechanism.release(votes, noise.secure())
    price = mechanism.price(Unit()).values
    assert np.allclose(release.cost.worst.values, 4 * price)
    labels = GNThreshold(6.0, 3).price(Unit())
    assert np.allclose(price, labels.values + labels.orders / (2 * 8.0**2))
    assert (price <= labels.orders * sum(mechanism.plain_rates()) * (1 + 1e-9)).all()
    assert (exact_cost(mechanism, votes).cost.reveal().values <= 4 * price * (1 + 1e-9)).all()
    assert release.answered.all()


def test_the_example_of_the_thesis():
    assert as_published_share([0, 0.1, 0.8, 1.0, 0]) == 0.45
    assert as_published_share([0.0, 0.5, 1.0]) == 0.75  # of equal gaps the upper one
    with pytest.raises(ValueError, match="at least two labels"):
        as_published_share([0.4])


def test_one_ballot_moves_what_the_thesis_does_not_charge_for():
    """Its threshold jumps across a sum: a label flips although its own votes and the noise did not change."""
    before, after = (as_published_share(m) for m in ([0.0, 0.49, 1.0], [0.0, 0.51, 1.0]))
    assert before > 0.7
    assert after < 0.3


def test_settings_are_checked_and_survive_json():
    mechanism = AdaptiveGNThreshold(sigma=6, n_labels=3.0, scale=8, shares=[0.2, 0.5])
    assert mechanism == AdaptiveGNThreshold(6.0, 3, 8.0, (0.2, 0.5))
    stored = json.loads(json.dumps(describe(mechanism, noise.secure())["parameters"]))
    assert AdaptiveGNThreshold(**stored) == mechanism
    for wrong, words in (
        ({"scale": 0.0}, "scale > 0"),
        ({"shares": ()}, "a list of shares"),
        ({"shares": 0.5}, "a list of shares"),
        ({"shares": None}, "a list of shares"),
        ({"shares": ("a", 0.5)}, "strictly between 0 and 1"),
        ({"shares": (0.5, 1.0)}, "strictly between 0 and 1"),
        ({"sigma": -1.0}, "sigma > 0"),
        ({"max_labels": 4}, "max_labels <= n_labels=3"),
    ):
        with pytest.raises(ValueError, match=words):
            AdaptiveGNThreshold(**{"sigma": 6.0, "n_labels": 3, "scale": 8.0, **wrong})
    with pytest.raises(ValueError, match="queries x choices"):
        noise.seeded(1).choose(np.array([1, 2]), 1.0)
