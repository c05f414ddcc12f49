"""Runs whose student learns from the whole pool, by name."""

from dataclasses import replace

import numpy as np
import pytest

from tellers.runs import (
    BudgetConfig,
    DataConfig,
    MechanismConfig,
    QueriesConfig,
    ReportConfig,
    StudentConfig,
    load_student,
    run,
)

from .. import small_runs
from ..small_runs import LABELS

SMALL = replace(
    small_runs.SMALL,
    data=DataConfig(name="digits", n_public=100, n_test=100),
    mechanism=MechanismConfig(name="gnmax", sigma=3.0),
    budget=BudgetConfig(epsilon=60.0, delta=1e-4),
    queries=QueriesConfig(n_queries=60),
)
TINY = {"steps": 5, "width": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run whose teachers and labels the others go on with: a student that only learns may change."""
    place = tmp_path_factory.mktemp("study")
    run(replace(SMALL, report=ReportConfig(private=True)), place / "run")
    return place / "run"


@pytest.mark.parametrize("name", ["gan", "mean_teacher", "mixmatch", "vat"])
def test_semi_supervised_students_by_name(name, folder):
    pytest.importorskip("torch")
    chosen = StudentConfig(kind="semi_supervised", model=name, parameters=TINY)
    # The private numbers hold the same model against it, taught on the private rows and the pool.
    report = ReportConfig(private=name == "mean_teacher")
    result = run(replace(SMALL, student=chosen, report=report), folder, resume=True)
    assert (result["student"]["kind"], result["student"]["model"]) == ("semi_supervised", name)
    student = load_student(folder / "student")
    assert student.shape_ == (1, 8, 8)  # the data set says that its rows are images
    assert student.classes_.tolist() == list(range(10))
    assert student.random_state is not None  # the seed of the run


class Killed(Exception):
    pass


def kill_at(step):
    def show(name, done, total):
        if name == "student" and done >= step:
            raise Killed

    return show


def test_a_student_is_shown_while_it_learns_and_goes_on_where_it_was(folder, monkeypatch):
    pytest.importorskip("torch")
    from tellers.students.torch import training

    # A lesson of a dozen steps, kept every five: usually it is every 500.
    checkpoint = training.Checkpoint
    monkeypatch.setattr(training, "Checkpoint", lambda place, made_of, _: checkpoint(place, made_of, 5))
    long = {"steps": 12, "width": 1, "device": "cpu", "network": "mlp", "batch_size": 8}
    chosen = StudentConfig(
        kind="semi_supervised", model="mean_teacher", parameters={**long, "pool_batch_size": 8}
    )
    config = replace(SMALL, student=chosen)
    with pytest.raises(Killed):
        run(config, folder, resume=True, show=kill_at(7))
    # Other settings begin anew, and leave nothing behind when they are done.
    other = replace(chosen, parameters={**chosen.parameters, "steps": 6})
    with pytest.raises(Killed):
        run(replace(SMALL, student=other), folder, resume=True, show=kill_at(5))
    seen = []
    run(config, folder, resume=True, show=lambda name, done, total: seen.append((name, done, total)))
    steps = [(done, total) for name, done, total in seen if name == "student" and done]
    assert steps[0] == (6, 12)  # after the checkpoint of step 5
    assert steps[-1] == (12, 12)
    assert not (folder / "private" / "training").exists()


def test_a_student_that_teaches_itself(folder):
    answers = {}
    rows = np.random.default_rng(7).uniform(0, 1, (500, 64))
    for kind in ("supervised", "self_taught"):
        chosen = StudentConfig(kind=kind, model="svm", parameters={"C": 3.0})
        run(replace(SMALL, student=chosen), folder, resume=True)
        answers[kind] = load_student(folder / "student").decision_function(rows)
    # The rest of the pool was looked at: other support vectors, other numbers.
    assert not np.allclose(answers["self_taught"], answers["supervised"])


def test_many_labels(tmp_path):
    pytest.importorskip("torch")
    chosen = StudentConfig(kind="semi_supervised", model="multilabel_mixmatch", parameters=TINY)
    config = replace(LABELS, student=chosen)
    result = run(config, tmp_path / "run")
    assert result["student"]["model"] == "multilabel_mixmatch"
    said = load_student(tmp_path / "run" / "student").predict(np.zeros((2, 20)))
    assert said.shape == (2, 3)
