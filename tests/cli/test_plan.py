"""`tellers plan`, as a person and as a script would call it."""

import json
import tomllib

import numpy as np
import pytest

from tellers import GNMax, Unit
from tellers.mechanisms import TestedGNMax
from tellers.runs import parse_config

SMALL = ["--teachers", "40", "--classes", "3", "--epsilon", "2", "--delta", "1e-5", "--queries", "500"]


def test_the_best_plan_comes_first_keeps_the_budget_and_is_drawn(tellers, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.svg"
    done = tellers("plan", *SMALL, "--plot", path, "--json")
    assert done.returncode == 0, done.stderr
    assert path.read_text().lstrip().startswith("<?xml")
    result = json.loads(done.stdout)
    information = [plan["information_bits"] for plan in result["plans"]]
    assert information == sorted(information, reverse=True)
    assert information[0] > 0
    assert all(plan["epsilon_public"] <= 2 + 1e-9 for plan in result["plans"])
    assert all(plan["labels"] <= plan["queries"] <= 500 for plan in result["plans"])
    assert any("made-up" in note for note in result["notes"])


def test_people_get_a_table_and_a_picture_in_the_terminal(tellers):
    done = tellers("plan", *SMALL, "--against", "exact", "--top", "3")
    assert done.returncode == 0, done.stderr
    assert "Best:" in done.stdout
    assert "┤" in done.stdout
    assert "would leak" in " ".join(done.stdout.split())


def test_people_get_settings_to_paste_with_the_silence_that_is_expected(tellers):
    setting = [
        "--rule",
        "renyi",
        "--mechanism",
        "confident",
        "--sigma",
        "6",
        "--threshold",
        "34",
        "--sigma-threshold",
        "12",
    ]
    done = tellers("plan", *SMALL, *setting)
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    start = lines.index("[mechanism]")
    pasted = tomllib.loads("\n".join(lines[start : lines.index("", start)]))["mechanism"]
    share = pasted.pop("expected_silence")
    assert pasted == {"name": "confident", "sigma": 6.0, "threshold": 34.0, "sigma_threshold": 12.0}
    (plan,) = json.loads(tellers("plan", *SMALL, *setting, "--json").stdout)["plans"]
    assert share == plan["parameters"]["expected_silence"]
    assert share == pytest.approx(1 - plan["labels"] / plan["queries"], abs=0.006)


def test_settings_to_paste_have_the_rule_that_gives_more(tellers):
    setting = ("--mechanism", "gnmax", "--sigma", "12")
    rules = json.loads(tellers("plan", *SMALL, *setting, "--json").stdout)["rules"]
    assert rules["clock"] > rules["renyi"]
    lines = [line.strip() for line in tellers("plan", *SMALL, *setting).stdout.splitlines()]
    start = lines.index("[mechanism]")
    pasted = tomllib.loads("\n".join(lines[start : lines.index("", start)]))
    assert pasted["budget"] == {"epsilon": 2.0, "delta": 1e-5, "rule": "clock"}
    assert "[budget]" not in tellers("plan", *SMALL, *setting, "--rule", "renyi").stdout


def test_the_inverse_finds_the_noise(tellers):
    done = tellers("plan", *SMALL, "--labels", "50", "--json")
    (plan,) = json.loads(done.stdout)["plans"]
    assert plan["labels"] >= 50
    assert plan["epsilon_public"] <= 2
    assert plan["parameters"]["sigma"] > 0


def test_a_proxy_stands_in_for_the_assumption(tellers, tmp_path):
    rng = np.random.default_rng(7)
    proxy = tmp_path / "proxy.npz"
    np.savez(proxy, ballots=rng.choice(3, size=(40, 30), p=[0.9, 0.08, 0.02]), truth=np.zeros(30, dtype=int))
    done = tellers("plan", "--proxy", proxy, "--classes", "3", "--epsilon", "2", "--delta", "1e-5", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["plans"][0]["accuracy"] > 0.9
    done = tellers("plan", "--proxy", proxy, "--teachers", "41", "--epsilon", "2", "--delta", "1e-5")
    assert done.returncode == 2
    assert "41 teachers" in done.stderr


def test_a_picture_is_of_a_known_format(tellers, tmp_path):
    pytest.importorskip("matplotlib")
    done = tellers("plan", *SMALL, "--labels", "20", "--plot", tmp_path / "plan.nothing")
    assert done.returncode == 2
    assert "plan.svg" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--epsilon", "2", "--delta", "1e-5"], "--teachers and --classes"),
        (["--teachers", "40", "--classes", "3", "--epsilon", "-1", "--delta", "1e-5"], "epsilon"),
        (["--teachers", "0", "--classes", "3", "--epsilon", "1", "--delta", "1e-5"], "n_teachers"),
        ([*SMALL, "--labels", "100000000"], "fewer labels"),
    ],
)
def test_bad_input_is_explained(tellers, words, expected):
    done = tellers("plan", *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


# A tested batch --------------------------------------------------------------------------------------------

TESTED = ["--mechanism", "tested-gnmax", "--teachers", "60", "--classes", "3", "--delta", "1e-4"]


def test_a_tested_batch_is_planned_for_so_many_queries(tellers):
    done = tellers("plan", *TESTED, "--queries", "200", "--sigma", "12", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    test = TestedGNMax(**told["parameters"])
    assert (test.sigma, test.n_queries) == (12.0, 200)
    left, unit = 1e-4 - test.test_delta, Unit()
    assert told["epsilon_passed"] == test.batch_price(unit, 200).epsilon(left)
    assert told["epsilon_failed"] == test.fail_price(unit, 200).epsilon(left) < told["epsilon_passed"]
    assert told["epsilon_untested"] == (200 * GNMax(12.0).price(unit)).epsilon(1e-4) > told["epsilon_passed"]
    assert told["epsilon_full_price"] > told["epsilon_untested"]
    [one] = told["pass_rates"]
    assert "made-up" in one["proxy"]
    assert 0.5 <= one["rate"] <= 1
    # What is pasted is a run that its budget pays for.
    config = parse_config(told["toml"])
    assert config.build_mechanism() == test
    assert config.accountant().affords(0 * test.batch_price(unit, 200), test.batch_price(unit, 200))


def test_a_tested_batch_is_planned_for_an_epsilon_on_every_proxy(tellers, tmp_path):
    rng = np.random.default_rng(7)
    places = []
    for name, p in (("clear", [1.0, 0.0, 0.0]), ("torn", [0.34, 0.33, 0.33])):
        places += ["--proxy", tmp_path / f"{name}.npz"]
        np.savez(places[-1], ballots=rng.choice(3, size=(60, 40), p=p))
    how = ["--mechanism", "tested-gnmax", "--classes", "3", "--delta", "1e-4"]
    done = tellers("plan", *how, "--epsilon", "3", "--queries", "900", *places[:2], "--json")
    assert done.returncode == 0, done.stderr
    clear = json.loads(done.stdout)
    assert clear["epsilon_passed"] <= clear["budget"] == 3
    assert 1 <= clear["parameters"]["n_queries"] <= 900
    done = tellers("plan", *how, "--epsilon", "3", "--queries", "900", *places, "--json")
    both = json.loads(done.stdout)
    assert all(name in one["proxy"] for one, name in zip(both["pass_rates"], ("clear", "torn"), strict=True))
    # One that is torn makes the plan dearer: fewer of its queries are paid for.
    assert both["parameters"]["n_queries"] < clear["parameters"]["n_queries"]


def test_people_are_told_what_a_tested_batch_costs_and_what_to_paste(tellers):
    done = tellers("plan", *TESTED, "--queries", "10")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for words in ("if the batch passes", "if it fails", "of delta", 'name = "tested-gnmax"', "0.16 for each"):
        assert words in said
    # So few queries of so few teachers are cheaper without.
    assert "no cheaper" in said


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "--queries"),
        (["--queries", "10", "--clear-cost", "3"], "--clear-cost"),
        (["--queries", "10", "--rule", "clock"], "--rule"),
        (["--queries", "10", "--labels", "4"], "--labels"),
        (["--epsilon", "0.01", "--sigma", "12"], "pays for a test"),
    ],
)
def test_what_a_tested_batch_is_not_planned_with(tellers, more, words):
    done = tellers("plan", *TESTED, *more)
    assert done.returncode == 2
    assert words in done.stderr


def test_other_plans_need_a_budget_and_one_proxy(tellers):
    done = tellers("plan", "--teachers", "40", "--classes", "3", "--delta", "1e-5")
    assert (done.returncode, "--epsilon" in done.stderr) == (2, True)
    done = tellers("plan", *SMALL, "--proxy", "a.npz", "--proxy", "b.npz")
    assert (done.returncode, "one --proxy" in done.stderr) == (2, True)
