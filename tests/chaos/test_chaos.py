"""The campaign of kills, for seconds: nothing is wrong with our ledgers, and something with broken ones.

`make chaos` runs it in full. Every way of breaking a ledger here must be found: a campaign that cannot fail
says nothing.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
ROOT = Path(__file__).resolve().parents[2]


def campaign(tmp_path, backend, *words):
    command = [sys.executable, "scripts/chaos", "--backend", backend, "--seed", "7", "--evidence", tmp_path]
    done = subprocess.run(
        [*command, *words], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_the_books_hold_whoever_is_killed(tmp_path, backend, request):
    if backend == "postgresql":
        request.getfixturevalue("postgres")  # skipped, or failed, where there is none
    code, said = campaign(tmp_path, backend, "--kills", "24", "--pause", "0.15")
    assert code == 0, said
    assert re.search(r"seed 7: \d+ kills \(.*\d+ client", said)
    assert int(re.search(r"(\d+) questions answered", said)[1]) > 0
    assert not list(tmp_path.iterdir())


BROKEN = {
    "late": r"no reservation is on the books|teachers were asked \d+ times",
    "lazy": r"an acknowledged release is not on the books",
    "generous": r"is overspent",
    "again": r"teachers were asked \d+ times",
    "fickle": r"two answers",
    "no-log": r"which it held before|not on the books|was acknowledged, .* is on the books|cannot be read",
}
# What is cheap is asked often: no service, and a budget that is soon gone. It ends with the first violation.
QUICK = (
    "--seconds", "150", "--by-service", "0", "--questions", "80", "--pause", "0.08", "--check-every", "6",
)  # fmt: skip


@pytest.mark.campaign
@pytest.mark.parametrize("way", sorted(BROKEN))
def test_a_broken_ledger_is_found(tmp_path, way):
    code, said = campaign(tmp_path, "sqlite", "--broken", way, *QUICK)
    assert code == 1, said
    kept = tmp_path / "sqlite-7"
    assert re.search(BROKEN[way], (kept / "violations.txt").read_text())
    # The books of the round in which it was found, whichever that was.
    (books,) = kept.glob("round-*/books.jsonl")
    assert list(books.parent.glob("asker-*.jsonl"))


@pytest.mark.campaign
def test_commits_that_are_not_flushed_are_found(tmp_path, postgres):
    code, said = campaign(tmp_path, "postgresql", "--broken", "unflushed", *QUICK)
    assert code == 1, said
    wrong = (tmp_path / "postgresql-7" / "violations.txt").read_text()
    assert re.search(r"not on the books|no reservation|which it held before|lost lines", wrong)
