"""A whole run, and a fit, that ask one tested batch."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tellers import Accountant, Budget, SqliteLedger, Unit
from tellers.cli import main
from tellers.errors import ConfigError, TellersError
from tellers.mechanisms import TestedGNMax
from tellers.runs import MechanismConfig, PateClassifier, QueriesConfig, RunResult
from tellers.runs.fit import Queries
from tellers.runs.pipeline import run_steps
from tellers.runs.result import read_result
from tellers.service import ServedConfig, ServiceSettings
from tellers.service._teachers import open_served

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
    said = result.tested
    assert (said.passed, said.words) == (True, "the batch passed its test")
    assert (said.clear_cost, said.held_at, said.delta) == (2.1, 4.0, 1e-5)
    table = json.loads((tmp_path / "run" / "result.json").read_text())
    assert RunResult.from_dict(table).tested == said
    card = json.loads((tmp_path / "run" / "student" / "card.json").read_text())
    assert card["tested"] == table["tested"]
    for place in ("report.html", "student/card.md"):
        page = (tmp_path / "run" / place).read_text()
        assert "the batch passed its test" in page
        assert "2.1 at Rényi order 4" in page
    # A service, which is asked one by one, does not go on by its mechanism.
    served = ServiceSettings(data=ServedConfig(source="run", path="run"), folder=str(tmp_path))
    with pytest.raises(ConfigError, match=r"mechanism.name: .*one question at a time"):
        open_served(served)


STRICT = {"clear_cost": 0.9}


def test_after_a_failed_test_the_full_price_is_stated_where_it_was_fixed_beforehand(tmp_path):
    strict = replace(CLEAR, mechanism=replace_mechanism(**STRICT))
    go_on = replace(strict, queries=QueriesConfig(after_fail="full price", batch=5))
    result = run_on_votes(go_on, tmp_path / "on")
    entries, spent = books_of(tmp_path / "on")
    assert [entry.event["mechanism"] for entry in entries] == ["TestedGNMax"] + 4 * ["GNMax"]
    assert spent.delta == 1e-5
    mechanism = strict.build_mechanism()
    both = mechanism.fail_price(Unit(), 20) + 20 * mechanism.without_test().price(Unit())
    assert result.spent.epsilon == pytest.approx(both.epsilon(1e-4 - 1e-5), rel=1e-12)
    assert result.spent.charged == result.spent.epsilon < 30.0
    assert (result.tested.passed, result.is_void) == (False, False)
    assert result.tested.words == "the batch failed its test; its rows were asked again at the full price"
    assert result.student.n_labels == result.queries.n_answered == 20
    assert (tmp_path / "on" / "student").is_dir()


def test_a_budget_below_both_paths_is_what_is_stated(tmp_path):
    strict = replace(
        CLEAR, mechanism=replace_mechanism(**STRICT), budget=replace(CLEAR.budget, epsilon=4.8),
        queries=QueriesConfig(after_fail="full price", batch=5),
    )  # fmt: skip
    mechanism = strict.build_mechanism()
    both = mechanism.fail_price(Unit(), 20) + 20 * mechanism.without_test().price(Unit())
    assert both.epsilon(1e-4 - 1e-5) > 4.8
    result = run_on_votes(strict, tmp_path / "run")
    assert result.spent.epsilon == 4.8
    assert result.queries.stopped_by == "the budget"
    assert 0 < result.queries.n_answered < 20


def replace_mechanism(**changes):
    return MechanismConfig(name="tested-gnmax", **{**CHOSEN, **changes})


def test_a_run_that_stops_at_a_failed_test_ends_with_a_result_that_says_so(tmp_path):
    strict = replace(CLEAR, mechanism=replace_mechanism(**STRICT))
    result = run_on_votes(strict, tmp_path / "run")
    [entry], spent = books_of(tmp_path / "run")
    assert not entry.release.answered.any()
    mechanism = strict.build_mechanism()
    assert np.array_equal(spent.values, mechanism.fail_price(Unit(), 20).values)
    assert result.is_void
    assert result.queries.stopped_by == "a failed test"
    assert result.tested.words == "the batch failed its test: nothing was released"
    left = 1e-4 - 1e-5
    assert result.spent.charged == mechanism.fail_price(Unit(), 20).epsilon(left)
    assert result.spent.epsilon == mechanism.batch_price(Unit(), 20).epsilon(left)
    assert (result.student.n_labels, result.student.accuracy) == (0, None)
    assert not (tmp_path / "run" / "student").exists()
    assert read_result(tmp_path / "run").tested == result.tested
    page = (tmp_path / "run" / "report.html").read_text()
    assert "the batch failed its test: nothing was released" in page
    assert "there is no\n  student" in page


def test_the_command_ends_with_a_code_of_its_own_and_goes_on_at_the_full_price(tmp_path, capsys):
    strict = replace(CLEAR, mechanism=replace_mechanism(**STRICT))
    folder = tmp_path / "run"
    run_on_votes(strict, folder)
    call = ["run", str(folder / "config.toml"), "--out", str(folder), "--resume"]

    def code_of(*more):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([*call, *more])
        return ended.value.code, " ".join(capsys.readouterr().out.split())

    code, said = code_of()
    assert code == 3
    for words in ("There is no student", "failed its test", "for the test alone", "after_fail"):
        assert words in said
    assert len(books_of(folder)[0]) == 1
    full = ("--set", 'queries.after_fail="full price"', "--set", "queries.batch=7")
    assert code_of(*full)[0] == 2  # another batch is another run
    code, said = code_of(*full[:2])
    assert code == 0
    assert "asked again at the full price" in said
    entries, _ = books_of(folder)
    assert [entry.event["mechanism"] for entry in entries] == ["TestedGNMax", "GNMax", "GNMax"]
    # There is no way back to a cheaper statement.
    assert code_of("--set", 'queries.after_fail="stop"')[0] == 2


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


def test_settings_on_a_clock_are_refused_when_they_are_read():
    with pytest.raises(ConfigError, match=r'budget.rule: Expected "renyi" with mechanism "tested-gnmax"'):
        replace(CLEAR, budget=replace(CLEAR.budget, rule="clock"))


def test_the_books_say_that_a_test_failed_and_what_it_took_of_delta(tmp_path, capsys):
    strict = replace(CLEAR, mechanism=replace_mechanism(**STRICT))
    result = run_on_votes(strict, tmp_path / "run")

    def printed(*words):
        with pytest.raises(SystemExit):
            main(["ledger", "list", str(tmp_path / "run" / "ledger.db"), *words])
        return capsys.readouterr().out

    [entry] = json.loads(printed("--json"))["entries"]
    assert (entry["delta"], entry["passed"]) == (1e-5, False)
    assert entry["charged"] == result.spent.charged  # at what the test left of delta
    assert "failed its test" in " ".join(printed().split())


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


def test_a_classifier_whose_batch_fails_says_that_there_is_no_student():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 4))
    y = rng.integers(0, 2, 900)  # nothing to learn, and nothing to agree on
    model = PateClassifier(
        teacher=LogisticRegression(), mechanism=TestedGNMax(4.0, 0.5, 1.5, 4.0, 1e-6, 30), n_teachers=20,
        classes=[0, 1], random_state=3, budget=Budget(9.0, 1e-5), queries=Queries(seeded_noise=True),
        student=LogisticRegression(),
    )  # fmt: skip
    with (
        pytest.warns(UserWarning, match="seeded"),
        pytest.raises(ValueError, match=r"batch that passes its test.*after_fail='full price'") as refusal,
    ):
        model.fit(X[:600], y[:600], public=X[600:])
    assert any("is spent" in note for note in refusal.value.__notes__)


def test_another_student_of_the_same_votes_goes_on_by_gnmax_on_the_ledger_of_the_test(tmp_path):
    strict = replace(CLEAR, mechanism=replace_mechanism(**STRICT))
    run_on_votes(strict, tmp_path / "run")
    plain = replace(SMALL, queries=QueriesConfig(n_queries=6))
    result = run_steps(plain, tmp_path / "more", first=tmp_path / "run").result
    entries, spent = books_of(tmp_path / "run")
    assert [entry.event["mechanism"] for entry in entries] == ["TestedGNMax", "GNMax"]
    assert (result.tested, result.queries.n_answered) == (None, 6)
    assert (result.spent.shared, result.spent.epsilon) == (True, 30.0)  # it is not alone on its ledger
    assert result.spent.charged == pytest.approx(spent.epsilon(1e-4 - 1e-5), rel=1e-12)
    other = replace(strict, mechanism=replace_mechanism(**{**STRICT, "held_at": 5.0}))
    with pytest.raises(ValueError, match="held at the Rényi order 5"):
        run_steps(other, tmp_path / "other", first=tmp_path / "run")
    assert len(books_of(tmp_path / "run")[0]) == 2
