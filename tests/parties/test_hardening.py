"""What a guardian and an asker who collude see: totals below the noise of others, and what that costs."""

import itertools
import secrets

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import Binary, GNMax, RdpCurve, Unit, noise
from tellers.errors import MissingExtra
from tellers.mechanisms import GNThreshold
from tellers.parties import _hardening as hardening
from tellers.parties import price_without_guardian, share_sigma
from tellers.parties._hardening import lend, new_mask_key, pair_keys, zero_sum_mask
from tellers.parties._ring import fresh_mask, ring_scaled, ring_sum
from tellers.parties.prices import gap, sum_price

NAMES = ["north", "south", "east", "west", "mid"]


def make_keys(names: list[str]) -> dict[str, dict[str, bytes]]:
    made = {name: new_mask_key() for name in names}
    publics = {name: public for name, (_, public) in made.items()}
    return {
        name: pair_keys(name, secret, {o: p for o, p in publics.items() if o != name})
        for name, (secret, _) in made.items()
    }


KEYS = make_keys(NAMES)


@settings(max_examples=30, deadline=None)
@given(st.sets(st.sampled_from(NAMES), min_size=2), st.integers(1, 7), st.integers(1, 5))
def test_masks_cancel_over_the_set_and_over_no_part_of_it(members, n_queries, n_outputs):
    nonces, shape = {name: secrets.token_hex(16) for name in members}, (n_queries, n_outputs)
    masks = {n: zero_sum_mask(n, KEYS[n], qid="q", nonces=nonces, shape=shape) for n in members}
    assert not ring_sum(masks.values()).any()
    for size in range(1, len(members)):
        for part in itertools.combinations(sorted(members), size):
            # A uniform number is zero with probability 2^-64.
            assert ring_sum(masks[n] for n in part).all()


@pytest.mark.parametrize("what", ["qid", "a nonce", "the set", "the shape"])
def test_nothing_cancels_between_different_queries(what):
    nonces = {name: secrets.token_hex(16) for name in NAMES[:3]}
    told = {"qid": "a", "nonces": nonces, "shape": (2, 2)}
    other = dict(told)
    if what == "qid":
        other["qid"] = "b"
    elif what == "a nonce":
        other["nonces"] = {**nonces, "north": secrets.token_hex(16)}
    elif what == "the set":
        other["nonces"] = {n: nonces[n] for n in NAMES[:2]}
    else:
        other["shape"] = (2, 3)
    first, second = (zero_sum_mask("north", KEYS["north"], **how) for how in (told, other))
    assert (first[:, :2] != second[:, :2]).all()


def test_colluders_see_the_total_and_not_a_vote():
    rng = np.random.default_rng(5)
    votes = {name: rng.integers(0, 2, (4, 3)) for name in NAMES}
    nonces = {name: secrets.token_hex(16) for name in NAMES}
    masks = {name: fresh_mask((4, 3)) for name in NAMES}
    at_asker = {n: ring_sum([votes[n], ring_scaled(masks[n], -1)]) for n in NAMES}
    at_guardian = {
        n: lend(masks[n], cancelling=zero_sum_mask(n, KEYS[n], qid="q", nonces=nonces, shape=(4, 3)))
        for n in NAMES
    }
    for name in NAMES:
        assert not np.isin(ring_sum([at_asker[name], at_guardian[name]]), [0, 1]).any()
    total = ring_sum([*at_asker.values(), *at_guardian.values()])
    np.testing.assert_array_equal(total, sum(votes.values()))


@pytest.mark.parametrize("what", ["what cancels", "plain", "pairwise", "pairwise and noise", "over no mask"])
def test_what_a_party_lends_is_uniform(what):
    # Bytes of 125,000 numbers of one party: chi-square with 255 degrees of freedom, false alarm 1e-6 at 374.
    nonces, shape = {name: secrets.token_hex(16) for name in NAMES}, (25_000, 5)
    streams = zero_sum_mask("mid", KEYS["mid"], qid="q", nonces=nonces, shape=shape)
    source = noise.seeded(3)
    lent = {
        "what cancels": lambda: streams,
        "plain": lambda: lend(fresh_mask(shape)),
        "pairwise": lambda: lend(fresh_mask(shape), cancelling=streams),
        "pairwise and noise": lambda: lend(fresh_mask(shape), cancelling=streams, sigma=2.0, noise=source),
        # Each of the two hides by itself what is below it.
        "over no mask": lambda: lend(np.zeros(shape, np.int64), cancelling=streams, sigma=2.0, noise=source),
    }[what]()
    assert chi_square(lent) < 374


def test_a_share_of_noise_alone_is_not_uniform():
    # What the test above can see: noise without a mask is small numbers.
    noisy = lend(np.zeros((25_000, 5), np.int64), sigma=2.0, noise=noise.seeded(3))
    assert chi_square(noisy) > 1e6


def chi_square(numbers: np.ndarray) -> float:
    seen = np.bincount(np.frombuffer(numbers.tobytes(), dtype=np.uint8), minlength=256)
    expected = numbers.size * 8 / 256
    return float(((seen - expected) ** 2 / expected).sum())


