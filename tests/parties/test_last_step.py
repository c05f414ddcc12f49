"""The guardian's part and the asker's together decide as the mechanism does in one room."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import Binary, ConfidentBinary, ConfidentGNMax, GNMax, LabelVotes, LNMax, Unit, noise
from tellers.mechanisms import GNThreshold, Tau
from tellers.parties import clear_decision
from tellers.parties._last_step import decide, decision_of, draw
from tellers.parties._ledger import query_price
from tellers.parties._ring import fresh_mask, ring_scaled, ring_sum

LABELS = [
    Binary(sigma=3.0, n_labels=4),
    GNThreshold(sigma=3.0, n_labels=4, share=0.3, max_labels=2),
    ConfidentBinary(sigma=3.0, n_labels=4, threshold=15, sigma_threshold=4.0),
]


def shared(tally: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the asker's sum and the sum of the masks of n parties, together the tally."""
    masks = ring_sum([fresh_mask(tally.shape) for _ in range(n)])
    return ring_sum([tally, ring_scaled(masks, -1)]), masks


@pytest.mark.parametrize("mechanism", LABELS, ids=lambda m: type(m).__name__)
def test_labels_are_those_of_one_room_with_the_same_noise(mechanism):
    rng = np.random.default_rng(7)
    votes = LabelVotes.from_ballots(rng.integers(0, 2, (20, 500, 4)), n_labels=4)
    asker, masks = shared(mechanism.fitted_sums(votes), 5)
    step = draw(mechanism, masks, n_answering=20, noise=noise.seeded(11))
    said = mechanism.release(votes, noise.seeded(11)).labels
    np.testing.assert_array_equal(decide(step, asker), said)
    assert len(np.unique(said)) >= 2


ALL = [
    *LABELS,
    GNMax(sigma=1.0),
    ConfidentGNMax(sigma=1.0, threshold=14, sigma_threshold=2.0),
]


@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: type(m).__name__)
def test_the_arithmetic_of_the_circuit_is_the_definition_of_the_last_step(mechanism):
    # Few votes and little noise: hundreds of ties, and tallies on both sides of every limit and bar.
    tally = np.random.default_rng(5).integers(0, 21, (2000, 4))
    asker, masks = shared(tally, 3)
    step = draw(mechanism, masks, n_answering=20, noise=noise.seeded(13))
    said = decide(step, asker)
    np.testing.assert_array_equal(clear_decision(step.program, asker, step.inputs()), said)
    assert len(np.unique(said)) >= 2
    if step.ranks is not None:
        noisy = (tally + step.answer_noise)[said != -1]
        assert ((noisy == noisy.max(axis=1, keepdims=True)).sum(axis=1) > 1).sum() > 50
    if step.check_noise is not None:
        assert 0 < (said == -1).sum() < said.size


def test_classes_are_those_of_one_room_where_nothing_is_tied():
    rng = np.random.default_rng(7)
    counts = rng.multinomial(50, [0.2] * 5, size=2000)
    asker, masks = shared(counts, 3)
    step = draw(GNMax(sigma=4.0), masks, n_answering=50, noise=noise.seeded(3))
    noisy = counts + noise.seeded(3).discrete_gaussian(4.0, counts.shape)
    top = np.sort(noisy, axis=1)
    clear = top[:, -1] > top[:, -2]
    labels = decide(step, asker)
    np.testing.assert_array_equal(labels[clear], noisy.argmax(axis=1)[clear])
    # Tied queries have one of the leaders.
    assert (noisy[np.arange(2000), labels] == noisy.max(axis=1)).all()
    assert (~clear).sum() > 20


def test_ties_are_broken_uniformly():
    # Three classes tied for ever: chi-square with 2 degrees of freedom, false alarm 1e-6 at 27.6.
    counts = np.tile([5, 9, 9, 9], (6000, 1))
    asker, masks = shared(counts, 2)
    step = draw(GNMax(sigma=1e-3), masks, n_answering=32, noise=noise.secure())
    seen = np.bincount(decide(step, asker), minlength=4)
    assert seen[0] == 0
    assert ((seen[1:] - 2000) ** 2 / 2000).sum() < 27.6


def test_the_price_is_that_of_the_mechanism_and_of_the_ranges():
    for mechanism, n_moved in ((GNMax(sigma=8.0), 2), (LABELS[0], 4), (LABELS[1], 4)):
        alone, whole = mechanism.price(Unit()), query_price(mechanism, 1)
        sigma = 32 * mechanism.sigma
        np.testing.assert_allclose(whole.values, alone.values + whole.orders * n_moved / (2 * sigma**2))
        assert (whole.values < alone.values * (1 + 1 / 500)).all()


