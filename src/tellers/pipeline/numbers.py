"""The numbers of a run: those that may be shown to anyone, and those for the operator alone."""

import platform
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..calibrate.labels import expected_labels
from ..catalogue import make_model, uses_torch
from ..config import RunConfig, config_as_dict
from ..labelling import Labels
from ..mechanisms import GNMax
from ..metrics import precision_recall
from ..personal import PersonalPlan, Upsampling
from ..relation import Relation
from ..release import SILENT
from ..students.base import fresh
from ..students.semi_supervised import takes_unlabelled
from ..votes import Votes
from .asking import Spending
from .data import Tables
from .electorate import Electorate, group_rows
from .exact_curve import exact_curve
from .groups import Cast, PersonalSpending, ceiling_notes, exact_by_groups, personal_numbers
from .label_data import LabelTables
from .label_numbers import known, label_results, label_scores

_PUBLIC_STEPS = ("student",)
_SHOWN = ("numpy", "scipy", "scikit-learn", "torch")
_PRIVATE_STOP = (
    "The run stopped at a private, data-dependent cost: how many queries were asked depends on the votes, "
    "and no epsilon covers that."
)
_FIXED = "Fixed before the first release, it holds whatever the teachers voted and whatever came out."


def public_numbers(
    config: RunConfig,
    tables: Tables | LabelTables,
    electorate: Electorate,
    *,
    labels: Labels,
    spending: Spending,
    student: Any,
    seconds: dict[str, float],
    started: str,
) -> dict[str, Any]:
    """Return what `result.json` holds: settings, prices, released labels and public test rows, no vote.

    >>> from tellers.pipeline.data import read_tables
    >>> from tellers.pipeline.electorate import seat_teachers
    >>> config = RunConfig()
    >>> tables = read_tables(config.data, seed=7)
    >>> labels = Labels(np.array([1, 0]), np.array([3, SILENT]), np.array([True, False]))
    >>> class Constant:
    ...     def predict(self, X):
    ...         return np.full(len(X), 3)
    >>> numbers = public_numbers(
    ...     config, tables, seat_teachers(config, tables), labels=labels,
    ...     spending=Spending(epsilon=2.0, charged=1.9, curve=((2, 1.9),)), student=Constant(), seconds={},
    ...     started="2026-11-15T12:00:00+00:00",
    ... )
    >>> numbers["queries"]["n_silent"], numbers["student"]["n_labels"], numbers["spent"]["epsilon"]
    (1, 1, 2.0)
    """
    data, stops_privately = tables.private, config.budget.stop == "private"
    parts, plan = electorate.partition, _at_first(electorate, spending)
    mechanism, given = config.build_mechanism(), config.mechanism.given
    if isinstance(plan, Upsampling):
        # The one for as many teachers as there are.
        given = {name: getattr(plan.mechanism, name) for name in given}
    n_teachers = len(parts) if plan is None else plan.n_teachers
    handed_back = (labels.labels != SILENT) & ~labels.by_teachers
    silent = labels.labels == SILENT
    personal = {}
    names: dict[str, list[str]]
    if isinstance(tables, LabelTables):
        names = {"class_names": ["no", "yes"], "label_names": list(tables.private.label_names)}
        by_label = {"labels": label_results(labels, tables, student)}
        scores = label_scores(student, tables)
        # A row is met with silence if all of its labels are; what is inferred is nobody's answer.
        silent, handed_back = silent.all(axis=1), np.zeros(len(labels), dtype=np.bool_)
    else:
        names, by_label = {"class_names": list(tables.private.class_names)}, {}
        scores = _tested(student, tables)
    if spending.personal is not None:
        personal["personal"] = personal_numbers(electorate, spending.personal, group_rows(electorate))
    return {
        "format": 1,
        "data": {
            "name": data.name,
            "n_private": n_private(config, tables, parts.relation),
            "n_public": len(tables.pool),
            "n_test": 0 if tables.test is None else len(tables.test),
            "n_features": data.n_features,
            **names,
            "notes": [*tables.notes, *electorate.notes],
        },
        "partition": {
            "n_teachers": n_teachers,
            "unit": parts.unit,
            "relation": parts.relation.as_dict(),
            "notes": list(parts.notes),
        },
        "mechanism": {"name": type(mechanism).__name__, **given},
        "budget": {"epsilon": config.budget.epsilon, "delta": config.budget.delta},
        "spent": {
            "epsilon": spending.epsilon,
            "delta": config.budget.delta,
            "charged": spending.charged,
            "shared": spending.shared,
            "is_guarantee": not stops_privately,
            "why": _PRIVATE_STOP if stops_privately else _FIXED,
        },
        "queries": {
            "n_asked": len(labels) + labels.n_lost,
            "n_answered": labels.n_answered,
            "n_silent": int(silent.sum()),
            "n_by_student": int(handed_back.sum()),
            "n_lost": labels.n_lost,
            "order": config.queries.order,
            "stopped_by": _stopped_by(config, labels, spending),
        },
        "cost": [{"n_queries": n, "epsilon": epsilon} for n, epsilon in spending.curve],
        **personal,
        **by_label,
        "student": {
            "kind": config.student.kind,
            "model": config.student.model,
            "n_labels": int((labels.labels != SILENT).sum()),
            "labels_right": share_right(labels, tables.pool_y),
            **scores,
        },
        "seed": config.seed,
        "versions": {"tellers": __version__, "python": platform.python_version(), **_versions(config)},
        "started": started,
        # How long teachers took says something of their rows, which no epsilon covers.
        "seconds": {step: taken for step, taken in seconds.items() if step in _PUBLIC_STEPS},
        "settings": config_as_dict(config),
        "warnings": _warnings(config, labels, tables, electorate, spending),
    }


