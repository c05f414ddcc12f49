"""Votes that a party keeps back where its model is not sure: in the model's own units, and in the clear."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from tellers.errors import ConfigError
from tellers.parties import clear_votes, encode_model, program_digest, program_for
from tellers.parties._policy import PartyContext
from tellers.parties.models import encode_known
from tellers.parties.programs import VoteProgram, describe_program, read_program
from tellers.runs import parse_party, write_party
from tellers.runs.settings.party import HardeningConfig, ModelConfig, example_settings
from tellers.teachers.models import dump_model

from .near_ties import near_ties

RNG = np.random.default_rng(4)
X = np.round(RNG.normal(size=(300, 4)) * 64) / 64  # on the grid of inputs, where trees are exact
Y = (X[:, :3] + 0.7 * RNG.normal(size=(300, 3))).argmax(axis=1)
SCORES = {
    "linear": (make_pipeline(StandardScaler(), LogisticRegression()), lambda m: m.decision_function(X)),
    "two": (LogisticRegression(), lambda m: np.stack([0 * X[:, 0], m.decision_function(X)], axis=1)),
    "network": (MLPClassifier((6,), max_iter=60, random_state=0), None),
    "tree": (DecisionTreeClassifier(max_depth=4, random_state=0), lambda m: m.predict_proba(X)),
    "forest": (RandomForestClassifier(4, max_depth=3, random_state=0), lambda m: m.predict_proba(X)),
}


def network_scores(model):
    hidden = np.maximum(X @ model.coefs_[0] + model.intercepts_[0], 0)
    return hidden @ model.coefs_[1] + model.intercepts_[1]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", SCORES)
def test_a_party_votes_where_its_best_score_reaches_the_limit(kind):
    estimator, scored = SCORES[kind]
    fitted = estimator.fit(X, Y % 2 if kind == "two" else Y)
    scores = (scored or network_scores)(fitted)
    program = program_for(estimator, 4, task="single", n_outputs=5, batch=300, input_bound=8)
    program = replace(program, abstaining=True)
    least = float(np.quantile(scores.max(axis=1), 0.8 if kind == "two" else 0.4))
    model = encode_model(program, fitted, abstain_below=least)
    votes = clear_votes(program, model, program.encode(X))
    sure = scores.max(axis=1) >= least
    near = near_ties(program, model, X) | np.isclose(scores.max(axis=1), least, rtol=1e-6)
    np.testing.assert_array_equal(votes.sum(axis=1)[~near], sure[~near])
    here = sure & ~near
    np.testing.assert_array_equal(votes.argmax(axis=1)[here], scores.argmax(axis=1)[here])
    assert (~sure & ~near).sum() > 60
    assert here.sum() > 30
    # Who sets no limit always votes, and the same as where nobody may abstain.
    always = clear_votes(program, encode_model(program, fitted), program.encode(X))
    plain = replace(program, abstaining=False)
    np.testing.assert_array_equal(always, clear_votes(plain, encode_model(plain, fitted), program.encode(X)))
    for extreme, n in ((1e30, 0), (-1e30, 300)):
        model = encode_model(program, fitted, abstain_below=extreme)
        assert clear_votes(program, model, program.encode(X)).sum() == n


def test_whether_parties_may_abstain_is_public_and_from_where_is_not():
    shape = {"model": "linear", "task": "single", "n_features": 4, "n_outputs": 3, "batch": 1}
    plain, free = VoteProgram(**shape), VoteProgram(**shape, abstaining=True)
    assert program_digest(plain) != program_digest(free)
    assert read_program(describe_program(free)) == free
    with pytest.raises(ValueError, match="another kind of value for abstaining"):
        read_program({**describe_program(plain), "abstaining": 1})
    assert [slot.name for slot in free.model_slots] == ["weights0", "offsets0", "least"]
    fitted = LogisticRegression().fit(X, Y)
    with pytest.raises(ValueError, match="only where all agreed on abstaining"):
        encode_known(plain, fitted, abstain_below=0.5)
    with pytest.raises(ValueError, match="abstaining where a vote is for one class"):
        VoteProgram(**{**shape, "task": "multi"}, abstaining=True)
    with pytest.raises(ValueError, match="many labels"):
        encode_known(VoteProgram(**{**shape, "task": "multi"}), fitted, abstain_below=0.5)


def test_settings_say_it_with_lines_and_terms_do_not_know_the_limit(tmp_path):
    text = write_party(example_settings("answerer")).replace("abstaining = false", "abstaining = true")
    lower, higher = (text.replace("# abstain_below = 0.5", f"abstain_below = {at}") for at in (-1e3, 1e3))
    settings = [parse_party(one) for one in (text, lower, higher)]
    assert len({one.terms for one in settings}) == 1
    assert settings[0].terms != example_settings("answerer").terms
    with pytest.raises(ConfigError, match=r"party\.toml:[0-9]+: model\.abstain_below: .*abstaining = true"):
        parse_party(lower.replace("abstaining = true", "abstaining = false"), source="party.toml")
    labels = text.replace('name = "gnmax"', 'name = "binary"')
    with pytest.raises(ConfigError, match=r"session\.abstaining: .*many labels"):
        parse_party(labels)
    (tmp_path / "model.skops").write_bytes(dump_model(LogisticRegression().fit(X, Y)))
    for one, votes in zip(settings[1:], (1, 0)):
        alone = replace(one, folder=str(tmp_path), hardening=HardeningConfig(pairwise=False))
        context = PartyContext(alone)
        program = context.vote_program(1)
        assert clear_votes(program, context.model(), program.encode(X[:1])).sum() == votes
    assert ModelConfig().abstain_below is None
