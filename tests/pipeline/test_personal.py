"""Runs in which people have budgets of their own: every variant, who leaves, what is refused, resuming."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tellers.cli.outcome import show_groups, warn_of_groups
from tellers.errors import BudgetExhausted
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    MechanismConfig,
    PartitionConfig,
    PersonalConfig,
    QueriesConfig,
    ReportConfig,
    Room,
    read_config,
    run,
)
from tellers.runs._groups import budgets_from_file
from tellers.runs.personal import plan_from_dict

from .. import small_runs
from ..small_runs import books, run_on_votes, two_groups

ROOT = Path(__file__).resolve().parents[2]
SMALL = replace(
    small_runs.SMALL,
    data=DataConfig(name="digits", n_public=120, n_test=100),
    mechanism=MechanismConfig(name="confident", sigma=8.0, threshold=8.0, sigma_threshold=16.0),
    budget=BudgetConfig(epsilon=20.0, delta=1e-5),
    queries=QueriesConfig(),
    personal=two_groups(3.0, 6.0),
)
GNMAX = MechanismConfig(name="gnmax", sigma=8.0)


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_every_variant_runs_and_nobody_passes_their_budget(tmp_path, variant):
    shown = []
    personal = two_groups(3.0, 6.0, variant=variant)
    config = replace(SMALL, personal=personal, report=ReportConfig(private=True))
    result = run(config, tmp_path / "study", show_groups=lambda rows, lines: shown.append((rows, lines)))
    personal, (rows, lines) = result["personal"], shown[0]
    assert [row["name"] for row in rows] == ["low", "high"]
    assert sum(row["n_persons"] for row in rows) == result["data"]["n_private"]
    assert lines[0].startswith(variant)
    _, accounts = books(tmp_path / "study", SMALL)
    for group in personal["groups"]:
        spent = accounts[f"group/{group['name']}"].spent.epsilon(1e-5)
        assert group["spent"] == spent == personal["cost"][-1]["epsilon"][group["name"]]
        assert 0 < group["spent"] <= group["stated"] <= group["epsilon"]
    assert result["spent"]["epsilon"] == max(group["stated"] for group in personal["groups"])
    # Whose it was is said: the first that cannot pay, or several at once.
    short = result["queries"]["stopped_by"].partition(" of ")[2].split(" and ")
    assert short
    assert set(short) <= {"low", "high"}
    left = {group["name"]: group["budget_left"] for group in personal["groups"]}
    assert min(left, key=left.get) in short
    for group in personal["groups"]:
        assert (group["n_labels"], group["n_queries"]) == (
            result["queries"]["n_answered"],
            result["queries"]["n_asked"],
        )
    assert personal["left"] == []
    plan = plan_from_dict(json.loads((tmp_path / "study" / "plan.json").read_text()))
    assert plan.variant == variant
    assert plan.n_teachers == result["partition"]["n_teachers"]
    # Exact costs look at votes: they are below what was charged, and in the private folder alone.
    summary = json.loads((tmp_path / "study" / "private" / "summary.json").read_text())
    exact = summary["personal"]["exact_cost"][-1]
    assert exact["n_queries"] == result["queries"]["n_asked"]
    for name, epsilon in exact["epsilon"].items():
        assert 0 < epsilon < personal["cost"][-1]["epsilon"][name]
    assert "exact" not in json.dumps({**result, "settings": None})
    assert "Nobody was asked" in " ".join(result["data"]["notes"])
    card = (tmp_path / "study" / "student" / "card.md").read_text()
    assert f"by {variant}: " in card
    assert "agreed to epsilon = 3, and is held to epsilon = " in card


PLAIN = replace(
    SMALL, mechanism=GNMAX, personal=PersonalConfig(), budget=BudgetConfig(epsilon=6.0, delta=1e-5)
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return the folder of a run with one budget for all, and its result."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    return folder, run(PLAIN, folder)


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_with_one_budget_for_all_it_is_a_plain_run(tmp_path, plain, variant):
    equal = replace(PLAIN, personal=PersonalConfig(variant=variant, levels={"all": 6.0}, shares={"all": 1.0}))
    (folder, first), second = plain, run(equal, tmp_path / "equal")
    (mine, _), (theirs, accounts) = (books(place, PLAIN) for place in (folder, tmp_path / "equal"))
    assert len(mine) == len(theirs) > 1
    for one, other in zip(mine, theirs, strict=True):
        assert np.array_equal(one.charged.values, other.charged.values)
        assert np.array_equal(one.charged.values, other.also["group/all"].charged.values)
        assert one.event["parameters"] == other.event["parameters"]
    assert list(accounts) == ["group/all"]
    assert first["spent"] == second["spent"]
    for name in ("votes.npz", "partition.npz"):
        with (
            np.load(folder / "private" / name) as one,
            np.load(tmp_path / "equal/private" / name) as two,
        ):
            assert all(np.array_equal(one[key], two[key]) for key in one.files)


def test_the_others_go_on_when_the_strict_group_has_left(tmp_path):
    chosen = two_groups(2.0, 9.0, precision=0.9)
    config = replace(SMALL, mechanism=GNMAX, personal=chosen)
    ended = run(replace(config, personal=replace(chosen, weights="price")), tmp_path / "balanced")
    assert ended["personal"]["left"] == []
    vanishing = two_groups(2.0, 9.0, variant="vanishing", power=0.5, leave=True)
    result = run(replace(config, personal=vanishing, report=ReportConfig(private=True)), tmp_path / "leaving")
    low, high = result["personal"]["groups"]
    assert result["personal"]["left"][0]["name"] == "low"
    after = result["personal"]["left"][0]["after"]
    assert low["n_queries"] < high["n_queries"] == result["queries"]["n_asked"]
    assert low["spent"] <= 2.0 < high["spent"] <= 9.0
    assert low["n_labels"] == low["n_queries"]  # gnmax always answers
    assert result["queries"]["stopped_by"].endswith(("of high", "and high"))  # the last that could pay
    still = [point["epsilon"] for point in result["personal"]["cost"] if point["n_queries"] >= after]
    assert still[-1]["high"] > still[0]["high"]
    strict = run(replace(config, personal=replace(vanishing, leave=False)), tmp_path / "strict")
    assert strict["queries"]["n_asked"] < result["queries"]["n_asked"]
    again = run(
        replace(config, personal=vanishing, report=ReportConfig(private=True)),
        tmp_path / "leaving",
        resume=True,
    )
    assert again["personal"] == result["personal"]


def test_a_ceiling_below_the_budgets_is_said_before_anything_is_trained(tmp_path, capsys):
    low = replace(SMALL, budget=BudgetConfig(epsilon=4.0, delta=1e-5))
    seen = []
    result = run(
        low,
        tmp_path / "study",
        show=lambda step, _done, _total: seen.append(step),
        show_groups=lambda rows, lines: seen.append((rows, lines)),
    )
    (at,) = [i for i, what in enumerate(seen) if isinstance(what, tuple)]
    assert "teachers" in seen[at:]
    assert "teachers" not in seen[:at]
    (warning,) = seen[at][1][3:]
    assert "the ceiling for everybody, and below what high agreed to" in warning
    assert "Raise it to 6 or more" in warning
    assert warning in result["warnings"]
    show_groups(*seen[at])
    assert "note: [budget] epsilon = 4 is the ceiling" in capsys.readouterr().out
    warn_of_groups(*seen[at])
    assert capsys.readouterr().err == f"tellers: {warning}\n"
    assert result["queries"]["stopped_by"] == "the ceiling for everybody"
    assert result["spent"]["epsilon"] <= 4.0
    leaving = replace(
        SMALL, personal=replace(SMALL.personal, leave=True), budget=BudgetConfig(epsilon=4.0, delta=1e-5)
    )
    other = run_on_votes(leaving, tmp_path / "other")
    assert any("could have gone on" in line for line in other["warnings"])


def test_batches_suit_the_schedule_of_vanishing(tmp_path):
    chosen = two_groups(3.0, 6.0, variant="vanishing")
    config = replace(SMALL, personal=chosen, queries=QueriesConfig(batch=5))
    result = run_on_votes(config, tmp_path / "study")
    assert any("Batches are of 8 queries and not of 5" in line for line in result["warnings"])
    assert result["personal"]["cost"][0]["n_queries"] == 8


def grouped(variant="weighting", *, low=3.0, shares=(0.5, 0.5), **options):
    levels, parts = {"low": low, "high": 6.0}, dict(zip(("low", "high"), shares, strict=True))
    return {"personal": PersonalConfig(variant=variant, levels=levels, shares=parts, **options)}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (grouped(shares=(0.999, 0.001)), r"personal.variant: Expected at least \d+ persons in every group"),
        (
            {**grouped("upsampling", low=0.1), "partition": PartitionConfig(n_teachers=1)},
            "at most as many copies as teachers",
        ),
        (grouped("vanishing", low=0.05), "account 'group/low'"),
        (grouped(max_groups=1), "at most 1 levels in use"),
    ],
    ids=["small group", "copies", "poor group", "many groups"],
)
def test_what_cannot_end_well_is_refused_before_anything_is_trained(tmp_path, changes, says):
    with pytest.raises((ValueError, BudgetExhausted), match=says):
        run(replace(SMALL, **changes), tmp_path / "study")
    assert not (tmp_path / "study" / "private" / "teachers").exists()


def test_groups_and_a_plain_run_do_not_share_a_ledger(tmp_path):
    budget = BudgetConfig(epsilon=20.0, delta=1e-5, ledger=str(tmp_path / "shared.db"))
    # Always answered: of ten noisy checks one may let nothing through that a student could learn from.
    few = replace(SMALL, mechanism=GNMAX, budget=budget, queries=QueriesConfig(n_queries=10))
    run_on_votes(few, tmp_path / "one")
    second = run_on_votes(few, tmp_path / "two")  # the same groups: they pay for both
    assert second["personal"]["cost"][0]["epsilon"]["low"] > 0
    assert second["personal"]["groups"][0]["stated"] == 3.0
    with pytest.raises(ValueError, match=r"budget\.ledger: Expected the budgets of the people"):
        run(replace(few, personal=PersonalConfig()), tmp_path / "three")
    others = PersonalConfig(variant="weighting", levels={"a": 3.0, "b": 6.0}, shares={"a": 0.5, "b": 0.5})
    with pytest.raises(ValueError, match=r"budget\.ledger: Expected the groups of the ledger"):
        run(replace(few, personal=others), tmp_path / "four")
    plain = replace(few, personal=PersonalConfig(), budget=replace(budget, ledger=str(tmp_path / "plain.db")))
    run_on_votes(plain, tmp_path / "five")
    with pytest.raises(ValueError, match=r"budget\.ledger: Expected .*no group paid"):
        run(replace(plain, personal=SMALL.personal), tmp_path / "six")


def patients(tmp_path, *, agreed="low", extra=""):
    rng = np.random.default_rng(7)
    lines, people = ["age,ward,who,consent,back"], [f"p{i}" for i in range(200)]
    for at in range(400):
        age, who = int(rng.integers(20, 90)), people[at % 200]
        level = "high" if at % 2 else agreed
        lines.append(f"{age},{int(rng.integers(4))},{who},{level},{'yes' if age > 55 else 'no'}")
    (tmp_path / "private.csv").write_text("\n".join(lines) + "\n")
    public = ["age,ward", *(f"{int(rng.integers(20, 90))},{int(rng.integers(4))}" for _ in range(40))]
    (tmp_path / "public.csv").write_text("\n".join(public) + "\n")
    (tmp_path / "study.toml").write_text(
        f"""
