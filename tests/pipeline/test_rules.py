"""A budget on a clock, through settings, command line, classifier and planner: one public number."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    GNMax,
    MemoryLedger,
    PateClassifier,
    RdpCurve,
    Room,
    SqliteLedger,
    Unit,
    Votes,
    noise,
)
from tellers.cli import main
from tellers.errors import BudgetExhausted, ConfigError, LedgerConflict
from tellers.ledger import open_ledger
from tellers.mechanisms.base import price_of
from tellers.privacy.budget import clock_words, smallest_on_clock
from tellers.runs import BudgetConfig, MechanismConfig, Queries, QueriesConfig, run
from tellers.runs._planning import compare_rules
from tellers.runs.labelling import guaranteed_epsilon, label_pool, most_expected
from tellers.runs.result import read_result
from tellers.teachers.pool import VotedPool

from .. import small_runs

# One setting for all tests: a table is worked out once.
SIGMA, DELTA, EPSILON = 5.0, 1e-4, 8.0
BUDGET = Budget(EPSILON, DELTA)
ON_CLOCK = replace(
    small_runs.SMALL,
    mechanism=MechanismConfig(name="gnmax", sigma=SIGMA),
    budget=BudgetConfig(epsilon=EPSILON, delta=DELTA, rule="clock"),
    data=replace(small_runs.SMALL.data, n_public=100),
    queries=QueriesConfig(n_queries=90, batch=4),
)
PRICE = GNMax(SIGMA).price(Unit())


def tellers(capsys, *words, code=0):
    """Return what the command line prints, as JSON where it is."""
    with pytest.raises(SystemExit) as left:
        main([*map(str, words)])
    said = capsys.readouterr()
    assert left.value.code in ((0, None) if not code else (code,)), said.err
    if code:
        return said.err
    return json.loads(said.out) if "--json" in words else " ".join(said.out.split())


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rules") / "study"
    run(ON_CLOCK, folder)
    return folder


def test_a_clock_pays_for_more_and_every_place_says_the_same(study, capsys):
    result = read_result(study)
    by_renyi = Accountant(BUDGET).n_affordable(PRICE, 90)
    assert result.queries.stopped_by == "the budget"
    assert (
        by_renyi
        < result.queries.n_asked
        <= Accountant.by("clock", BUDGET, price=PRICE).n_affordable(PRICE, 90)
    )
    with open_ledger(study / "ledger.db") as ledger:
        held, spent = ledger.accountant, ledger.spent
    assert held.rule == "clock"
    assert result.spent.epsilon == held.epsilon(spent) == EPSILON
    left, renyi = held.left(spent), (result.queries.n_asked * PRICE).epsilon(DELTA)
    assert 0 <= left < 0.1
    words = clock_words(EPSILON, left)

    account = tellers(capsys, "account", study, "--json")
    status = tellers(capsys, "ledger", "status", study / "ledger.db", "--json")
    assert (account["stated"], account["budget_left"], account["rule"]) == (EPSILON, left, "clock")
    assert (status["stated"], status["left"], status["rule"]) == (EPSILON, left, "clock")
    assert (result.budget.rule, result.budget.left) == ("clock", left)
    card = json.loads((study / "student" / "card.json").read_text())
    assert (card["epsilon"], card["clock"], card["is_guarantee"]) == (EPSILON, words, True)
    for told in (account["renyi"], status["renyi"], result.spent.renyi, card["renyi"]):
        assert told == pytest.approx(renyi, rel=1e-12)
    # What is spent is no epsilon: nothing says so.
    assert "charged" not in account
    assert "spent" not in status
    assert result.spent.charged is None
    assert words in tellers(capsys, "account", study)
    assert words in tellers(capsys, "ledger", "status", study / "ledger.db")
    assert words in (study / "student" / "card.md").read_text()
    page = (study / "report.html").read_text()
    assert words in page
    assert "What was left of the clock" in page
    assert "epsilon spent" not in page


def test_shares_of_the_clock_add_up(study, capsys):
    told = tellers(capsys, "ledger", "list", study / "ledger.db", "--limit", 0, "--json")
    left = tellers(capsys, "ledger", "status", study / "ledger.db", "--json")["left"]
    assert sum(one["of_clock"] for one in told["entries"]) == pytest.approx(1 - left, rel=1e-12)
    assert [point.left for point in read_result(study).cost][-1] == left


def test_what_a_run_on_a_clock_cost_is_not_published(study, capsys):
    before = tellers(capsys, "ledger", "status", study / "ledger.db", "--json")
    refused = tellers(capsys, "publish", study, "--yes", code=2)
    assert "a clock has no price for that. Nothing was charged." in " ".join(refused.split())
    free = tellers(capsys, "publish", study, "--method", "independent", "--yes", "--json")
    assert free["epsilon_upper"] == pytest.approx(read_result(study).spent.renyi)
    assert tellers(capsys, "ledger", "status", study / "ledger.db", "--json") == before


def test_a_ledger_keeps_its_rule(study, tmp_path):
    other = replace(ON_CLOCK, budget=replace(ON_CLOCK.budget, rule="renyi"))
    with pytest.raises(ValueError, match=r"got others for budget\.rule"):
        run(other, study, resume=True)
    with open_ledger(tmp_path / "shared.db", Accountant(BUDGET)):
        pass
    shared = replace(ON_CLOCK, budget=replace(ON_CLOCK.budget, ledger=str(tmp_path / "shared.db")))
    with pytest.raises(LedgerConflict, match=r"Expected the rule that shared.db .*'renyi', got 'clock'"):
        run(shared, tmp_path / "study")
    with open_ledger(tmp_path / "shared.db") as ledger:
        assert not ledger.entries()


def test_groups_have_no_clock():
    with pytest.raises(ConfigError, match=r'budget\.rule: Expected "renyi" with variant = "weighting"'):
        replace(ON_CLOCK, personal=small_runs.two_groups(1.0, 2.0))


def test_a_budget_that_pays_for_nothing_is_refused_before_anything(tmp_path):
    small = replace(ON_CLOCK, budget=replace(ON_CLOCK.budget, epsilon=0.1))
    with pytest.raises(BudgetExhausted, match=r"past the budget of epsilon 0\.1: it needs") as refusal:
        run(small, tmp_path / "study")
    assert not (tmp_path / "study" / "config.toml").exists()
    needed = float(re.search(r"needs ([\d.]+)", str(refusal.value))[1])
    assert Accountant.by("clock", Budget(1.01 * needed, DELTA)).affords(RdpCurve.zero(), PRICE)


@pytest.mark.parametrize("rule", ["renyi", "clock"])
def test_a_ledger_is_made_with_its_rule(tmp_path, capsys, rule):
    made = ["ledger", "init", tmp_path / "spend.db", "--epsilon", 2, "--delta", DELTA, "--rule", rule]
    assert tellers(capsys, *made, "--account", "student/ada=1", "--json")["rule"] == rule
    status = tellers(capsys, "ledger", "status", tmp_path / "spend.db", "--json")
    assert status["rule"] == rule
    assert status["accounts"]["student/ada"]["left"] == 1.0
    with open_ledger(tmp_path / "spend.db") as ledger:
        assert ledger.accounts()["student/ada"].accountant.rule == rule
    other = {"renyi": "clock", "clock": "renyi"}[rule]
    assert "Expected the rule" in tellers(capsys, *made[:-1], other, code=2)


# Votes in a file, and plans


def test_the_number_of_a_ledger_on_a_clock(tmp_path, capsys):
    counts = np.tile([[15, 3, 2]], (60, 1))
    np.savez(tmp_path / "votes.npz", counts=counts)
    given = [tmp_path / "votes.npz", "--mechanism", "gnmax", "--sigma", SIGMA, "--delta", DELTA, "--json"]
    given += ["--classes", 3]
    plain = tellers(capsys, "account", *given)
    clock = tellers(capsys, "account", *given, "--rule", "clock")
    paid = tellers(capsys, "account", *given, "--rule", "clock", "--budget", EPSILON)
    assert clock["renyi"] == plain["public"]
    assert clock["public"]["epsilon"] == clock["budget_needed"] < plain["public"]["epsilon"]
    whole = Accountant.by("clock", Budget(clock["budget_needed"], DELTA), price=PRICE)
    assert whole.n_affordable(PRICE, 60) == 60
    assert paid["public"]["epsilon"] == EPSILON
    assert paid["queries_paid"] == Accountant.by("clock", BUDGET, price=PRICE).n_affordable(PRICE, 60)
    assert tellers(capsys, "account", *given, "--rule", "renyi", "--budget", EPSILON) == tellers(
        capsys, "account", *given, "--budget", EPSILON
    )


def test_a_little_less_than_the_smallest_budget_does_not_pay():
    for price in (None, PRICE):
        needed = smallest_on_clock(30 * PRICE, DELTA, price=price).epsilon
        for epsilon, n in ((needed, 30), ((1 - 1e-4) * needed, 29)):
            accountant = Accountant.by("clock", Budget(epsilon, DELTA), price=price)
            assert accountant.n_affordable(PRICE, 60) == n


def test_the_planner_names_the_rule_that_gives_more(capsys):
    given = [
        "plan",
        "--teachers",
        20,
        "--classes",
        3,
        "--queries",
        500,
        "--epsilon",
        EPSILON,
        "--delta",
        DELTA,
    ]
    given += ["--mechanism", "gnmax", "--sigma", SIGMA, "--json"]
    rules = tellers(capsys, *given)["rules"]
    by = {
        rule: Accountant.by(rule, BUDGET, price=PRICE).n_affordable(PRICE, 500) for rule in ("renyi", "clock")
    }
    assert rules == {**by, "better": "clock"}
    assert "rules" not in tellers(capsys, *given, "--rule", "renyi")
    # Where the pool ends first, neither gives more, and less than the budget may be stated at a Rényi order.
    few = tellers(capsys, *given[:6], 5, *given[7:])["rules"]
    assert (few["renyi"], few["clock"], few["better"]) == (5, 5, "renyi")


def test_silence_is_expected_to_give_some_of_a_clock_back():
    mechanism = ConfidentGNMax(sigma=SIGMA, threshold=12, sigma_threshold=SIGMA)
    how = {"n_public": 10_000, "n_renyi": 1, "n_teachers": 20, "n_classes": 3}
    all_answered, half = (
        compare_rules(mechanism, BUDGET, share=share, **how).n_clock for share in (1.0, 0.5)
    )
    price = price_of(mechanism, Unit(), n_teachers=20, n_classes=3)
    assert abs(all_answered - Accountant.by("clock", BUDGET, price=price).n_affordable(price, 10_000)) <= 1
    assert half >= all_answered


# The classifier


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(7)
    y = rng.integers(2, size=400)
    return rng.normal(size=(400, 3)) + 3 * y[:, None], y


def classifier(**given):
    return PateClassifier(
        teacher=GaussianNB(), student=GaussianNB(), mechanism=GNMax(SIGMA), n_teachers=20, n_classes=2,
        **given,
    )  # fmt: skip


def test_a_classifier_on_a_clock(rows, tmp_path):
    X, y = rows
    model = classifier(epsilon=EPSILON, delta=DELTA, rule="clock").fit(X[:300], y[:300], public=X[300:])
    by_renyi = Accountant(BUDGET).n_affordable(PRICE, 100)
    assert (model.epsilon_, model.rule_, model.stopped_by_) == (EPSILON, "clock", "the budget")
    assert model.n_queries_ > by_renyi
    assert 0 <= model.left_ < 0.1
    assert model.budget_ == BUDGET
    place = model.export(tmp_path / "student")
    assert clock_words(EPSILON, model.left_) in (place / "card.md").read_text()


def test_a_rule_is_kept_with_the_budget():
    held = Accountant.by("clock", BUDGET)
    model = classifier(budget=BUDGET, rule="clock")
    assert model.get_params()["budget"] == held
    assert model.set_params(epsilon=4.0).budget == Accountant.by("clock", Budget(4.0, DELTA))
    assert model.set_params(rule="renyi").budget == Budget(4.0, DELTA)
    with pytest.raises(ValueError, match="with rule='clock', got none"):
        classifier(rule="clock")
    with pytest.raises(ValueError, match="Expected a rule, renyi or clock, got 'sundial'"):
        classifier(budget=BUDGET, rule="sundial")


def test_a_classifier_goes_by_the_rule_of_its_ledger(rows, tmp_path):
    X, y = rows
    held = Accountant.by("clock", BUDGET)
    with SqliteLedger(tmp_path / "fits.db", held) as ledger:
        asked = Queries(n_queries=25)
        model = classifier(ledger=ledger, queries=asked).fit(X[:300], y[:300], public=X[300:])
        assert (model.rule_, model.epsilon_) == ("clock", EPSILON)
        fits = classifier(ledger=MemoryLedger(Accountant(BUDGET)), budget=BUDGET, rule="clock")
        with pytest.raises(ValueError, match="rule of the ledger, 'renyi', got 'clock'"):
            fits.fit(X[:300], y[:300], public=X[300:])
    with pytest.raises(LedgerConflict, match="Expected the rule"):
        classifier(ledger=tmp_path / "fits.db", budget=BUDGET).fit(X[:300], y[:300], public=X[300:])


class Stranger:
    """Somebody's mechanism, with a curve and no clock price."""

    def price(self, unit):
        return RdpCurve.zcdp(0.01)

    def release(self, votes, source):
        raise AssertionError("nothing is asked")


