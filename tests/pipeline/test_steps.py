"""A run in steps, and several students of the teachers of one run on its ledger."""

from dataclasses import replace

import pytest

from tellers.ledger import open_ledger
from tellers.privacy.budget import Accountant, Budget
from tellers.runs import (
    BudgetConfig,
    MechanismConfig,
    PartitionConfig,
    ReportConfig,
    TeachersConfig,
    read_config,
    run,
)
from tellers.runs.pipeline import STEPS, run_steps, voted_in

from ..small_runs import LABELS, SMALL

LEAVES = {
    "data": {"private/made_of.json", "ledger.db"},
    "teachers": {"private/teachers"},
    "votes": {"private/votes.npz"},
    "labels": {"labels.npz"},
    "student": {"student/card.json", "result.json"},
    "report": {"report.html"},
}


def spent(folder, budget=SMALL.budget):
    with open_ledger(folder / "ledger.db", Accountant(Budget(budget.epsilon, budget.delta))) as ledger:
        return [entry.key for entry in ledger.entries()], ledger.spent


def test_every_step_may_be_the_last_and_is_gone_on_from(tmp_path):
    folder, there = tmp_path / "study", set()
    for step in STEPS:
        done = run_steps(SMALL, folder, until=step, resume=True)
        there |= LEAVES[step]
        later = set().union(*LEAVES.values()) - there
        assert all((folder / name).exists() for name in there), step
        assert not any((folder / name).exists() for name in later), step
        assert (done is not None) == (step in ("student", "report"))
        assert len(spent(folder)[0]) == (2 if STEPS.index(step) >= STEPS.index("labels") else 0)
    whole = run(SMALL, tmp_path / "whole")
    assert done.result.queries == whole.queries
    assert done.result.spent == whole.spent


def test_a_step_that_there_is_none_of(tmp_path):
    with pytest.raises(ValueError, match="one of data, teachers, votes, labels, student, report, got 'vote'"):
        run_steps(SMALL, tmp_path / "study", until="vote")
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("first", "own"),
    [
        (SMALL, {"mechanism": MechanismConfig(name="gnmax", sigma=7.0)}),
        (
            LABELS,
            {"mechanism": MechanismConfig(name="gnthreshold", sigma=30.0)},
        ),
    ],
    ids=["classes", "labels"],
)  # fmt: skip
def test_students_of_the_same_teachers_are_charged_to_one_ledger(tmp_path, first, own):
    place = tmp_path / "first"
    run_steps(first, place, until="votes")
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder, changes in zip(folders, ({}, own)):
        config, voted = voted_in(place, replace(read_config(place / "config.toml"), **changes))
        result = run_steps(config, folder, voted=voted).result
        assert read_config(folder / "config.toml").budget.ledger == "../first/ledger.db"
        assert not (folder / "ledger.db").exists()
        assert result.spent.shared == (folder.name == "two")
    keys, _ = spent(place, first.budget)
    names = [(folder / "key.txt").read_text() for folder in folders]
    assert [sum(key.startswith(f"{name}/") for key in keys) for name in names] == [len(keys) // 2] * 2
    # The second states what all that is on the ledger is held to.
    assert result.spent.epsilon == first.budget.epsilon
    # The first goes on too, and the students do not begin again.
    assert run(first, place, resume=True).spent.shared
    again = run_steps(config, folders[1], voted=voted, resume=True).result
    assert again.queries == result.queries
    assert len(spent(place, first.budget)[0]) == 3 * (len(keys) // 2)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teachers") / "first"
    run_steps(SMALL, folder, until="votes")
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 8}, "others for seed"),
        ({"partition": PartitionConfig(n_teachers=29)}, "others for partition.n_teachers"),
        ({"teachers": TeachersConfig(model="tree")}, "others for teachers.model"),
        ({"budget": BudgetConfig(epsilon=9.0, delta=1e-4)}, "others for budget.epsilon"),
        ({"budget": replace(SMALL.budget, ledger="other.db")}, "charged to, got another"),
        ({"report": ReportConfig(private=True)}, "votes on the test rows too"),
    ],
)
def test_other_settings_are_no_run_of_the_same_teachers(first, tmp_path, changes, words):
    def another():
        config, voted = voted_in(first, replace(SMALL, **changes))
        run_steps(config, tmp_path / "second", voted=voted)

    with pytest.raises(ValueError, match=words):
        another()
    assert not (tmp_path / "second").exists()


def test_without_votes_there_is_nothing_to_go_on_from(tmp_path):
    run_steps(SMALL, tmp_path / "first", until="teachers")
    with pytest.raises(ValueError, match="--until votes"):
        voted_in(tmp_path / "first", SMALL)
