"""The numbers of a run, of classes and of many labels alike: those for everybody, and the operator's own."""

import math
import platform
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..accounting.exact import exact_epsilons
from ..accounting.plan import expected_labels
from ..data.label_models import OneEach
from ..data.metrics import measure, precision_recall
from ..mechanisms.gaussian_sum import GaussianSum
from ..mechanisms.gnmax import GNMax
from ..privacy.relation import Relation
from ..privacy.release import SILENT
from ..privacy.votes import SetOf, Votes
from ..students.fitting import fresh, takes_unlabelled
from ..teachers.ballots import ballots_of
from ._catalogue import model_name, uses_torch
from ._folder import make_student
from ._groups import Cast, PersonalSpending, ceiling_notes, exact_by_groups
from ._tables import Tables
from ._voting import Spending, Voting
from .labelling import Labels
from .personal.variants import Upsampling
from .result import (
    FORMAT,
    SCORES,
    BudgetPart,
    ClassPart,
    CostPoint,
    DataPart,
    LabelPart,
    MechanismPart,
    NoisePoint,
    PartitionPart,
    PrivateGroups,
    PrivateNumbers,
    QueriesPart,
    RunResult,
    SpentPart,
    StudentPart,
    TestedPart,
)
from .settings.files import config_as_dict
from .settings.sections import RunConfig

_PUBLIC_STEPS = ("student",)
_PRIVATE_STOP = (
    "The run stopped at a private, data-dependent cost: how many queries were asked depends on the votes, "
    "and no epsilon covers that."
)
_FIXED = "Fixed before the first release, it holds whatever the teachers voted and whatever came out."
# Enough for a picture of how clear the votes were.
_MOST_GAPS = 20_000


# What may be shown to anyone


def public_result(
    voting: Voting,
    labels: Labels,
    spending: Spending,
    student: Any,
    *,
    seconds: dict[str, float],
    started: str,
    scores: GaussianSum | None = None,
) -> RunResult:
    """Return the result of a run: settings, prices, released labels and public test rows, no vote.

    `scores` is the sum that was asked, where one was.
    """
    config, tables, assignment = voting.config, voting.tables, voting.assignment
    stops_privately, delta = config.budget.stop == "private", config.budget.delta
    own: dict[str, Any] = {} if spending.personal is None else {"personal": spending.personal.part}
    clock: dict[str, Any] = {} if spending.left is None else {"rule": "clock", "left": spending.left}
    if tables.many_labels:
        names = {"class_names": ("no", "yes"), "label_names": tables.private.label_names}
        own["labels"], quality = _label_results(student, tables, labels)
    else:
        names, quality = {"class_names": tables.private.class_names}, _class_results(student, tables)
    parts, plan = assignment.partition, assignment.plan
    rounds = spending.personal.part.rounds if spending.personal is not None else ()
    if plan is not None and rounds and rounds[0].absent:
        plan = plan.without(rounds[0].absent)  # those who could not pay for one query
    with_networks = uses_torch(config.teachers.model) or uses_torch(config.student.model)
    given, model = config.mechanism.given, config.student.model
    mechanism = config.build_mechanism() if scores is None else scores
    if scores is not None:
        given = {"sigma": scores.sigma, "steps": scores.steps}
        model = f"{model_name(student.model)}, of noisy scores"
    if isinstance(plan, Upsampling):
        # The one for as many teachers as there are.
        given = {name: getattr(plan.mechanism, name) for name in given}
    return RunResult(
        format=FORMAT,
        data=DataPart(
            name=tables.private.name,
            n_private=n_private(config, tables, parts.relation),
            n_public=len(tables.pool),
            n_test=0 if tables.test is None else len(tables.test),
            n_features=tables.private.n_features,
            notes=(*tables.notes, *assignment.notes),
            **names,
        ),
        partition=PartitionPart(
            n_teachers=len(parts) if plan is None else plan.n_teachers,
            unit=parts.unit,
            relation=parts.relation,
            notes=parts.notes,
        ),
        mechanism=MechanismPart(name=type(mechanism).__name__, **given),
        budget=BudgetPart(epsilon=config.budget.epsilon, delta=delta, **clock),
        spent=SpentPart(
            epsilon=spending.epsilon,
            delta=delta,
            **({"renyi": spending.renyi} if clock else {"charged": spending.charged}),
            shared=spending.shared,
            is_guarantee=not stops_privately,
            why=_PRIVATE_STOP if stops_privately else _FIXED,
        ),
        queries=queries_part(
            labels, order=config.queries.order, stopped_by=_stopped_by(config, labels, spending)
        ),
        **tested_part(mechanism, labels, after_fail=config.queries.after_fail),
        cost=tuple(
            CostPoint(n_queries=n, epsilon=epsilon, **({} if left is None else {"left": left}))
            for n, epsilon, left in spending.curve
        ),
        student=StudentPart(
            kind=config.student.kind,
            model=model,
            n_labels=int((labels.labels != SILENT).sum()),
            labels_right=_share_right(labels, tables),
            **quality,
        ),
        seed=config.seed,
        versions=versions_of("numpy", "scipy", "scikit-learn", *["torch"] * with_networks),
        started=started,
        # How long teachers took says something of their rows, which no epsilon covers.
        seconds={step: taken for step, taken in seconds.items() if step in _PUBLIC_STEPS},
        settings=config_as_dict(config),
        warnings=tuple(_warnings(voting, labels, spending)),
        **own,
    )


