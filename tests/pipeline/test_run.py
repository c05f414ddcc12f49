"""One whole run: what it leaves, what it says, and that nothing private is in what it publishes."""

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from tellers import Accountant, Budget, SqliteLedger, open_ledger
from tellers.errors import BudgetExhausted, FolderInUse
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    ReportConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    load_student,
    read_config,
    run,
)
from tellers.runs._folder import RunFolder

from .. import small_runs
from ..small_runs import run_on_votes

TASK = {"n_rows": 980, "difficulty": 0.4, "n_classes": 3}
SMALL = replace(
    small_runs.SMALL,
    data=DataConfig(name="synthetic", n_public=80, n_test=100, options=TASK),
    partition=PartitionConfig(n_teachers=40),
    mechanism=MechanismConfig(name="confident", sigma=5.0, threshold=20.0, sigma_threshold=8.0),
    budget=BudgetConfig(epsilon=20.0, delta=1e-5),
    queries=QueriesConfig(),
)


@pytest.fixture(scope="module")
def once(tmp_path_factory):
    """Return the folder of a finished run, and its result."""
    folder = tmp_path_factory.mktemp("runs") / "study"
    return folder, run(SMALL, folder)


@pytest.fixture
def finished(once, tmp_path):
    """Return a copy of a finished run, and its result."""
    folder, result = once
    return Path(shutil.copytree(folder, tmp_path / "study")), result


def a_ledger(folder, budget=SMALL.budget):
    return SqliteLedger(folder / "ledger.db", Accountant(Budget(budget.epsilon, budget.delta)))


def test_a_run_leaves_everything_and_says_what_is_true(tmp_path):
    folder, steps = tmp_path / "study", []
    result = run(SMALL, folder, show=lambda step, *_: steps.append(step))
    assert list(dict.fromkeys(steps)) == ["data", "teachers", "votes", "labels", "student", "report"]
    assert json.loads((folder / "result.json").read_text()) == result.as_dict()
    there = {path.name for path in folder.iterdir()}
    assert there >= {
        "config.toml",
        "labels.npz",
        "ledger.db",
        "private",
        "report.html",
        "result.json",
        "student",
    }
    assert os.stat(folder / "private").st_mode & 0o777 == 0o700
    with np.load(folder / "labels.npz") as kept, a_ledger(folder) as ledger:
        answered = sum(int(entry.release.answered.sum()) for entry in ledger.entries())
        assert kept["by_teachers"].sum() == answered == result["queries"]["n_answered"]
        assert len(set(kept["rows"])) == len(kept["rows"]) == result["queries"]["n_asked"]
        assert result["spent"]["charged"] == ledger.accountant.epsilon(ledger.spent)
        assert result["cost"][-1]["epsilon"] == result["spent"]["charged"]
    # Silence is cheaper than an answer, so what was charged is an outcome; stated is what was fixed before.
    assert result["spent"]["charged"] <= result["spent"]["epsilon"] <= 20.0
    assert result["spent"]["is_guarantee"]
    student = load_student(folder / "student")
    assert student.predict(np.zeros((1, 20))).shape == (1,)
    assert result["student"]["accuracy"] > 0.8


def test_a_finished_run_is_not_done_twice(finished):
    folder, first = finished
    with a_ledger(folder) as ledger:
        head = ledger.verify()
    again = run(SMALL, folder, resume=True)
    with a_ledger(folder) as ledger:
        assert ledger.verify(head) == head
    for key in ("queries", "cost", "spent", "student"):
        assert again[key] == first[key]


def test_what_may_change_changes_nothing_that_was_paid_for(finished):
    folder, first = finished
    kept = (folder / "labels.npz").read_bytes()
    with a_ledger(folder) as ledger:
        head = ledger.verify()
    told = replace(SMALL, report=ReportConfig(private=True), student=StudentConfig(model="tree"))
    told = replace(told, teachers=replace(SMALL.teachers, retries=3))
    second = run(told, folder, resume=True)
    third = run(read_config(folder / "config.toml"), folder, resume=True)
    with a_ledger(folder) as ledger:
        assert ledger.verify(head) == head
    assert (folder / "labels.npz").read_bytes() == kept
    assert first["queries"] == second["queries"] == third["queries"]
    assert second["student"]["model"] == third["student"]["model"] == "tree"


