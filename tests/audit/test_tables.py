"""The tables of the page on audits are what the command prints."""

import subprocess
import sys
from pathlib import Path

import pytest

import tellers

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "experiments" / "audit"))
import run  # noqa: E402

KEPT = (ROOT / "experiments" / "audit" / "tables.md").read_text(encoding="utf-8").splitlines()


def row_of(name):
    [line] = [line for line in KEPT if line.startswith((f"| {name} |", f"| `{name}` |"))]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_is_what_the_command_prints():
    [printed] = run.sound_rows([tellers.LNMax(0.15)], with_votes=True)
    assert printed in KEPT


def test_the_page_includes_the_tables():
    assert "```{include} ../experiments/audit/tables.md" in (ROOT / "docs" / "audit.md").read_text()


@pytest.mark.parametrize("mechanism", run.LEVELS, ids=repr)
def test_most_of_the_truth_is_found(mechanism):
    _, truth, claimed, found, share, _ = row_of(mechanism)
    assert 0.6 <= float(truth) <= 4
    assert 0.85 * float(truth) <= float(found) <= float(truth) <= float(claimed)
    assert 85 <= int(share.removesuffix(" %")) <= 100


def test_every_broken_one_is_found_by_the_check():
    names = [*run.SHOWN, *(f"labels: {name}" for name in run.LABELS)]
    assert len(names) >= 25
    assert [name for name in names if row_of(name)[-1] == "nothing"] == []
    # Most of them also by an audit, which looks at single queries of one pair of votes.
    assert sum(row_of(name)[4] != "fits" for name in names) >= 0.7 * len(names)


@pytest.mark.campaign
@pytest.mark.parametrize("part", run.PARTS)
def test_all_rows_are_what_the_command_prints(part):
    words = [sys.executable, str(ROOT / "experiments" / "audit" / "run.py"), "--parts", part, "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
