"""The public result of a run, as `result.json` tells it: read, checked, and with a name for every number."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..relation import Relation
from .entries import (
    COUNT,
    EPSILON,
    FLAG,
    NUMBER,
    PARAMETER,
    SHARE,
    TABLE,
    TABLES,
    TEXT,
    TEXTS,
    WHOLE,
    Entries,
)
from .groups import PersonalResult, read_personal
from .labels import LabelResult, read_labels, read_scores
from .published import PublishedCosts

FORMAT: Final = 1
# Parameters of mechanisms for many labels that are no single number.
_WORDS_OR_LISTS = ("norm", "share", "shares", "groups", "positive", "negative")


@dataclass(frozen=True, kw_only=True)
class ClassScore:
    """How well the student tells one class apart on the test rows; None where nothing can be said.

    >>> ClassScore(name="7", precision=0.98, recall=None, n_test=0).recall is None
    True
    """

    name: str
    precision: float | None
    recall: float | None
    n_test: int


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """The public numbers of one run, flat; `epsilon` is infinite where nothing is promised.

    Nothing in it comes from private data except through a mechanism that was charged, and through test rows
    that are treated as public.

    >>> RunResult.from_dict({"format": 1})
    Traceback (most recent call last):
        ...
    ValueError: Expected a table at mechanism, got nothing.
    """

    name: str
    n_private: int | None
    n_public: int
    n_test: int
    n_features: int
    class_names: tuple[str, ...]
    data_notes: tuple[str, ...]
    n_teachers: int
    unit: str
    partition_notes: tuple[str, ...]
    mechanism: str
    parameters: Mapping[str, Any]
    budget_epsilon: float
    budget_delta: float
    epsilon: float
    delta: float
    is_guarantee: bool
    why: str
    n_asked: int
    n_answered: int
    n_silent: int
    n_by_student: int
    n_lost: int
    order: str
    stopped_by: str
    cost: tuple[tuple[int, float], ...]
    student_kind: str
    student_model: str
    n_labels: int
    accuracy: float | None
    labels_right: float | None
    per_class: tuple[ClassScore, ...]
    seed: int | None
    versions: Mapping[str, str]
    started: str
    seconds: Mapping[str, float]
    settings: Mapping[str, Any]
    warnings: tuple[str, ...]
    personal: PersonalResult | None = None
    labels: tuple[LabelResult, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    charged: float | None = None
    shared: bool = False
    relation: Relation | None = None
    published: PublishedCosts | None = None

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "RunResult":
        """Read the content of a `result.json`, or say which entry is not what it should be."""
        read = Entries(table)
        found = read.at("format", COUNT)
        if found != FORMAT:
            raise ValueError(
                f"Expected a result of format {FORMAT}, got format {found}. "
                "Read it with the version of tellers that wrote it."
            )
        mechanism, settings = read.at("mechanism", TABLE), read.at("settings", TABLE, {})
        scores = read.at("student.per_class", TABLES, ())
        return cls(
            name=read.at("data.name", TEXT),
            n_private=read.at("data.n_private", COUNT, None),
            n_public=read.at("data.n_public", COUNT),
            n_test=read.at("data.n_test", COUNT),
            n_features=read.at("data.n_features", COUNT),
            class_names=read.at("data.class_names", TEXTS),
            data_notes=read.at("data.notes", TEXTS, ()),
            n_teachers=read.at("partition.n_teachers", COUNT),
            unit=read.at("partition.unit", TEXT),
            partition_notes=read.at("partition.notes", TEXTS, ()),
            mechanism=read.at("mechanism.name", TEXT),
            parameters={
                name: read.at(f"mechanism.{name}", PARAMETER if name in _WORDS_OR_LISTS else NUMBER)
                for name in mechanism
                if name != "name" and mechanism[name] is not None
            },
            budget_epsilon=read.at("budget.epsilon", EPSILON),
            budget_delta=read.at("budget.delta", SHARE),
            epsilon=read.at("spent.epsilon", EPSILON),
            delta=read.at("spent.delta", SHARE),
            is_guarantee=read.at("spent.is_guarantee", FLAG),
            why=read.at("spent.why", TEXT, ""),
            n_asked=read.at("queries.n_asked", COUNT),
            n_answered=read.at("queries.n_answered", COUNT),
            n_silent=read.at("queries.n_silent", COUNT),
            n_by_student=read.at("queries.n_by_student", COUNT, 0),
            n_lost=read.at("queries.n_lost", COUNT, 0),
            order=read.at("queries.order", TEXT, ""),
            stopped_by=read.at("queries.stopped_by", TEXT, ""),
            cost=read_cost(table),
            student_kind=read.at("student.kind", TEXT),
            student_model=read.at("student.model", TEXT),
            n_labels=read.at("student.n_labels", COUNT),
            accuracy=read.at("student.accuracy", SHARE, None),
            labels_right=read.at("student.labels_right", SHARE, None),
            per_class=tuple(_class_score(score) for score in scores),
            seed=read.at("seed", WHOLE, None),
            versions={name: str(value) for name, value in read.at("versions", TABLE, {}).items()},
            started=read.at("started", TEXT, ""),
            seconds={
                name: read.at(f"seconds.{name}", NUMBER)
                for name, value in read.at("seconds", TABLE, {}).items()
                if value is not None
            },
            settings=settings,
            warnings=read.at("warnings", TEXTS, ()),
            personal=read_personal(table),
            labels=read_labels(table),
            scores=read_scores(table),
            charged=read.at("spent.charged", EPSILON, None),
            shared=read.at("spent.shared", FLAG, False),
            relation=read_relation(table),
            published=_published(read.at("published", TABLE, None)),
        )


def read_relation(table: Mapping[str, Any]) -> Relation | None:
    """Return the neighbouring relation of a run, or None where an older version wrote none down.

    >>> read_relation({"partition": {"unit": "one person"}})
    >>> said = {"unit": "person", "change": "add or remove"}
    >>> read_relation({"partition": {"relation": said}}).name
    'one person'
    """
    said: Mapping[str, Any] | None = Entries(table).at("partition.relation", TABLE, None)
    if said is None:
        return None
    try:
        return Relation.from_dict(said)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"Expected a neighbouring relation at partition.relation: {error}") from None


def read_cost(table: Mapping[str, Any], key: str = "cost") -> tuple[tuple[int, float], ...]:
    """Return the pairs (queries asked, epsilon spent) of a run, in their order; none where none are told.

    >>> read_cost({"cost": [{"n_queries": 10, "epsilon": 0.5}, {"n_queries": 20, "epsilon": 0.7}]})
    ((10, 0.5), (20, 0.7))
    """
    points = Entries(table).at(key, TABLES, ())
    return tuple((Entries(p).at("n_queries", COUNT), Entries(p).at("epsilon", EPSILON)) for p in points)


def _published(table: Mapping[str, Any] | None) -> PublishedCosts | None:
    return None if table is None else PublishedCosts.from_dict(table)


def _class_score(table: Mapping[str, Any]) -> ClassScore:
    read = Entries(table)
    return ClassScore(
        name=read.at("name", TEXT),
        precision=read.at("precision", SHARE, None),
        recall=read.at("recall", SHARE, None),
        n_test=read.at("n_test", COUNT, 0),
    )