def test_a_run_from_files_goes_on_from_its_own_copy_of_the_settings(tmp_path):
    rng = np.random.default_rng(7)
    for name, n_rows in (("private", 400), ("public", 30), ("test", 50)):
        X = rng.normal(size=(n_rows, 3))
        np.savez(tmp_path / f"{name}.npz", X=X, y=(X[:, 0] > 0).astype(int))
    (tmp_path / "study.toml").write_text(
        """
        [data]
        name = "files"
        private = "private.npz"
        public = "public.npz"
        test = "test.npz"
        target = "y"
        classes = ["0", "1"]
        [partition]
        n_teachers = 40
        [mechanism]
        name = "gnmax"
        sigma = 8.0
        """
    )
    first = run(read_config(tmp_path / "study.toml"), tmp_path / "out")
    again = run(read_config(tmp_path / "out" / "config.toml"), tmp_path / "out", resume=True)
    assert again["spent"] == first["spent"]
    assert again["queries"] == first["queries"]


def test_other_data_on_a_shared_ledger_are_another_question(tmp_path):
    budget = BudgetConfig(epsilon=30.0, delta=1e-5, ledger=str(tmp_path / "shared.db"))
    config = replace(SMALL, budget=budget, queries=QueriesConfig(n_queries=20))
    run_on_votes(config, tmp_path / "one")
    with SqliteLedger(tmp_path / "shared.db", Accountant(Budget(30.0, 1e-5))) as ledger:
        before = ledger.spent.values
    run_on_votes(config, tmp_path / "two")
    with SqliteLedger(tmp_path / "shared.db", Accountant(Budget(30.0, 1e-5))) as ledger:
        assert (ledger.spent.values > 1.5 * before).all()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"student": StudentConfig(parameters={"C": "x", "depth": 3})}, "parameters of the model"),
        ({"budget": BudgetConfig(epsilon=0.01, delta=1e-5)}, "past the budget"),
        (
            {
                "mechanism": MechanismConfig(name="histogram", sigma=5.0),
                "student": StudentConfig(kind="distilled", model="neighbours"),
            },
            "sample_weight",
        ),
        (
            {
                "mechanism": MechanismConfig(
                    name="interactive", sigma=5.0, threshold=15.0, sigma_threshold=8.0, student_confidence=0.8
                ),
                "queries": QueriesConfig(warm_up=40, warm_up_threshold=20.0),
                "student": StudentConfig(model="svm"),
            },
            "predict_proba",
        ),
    ],
    ids=["parameters", "budget", "weights", "silent student"],
)
def test_what_cannot_end_well_is_refused_before_anything_is_trained(tmp_path, changes, says):
    with pytest.raises((ValueError, TypeError, BudgetExhausted), match=says):
        run(replace(SMALL, **changes), tmp_path / "study")
    assert not (tmp_path / "study" / "private" / "teachers").exists()


def test_silence_alone_says_what_it_cost(tmp_path):
    silent = replace(SMALL, mechanism=replace(SMALL.mechanism, threshold=400.0))
    with pytest.raises(ValueError, match=r"silence for every row.*epsilon [0-9.]+ is spent"):
        run_on_votes(silent, tmp_path / "study")
    assert (tmp_path / "study" / "labels.npz").exists()


def test_votes_of_a_run_whose_settings_are_gone_are_not_taken_up(finished):
    folder, _ = finished
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    with pytest.raises(ValueError, match="Expected a new or empty folder"):
        run(replace(SMALL, teachers=TeachersConfig(model="tree")), folder, resume=True)


