"""A service whose ledger holds its budget on a clock: what is asked, what is left, and what is said of it."""

import json
import re
from dataclasses import replace

import pytest

from tellers import Accountant, Budget, GNMax, Unit
from tellers.cli import main
from tellers.errors import ConfigError, LedgerConflict
from tellers.ledger import open_ledger
from tellers.runs import MechanismConfig
from tellers.service import LedgerConfig, ServedConfig, ServiceSettings, create_app, write_settings
from tellers.service._ledger import account_name, queries_left

SIGMA = 5.0  # loud enough for a few queries, and of the noise whose table other tests use
PRICE = GNMax(SIGMA).price(Unit())
BUDGET, OWN = Budget(4.0, 1e-4), Budget(2.0, 1e-4)
ON_CLOCK = Accountant.by("clock", BUDGET)


@pytest.fixture
def clock(place):
    settings = replace(
        place.settings,
        mechanism=MechanismConfig(name="gnmax", sigma=SIGMA),
        ledger=LedgerConfig(url="ledger.db", epsilon=BUDGET.epsilon, delta=BUDGET.delta, rule="clock"),
    )
    made = replace(place, settings=settings)
    with open_ledger(settings.place("ledger.db"), ON_CLOCK) as ledger:
        ledger.open_account(account_name("ada"), OWN)
    return made


def ask(client, bearer, key, n):
    return client.post("/v1/labels", headers=bearer, json={"idempotency_key": key, "pool": [0] * n})


def test_a_service_asks_to_the_end_of_a_clock(clock):
    student, operator = clock.bearer("bob"), clock.bearer("olga", "operator")
    n = ON_CLOCK.n_affordable(PRICE, 1000)
    with clock.open() as client:
        before = client.get("/v1/budget", headers=operator).json()["data"]
        assert (before["rule"], before["stated"], before["share_left"]) == ("clock", 0.0, 1.0)
        assert before["queries_left"] == n
        assert (before["epsilon_spent"], before["epsilon_left"]) == (None, None)
        first = ask(client, student, "a", n - 1).json()
        assert first["left"]["stated"] == BUDGET.epsilon
        assert 0 < first["left"]["share_left"] < 2 / n
        assert first["left"]["queries_left"] == 1
        last = ask(client, student, "c", 1)
        assert last.status_code == 200
        refused = ask(client, student, "d", 1)
        after = client.get("/v1/budget", headers=operator).json()
        metrics = client.get("/metrics", headers=operator).text
    assert refused.json()["type"].endswith("budget-exhausted")
    assert refused.json()["queries_left"] == 0
    assert after["data"] == last.json()["left"]
    assert after["data"]["stated"] == BUDGET.epsilon
    with open_ledger(clock.settings.place("ledger.db")) as ledger:
        assert ledger.accountant == ON_CLOCK
        assert sum(entry.event["n_queries"] for entry in ledger.entries()) == n
        assert after["data"]["share_left"] == ledger.accountant.left(ledger.spent)
    assert f"tellers_share_left {after['data']['share_left']}" in metrics


def test_an_account_has_a_clock_of_its_own(clock):
    ada, operator = clock.bearer("ada"), clock.bearer("olga", "operator")
    n = Accountant.by("clock", OWN).n_affordable(PRICE, 1000)
    with clock.open() as client:
        said = ask(client, ada, "a", n).json()
        assert ask(client, ada, "b", 1).json()["account"] == account_name("ada")
        accounts = client.get("/v1/budget", headers=operator).json()["accounts"]
        own = client.get("/v1/budget", headers=ada).json()["own"]
    assert said["own"] == own == accounts[account_name("ada")]
    assert (own["rule"], own["stated"], own["epsilon"], own["queries_left"]) == ("clock", 2.0, 2.0, 0)
    assert 0 <= own["share_left"] < said["left"]["share_left"] < 1


def test_what_is_left_is_what_is_let_through():
    spent = 3 * PRICE
    n = queries_left(ON_CLOCK, spent, PRICE)
    assert ON_CLOCK.affords(spent, n * PRICE)
    assert not ON_CLOCK.affords(spent, (n + 1) * PRICE)


def test_pages_show_shares_of_the_clock(clock):
    operator = clock.key("olga", "operator")
    with clock.open() as client:
        ask(client, clock.bearer("ada"), "a", 3)
        form = re.search(r'name="form" value="([^"]+)"', client.get("/dashboard/sign-in").text)[1]
        client.post("/dashboard/sign-in", data={"form": form, "key": operator})
        overview = client.get("/dashboard").text
        account = client.get("/dashboard/account", params={"name": account_name("ada")}).text
    for text, epsilon in ((overview, "4.000"), (account, "2.000")):
        assert f"ε {epsilon} (clock) is stated" in text
        assert "of the clock left" in text
        assert "ε 0" not in text
    assert " spent of " not in overview + account


def test_a_check_tells_the_share(clock, tmp_path, capsys):
    file = tmp_path / "service.toml"
    file.write_text(write_settings(clock.settings))
    with pytest.raises(SystemExit):
        main(["serve", "--config", str(file), "--check", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["rule"], told["share_left"]) == ("clock", 1.0)
    assert "epsilon_left" not in told


def test_a_rule_is_of_a_ledger_that_is_named(clock):
    with pytest.raises(ConfigError, match=r"ledger\.rule: Expected it only with url"):
        ServiceSettings(data=ServedConfig(path="study"), ledger=LedgerConfig(rule="clock"))


def test_another_rule_than_the_ledgers_is_refused(clock):
    other = replace(clock.settings, ledger=replace(clock.settings.ledger, rule="renyi"))
    with pytest.raises(LedgerConflict, match=r"Expected the rule that ledger\.db .*'clock', got 'renyi'"):
        create_app(other)
