"""Runs with many labels per row, by every mechanism for them: what comes out, what it costs, what is told."""

import json
from dataclasses import replace

import numpy as np
import pytest

from tellers import LabelVotes, Unit
from tellers.data import measure
from tellers.mechanisms import LABEL_MECHANISMS
from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    QueriesConfig,
    ReportConfig,
    StudentConfig,
    run,
)
from tellers.runs._tables import deal_rows, read_tables
from tellers.teachers import read_votes

from ..small_runs import LABELS, run_on_votes

NAMES = ("rain", "wind", "snow")
CHECK = {"threshold": 15.0, "sigma_threshold": 5.0}
PARAMETERS = {
    "adaptive-gnthreshold": {"scale": 20.0, "shares": (0.3, 0.5)},
    "binary": {},
    "confident-binary": CHECK,
    "confident-gnthreshold": {"n_top": 1, "confident_share": 0.6, "sigma_gate": 9.0},
    "confident-powerset": {"threshold": 8.0, "sigma_threshold": 5.0, "max_labels": 2},
    "confident-tau": {"max_norm": 1.5, **CHECK},
    "gnthreshold": {"share": (0.4, 0.5, 0.6), "max_labels": 2},
    "partial-powerset": {"groups": (("snow", "rain"), ("wind",))},
    "powerset": {},
    "tau": {"max_norm": 1.5, "norm": "l1"},
}


def settings(name="binary", *, labels=None, **changes):
    """Return a small run on made rows: twenty teachers, twelve questions."""
    mechanism = MechanismConfig(name=name, sigma=4.0, **PARAMETERS[name])
    return replace(LABELS, **{"mechanism": mechanism, "labels": labels or LABELS.labels, **changes})


def test_every_mechanism_is_tried():
    assert set(PARAMETERS) == set(LABEL_MECHANISMS)


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_a_run_with_every_mechanism(name, tmp_path):
    config = settings(name, report=ReportConfig(private=True))
    result = run_on_votes(config, tmp_path / "out")
    mechanism = config.build_mechanism()
    assert result["mechanism"]["name"] == type(mechanism).__name__
    most = (12 * mechanism.price(Unit())).epsilon(1e-4)
    assert 0 < result["spent"]["charged"] <= result["spent"]["epsilon"] <= most * (1 + 1e-9)
    assert result["queries"]["n_asked"] == 12
    with np.load(tmp_path / "out/labels.npz") as kept:
        rows, labels = kept["rows"], kept["labels"]
    assert labels.shape == (12, 3)
    assert set(np.unique(labels)) <= {-1, 0, 1}
    for at, label in enumerate(result["labels"]):
        counted = [int((labels[:, at] == value).sum()) for value in (1, 0, -1)]
        assert [label["n_yes"], label["n_no"], label["n_silent"]] == counted
    assert result["student"]["n_labels"] == int((labels != -1).sum())
    assert result["queries"]["n_silent"] == int((labels == -1).all(axis=1).sum())
    truth = read_tables(config).pool_y[rows]
    told = labels != -1
    assert result["student"]["labels_right"] == pytest.approx((labels == truth)[told].mean())
    private = json.loads((tmp_path / "out/private/summary.json").read_text())
    assert 0 < private["exact_cost"][-1]["epsilon"] <= most * (1 + 1e-9)
    assert len(private["teacher_accuracies"]) == 20
    public = (tmp_path / "out/report.html").read_text()
    assert str(private["plurality_accuracy"]) not in public
    assert "private: do not publish" not in public
    card = json.loads((tmp_path / "out/student/card.json").read_text())
    assert card["mechanism"]["name"] == type(mechanism).__name__


def test_the_numbers_on_the_test_rows_are_those_of_the_metrics(tmp_path):
    from tellers.runs import load_student

    config = settings()
    result = run_on_votes(config, tmp_path / "out")
    test = read_tables(config).test
    student = load_student(tmp_path / "out/student")
    found = measure(test.y, student.predict(test.X), scores=student.predict_proba(test.X))
    assert result["student"]["scores"]["macro_f1"] == pytest.approx(found.macro_f1)
    assert result["student"]["accuracy"] == pytest.approx(found.accuracy)
    for at, label in enumerate(result["labels"]):
        assert label["balanced_accuracy"] == pytest.approx(found.per_label["balanced_accuracy"][at])


def test_probabilities_are_counted_in_parts_of_a_vote(tmp_path):
    run(settings(labels=LabelsConfig(names=NAMES, resolution=100)), tmp_path / "out")
    votes = read_votes(tmp_path / "out/private/votes.npz", kind="labels").votes
    assert votes.resolution == 100
    assert len(set((votes.sums % 100).ravel().tolist())) > 10


