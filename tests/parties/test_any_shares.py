"""Whatever shares are handed in, an outcome costs at most its price: by brute force over small rings.

The circuit that parties compute runs on integers modulo 2^64. Numbers times 2^(64 - bits) are a ring of
2^bits inside it, in which the same circuit is run on every tally there is, with every noise, so that laws and
divergences are sums and not samples. Noise here goes round the small ring as any number does.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from tellers import Binary, ConfidentBinary, ConfidentGNMax, GNMax
from tellers.mechanisms.suprema import argmax_supremum, check_supremum
from tellers.parties import _circuits
from tellers.parties.programs import DecisionProgram
from tellers.testing._any_shares import check_any_shares

ORDERS = [1.5, 2.0, 3.0, 4.0]
N, SILENCE, TOP, SIDE, SURE = 3, 1000, 7.0, 1.0, 8
ANSWER, CHECK, RANGE = 1.0, 1.0, 1.5
REACH = math.ceil(SURE * RANGE)


def gaussian(sigma, values):
    """Return the law of a discrete Gaussian on some whole numbers, by its definition."""
    far = np.arange(-400, 401)
    return np.exp(-(np.asarray(values) ** 2) / (2 * sigma**2)) / np.exp(-(far**2) / (2 * sigma**2)).sum()


class SmallRing:
    """The decision circuit of a few parties on a ring of 2^bits."""

    def __init__(self, rule, n_outputs, bits, *, reach=REACH):
        self.k, self.bits, self.shift = n_outputs, bits, 64 - bits
        self.size, self.rule = 2**bits, rule
        many, confident = "labels" in rule, "confident" in rule
        real = DecisionProgram(
            rule=rule, n_outputs=n_outputs, batch=1, n_answerers=N,
            limits=(2,) * n_outputs if many else (), bar=(2,) * n_outputs if confident else (), reach=reach,
        )  # fmt: skip
        self.program = SimpleNamespace(
            rule=rule, n_outputs=n_outputs, is_multilabel=many, is_confident=confident,
            tie_scale=real.tie_scale, totals=self.up(real.totals), n_answerers=int(self.up(N)),
            reach=int(self.up(reach)),
            limits=[int(self.up(x)) for x in real.limits], bar=[int(self.up(x)) for x in real.bar],
        )  # fmt: skip
        self.codes = np.array([1 + j for j in range(n_outputs)] + [SILENCE] * confident)

    def up(self, numbers):
        with np.errstate(over="ignore"):
            return np.asarray(numbers, dtype=np.int64) * np.int64(
                -(2**63) if self.shift == 63 else 2**self.shift
            )

    def run(self, tally, *, answer, ranged, check, ranks):
        """Return what the circuit opens for an asker that hands in the tally itself."""
        inputs = [self.up(tally), np.tile(self.codes, (len(tally), 1)), self.up(ranged)]
        inputs.append(self.up(answer * self.program.tie_scale + ranks))
        inputs += [self.up(check)] if self.program.is_confident else []
        with np.errstate(over="ignore"):
            return _circuits._decide(np, self.program, *inputs)[:, 0]

    def neutral(self, tally):
        """Return noises by which nothing is void and every check passes, whatever the tally is."""
        return {
            "answer": np.zeros_like(tally), "ranged": -tally,
            "check": 2 - tally[:, :1], "ranks": np.tile(np.arange(self.k), (len(tally), 1)),
        }  # fmt: skip

    def tallies(self):
        axes = [np.arange(self.size)] * self.k
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)

    def laws(self):
        """Return the law of (void, silent, class 0, ...) at every tally of the ring.

        Void depends on the noise of the ranges alone, silence on that of the check, the class on that of the
        answer: `test_noises_act_apart` looks at that. So each is summed by itself, with the others neutral.
        """
        tallies = self.tallies()
        ring = np.arange(self.size) - self.size // 2
        # Void: the ranges of classes are independent, so that their chances are multiplied.
        weights = sum(gaussian(RANGE, ring + turn * self.size) for turn in (-2, -1, 0, 1, 2))
        fair, stays = np.ones(len(tallies)), np.zeros(len(tallies))
        for j in range(self.k):
            at = np.zeros((self.size, self.size), dtype=bool)
            for place in range(self.size):
                tally = np.zeros((self.size, self.k), dtype=np.int64)
                tally[:, j] = place
                given = self.neutral(tally)
                given["ranged"][:, j] = ring
                at[place] = self.run(tally, **given) != 0
            # Small chances are summed up by themselves: one minus a number near one has no digits left.
            fair = fair * (at @ weights)[tallies[:, j]]
            stays = stays + np.log1p(-np.minimum((~at @ weights)[tallies[:, j]], 1 - 1e-16))
        void = np.abs(np.expm1(stays))
        told, silent = np.ones(len(tallies)), np.zeros(len(tallies))
        if self.program.is_confident:
            told, checks = np.zeros(len(tallies)), np.arange(-14, 15)
            for noise, weight in zip(checks, gaussian(CHECK, checks)):
                given = self.neutral(tallies)
                given["check"] = np.full_like(given["check"], noise)
                is_silent = self.run(tallies, **given) == SILENCE
                silent += weight * is_silent
                told += weight * ~is_silent
        lead = np.zeros((len(tallies), self.k))
        steps = np.arange(-int(9 * ANSWER), int(9 * ANSWER) + 1)
        noises = np.stack([axis.ravel() for axis in np.meshgrid(*[steps] * self.k)], axis=1)
        weights = np.prod([gaussian(ANSWER, noises[:, j]) for j in range(self.k)], axis=0)
        orders = [np.roll(np.arange(self.k), turn) for turn in range(self.k)] if self.k == 2 else [
            np.array(order) for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
        ]  # fmt: skip
        for noise, weight in zip(noises, weights):
            for order in orders:
                given = self.neutral(tallies)
                given["answer"] = np.tile(noise, (len(tallies), 1))
                given["ranks"] = np.tile(order, (len(tallies), 1))
                winner = self.run(tallies, **given) % SILENCE - 1
                lead[np.arange(len(tallies)), winner] += weight / len(orders)
        return np.column_stack([void, fair * silent, (fair * told)[:, None] * lead])

    def dearest(self, laws, moves):
        """Return the largest divergence, at each order, over all tallies and moves of a vote, both ways."""
        found = np.zeros(len(ORDERS))
        shaped = laws.reshape(*[self.size] * self.k, -1)
        for move in moves:
            moved = np.roll(shaped, [-step for step in move], axis=tuple(range(self.k)))
            for p, q in ((shaped, moved), (moved, shaped)):
                # What comes with a chance below 1e-20 at both is left out: noise was cut off there.
                counts = p > 1e-20
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    for i, order in enumerate(ORDERS):
                        parts = np.where(counts, p**order * q ** (1 - order), 0)
                        found[i] = max(found[i], np.log(parts.sum(axis=-1)).max() / (order - 1))
        return found


MOVES = {2: [(1, -1)], 3: [(1, -1, 0), (1, 0, -1), (0, 1, -1)]}
ALONE = {2: [(1, 0), (0, 1)], 3: [(1, 0, 0), (0, 1, 0), (0, 0, 1)]}


def price(rule):
    orders = np.array(ORDERS)
    answer, check = argmax_supremum(ANSWER, ORDERS).values, check_supremum(CHECK, ORDERS).values
    return answer + (check if "confident" in rule else 0) + orders * 2 / (2 * RANGE**2)


@pytest.mark.parametrize("rule", ["argmax", "confident"])
def test_no_tally_of_a_small_ring_costs_more_than_the_price(rule):
    ring = SmallRing(rule, 2, 7)
    laws = ring.laws()
    assert np.allclose(laws.sum(axis=1), 1)
    found = ring.dearest(laws, MOVES[2] + ALONE[2])
    assert (found <= price(rule) * (1 + 1e-9)).all()
    assert (found > 0.3 * price(rule)).all()  # and something is told at all
    # An honest tally is never void, but for what eight standard deviations leave.
    assert laws.reshape(128, 128, -1)[1, 2, 0] < 1e-14


@pytest.mark.campaign
def test_no_tally_of_three_classes_costs_more_than_the_price(monkeypatch):
    for name, value in {"ANSWER": 0.4, "CHECK": 0.4, "RANGE": 0.4, "ORDERS": [1.5, 2.0]}.items():
        monkeypatch.setitem(globals(), name, value)
    ring = SmallRing("confident", 3, 5, reach=4)
    found = ring.dearest(ring.laws(), MOVES[3] + ALONE[3])
    assert (found <= price("confident") * (1 + 1e-9)).all()


def test_noises_act_apart():
    """Void by the ranges, silent by the check, the class by the answer: as `laws` takes it."""
    rng = np.random.default_rng(5)
    for rule in ("argmax", "confident"):
        ring = SmallRing(rule, 2, 7)
        n = 20_000
        tally = rng.integers(0, ring.size, (n, 2))
        tally[::2] = rng.integers(-2, 6, (n // 2, 2))
        tally[::2, 1] = N - tally[::2, 0]
        given = {
            "answer": rng.integers(-3, 4, (n, 2)), "ranged": rng.integers(-20, 21, (n, 2)),
            "check": rng.integers(-3, 4, (n, 1)),
            "ranks": np.argsort(rng.random((n, 2)), axis=1),
        }  # fmt: skip
        neutral = ring.neutral(tally)
        both = ring.run(tally, **given)
        fair = ring.run(tally, **{**neutral, "ranged": given["ranged"]}) != 0
        told = ring.run(tally, **{**neutral, "check": given["check"]}) != SILENCE
        lead = ring.run(tally, **{**neutral, "answer": given["answer"], "ranks": given["ranks"]})
        silent = SILENCE if rule == "confident" else 0
        np.testing.assert_array_equal(both, np.where(fair, np.where(told, lead, silent), 0))
        assert 0.1 < fair.mean() < 0.9


# --- Planted faults, two of which were proposed in earnest. ---


def unfair(shape):
    return lambda jnp, program, seen: np.ones((len(seen), 1), dtype=bool)


def test_without_ranges_an_offset_makes_a_check_tell_single_votes(monkeypatch):
    monkeypatch.setattr(_circuits, "_fair", unfair(2))
    ring = SmallRing("confident", 2, 7)
    # With half the ring added to one class, silence is a window of the noise that opens and shuts.
    found = ring.dearest(ring.laws(), MOVES[2])
    assert (found > 5 * price("confident")).all()


def test_ranges_without_noise_tell_single_votes(monkeypatch):
    # "Silence where a tally is not in 0 .. n" is a function of the votes without any noise.
    monkeypatch.setitem(globals(), "RANGE", 1e-3)
    monkeypatch.setitem(globals(), "REACH", 0)
    ring = SmallRing("argmax", 2, 7, reach=0)
    assert np.isinf(ring.dearest(ring.laws(), MOVES[2])).all()


MECHANISMS = [
    GNMax(sigma=4.0),
    ConfidentGNMax(sigma=4.0, threshold=5, sigma_threshold=6.0),
    Binary(sigma=4.0, n_labels=3),
    ConfidentBinary(sigma=4.0, n_labels=3, threshold=5, sigma_threshold=3.0),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_the_contract_finds_one_cut_in_every_noise(mechanism):
    check_any_shares(mechanism)


FAULTS = {
    "no ranges": ("_fair", unfair(3), MECHANISMS[0]),
    "no ranges before a check": ("_fair", unfair(3), MECHANISMS[1]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_contract_finds_a_planted_fault(fault, monkeypatch):
    name, planted, mechanism = FAULTS[fault]
    monkeypatch.setattr(_circuits, name, planted)
    with pytest.raises(AssertionError, match="Expected one cut"):
        check_any_shares(mechanism)
