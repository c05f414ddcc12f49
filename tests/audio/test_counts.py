"""What cannot be used of private clips is private: one recording that breaks changes no public word."""

import json

import pytest

from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    ReportConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
    run,
)
from tellers.runs.sound import student_config, teach_student

pytestmark = pytest.mark.usefixtures("no_pages")
COUNTED = ("5 clips left out: no recording", "2 of 60 recordings could not be used")


def public_words(folder):
    """Return what is said of the data, and the card."""
    told = json.loads((folder / "result.json").read_text())
    card = (folder / "student" / "card.md").read_text()
    return told["data"], told["warnings"], card[card.index("## What is guaranteed") :]


def with_notes(folder):
    said = json.loads((folder / "clips.json").read_text())
    said["notes"] = ["5 clips left out: no recording", "label names were read off the table"]
    (folder / "clips.json").write_text(json.dumps(said))


def test_students_of_kept_teachers(made_clips, made_ears, tmp_path):
    whole = made_ears(made_clips(tmp_path / "clips"), tmp_path / "ears")
    lost = [int(row) for row in whole.partition()[1][:2]]
    private = [int((whole.owner >= 0).nonzero()[0][row]) for row in lost]
    collection = made_clips(tmp_path / "broken", unusable=private)
    with_notes(tmp_path / "broken")
    broken = made_ears(collection, tmp_path / "ears-broken")
    assert broken.n_dealt == whole.n_dealt == (whole.owner >= 0).sum() == (broken.owner >= 0).sum() + 2
    said = []
    for name, taught in (("study", whole), ("study-broken", broken)):
        config = student_config(
            taught, mechanism=MechanismConfig(name="gnthreshold", sigma=2.0), n_queries=4, model="tree",
            budget=BudgetConfig(epsilon=60.0, delta=0.1), private=name == "study-broken",
        )  # fmt: skip
        teach_student(taught, tmp_path / name, config)
        said.append(public_words(tmp_path / name))
    one, other = said
    other[0]["notes"].remove("label names were read off the table")
    assert (one[0], one[1]) == (other[0], other[1])
    assert f"1 / {whole.n_dealt}" in one[1][0]
    assert other[2].replace("- label names were read off the table\n", "") == one[2]
    told = json.loads((tmp_path / "study-broken" / "private" / "summary.json").read_text())
    assert tuple(told["notes"]) == COUNTED


@pytest.mark.parametrize("one", [False, True])
def test_a_run_on_prepared_clips(made_clips, tmp_path, one):
    names = ("bell", "engine", "siren")
    said = []
    for name, unusable in (("whole", ()), ("broken", (3, 33))):
        made_clips(tmp_path / name / "clips", unusable=unusable, one=one)
        with_notes(tmp_path / name / "clips")
        config = RunConfig(
            data=DataConfig(
                name="clips", private="clips", folder=str(tmp_path / name), n_public=12, n_test=10,
                classes=names * one,
            ),
            labels=LabelsConfig() if one else LabelsConfig(names=names),
            partition=PartitionConfig(n_teachers=4), teachers=TeachersConfig(model="tree", n_jobs=1),
            mechanism=MechanismConfig(name="gnmax" if one else "gnthreshold", sigma=2.0),
            budget=BudgetConfig(epsilon=90.0, delta=0.1), queries=QueriesConfig(n_queries=8),
            student=StudentConfig(model="tree"), report=ReportConfig(private=bool(unusable)),
        )  # fmt: skip
        run(config, tmp_path / name / "study")
        said.append(public_words(tmp_path / name / "study"))
    assert said[0] == said[1]
    assert said[0][0]["n_private"] == 60 - 12 - 10
    told = json.loads((tmp_path / "broken" / "study" / "private" / "summary.json").read_text())
    assert tuple(told["notes"]) == COUNTED