def test_a_mechanism_without_a_clock_price_is_refused_in_time(rows):
    X, y = rows
    model = PateClassifier(mechanism=Stranger(), n_teachers=20, n_classes=2, budget=BUDGET, rule="clock")
    model.teacher = object()  # not one teacher is trained
    with pytest.raises(ValueError, match="Expected a price that the clock has a table for"):
        model.fit(X[:300], y[:300], public=X[300:])
    assert not hasattr(model, "student_")


# Rooms and statements


class Declared(VotedPool):
    """Teachers who say another number of themselves than vote."""

    n_teachers = 30


@pytest.mark.parametrize("rule", ["renyi", "clock"])
def test_votes_of_another_number_of_teachers_are_refused_and_stay_charged(rule):
    votes = Votes.from_counts([[15, 3, 2]] * 4, n_teachers=20)
    with MemoryLedger(Accountant.by(rule, BUDGET)) as ledger:
        room = Room(Declared(votes), GNMax(SIGMA), ledger, noise.secure())
        with pytest.raises(ValueError, match=r"the votes of 30 teachers, .* those of 20") as refused:
            room.ask([0, 1], key="q")
        assert "stays charged" in str(refused.value)
        (entry,) = ledger.entries()
        assert not entry.is_settled
        assert entry.event["n_teachers"] == 30
        assert ledger.accountant.left(ledger.spent) < 1