def tested_part(mechanism: Any, labels: Labels, *, after_fail: str) -> dict[str, Any]:
    """Return what came of the test of a batch, as a section of a result, or nothing where none was tested."""
    if labels.passed is None:
        return {}
    part = TestedPart(
        passed=labels.passed, clear_cost=mechanism.clear_cost, held_at=mechanism.held_at,
        delta=mechanism.test_delta, after_fail=after_fail,
    )  # fmt: skip
    return {"tested": part}


def queries_part(labels: Labels, *, order: str, stopped_by: str) -> QueriesPart:
    """Return what became of the questions."""
    told = labels.labels != SILENT
    # A row is met with silence if all of its labels are; what is inferred is nobody's answer.
    many = told.ndim == 2
    return QueriesPart(
        n_asked=len(labels) + labels.n_lost,
        n_answered=labels.n_answered,
        n_silent=int((~told.any(axis=1)).sum() if many else (~told).sum()),
        n_by_student=0 if many else int((told & ~labels.by_teachers).sum()),
        n_lost=labels.n_lost,
        order=order,
        stopped_by=stopped_by,
    )


def label_counts(labels: Labels, at: int) -> dict[str, int]:
    """Return how often one of many labels was told, and how often it followed from others."""
    said = labels.labels[:, at]
    inferred = (said != SILENT) & ~labels.by_teachers[:, at]
    return {
        "n_yes": int((said == 1).sum()),
        "n_no": int((said == 0).sum()),
        "n_silent": int((said == SILENT).sum()),
        "n_inferred": int(inferred.sum()),
    }


def _label_results(
    student: Any, tables: Tables, labels: Labels
) -> tuple[tuple[LabelPart, ...], dict[str, Any]]:
    """Return what was released of each label and how well it is known, and the averages over labels."""
    by_label: dict[str, Any] = {}
    averages: dict[str, Any] = {"accuracy": None, "per_class": ()}
    if tables.test is not None:
        X, truth = tables.test.X, tables.test.y
        predicted = student.predict(X)
        ranks = getattr(student, "predict_proba", None) or student.decision_function
        found = measure(truth, predicted, scores=ranks(X))
        said = precision_recall(truth, predicted)
        by_label = {**found.per_label, "precision": said.precision, "recall": said.recall}
        averages["accuracy"] = known(found.accuracy)
        averages["scores"] = _averages(found, said)

    def measured(at: int) -> dict[str, Any]:
        return {score: known(values[at]) for score, values in by_label.items()}

    parts = (
        LabelPart(
            name=name,
            labels_right=_share_right(labels, tables, of=np.s_[:, at]),
            n_test_yes=0 if tables.test is None else int(tables.test.y[:, at].sum()),
            **label_counts(labels, at),
            **measured(at),
        )
        for at, name in enumerate(tables.private.label_names)
    )
    return tuple(parts), averages


