"""From settings to a student on the command line, and everything that may be wrong on the way."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import numpy as np
import pytest

from .. import forked

FORESTS = """
[data]
name = "files"
private = "private.csv"
public = "public.csv"
test = "test.csv"
target = "back"
classes = ["no", "yes"]
person = "who"

[partition]
n_teachers = 20
by = "person"

[teachers]
model = "tree"

[mechanism]
name = "gnmax"
sigma = 4.0

[budget]
epsilon = 30.0
delta = 1e-5
"""
HELPERS = """
import os, time
from sklearn.tree import DecisionTreeClassifier

class Moody(DecisionTreeClassifier):
    '''A tree that will not learn from rows with a first entry above 99, while MOOD says so.'''
    def fit(self, X, y):
        if X[:, 0].max() > 99 and os.environ.get("MOOD") == "fails":
            raise RuntimeError(f"row {X[0]} is secret")
        if X[:, 0].max() > 99 and os.environ.get("MOOD") == "hangs":
            time.sleep(600)
        if os.environ.get("MOOD") == "slow":
            time.sleep(0.2)
        return super().fit(X, y)
"""


def rows(n_rows, *, seed, public=False):
    rng = np.random.default_rng(seed)
    age, ward = rng.integers(20, 90, n_rows), rng.integers(4, size=n_rows)
    back = np.where(age + 5 * ward + rng.normal(0, 4, n_rows) > 60, "yes", "no")
    columns = {"age": age, "ward": ward}
    if not public:
        columns |= {"who": rng.integers(n_rows // 2, size=n_rows), "back": back}
    return columns


def write(path, columns):
    lines = [",".join(columns)] + [",".join(map(str, row)) for row in zip(*columns.values())]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def study(tmp_path):
    write(tmp_path / "private.csv", rows(400, seed=1))
    write(tmp_path / "public.csv", rows(60, seed=2, public=True))
    write(tmp_path / "test.csv", rows(100, seed=3))
    (tmp_path / "study.toml").write_text(FORESTS)
    (tmp_path / "moody_trees.py").write_text(HELPERS)
    return tmp_path


def tellers(study, *words, mood="", timeout=180, start=forked.run, **options):
    environment = {**os.environ, "MOOD": mood, "PYTHONPATH": os.pathsep.join([*sys.path, str(study)])}
    return start(
        [sys.executable, "-m", "tellers", *words], cwd=study, env=environment, timeout=timeout,
        capture_output=True, text=True, check=False, **options,
    )  # fmt: skip


def change(study, old, new):
    text = (study / "study.toml").read_text()
    assert old in text
    (study / "study.toml").write_text(text.replace(old, new))


def test_a_study_of_ones_own_files_to_its_report(study):
    done = tellers(study, "run", "study.toml", "--out", "out", "--json", start=subprocess.run)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["partition"]["unit"] == "one person"
    assert result["student"]["accuracy"] > 0.75
    assert result["spent"]["epsilon"] <= 30.0
    page = (study / "out" / "report.html").read_text()
    assert "one person" in page
    again = tellers(study, "run", "study.toml", "--out", "out")
    assert again.returncode == 2
    assert "--resume" in again.stderr
    told = tellers(study, "run", "study.toml", "--out", "out", "--resume")
    assert told.returncode == 0, told.stderr
    assert f"{result['student']['accuracy']:.1%}" in told.stdout
    (study / "out" / "report.html").unlink()
    assert tellers(study, "report", "out").returncode == 0
    assert (study / "out" / "report.html").exists()


@pytest.mark.campaign
def test_sites_with_one_class_only_have_a_vote_too(study):
    columns = rows(400, seed=1)
    columns["site"] = columns.pop("who") % 25
    columns["back"] = np.where(columns["site"] == 3, "no", columns["back"])
    write(study / "private.csv", columns)
    change(study, 'person = "who"', 'site = "site"')
    sites = ", ".join(f'"{number}"' for number in range(25))
    change(study, 'n_teachers = 20\nby = "person"', f'n_teachers = 0\nby = "site"\nsites = [{sites}]')
    done = tellers(study, "run", "study.toml", "--out", "out", "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["partition"]["n_teachers"], result["partition"]["unit"]) == (25, "one site")


def with_cell(column, value):
    def spoil(study):
        columns = rows(400, seed=1)
        columns[column] = columns[column].astype(object)
        columns[column][17] = value
        write(study / "private.csv", columns)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            with_cell("age", "nan"),
            "private.csv: Expected a value in every row of 'age', got a missing one in row 17",
        ),
        (with_cell("age", "inf"), "private.csv: Expected finite numbers in 'age'"),
        (with_cell("back", "perhaps"), "private.csv: "),
        (lambda study: (study / "public.csv").unlink(), "public.csv"),
        (lambda study: (study / "test.csv").write_text("age\n1\n"), "test.csv"),
        (lambda study: change(study, 'model = "tree"', 'model = "forrest"'), "forest"),
        (lambda study: change(study, "sigma = 4.0", "sgima = 4.0"), "study.toml:"),
        (lambda study: change(study, "epsilon = 30.0", 'epsilon = "lots"'), "study.toml:"),
        (lambda study: change(study, "epsilon = 30.0", "epsilon = 0.001"), "past the budget"),
    ],
    ids=[
        "missing",
        "infinite",
        "unseen label",
        "no pool",
        "test",
        "model",
        "key",
        "type",
        "budget",
    ],
)
def test_bad_input_is_said_in_one_paragraph_and_costs_nothing(study, spoil, says):
    spoil(study)
    done = tellers(study, "run", "study.toml", "--out", "out")
    assert done.returncode == 2, done.stderr
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert "perhaps" not in done.stderr
    assert not (study / "out" / "result.json").exists()
    if (study / "out" / "ledger.db").exists():
        import sqlite3

        lines = sqlite3.connect(study / "out" / "ledger.db").execute("SELECT kind FROM lines").fetchall()
        assert ("reserved",) not in lines


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("mood", "says"), [("fails", "RuntimeError"), ("hangs", "not finished after 2 seconds")]
)
def test_a_teacher_that_fails_votes_and_is_named_in_the_private_record_alone(study, mood, says):
    with_cell("age", 120)(study)
    change(study, 'model = "tree"', 'model = "moody_trees:Moody"\ntimeout = 2.0\nretries = 1')
    done = tellers(study, "run", "study.toml", "--out", "out", mood=mood)
    assert done.returncode == 0, done.stderr
    assert says not in done.stderr + done.stdout
    assert "secret" not in done.stderr + done.stdout
    record = (study / "out" / "private" / "record.json").read_text()
    assert says in record
    assert "secret" not in record
    again = tellers(study, "run", "study.toml", "--out", "out", "--resume", "--json", mood=mood)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["partition"]["n_teachers"] == 20


@pytest.mark.campaign
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_ctrl_c_says_what_is_kept_and_the_run_goes_on(study):
    change(study, 'model = "tree"', 'model = "moody_trees:Moody"\nn_jobs = 1')
    environment = {**os.environ, "MOOD": "slow", "PYTHONPATH": os.pathsep.join([*sys.path, str(study)])}
    process = subprocess.Popen(
        [sys.executable, "-m", "tellers", "run", "study.toml", "--out", "out"], cwd=study, env=environment,
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        # Tests that run in the background are deaf to Ctrl-C, and so would be what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while len(list((study / "out" / "private" / "teachers").glob("*.json"))) < 3:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped." in said
    assert "of 20 teachers are finished and kept" in " ".join(said.split())
    assert "Traceback" not in said
    assert tellers(study, "run", "study.toml", "--out", "out", "--resume").returncode == 0


@pytest.mark.campaign
def test_a_full_disk_is_said_and_the_run_goes_on(study):
    def full():
        # Files of this process end at 100 kB: enough for settings and a ledger, too little for a forest.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))

    change(study, 'model = "tree"', 'model = "forest"\nparameters = { n_estimators = 100 }\nn_jobs = 1')
    done = tellers(study, "run", "study.toml", "--out", "out", preexec_fn=full)
    assert done.returncode == 1, done.stderr
    words = " ".join(done.stderr.split())
    assert "File too large" in words
    assert "kept" in words
    assert "Traceback" not in words
    assert not list((study / "out" / "private" / "teachers").glob("*.json"))
    assert tellers(study, "run", "study.toml", "--out", "out", "--resume").returncode == 0


def test_a_folder_that_is_no_run_has_no_report(study):
    done = tellers(study, "report", ".", "--json")
    assert done.returncode == 2
    assert "error" in json.loads(done.stderr)


@pytest.mark.campaign
def test_the_demo_is_the_whole_of_it(study):
    done = tellers(study, "demo", "--out", "demo", timeout=400, start=subprocess.run)
    assert done.returncode == 0, done.stderr
    for words in (
        "a model trained on the private rows",
        "the teachers' plurality",
        "the student",
        "epsilon",
        "report.html",
    ):
        assert words in " ".join(done.stdout.split())
    result = json.loads((study / "demo" / "result.json").read_text())
    assert result["student"]["accuracy"] > 0.65  # 0.8 or so; noise that nobody can seed moves it
    has_torch = find_spec("torch") is not None
    assert result["student"]["model"] == ("mean_teacher" if has_torch else "svm")
    assert ("with torch" in done.stdout) != has_torch


@pytest.mark.campaign
def test_the_demo_needs_no_torch(study):
    """As where it is not installed: it cannot be found, nor imported."""
    alone = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *given: None if name == "torch" else find(name, *given)
class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nowhere())
from tellers.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", alone, "demo", "--out", "torchless"], cwd=study, timeout=400,
        capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads((study / "torchless" / "result.json").read_text())
    assert result["student"]["model"] == "svm"
    assert "pip install 'tellers[torch]'" in " ".join(done.stdout.split())