def test_what_no_votes_can_have_brought_about_is_void():
    mechanism, n = GNMax(sigma=1.0), 5
    tally = np.tile([3, 2, 0], (5, 1))
    tally[1, 0] += 10**6  # a mask that was changed
    tally[2, :2] += [2**62, -(2**62)]
    tally[3, :2] += [10**6, -(10**6)]
    tally[4, 2] -= 10**6
    asker, masks = shared(tally, n)
    step = draw(mechanism, masks, n_answering=n, noise=noise.seeded(5))
    void = decide(step, asker) == -1
    np.testing.assert_array_equal(void, [False, True, True, True, True])
    np.testing.assert_array_equal(clear_decision(step.program, asker, step.inputs()) == -1, void)
    sums = np.array([[3, 10**6, 2], [2, -1000, 2]])
    asker, masks = shared(sums, n)
    step = draw(Binary(sigma=1.0, n_labels=3), masks, n_answering=n, noise=noise.seeded(5))
    np.testing.assert_array_equal(decide(step, asker) == -1, [[0, 1, 0], [0, 1, 0]])


def test_noise_that_parties_add_widens_the_ranges():
    one = {"n_outputs": 3, "n_answering": 9}
    plain = decision_of(GNMax(sigma=4.0), **one)
    shared_ = decision_of(GNMax(sigma=4.0), share_sigma=40.0, **one)
    assert plain.reach == 8 * 128
    assert shared_.reach == np.ceil(8 * np.hypot(128, 3 * 40))


def test_every_count_has_noise_of_ranges_of_its_own():
    # Chi-square of 20,000 draws has a spread of 0.01; columns that were one would have a correlation of 1.
    for mechanism in (GNMax(sigma=2.0), LABELS[0]):
        k = getattr(mechanism, "n_labels", 3)
        step = draw(mechanism, fresh_mask((20_000, k)), n_answering=9, noise=noise.secure())
        drawn = step.range_noise / (32 * mechanism.sigma)
        assert np.abs((drawn**2).mean(axis=0) - 1).max() < 0.07  # seven spreads
        assert np.abs(np.corrcoef(drawn.T) - np.eye(k)).max() < 0.05
        assert step.answer_noise.shape == drawn.shape


def test_large_draws_come_in_calls_that_take_the_same_work(monkeypatch):
    asked = []
    real = type(noise.secure()).discrete_gaussian
    monkeypatch.setattr(
        type(noise.secure()), "discrete_gaussian",
        lambda self, sigma, shape: asked.append(shape) or real(self, sigma, shape),
    )  # fmt: skip
    step = draw(GNMax(sigma=2.0), fresh_mask((4096, 40)), n_answering=9, noise=noise.secure())
    assert step.answer_noise.shape == step.range_noise.shape == (4096, 40)
    assert max(rows * columns for rows, columns in asked) <= 2**16


def test_honest_votes_are_never_void():
    # 3 x 40,000 ranges: some is void with a chance below 3e-10.
    counts = np.random.default_rng(3).multinomial(20, [0.5, 0.3, 0.2], size=40_000)
    asker, masks = shared(counts, 2)
    assert (decide(draw(GNMax(sigma=2.0), masks, n_answering=20, noise=noise.secure()), asker) >= 0).all()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_noise_of_nothing_gives_the_plain_decision(data):
    n, k = data.draw(st.integers(1, 40)), data.draw(st.integers(2, 9))
    sums = np.array([[data.draw(st.integers(0, n)) for _ in range(k)]], dtype=np.int64)
    asker, masks = shared(sums, data.draw(st.integers(1, 6)))
    labels = decide(draw(Binary(sigma=1e-3, n_labels=k), masks, n_answering=n, noise=noise.secure()), asker)
    np.testing.assert_array_equal(labels, (2 * sums > n).astype(int))
    step = draw(GNMax(sigma=1e-3), masks, n_answering=n, noise=noise.secure())
    winner = decide(step, asker)[0]
    assert sums[0, winner] == sums.max()


def test_draws_are_not_printed_and_rules_are_public():
    _, masks = shared(np.array([[3, 1]]), 2)
    step = draw(GNMax(sigma=2.0), masks, n_answering=4, noise=noise.secure())
    assert "array" not in repr(step)
    rules = [decision_of(mechanism, n_outputs=4, n_answering=7).rule for mechanism in LABELS]
    assert rules == ["labels", "labels", "confident_labels"]
    assert decision_of(LABELS[1], n_outputs=4, n_answering=7).limits == (3, 3, 3, 3)


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(TypeError, match="LNMax"):
        draw(LNMax(gamma=0.1), fresh_mask((1, 2)), n_answering=2, noise=noise.secure())
    with pytest.raises(ValueError, match="4 labels"):
        draw(LABELS[0], fresh_mask((1, 3)), n_answering=2, noise=noise.secure())
    with pytest.raises(TypeError, match="Tau"):
        draw(Tau(3.0, 4, max_norm=1.5), fresh_mask((1, 4)), n_answering=2, noise=noise.secure())
    with pytest.raises(TypeError, match="resolution 100"):
        decision_of(Binary(sigma=3.0, n_labels=4, resolution=100), n_outputs=4, n_answering=2)
    assert GNMax(sigma=1.0).price(Unit()).values[0] > 0
