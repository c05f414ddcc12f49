"""Runs by upsampling in which groups leave: teachers are trained anew without them, and the run goes on."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tellers.cli.outcome import steps_shown, tell
from tellers.errors import BudgetExhausted
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    MechanismConfig,
    PersonalConfig,
    QueriesConfig,
    ReportConfig,
    run,
)
from tellers.runs._groups import read_agreed
from tellers.runs._tables import read_tables
from tellers.runs.personal import plan_from_dict
from tellers.runs.pipeline import run_steps
from tellers.runs.result import read_result

from .. import small_runs

LEAVING = PersonalConfig(
    variant="upsampling", levels={"low": 2.0, "high": 8.0}, shares={"low": 0.5, "high": 0.5}, most=2,
    precision=0.9, leave=True,
)  # fmt: skip
STUDY = replace(
    small_runs.SMALL,
    data=DataConfig(name="digits", n_public=120, n_test=100),
    mechanism=MechanismConfig(name="gnmax", sigma=8.0),
    budget=BudgetConfig(epsilon=20.0, delta=1e-5),
    queries=QueriesConfig(),
    personal=LEAVING,
)


def books(folder, config=STUDY):
    return small_runs.books(folder, config)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return the folder of a run that was left alone, its result, and the steps it showed."""
    folder, steps = tmp_path_factory.mktemp("runs") / "study", []
    config = replace(STUDY, report=ReportConfig(private=True))
    result = run(config, folder, show=lambda step, done, total: steps.append((step, done, total)))
    return folder, result, steps


def test_the_others_go_on_and_it_is_told(study, capsys):
    folder, result, steps = study
    personal = result["personal"]
    first, then = personal["rounds"]
    assert (list(first["absent"]), first["n_teachers"], first["after"]) == ([], 30, 0)
    assert (list(then["absent"]), then["n_teachers"], then["after"]) == (["low"], 10, first["n_queries"])
    assert result["queries"]["n_asked"] == then["after"] + then["n_queries"]
    assert personal["left"] == [{"name": "low", "after": first["n_queries"]}]
    assert result["partition"]["n_teachers"] == 30
    assert (result["mechanism"]["sigma"], result["queries"]["stopped_by"]) == (12.0, "the budget of high")
    low, high = personal["groups"]
    assert 0 < low["spent"] <= low["stated"] <= 2.0
    assert 6.0 < high["spent"] <= high["stated"] <= 8.0
    assert (low["n_queries"], high["n_queries"]) == (first["n_queries"], result["queries"]["n_asked"])
    # A bar for the teachers that are trained anew, in the middle of the labels.
    names = [step for step, _, _ in steps]
    assert ("anew", 10, 10) in steps
    assert names.index("labels") < names.index("anew") < len(names) - names[::-1].index("labels") - 1
    # What a newcomer reads, on the card, in the report and on the screen.
    words = f"10 teachers, trained without low, answered queries {then['after'] + 1} to"
    assert words in (folder / "student" / "card.md").read_text()
    assert words in (folder / "report.html").read_text()
    tell(result, folder)
    said = " ".join(capsys.readouterr().out.split())
    assert words in said
    assert "2 rounds in all: round 1: 30 teachers, trained from all groups, answered queries 1 to" in said
    assert read_result(folder).personal.rounds[1].absent == ("low",)
    # The plan of the folder is the one it began with, and can be read.
    plan = plan_from_dict(json.loads((folder / "plan.json").read_text()))
    assert [group.name for group in plan.groups] == ["low", "high"]


def test_who_left_is_in_no_later_teacher_and_pays_no_more(study):
    folder, result, _ = study
    tables = read_tables(STUDY)
    consent = read_agreed(STUDY, tables.private)
    with np.load(folder / "private" / "without_0" / "partition.npz") as parts:
        rows, sizes, source = (parts[name] for name in ("rows", "sizes", "source"))
    assert len(sizes) == 10
    names = {consent.groups[at].name for at in consent.group_of[consent.persons[source[rows]]]}
    assert names == {"high"}
    assert len(set(source[rows].tolist())) == consent.groups[1].n_persons
    with np.load(folder / "private" / "without_0" / "votes.npz") as votes:
        assert votes["ballots"].shape == (10, 120)
    assert len(list((folder / "private" / "without_0" / "teachers").iterdir())) >= 10
    entries, accounts = books(folder)
    after = result["personal"]["rounds"][1]["after"]
    for entry in entries:
        assert ("group/low" in entry.also) == (int(entry.key.split("/")[1]) < after)
    for state in accounts.values():
        assert state.spent.epsilon(1e-5) <= state.budget.epsilon


