"""`tellers run` in steps, and `tellers student`: other students of its teachers, on its ledger."""

import json
from dataclasses import replace

import pytest

from tellers import Accountant, Budget, open_ledger
from tellers.cli import main
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    read_config,
    write_config,
)

BUDGET = Accountant(Budget(8.0, 1e-4))
SMALL = RunConfig(
    data=DataConfig(name="breast_cancer", n_public=40, n_test=40),
    partition=PartitionConfig(n_teachers=30),
    teachers=TeachersConfig(model="naive_bayes"),
    mechanism=MechanismConfig(name="gnmax", sigma=8.0),
    budget=BudgetConfig(epsilon=8.0, delta=1e-4),
    queries=QueriesConfig(n_queries=10),
    student=StudentConfig(model="naive_bayes"),
)


@pytest.fixture
def tellers(capsys, monkeypatch):
    monkeypatch.setattr("tellers.runs.pipeline.write_page", lambda *_, **__: None)

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main([*map(str, words)])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, " ".join(printed.err.split())

    return call


@pytest.fixture
def settings(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(write_config(SMALL))
    return file


def changed(*words):
    return [part for word in words for part in ("--set", word)]


def charged(folder):
    with open_ledger(folder / "ledger.db", BUDGET) as ledger:
        return [entry.event["n_queries"] for entry in ledger.entries()]


def test_a_run_in_steps_and_two_more_students_of_its_teachers(tellers, settings, tmp_path):
    first = tmp_path / "first"
    words = ("run", settings, "--out", first, "--json")
    code, out, _ = tellers(*words, "--until", "votes")
    assert (code, json.loads(out)) == (0, {"until": "votes", "folder": str(first)})
    assert (first / "private" / "votes.npz").exists()
    assert not (first / "labels.npz").exists()
    assert charged(first) == []
    code, out, err = tellers("student", first, "--out", tmp_path / "one", "--json")
    assert code == 0, err
    assert json.loads(out)["spent"]["shared"] is False
    others = changed("queries.n_queries=20", "student.model=tree", "mechanism.sigma=9")
    code, out, err = tellers("student", first, "--out", tmp_path / "two", *others, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["student"]["model"], told["mechanism"]["sigma"], told["spent"]["shared"]) == (
        "tree",
        9.0,
        True,
    )
    assert sum(charged(first)) == 30
    for name in ("one", "two"):
        assert not (tmp_path / name / "ledger.db").exists()
        assert not (tmp_path / name / "private" / "teachers").exists()
        assert read_config(tmp_path / name / "config.toml").budget.ledger == "../first/ledger.db"
    # Said again, it goes on with nothing; and so does the first run, which trains nobody twice.
    code, out, _ = tellers("student", first, "--out", tmp_path / "two", *others, "--resume", "--json")
    assert (code, json.loads(out)["spent"]["charged"]) == (0, told["spent"]["charged"])
    before = {file: file.stat().st_mtime_ns for file in (first / "private" / "teachers").iterdir()}
    assert tellers(*words, "--resume")[0] == 0
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert sum(charged(first)) == 40


def test_what_is_refused_leaves_nothing_in_the_way(tellers, settings, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert tellers("run", settings, "--out", first, "--until", "votes")[0] == 0
    for words, said in (
        (changed("mechanism.sigma=0.3"), "One question alone would go past the budget"),
        (changed("budget.epsilon=9"), "others for budget.epsilon"),
        (changed("partition.n_teachers=7"), "others for partition.n_teachers"),
        (changed("budget.ledger=fresh.db"), "Two ledgers are two budgets for the same votes"),
    ):
        code, out, err = tellers("student", first, "--out", second, *words)
        assert (code, out, said in err) == (2, "", True), err
        assert not second.exists()
    # A file of settings of its own, and a ledger that is gone.
    settings.write_text(write_config(replace(SMALL, seed=8)))
    code, _, err = tellers("student", first, settings, "--out", second)
    assert (code, "others for seed" in err) == (2, True)
    (first / "ledger.db").unlink()
    code, _, err = tellers("student", first, "--out", second)
    assert (code, "it is not there. Restore it" in err) == (2, True)
    assert not (first / "ledger.db").exists()
    code, _, err = tellers("student", tmp_path / "nowhere")
    assert (code, "Expected the folder of a run, found none" in err) == (2, True)


def test_too_little_is_left_for_another(tellers, settings, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert (
        tellers("run", settings, "--out", first, *changed("mechanism.sigma=3", "queries.n_queries=0"))[0] == 0
    )
    before = charged(first)
    code, _, err = tellers("student", first, "--out", second)
    assert (code, "past the budget of 8" in err) == (2, True), err
    assert not (second / "config.toml").exists()
    assert charged(first) == before