def test_wrong_keys_are_refused_and_not_quoted():
    secret, public = new_mask_key()
    with pytest.raises(ValueError, match="'south'") as refused:
        pair_keys("north", secret, {"south": public[:-1]})
    assert public[:20] not in str(refused.value)
    with pytest.raises(ValueError, match="itself"):
        pair_keys("north", secret, {"north": public})
    with pytest.raises(ValueError, match="64 hexadecimal") as refused:
        hardening.public_mask_key("zz" + secret[2:])
    assert secret[5:20] not in str(refused.value)
    with pytest.raises(ValueError, match="none of 'else'"):
        zero_sum_mask("north", KEYS["north"], qid="q", nonces={"north": "0", "else": "1"}, shape=(1, 1))
    with pytest.raises(ValueError, match="at least one more"):
        zero_sum_mask("north", KEYS["north"], qid="q", nonces={"north": "0"}, shape=(1, 1))


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setattr(hardening, "x25519", None)
    with pytest.raises(MissingExtra, match=r"tellers\[capc\]"):
        new_mask_key()


# --- Sums of discrete Gaussians, by exact convolution. ---


def law_of_sum(sigma: float, n_shares: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers and their probabilities; all terms are positive, so tails keep their accuracy."""
    reach = int(25 * sigma) + 2
    one = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * sigma**2))
    one /= one.sum()
    law = one
    for _ in range(n_shares - 1):
        law = np.convolve(law, one)
    half = (law.size - 1) // 2
    return np.arange(-half, half + 1), law


def divergence(law: np.ndarray, shift: int, order: float) -> float:
    here, there = np.log(law[shift:]), np.log(law[: law.size - shift])
    terms = order * here + (1 - order) * there
    top = terms.max()
    return float((top + np.log(np.exp(terms - top).sum())) / (order - 1))


@pytest.mark.parametrize("sigma", [0.7072, 0.8, 1.0, 1.5])
@pytest.mark.parametrize("n_shares", [2, 3, 6])
def test_the_gap_holds_and_is_no_wild_guess(sigma, n_shares):
    z, law = law_of_sum(sigma, n_shares)
    bulk = np.abs(z) < 12 * sigma * np.sqrt(n_shares)
    ratio = np.log(law[bulk]) + z[bulk] ** 2 / (2 * n_shares * sigma**2)
    seen = ratio.max() - ratio.min()
    bound = gap(sigma, n_shares)
    assert seen <= bound + 1e-9
    if n_shares == 2:  # one addition: the ripple at a whole and at a half shift is what is bounded
        assert seen >= 0.9 * bound - 1e-9


@pytest.mark.parametrize("sigma", [0.7072, 1.0, 2.5])
@pytest.mark.parametrize(("n_shares", "shift"), [(1, 1), (2, 1), (5, 1), (3, 2)])
def test_the_price_of_a_sum_is_above_its_divergence(sigma, n_shares, shift):
    _, law = law_of_sum(sigma, n_shares)
    law = law[law > 1e-280]
    orders = np.array([1.25, 1.5, 2.0, 4.0, 8.0])
    price = sum_price(sigma, shift, n_shares=n_shares, orders=orders)
    true = np.array([divergence(law, shift, order) for order in orders])
    assert (price >= true * (1 - 1e-9)).all()
    if sigma >= 1:  # and near it, where shares are not tiny
        assert price[2] <= true[2] * 1.02 + 2 * gap(sigma, n_shares)


@given(st.floats(0.5, 300), st.integers(1, 40))
def test_shares_add_up_to_the_noise_that_was_asked_for(sigma, n_shares):
    each = share_sigma(sigma, n_shares=n_shares)
    assert n_shares * each**2 >= sigma**2
    assert each >= 0.7071
    if sigma > n_shares:
        assert each <= sigma / np.sqrt(n_shares) * (1 + 1e-12)


@given(st.floats(0.75, 50), st.integers(1, 20), st.integers(1, 3))
def test_more_shares_never_cost_more(sigma, n_shares, shift):
    price = sum_price(sigma, shift, n_shares=n_shares)
    assert (np.diff(price) >= 0).all()
    assert (price <= sum_price(sigma, shift, n_shares=1) * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("mechanism", "moved"),
    [
        (GNMax(sigma=4.0), 2),
        (Binary(sigma=4.0, n_labels=7), 7),
        (GNThreshold(sigma=4.0, n_labels=7, max_labels=2), 4),
    ],
)
def test_without_the_guardian_the_whole_tally_is_paid_for(mechanism, moved):
    told = price_without_guardian(mechanism, 3.0, n_shares=4)
    assert isinstance(told, RdpCurve)
    np.testing.assert_allclose(told.values, moved * sum_price(3.0, 1, n_shares=4))
    if isinstance(mechanism, GNMax):
        same = price_without_guardian(mechanism, share_sigma(4.0, n_shares=4), n_shares=4)
        assert (same.values >= mechanism.price(Unit()).values).all()


def test_shares_of_noise_have_their_variance():
    # The variance of 40,000 draws: false alarm below 1e-8 at six standard deviations, 4.3 %.
    zero = np.zeros((20_000, 2), dtype=np.int64)
    drawn = ring_sum([lend(zero, sigma=3.0, noise=noise.secure()) for _ in range(4)])
    assert abs(drawn.var() / 36.0 - 1) < 6 * np.sqrt(2 / 40_000)
    with pytest.raises(TypeError, match="source of noise"):
        lend(zero, sigma=3.0)


def test_shares_too_small_are_refused():
    with pytest.raises(ValueError, match="more noise"):
        gap(0.5, 3)