def test_nothing_private_is_in_what_is_published(once, tmp_path):
    folder, public = once
    told = run_on_votes(replace(SMALL, report=ReportConfig(private=True)), tmp_path / "True")
    assert not (folder / "private" / "summary.json").exists()
    summary = json.loads((tmp_path / "True" / "private" / "summary.json").read_text())
    assert summary["plurality_accuracy"] > 0.9
    assert len(summary["teacher_accuracies"]) == 40
    assert summary["exact_cost"][-1]["epsilon"] < told["spent"]["epsilon"]
    assert set(public) == set(told)
    assert "teachers" not in told["seconds"]
    with np.load(tmp_path / "True" / "labels.npz") as kept:
        assert sorted(kept.files) == ["by_teachers", "labels", "rows"]
    for result in (public, told):
        words = json.dumps({**result, "settings": None})
        words += (tmp_path / "True" / "student" / "card.md").read_text()
        for secret in ("gap", "teacher_accuracies", "plurality", "exact", "open_model"):
            assert secret not in words


def test_other_settings_or_other_rows_do_not_go_on_with_a_run(finished):
    folder, _ = finished
    with pytest.raises(ValueError, match=r"holds a run.*--resume"):
        run(SMALL, folder)
    other = replace(SMALL, mechanism=replace(SMALL.mechanism, sigma=6.0))
    with pytest.raises(ValueError, match=r"begun with, got others for mechanism.sigma"):
        run(other, folder, resume=True)
    (folder / "private" / "made_of.json").write_text('{"private": "other"}')
    with pytest.raises(ValueError, match="begun with, got another private"):
        run(SMALL, folder, resume=True)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match=r"holds thesis\.tex"):
        run(SMALL, tmp_path)
    assert not (tmp_path / "config.toml").exists()


def test_one_run_at_a_time(tmp_path):
    folder, inside, done = RunFolder(tmp_path / "study"), threading.Event(), threading.Event()

    def hold():
        with folder.held():
            inside.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(30)
    with pytest.raises(FolderInUse, match="another run is at work"):
        run(SMALL, folder.path)
    done.set()
    thread.join()


@pytest.mark.parametrize(
    ("mechanism", "extra"),
    [
        (MechanismConfig(name="gnmax", sigma=5.0), {}),
        (MechanismConfig(name="lnmax", gamma=0.4), {"queries": QueriesConfig(n_queries=30, order="given")}),
        (
            MechanismConfig(name="histogram", sigma=5.0),
            {"student": StudentConfig(kind="distilled", temperature=2.0, floor=8.0)},
        ),
        (
            MechanismConfig(
                name="interactive", sigma=5.0, threshold=15.0, sigma_threshold=8.0, student_confidence=0.8
            ),
            {"queries": QueriesConfig(warm_up=40, warm_up_threshold=20.0, per_round=20)},
        ),
        (SMALL.mechanism, {"queries": QueriesConfig(order="active", first=30, per_round=10, n_labels=45)}),
        (SMALL.mechanism, {"queries": QueriesConfig(order="typical", n_queries=40)}),
    ],
    ids=["gnmax", "lnmax", "histogram", "interactive", "active", "typical"],
)
def test_every_mechanism_and_order(tmp_path, mechanism, extra):
    budget = BudgetConfig(epsilon=60.0, delta=1e-5)
    config = replace(SMALL, mechanism=mechanism, budget=budget, **extra)
    result = run_on_votes(config, tmp_path / "study")
    assert 0 < result["spent"]["epsilon"] <= 60.0
    assert result["student"]["accuracy"] > 0.8
    again = run(config, tmp_path / "study", resume=True)
    assert again["student"] == result["student"]
    if mechanism.name in ("gnmax", "lnmax", "histogram"):
        assert result["spent"]["epsilon"] == result["spent"]["charged"]
    if mechanism.name == "interactive":
        assert result["queries"]["n_by_student"] > 0


def test_a_private_stop_is_explicit_and_is_no_guarantee(tmp_path):
    budget = BudgetConfig(epsilon=50.0, delta=1e-5, stop="private", private_epsilon=2.0)
    config = replace(SMALL, budget=budget, report=ReportConfig(private=True))
    result = run_on_votes(config, tmp_path / "study")
    assert not result["spent"]["is_guarantee"]
    assert "depends on the votes" in result["spent"]["why"]
    assert result["queries"]["stopped_by"] in ("the private budget", "the end of the pool")
    summary = json.loads((tmp_path / "study" / "private" / "summary.json").read_text())
    assert summary["exact_cost"][-1]["epsilon"] <= 2.0
    elsewhere = replace(budget, ledger=str(tmp_path / "shared.db"))
    with pytest.raises(ValueError, match="a ledger in the folder of the run"):
        run(replace(config, budget=elsewhere), tmp_path / "third")
    with pytest.raises(BudgetExhausted, match="first query alone"):
        run_on_votes(replace(config, budget=replace(budget, private_epsilon=1e-9)), tmp_path / "other")


