"""Circuits, run in the clear, compute what they should: no shares, no engine, so cases are cheap.

They are run with NumPy, which needs no compiler, and some with JAX as well, which the engine takes them from.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.parties import DecisionProgram, clear_decision, clear_votes
from tellers.parties._circuits import build_circuit
from tellers.parties.programs import VoteProgram

from .definitions import labels_of, votes_of


def random_model(program, generator):
    model = {slot.name: generator.integers(-50, 50, slot.shape) for slot in program.model_slots}
    if program.model == "forest":
        model["features"] = np.zeros_like(model["features"])
        chosen = generator.integers(0, program.n_features, program.n_decisions)
        model["features"][chosen, np.arange(program.n_decisions)] = 1
        if program.task == "single" and program.n_trees == 1:
            model["leaves"] = np.eye(program.n_outputs, dtype=np.int64)[
                generator.integers(0, program.n_outputs, program.n_leaves)
            ]
            model["offsets"] = 0 * model["offsets"]
            if program.abstaining:
                model["leaves"] *= generator.integers(0, 2, (program.n_leaves, 1))
    return model


def evaluate(program, tables, *, with_jax=False):
    """Return what a circuit gives in NumPy; it is the same in JAX, if it is asked too."""
    with np.errstate(over="ignore"):
        found = build_circuit(program, np)(*(tables[slot.name] for slot in program.slots))
    if with_jax:
        jax = pytest.importorskip("jax")
        with jax.experimental.enable_x64():
            given = [jax.numpy.asarray(tables[slot.name]) for slot in program.slots]
            np.testing.assert_array_equal(build_circuit(program)(*given), found)
    return found


SHAPES = {
    "linear": {"model": "linear"},
    "network": {"model": "network", "hidden": (4, 3)},
    "tree": {"model": "forest", "n_trees": 1, "depth": 3},
    "forest": {"model": "forest", "n_trees": 3, "depth": 2},
    "linear, abstaining": {"model": "linear", "abstaining": True},
    "tree, abstaining": {"model": "forest", "n_trees": 1, "depth": 3, "abstaining": True},
    "forest, abstaining": {"model": "forest", "n_trees": 3, "depth": 2, "abstaining": True},
}


@pytest.mark.parametrize("shape", SHAPES)
@given(
    seed=st.integers(0, 2**32 - 1), n_outputs=st.integers(2, 11), task=st.sampled_from(["single", "multi"])
)
@settings(max_examples=40)
def test_votes(shape, seed, n_outputs, task):
    require_votes(shape, seed, n_outputs, task)


@pytest.mark.parametrize(
    ("shape", "task"),
    [("linear, abstaining", "single"), ("forest", "multi")],
)
def test_votes_with_jax(shape, task):
    require_votes(shape, 7, 5, task, with_jax=True)


def require_votes(shape, seed, n_outputs, task, **how):
    generator = np.random.default_rng(seed)
    if "abstaining" in shape:
        task = "single"
    cap = None if task == "single" else int(generator.integers(1, n_outputs + 1))
    program = VoteProgram(
        task=task, n_features=5, n_outputs=n_outputs, batch=6, max_labels=cap, input_bits=4, **SHAPES[shape]
    )
    model = random_model(program, generator)
    # Few values, so that ties are common: the first of equal ones leads.
    x = generator.integers(-2, 3, (6, 5))
    mask = generator.integers(-(2**63), 2**63 - 1, program.output_shape)
    with np.errstate(over="ignore"):
        votes = evaluate(program, {"x": x, "mask": mask, **model}, **how) + mask
    assert np.array_equal(votes, votes_of(program, model, x))
    assert np.array_equal(votes, clear_votes(program, model, x))
    if task == "single":
        assert ((votes.sum(axis=1) == 1) | program.abstaining).all()


RULES = ["argmax", "confident", "labels", "confident_labels"]


@pytest.mark.parametrize("rule", RULES)
@given(seed=st.integers(0, 2**32 - 1), n_outputs=st.integers(2, 11))
@settings(max_examples=40)
def test_decisions(rule, seed, n_outputs):
    require_decisions(rule, seed, n_outputs)


@pytest.mark.parametrize("rule", RULES)
def test_decisions_with_jax(rule):
    require_decisions(rule, 7, 5, with_jax=True)


def require_decisions(rule, seed, n_outputs, **how):
    generator = np.random.default_rng(seed)
    limits = tuple(generator.integers(0, 7, n_outputs).tolist()) if "labels" in rule else ()
    bar = tuple(generator.integers(0, 7, n_outputs).tolist()) if "confident" in rule else ()
    program = DecisionProgram(
        rule=rule, n_outputs=n_outputs, batch=8, n_answerers=7, limits=limits, bar=bar, reach=2,
    )  # fmt: skip
    counts = generator.integers(0, 8, (8, n_outputs))
    masks = generator.integers(-(2**63), 2**63 - 1, counts.shape)
    drawn, ranged = generator.integers(-2, 3, (2, *counts.shape))
    # One row in three is out of range.
    ranged[generator.random(8) < 0.3, 0] += generator.choice([-12, 12, 2**62, -(2**62)])
    ranks = None if "labels" in rule else np.argsort(generator.random(counts.shape), axis=1)
    check = generator.integers(-2, 3, (8, 1) if rule == "confident" else counts.shape) if bar else None
    with np.errstate(over="ignore"):
        shares = counts - masks
    given_ = program.guardian_inputs(
        masks, answer_noise=drawn, range_noise=ranged, ranks=ranks, check_noise=check
    )
    codes = program.fresh_codes()
    opened = evaluate(program, {"shares": shares, "codes": codes, **given_}, **how)
    found, void = program.decode(opened, codes)
    assert np.array_equal(found, labels_of(program, shares, given_))
    assert np.array_equal(found, clear_decision(program, shares, given_))
    assert (found[void] == -1).all()
    assert void.any() or not (np.abs(ranged) > 9).any()
