"""Estimators as whole numbers vote as scikit-learn does, but for near ties, which are counted."""

import itertools
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tellers.parties import clear_votes, encode_model, program_for

from .definitions import scores_of
from .near_ties import near_ties

DIGITS, DIGIT = load_digits(return_X_y=True)
PIXELS = DIGITS / 16
LABELS = np.stack([DIGIT % 2 == 0, DIGIT >= 5, np.isin(DIGIT, [2, 3, 5, 7]), DIGIT % 3 == 0], axis=1).astype(
    int
)
TRAIN, TEST = slice(0, 900), slice(900, None)

SINGLE = {
    "linear": LogisticRegression(max_iter=300),
    "scaled": make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)),
    "network": MLPClassifier((32,), max_iter=40, random_state=0),
    "deep": MLPClassifier((24, 16), max_iter=40, random_state=0),
    "tree": DecisionTreeClassifier(max_depth=6, random_state=0),
    "forest": RandomForestClassifier(8, max_depth=4, random_state=0),
    "rest": OneVsRestClassifier(LogisticRegression(max_iter=300)),
}
MULTI = {
    "rest": OneVsRestClassifier(LogisticRegression(max_iter=300)),
    "outputs": MultiOutputClassifier(LogisticRegression(max_iter=300)),
    "network": MLPClassifier((32,), max_iter=40, random_state=0),
    "tree": DecisionTreeClassifier(max_depth=5, random_state=0),
    "forest": RandomForestClassifier(5, max_depth=4, random_state=0),
    "rest of trees": OneVsRestClassifier(DecisionTreeClassifier(max_depth=4, random_state=0)),
}


