"""The page of a run with many labels: names in the table and not in drawings, private numbers apart."""

import re

from tellers.runs import RunResult
from tellers.runs.report._page import describe_run, page_template
from tellers.runs.result import LabelPart, PrivateNumbers

RESULT = {
    "format": 1,
    "partition": {"n_teachers": 60, "unit": "one record"},
    "data": {
        "name": "days", "n_private": 600, "n_public": 90, "n_test": 50, "n_features": 3,
        "class_names": ["no", "yes"], "label_names": ["rainy-day", "wind"],
    },
    "mechanism": {"name": "Tau", "sigma": 12.0, "norm": "l1"},
    "budget": {"epsilon": 2.0, "delta": 1e-5},
    "spent": {"epsilon": 1.961, "delta": 1e-5, "is_guarantee": True},
    "queries": {"n_asked": 40, "n_answered": 38, "n_silent": 2},
    "labels": [
        {"name": "rainy-day", "n_yes": 10, "n_no": 20, "n_silent": 10, "balanced_accuracy": 0.75},
        {"name": "wind", "n_yes": 0, "n_no": 0, "n_silent": 40, "balanced_accuracy": None, "accuracy": 0.6},
    ],
    "student": {
        "kind": "supervised", "model": "logistic", "n_labels": 30, "accuracy": 0.7,
        "scores": {"accuracy": 0.7, "auc": 0.81, "macro_f1": None},
    },
}  # fmt: skip
SECRET = PrivateNumbers.from_dict({"gaps": [3, 50, 60], "exact_cost": [{"n_queries": 40, "epsilon": 0.4321}]})


def rendered(private=None, **changes):
    return page_template("page.html").render(
        describe_run(RunResult.from_dict({**RESULT, **changes}), private)
    )


def test_the_table_says_what_was_told():
    first, second = re.findall(r"<tr><th scope=\"row\">\d\. .*?</tr>", rendered(), flags=re.DOTALL)
    assert [re.sub("<.*?>", " ", row).split()[2:7] for row in (first, second)] == [
        ["75.0", "%", "33.3", "%", "75.0"],
        ["0.0", "%", "–", "–", "60.0"],
    ]
    scores = re.findall(r"<tr><th scope=\"row\">(Accuracy|AUC|F1[^<]*)<.*?([\d.]+) %</span>", rendered())
    assert scores == [("Accuracy", "70.0"), ("AUC", "81.0")]


def test_the_page_names_labels_in_the_table_and_not_in_the_drawing():
    page = rendered()
    assert "1. rainy-day" in page
    assert "norm = l1" in page
    assert "30" in page
    assert "of 80, in 40 questions" in page
    drawing = describe_run(RunResult.from_dict(RESULT))["labels"]["drawing"]
    assert "rainy-day" not in drawing.svg
    assert drawing.mark == ""


def test_gaps_and_exact_costs_are_on_the_private_page_alone():
    public, private = rendered(), rendered(SECRET)
    assert "votes between yes and no" not in public
    assert "0.44" not in public
    assert "votes between yes and no" in private
    assert "private: do not publish" in private
    assert "Public and exact cost" in private
    assert "upper bound" not in private


def test_an_upper_bound_is_not_called_exact_on_the_page():
    follows = {"name": "DependentBinary", "sigma": 6.0, "n_labels": 2, "negative": [[0, 1]]}
    private = rendered(SECRET, mechanism=follows)
    assert "Public and upper bound on the exact cost" in private
    assert "is at most 0.44 at the end" in " ".join(private.split())
    assert "Public and exact cost" not in private


def test_without_test_rows_nothing_is_said_of_the_student():
    student = {"kind": "supervised", "model": "logistic", "n_labels": 30}
    labels = [{"name": "wind", "n_yes": 1, "n_no": 0, "n_silent": 0}]
    page = rendered(student=student, labels=labels)
    assert "Balanced accuracy" not in page
    assert "All labels together" not in page


def test_a_run_with_one_class_per_row_has_no_such_part():
    run = RunResult.from_dict({**RESULT, "labels": None, "mechanism": {"name": "GNMax", "sigma": 12.0}})
    assert describe_run(run)["labels"] is None
    assert "Label by label" not in rendered(labels=None, mechanism={"name": "GNMax", "sigma": 12.0})


def test_shares_of_a_label_that_was_never_asked():
    label = LabelPart(name="a", n_yes=0, n_no=0, n_silent=0, n_inferred=0, n_test_yes=0)
    assert label.told is None
    assert label.model_copy(update={"n_silent": 3}).yes is None
