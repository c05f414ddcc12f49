"""Many labels per row on the command line: from settings to a student, killed, gone on with, and priced."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tellers import Accountant, Budget, SqliteLedger
from tellers.runs import load_student

from .. import forked

NAMES = ["rain", "wind", "snow"]
CONFIG = """
[data]
name = "files"
private = "days.csv"
public = "pool.csv"
test = "test.csv"

[labels]
names = ["rain", "wind", "snow"]
{labels}

[partition]
n_teachers = 30

[teachers]
model = "naive_bayes"
n_jobs = 1

[mechanism]
{mechanism}

[budget]
epsilon = 20.0
delta = 1e-4

[queries]
n_queries = 60
{queries}

[student]
model = "tree"

[report]
private = {private}
"""
CONFIDENT = 'name = "confident-binary"\nsigma = 6.0\nthreshold = 24\nsigma_threshold = 6.0'


def tellers(*words, cwd):
    command = [sys.executable, "-m", "tellers", *map(str, words)]
    return forked.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


def days(path, n_rows, *, seed, labels=True):
    """Write rows in which rain and wind can be told, and it snows only where it rains."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2)).round(4)
    rain, wind = X[:, 0] > 0, X[:, 1] > 0.3
    table = np.column_stack([rain, wind, rain & (X[:, 0] > 1)]).astype(int)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["pressure", *(NAMES if labels else []), "speed"])
        for (a, b), told in zip(X.tolist(), table.tolist()):
            writer.writerow([a, *(told if labels else []), b])


@pytest.fixture
def study(tmp_path):
    """Return a function that writes tables and settings and returns their folder."""
    days(tmp_path / "days.csv", 900, seed=1)
    days(tmp_path / "pool.csv", 90, seed=2, labels=False)
    days(tmp_path / "test.csv", 200, seed=3)

    def write(mechanism='name = "binary"\nsigma = 7.0', *, labels="", queries="", private="false"):
        text = CONFIG.format(mechanism=mechanism, labels=labels, queries=queries, private=private)
        (tmp_path / "a.toml").write_text(text)
        return tmp_path

    return write