def test_private_numbers_add_up_over_the_rounds(study):
    folder, result, _ = study
    summary = json.loads((folder / "private" / "summary.json").read_text())
    assert len(summary["gaps"]) == result["queries"]["n_asked"]
    after = result["personal"]["rounds"][1]["after"]
    assert max(summary["gaps"][:after]) > 10  # of 30 teachers
    assert max(summary["gaps"][after:]) <= 10
    exact = summary["personal"]["exact_cost"]
    charged = result["personal"]["cost"]
    assert [point["n_queries"] for point in exact] == [point["n_queries"] for point in charged]
    for one, other in zip(exact, charged, strict=True):
        for name in ("low", "high"):
            assert 0 < one["epsilon"][name] <= other["epsilon"][name]
    left = [point["epsilon"]["low"] for point in exact if point["n_queries"] >= after]
    assert len(set(left)) == 1
    highs = [point["epsilon"]["high"] for point in exact]
    assert highs == sorted(highs)


@pytest.fixture(scope="module")
def voted(tmp_path_factory):
    """Return the folder of a run whose first teachers have voted."""
    folder = tmp_path_factory.mktemp("runs") / "voted"
    run_steps(STUDY, folder, until="votes")
    return folder


class Killed(BaseException):
    """Stands for a process that ends."""


@pytest.mark.parametrize(
    "moment", [("labels", 10), ("anew", 3), ("anew", 10), ("labels", 33)], ids=lambda at: f"{at[0]}-{at[1]}"
)
def test_a_killed_run_ends_as_one_that_was_left_alone(study, voted, tmp_path, moment):
    def die(step, done, _total):
        if (step, done) == moment:
            raise Killed

    shutil.copytree(voted, tmp_path / "study")
    with pytest.raises(Killed):
        run(STUDY, tmp_path / "study", resume=True, show=die)
    cut = len(books(tmp_path / "study")[0])
    steps = []
    result = run(
        STUDY, tmp_path / "study", resume=True, show=lambda step, done, total: steps.append((step, done))
    )
    folder, whole, _ = study
    (mine, _), (theirs, _) = books(tmp_path / "study"), books(folder)
    assert 0 < cut < len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        assert one.key.split("/")[1] == other.key.split("/")[1]
        assert one.event == other.event
        assert one.also.keys() == other.also.keys()
        for name, paid in one.also.items():
            assert np.array_equal(paid.charged.values, other.also[name].charged.values)
    for part in ("rounds", "left", "cost", "groups"):
        assert result["personal"][part] == whole["personal"][part]
    with np.load(tmp_path / "study" / "labels.npz") as one, np.load(folder / "labels.npz") as other:
        assert np.array_equal(one["rows"], other["rows"])
    for place in ("votes.npz", "without_0/votes.npz"):
        with (
            np.load(tmp_path / "study" / "private" / place) as one,
            np.load(folder / "private" / place) as other,
        ):
            assert np.array_equal(one["ballots"], other["ballots"])
    # Nothing that was there is trained again.
    assert "teachers" not in [step for step, _ in steps]
    assert ("anew" in [step for step, _ in steps]) == (moment != ("labels", 33))


def test_a_finished_run_is_not_asked_again(study):
    folder, result, _ = study
    before, steps = len(books(folder)[0]), []
    again = run(
        replace(STUDY, report=ReportConfig(private=True)), folder, resume=True,
        show=lambda step, _done, _total: steps.append(step),
    )  # fmt: skip
    assert again["personal"] == result["personal"]
    assert len(books(folder)[0]) == before
    assert not {"teachers", "votes", "anew"} & set(steps)


def test_equal_budgets_are_a_plain_run_with_or_without_leave(tmp_path):
    plain = replace(STUDY, personal=PersonalConfig(), budget=BudgetConfig(epsilon=4.0, delta=1e-5))
    equal = replace(plain, personal=replace(LEAVING, levels={"all": 4.0}, shares={"all": 1.0}))
    first, second = run(plain, tmp_path / "plain"), run(equal, tmp_path / "equal")
    (mine, _), (theirs, _) = (books(tmp_path / name, plain) for name in ("plain", "equal"))
    assert len(mine) == len(theirs) > 1
    for one, other in zip(mine, theirs, strict=True):
        assert np.array_equal(one.charged.values, other.charged.values)
        assert np.array_equal(one.charged.values, other.also["group/all"].charged.values)
        assert one.event["parameters"] == other.event["parameters"]
    assert first["spent"] == second["spent"]
    assert "rounds" not in second["personal"]
    assert not list((tmp_path / "equal" / "private").glob("without_*"))


