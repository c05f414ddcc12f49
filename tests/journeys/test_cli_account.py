"""From a vote file to a number, through the shell, as a user would."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .. import forked

ROOT = Path(__file__).resolve().parents[2]
MNIST = ROOT / "examples" / "mnist_votes.npz"
CONFIDENT = ["--mechanism", "confident", "--sigma", "40", "--threshold", "200", "--sigma-threshold", "150"]
DELTA = ["--classes", "10", "--delta", "1e-5"]


def tellers(*words, env=None, start=forked.run):
    return start(
        [sys.executable, "-m", "tellers", *map(str, words)],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **(env or {})},
    )  # fmt: skip


def answer(*words):
    done = tellers("account", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ballots():
    with np.load(MNIST) as loaded:
        return loaded["ballots"][:, :461]


@pytest.fixture(scope="module")
def ballots_file(ballots, tmp_path_factory):
    path = tmp_path_factory.mktemp("votes") / "mnist.npy"
    np.save(path, ballots)
    return path


def test_461_plain_queries(ballots_file):
    """The worked example of the documentation: 2.69 whatever the votes, a quarter of it for these."""
    books = answer(ballots_file, "--mechanism", "gnmax", "--sigma", 40, *DELTA, "--show-private")
    assert (books["queries"], books["teachers"]) == (461, 250)
    assert round(books["public"]["epsilon"], 2) == 2.69
    assert books["public"]["method"] == "argmax-rdp"
    private = books["private"]
    assert private["exact"]["epsilon"] < books["public"]["epsilon"] / 3
    assert (
        private["exact"]["epsilon"]
        < private["published"]["epsilon"]
        < private["published"]["epsilon_classic"]
    )


def test_ballots_counts_and_a_run_that_was_made(ballots, ballots_file, tmp_path):
    counts = np.stack([(ballots == k).sum(axis=0) for k in range(10)], axis=1)
    np.savez(tmp_path / "counts.npz", counts=counts)
    np.savez(tmp_path / "made.npz", ballots=ballots, answered=counts.max(axis=1) > 220)
    whole = answer(ballots_file, *CONFIDENT, *DELTA, "--show-private")
    tallied = answer(tmp_path / "counts.npz", *CONFIDENT, *DELTA, "--show-private")
    made = answer(tmp_path / "made.npz", *CONFIDENT, *DELTA, "--show-private")
    assert tallied["public"] == whole["public"]
    assert (whole["private"]["exact"]["per"], tallied["private"]["exact"]["per"]) == ("teacher", "query")
    assert tallied["private"]["exact"]["epsilon"] >= whole["private"]["exact"]["epsilon"]
    assert made["public"]["epsilon"] == whole["public"]["epsilon"]  # whatever was answered
    assert made["charged"]["epsilon"] < made["public"]["epsilon"]
    assert made["private"]["published"]["kind"] == "realised"
    assert made["notes"]


def test_mechanisms_of_both_papers(ballots_file):
    first = answer(
        ballots_file, "--mechanism", "lnmax", "--gamma", 0.05, *DELTA, "--orders", "2:9", "--show-private"
    )
    assert first["private"]["exact"]["epsilon"] < first["private"]["published"]["epsilon"]
    assert first["private"]["published"]["order"] <= 9


def test_the_student_has_a_say(ballots, tmp_path):
    student = np.full((461, 10), 0.01)
    student[:, 3] += 0.9
    np.savez(tmp_path / "votes.npz", ballots=ballots, student=student)
    flags = ["--mechanism", "interactive", *CONFIDENT[2:4], "--threshold", 100, *CONFIDENT[6:]]
    books = answer(tmp_path / "votes.npz", *flags, "--student-confidence", 0.8, *DELTA, "--show-private")
    assert 0 < books["private"]["exact"]["epsilon"] < books["public"]["epsilon"]


def test_people_see_words_and_scripts_see_errors(ballots_file, tmp_path):
    seen = tellers("account", ballots_file, *CONFIDENT, *DELTA)
    assert seen.returncode == 0
    assert "461 queries by 250 teachers." in seen.stdout
    assert "private: do not publish" not in seen.stdout
    failed = tellers("account", tmp_path / "nowhere.npy", *CONFIDENT, *DELTA, "--json", start=subprocess.run)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "nowhere.npy" in json.loads(failed.stderr)["error"]


def test_any_terminal_will_do(ballots_file):
    seen = tellers("account", ballots_file, *CONFIDENT, *DELTA, env={"PYTHONIOENCODING": "ascii"})
    assert seen.returncode == 0, seen.stderr
    assert "epsilon" in seen.stdout


def test_the_version():
    from tellers import __version__

    assert tellers("--version").stdout == f"tellers {__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["account", "--help"]], ids=" ".join)
def test_help_comes_at_once(words):
    """Half a second of CPU time, bytecode in place, in one of five tries: other tests run beside this one.

    On a machine that is slow now, three times what the libraries alone take to load.
    """

    def spent(call) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        call()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    def show_help():
        assert tellers(*words, start=subprocess.run).returncode == 0

    show_help()
    if any(spent(show_help) < 0.5 for _ in range(5)):
        return
    libraries = [sys.executable, "-c", "import numpy, typer.main, typer.rich_utils"]
    alone = min(spent(lambda: subprocess.run(libraries, check=True, timeout=60)) for _ in range(5))
    assert min(spent(show_help) for _ in range(5)) < 3 * alone


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from tellers.cli import build; build();"
        "print([m for m in ('numpy', 'scipy', 'sklearn', 'dp_accounting') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT / "src"
    )
    assert done.stdout.strip() == "[]"
