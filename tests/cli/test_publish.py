"""`tellers publish`, as a person and as a script would call it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tellers import GNMax, Votes
from tellers.accounting.costs import independent_cost

SETTING = ["--mechanism", "gnmax", "--sigma", "12", "--classes", "3", "--delta", "1e-5"]


@pytest.fixture
def votes(tmp_path):
    """Two hundred queries by 60 teachers, most of them easy."""
    rng = np.random.default_rng(7)
    ballots = rng.choice(3, size=(60, 200), p=[0.93, 0.05, 0.02])
    path = tmp_path / "votes.npz"
    np.savez(path, ballots=ballots)
    return path


def test_json_has_the_agreed_keys_and_the_charge_is_on_record(tellers, votes):
    done = tellers("publish", votes, *SETTING, "--method", "envelope", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"epsilon_upper", "confidence", "order", "method", "charged"} <= set(result)
    assert result["method"] == "envelope"
    assert result["confidence"] == 0.95
    lines = [json.loads(line) for line in Path(result["record"]).read_text().splitlines()]
    assert [line["entry"] for line in lines] == ["charged", "published"]
    assert lines[0]["charge"] == result["charged"] > 0
    assert lines[0]["event"]["noise"] == "secure"
    assert lines[1]["epsilon_upper"] == result["epsilon_upper"]


def test_publishing_again_keeps_the_plan_and_pays_on_top(tellers, votes):
    words = ["publish", votes, *SETTING, "--yes", "--json"]
    first, second = (json.loads(tellers(*words).stdout) for _ in range(2))
    assert second["order"] == first["order"]
    assert any("before" in note for note in second["notes"])
    entries = [json.loads(line) for line in Path(first["record"]).read_text().splitlines()]
    assert entries[0]["plan"] == entries[2]["plan"]


def test_nothing_is_spent_without_a_yes(votes):
    words = [sys.executable, "-m", "tellers", "publish", str(votes), *SETTING, "--method", "envelope"]
    done = subprocess.run(words, input="n\n", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0
    assert "nothing was spent" in done.stdout.lower()
    assert not list(votes.parent.glob("*.jsonl"))


def test_json_without_yes_is_refused(tellers, votes):
    done = tellers("publish", votes, *SETTING, "--json")
    assert done.returncode == 2
    assert "--yes" in json.loads(done.stderr)["error"]
    assert not list(votes.parent.glob("*.jsonl"))


def test_independent_draws_nothing_and_charges_nothing(tellers, votes):
    done = tellers("publish", votes, *SETTING, "--method", "independent", "--yes", "--json")
    result = json.loads(done.stdout)
    assert result["charged"] == 0
    assert result["confidence"] == 1
    assert not list(votes.parent.glob("*.jsonl"))
    assert result["epsilon_upper"] == pytest.approx(independent_cost(GNMax(12.0), 200).epsilon(1e-5))


def test_gnss_says_that_it_covers_one_direction(tellers, votes):
    done = tellers("publish", votes, *SETTING, "--method", "gnss", "--yes", "--json")
    assert json.loads(done.stdout)["covers"] == "forward direction"


def test_a_proxy_must_fit(tellers, votes, tmp_path):
    proxy = tmp_path / "proxy.npz"
    np.savez(proxy, counts=np.array([[30, 10, 5]]))
    done = tellers("publish", votes, *SETTING, "--proxy", proxy, "--yes", "--json")
    assert done.returncode == 2
    assert "60 teachers" in json.loads(done.stderr)["error"]
    np.savez(proxy, counts=Votes.from_counts([[50, 8, 2], [59, 1, 0]], n_teachers=60).counts)
    done = tellers("publish", votes, *SETTING, "--proxy", proxy, "--yes", "--json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--confidence", "1.5"], "0 < confidence < 1"),
        (["--method", "guess"], "guess"),
        (["--delta", "0"], "delta"),
    ],
)
def test_bad_input_spends_nothing(tellers, votes, words, expected):
    done = tellers("publish", votes, *SETTING, "--yes", *words)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(votes.parent.glob("*.jsonl"))


def test_lnmax_has_no_envelope(tellers, votes):
    words = ["--mechanism", "lnmax", "--gamma", "0.05", "--classes", "3", "--delta", "1e-5"]
    done = tellers("publish", votes, *words, "--method", "envelope", "--yes")
    assert done.returncode == 2
    assert "gnss, independent" in done.stderr