def fitted(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def compare(estimator, y, task, seed):
    """Return the places where votes differ from predictions, and where queries are near a tie."""
    noise = np.random.default_rng(seed).normal(0, 0.05, PIXELS.shape)
    X = np.clip(PIXELS + noise, -1, 1)  # off the grid, so that rounding does something
    fitted(estimator, X[TRAIN], y[TRAIN])
    n_outputs = 10 if task == "single" else y.shape[1]
    program = program_for(estimator, 64, task=task, n_outputs=n_outputs, batch=1, input_bound=1)
    model = encode_model(program, estimator)
    votes = clear_votes(program, model, program.encode(X[TEST]))
    wanted = estimator.predict(X[TEST])
    if task == "single":
        assert (votes.sum(axis=1) == 1).all()
        different = votes.argmax(axis=1) != wanted
    else:
        different = (votes != np.asarray(wanted)).any(axis=1)
    return different, near_ties(program, model, X[TEST])


@pytest.mark.parametrize("name", SINGLE)
def test_votes_for_one_class_are_the_predictions(name):
    different, near = compare(SINGLE[name], DIGIT, "single", 1)
    print(f"{name}: {different.sum()} of {len(near)} differ, {near.sum()} near ties")
    assert not (different & ~near).any()
    assert different.sum() <= 2
    assert near.mean() < 0.2  # else the sentence above says nothing


@pytest.mark.parametrize("name", MULTI)
def test_votes_on_labels_are_the_predictions(name):
    different, near = compare(MULTI[name], LABELS, "multi", 2)
    print(f"{name}: {different.sum()} of {len(near)} differ, {near.sum()} near ties")
    assert not (different & ~near).any()
    assert different.sum() <= 2
    assert near.mean() < 0.3


def test_inputs_at_a_limit_turn_left_as_in_the_tree():
    # Pixels are whole numbers, so limits between two of them that are two apart are pixels themselves: an
    # input may equal a limit. A product that rounds its last bit turns some of those the wrong way.
    tree = DecisionTreeClassifier(max_depth=8, random_state=0).fit(PIXELS[TRAIN], DIGIT[TRAIN])
    inner = tree.tree_.children_left != tree.tree_.children_right
    features, limits = tree.tree_.feature[inner], tree.tree_.threshold[inner]
    visits = tree.decision_path(PIXELS[TEST]).toarray()[:, inner].astype(bool)
    at_limit = visits & (PIXELS[TEST].astype(np.float32)[:, features] == limits)
    assert at_limit.any(axis=1).sum() >= 10
    program = program_for(tree, 64, task="single", n_outputs=10, batch=1, input_bound=1)
    model = encode_model(program, tree)
    votes = clear_votes(program, model, program.encode(PIXELS[TEST])).argmax(axis=1)
    assert np.array_equal(votes, tree.predict(PIXELS[TEST]))
    # One unit more, as a rounded product gives, and votes change.
    model["limits"] = model["limits"] - 1
    moved = clear_votes(program, model, program.encode(PIXELS[TEST])).argmax(axis=1)
    changed = moved != votes
    assert changed.any()
    assert not (changed & ~at_limit.any(axis=1)).any()


@given(st.integers(0, 2**32 - 1), st.sampled_from([(), (7,), (6, 5), (4, 4, 4)]), st.floats(-12, 12))
def test_no_input_leaves_the_ring(seed, hidden, log_size):
    generator = np.random.default_rng(seed)
    widths = (9, *hidden, 3)

    pairs = list(itertools.pairwise(widths))
    network = SimpleNamespace(
        classes_=np.arange(3),
        coefs_=[generator.normal(0, np.exp(log_size), shape) for shape in pairs],
        intercepts_=[generator.normal(0, np.exp(log_size), b) for _, b in pairs],
    )
    shaped = MLPClassifier(hidden)
    program = program_for(shaped, 9, task="single", n_outputs=3, batch=1, input_bound=3, input_bits=10)
    try:
        model = encode_model(program, network)
    except ValueError:
        assume(False)  # Refused: too large at the fewest bits.
    signs = generator.choice([-1, 1], (200, 9)) * program.largest_input
    scores = scores_of(program, model, signs)
    # The same in integers without end.
    values = [[int(v) for v in row] for row in signs]
    for layer in range(len(widths) - 1):
        W, b = model[f"weights{layer}"].tolist(), model[f"offsets{layer}"].tolist()
        values = [[sum(x * w[k] for x, w in zip(row, W)) + b[k] for k in range(len(b))] for row in values]
        if layer + 2 < len(widths):
            values = [[max(0, v) for v in row] for row in values]
    assert scores.tolist() == values
    assert np.abs(scores).max() < 2**60


def test_a_class_that_a_party_does_not_know_gets_no_vote():
    few = DIGIT < 4
    for estimator in (LogisticRegression(max_iter=300), DecisionTreeClassifier(max_depth=4),
                      RandomForestClassifier(3, max_depth=3, random_state=0),
                      MLPClassifier((8,), max_iter=20, random_state=0)):  # fmt: skip
        fitted(estimator, PIXELS[few][:200], DIGIT[few][:200] + 3)
        program = program_for(estimator, 64, task="single", n_outputs=10, batch=1, input_bound=1)
        model = encode_model(program, estimator, classes=list(range(10)))
        voted = clear_votes(program, model, program.encode(PIXELS)).sum(axis=0)
        assert voted[3:7].sum() == len(PIXELS)
    # Two known classes of ten.
    two = LogisticRegression(max_iter=300).fit(PIXELS[DIGIT < 2], DIGIT[DIGIT < 2] + 7)
    program = program_for(two, 64, task="single", n_outputs=10, batch=1, input_bound=1)
    votes = clear_votes(program, encode_model(program, two), program.encode(PIXELS[TEST]))
    assert np.array_equal(votes.argmax(axis=1), two.predict(PIXELS[TEST]))


def test_a_threshold_on_probabilities_moves_votes():
    estimator = OneVsRestClassifier(LogisticRegression(max_iter=300)).fit(PIXELS[TRAIN], LABELS[TRAIN])
    program = program_for(estimator, 64, task="multi", n_outputs=4, batch=1, input_bound=1)
    at = [0.2, 0.5, 0.7, 0.9]
    votes = clear_votes(
        program, encode_model(program, estimator, thresholds=at), program.encode(PIXELS[TEST])
    )
    assert np.array_equal(votes, estimator.predict_proba(PIXELS[TEST]) > np.array(at))


def test_no_ballot_has_more_labels_than_allowed():
    estimator = OneVsRestClassifier(LogisticRegression(max_iter=300)).fit(PIXELS[TRAIN], LABELS[TRAIN])
    program = program_for(estimator, 64, task="multi", n_outputs=4, batch=1, input_bound=1, max_labels=2)
    model, x = encode_model(program, estimator), program.encode(PIXELS[TEST])
    votes, free = clear_votes(program, model, x), estimator.predict(PIXELS[TEST])
    assert free.sum(axis=1).max() > 2
    assert np.array_equal(votes.sum(axis=1), np.minimum(free.sum(axis=1), 2))
    assert (votes <= free).all()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="KNeighborsClassifier"):
        program_for(KNeighborsClassifier(), 4, task="single", n_outputs=2, batch=1, input_bound=1)
    with pytest.raises(ValueError, match="max_depth"):
        program_for(DecisionTreeClassifier(), 4, task="single", n_outputs=2, batch=1, input_bound=1)
    tanh = MLPClassifier((3,), activation="tanh")
    with pytest.raises(ValueError, match="relu"):
        program_for(tanh, 4, task="single", n_outputs=2, batch=1, input_bound=1)
    deep = DecisionTreeClassifier(max_depth=6, random_state=0).fit(PIXELS, DIGIT)
    shallow = program_for(
        DecisionTreeClassifier(max_depth=3), 64, task="single", n_outputs=10, batch=1, input_bound=1
    )
    with pytest.raises(ValueError, match="deeper"):
        encode_model(shallow, deep)
    linear = LogisticRegression(max_iter=300).fit(PIXELS, DIGIT)
    five = program_for(linear, 64, task="single", n_outputs=5, batch=1, input_bound=1)
    with pytest.raises(ValueError, match="5 others"):
        encode_model(five, linear)
