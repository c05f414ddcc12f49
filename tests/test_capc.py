"""The experiment in which parties learn from each other runs, and measures what it is expected to measure."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(*words):
    command = [sys.executable, str(ROOT / "experiments" / "capc" / "run.py"), *map(str, words)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.reproduction
def test_the_quick_form_is_as_expected(tmp_path):
    run("--quick", "--check", "--json", tmp_path / "out.json", "--markdown", tmp_path / "out.md")
    measures = json.loads((tmp_path / "out.json").read_text())["measures"]
    found = {key: value["mean"] for key, value in measures.items()}
    for key, value in found.items():
        if key.endswith("/party") and "/sound/" in key:
            assert value <= float(key.split("/")[-2])
    # Twenty digits teach little, and the others know more; on many labels there are few answers to pay for.
    assert (
        found["digits/digits/random/sound/10/accuracy"] > found["digits/digits/random/before/accuracy"] + 0.1
    )
    assert found["digits/digits/random/published/10/party"] > 10
    strong, weak = (found[f"many/crossing/{who}/sound/20/BAC, shared labels"] for who in ("strong", "weak"))
    assert strong > weak
    # One sum for all askers: above each asker alone with the pool, and above label by label, by far.
    for name in ("bac", "auc", "map"):
        gains = [
            found[f"many/sums/made/random/{way}/{name} gain"]
            for way in ("alone, with the pool", "label by label, epsilon 10", "one sum, epsilon 10")
        ]
        assert gains[2] > max(gains[:2]) + 0.02
    assert found["many/sums/made/random/one sum, epsilon 10/party"] <= 10
    assert "**public, a party**" in (tmp_path / "out.md").read_text()


@pytest.mark.reproduction
def test_data_that_are_not_there_are_left_out_aloud(tmp_path):
    done = run("--parts", "labels,crossing", "--data", tmp_path, "--json", tmp_path / "out.json")
    assert done.stderr.count("SKIPPED") == 3
    assert not json.loads((tmp_path / "out.json").read_text())["measures"]
