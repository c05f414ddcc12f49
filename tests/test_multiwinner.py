"""The experiment on votes for many labels: its files are read, its accountants ordered, its run goes on."""

import itertools
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tellers import LabelVotes, exact_cost

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "experiments" / "multiwinner"
OWN = {path.stem for path in FOLDER.glob("*.py")} | {"common", "common.measure"}


@pytest.fixture
def modules(monkeypatch):
    """Import modules of the experiment by name; they are gone afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER.parent))
    monkeypatch.syspath_prepend(str(FOLDER))
    before = {name: sys.modules.pop(name) for name in OWN if name in sys.modules}
    yield lambda name: __import__(name)
    for name in OWN:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def run(*words):
    command = [sys.executable, str(FOLDER / "run.py"), *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def measures(path):
    return {key: value["mean"] for key, value in json.loads(path.read_text())["measures"].items()}


def test_arff_is_read_dense_and_sparse(modules, tmp_path):
    data = modules("data")
    (tmp_path / "a.xml").write_text(
        '<labels xmlns="http://mulan"><label name="is B"/><label name="c"></label></labels>', encoding="utf-8"
    )
    head = "@relation r\n\n@attribute one numeric\n@ATTRIBUTE 'is B' {0,1}\n@attribute two numeric\n"
    head += "@attribute c {0,1}\n@data\n"
    labels = data.label_names(tmp_path / "a.xml")
    assert labels == ("is B", "c")
    for name, rows in (
        ("dense", "0.5,1,-2,0\n% a comment\n0,0,3e1,1\n"),
        ("sparse", "{0 .5,1 1,2 -2}\n{2 30,3 1}\n"),
    ):
        path = tmp_path / f"{name}.arff.xz"
        path.write_bytes(lzma.compress((head + rows).encode()))
        X, y = data.read_arff(path, labels)
        X = X.toarray() if name == "sparse" else X
        assert X.tolist() == [[0.5, -2.0], [0.0, 30.0]]
        assert y.tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ValueError, match="missing"):
        data.read_arff(path, ("is B", "nobody"))


def test_constant_labels_are_answered_with_what_there_is(modules):
    X = np.array([[0.0], [1.0], [0.0], [1.0]])
    y = np.array([[0, 0, 1], [0, 1, 1], [0, 0, 1], [0, 1, 1]])
    said = modules("ensembles").fit_models(X, y, C=100.0).predict(X)
    assert said.tolist() == y.tolist()


@pytest.mark.parametrize(("norm", "limit"), [("l2", 2**0.5), ("l2", 1.0), ("l1", 2.0), ("l1", 1.3)])
def test_two_clipped_ballots_are_no_farther_apart_than_charged(modules, norm, limit):
    voting = modules("accounting").Voting(norm, 5.0, limit)
    ballots = np.array(list(itertools.product((0, 1), repeat=4)), dtype=float)
    lengths = ballots.sum(axis=1) if norm == "l1" else np.sqrt(ballots.sum(axis=1))
    clipped = ballots * np.minimum(1, limit / np.maximum(lengths, 1))[:, None]
    apart = ((clipped[:, None] - clipped) ** 2).sum(axis=2).max()
    assert voting.sound_distance(4) == pytest.approx(apart, rel=1e-12)
    if norm == "l2":
        # The printed price is for half of what two ballots without a common label are apart.
        assert voting.sound_distance(4) == pytest.approx(2 * voting.printed_distance(4))


def test_the_published_bound_covers_the_direction_it_is_for(modules):
    accounting = modules("accounting")
    rng = np.random.default_rng(3)
    ballots = (rng.random((30, 5, 4)) < rng.random(4)).astype(int)
    votes = LabelVotes.from_ballots(ballots, n_labels=4)
    for voting in (accounting.Voting("binary", 4.0), accounting.Voting("powerset", 4.0)):
        published = accounting.published_costs(voting, votes).sum(axis=0)
        exact = exact_cost(voting.mechanism(4), votes, orders=accounting.ORDERS)
        assert (exact.forward.reveal().values <= published * (1 + 1e-9)).all()


@pytest.mark.parametrize("decay", [False, True])
def test_the_noise_of_the_baseline_costs_what_it_says(modules, decay):
    pytest.importorskip("opacus")
    accounting = pytest.importorskip("dp_accounting")
    dpsgd = modules("dpsgd")
    recipe = dpsgd.Recipe("linear", decay)
    noise = dpsgd.calibrated(recipe, 20_000, 8.0, 1e-5, 3)
    rate, n_steps = dpsgd._steps(20_000, 3)
    accountant = accounting.rdp.RdpAccountant([1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16, 32])
    factors = Counter(dpsgd._factor(recipe, step, n_steps) for step in range(n_steps))
    for factor, n in factors.items():
        event = accounting.PoissonSampledDpEvent(rate, accounting.GaussianDpEvent(noise * factor))
        accountant.compose(event, n)
    # Never above, up to the coarser orders here; not far below either: eight pieces stand for all steps.
    assert 7.2 < accountant.get_epsilon(1e-5) < 8.2


@pytest.mark.reproduction
def test_the_quick_run_is_as_expected(tmp_path):
    done = run("--quick", "--check", "--json", tmp_path / "out.json")
    for published in ("3437", "0.84, 0.8, 0.87, 0.9, 0.91, 0.87", "403", "896"):
        assert published in done.stdout
    found = measures(tmp_path / "out.json")
    for kind in ("binary", "l2", "l1"):
        row = {
            name: found[f"many/made/best/{kind}/20-{name}"]
            for name in ("data-independent", "public-price", "exact")
        }
        assert row["data-independent"] <= row["public-price"] < row["exact"]
    # Under consensus Binary wins, and Powerset where labels are coins; there its winner is chance, too.
    assert found["curve/figure4/20/binary-exact"] > found["curve/figure4/20/powerset-exact"]
    assert found["curve/figure3/20/binary-exact"] < found["curve/figure3/20/powerset-exact"]


@pytest.mark.reproduction
def test_exact_accounting_answers_many_more_queries(tmp_path):
    named = os.environ.get("TELLERS_DATA")
    place = Path(named) if named else ROOT.parent / "shared" / "data"
    if not (place / "multilabel" / "tmc2007-500.xml").is_file():
        pytest.skip("no tmc2007-500: set TELLERS_DATA to try the published files")
    run("--quick", "--parts", "goal", "--check", "--data", place, "--json", tmp_path / "out.json")
    found = measures(tmp_path / "out.json")
    assert found["many/tmc2007-500/goal/20/exact"] >= 2.5 * found["many/tmc2007-500/goal/20/as-printed"]
    assert found["many/tmc2007-500/goal/20/exact"] >= 15 * found["many/tmc2007-500/goal/20/data-independent"]


@pytest.mark.reproduction
def test_a_run_goes_on_where_it_was(tmp_path):
    words = ("--quick", "--parts", "figure1", "--data", tmp_path, "--keep", tmp_path / "kept")
    run(*words, "--json", tmp_path / "first.json", "--figures", tmp_path)
    assert (tmp_path / "multiwinner_figure1.svg").is_file()
    kept = sorted((tmp_path / "kept").rglob("*.*"))
    gone = next(path for path in kept if path.name == "made-0-10-binary-2.json")
    gone.unlink()
    before = {path: path.stat().st_mtime_ns for path in kept if path != gone}
    run(*words, "--json", tmp_path / "second.json")
    assert gone.is_file()
    assert before == {path: path.stat().st_mtime_ns for path in kept if path != gone}
    assert measures(tmp_path / "first.json") == measures(tmp_path / "second.json")
