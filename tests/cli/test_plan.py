"""`tellers plan`, as a person and as a script would call it."""

import json
import tomllib

import numpy as np
import pytest

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