def test_what_is_planned_reserved_and_charged_is_one_item():
    mechanism = ConfidentGNMax(sigma=SIGMA, threshold=12, sigma_threshold=SIGMA)
    votes = Votes.from_counts([[18, 1, 1], [7, 7, 6]] * 3, n_teachers=20)
    with MemoryLedger(Accountant.by("clock", BUDGET)) as ledger:
        room = Room(VotedPool(votes), mechanism, ledger, noise.secure())
        released = room.ask(np.arange(6), key="q")
        (entry,) = ledger.entries()
        # With another item than was reserved, silence would give nothing back.
        n_silent = int((~released.answered).sum())
        whole = ledger.accountant.debit(RdpCurve.zero(), room.price(6)).ticks
        assert entry.charged.ticks <= whole
        assert (entry.charged.ticks < whole) == (n_silent > 0)


def test_a_run_states_what_it_cost_where_every_outcome_costs_the_same():
    even = ConfidentGNMax(sigma=SIGMA, threshold=12, sigma_threshold=SIGMA, expected_silence=0.0)
    votes = Votes.from_counts([[18, 1, 1], [7, 7, 6]] * 3, n_teachers=20)
    accountant = Accountant(Budget(30.0, DELTA))
    with MemoryLedger(accountant) as ledger:
        room = Room(VotedPool(votes), even, ledger, noise.secure())
        label_pool(room, np.zeros((6, 1)), queries=np.arange(6), seed=7, n_queries=4)
        most = most_expected(6, even, n_teachers=20, n_classes=3)
        stated = guaranteed_epsilon(ledger, accountant, most=most)
    assert stated == price_of(even, Unit(), 4, n_teachers=20, n_classes=3).epsilon(DELTA)
