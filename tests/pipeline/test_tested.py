"""A whole run, and a fit, that ask one tested batch."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tellers import Accountant, Budget, SqliteLedger, Unit
from tellers.errors import TellersError
from tellers.mechanisms import TestedGNMax
from tellers.runs import MechanismConfig, PateClassifier, QueriesConfig
from tellers.runs.fit import Queries

from ..small_runs import SMALL, run_on_votes

CHOSEN = {"sigma": 5.0, "test_sigma": 1.5, "held_at": 4.0, "test_delta": 1e-5, "n_queries": 20}
CLEAR = replace(
    SMALL, mechanism=MechanismConfig(name="tested-gnmax", clear_cost=2.1, **CHOSEN), queries=QueriesConfig()
)


def books_of(folder):
    accountant = Accountant(Budget(30.0, 1e-4), order=4.0, for_tests=1e-5)
    with SqliteLedger(folder / "ledger.db", accountant) as ledger:
        ledger.verify()
        return ledger.entries(), ledger.spent


def test_a_run_asks_its_pool_as_one_batch_and_states_what_that_costs(tmp_path):
    result = run_on_votes(CLEAR, tmp_path / "run")
    [entry], spent = books_of(tmp_path / "run")
    mechanism = CLEAR.build_mechanism()
    most = mechanism.batch_price(Unit(), 20)
    assert entry.event["mechanism"] == "TestedGNMax"
    assert spent.delta == 1e-5
    assert result.spent.epsilon == pytest.approx(most.epsilon(1e-4 - 1e-5), rel=1e-12)
    assert result.queries.n_answered == 20


def test_a_run_whose_test_fails_says_so_or_goes_on_at_the_full_price(tmp_path):
    strict = replace(CLEAR, mechanism=replace_mechanism(clear_cost=0.9))
    go_on = replace(strict, queries=QueriesConfig(after_fail="full price", batch=5))
    result = run_on_votes(go_on, tmp_path / "on")
    entries, spent = books_of(tmp_path / "on")
    names = [entry.event["mechanism"] for entry in entries]
    assert names[0] == "TestedGNMax"
    assert spent.delta == 1e-5
    if len(names) > 1:
        assert set(names[1:]) == {"GNMax"}
        assert result.spent.epsilon == 30.0


def replace_mechanism(**changes):
    return MechanismConfig(name="tested-gnmax", **{**CHOSEN, **changes})


def test_a_run_that_stops_at_a_failed_test_says_what_it_cost(tmp_path):
    strict = replace(CLEAR, mechanism=replace_mechanism(clear_cost=0.9))
    with pytest.raises(ValueError, match="silence for every row"):
        run_on_votes(strict, tmp_path / "run")
    [entry], spent = books_of(tmp_path / "run")
    assert not entry.release.answered.any()
    assert np.array_equal(spent.values, strict.build_mechanism().fail_price(Unit(), 20).values)


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        (QueriesConfig(order="active"), "order"),
        (QueriesConfig(n_labels=5), "n_labels"),
        (QueriesConfig(n_queries=19), "n_queries"),
    ],
)
def test_settings_that_ask_before_all_votes_are_in_are_refused(queries, words):
    with pytest.raises((ValueError, TellersError), match=words):
        replace(CLEAR, queries=queries)


def test_a_classifier_asks_one_batch():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    y = (X[:, 0] > 0).astype(int)
    mechanism = TestedGNMax(4.0, 5.0, 1.5, 4.0, 1e-6, 30)
    model = PateClassifier(
        teacher=LogisticRegression(), mechanism=mechanism, n_teachers=20, classes=[0, 1], random_state=3,
        budget=Budget(9.0, 1e-5), queries=Queries(seeded_noise=True), student=LogisticRegression(),
    )  # fmt: skip
    with pytest.warns(UserWarning, match="seeded"):
        model.fit(X[:600], y[:600], public=X[600:])
    price = mechanism.batch_price(Unit(), 30)
    assert model.released_.passed is True
    assert model.n_queries_ == model.released_.n_answered == 30
    assert model.spent_.delta == 1e-6
    assert np.array_equal(model.spent_.values, price.values)