def test_thresholds_decide_who_says_yes(tmp_path):
    votes = []
    for at, limits in enumerate(((0.5,), (0.5, 0.5, 0.01))):
        run_on_votes(settings(labels=LabelsConfig(names=NAMES, thresholds=limits)), tmp_path / str(at))
        votes.append(read_votes(tmp_path / str(at) / "private/votes.npz", kind="labels").votes)
    usual, lowered = votes
    assert isinstance(usual, LabelVotes)
    assert (usual.sums[:, :2] == lowered.sums[:, :2]).all()
    assert lowered.sums[:, 2].sum() > usual.sums[:, 2].sum()


def test_a_private_stop_says_that_it_guarantees_nothing(tmp_path):
    budget = BudgetConfig(epsilon=60.0, delta=1e-4, stop="private", private_epsilon=6.0)
    result = run_on_votes(settings(budget=budget, queries=QueriesConfig()), tmp_path / "out")
    assert not result["spent"]["is_guarantee"]
    assert 0 < result["queries"]["n_asked"] <= 40


def test_what_would_be_silent_throughout_keeps_what_was_spent(tmp_path):
    mechanism = MechanismConfig(name="confident-binary", sigma=4.0, threshold=400.0, sigma_threshold=1.0)
    with pytest.raises(ValueError, match=r"silence for every row and label.* epsilon [\d.]+ is spent"):
        run_on_votes(settings(mechanism=mechanism), tmp_path / "out")
    with np.load(tmp_path / "out/labels.npz") as kept:
        assert (kept["labels"] == -1).all()


def test_a_network_is_a_student_of_many_labels(tmp_path):
    pytest.importorskip("torch", reason="A NETWORK AS STUDENT OF MANY LABELS WAS NOT TRIED: no torch")
    from tellers.runs import load_student

    chosen = StudentConfig(model="torch_mlp", parameters={"epochs": 5, "device": "cpu"})
    config = settings(student=chosen, report=ReportConfig(private=True))
    result = run_on_votes(config, tmp_path / "out")
    student = load_student(tmp_path / "out/student")
    test = read_tables(config).test
    assert result["student"]["accuracy"] == pytest.approx((student.predict(test.X) == test.y).mean())
    private = json.loads((tmp_path / "out/private/summary.json").read_text())
    assert 0 < private["open_model_accuracy"] < 1


def test_a_network_that_cannot_learn_is_refused_before_anything_is_charged(tmp_path):
    pytest.importorskip("torch", reason="A NETWORK AS STUDENT OF MANY LABELS WAS NOT TRIED: no torch")
    with pytest.raises(ValueError, match="square images"):
        run(settings(student=StudentConfig(model="cnn")), tmp_path / "out")
    assert not (tmp_path / "out/ledger.db").exists()
    assert not (tmp_path / "out/private/teachers").exists()


def test_other_labels_are_another_run(tmp_path):
    config = settings()
    run_on_votes(config, tmp_path / "out")
    other = replace(config, labels=LabelsConfig(names=("rain", "wind", "hail")))
    with pytest.raises(ValueError, match=r"got others for labels\.names"):
        run(other, tmp_path / "out", resume=True)
    again = run(config, tmp_path / "out", resume=True)
    assert again["queries"]["n_asked"] == 12


def test_persons_stay_together_and_an_archive_may_hold_all_labels_at_once(tmp_path):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 3))
    np.savez(tmp_path / "rows.npz", X=X, Y=(X > 0).astype(int), who=np.repeat(np.arange(100), 4))
    config = settings(
        data=DataConfig(
            name="files", private="rows.npz", person="who", n_public=40, n_test=40, folder=str(tmp_path)
        ),
        partition=PartitionConfig(n_teachers=16, by="person"),
    )
    result = run(config, tmp_path / "out")
    assert result["partition"]["unit"] == "one person"
    assert result["data"]["n_features"] == 3
    tables = read_tables(config)
    owners = [set(tables.private.persons[part].tolist()) for part in deal_rows(config, tables)]
    people = [person for part in owners for person in part]
    assert len(people) == len(set(people))


def test_many_labels_are_folded_on_the_page(tmp_path):
    names = tuple(f"label {n}" for n in range(40))
    few = {"partition": PartitionConfig(n_teachers=3), "queries": QueriesConfig(n_queries=4)}
    budget = BudgetConfig(epsilon=300.0, delta=1e-4)
    run(settings(labels=LabelsConfig(names=names), budget=budget, **few), tmp_path / "out")
    page = (tmp_path / "out/report.html").read_text()
    assert "All 40 labels" in page


def test_a_name_with_markup_stays_text(tmp_path):
    names = ("<script>alert(1)</script>", "a|b", "c")
    run(settings(labels=LabelsConfig(names=names)), tmp_path / "out")
    assert "<script>" not in (tmp_path / "out/report.html").read_text()
    assert "<script>" not in (tmp_path / "out/student/card.md").read_text()