def test_from_tables_to_a_student_and_its_report(study, monkeypatch):
    monkeypatch.setattr(forked.Popen, "plots", True)
    folder = study(private="true")
    done = tellers("run", "a.toml", "--out", "out", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result == {**json.loads((folder / "out/result.json").read_text()), "folder": "out"}
    assert result["data"]["label_names"] == NAMES
    assert result["queries"]["n_asked"] == 60 == result["cost"][-1]["n_queries"]
    assert 0 < result["spent"]["epsilon"] <= 20.0
    # Every label is told by Binary, and what was told is what the file of labels holds.
    with (folder / "out/labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    assert list(rows[0]) == ["row", *NAMES]
    for label in result["labels"]:
        answers = [row[label["name"]] for row in rows]
        assert label["n_yes"] == answers.count("1")
        assert label["n_no"] == answers.count("0")
        assert label["n_silent"] == 0
    assert result["student"]["n_labels"] == 180
    assert result["student"]["scores"]["balanced_accuracy"] > 0.7
    assert set(result["student"]["scores"]) == {
        "accuracy", "balanced_accuracy", "auc", "mean_average_precision", "micro_f1", "macro_f1",
        "micro_precision", "micro_recall", "macro_precision", "macro_recall",
    }  # fmt: skip
    # The numbers of the card and of the student on disk are those of the result.
    student = load_student(folder / "out/student")
    table = np.genfromtxt(folder / "out/../test.csv", delimiter=",", skip_header=1)
    said = student.predict(table[:, [0, 4]])
    assert float((said == table[:, 1:4]).mean()) == pytest.approx(result["student"]["accuracy"])
    card = json.loads((folder / "out/student/card.json").read_text())
    assert card["labels"] == NAMES
    assert card["task"] == "say yes or no to 3 labels (days)"
    # Nothing private on the page that may be shared, and all labels.
    page = (folder / "out/report.html").read_text()
    assert all(f"{at}. {name}" in page for at, name in enumerate(NAMES, start=1))
    assert "private: do not publish" not in page
    private = (folder / "out/private/report.private.html").read_text()
    assert "votes between yes and no" in private
    numbers = json.loads((folder / "out/private/summary.json").read_text())
    assert numbers["exact_cost"][-1]["epsilon"] < result["spent"]["epsilon"]
    again = tellers("report", "out", "--json", cwd=folder)
    assert json.loads(again.stdout)["report"].endswith("report.html")
    assert (folder / "out/report.html").read_text() == page


def test_a_person_is_told_in_words(study):
    folder = study(CONFIDENT)
    done = tellers("run", "a.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "labels released" in done.stdout
    assert "balanced accuracy" in done.stdout
    assert all(name in done.stdout for name in NAMES)
    result = json.loads((folder / "a-run/result.json").read_text())
    assert sum(label["n_silent"] for label in result["labels"]) > 0
    assert "met with silence" in (folder / "a-run/report.html").read_text()


def test_what_follows_from_others_is_not_asked(study):
    folder = study(labels='implies_not = {rain = ["snow"]}')
    done = tellers("run", "a.toml", "--out", "out", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    snow = json.loads(done.stdout)["labels"][2]
    assert snow["n_inferred"] > 0
    with np.load(folder / "out/labels.npz") as kept:
        assert int((~kept["by_teachers"][:, 2]).sum()) == snow["n_inferred"]
        assert (kept["labels"][kept["labels"][:, 0] == 0, 2] == 0).all()


def test_the_votes_of_the_run_can_be_priced_and_published(study):
    folder = study()
    done = tellers("run", "a.toml", "--out", "out", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    votes = ["out/private/votes.npz", "--mechanism", "binary", "--sigma", "7"]
    priced = tellers("account", *votes, "--delta", "1e-4", "--json", cwd=folder)
    assert priced.returncode == 0, priced.stderr
    # All ninety rows of the pool were voted on, sixty of them were asked.
    asked = json.loads(done.stdout)["spent"]["epsilon"]
    assert json.loads(priced.stdout)["public"]["epsilon"] > asked
    # Their cost is published at the expense of the run, not past it.
    told = tellers("publish", *votes, "--delta", "1e-4", "--json", "--yes", cwd=folder)
    assert told.returncode == 2
    assert f"tellers publish {(folder / 'out').resolve()}" in told.stderr
    told = tellers("publish", "out", "--json", "--yes", cwd=folder)
    assert told.returncode == 0, told.stderr


@pytest.mark.campaign
def test_killed_and_gone_on_with_it_ends_as_it_would_have(study):
    folder = study(queries="batch = 1")
    command = [sys.executable, "-m", "tellers", "run", "a.toml", "--out", "out", "--resume", "--json"]
    accountant = Accountant(Budget(epsilon=20.0, delta=1e-4))
    with subprocess.Popen(
        command[:-1], cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        start_new_session=True,
    ) as first:  # fmt: skip
        assert first.stderr is not None
        assert any("Releasing labels" in line for line in first.stderr)
        time.sleep(0.15)
        os.killpg(first.pid, signal.SIGKILL)
    before = (folder / "out/private/votes.npz").read_bytes()
    with SqliteLedger(folder / "out/ledger.db", accountant) as ledger:
        known = {e.key: e.release for e in ledger.entries() if e.is_settled}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (folder / "out/private/votes.npz").read_bytes() == before
    with SqliteLedger(folder / "out/ledger.db", accountant) as ledger:
        ledger.verify()
        entries = ledger.entries()
        assert len(entries) == len({entry.key for entry in entries}) == 60
        after = {e.key: e.release for e in entries}
    # What had come out stays; what was charged and lost is not asked again.
    assert all(np.array_equal(after[key].labels, release.labels) for key, release in known.items())
    result = json.loads(done.stdout)
    with np.load(folder / "out/labels.npz") as kept:
        assert len(kept["rows"]) + result["queries"]["n_lost"] == 60
    # Once more: nothing is done twice, and the numbers are the same but for the date.
    twice = json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)
    for changing in ("started", "seconds"):
        result.pop(changing), twice.pop(changing)
    assert twice == result


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"queries": 'order = "active"'}, "queries.order"),
        ({"labels": "thresholds = [0.5, 0.5]"}, "labels.thresholds"),
        ({"mechanism": 'name = "gnmax"\nsigma = 5'}, "mechanism.name"),
    ],
)
def test_what_does_not_go_with_labels_is_refused_at_its_line(study, change, says):
    done = tellers("run", "a.toml", "--out", "out", cwd=study(**change))
    assert done.returncode == 2
    assert says in done.stderr
    assert "a.toml:" in done.stderr


def test_entries_that_are_no_label_are_refused_before_anything_is_charged(study):
    folder = study()
    rows = (folder / "days.csv").read_text().splitlines()
    cells = rows[7].split(",")
    cells[1] = "7"
    rows[7] = ",".join(cells)
    (folder / "days.csv").write_text("\n".join(rows) + "\n")
    done = tellers("run", "a.toml", "--out", "out", cwd=folder)
    assert done.returncode == 2
    assert (
        "days.csv: Expected 0 or 1 in every row of the label 'rain', got another entry in row 6"
        in done.stderr
    )
    assert not (folder / "out/ledger.db").exists()


def test_a_feature_may_be_called_as_arrays_of_labels_are(study):
    folder = study()
    for name in ("days.csv", "pool.csv", "test.csv"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace("pressure", "Y", 1))
    done = tellers("run", "a.toml", "--out", "out", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"]["n_features"] == 2


def test_a_label_that_is_not_in_the_file_is_named(study):
    folder = study()
    (folder / "a.toml").write_text((folder / "a.toml").read_text().replace('"snow"]', '"hail"]'))
    done = tellers("run", "a.toml", "--out", "out", cwd=folder)
    assert done.returncode == 2
    assert "Expected a column 'hail'" in done.stderr