def _class_results(student: Any, tables: Tables) -> dict[str, Any]:
    """Return how good the student is on the test rows, on average and class by class; None is no student."""
    if tables.test is None or student is None:
        return {"accuracy": None, "per_class": ()}
    said, truth = np.asarray(student.predict(tables.test.X)), tables.test.y
    classes = np.arange(tables.private.n_classes)
    # A class for each row is one label for each: precision and recall of all rows together are the accuracy.
    found = precision_recall(truth[:, None] == classes, said[:, None] == classes)
    return {
        "accuracy": float((said == truth).mean()),
        "scores": _averages(found),
        "per_class": tuple(
            ClassPart(
                name=name,
                precision=known(found.precision[at]),
                recall=known(found.recall[at]),
                f1=known(found.f1[at]),
                n_test=int((truth == at).sum()),
            )
            for at, name in enumerate(tables.private.class_names)
        ),
    }


def _averages(*found: Any) -> dict[str, float | None]:
    """Return every average of the report that was found, by the first who has it."""
    there = {name: [one for one in found if hasattr(one, name)] for name in SCORES}
    return {name: known(getattr(having[0], name)) for name, having in there.items() if having}


def known(value: float) -> float | None:
    """Return a number, or None where it is not defined: JSON has no NaN."""
    return None if math.isnan(value) else float(value)


def n_private(config: RunConfig, tables: Tables, relation: Relation) -> int | None:
    """Return how many private rows there are said to be, or None where nobody said it and it is private.

    Where rows keep their places their number is public: of all rows, or the places of those that may break.
    Where units come and go it is not, and only what the settings declare is told.
    """
    if not relation.counts_are_public:
        return config.data.rows or None
    return len(tables.private) if tables.n_declared is None else tables.n_declared


def _share_right(labels: Labels, tables: Tables, *, of: Any = ...) -> float | None:
    """Return the share of released labels that are right, of all or a column; None where nobody knows."""
    said = labels.labels[of]
    given = said != SILENT
    if tables.pool_y is None or not given.any():
        return None
    return float((said == tables.pool_y[labels.rows][of])[given].mean())


def _stopped_by(config: RunConfig, labels: Labels, spending: Spending) -> str:
    n_asked = len(labels) + labels.n_lost
    if (
        config.budget.stop == "private"
        and labels.stopped_by == "the number of queries"
        and (not config.queries.n_queries or n_asked < config.queries.n_queries)
    ):
        return "the private budget"
    if labels.stopped_by == "the budget" and spending.personal is not None:
        return spending.personal.ended_by or labels.stopped_by
    return labels.stopped_by


def versions_of(*packages: str) -> dict[str, str]:
    """Return the versions of this package, of Python and of other packages that are installed."""
    found = {"tellers": __version__, "python": platform.python_version()}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # pragma: no cover - installed in another way
            continue
    return found


def _warnings(voting: Voting, labels: Labels, spending: Spending) -> list[str]:
    config, assignment, said = voting.config, voting.assignment, []
    if config.budget.stop == "private":
        said.append(_PRIVATE_STOP)
    if labels.is_void:
        said.append(
            "The batch failed its test and nothing was released but that: there is no student. To go on, ask "
            "the same rows at the full price, as far as the budget goes: [queries] after_fail = "
            '"full price", and --resume. A plan for less clear votes passes more often: tellers plan.'
        )
    if labels.n_lost:
        said.append(
            f"{labels.n_lost} queries were charged and lost when a run was interrupted between its price and "
            "its outcome. They are not asked again."
        )
    if spending.personal is not None:
        said += [*spending.personal.notes, *ceiling_notes(config, assignment)]
    n_rows = n_private(config, voting.tables, assignment.partition.relation)
    if n_rows is not None and config.budget.delta * n_rows >= 1:
        said.append(
            f"delta = {config.budget.delta:g} is not below 1 / {n_rows}, the number of private records: "
            "a mechanism that publishes one record at random could pass with it. Take a smaller one."
        )
    return said


# What is for the operator alone


