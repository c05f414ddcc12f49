"""The tables of the page on public epsilons are what the command prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def command(*words):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    run = [sys.executable, str(ROOT / "experiments" / "public" / "run.py"), *words]
    return subprocess.run(run, capture_output=True, text=True, timeout=900, check=False, env=env)


def test_the_page_includes_the_tables():
    page = (ROOT / "docs" / "public-tables.md").read_text(encoding="utf-8")
    assert "```{include} ../experiments/public/tables.md" in page


def test_a_few_rows_are_what_the_command_prints():
    # The rows of mechanisms that check first need a joint table, seconds to make: they are in the full form.
    done = command("--quick", "--check", "--parts", "plain,labels,tested")
    assert "| GNMax 40, 100 |" in done.stdout
    assert "| 461 | 1.33 |" in done.stdout
    assert done.returncode == 0, done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("words", [["--parts", "plain,tested,room"], ["--parts", "confident", "--quick"]])
def test_epsilons_and_floors_are_what_the_command_prints(words):
    # All rows of checks take some minutes with an empty cache, and are compared by hand: run.py --check.
    done = command("--check", *words)
    assert done.returncode == 0, done.stderr
