"""`tellers plan --multilabel`, as a person and as a script would call it."""

import json

import numpy as np
import pytest

BUDGET = ["--epsilon", "8", "--delta", "1e-5"]
SMALL = ["--multilabel", "--teachers", "20", "--labels", "4", "--yes-rate", "0.3", *BUDGET]
ONE = ["--mechanism", "binary", "--sigma", "3"]


@pytest.fixture
def plan(tellers):
    return lambda *words: tellers("plan", *words)


def proxy_file(folder, **changed):
    rng = np.random.default_rng(7)
    truth = rng.random((30, 4)) < 0.3
    ballots = truth ^ (rng.random((20, 30, 4)) < 0.05)
    arrays = {"label_ballots": ballots.astype(int), "truth": truth, **changed}
    path = folder / "proxy.npz"
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


def test_the_best_comes_first_with_reasons_declared_sets_and_everything_as_json(plan):
    done = plan(*SMALL, "--groups", "0,1;2,3", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    partial = [one for one in result["plans"] if one["mechanism"] == "PartialPowerset"]
    assert partial
    assert all(one["parameters"]["groups"] == [[0, 1], [2, 3]] for one in partial)
    keeps = [plan["keeps"] for plan in result["plans"]]
    assert keeps == sorted(keeps, reverse=True)
    worth = [plan["queries_public"] * plan["told"] for plan in result["plans"] if plan["keeps"]]
    assert worth == sorted(worth, reverse=True)
    assert {"Binary", "Tau", "Powerset", "GNThreshold"} <= {plan["mechanism"] for plan in result["plans"]}
    assert all((plan["queries_exact_forecast"] is not None) == plan["keeps"] for plan in result["plans"])
    bounds = {plan["mechanism"] for plan in result["plans"] if plan["exact_kind"] == "upper bound"}
    assert bounds == {"AdaptiveGNThreshold", "ConfidentGNThreshold"}
    assert all(plan["epsilon_public"] <= 8 for plan in result["plans"])
    assert result["regime"]["name"] in ("consensus", "correlated", "sparse", "contested")
    assert "public price" in result["regime"]["advice"]
    assert any("made-up" in note for note in result["notes"])


def test_people_get_a_table_of_all_mechanisms_with_the_forecast_marked(plan):
    done = plan(*SMALL, "--correlation", "0.5")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    words = ("Best:", "Ballots:", "Binary", "Powerset", "no noise", "private books", "would leak")
    for word in (*words, "≥", "upper bound"):
        assert word in said


def test_a_proxy_stands_in_for_the_assumption(plan, tmp_path):
    path = proxy_file(tmp_path)
    done = plan("--multilabel", "--proxy", path, *BUDGET, *ONE, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["against"], result["ballots"]["n_teachers"], result["ballots"]["n_labels"]) == (
        "truth",
        20,
        4,
    )
    done = plan("--multilabel", "--proxy", proxy_file(tmp_path, truth=None), *BUDGET, *ONE, "--json")
    result = json.loads(done.stdout)
    assert result["against"] == "majority"
    assert result["noiseless"]["accuracy"] == 1.0


def test_groups_that_cannot_be_are_refused(plan):
    for words, said in (("0,1;1,2", "no label twice"), ("0;x", "numbers such as")):
        refused = plan(*SMALL, "--groups", words)
        assert refused.returncode == 2
        assert said in " ".join(refused.stderr.split())


@pytest.mark.slow
def test_pictures_are_drawn_and_named(plan, tmp_path):
    pytest.importorskip("matplotlib")
    done = plan("--multilabel", "--proxy", proxy_file(tmp_path), *BUDGET, "--plots", tmp_path / "new" / "p")
    assert done.returncode == 0, done.stderr
    for name in ("sigma", "max_norm", "T", "gaps"):
        picture = (tmp_path / "new" / "p" / f"{name}.png").read_bytes()
        assert picture[:4] == b"\x89PNG"
        assert len(picture) > 10_000
        assert f"{name}.png" in done.stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--multilabel", *BUDGET], "--teachers and --labels"),
        ([*SMALL, "--classes", "3"], "--classes"),
        ([*SMALL, "--agreement", "0.2"], "agreement above 0.4"),
        ([*SMALL, "--max-loss", "2"], "max_loss"),
        ([*SMALL, "--correlation", "1"], "correlation"),
        (["--teachers", "20", "--classes", "3", "--yes-rate", "0.1", *BUDGET], "--yes-rate"),
        (["--multilabel", "--proxy", "nothing.npz", *BUDGET], "found nothing"),
    ],
)
def test_bad_input_is_explained(plan, words, expected):
    done = plan(*words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("changed", "words", "expected"),
    [
        ({"label_ballots": None}, [], "'label_ballots'"),
        ({"label_ballots": np.ones((3, 4))}, [], "(teachers, queries, labels)"),
        ({"label_ballots": np.full((2, 3, 4), 2)}, [], "in [0, 1]"),
        ({"truth": np.ones((2, 2))}, [], "Expected truth with one True or False"),
        ({}, ["--teachers", "21"], "21 teachers"),
        ({}, ["--labels", "5"], "5 labels"),
        ({}, ["--yes-rate", "0.2"], "--yes-rate with --proxy"),
    ],
)
def test_a_proxy_that_does_not_fit_is_refused(plan, tmp_path, changed, words, expected):
    done = plan("--multilabel", "--proxy", proxy_file(tmp_path, **changed), *words, *BUDGET)
    assert done.returncode == 2
    assert expected in done.stderr


def test_a_damaged_proxy_and_a_file_of_another_kind_are_named(plan, tmp_path):
    path = tmp_path / "proxy.npz"
    path.write_bytes(proxy_file(tmp_path).read_bytes()[:200])
    np.save(tmp_path / "ballots.npy", np.ones((3, 4, 5)))
    for name in ("proxy.npz", "ballots.npy"):
        done = plan("--multilabel", "--proxy", tmp_path / name, *BUDGET)
        assert done.returncode == 2
        assert name in done.stderr
        assert "Expected" in done.stderr


def test_a_place_that_is_no_folder_is_refused_before_anything_is_computed(plan, tmp_path):
    (tmp_path / "taken").write_text("mine")
    done = plan(*SMALL, "--plots", tmp_path / "taken")
    assert done.returncode == 2
    assert "Expected a folder for --plots" in done.stderr
    assert (tmp_path / "taken").read_text() == "mine"
