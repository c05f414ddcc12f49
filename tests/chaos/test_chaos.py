"""The campaign of faults, for seconds: nothing is wrong with our ledgers, and something with broken ones.

`make chaos` runs it in full. Every way of breaking a ledger here must be found: a campaign that cannot fail
says nothing.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
ROOT = Path(__file__).resolve().parents[2]
CHAOS = ROOT / "scripts" / "chaos"


def campaign(tmp_path, backend, *words):
    command = [sys.executable, "scripts/chaos", "--backend", backend, "--seed", "7", "--evidence", tmp_path]
    done = subprocess.run(
        [*command, *words], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.campaign
@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_the_ledger_holds_whatever_happens(tmp_path, backend, request):
    if backend == "postgresql":
        request.getfixturevalue("postgres")  # skipped, or failed, where there is none
    code, said = campaign(tmp_path, backend, "--kills", "24", "--pause", "0.15")
    assert code == 0, said
    assert re.search(r"seed 7: \d+ kills among \d+ faults \(.*\d+ client", said)
    assert int(re.search(r"(\d+) questions answered", said)[1]) > 0
    assert not list(tmp_path.iterdir())


# What is cheap is asked often: no service, and a budget that is soon gone. It ends with the first violation.
QUICK = ("--seconds", "150", "--by-service", "0", "--askers", "8", "--questions", "80", "--pause", "0.05",
         "--check-every", "4")  # fmt: skip
KILLS = ("--faults", "client", "everything", "--groups", "never")
CUTS = ("--faults", "power loss", "--groups", "never")
GONE = r"an acknowledged answer is not on the ledger|seen before, and is gone|shown as the last one"

# For each invariant somebody who breaks it: how, by which faults, and what is said of it.
BROKEN = {
    "late": (KILLS, r"no reservation is on the ledger|teachers were asked \d+ times"),
    "lazy": (KILLS, GONE),
    "early": (KILLS, GONE),
    "generous": (KILLS, r"is overspent"),
    "first-only": (KILLS, r"is overspent"),
    "stingy": (KILLS, r"refused, with budget left"),
    "again": (KILLS, r"teachers were asked \d+ times"),
    "fickle": (KILLS, r"two answers|was acknowledged, .* is on the ledger"),
    "stranger": (KILLS, r"was acknowledged, .* is on the ledger"),
    "unheard": (KILLS, r"was acknowledged, .* is on the ledger"),
    "no-also": (KILLS, r"not charged to 'askers/direct'"),
    "no-groups": (("--faults", "client", "--groups", "always"), r"not charged to 'group/high, group/low'"),
    "refunds-twice": (KILLS, r"the sums of the checkpoint|is overspent"),
    "all-back": (KILLS, r"was charged less than its labels cost"),
    "cheap": (KILLS, r"is charged less than it leaks"),
    "wrong-sums": (KILLS, r"the sums of the checkpoint"),
    "deaf": (KILLS, r"the sums of the checkpoint|is overspent"),
    "main-only": (KILLS, r"the budget of askers/direct is overspent"),
    "pays-again": (KILLS, r"nobody asked that"),
    "half-event": (KILLS, r"does not say how it was answered"),
    "unchained": (("--faults", "changed line", "--groups", "never"), r"was changed, and the ledger was not"),
    "stale-head": (KILLS, r"the head was at line"),
    "no-lock": (KILLS, r"append-only|does not follow|UNIQUE"),
    "no-log": (("--faults", "everything", "--groups", "never"), GONE + "|cannot be read"),
    "unsynced": (CUTS, GONE + "|cannot be read"),
    "unflushed-log": (("--faults", "client", "flush", "--groups", "never"), GONE),
    "keys-unsynced": (CUTS, r"a key that was handed out is gone|a revoked key is good again|no such table"),
    "keys-unrevoked": (KILLS, r"a revoked key is good again"),
    "unlimited": (KILLS, r"requests of a minute were let through"),
}


@pytest.mark.campaign
@pytest.mark.parametrize("way", sorted(BROKEN))
def test_a_broken_ledger_is_found(tmp_path, way):
    how, words = BROKEN[way]
    if how is CUTS and shutil.which("gcc") is None and not os.environ.get("TELLERS_REQUIRE_COMPILER"):
        pytest.skip("power losses need a C compiler: install gcc")
    code, said = campaign(tmp_path, "sqlite", "--broken", way, *QUICK, *how)
    assert code == 1, said
    kept = tmp_path / "sqlite-7"
    assert re.search(words, (kept / "violations.txt").read_text())
    # The ledger of the round in which it was found, whichever that was.
    (ledger,) = kept.glob("round-*/watched/ledger.db")
    assert list(ledger.parents[1].glob("asker-*.jsonl"))


@pytest.mark.campaign
def test_commits_that_are_not_flushed_are_found(tmp_path, postgres):
    code, said = campaign(tmp_path, "postgresql", "--broken", "unflushed", *QUICK)
    assert code == 1, said
    wrong = (tmp_path / "postgresql-7" / "violations.txt").read_text()
    assert re.search(GONE + r"|no reservation|lost lines|which it held before", wrong)


def test_every_way_of_breaking_is_tried():
    """Guards that a way that is added is found, too."""
    named = re.findall(r'^    "([a-z-]+)": ', (CHAOS / "breaking.py").read_text(), flags=re.MULTILINE)
    assert sorted({*BROKEN, "unflushed"}) == sorted(named)


def test_the_judge_uses_nothing_of_what_it_judges():
    """Guards that a fault of the package cannot be shared by its judge."""
    look = (
        "import sys; before = set(sys.modules); import judging; "
        "print(sorted({name.split('.')[0] for name in set(sys.modules) - before} & {'tellers', 'scipy'})); "
        "import tellers"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CHAOS), str(ROOT / "src")])}
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, env=env, check=False)
    assert done.stdout == "['tellers']\n", done.stderr  # the place of it, which nobody can import
    assert "ModuleNotFoundError" in done.stderr
    for name in ("judging", "reading", "pricing"):
        assert not re.search(r"(from|import) tellers", (CHAOS / f"{name}.py").read_text())
