"""The numbers of a run with many labels: what came out label by label, and what is for the operator alone."""

import math
from typing import Any

import numpy as np

from ..catalogue import make_model
from ..config import RunConfig
from ..label_models import OneEach
from ..label_votes import LabelVotes
from ..labelling import Labels
from ..metrics import PrecisionRecall, measure, precision_recall
from ..release import SILENT
from ..students.base import fresh
from ..students.semi_supervised import takes_unlabelled
from ..teachers import is_network
from ..teachers.label_ensemble import label_accuracies
from .exact_curve import exact_curve
from .label_data import LabelTables

# Enough for a picture of how clear the votes were.
_MOST_GAPS = 20_000


def label_results(labels: Labels, tables: LabelTables, student: Any) -> list[dict[str, Any]]:
    """Return, label by label, what was released and how well the student knows it; all of it is public.

    `n_inferred` counts what followed from other labels by an implication. Numbers of the test rows are None
    where there are none, or where all rows have the same answer.

    >>> from tellers.config import default_config
    >>> from tellers.pipeline.label_data import read_label_tables
    >>> tables = read_label_tables(default_config("made_multilabel"))
    >>> released = np.array([[1, 0, 1, SILENT, 0], [1, 1, 0, 0, 0]])
    >>> labels = Labels(np.array([3, 9]), released, released != SILENT)
    >>> student = OneEach(make_model("tree")).fit(tables.pool[labels.rows], released)
    >>> first = label_results(labels, tables, student)[0]
    >>> first["name"], first["n_yes"], first["n_no"], first["n_silent"], 0 < first["accuracy"] < 1
    ('sun', 2, 0, 0, True)
    """
    said, names = labels.labels, tables.private.label_names
    inferred = (said != SILENT) & ~labels.by_teachers
    tested: dict[str, Any] = {}
    if tables.test is not None:
        said_right = _said(student, tables)
        tested = _measured(student, tables).per_label
        tested = {**tested, "precision": said_right.precision, "recall": said_right.recall}
    rows = []
    for at, name in enumerate(names):
        told = said[:, at] != SILENT
        right = None
        if tables.pool_y is not None and told.any():
            right = float((said[told, at] == tables.pool_y[labels.rows[told], at]).mean())
        rows.append(
            {
                "name": name,
                "n_yes": int((said[:, at] == 1).sum()),
                "n_no": int((said[:, at] == 0).sum()),
                "n_silent": int((~told).sum()),
                "n_inferred": int(inferred[:, at].sum()),
                "labels_right": right,
                "n_test_yes": 0 if tables.test is None else int(tables.test.y[:, at].sum()),
                **{name: known(values[at]) for name, values in tested.items()},
            }
        )
    return rows


def label_scores(student: Any, tables: LabelTables) -> dict[str, Any]:
    """Return how good the student is on the test rows, averaged over labels.

    >>> from tellers.config import default_config
    >>> from tellers.pipeline.label_data import read_label_tables
    >>> tables = read_label_tables(default_config("made_multilabel"))
    >>> student = OneEach(make_model("tree")).fit(tables.pool, tables.pool_y)
    >>> sorted(label_scores(student, tables)["scores"])
    ['accuracy', 'auc', 'balanced_accuracy', 'macro_f1', 'macro_precision', 'macro_recall',
     'mean_average_precision', 'micro_f1', 'micro_precision', 'micro_recall']
    """
    if tables.test is None:
        return {"accuracy": None, "per_class": []}
    found, said = _measured(student, tables), _said(student, tables)
    scores = {
        "accuracy": found.accuracy, "balanced_accuracy": found.balanced_accuracy, "auc": found.auc,
        "mean_average_precision": found.mean_average_precision, "micro_f1": found.micro_f1,
        "macro_f1": found.macro_f1, "micro_precision": said.micro_precision,
        "micro_recall": said.micro_recall, "macro_precision": said.macro_precision,
        "macro_recall": said.macro_recall,
    }  # fmt: skip
    return {
        "accuracy": known(found.accuracy),
        "scores": {name: known(value) for name, value in scores.items()},
        "per_class": [],
    }