def private_numbers(
    config: RunConfig,
    tables: Tables,
    *,
    votes: Votes,
    labels: Labels,
    test_votes: Votes | None,
    seconds: dict[str, float] | None = None,
    electorate: Electorate | None = None,
    spending: Spending | None = None,
    cast: Cast | None = None,
) -> dict[str, Any]:
    """Return what `private/summary.json` holds: what looks at votes, teachers or private rows.

    `votes` are those of the first teachers, `cast(absent)` those of teachers trained anew.

    >>> from tellers.calibrate import Consensus
    >>> from tellers.pipeline.data import read_tables
    >>> config = RunConfig()
    >>> made_up, _ = Consensus().votes(60, 10, n_queries=300, seed=7)
    >>> labels = Labels(np.array([1, 0]), np.array([3, SILENT]), np.array([True, False]))
    >>> tables = read_tables(config.data, seed=7)
    >>> sorted(private_numbers(config, tables, votes=made_up, labels=labels, test_votes=None))
    ['accuracy_against_noise', 'delta', 'exact_cost', 'gaps', 'n_teachers', 'seconds']
    """
    personal = None if spending is None else spending.personal
    numbers: dict[str, Any] = {
        "n_teachers": votes.n_teachers,
        "delta": config.budget.delta,
        "gaps": _gaps(votes, labels, personal, cast),
        "exact_cost": None,
        "seconds": dict(seconds or {}),
        **({"notes": list(tables.withheld)} if tables.withheld else {}),
    }
    if electorate is None or electorate.plan is None or personal is None:
        numbers["exact_cost"] = exact_curve(config, votes[labels.rows])
    else:
        exact = exact_by_groups(
            electorate, votes, labels=labels, batches=personal.batches, delta=config.budget.delta, cast=cast
        )
        numbers["personal"] = {"exact_cost": None if exact is None else exact.reveal()}
    if tables.pool_y is not None:
        numbers["accuracy_against_noise"] = _against_noise(votes, tables.pool_y)
    if test_votes is not None and tables.test is not None and test_votes.ballots is not None:
        truth = tables.test.y
        numbers["teacher_accuracies"] = (test_votes.ballots == truth).mean(axis=1).tolist()
        numbers["plurality_accuracy"] = float((test_votes.counts.argmax(axis=1) == truth).mean())
        numbers["open_model_accuracy"] = _open_model(config, tables)
    return numbers


def _at_first(electorate: Electorate, spending: Spending) -> PersonalPlan | None:
    """Return the plan of the first teachers: by upsampling, without those who could not pay for one query."""
    plan, personal = electorate.plan, spending.personal
    if plan is None or personal is None or not personal.rounds or not personal.rounds[0].absent:
        return plan
    return plan.without(personal.rounds[0].absent)


def _gaps(votes: Votes, labels: Labels, personal: PersonalSpending | None, cast: Cast | None) -> list[float]:
    """Return how far the winner of each query was ahead, among the teachers that answered it."""
    if personal is None or cast is None or len(personal.rounds) < 2:
        gaps: list[float] = votes[labels.rows].gap.tolist()
        return gaps
    gaps, start = [], 0
    settled = [batch for batch in personal.batches if batch.is_settled]
    for absent, batches in groupby(settled, key=lambda batch: batch.absent):
        end = start + sum(batch.n_queries for batch in batches)
        gaps += cast(absent)[1][labels.rows[start:end]].gap.tolist()
        start = end
    return gaps


def n_private(config: RunConfig, tables: Tables | LabelTables, relation: Relation) -> int | None:
    """Return how many private rows there are said to be, or None where nobody said it and it is private.

    Where rows keep their places their number is public: of all rows, or the places of those that may break.
    Where units come and go it is not, and only what the settings declare is told.

    >>> from tellers.pipeline.data import read_tables
    >>> from tellers.teachers.partition import relation_by_name, relation_in_place
    >>> tables = read_tables(RunConfig().data, seed=7)
    >>> [n_private(RunConfig(), tables, relation) for relation in (relation_in_place(), relation_by_name())]
    [1200, None]
    """
    if not relation.counts_are_public:
        return config.data.rows or None
    return len(tables.private) if tables.n_declared is None else tables.n_declared


