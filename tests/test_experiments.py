"""The reproductions run, say what was published, and measure what they are expected to measure."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from tellers import GNMax, Votes, exact_cost

from . import forked

ROOT = Path(__file__).resolve().parents[1]
PAPERS = ("pate2017", "pate2018", "students")


def run(paper, *words, fails=False):
    command = [sys.executable, str(ROOT / "experiments" / paper / "run.py"), *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    done = forked.run(command, capture_output=True, text=True, timeout=600, check=False, env=env)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done


def measures(path):
    return {key: value["mean"] for key, value in json.loads(path.read_text())["measures"].items()}


def test_pate2017_on_the_bundled_ballots(tmp_path):
    words = ("--quick", "--parts", "votes,accounting,students", "--teachers", "250", "--data", tmp_path)
    done = run("pate2017", *words, "--check", "--json", tmp_path / "out.json")
    # The ballots alone give votes and prices; what needs images is left out, and says so.
    assert "NO IMAGES" in done.stderr
    assert "SKIPPED: students" in done.stderr
    for published in ("83.86 %", "93.18 %", "2.04", "8.03", "5.8"):
        assert published in done.stdout
    found = measures(tmp_path / "out.json")
    for n in (100, 1000):
        ladder = [found[f"epsilon/{n}/{name}"] for name in ("moments", "classic", "tight", "exact")]
        assert ladder == sorted(ladder, reverse=True)
        assert ladder[0] < {100: 2.04, 1000: 8.03}[n]  # our teachers agree more than the published ones


def test_pate2018_on_the_bundled_ballots(tmp_path):
    words = ("--quick", "--parts", "confident,interactive", "--data", tmp_path)
    done = run("pate2018", *words, "--check", "--json", tmp_path / "out.json")
    assert "SKIPPED: interactive" in done.stderr
    for published in ("286", "1.97"):
        assert published in done.stdout
    found = measures(tmp_path / "out.json")
    assert found["confident/exact"] < found["confident/tight"] < found["confident/classic"] < 1.97
    # What the ledger booked is the public price, and that is no secret.
    assert found["confident/booked"] == pytest.approx(found["confident/public"], rel=1e-3)


@pytest.mark.campaign
def test_students_from_kept_results(tmp_path):
    done = run("students", "--quick", "--check", "--json", tmp_path / "out.json")
    for words in ("98.5 %", "0 is not in it", "publishable"):
        assert words in done.stdout
    found = measures(tmp_path / "out.json")
    goals = {key.split("/")[1] for key in found if key.startswith("mnist/")} - {"laplace"}
    assert goals == {"0.35", "0.69"}
    for goal in goals:
        epsilon = {
            name: found[f"mnist/{goal}/{name}"] for name in ("exact", "tight", "classic", "told", "public")
        }
        assert epsilon["exact"] < epsilon["tight"] < epsilon["classic"]
        # The number that may be told lies between the private one and the one that needs no votes.
        assert epsilon["exact"] < epsilon["told"] < epsilon["public"]
    assert found["mnist/0.69/most"] <= 0.69
    for goal in (1, 2):
        assert found[f"adult/exact-epsilon-{goal}/most"] <= goal
        assert found[f"adult/public-epsilon-{goal}/public"] <= goal
    assert found["digits/accuracy/self-taught"] > found["digits/accuracy/supervised"] + 0.02


@pytest.fixture
def asked_folder(tmp_path):
    """What a run on a GPU leaves behind, of 20 made-up teachers and two seeds."""
    rng = np.random.default_rng(3)
    truth = rng.integers(10, size=300).astype(np.uint8)
    ballots = np.where(rng.random((2, 20, 300)) < 0.9, truth, rng.integers(10, size=(2, 20, 300)))
    np.savez(
        tmp_path / "votes.npz", truth=truth, **{f"ballots_{h}": ballots[h].astype(np.uint8) for h in (0, 1)}
    )
    asked, results = {}, []
    for seed in (0, 1):
        rows = rng.permutation(300)[:40].astype(np.int16)
        asked |= {f"asked_{seed}_0.5": rows, f"labels_{seed}_0.5": truth[rows].astype(np.int8)}
        told = {"seed": seed, "half": seed, "goal": 0.5, "sigma": 8.0, "n_labels": 40}
        results += [
            {**told, "student": "mean-teacher", "accuracy": 0.9 + 0.01 * seed},
            {**told, "student": "supervised", "accuracy": 0.8},
        ]
    np.savez(tmp_path / "asked.npz", **asked)
    (tmp_path / "results.json").write_text(json.dumps(results))
    return tmp_path, ballots, asked


def test_what_is_kept_of_a_run_accounts_for_it(asked_folder):
    folder, ballots, asked = asked_folder
    keep = [sys.executable, str(ROOT / "experiments" / "students" / "kept.py"), str(folder)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    forked.run([*keep, "--out", str(folder / "kept")], check=True, timeout=60, env=env)
    words = ("--parts", "mnist", "--folder", folder / "kept", "--json", folder / "out.json")
    done = run("students", *words)
    found = measures(folder / "out.json")
    spent = [
        exact_cost(GNMax(8.0), Votes.from_ballots(ballots[seed][:, asked[f"asked_{seed}_0.5"]], n_classes=10))
        for seed in (0, 1)
    ]
    exact = np.mean([cost.cost.reveal().epsilon(1e-5) for cost in spent])
    assert found["mnist/0.5/exact"] == pytest.approx(exact, rel=1e-4)
    assert found["mnist/0.5/right"] == 1.0
    # 10 and 11 points: the standard error is 0.5, and t is 12.7 for one degree of freedom.
    assert "+10.50 points, 95 % interval +4.15 to +16.85" in done.stdout
    results = json.loads((folder / "kept" / "results.json").read_text())
    (folder / "kept" / "results.json").write_text(json.dumps([{**row, "n_labels": 41} for row in results]))
    assert "Expected ballots on 41 rows" in run("students", *words, fails=True).stderr


@pytest.mark.reproduction
@pytest.mark.parametrize("paper", PAPERS)
def test_the_quick_form_measures_what_is_expected(paper):
    run(paper, "--quick", "--check")


@pytest.mark.reproduction
def test_personalized_in_its_quick_form(tmp_path):
    done = run("personalized", "--quick", "--check", "--json", tmp_path / "out.json")
    assert "SKIPPED" not in done.stderr
    for published in ("table 4", "239", "623", "figure 4"):
        assert published in done.stdout
    found = measures(tmp_path / "out.json")
    for cell in ("w-50-2", "w-50-4", "v-50-2", "v-50-4"):
        labels = {name: found[f"mnist/{cell}/{name}"] for name in ("public", "paper", "exact", "combined")}
        assert labels["public"] < labels["paper"] < labels["exact"] <= labels["combined"]
    # Personalised, more labels come out than at the lowest budget for all, and fewer than at the highest.
    for accountant in ("paper", "exact"):
        for factor in (2, 4):
            lowest, highest = (found[f"mnist/base/{c}/{accountant}"] for c in (1, factor))
            assert lowest < found[f"mnist/w-50-{factor}/{accountant}"] < highest
    for c in (2, 4, 9):
        assert found[f"mnist/figure4/{c}/w/paper"] == pytest.approx(c, rel=0.15)
        assert found[f"mnist/figure4/{c}/v/paper"] == pytest.approx(np.sqrt(c), rel=0.1)


@pytest.mark.campaign
def test_personalized_goes_on_where_it_was(tmp_path):
    words = ("--quick", "--parts", "figure4", "--keep", tmp_path / "kept")
    run("personalized", *words, "--json", tmp_path / "first.json")
    kept = sorted((tmp_path / "kept").glob("mnist-bundled-fig-*.npz"))
    assert len(kept) == 3
    kept[0].unlink()
    before = {path: path.stat().st_mtime_ns for path in kept[1:]}
    run("personalized", *words, "--json", tmp_path / "second.json")
    assert kept[0].is_file()
    assert before == {path: path.stat().st_mtime_ns for path in kept[1:]}
    assert measures(tmp_path / "first.json") == measures(tmp_path / "second.json")


@pytest.mark.reproduction
def test_personalized_trains_and_counts_in_processes(tmp_path):
    words = ("--quick", "--parts", "tables", "--jobs", "2", "--keep", tmp_path / "kept")
    run("personalized", *words, "--check")
    ballots = sorted(path.name for path in (tmp_path / "kept" / "votes").iterdir())
    assert ballots == [f"digits-0-{who}.npz" for who in ("base", "random-50-2", "random-50-4")]


@pytest.fixture
def house_numbers(tmp_path):
    """Ten flat grey tones with some noise: ten classes that even a linear teacher can tell apart."""
    (tmp_path / "svhn").mkdir()
    rng = np.random.default_rng(5)
    for part, n in (("train", 300), ("extra", 200), ("test", 240)):
        labels = rng.integers(1, 11, size=n)
        noise = rng.normal(0, 6, size=(32, 32, 3, n))
        tones = np.clip(20 * labels + noise, 0, 255).astype(np.uint8)
        savemat(tmp_path / "svhn" / f"{part}_32x32.mat", {"X": tones, "y": labels[:, None].astype(np.uint8)})
    return tmp_path


@pytest.mark.campaign
def test_svhn_is_ready_to_run(house_numbers):
    out = house_numbers / "out.json"
    words = ("--data-set", "svhn", "--data", house_numbers, "--teachers", "3,5", "--teacher", "logistic")
    done = run("pate2017", *words, "--quick", "--json", out, "--figures", house_numbers)
    found = measures(out)
    for published in ("5.04", "8.19", "82.72 %", "90.66 %"):
        assert published in done.stdout
    assert found["plurality/5"] > 0.5
    assert {p.name for p in house_numbers.glob("*.svg")} == {f"pate2017_figure{n}.svg" for n in (2, 3, 5)}


@pytest.mark.campaign
def test_svhn_takes_networks_as_teachers(house_numbers):
    pytest.importorskip("torch")
    out = house_numbers / "out.json"
    words = ("--data-set", "svhn", "--data", house_numbers, "--teachers", "2", "--epochs", "1")
    run("pate2017", *words, "--quick", "--parts", "votes", "--json", out)
    assert 0 < measures(out)["teacher/2"] <= 1


def test_unknown_parts_are_refused():
    assert "expected parts of" in run("pate2018", "--parts", "votes,magic", fails=True).stderr


@pytest.fixture
def measuring():
    path = ROOT / "experiments" / "common" / "measure.py"
    spec = importlib.util.spec_from_file_location("experiments_measure", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_number_out_of_tolerance_is_seen(measuring, tmp_path):
    path = tmp_path / "expected.json"

    def report(value):
        made = measuring.Report("a", "python a")
        made.sections.append(measuring.Section("a", (measuring.measure("x", "x", [value, value + 0.02]),)))
        return made

    measuring.expect(report(1.0), path, "quick")
    assert measuring.compare(report(1.01), path, "quick") == []
    assert len(measuring.compare(report(1.05), path, "quick")) == 1
    path.write_text(json.dumps({"quick": {}}))
    assert "nothing is expected" in measuring.compare(report(1.0), path, "quick")[0]


@pytest.mark.parametrize("paper", PAPERS)
def test_what_is_expected_has_a_tolerance_that_means_something(paper):
    expected = json.loads((ROOT / "experiments" / paper / "expected.json").read_text())
    for mode in ("quick", "full"):
        assert expected[mode]
        for key, entry in expected[mode].items():
            # Both are written with five digits.
            assert entry["tolerance"] <= max(0.1 * abs(entry["value"]), 0.03) * (1 + 1e-4), key


def test_what_the_page_on_variants_says_budgets_buy():
    place = ROOT / "experiments" / "personal_prices" / "run.py"
    spec = importlib.util.spec_from_file_location("personal_prices", place)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "personalised.md").read_text(encoding="utf-8")
    shown = [line.strip("| ").split(" | ") for line in page.splitlines() if "% | " in line]
    assert len(shown) == 5
    for share, *numbers in shown[1:3]:
        found = script.sweep(4, [int(share.removesuffix(" %"))])
        assert [found[variant][0] for variant in script.VARIANTS] == [int(number) for number in numbers]
