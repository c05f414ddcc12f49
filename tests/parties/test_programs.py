"""Public programs: what a digest covers, what is refused, and that ties and bars fold into the sums."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers import Binary, ConfidentBinary, LabelVotes
from tellers.parties import DecisionProgram, clear_decision, program_digest
from tellers.parties._ring import fresh_mask
from tellers.parties.programs import VoteProgram, describe_program, read_program

from .test_circuits import evaluate

LINEAR = VoteProgram(model="linear", task="single", n_features=64, n_outputs=10, batch=100)
ANY = [
    LINEAR,
    VoteProgram(
        model="network", task="multi", n_features=3, n_outputs=4, batch=2, hidden=(5, 6), max_labels=2
    ),
    VoteProgram(model="forest", task="single", n_features=3, n_outputs=2, batch=2, n_trees=2, depth=3),
    DecisionProgram(rule="argmax", n_outputs=3, batch=2, n_answerers=5),
    DecisionProgram(rule="argmax", n_outputs=3, batch=2, n_answerers=5, reach=9),
    DecisionProgram(rule="confident", n_outputs=3, batch=2, n_answerers=5, bar=(3, 3, 3)),
    DecisionProgram(rule="labels", n_outputs=2, batch=2, n_answerers=5, limits=(3, 2)),
    DecisionProgram(rule="confident_labels", n_outputs=2, batch=2, n_answerers=5, limits=(3, 2), bar=(4, 4)),
]


@pytest.mark.parametrize("program", ANY, ids=lambda p: describe_program(p)["kind"])
def test_a_description_is_the_program(program):
    assert read_program(describe_program(program)) == program
    assert program_digest(read_program(describe_program(program))) == program_digest(program)


def test_every_field_is_in_the_digest():
    changed = {
        "n_features": 65, "n_outputs": 11, "batch": 99, "input_bits": 15, "input_bound": 2.0, "task": "multi",
    }  # fmt: skip
    digests = {program_digest(dataclasses.replace(LINEAR, **{name: v})) for name, v in changed.items()}
    assert len(digests | {program_digest(LINEAR)}) == len(changed) + 1
    assert len({program_digest(p) for p in ANY}) == len(ANY)


def test_a_digest_stays_what_it_is():
    # Parties of different versions must notice a changed meaning: then FORMAT changes, and this number.
    assert program_digest(LINEAR) == "8906dff0ee9fc4ac1396fae64092e7bb061df486045ae4da625b1a0ded668713"


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "song"},
        {"kind": ["vote"]},
        {"format": 1},
        {"batch": 0},
        {"batch": 1e3},
        {"batch": True},
        {"batch": 10**9},
        {"n_features": "64"},
        {"hidden": [4]},
        {"hidden": "64"},
        {"n_trees": 1},
        {"max_labels": 2},
        {"input_bits": 60},
        {"input_bound": float("inf")},
        {"input_bound": -1},
        {"n_outputs": 1},
        {"task": "none"},
        {"surprise": 1},
    ],
    ids=str,
)
def test_what_another_party_sends_is_checked(wrong):
    with pytest.raises(ValueError, match="Expected"):
        read_program(describe_program(LINEAR) | wrong)


def test_limits_and_bars_belong_to_their_rules():
    with pytest.raises(ValueError, match="limits"):
        DecisionProgram(rule="labels", n_outputs=2, batch=1, n_answerers=5)
    with pytest.raises(ValueError, match="bar"):
        DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=5, bar=(1, 1))
    with pytest.raises(ValueError, match=r"below 2\^40"):
        DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=5, reach=2**40)


def split(counts, seed):
    """Split counts into what the asker and the guardian hold."""
    masks = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, counts.shape)
    with np.errstate(over="ignore"):
        return counts - masks, masks


@given(st.integers(0, 2**32 - 1), st.integers(2, 12))
def test_an_arg_max_of_shares_is_that_of_counts_with_ties_by_rank(seed, n_outputs):
    generator = np.random.default_rng(seed)
    counts = generator.integers(0, 4, (5, n_outputs))
    drawn = generator.integers(-2, 3, counts.shape)
    ranks = np.argsort(generator.random(counts.shape), axis=1)
    program = DecisionProgram(rule="argmax", n_outputs=n_outputs, batch=5, n_answerers=9)
    shares, masks = split(counts, seed)
    given_ = program.guardian_inputs(masks, answer_noise=drawn, range_noise=0 * drawn, ranks=ranks)
    labels = clear_decision(program, shares, given_)
    noisy = counts + drawn
    best = noisy.max(axis=1, keepdims=True)
    assert np.array_equal(labels, np.where(noisy == best, ranks, -1).argmax(axis=1))


class Scripted:
    """Noise that was drawn before, handed out call by call."""

    def __init__(self, *drawn):
        self.drawn = list(drawn)

    def discrete_gaussian(self, _sigma, shape):
        return self.drawn.pop(0).reshape(shape)


@pytest.mark.parametrize("seed", range(5))
def test_label_rules_are_the_mechanisms_own(seed):
    generator = np.random.default_rng(seed)
    sums, n = generator.integers(0, 12, (40, 3)), 11
    answer, check = generator.integers(-4, 5, sums.shape), generator.integers(-4, 5, sums.shape)
    votes = LabelVotes.from_sums(sums, n_teachers=n)
    shares, masks = split(sums, seed)
    plain = Binary(sigma=2.0, n_labels=3)
    program = DecisionProgram(
        rule="labels", n_outputs=3, batch=40, n_answerers=n, limits=tuple(plain.limits(n).tolist())
    )
    nothing = np.zeros_like(sums)
    given_ = program.guardian_inputs(masks, answer_noise=answer, range_noise=nothing)
    found = clear_decision(program, shares, given_)
    assert np.array_equal(found, plain.release(votes, Scripted(answer)).labels)
    sure = ConfidentBinary(sigma=2.0, n_labels=3, threshold=8, sigma_threshold=2.0)
    program = dataclasses.replace(program, rule="confident_labels", bar=(8, 8, 8))
    given_ = program.guardian_inputs(masks, answer_noise=answer, range_noise=nothing, check_noise=check)
    theirs = sure.release(votes, Scripted(check, answer)).labels
    ours = clear_decision(program, shares, given_)
    assert np.array_equal(ours == -1, theirs == -1)
    assert (ours == -1).any()
    assert (ours != -1).any()


@pytest.mark.parametrize("place", range(len(ANY)))
def test_a_share_of_an_outcome_that_was_changed_is_noticed_whatever_the_label(place):
    program = ANY[place]
    if isinstance(program, VoteProgram):
        return
    generator = np.random.default_rng(place)
    masks = fresh_mask(program.tally_shape)
    for _ in range(20):
        counts = generator.integers(-1, 7, program.tally_shape)
        noises = generator.integers(-2, 3, (3, *program.tally_shape))
        one = program.rule == "confident"
        given_ = program.guardian_inputs(
            masks, answer_noise=noises[0], range_noise=noises[1],
            ranks=None if program.is_multilabel else np.argsort(generator.random(masks.shape), axis=1),
            check_noise=noises[2][:, :1] if one else noises[2] if program.is_confident else None,
        )  # fmt: skip
        with np.errstate(over="ignore"):
            shares, codes = counts - masks, program.fresh_codes()
            opened = evaluate(program, {**program.asker_inputs(shares, codes), **given_})
            program.decode(opened, codes)
            for bit in (0, 1, 31, 62, 63):
                changed = opened.copy()
                changed[0, 0] ^= np.int64(-(2**63)) if bit == 63 else np.int64(1 << bit)
                with pytest.raises(ValueError, match="the guardian's share was changed"):
                    program.decode(changed, codes)
                # A share is added to, too: by one, and by what would turn 0 into 1 if no code were there.
                changed[0, 0] = opened[0, 0] + generator.choice([1, -1, 2**40])
                with pytest.raises(ValueError, match="the guardian's share was changed"):
                    program.decode(changed, codes)


def test_decoding_refuses_what_no_program_opens():
    program = DecisionProgram(rule="argmax", n_outputs=3, batch=1, n_answerers=5)
    for outcome in ([[1]], [[33]], [[-1]], [[7 + 8]]):
        with pytest.raises(ValueError, match="was changed"):
            program.decode(outcome, [[7, 8, 9]])
    nothing = [[0, 0, 0]]
    with pytest.raises(ValueError, match="permutation"):
        program.guardian_inputs(nothing, answer_noise=nothing, range_noise=nothing, ranks=[[0, 0, 1]])


def test_inputs_are_clipped_to_the_public_bound_and_never_missing():
    program = VoteProgram(model="linear", task="single", n_features=1, n_outputs=2, batch=1, input_bound=2)
    assert np.abs(program.encode([[1e300], [-5.0], [2.0]])).max() <= program.largest_input
    with pytest.raises(ValueError, match="finite"):
        program.encode([[np.nan]])