def share_right(labels: Labels, truth: NDArray[np.int64] | None) -> float | None:
    """Return the share of released labels that are right, or None where nobody knows.

    >>> labels = Labels(np.array([1, 0, 2]), np.array([5, 3, SILENT]), np.array([True, True, False]))
    >>> share_right(labels, np.array([4, 5, 6])), share_right(labels, None)
    (0.5, None)
    """
    given = labels.labels != SILENT
    if truth is None or not given.any():
        return None
    return float((labels.labels[given] == truth[labels.rows][given]).mean())


def _tested(student: Any, tables: Tables) -> dict[str, Any]:
    if tables.test is None:
        return {"accuracy": None, "per_class": []}
    from sklearn.metrics import precision_recall_fscore_support

    said, truth = np.asarray(student.predict(tables.test.X)), tables.test.y
    classes = np.arange(tables.private.n_classes)
    precision, recall, f1, n_test = precision_recall_fscore_support(
        truth, said, labels=classes, zero_division=0.0
    )
    # A class for each row is one label for each: precision and recall of all rows together are the accuracy.
    found = precision_recall(truth[:, None] == classes, said[:, None] == classes)
    names = ("macro_precision", "macro_recall", "macro_f1", "micro_precision", "micro_recall", "micro_f1")
    return {
        "accuracy": float((said == truth).mean()),
        "scores": {name: known(getattr(found, name)) for name in names},
        "per_class": [
            {
                "name": tables.private.class_names[j],
                # A class that was never predicted has no precision, one without test rows no recall.
                "precision": float(precision[j]) if (said == j).any() else None,
                "recall": float(recall[j]) if n_test[j] else None,
                "f1": float(f1[j]) if n_test[j] or (said == j).any() else None,
                "n_test": int(n_test[j]),
            }
            for j in classes
        ],
    }


def _stopped_by(config: RunConfig, labels: Labels, spending: Spending) -> str:
    if _stopped_privately(config, labels):
        return "the private budget"
    if labels.stopped_by == "the budget" and spending.personal is not None:
        return spending.personal.ended_by or labels.stopped_by
    return labels.stopped_by


def _stopped_privately(config: RunConfig, labels: Labels) -> bool:
    return (
        config.budget.stop == "private"
        and labels.stopped_by == "the number of queries"
        and (not config.queries.n_queries or len(labels) + labels.n_lost < config.queries.n_queries)
    )


def _versions(config: RunConfig) -> dict[str, str]:
    networks = [name for name in (config.teachers.model, config.student.model) if uses_torch(name)]
    found = {}
    for name in _SHOWN:
        if name == "torch" and not networks:
            continue
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # pragma: no cover - installed in another way
            continue
    return found


def _warnings(
    config: RunConfig,
    labels: Labels,
    tables: Tables | LabelTables,
    electorate: Electorate,
    spending: Spending,
) -> list[str]:
    said = []
    if config.budget.stop == "private":
        said.append(_PRIVATE_STOP)
    if labels.n_lost:
        said.append(
            f"{labels.n_lost} queries were charged and lost when a run was interrupted between its price and "
            "its outcome. They are not asked again."
        )
    if spending.personal is not None:
        said += [*spending.personal.notes, *ceiling_notes(config, electorate)]
    n_rows = n_private(config, tables, electorate.partition.relation)
    if n_rows is not None and config.budget.delta * n_rows >= 1:
        said.append(
            f"delta = {config.budget.delta:g} is not below 1 / {n_rows}, the number of private records: "
            "a mechanism that publishes one record at random could pass with it. Take a smaller one."
        )
    return said


def _against_noise(votes: Votes, truth: NDArray[np.int64]) -> list[dict[str, float]]:
    """Return how often the noisy winner is right, on average over the noise, for more and more of it."""
    points = []
    some = np.arange(len(votes))[:: max(1, len(votes) // 500)]
    for sigma in votes.n_teachers * np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]):
        _, right = expected_labels(GNMax(sigma=float(sigma)), votes[some], truth[some])
        points.append({"sigma": float(sigma), "accuracy": right})
    return points


def _open_model(config: RunConfig, tables: Tables) -> float | None:
    """Return the accuracy of the student's model trained on the private rows themselves."""
    if tables.test is None:
        return None
    model = make_model(
        config.student.model, config.student.parameters, n_classes=tables.private.n_classes,
        image_shape=tables.private.image_shape,
    )  # fmt: skip
    model = fresh(model, seed=config.seed)
    pool = (tables.pool,) if takes_unlabelled(model) else ()
    model.fit(tables.private.X, tables.private.y, *pool)
    return float((np.asarray(model.predict(tables.test.X)) == tables.test.y).mean())