def test_too_few_people_end_it_in_words(tmp_path):
    chosen = replace(
        LEAVING,
        levels={"low": 2.0, "high": 40.0},
        shares={"low": 0.998, "high": 0.002},
        most=3,
        precision=0.9,
    )
    config = replace(STUDY, personal=chosen, budget=BudgetConfig(epsilon=50.0, delta=1e-5))
    result = run(config, tmp_path / "study")
    assert len(result["personal"]["rounds"]) == 1
    assert result["queries"]["stopped_by"] == "the budget of low"
    (line,) = [line for line in result["warnings"] if "too few people are left" in line]
    assert line.startswith("Asking ended with some budget of high unused: without low")
    assert "at least 39 of them, copies counted, as one teacher needs, got 3" in line
    assert result["student"]["n_labels"] == result["queries"]["n_asked"]  # nothing was lost


def test_the_ceiling_holds_over_all_rounds_and_it_is_said(tmp_path):
    config = replace(STUDY, budget=BudgetConfig(epsilon=6.0, delta=1e-5))
    result = run(config, tmp_path / "study")
    assert result["spent"]["charged"] <= 6.0
    assert any("could have gone on" in line for line in result["warnings"])


def test_a_second_run_on_the_books_learns_from_those_who_can_still_pay(tmp_path):
    budget = BudgetConfig(epsilon=30.0, delta=1e-5, ledger=str(tmp_path / "shared.db"))
    config = replace(STUDY, budget=budget, queries=QueriesConfig(n_queries=26))
    first = run(config, tmp_path / "one")
    assert [list(one["absent"]) for one in first["personal"]["rounds"]] == [[], ["low"]]
    second = run(replace(config, seed=8, queries=QueriesConfig(n_queries=5)), tmp_path / "two")
    (only,) = second["personal"]["rounds"]
    assert (list(only["absent"]), only["n_teachers"]) == (["low"], 10)
    assert second["partition"]["n_teachers"] == 10
    assert second["mechanism"]["sigma"] == 4.0
    assert not (tmp_path / "two" / "private" / "teachers").exists()
    assert second["personal"]["groups"][0]["n_queries"] == 0
    poor = replace(LEAVING, levels={"low": 0.1, "high": 0.2})
    with pytest.raises(BudgetExhausted):
        run(replace(STUDY, personal=poor), tmp_path / "three")


@pytest.mark.parametrize(
    ("mechanism", "queries"),
    [
        (
            {"name": "confident", "sigma": 8.0, "threshold": 10.0, "sigma_threshold": 12.0},
            {"order": "active", "first": 10, "per_round": 8},
        ),
        (
            {"name": "interactive", "sigma": 8.0, "threshold": 6.0, "sigma_threshold": 12.0,
             "student_confidence": 0.8},
            {"warm_up": 15, "warm_up_threshold": 8.0, "per_round": 10},
        ),
    ],
    ids=["active", "interactive"],
)  # fmt: skip
def test_a_student_takes_part_over_all_rounds(tmp_path, mechanism, queries):
    config = replace(
        STUDY, mechanism=MechanismConfig(**mechanism), queries=QueriesConfig(**queries),
        report=ReportConfig(private=True),
    )  # fmt: skip
    result = run(config, tmp_path / "study")
    rounds = result["personal"]["rounds"]
    assert [list(one["absent"]) for one in rounds] == [[], ["low"]]
    for group in result["personal"]["groups"]:
        assert 0 < group["spent"] <= group["stated"] <= group["epsilon"]
    with np.load(tmp_path / "study" / "labels.npz") as kept:
        assert len(set(kept["rows"].tolist())) == len(kept["rows"]) == result["queries"]["n_asked"]


def test_training_anew_is_said_where_nobody_watches(capsys):
    with steps_shown(wanted=True) as show:
        for step in ("labels", "anew", "labels", "anew"):
            show(step, 0, 0)
    assert capsys.readouterr().err.count("Training teachers anew") == 1