def private_numbers(
    voting: Voting,
    labels: Labels,
    spending: Spending,
    votes: Votes,
    test_votes: Votes | None,
    *,
    seconds: dict[str, float],
) -> PrivateNumbers:
    """Return what looks at votes, teachers or private rows; `votes` are those of the first teachers."""
    config, tables = voting.config, voting.tables
    personal, parts = spending.personal, dict[str, Any]()
    if tables.withheld:
        parts["notes"] = tables.withheld
    exact = None
    if personal is None:
        exact = exact_curve(config, votes[labels.rows]) if len(labels) else None
    else:
        by_group = exact_by_groups(
            voting.assignment, votes, labels=labels, batches=personal.batches, delta=config.budget.delta,
            cast=voting.cast,
        )  # fmt: skip
        parts["personal"] = PrivateGroups(exact_cost=None if by_group is None else by_group.reveal())
    if not tables.many_labels and tables.pool_y is not None:
        parts["accuracy_against_noise"] = _against_noise(votes, tables.pool_y)
    if test_votes is not None and tables.test is not None and test_votes.ballots is not None:
        accuracies = ballots_of(test_votes.space).accuracies(test_votes, tables.test.y)
        # What they say together without noise: yes where half of them do, or the class that leads.
        if tables.many_labels:
            together = 2 * test_votes.sums >= test_votes.n_teachers * test_votes.resolution
        else:
            together = test_votes.counts.argmax(axis=1)
        parts["teacher_accuracies"] = tuple(accuracies.tolist())
        parts["plurality_accuracy"] = float((together == tables.test.y).mean())
        parts["open_model_accuracy"] = _open_model_accuracy(config, tables)
    return PrivateNumbers(
        n_teachers=votes.n_teachers,
        delta=config.budget.delta,
        gaps=tuple(_gaps(votes, labels, personal, voting.cast)),
        exact_cost=exact,
        seconds=dict(seconds),
        **parts,
    )


def exact_curve(config: RunConfig, asked: Votes) -> tuple[CostPoint, ...] | None:
    """Return the exact epsilon after more and more of the queries, or None where it bounds nothing.

    Private, as it depends on the votes.
    """
    # With a student in the loop the sum along the path that was taken bounds nothing; we show none.
    if not config.mechanism.has_exact_cost or (asked.space.kind == SetOf.kind and asked.ballots is None):
        return None
    epsilons = exact_epsilons(config.build_mechanism(), asked, delta=config.budget.delta).reveal()
    at = np.unique(np.linspace(1, len(asked), min(len(asked), 200)).round().astype(int))
    return tuple(CostPoint(n_queries=int(n), epsilon=float(epsilons[n - 1])) for n in at)


def _gaps(votes: Votes, labels: Labels, personal: PersonalSpending | None, cast: Cast) -> list[int]:
    """Return how far the winner of each query was ahead, among the teachers that answered it.

    Of many labels, the votes between yes and no of every label that was asked, or of some of them.
    """
    if not len(labels):
        return []
    asked = votes[labels.rows]
    if asked.space.kind == SetOf.kind:
        apart = np.abs(2 * asked.sums - asked.n_teachers * asked.resolution) // asked.resolution
        every = apart.reshape(-1)
        return [int(gap) for gap in every[:: max(1, -(-every.size // _MOST_GAPS))]]
    if personal is None or len(personal.part.rounds) < 2:
        return [int(gap) for gap in asked.gap]
    gaps: list[int] = []
    start = 0
    settled = [batch for batch in personal.batches if batch.is_settled]
    for absent, batches in groupby(settled, key=lambda batch: batch.absent):
        end = start + sum(batch.n_queries for batch in batches)
        gaps += cast(absent)[1][labels.rows[start:end]].gap.tolist()
        start = end
    return gaps


def _against_noise(votes: Votes, truth: NDArray[np.int64]) -> tuple[NoisePoint, ...]:
    """Return how often the noisy winner is right, on average over the noise, for more and more of it."""
    points = []
    some = np.arange(len(votes))[:: max(1, len(votes) // 500)]
    for sigma in votes.n_teachers * np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0]):
        _, right = expected_labels(GNMax(sigma=float(sigma)), votes[some], truth[some])
        points.append(NoisePoint(sigma=float(sigma), accuracy=float(right)))
    return tuple(points)


def _open_model_accuracy(config: RunConfig, tables: Tables) -> float:
    """Return the accuracy of the student's model trained on the private rows themselves."""
    assert tables.test is not None
    model = fresh(make_student(config, tables), seed=config.seed)
    if tables.many_labels and not getattr(model, "multilabel", False):
        model = OneEach(model)
    pool = (tables.pool,) if takes_unlabelled(model) else ()
    model = model.fit(tables.private.X, tables.private.y, *pool)
    return float((np.asarray(model.predict(tables.test.X)) == tables.test.y).mean())