def private_label_numbers(
    config: RunConfig,
    tables: LabelTables,
    *,
    votes: LabelVotes,
    labels: Labels,
    test_votes: LabelVotes | None,
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Return what `private/summary.json` holds of a run with many labels.

    Gaps are the votes between yes and no, of every label of the queries that were asked.

    >>> from tellers.config import default_config
    >>> from tellers.pipeline.label_data import read_label_tables
    >>> config = default_config("made_multilabel")
    >>> tables = read_label_tables(config)
    >>> votes = LabelVotes.from_sums([[90, 20, 60, 5, 1]] * 400, n_teachers=100)
    >>> released = np.array([[1, 0, 1, 0, 0]])
    >>> labels = Labels(np.array([3]), released, released != SILENT)
    >>> made = private_label_numbers(config, tables, votes=votes, labels=labels, test_votes=None, seconds={})
    >>> made["gaps"]
    [80, 60, 20, 90, 98]
    """
    asked = votes[labels.rows] if len(labels) else None
    gaps: list[int] = []
    if asked is not None:
        apart = np.abs(2 * asked.sums - asked.n_teachers * asked.resolution) // asked.resolution
        every = apart.reshape(-1)
        gaps = every[:: max(1, -(-every.size // _MOST_GAPS))].astype(int).tolist()
    numbers: dict[str, Any] = {
        "n_teachers": votes.n_teachers,
        "delta": config.budget.delta,
        "gaps": gaps,
        "exact_cost": None if asked is None or asked.ballots is None else exact_curve(config, asked),
        "seconds": dict(seconds),
        **({"notes": list(tables.withheld)} if tables.withheld else {}),
    }
    if test_votes is not None and tables.test is not None:
        truth = tables.test.y
        plurality = 2 * test_votes.sums >= test_votes.n_teachers * test_votes.resolution
        numbers["teacher_accuracies"] = label_accuracies(test_votes, truth).reveal().tolist()
        numbers["plurality_accuracy"] = float((plurality == truth).mean())
        model = fresh(label_student(config, tables), seed=config.seed)
        if not getattr(model, "multilabel", False):
            model = OneEach(model)
        pool = (tables.pool,) if takes_unlabelled(model) else ()
        model = model.fit(tables.private.X, tables.private.y, *pool)
        numbers["open_model_accuracy"] = float((model.predict(tables.test.X) == truth).mean())
    return numbers


def label_student(config: RunConfig, tables: LabelTables) -> Any:
    """Return the student before it is taught: a model for each label, or one network with an output each.

    >>> from tellers.config import default_config
    >>> from tellers.pipeline.label_data import read_label_tables
    >>> config = default_config("made_multilabel")
    >>> label_student(config, read_label_tables(config))
    LogisticRegression(class_weight='balanced', max_iter=1000)
    """
    chosen = config.student
    model = make_model(
        chosen.model,
        chosen.parameters,
        n_classes=len(config.labels.names),
        image_shape=tables.private.image_shape,
    )
    if not is_network(model):
        return model
    from ..teachers.torch import TorchLabelClassifier

    return TorchLabelClassifier(model)


def known(value: float) -> float | None:
    """Return a number, or None where it is not defined: JSON has no NaN.

    >>> known(0.5), known(float("nan"))
    (0.5, None)
    """
    return None if math.isnan(value) else float(value)


def _said(student: Any, tables: LabelTables) -> PrecisionRecall:
    assert tables.test is not None
    return precision_recall(tables.test.y, student.predict(tables.test.X))


def _measured(student: Any, tables: LabelTables) -> Any:
    assert tables.test is not None
    X = tables.test.X
    return measure(tables.test.y, student.predict(X), scores=student.predict_proba(X))