def test_two_runs_may_share_a_ledger(tmp_path):
    budget = BudgetConfig(epsilon=8.0, delta=1e-5, ledger=str(tmp_path / "shared.db"))
    few = replace(SMALL, budget=budget, queries=QueriesConfig(n_queries=20))
    first = run_on_votes(few, tmp_path / "one")
    second = run_on_votes(replace(SMALL, budget=budget), tmp_path / "two")
    assert second["cost"][0]["epsilon"] > first["spent"]["charged"]
    assert second["queries"]["stopped_by"] == "the budget"
    assert second["spent"]["epsilon"] == 8.0


def test_the_books_of_a_run_may_be_in_a_database(tmp_path, own_database, monkeypatch):
    parts = urlsplit(own_database)
    monkeypatch.setenv("PGPASSWORD", parts.password)
    inside = own_database.replace(f":{parts.password}@", "@")
    config = replace(SMALL, budget=BudgetConfig(epsilon=20.0, delta=1e-5, ledger=inside))
    first = run_on_votes(config, tmp_path / "study")
    again = run(config, tmp_path / "study", resume=True)
    assert again["spent"] == first["spent"]
    with open_ledger(inside) as ledger:
        assert len(ledger.entries()) > 0
    told = BudgetConfig(epsilon=20.0, delta=1e-5, ledger=own_database)
    with pytest.raises(ValueError, match="without a password") as at:
        run(replace(config, budget=told), tmp_path / "other")
    assert parts.password not in str(at.value)
    assert not (tmp_path / "other" / "config.toml").exists()


def test_persons_and_sites(tmp_path):
    options = {**TASK, "n_persons": 200}
    data = DataConfig(name="synthetic", n_public=80, n_test=100, options=options)
    config = replace(SMALL, data=data, partition=PartitionConfig(n_teachers=40, by="person"))
    assert run(config, tmp_path / "study")["partition"]["unit"] == "one person"
    with pytest.raises(ValueError, match="say the site of each row"):
        run(replace(config, partition=PartitionConfig(n_teachers=0, by="site")), tmp_path / "other")
    with pytest.raises(ValueError, match="say the person of each row"):
        run(replace(SMALL, partition=PartitionConfig(n_teachers=40, by="person")), tmp_path / "third")


def test_too_many_teachers_are_refused_before_anything_is_charged(tmp_path):
    with pytest.raises(ValueError, match="at most one teacher per row"):
        run(replace(SMALL, partition=PartitionConfig(n_teachers=5000)), tmp_path / "study")
    assert not (tmp_path / "study" / "ledger.db").exists()


def test_networks_as_teachers_and_student(tmp_path):
    config = RunConfig(
        data=DataConfig(name="digits", n_public=60, n_test=100),
        partition=PartitionConfig(n_teachers=6),
        teachers=TeachersConfig(model="cnn", parameters={"epochs": 4, "batch_size": 20}),
        mechanism=MechanismConfig(name="gnmax", sigma=1.0),
        budget=BudgetConfig(epsilon=5000.0, delta=1e-5),
        student=StudentConfig(model="cnn", parameters={"epochs": 20, "batch_size": 20}),
    )
    result = run(config, tmp_path / "study")
    assert list((tmp_path / "study" / "private" / "teachers").glob("*.safetensors"))
    assert result["student"]["accuracy"] > 0.3
    student = load_student(tmp_path / "study" / "student")
    assert student.predict(np.zeros((2, 64))).shape == (2,)
    again = run(config, tmp_path / "study", resume=True)
    assert again["queries"] == result["queries"]
    assert again["student"]["accuracy"] == result["student"]["accuracy"]
