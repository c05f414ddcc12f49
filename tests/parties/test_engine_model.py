"""What a party that deviates inside the engine can do: the engine's steps in small, and all deviations.

Nothing here is the product's, nor the engine's: each step is written down as the threat page describes it,
with oblivious transfer as an ideal box, on rings so small that everything a false party may send is tried.
"""

import itertools

import numpy as np
import pytest

RING = 16
BITS = (0, 1)


def bits(n):
    return itertools.product(BITS, repeat=n)


# --- A bit in two shares becomes a number in two shares ---


def to_number(b0, c, choice, x):
    """Rank 0 sends with correlation c, honestly -2 b0; rank 1 chooses, honestly b1. Both get a share."""
    return (b0 - x) % RING, (choice + x + c * choice) % RING


def test_a_bit_becomes_a_number():
    for b0, b1, x in itertools.product(BITS, BITS, range(RING)):
        assert sum(to_number(b0, -2 * b0, b1, x)) % RING == b0 ^ b1


def test_a_false_sender_counts_a_vote_as_often_as_it_likes():
    for times, b0, x in itertools.product(range(RING), BITS, range(RING)):
        sign = 1 - 2 * b0  # b1 = b0 + sign * vote
        found = {}
        for vote in BITS:
            sums = sum(to_number(b0, sign * times - 1, b0 ^ vote, x))
            found[vote] = (sums - sign * times * b0) % RING
        assert (found[1] - found[0]) % RING == times


def test_a_false_receiver_gets_one_vote_and_what_it_knows():
    # It may choose either bit, and make its share any function of what it received.
    for choice, received, share in itertools.product(BITS, range(RING), range(RING)):
        known = share - received - choice
        for b0 in BITS:
            x = (received + 2 * b0 * choice) % RING  # what rank 0 must have drawn
            assert (b0 - x + share - known) % RING == b0 ^ choice


# --- AND of bits in two shares, by a triple from two random transfers ---


def share_of_and(rank, x, y, a, b, v, sent, p, q):
    """The honest party's share, with a, b, v its part of a triple, `sent` two bits that it was sent one of,
    and p, q the other's part of what both open."""
    c = (a & b) ^ sent[a] ^ v
    opened_x, opened_y = x ^ a ^ p, y ^ b ^ q
    return c ^ (opened_x & b) ^ (opened_y & a) ^ ((opened_x & opened_y) if rank == 0 else 0)


@pytest.mark.parametrize("rank", [0, 1])
def test_whatever_is_done_to_an_and_flips_inputs_or_the_outcome(rank):
    allowed = {
        tuple(((x ^ e) & (y ^ f)) ^ g for x, y in bits(2)) for e, f, g in bits(3)
    }  # fmt: skip
    for m0, m1, chosen, got, seen_x, seen_y, p, q in bits(8):
        found = []
        for x, y in bits(2):
            a, b = x ^ seen_x, y ^ seen_y  # what the honest party must have drawn, as the other sees it
            v = got ^ (chosen & b)
            found.append(share_of_and(rank, x, y, a, b, v, (m0, m1), p, q))
        assert tuple(found) in allowed


# --- Leaves of a comparison: one of N messages; a number selected by a bit ---


def test_a_false_sender_makes_of_a_leaf_any_function_and_a_false_receiver_another_input():
    n = 4
    honest = {tuple(int(digit > k) for k in range(n)) for digit in range(n)}
    any_table = set(bits(n))  # what is sent for each digit is the sender's to choose
    assert len(any_table) == 2**n > len(honest)
    for digit, choice in itertools.product(range(n), repeat=2):
        assert tuple(int(d > choice) for d in range(n))[digit] == int(digit > choice)


def selected(number, bit, corr):
    """Each side sends once, with correlation number * (1 - 2 bit); the sum of both shares."""
    own = sum(number[k] * bit[k] for k in BITS)
    return (own + corr[0] * bit[1] + corr[1] * bit[0]) % RING


@pytest.mark.parametrize("false", [0, 1])
def test_either_side_adds_to_what_is_selected_a_multiple_of_the_bit(false):
    for number, bit in itertools.product(itertools.product(range(0, RING, 3), repeat=2), bits(2)):
        corr = [number[k] * (1 - 2 * bit[k]) for k in BITS]
        true = selected(number, bit, corr)
        assert true == sum(number) * (bit[0] ^ bit[1]) % RING
        for more in range(RING):
            corr[false] = number[false] * (1 - 2 * bit[false]) + more
            assert selected(number, bit, corr) == (true + more * bit[1 - false]) % RING


# --- A product by homomorphic encryption: who encrypts chose the key ---

Q, DEGREE = 2**40, 8


def times(f, g):
    """Multiply polynomials modulo X^8 + 1 and 2^40."""
    full = np.zeros(2 * DEGREE, dtype=object)
    for k, one in enumerate(f):
        full[k : k + DEGREE] += int(one) * np.array([int(n) for n in g], dtype=object)
    return (full[:DEGREE] - full[DEGREE:]) % Q


def answer(rng, ciphertext, key, matrix):
    """What who multiplies sends back: the product, an encrypted zero under the other's key, and a mask."""
    u, e0, e1 = (rng.integers(-1, 2, DEGREE) for _ in range(3))
    mask = rng.integers(0, Q, DEGREE)
    halves = [times(half, matrix) + times(part, u) for half, part in zip(ciphertext, key)]
    return (halves[0] + e0 - mask) % Q, (halves[1] + e1) % Q


def test_a_false_key_shows_the_matrix_of_who_multiplies_and_a_true_one_does_not():
    rng = np.random.default_rng(3)
    matrix, zero = rng.integers(-1000, 1000, DEGREE), np.zeros(DEGREE, dtype=np.int64)
    large = np.array([2**20, *[0] * (DEGREE - 1)])
    secret, error, a = rng.integers(-1, 2, DEGREE), rng.integers(-2, 3, DEGREE), rng.integers(0, Q, DEGREE)
    true_key = ((-times(a, secret) + error) % Q, a)

    def read(half):
        centred = np.array([int(n) - Q * (int(n) > Q // 2) for n in half], dtype=float)
        return np.rint(centred / 2**20).astype(int)

    assert (read(answer(rng, (zero, large), (zero, zero), matrix)[1]) == matrix).all()
    assert (read(answer(rng, (zero, large), true_key, matrix)[1]) != matrix).any()
