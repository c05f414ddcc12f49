"""Parties that do not know every label: the whole confidential path, without the engine, against one room."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.tree import DecisionTreeClassifier

from tellers import SILENT, Binary, ConfidentBinary, GNMax, LabelVotes, noise
from tellers.errors import ConfigError
from tellers.mechanisms import GNThreshold
from tellers.parties import (
    DecisionProgram,
    clear_decision,
    clear_votes,
    encode_model,
    program_digest,
    program_for,
)
from tellers.parties._last_step import decide, decision_of, draw
from tellers.parties._policy import PartyContext
from tellers.parties._ring import fresh_mask, ring_scaled, ring_sum
from tellers.parties.models import count_voters, encode_known, n_model_outputs
from tellers.parties.programs import describe_program, read_program
from tellers.runs import MechanismConfig, parse_party, write_party
from tellers.runs.settings.party import SessionConfig, settings_for
from tellers.teachers.models import dump_model

from .test_circuits import evaluate

N_LABELS = 4
SETS = {"east": (0, 1), "north": (1, 3), "west": (0, 1, 3)}  # nobody but south knows label 2
NAMES = ("east", "north", "south", "west")
MECHANISMS = [
    Binary(sigma=2.0, n_labels=N_LABELS),
    GNThreshold(sigma=2.0, n_labels=N_LABELS, share=0.3, max_labels=2),
    ConfidentBinary(sigma=2.0, n_labels=N_LABELS, threshold=2.5, sigma_threshold=1.5),
]
ROWS = np.random.default_rng(1).normal(size=(80, 3))
SAID = (ROWS @ np.random.default_rng(2).normal(size=(3, N_LABELS)) > 0).astype(int)


def knows(names=NAMES):
    table = np.ones((len(names), N_LABELS), dtype=bool)
    for row, name in enumerate(names):
        if name in SETS:
            table[row] = np.isin(np.arange(N_LABELS), SETS[name])
    return table


def settings_of(name, *, sets=SETS, mechanism=None, n_outputs=N_LABELS):
    roles = {"ann": "asker", "guard": "guardian"} | dict.fromkeys(NAMES, "answerer")
    card = {"address": "127.0.0.1:7400", "pin": "0" * 64, "mask_key": "0" * 64}
    parties = {one: {"role": role, **card, "labels": sets.get(one, ())} for one, role in roles.items()}
    return settings_for(
        name, parties, session=SessionConfig(n_features=3, n_outputs=n_outputs, input_bound=8.0),
        mechanism=mechanism or MechanismConfig(name="binary", sigma=2.0),
    )  # fmt: skip


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("names", [NAMES, ("east", "north"), ("east", "west")])
def test_labels_are_those_of_one_room_with_the_same_noise(mechanism, names):
    ballots = np.random.default_rng(7).integers(0, 2, (len(names), 300, N_LABELS))
    votes = LabelVotes.from_ballots(ballots, n_labels=N_LABELS, knows=knows(names))
    said = mechanism.release(votes, noise.seeded(11)).labels
    voters = count_voters(names, SETS, N_LABELS)
    assert voters == tuple(votes.n_voters)
    masks = ring_sum([fresh_mask(votes.sums.shape) for _ in names])
    asker = ring_sum([mechanism.fitted_sums(votes), ring_scaled(masks, -1)])
    step = draw(mechanism, masks, n_answering=len(names), noise=noise.seeded(11), voters=voters)
    np.testing.assert_array_equal(decide(step, asker), said)
    np.testing.assert_array_equal(clear_decision(step.program, asker, step.inputs()), said)
    assert (said[:, 2] == SILENT).all() == ("south" not in names)
    assert {0, 1} <= set(np.unique(said))


@pytest.mark.parametrize("rule", ["labels", "confident_labels"])
@given(seed=st.integers(0, 2**32 - 1), n_outputs=st.integers(1, 9))
@settings(max_examples=15)
def test_circuits_decide_as_in_the_clear(rule, seed, n_outputs):
    rng = np.random.default_rng(seed)
    voters = tuple(rng.integers(0, 8, n_outputs).tolist())
    mechanism = Binary(1.0, n_outputs)
    if rule == "confident_labels":
        mechanism = ConfidentBinary(1.0, n_outputs, threshold=4, sigma_threshold=1.0)
    one = decision_of(mechanism, n_outputs=n_outputs, n_answering=7, voters=voters)
    program = replace(one, batch=6)
    counts = rng.integers(0, np.array(voters) + 1, (6, n_outputs))
    masks = rng.integers(-(2**63), 2**63 - 1, counts.shape)
    drawn = rng.integers(-2, 3, (2, *counts.shape))
    with np.errstate(over="ignore"):
        shares = counts - masks
    inputs = program.guardian_inputs(
        masks, answer_noise=drawn[0], range_noise=drawn[1],
        check_noise=drawn[1] if program.is_confident else None,
    )  # fmt: skip
    codes = program.fresh_codes()
    opened = evaluate(program, {**program.asker_inputs(shares, codes), **inputs})
    # Not even noise is opened of a label that nobody knows: its first code, every time.
    first = codes.reshape(*program.output_shape, -1)[..., 0]
    assert (opened == first)[:, np.array(voters) == 0].all()
    labels, void = program.decode(opened, codes)
    np.testing.assert_array_equal(labels, clear_decision(program, shares, inputs))
    assert not void.any()


ESTIMATORS = {
    "linear": OneVsRestClassifier(LogisticRegression()),
    "network": MLPClassifier((4,), max_iter=30, random_state=0),
    "tree": DecisionTreeClassifier(max_depth=3, random_state=0),
    "forest": RandomForestClassifier(3, max_depth=3, random_state=0),
    "trees": MultiOutputClassifier(DecisionTreeClassifier(max_depth=3, random_state=0)),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("cap", [None, 1])
@pytest.mark.parametrize("own", [(1, 3), (0, 2, 3), (2,)])
def test_a_party_votes_on_its_own_labels_and_says_no_to_all_others(kind, cap, own):
    if kind == "trees" and len(own) == 1:
        pytest.skip("one column is no multi-output problem")
    program = program_for(
        ESTIMATORS[kind], 3, task="multi", n_outputs=N_LABELS, batch=80, input_bound=8, max_labels=cap
    )
    target = SAID[:, list(own)] if len(own) > 1 else SAID[:, own[0]]
    small = ESTIMATORS[kind].fit(ROWS, target)
    assert n_model_outputs(small) == len(own)
    x = program.encode(ROWS)
    votes = clear_votes(program, encode_known(program, small, own), x)
    alone = program_for(ESTIMATORS[kind], 3, task="multi", n_outputs=len(own), batch=80, input_bound=8)
    if program.model == "forest":
        alone = replace(alone, n_trees=program.n_trees)
    alone = replace(alone, max_labels=cap)
    np.testing.assert_array_equal(votes[:, list(own)], clear_votes(alone, encode_model(alone, small), x))
    assert not np.delete(votes, own, axis=1).any()
    assert votes.any()
    wide = ESTIMATORS[kind].fit(ROWS, SAID)
    masked = clear_votes(program, encode_known(program, wide, own), x)
    assert not np.delete(masked, own, axis=1).any()
    if cap is None:
        everything = clear_votes(program, encode_model(program, wide), x)
        np.testing.assert_array_equal(masked[:, list(own)], everything[:, list(own)])


def test_models_that_do_not_fit_what_a_party_claims_are_refused():
    program = program_for(ESTIMATORS["linear"], 3, task="multi", n_outputs=N_LABELS, batch=1, input_bound=8)
    three = OneVsRestClassifier(LogisticRegression()).fit(ROWS, SAID[:, :3])
    with pytest.raises(ValueError, match="the 2 labels that this party claims, or for all 4, got one for 3"):
        encode_known(program, three, (0, 1))
    with pytest.raises(ValueError, match="for all 4 labels, got one for 3"):
        encode_known(program, three)
    for labels in ((0, 0, 1), (2, 1, 0), (1, 2, 4), (-1, 0, 1)):
        with pytest.raises(ValueError, match="from 0 to 3, each once"):
            encode_known(program, three, labels)
    with pytest.raises(ValueError, match="one class"):
        encode_known(replace(program, task="single"), three, (0, 1, 2))


@pytest.mark.parametrize("estimator", [LogisticRegression(), DecisionTreeClassifier(max_depth=3)])
def test_a_model_of_some_classes_votes_among_its_own(estimator):
    classes = np.array([1, 4, 5])
    fitted = estimator.fit(ROWS, classes[(ROWS[:, :3]).argmax(axis=1)])
    program = program_for(estimator, 3, task="single", n_outputs=6, batch=80, input_bound=8)
    votes = clear_votes(program, encode_known(program, fitted), program.encode(ROWS))
    np.testing.assert_array_equal(votes.argmax(axis=1), fitted.predict(ROWS))
    assert (votes.sum(axis=1) == 1).all()
    with pytest.raises(ValueError, match="among the 5 public ones, got 1 others"):
        encode_known(replace(program, n_outputs=5), fitted)


def test_settings_carry_label_sets_and_terms_differ_by_them():
    guard = settings_of("guard")
    assert guard.label_sets == SETS
    again = parse_party(write_party(guard))
    assert again == guard
    assert again.terms == settings_of("ann").terms == settings_of("east").terms
    # A card that says something else, a full set spelled out, and one label less.
    assert settings_of("ann", sets={**SETS, "north": (1, 2)}).terms != guard.terms
    assert settings_of("ann", sets={**SETS, "south": (0, 1, 2, 3)}).terms == guard.terms
    assert settings_of("ann", sets={}).label_sets == {}
    policy = PartyContext(guard).policy()
    assert count_voters(("east", "north"), policy.labels, 4) == (1, 2, 0, 1)
    assert count_voters(("south",), policy.labels, 4) == ()
    assert PartyContext(guard).decision_program(("east", "north"), 5).limits[:2] == (1, 2)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({"north": (0, 4)}, "from 0 to 3, each once"),
        ({"north": (1, 1)}, "each once"),
        ({"north": (3, 1)}, "increasing order"),
        ({"ann": (0,)}, "of answering parties alone"),
    ],
)
def test_wrong_label_sets_are_refused_with_their_line(sets, words):
    text = write_party(settings_of("guard", sets={}))
    name, labels = next(iter(sets.items()))
    wrong = text.replace(f'name = "{name}"\n', f'name = "{name}"\nlabels = {list(labels)}\n')
    line = wrong.splitlines().index(f"labels = {list(labels)}") + 1
    with pytest.raises(ConfigError, match=f"guard.toml:{line}: .*labels: .*{words}"):
        parse_party(wrong, source="guard.toml")


def test_label_sets_are_for_many_labels():
    with pytest.raises(ConfigError, match="one class per row"):
        settings_of("guard", mechanism=MechanismConfig(name="gnmax", sigma=2.0))
    with pytest.raises(ValueError, match="many labels"):
        decision_of(GNMax(sigma=2.0), n_outputs=2, n_answering=2, voters=(1, 2))


def test_the_number_of_voters_is_part_of_the_program():
    plain = DecisionProgram(rule="labels", n_outputs=2, batch=1, n_answerers=5, limits=(3, 2))
    some = replace(plain, voters=(5, 3))
    assert program_digest(plain) != program_digest(some)
    assert read_program(describe_program(some)) == some
    for voters in ((5,), (5, 6), (5, -1)):
        with pytest.raises(ValueError, match="voters"):
            replace(plain, voters=voters)
    with pytest.raises(ValueError, match="many labels"):
        DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=5, voters=(5, 5))


def test_an_answering_party_reads_its_own_model(tmp_path):
    made = settings_of("north")
    made = replace(made, folder=str(tmp_path), hardening=replace(made.hardening, pairwise=False))
    fitted = OneVsRestClassifier(LogisticRegression()).fit(ROWS, SAID[:, [1, 3]])
    (tmp_path / "model.skops").write_bytes(dump_model(fitted))
    context = PartyContext(made)
    program = context.vote_program(80)
    votes = clear_votes(program, context.model(), program.encode(ROWS))
    np.testing.assert_array_equal(votes[:, [1, 3]], fitted.predict(ROWS))
    assert not votes[:, [0, 2]].any()
    three = OneVsRestClassifier(LogisticRegression()).fit(ROWS, SAID[:, :3])
    (tmp_path / "model.skops").write_bytes(dump_model(three))
    with pytest.raises(ValueError, match=r"model\.skops: Expected a model for the 2 labels .* got one for 3"):
        context.model()
