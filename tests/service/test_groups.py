"""Groups of people with budgets of their own behind a service: who is told what, and what is refused."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tellers import Accountant, Budget, ConfidentGNMax, GNMax, Votes
from tellers.accounting import exact_cost
from tellers.cli import main
from tellers.errors import ConfigError
from tellers.runs import BudgetConfig, MechanismConfig, default_config, write_config
from tellers.runs.personal import make_plan, plan_as_dict, read_consent
from tellers.service import (
    LedgerConfig,
    PlanConfig,
    ServedConfig,
    ServiceSettings,
    create_app,
    parse_settings,
    write_settings,
)
from tellers.service._keys import KeyStore
from tellers.service._labels import ledger_key, owner
from tellers.service._ledger import account_name, open_service_ledger
from tellers.service.dashboard import _figures as forecast
from tellers.teachers import save_votes

DELTA = 1e-5
LEVELS = {"low": 0.6, "high": 1.2}
SIGMA = 60.0
N_TEACHERS = 40


class Place:
    """A folder with ballots, a plan and settings, and the keys to it."""

    def __init__(self, folder, variant="weighting", *, leave=False, levels=None, epsilon=4.0, **options):
        self.folder, levels = folder, levels or LEVELS
        consent = read_consent([n for n in levels for _ in range(100)], delta=DELTA, levels=levels)
        self.plan = make_plan(variant, consent, GNMax(SIGMA), n_teachers=N_TEACHERS, seed=3, **options)
        rng = np.random.default_rng(5)
        ballots = np.where(rng.random((self.plan.n_teachers, 50)) < 0.8, 0, 2)
        self.votes = Votes.from_ballots(ballots, n_classes=3)
        save_votes(folder / "votes.npz", self.votes)
        self.write(plan_as_dict(self.plan))
        self.settings = ServiceSettings(
            data=ServedConfig(source="votes", path="votes.npz", n_classes=3),
            mechanism=MechanismConfig(name="gnmax", sigma=SIGMA),
            ledger=LedgerConfig(url="ledger.db", epsilon=epsilon, delta=DELTA),
            personal=PlanConfig(plan="plan.json", leave=leave), folder=str(folder),
        )  # fmt: skip
        self.log = io.StringIO()

    def write(self, record):
        (self.folder / "plan.json").write_text(json.dumps(record))

    def bearer(self, name, role="student"):
        store = KeyStore(self.settings.place(self.settings.keys.store))
        token, _ = store.create(name, role)
        store.close()
        return {"Authorization": f"Bearer {token}"}

    def open(self, **changed):
        app = create_app(replace(self.settings, **changed), log_stream=self.log)
        return TestClient(app, raise_server_exceptions=False)

    def ledger(self):
        ledger = self.settings.ledger
        return open_service_ledger(self.settings.place(ledger.url), Budget(ledger.epsilon, ledger.delta))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(forecast, "make_profiles", lambda served: [])


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def ask(client, headers, key, pool=(0, 1, 2)):
    return client.post("/v1/labels", headers=headers, json={"idempotency_key": key, "pool": list(pool)})


def ask_all(client, headers, *, size=10, most=60):
    """Ask until refused; return the answers and the refusal, or None."""
    answers = []
    for number in range(most):
        answer = ask(client, headers, f"b{number}", [i % 50 for i in range(size)])
        if answer.status_code != 200:
            return answers, answer
        answers.append(answer.json())
    return answers, None


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_every_group_pays_and_the_first_that_cannot_ends_it(tmp_path, variant):
    place = Place(tmp_path, variant)
    alice, otto = place.bearer("alice"), place.bearer("otto", "operator")
    with place.open() as client:
        answers, refusal = ask_all(client, alice, size=max(8, getattr(place.plan, "period", 1)))
        assert answers
        assert refusal.status_code == 402
        told = refusal.json()
        assert told["type"].endswith("budget-exhausted")
        assert "a group of people in it has no more to give" in told["detail"]
        assert told["account"] == "data"
        budget = client.get("/v1/budget", headers=otto).json()
    for name, epsilon in LEVELS.items():
        group = budget["groups"][name]
        assert group["epsilon"] == epsilon
        assert group["n_persons"] == 100
        assert 0 < group["epsilon_spent"] <= epsilon
        assert budget["accounts"][f"group/{name}"]["epsilon_spent"] == group["epsilon_spent"]
    assert budget["data"]["queries_left"] == min(group["queries_left"] for group in budget["groups"].values())
    # The charges on the books are those of the plan under the key as it is stored.
    with place.ledger() as ledger:
        for entry in ledger.entries():
            answered = np.asarray(entry.release.answered)
            for name, curve in place.plan.charges(answered, key=entry.key).items():
                np.testing.assert_array_equal(entry.also[f"group/{name}"].charged.values, curve.values)


def test_what_is_left_is_what_can_be_asked(place):
    alice = place.bearer("alice")
    with place.open() as client:
        left = client.get("/v1/budget", headers=alice).json()["data"]["queries_left"]
        assert 10 < left < 1000
        most = [i % 50 for i in range(left)]
        assert ask(client, alice, "too-many", [*most, 0]).status_code == 402
        answer = ask(client, alice, "all", most)
        assert answer.status_code == 200
        assert answer.json()["left"]["queries_left"] == 0
        assert ask(client, alice, "one-more", [0]).status_code == 402


def test_vanishing_is_left_with_what_batches_of_its_period_pay_for(tmp_path):
    place = Place(tmp_path, "vanishing")
    alice, period = place.bearer("alice"), place.plan.period
    assert period > 1
    with place.open() as client:
        left = client.get("/v1/budget", headers=alice).json()["data"]["queries_left"]
        assert left % period == 0
        answers, refusal = ask_all(client, alice, size=period, most=left // period)
        assert refusal is None
        assert len(answers) == left // period > 1


def test_students_are_told_nothing_of_groups(place):
    alice = place.bearer("alice")
    with place.open() as client:
        said = [client.get("/v1/budget", headers=alice).text, client.get("/v1/releases", headers=alice).text]
        answers, refusal = ask_all(client, alice)
        said += [json.dumps(answers), refusal.text, client.get("/v1/releases", headers=alice).text]
        assert client.get("/metrics", headers=alice).status_code == 403
    for text in said:
        assert "low" not in text
        assert "high" not in text
        assert "group/" not in text
    assert json.loads(said[0])["groups"] is None


def test_a_student_with_an_account_is_told_whose_budget_it_was(place):
    alice = place.bearer("alice")
    with place.open() as client:
        with place.ledger() as ledger:
            ledger.open_account(account_name("alice"), Budget(50.0, DELTA))
        _, refusal = ask_all(client, alice)
        assert refusal.json()["account"] == "data"
    bob = place.bearer("bob")
    with place.open() as client:
        with place.ledger() as ledger:
            ledger.open_account(account_name("bob"), Budget(0.05, DELTA))
        assert ask(client, bob, "k").json()["account"] == "student/bob"


def test_exhausted_groups_leave_where_they_may(tmp_path):
    alike = {"levels": {"low": 0.6, "high": 2.4}, "weights": [1.0, 1.0]}
    (tmp_path / "stops").mkdir()
    (tmp_path / "goes on").mkdir()
    stops, goes_on = Place(tmp_path / "stops", **alike), Place(tmp_path / "goes on", leave=True, **alike)
    with stops.open() as client:
        early, _ = ask_all(client, stops.bearer("alice"), size=2, most=300)
    alice, ada = goes_on.bearer("alice"), goes_on.bearer("ada", "auditor")
    with goes_on.open() as client:
        late, _ = ask_all(client, alice, size=2, most=300)
        budget = client.get("/v1/budget", headers=ada).json()
    assert len(late) > len(early) > 0
    assert late[len(early)]["left"]["queries_left"] > 0
    assert budget["groups"]["low"]["queries_left"] == 0
    assert 0.6 * 2.4 < budget["groups"]["high"]["epsilon_spent"] <= 2.4


def test_metrics_have_what_each_group_spent(place):
    alice, otto = place.bearer("alice"), place.bearer("otto", "operator")
    with place.open() as client:
        ask(client, alice, "k")
        text = client.get("/metrics", headers=otto).text
        groups = client.get("/v1/budget", headers=otto).json()["groups"]
    for name in LEVELS:
        spent = float(re.search(rf'tellers_group_epsilon_spent{{group="{name}"}} (\S+)', text)[1])
        assert spent == groups[name]["epsilon_spent"] > 0
        assert f'tellers_group_epsilon{{group="{name}"}} {LEVELS[name]}' in text
        assert f'tellers_group_queries_left{{group="{name}"}} {groups[name]["queries_left"]}.0' in text


# --- The dashboard ---

GROUP_PAGE = "/dashboard/account?name=group/low"


@pytest.mark.parametrize("role", ["operator", "auditor"])
def test_the_dashboard_shows_every_group(place, role):
    alice, otto = place.bearer("alice"), place.bearer("otto", role)
    with place.open() as client:
        ask(client, alice, "k")
        sign_in(client, otto)
        page = client.get("/dashboard").text
        table = page[page.index("<h2>Groups of people</h2>") : page.index("<h2>Accounts</h2>")]
        rows = re.findall(r'<a href="/dashboard/account\?name=([^"]+)">([^<]+)</a>', table)
        assert rows == [("group/low", "low"), ("group/high", "high")]
        assert table.count('<svg class="spark"') == 2
        assert table.count('<svg class="burn"') == 2
        assert "100" in table
        assert "group/low" not in page[page.index("<h2>Accounts</h2>") :]
        assert "There is none where groups of people" in page
        own = client.get("/dashboard/account?name=group/low").text
        assert '<svg class="burn"' in own
        assert "spent of 0.600" in own


def test_the_dashboard_says_who_is_exhausted(place):
    alice, otto = place.bearer("alice"), place.bearer("otto", "operator")
    with place.open() as client:
        left = client.get("/v1/budget", headers=alice).json()["data"]["queries_left"]
        ask(client, alice, "all", [i % 50 for i in range(left)])
        sign_in(client, otto)
        page = client.get("/dashboard").text
    assert "The budget is exhausted." in page
    assert page.count('<span class="mark red">exhausted</span>') == 1


def sign_in(client, headers):
    form = re.search(r'name="form" value="([0-9a-f]{64})"', client.get("/dashboard/sign-in").text)[1]
    key = headers["Authorization"].removeprefix("Bearer ")
    client.post("/dashboard/sign-in", data={"form": form, "key": key}, follow_redirects=False)


def test_nothing_of_the_votes_is_said(place):
    weighted = place.votes.weighted(place.plan.weights(50, key=""))
    exact = exact_cost(place.plan.mechanism, weighted[np.arange(3)]).cost.reveal()
    secrets = [f"{value:.17g}"[:9] for value in (exact.epsilon(DELTA), *exact.values[::20]) if value > 1e-6]
    alice, otto = place.bearer("alice"), place.bearer("otto", "operator")
    with place.open() as client:
        said = [ask(client, alice, "k").text]
        sign_in(client, otto)
        said += [
            client.get(path, headers=otto).text
            for path in ("/v1/budget", "/v1/releases", "/metrics", "/dashboard", GROUP_PAGE)
        ]
    everything = "\n".join([*said, place.log.getvalue()])
    assert not [secret for secret in secrets if secret in everything]


# --- Keys ---

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", fullmatch=True)
KEYS = st.from_regex(r"[!-~]{1,200}", fullmatch=True)


@given(NAMES, KEYS, NAMES, KEYS)
def test_keys_of_two_students_never_clash(one, key, other, another):
    assert owner(ledger_key(one, key)) == (one, key)
    assert (ledger_key(one, key) == ledger_key(other, another)) == ((one, key) == (other, another))


def test_two_students_have_schedules_of_their_own(tmp_path):
    place = Place(tmp_path, "vanishing")
    alice, bob = place.bearer("alice"), place.bearer("bob")
    with place.open() as client:
        for headers in (alice, bob):
            assert ask(client, headers, "k", range(20)).status_code == 200
            again = ask(client, headers, "k", range(20)).json()
            assert again["replayed"]
    with place.ledger() as ledger:
        keys = [entry.key for entry in ledger.entries()]
    drawn = [place.plan.weights(20, key=key) for key in keys]
    assert len(keys) == 2
    assert not np.array_equal(*drawn)


# --- At the start ---


def refused(place, **changed):
    with pytest.raises(ConfigError) as caught:
        place.open(**changed)
    return str(caught.value)


def test_a_plan_for_other_teachers(place):
    consent = read_consent([0.9] * 50 + [1.8] * 50, delta=DELTA)
    place.write(plan_as_dict(make_plan("weighting", consent, GNMax(SIGMA), n_teachers=30, seed=3)))
    words = refused(place)
    assert words.startswith(
        "personal.plan: Expected a plan for the 40 teachers that vote here, got one for 30"
    )
    assert "plan.json of the run" in words


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "{}", '{"format": 9}', "[" * 5000, "\xff", '{"format": 1}']
)
def test_a_damaged_plan(place, text):
    (place.folder / "plan.json").write_text(text, encoding="latin-1")
    words = refused(place)
    assert "personal.plan: Expected a plan at" in words
    assert "restore it from a backup" in words


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("groups", 5), ("groups", [{"name": 3, "epsilon": 1.0, "n_persons": 5}]), ("groups", []),
        ("members", [[0, 1]]), ("members", [[10**30], [1]]), ("members", "x"), ("mechanism", {"name": []}),
        ("mechanism", None), ("variant", "averaging"), ("variant", None), ("weight_of", [1]),
        ("weight_of", ["a", "b"]), ("n_teachers", "many"), ("n_teachers", None),
    ],
)  # fmt: skip
def test_a_plan_with_something_else_in_it(place, key, value):
    place.write({**plan_as_dict(place.plan), key: value})
    assert "personal.plan: Expected a plan" in refused(place)


def test_a_plan_that_is_not_there(place):
    words = refused(place, personal=PlanConfig(plan="elsewhere.json"))
    assert "it cannot be read (No such file or directory)" in words


def test_ballots_are_needed_where_they_are_weighted(place):
    save_votes(place.folder / "votes.npz", Votes.from_counts(place.votes.counts, n_teachers=N_TEACHERS))
    assert "got a vote file with counts alone" in refused(place)


def test_who_may_leave(tmp_path, place):
    (tmp_path / "other").mkdir()
    other = Place(tmp_path / "other", "upsampling", leave=True)
    assert "personal.leave: Expected false with upsampling" in refused(other)
    assert "personal.leave: Expected false without a plan" in refused(place, personal=PlanConfig(leave=True))


def test_other_groups_or_none_on_the_same_books(place):
    alice = place.bearer("alice")
    with place.open() as client:
        ask(client, alice, "k")
    assert "accounts of groups" in refused(place, personal=PlanConfig())
    record = plan_as_dict(place.plan)
    place.write({**record, "groups": [{**group, "name": f"{group['name']} 2"} for group in record["groups"]]})
    assert "Expected the groups of the ledger, 'high', 'low'" in refused(place)
    place.write(
        {**record, "groups": [{**group, "epsilon": 2 * group["epsilon"]} for group in record["groups"]]}
    )
    assert "was opened with epsilon=0.6" in refused(place)


def test_books_on_which_groups_did_not_pay(place):
    alice = place.bearer("alice")
    with place.open(personal=PlanConfig()) as client:
        ask(client, alice, "k")
    assert "no group paid for it" in refused(place)


def test_another_mechanism_is_fitted_to_the_plan(place):
    confident = MechanismConfig(name="confident", sigma=SIGMA, threshold=24.0, sigma_threshold=90.0)
    alice, otto = place.bearer("alice"), place.bearer("otto", "operator")
    with place.open(mechanism=confident) as client:
        assert ask(client, alice, "k").status_code == 200
        told = client.get("/v1/budget", headers=otto).json()["mechanism"]
    fitted = place.plan.using(ConfidentGNMax(sigma=SIGMA, threshold=24.0, sigma_threshold=90.0)).mechanism
    assert told == {"name": "ConfidentGNMax", "sigma": fitted.sigma, "threshold": fitted.threshold,
                    "sigma_threshold": fitted.sigma_threshold}  # fmt: skip


def test_settings_are_written_and_read_back(place):
    text = write_settings(place.settings)
    assert "[personal]" in text
    assert parse_settings(text).personal == place.settings.personal


def test_equal_budgets_are_charged_as_none_are(tmp_path):
    spent = []
    for name, personal in {"with": PlanConfig(plan="plan.json"), "without": PlanConfig()}.items():
        (tmp_path / name).mkdir()
        place = Place(tmp_path / name, levels={"all": 4.0})
        alice = place.bearer("alice")
        with place.open(personal=personal) as client:
            first = client.get("/v1/budget", headers=alice).json()["data"]
            ask(client, alice, "k", range(10))
        with place.ledger() as ledger:
            spent.append(
                (first, ledger.spent.values.tolist(), Accountant(Budget(4.0, DELTA)).epsilon(ledger.spent))
            )
    assert spent[0] == spent[1]


def test_a_run_has_its_plan_beside_it(tmp_path):
    made = Place(tmp_path)
    study = tmp_path / "study"
    (study / "private").mkdir(parents=True)
    settings = {"epsilon": 4.0, "delta": DELTA, "ledger": "ledger.db"}
    run = replace(
        default_config(),
        mechanism=MechanismConfig(name="gnmax", sigma=SIGMA),
        budget=BudgetConfig(**settings),
    )
    (study / "config.toml").write_text(write_config(run))
    result = json.loads((Path(__file__).parents[1] / "report" / "digits" / "result.json").read_text())
    result["data"] |= {"n_classes": 3, "class_names": ["a", "b", "c"]}
    (study / "result.json").write_text(json.dumps(result))
    save_votes(study / "private" / "votes.npz", made.votes)
    (study / "plan.json").write_text(json.dumps(plan_as_dict(made.plan)))
    made.settings = ServiceSettings(data=ServedConfig(source="run", path="study"), folder=str(tmp_path))
    alice, otto = made.bearer("alice"), made.bearer("otto", "operator")
    with made.open() as client:
        assert ask(client, alice, "k").status_code == 200
        assert list(client.get("/v1/budget", headers=otto).json()["groups"]) == ["low", "high"]
    (study / "plan.json").unlink()
    assert "Ask by the plan that they were opened for" in refused(made)


def test_a_check_before_serving_names_the_groups(place, capsys):
    (place.folder / "service.toml").write_text(write_settings(place.settings))
    with pytest.raises(SystemExit) as left:
        main(("serve", "--check", "--json", "--config", str(place.folder / "service.toml")))
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["groups"] == ["low", "high"]
