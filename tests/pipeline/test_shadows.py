"""Audits of whole runs: shadows with and without canaries, and what their students give away."""

from dataclasses import replace

import numpy as np
import pytest

from tellers import Votes, noise
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    PersonalConfig,
    QueriesConfig,
    RunConfig,
    StudentConfig,
    TeachersConfig,
)
from tellers.runs import _shadows as shadows
from tellers.runs._folder import RunFolder
from tellers.runs._shadows import audit_run
from tellers.teachers import save_votes

HALVES = {"a": 0.5, "b": 0.5}
TASK = {"n_rows": 400, "difficulty": 0.8, "n_classes": 3}
# Five teachers and hardly any noise: one of them is easy to hear, and the claim says so.
LOUD = RunConfig(
    data=DataConfig(name="synthetic", n_public=60, n_test=60, options=TASK),
    partition=PartitionConfig(n_teachers=5),
    teachers=TeachersConfig(model="naive_bayes", n_jobs=1),
    mechanism=MechanismConfig(name="gnmax", sigma=0.4),
    budget=BudgetConfig(epsilon=2000.0, delta=1e-5),
    queries=QueriesConfig(batch=60),
    student=StudentConfig(model="naive_bayes"),
)
# Twenty teachers behind much noise, at a small claim.
QUIET = replace(
    LOUD,
    partition=PartitionConfig(n_teachers=20),
    mechanism=MechanismConfig(name="gnmax", sigma=20.0),
    queries=QueriesConfig(n_queries=20, batch=20),
    budget=BudgetConfig(epsilon=1.5, delta=1e-5),
)


def test_a_loud_run_is_heard():
    """Half of a hundred shadows judge: with this confidence more than the truth is found 1 in 1000 times."""
    audit = audit_run(LOUD, source=noise.seeded(7), n_shadows=100, confidence=0.999)
    assert audit.auc > 0.8
    assert audit.epsilon > 0.2
    assert audit.holds


def test_a_run_that_claims_too_little_is_caught(monkeypatch):
    """The books of a loud run are made to state 0.1; a true claim is refuted with chance at most 0.001."""
    monkeypatch.setattr(shadows, "guaranteed_epsilon", lambda *_, **__: 0.1)
    audit = audit_run(LOUD, source=noise.seeded(7), n_shadows=100, confidence=0.999)
    assert not audit.holds


def test_a_quiet_run_stays_below_its_claim():
    """The false alarm rate is at most 1e-6."""
    steps = []
    audit = audit_run(
        QUIET,
        source=noise.seeded(7),
        n_shadows=60,
        confidence=1 - 1e-6,
        show=lambda *told: steps.append(told),
    )
    assert audit.holds
    assert 0 < audit.claim <= 1.5
    assert (audit.n_with, audit.n_without) == (15, 15)
    assert list(dict.fromkeys(step for step, *_ in steps)) == [
        "data", "teachers", "canaries", "shadows",
    ]  # fmt: skip
    assert steps[-1] == ("shadows", 60, 60)


def test_canaries_go_to_one_teacher(monkeypatch):
    laid = []
    original = shadows._lay

    def lay(*given):
        laid.append(original(*given))
        return laid[0]

    monkeypatch.setattr(shadows, "_lay", lay)
    audit_run(LOUD, source=noise.seeded(7), n_shadows=8, n_canaries=7)
    found = laid[0]
    assert len(found.y) == len(found.X) == 7
    differ = (found.with_them.ballots != found.without.ballots).any(axis=1)
    assert differ.sum() == 1
    assert found.moved.size > 0
    assert "private" in repr(found)


def test_the_folder_of_a_run_brings_its_votes_and_is_left_as_it_was(tmp_path):
    place = RunFolder(tmp_path / "study")
    ballots = np.random.default_rng(7).integers(3, size=(20, 60))
    with place.held():
        save_votes(place.votes, Votes.from_ballots(ballots, n_classes=3))
    before = {path: path.read_bytes() for path in (tmp_path / "study").rglob("*") if path.is_file()}
    steps = []
    audit_run(
        QUIET, source=noise.seeded(7), folder=place, n_shadows=8, show=lambda step, *_: steps.append(step)
    )
    assert "teachers" not in steps
    assert before == {path: path.read_bytes() for path in (tmp_path / "study").rglob("*") if path.is_file()}


def test_confident_active_and_silent_runs_can_be_audited():
    confident = MechanismConfig(name="confident", sigma=5.0, threshold=12.0, sigma_threshold=5.0)
    active = replace(
        QUIET, mechanism=confident, budget=BudgetConfig(epsilon=20.0, delta=1e-5),
        queries=QueriesConfig(order="active", n_queries=30, first=20, per_round=10),
    )  # fmt: skip
    assert audit_run(active, source=noise.seeded(7), n_shadows=8).holds
    # A threshold that nobody reaches: no student comes of it, which is an outcome too.
    deaf = replace(active, mechanism=replace(confident, threshold=500.0), queries=QueriesConfig(n_queries=10))
    audit = audit_run(deaf, source=noise.seeded(7), n_shadows=8)
    assert (audit.epsilon, audit.auc) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"personal": PersonalConfig(variant="weighting", levels={"a": 1.0, "b": 1.2}, shares=HALVES)},
         r"personal\.variant: Expected a run with one budget for all"),
        ({"budget": BudgetConfig(epsilon=1.5, delta=1e-5, stop="private", private_epsilon=1.0)},
         r"budget\.stop: Expected a run that stops on public numbers"),
    ],
)  # fmt: skip
def test_runs_that_have_no_shadows_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        audit_run(replace(QUIET, **change), source=noise.seeded(7), n_shadows=8)


def test_a_run_with_many_labels_is_refused():
    many = replace(
        QUIET, data=DataConfig(name="made_multilabel", n_public=40, n_test=60, options={"n_rows": 300}),
        labels=LabelsConfig(names=("rain", "wind")), mechanism=MechanismConfig(name="binary", sigma=20.0),
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"labels\.names: Expected a run with one label per row"):
        audit_run(many, source=noise.seeded(7), n_shadows=8)
    with pytest.raises(ValueError, match="n_shadows"):
        audit_run(QUIET, source=noise.seeded(7), n_shadows=3)


def test_a_student_that_only_decides_can_be_attacked():
    class Decides:
        def predict(self, X):
            return np.ones(len(X), dtype=int)

    table = shadows._log_shares(Decides(), np.zeros((3, 2)), 3)
    assert (table.argmax(axis=1) == 1).all()