[data]
name = "files"
private = "private.csv"
public = "public.csv"
target = "back"
person = "who"
classes = ["no", "yes"]
{extra}
[partition]
n_teachers = 20
by = "person"
[teachers]
model = "tree"
[mechanism]
name = "gnmax"
sigma = 8.0
[budget]
epsilon = 20
delta = 1e-5
[personal]
variant = "upsampling"
levels = {{low = 3.0, high = 6.0}}
"""
    )
    return tmp_path / "study.toml"


def test_budgets_by_a_column_of_levels(tmp_path):
    study = patients(tmp_path)
    study.write_text(study.read_text() + 'column = "consent"\n')
    result = run(read_config(study), tmp_path / "out")
    assert result["data"]["n_features"] == 2
    assert [group["n_persons"] for group in result["personal"]["groups"]] == [100, 100]
    assert result["partition"]["unit"] == "one person"
    patients(tmp_path, agreed="none")
    study.write_text(study.read_text() + 'column = "consent"\n')
    with pytest.raises(
        ValueError, match=r"study.toml:\d+: Expected one of the levels 'low', 'high', got something else"
    ):
        run(read_config(study), tmp_path / "other")


def test_budgets_by_a_file_of_persons(tmp_path):
    study = patients(tmp_path, extra='options = {features = ["age", "ward"]}')
    study.write_text(study.read_text().replace("levels = {low = 3.0, high = 6.0}", 'file = "consent.csv"'))
    agreed = ["person,epsilon", *(f"p{i},{2.0 if i < 50 else 4.0}" for i in range(200)), "stranger,1"]
    (tmp_path / "consent.csv").write_text("\n".join(agreed))
    result = run(read_config(study), tmp_path / "out")
    found = [(group["name"], group["n_persons"]) for group in result["personal"]["groups"]]
    assert found == [("epsilon 2", 50), ("epsilon 4", 150)]
    # People who agree to something else are another run.
    (tmp_path / "consent.csv").write_text("\n".join(agreed).replace("2.0", "2.5"))
    with pytest.raises(ValueError, match=r"the budgets that the run in .* was begun with"):
        run(read_config(study), tmp_path / "out", resume=True)
    (tmp_path / "consent.csv").write_text("\n".join(agreed[:150]))
    with pytest.raises(ValueError, match=r"consent.csv: Expected an epsilon for every person, got none"):
        run(read_config(study), tmp_path / "third")


@pytest.mark.parametrize(
    ("text", "levels", "says"),
    [
        ("person,level\nann,low\n", False, "columns person and epsilon"),
        ("person,level\nann,low\nann,high\n", True, "one row per person"),
        ("person,level\nann,\n", True, "none in row 0"),
        ("person,epsilon\nann,much\n", False, "numbers in epsilon"),
        ("person,level\nbo,low\n", True, "none for the person of row 0"),
    ],
)
def test_a_file_of_budgets_is_read_strictly(tmp_path, text, levels, says):
    (tmp_path / "consent.csv").write_text(text)
    with pytest.raises(ValueError, match=rf"^consent.csv: .*{says}"):
        budgets_from_file(tmp_path / "consent.csv", ["ann"], levels=levels)


class Killed(BaseException):
    """Stands for a process that ends."""


def test_a_killed_run_goes_on_and_charges_nobody_twice(tmp_path, monkeypatch):
    chosen = two_groups(3.0, 6.0, variant="vanishing", leave=True)
    config = replace(SMALL, personal=chosen, queries=QueriesConfig(batch=4))
    folder, settle, settled = tmp_path / "study", Room._settle, []

    def die(self, ticket, release, used):
        if len(settled) == 2:  # the third batch is paid for, and its outcome is lost
            raise Killed
        settled.append(ticket.key)
        settle(self, ticket, release, used)

    with monkeypatch.context() as patch:
        patch.setattr(Room, "_settle", die)
        with pytest.raises(Killed):
            run_on_votes(config, folder)
    before, _ = books(folder, config)
    assert [entry.is_settled for entry in before] == [True, True, False]
    result = run(config, folder, resume=True)
    after, accounts = books(folder, config)
    for one, other in zip(before, after, strict=False):
        assert one.key == other.key
        if one.is_settled:
            for name, paid in one.also.items():
                assert np.array_equal(paid.charged.values, other.also[name].charged.values)
    assert len({entry.key for entry in after}) == len(after)
    for name, state in accounts.items():
        assert state.spent.epsilon(1e-5) <= state.budget.epsilon, name
    assert result["queries"]["n_asked"] == sum(entry.event["n_queries"] for entry in after)
    assert result["queries"]["n_lost"] == before[-1].event["n_queries"]


def test_the_settings_on_the_page_run(tmp_path):
    page = (ROOT / "docs" / "personalised.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "consent.toml").write_text(text)
    result = run(read_config(tmp_path / "consent.toml"), tmp_path / "study")
    assert [group["name"] for group in result["personal"]["groups"]] == ["low", "high"]


@pytest.mark.parametrize("variant", ["weighting", "vanishing", "upsampling"])
def test_a_student_may_take_part(tmp_path, variant):
    listens = MechanismConfig(
        name="interactive", sigma=8.0, threshold=6.0, sigma_threshold=16.0, student_confidence=0.8
    )
    asking = QueriesConfig(warm_up=20, warm_up_threshold=8.0, per_round=20, n_queries=60)
    config = replace(
        SMALL, personal=two_groups(20.0, 40.0, variant=variant), mechanism=listens, queries=asking,
        budget=BudgetConfig(epsilon=60.0, delta=1e-5), report=ReportConfig(private=True),
    )  # fmt: skip
    result = run(config, tmp_path / "study")
    for group in result["personal"]["groups"]:
        assert 0 < group["spent"] <= group["stated"] <= group["epsilon"]
    # Along a path that the student chose, exact costs bound nothing, and none are told.
    summary = json.loads((tmp_path / "study" / "private" / "summary.json").read_text())
    assert summary["personal"]["exact_cost"] is None
    again = run(config, tmp_path / "study", resume=True)
    assert again["personal"] == result["personal"]


def test_levels_are_dealt_to_persons_with_all_their_rows(tmp_path):
    data = DataConfig(
        name="synthetic", n_public=40, n_test=50, options={"n_rows": 600, "n_persons": 150, "difficulty": 0.4}
    )
    parts = PartitionConfig(n_teachers=20, by="person")
    result = run(replace(SMALL, data=data, partition=parts), tmp_path / "study")
    low, high = result["personal"]["groups"]
    # Each person's level is drawn by itself: half of about 124, within four standard deviations.
    assert abs(low["n_persons"] - high["n_persons"]) <= 45
    assert low["n_persons"] + high["n_persons"] < 150  # some were set aside, whole
    assert result["partition"]["unit"] == "one person"


def test_many_numbers_are_binned_and_the_waste_is_told(tmp_path, capsys):
    study = patients(tmp_path)
    lines = (tmp_path / "private.csv").read_text().splitlines()
    swapped = [
        re.sub(r"(p(\d+)),(low|high)", lambda m: f"{m[1]},{2 + int(m[2]) / 100}", line) for line in lines
    ]
    (tmp_path / "private.csv").write_text("\n".join(swapped))
    text = study.read_text().replace("levels = {low = 3.0, high = 6.0}", 'column = "consent"\nmax_groups = 3')
    study.write_text(text)
    result = run(read_config(study), tmp_path / "out", show_groups=show_groups)
    groups = result["personal"]["groups"]
    assert len(groups) == 3
    assert groups[0]["epsilon"] == 2.0
    assert all(0 < group["waste"] < 1 for group in groups)
    shown = capsys.readouterr().out
    assert "unused" in shown
    assert "teachers each" in shown
    assert "epsilon 2" in shown
    bad = (tmp_path / "private.csv").read_text().replace(",p3,2.03,", ",p3,-1,")
    (tmp_path / "private.csv").write_text(bad)
    with pytest.raises(
        ValueError, match=r"private.csv: Expected budgets > 0 and finite, got another in row 3"
    ):
        run(read_config(study), tmp_path / "other")
