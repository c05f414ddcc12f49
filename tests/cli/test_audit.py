"""`tellers audit` from the outside: mechanisms, runs, and what is said of wrong words."""

import json
import math

import pytest

from tellers import noise
from tellers.cli import main

GNMAX = ["--mechanism", "gnmax", "--sigma", "3", "--delta", "0.01", "--samples", "2000",
         "--teachers", "20", "--classes", "4"]  # fmt: skip


@pytest.fixture(autouse=True)
def repeatable(monkeypatch):
    monkeypatch.setattr(noise, "secure", lambda: noise.seeded(7))


def call(capsys, *words):
    with pytest.raises(SystemExit) as done:
        main(["audit", *words])
    captured = capsys.readouterr()
    return done.value.code, captured.out, captured.err


def test_a_mechanism_for_people(capsys):
    """A claim that holds is refuted with chance at most 1e-6."""
    code, out, _ = call(capsys, *GNMAX, "--confidence", "0.999999")
    assert code == 0
    words = " ".join(out.split())
    assert "The audit found at least" in words
    assert "the claim is" in words
    assert "cannot prove it" in words
    assert "2,000 releases at each of two votes" in words


def test_a_mechanism_for_machines(capsys):
    code, out, _ = call(capsys, *GNMAX, "--confidence", "0.999999", "--queries", "3", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["holds"] is True
    assert found["epsilon"] <= found["exact"] <= found["claim"]
    assert (found["n_queries"], found["method"], found["law"]) == (3, "losses", "followed")
    assert 0 < found["smallest_leak"] < 0.01


def test_a_published_claim_that_does_not_hold(capsys):
    """False alarm at most 1e-6."""
    words = ["--mechanism", "adaptive-gnthreshold", "--sigma", "7", "--scale", "10", "--labels", "3"]
    code, out, _ = call(
        capsys, *words, "--delta", "1e-5", "--samples", "4000", "--published", "--confidence", "0.999999"
    )
    assert code == 0
    told = " ".join(out.split())
    assert "as published" in told
    assert "The claim does not hold" in told


def test_tau_as_published(capsys):
    """False alarm at most 1e-6."""
    root = str(math.sqrt(2))
    words = ["--mechanism", "tau", "--sigma", "1", "--max-norm", root, "--labels", "4", "--delta", "0.02"]
    more = ["--queries", "40", "--samples", "2000", "--method", "losses", "--teachers", "12"]
    code, out, _ = call(capsys, *words, *more, "--published", "--confidence", "0.999999", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["claim"] < found["epsilon"] <= found["exact"]
    assert found["holds"] is False


def test_a_run_by_its_settings(capsys, tmp_path):
    place = tmp_path / "small.toml"
    place.write_text(
        '[data]\nname = "breast_cancer"\nn_public = 30\nn_test = 100\n[partition]\nn_teachers = 10\n'
        '[teachers]\nmodel = "naive_bayes"\n[student]\nmodel = "naive_bayes"\n'
        '[mechanism]\nname = "gnmax"\nsigma = 8.0\n[queries]\nn_queries = 15\n'
    )
    # A sound run is accused with chance at most 1e-6.
    words = [str(place), "--shadows", "16", "--canaries", "5", "--confidence", "0.999999"]
    code, out, err = call(capsys, *words)
    assert code == 0
    told = " ".join(out.split())
    assert "The audit found at least 0; the claim is" in told
    assert "AUC" in told
    assert "keep its numbers to yourself" in told
    assert "Running shadows ..." in err
    code, out, err = call(capsys, *words, "--json")
    found = json.loads(out)
    assert (found["shadows"], found["canaries"], found["holds"]) == (16, 5, True)
    assert err == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Expected the folder of a run, its settings, or --mechanism"),
        (["study", "--sigma", "3"], "Expected no --sigma for the run study"),
        (["--mechanism", "gnmax", "--sigma", "3"], "Expected --delta"),
        ([*GNMAX, "--shadows", "9"], "Expected no --shadows for a mechanism"),
        ([*GNMAX, "--labels", "9"], "Expected no --labels for --mechanism gnmax"),
        ([*GNMAX, "--published"], "Expected tau voting or the adaptive threshold"),
        ([*GNMAX, "--samples", "0"], "n_samples"),
        ([*GNMAX, "--confidence", "1"], "confidence"),
        (["--mechanism", "tau", "--sigma", "3", "--max-norm", "1", "--delta", "0.1"], "Expected --labels"),
        (
            ["--mechanism", "binary", "--sigma", "3", "--labels", "2", "--classes", "3", "--delta", "0.1"],
            "Expected no --classes for --mechanism binary",
        ),
        (["--mechanism", "powerset", "--sigma", "3", "--labels", "1", "--delta", "0.1", "--method", "losses",
          "--samples", "10", "--teachers", "2"], "states the law"),
        (["nowhere"], "found nothing at nowhere"),
    ],
)  # fmt: skip
def test_wrong_words_are_told(capsys, words, said):
    code, _, err = call(capsys, *words)
    assert code == 2
    assert said in err
