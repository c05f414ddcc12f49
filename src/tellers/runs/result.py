"""The numbers of a run: typed, filled by the pipeline, written to its files and read from them in one place.

`result.json` and `publication.json` are public, `private/summary.json` is for the operator alone. An entry
that an older version did not write has a default; an entry that this version does not know is kept as it is.
What is wrong with a file is said of all entries at once, by their path and without their value.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    SkipValidation,
    StrictBool,
    StrictStr,
    ValidationError,
    model_serializer,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from ..accounting.smooth import PublishPlan
from ..mechanisms.registry import number_parameters
from ..privacy._files import write_whole
from ..privacy.relation import Relation

# Kinds of entries


def _entry(words: str, make: Callable[[Any], Any]) -> BeforeValidator:
    """Return the check of an entry, with the words for what is expected of it."""

    def check(value: Any) -> Any:
        try:
            return make(value)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise PydanticCustomError("entry", "{words}", {"words": words}) from None

    return BeforeValidator(check)


def _number(value: Any) -> Any:
    """Return a finite number of the type it has, so that a whole one is written as such."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError
    return value


def _whole(value: Any, *, least: float = -math.inf) -> int:
    if int(_number(value)) != value or value < least:
        raise ValueError
    return int(value)


def _share(value: Any) -> float:
    if not 0 <= _number(value) <= 1:
        raise ValueError
    return float(value)


def _epsilon(value: Any) -> float:
    # JSON has no infinity: null, a word and Python's own spelling all mean that nothing is promised.
    if value in (None, math.inf, "inf", "infinite", "Infinity"):
        return math.inf
    if _number(value) < 0:
        raise ValueError
    return float(value)


def _parameter(value: Any) -> Any:
    """Return a name, a number, or lists of either: what a mechanism may be told."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_parameter, value))
    return value if isinstance(value, str) else _number(value)


def _relation(value: Any) -> Relation:
    return value if isinstance(value, Relation) else Relation.from_dict(value)


Number = Annotated[float, _entry("a finite number", _number)]
AnyNumber = Annotated[int | float, _entry("a finite number", _number)]
Whole = Annotated[int, _entry("a whole number", _whole)]
Count = Annotated[int, _entry("a whole number from 0", partial(_whole, least=0))]
Share = Annotated[float, _entry("a number from 0 to 1", _share)]
Epsilon = Annotated[
    float,
    _entry("a number from 0, or null for infinite,", _epsilon),
    PlainSerializer(lambda value: value if math.isfinite(value) else None),
]
Texts = tuple[StrictStr, ...]
TypedRelation = Annotated[
    SkipValidation[Relation],
    _entry("a neighbouring relation", _relation),
    PlainSerializer(lambda relation: relation.as_dict()),
]

_EXPECTED = {
    "missing": "an entry", "string_type": "text", "bool_type": "true or false", "tuple_type": "a list",
    "dict_type": "a table", "model_type": "a table",
}  # fmt: skip

Read = TypeVar("Read", bound="ResultPart")


class ResultPart(BaseModel):
    """A table of a file of numbers; null stands for the default of an entry that has one."""

    model_config = ConfigDict(frozen=True, extra="allow")

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, table: Any) -> Any:
        if not isinstance(table, Mapping):
            return table
        fields = cls.model_fields.items()
        usual = [name for name, one in fields if one.default is not None and not one.is_required()]
        return {name: value for name, value in table.items() if value is not None or name not in usual}

    @classmethod
    def from_dict(cls: type[Read], table: Mapping[str, Any]) -> Read:
        """Return the section that a table holds, or name every entry that is not what it should be."""
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            problems = [_problem(one) for one in error.errors(include_url=False)]
        # Out here, where the error that quotes entries is no longer attached: they may be private.
        raise ValueError(" ".join(problems))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, of the entries that were given."""
        return self.model_dump(mode="json", exclude_unset=True)


def _problem(error: Any) -> str:
    value, kind = error["input"], error["type"]
    came = f"a {type(value).__name__}"
    if kind == "missing" or value is None:
        came = "nothing" if kind == "missing" else "null"
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        came = "another number"
    words = error["msg"] if kind == "entry" else _EXPECTED.get(kind, "another entry")
    return f"Expected {words} at {'.'.join(map(str, error['loc']))}, got {came}."


def _require_format(table: Mapping[str, Any], known: tuple[int, ...], *, what: str) -> None:
    found = table.get("format")
    if isinstance(found, int) and found not in known:
        raise ValueError(
            f"Expected {what} of format {' or '.join(map(str, known))}, got format {found}. "
            "Read it with the version of tellers that wrote it."
        )


# Data, partition, mechanism


class DataPart(ResultPart):
    """Which rows there were; `n_private` is None where their number is private."""

    name: StrictStr
    n_private: Count | None = None
    n_public: Count
    n_test: Count
    n_features: Count
    class_names: Texts
    label_names: Texts = ()
    notes: Texts = ()


class PartitionPart(ResultPart):
    """Who is protected, and how many teachers there were."""

    n_teachers: Count
    unit: StrictStr
    relation: TypedRelation | None = None
    notes: Texts = ()


class MechanismPart(ResultPart):
    """The mechanism by the name of its class; its parameters stand beside the name."""

    name: StrictStr

    @model_validator(mode="before")
    @classmethod
    def _check_parameters(cls, table: Any) -> Any:
        problems: list[InitErrorDetails] = []
        given = table if isinstance(table, Mapping) else {}
        numbers = number_parameters(str(given.get("name")))
        for name, value in given.items():
            check, words = _parameter, "a finite number, text, or a list of those"
            if name in numbers:
                check, words = _number, "a finite number"
            try:
                if name != "name" and value is not None:
                    check(value)
            except ValueError:
                wrong = PydanticCustomError("entry", "{words}", {"words": words})
                problems.append({"type": wrong, "loc": (name,), "input": value})
        if problems:
            raise ValidationError.from_exception_data("mechanism", problems)
        return table

    @property
    def parameters(self) -> dict[str, Any]:
        """Return the parameters that were set: numbers, names, or lists of those."""
        return {name: value for name, value in (self.model_extra or {}).items() if value is not None}


# What was asked, and what it cost


class BudgetPart(ResultPart):
    """The budget of the ledger; infinite where there was none.

    `rule` is there where it is held on a clock, with the share of the clock that was left after the run.
    """

    epsilon: Epsilon
    delta: Share
    rule: StrictStr | None = None
    left: Share | None = None


class SpentPart(ResultPart):
    """What is guaranteed (`epsilon`, infinite where nothing is) and what the ledger was charged.

    `shared` says that other releases are on the ledger too: the numbers are then those of all together. On a
    clock nothing is `charged` but ticks, and the budget is guaranteed; `renyi` stands beside it to compare:
    the Rényi epsilon of the same releases, which holds where their list was fixed beforehand.
    """

    epsilon: Epsilon
    delta: Share
    charged: Epsilon | None = None
    renyi: Epsilon | None = None
    shared: StrictBool = False
    is_guarantee: StrictBool
    why: StrictStr = ""


class QueriesPart(ResultPart):
    """What became of the questions, and what ended the asking."""

    n_asked: Count
    n_answered: Count
    n_silent: Count
    n_by_student: Count = 0
    n_lost: Count = 0
    order: StrictStr = ""
    stopped_by: StrictStr = ""


class TestedPart(ResultPart):
    """What came of the test of a batch: all of it was released, or nothing but that it failed.

    `clear_cost` is what its labels might cost, a Rényi value at the order `held_at`, and `delta` what the
    test took of the delta of the run; both were fixed beforehand. `after_fail` says what was to follow.
    """

    __test__: ClassVar[bool] = False  # no test of its own, whatever its name begins with

    passed: StrictBool
    clear_cost: Number
    held_at: Number
    delta: Share
    after_fail: StrictStr = "stop"

    @property
    def words(self) -> str:
        """Return what came of it, in plain words."""
        if self.passed:
            return "the batch passed its test"
        if self.after_fail == "stop":
            return "the batch failed its test: nothing was released"
        return "the batch failed its test; its rows were asked again at the full price"

    @property
    def terms(self) -> str:
        """Return what was fixed beforehand, in plain words."""
        return (
            f"a clear batch may cost {self.clear_cost:g} at Rényi order {self.held_at:g}; the test takes "
            f"{self.delta:g} of delta, whatever comes out"
        )


class CostPoint(ResultPart):
    """The epsilon after so many queries; on a clock, which is one number, also what was left of it."""

    n_queries: Count
    epsilon: Epsilon
    left: Share | None = None


# People with budgets of their own

_HOW = {
    "weighting": "the more generous a group, the more its teachers' ballots count",
    "vanishing": "the stricter a group, the more queries its teachers sit out",
    "upsampling": "the more generous a person, the more teachers learn from them",
}


class GroupPart(ResultPart):
    """One group: the `epsilon` it agreed to, what is `stated`, and what was charged (`spent`).

    One of `weight`, `frequency` and `copies` says how it takes part, by the variant; `n_labels` is how many
    labels the teachers gave while it did.
    """

    name: StrictStr
    epsilon: Epsilon
    n_persons: Count
    share: Share | None = None
    waste: Number = 0.0
    n_teachers: Count
    weight: AnyNumber | None = None
    frequency: AnyNumber | None = None
    copies: AnyNumber | None = None
    stated: Epsilon
    spent: Epsilon
    budget_left: Share
    n_queries: Count
    n_labels: Count | None = None

    @property
    def how(self) -> float:
        """Return its weight, frequency or number of copies, by the variant."""
        return next((how for how in (self.weight, self.frequency, self.copies) if how is not None), 1.0)


class GroupPoint(ResultPart):
    """The epsilon of each group after so many queries, by its name."""

    n_queries: Count
    epsilon: dict[str, Epsilon]


class LeftPart(ResultPart):
    """A group whose budget was used, and after how many queries it first took no part."""

    name: StrictStr
    after: Count


class RoundPart(ResultPart):
    """Teachers that answered some of the queries, and the groups that they did not learn from."""

    absent: Texts = ()
    n_teachers: Count
    after: Count
    n_queries: Count

    @property
    def words(self) -> str:
        """Return who was asked what, in plain words."""
        who = f"without {', '.join(self.absent)}" if self.absent else "from all groups"
        teachers = f"{self.n_teachers} {'teacher' if self.n_teachers == 1 else 'teachers'}"
        first, last = self.after + 1, self.after + self.n_queries
        queries = f"query {first}" if first == last else f"queries {first} to {last}"
        return f"{teachers}, trained {who}, answered {queries}"


class PersonalPart(ResultPart):
    """The groups of a run, the strictest first, and the variant by which they took part.

    `rounds` are there where teachers were trained anew whenever a group's budget was used.
    """

    variant: StrictStr
    leave: StrictBool = False
    plan: Texts = ()
    groups: tuple[GroupPart, ...]
    cost: tuple[GroupPoint, ...] = ()
    left: tuple[LeftPart, ...] = ()
    rounds: tuple[RoundPart, ...] = ()

    def left_after(self, name: str) -> int | None:
        """Return after how many queries a group first took no part, or None if it always did."""
        return next((one.after for one in self.left if one.name == name), None)

    @property
    def words(self) -> str:
        """Return the variant in plain words."""
        return f"{self.variant}: {_HOW[self.variant]}" if self.variant in _HOW else self.variant

    @property
    def rounds_words(self) -> str:
        """Return in plain words which teachers answered what, or "" where they stayed the same."""
        if len(self.rounds) < 2 and not any(one.absent for one in self.rounds):
            return ""
        n = len(self.rounds)
        said = "; ".join(f"round {at}: {one.words}" for at, one in enumerate(self.rounds, 1))
        return (
            "When the budget of a group was used, new teachers were trained from the data of the others "
            f"alone, and the asking went on with them, {n} {'round' if n == 1 else 'rounds'} in all: {said}."
        )


# Labels, classes, student

# Averages over labels or classes on the test rows, in their order: what each is called and what it says.
SCORES = {
    "accuracy": ("Accuracy", "the share of right answers, over all rows and labels"),
    "balanced_accuracy": ("Balanced accuracy", "what is found of yes and no, on average; 50 % is guessing"),
    "auc": ("AUC", "how often a row with the label is ranked above one without it; 50 % is guessing"),
    "mean_average_precision": (
        "Mean average precision", "the precision of a ranking by the label, averaged over its rows",
    ),
    "micro_f1": ("F1, over all labels", "precision and recall of yes in one, over all answers"),
    "macro_f1": ("F1, mean of the labels", "the same of each label, averaged"),
    "micro_precision": ("Precision, over all labels", "how many of the labels that it says are true"),
    "micro_recall": ("Recall, over all labels", "how many of the true labels it says"),
    "macro_precision": ("Precision, mean of the labels", "the same of each label, averaged"),
    "macro_recall": ("Recall, mean of the labels", "the same of each label, averaged"),
}  # fmt: skip


class Column(NamedTuple):
    """A column of a table of the report: its title, the entry or property it shows, and how.

    `where` says what has to be known for it: how right released labels are ("judged"), or the student on test
    rows ("tested"). A narrow page leaves `roomy` columns out.
    """

    title: str
    entry: str
    shown: Literal["share", "bar", "count"] = "share"
    where: Literal["", "judged", "tested"] = ""
    roomy: bool = False


class LabelPart(ResultPart):
    """What was released of one label, and how well the student knows it; None where nothing can be said.

    `n_inferred` counts what followed from other labels by an implication.
    """

    name: StrictStr
    n_yes: Count
    n_no: Count
    n_silent: Count
    n_inferred: Count = 0
    labels_right: Share | None = None
    n_test_yes: Count = 0
    accuracy: Share | None = None
    balanced_accuracy: Share | None = None
    auc: Share | None = None
    average_precision: Share | None = None
    f1: Share | None = None
    precision: Share | None = None
    recall: Share | None = None

    columns: ClassVar[tuple[Column, ...]] = (
        Column("Told", "told"),
        Column("Yes", "yes", "bar"),
        Column("Right", "labels_right", where="judged", roomy=True),
        Column("Balanced accuracy", "balanced_accuracy", "bar", "tested"),
        Column("Accuracy", "accuracy", where="tested", roomy=True),
        Column("AUC", "auc", where="tested", roomy=True),
        Column("Average precision", "average_precision", where="tested", roomy=True),
        Column("F1", "f1", where="tested", roomy=True),
        Column("Rows with it", "n_test_yes", "count", "tested", roomy=True),
    )

    @property
    def told(self) -> float | None:
        """Return the share of the questions to which a yes or a no came out."""
        total = self.n_yes + self.n_no + self.n_silent
        return (self.n_yes + self.n_no) / total if total else None

    @property
    def yes(self) -> float | None:
        """Return the share of yes among what came out."""
        told = self.n_yes + self.n_no
        return self.n_yes / told if told else None


class ClassPart(ResultPart):
    """How well the student tells one class apart on the test rows; None where nothing can be said."""

    name: StrictStr
    precision: Share | None = None
    recall: Share | None = None
    f1: Share | None = None
    n_test: Count = 0

    columns: ClassVar[tuple[Column, ...]] = (
        Column("Precision", "precision", "bar"),
        Column("Recall", "recall", "bar"),
        Column("Test rows", "n_test", "count"),
    )


class StudentPart(ResultPart):
    """The student, what it learned from, and how good it is on the test rows; None where not measured."""

    kind: StrictStr
    model: StrictStr
    n_labels: Count
    labels_right: Share | None = None
    accuracy: Share | None = None
    scores: dict[str, Share | None] = {}
    per_class: tuple[ClassPart, ...] = ()

    @property
    def known_scores(self) -> dict[str, float]:
        """Return the averages over labels or classes on the test rows that are known, in their order."""
        found = ((name, self.scores.get(name)) for name in SCORES)
        return {name: value for name, value in found if value is not None}


# What was published of the cost

PUBLICATION: Final = "publication.json"
EVERYONE: Final = "everyone"
"""The name of the one line where all have the same budget."""
_FORMAT = 2
# Format 1 is of runs with budgets per group, before other runs could publish.
_FORMATS = (1, _FORMAT)


class PublishedCost(ResultPart):
    """What may be told of one group, or of everyone: budget, public cost, an upper value of the real one.

    `public` is an epsilon of the labels that holds whatever the votes were. `epsilon_upper` was published; it
    contains `charged`, the Rényi price of the publication at its order. `after` is the epsilon on the account
    then, `together` what the labels and all published numbers are held to, whatever the votes were.
    """

    name: StrictStr
    budget: Epsilon
    public: Epsilon
    epsilon_upper: Epsilon
    charged: Number
    after: Epsilon
    budget_left: Share
    together: Epsilon | None = None


class PublishedCosts(ResultPart):
    """The costs of one run, published together by one plan; public. One line, or one for each group.

    `kind` says what the run released: "classes", "labels" or, with budgets per group, "groups". `shared` says
    that other releases were on its ledger, and `on_ledger` which epsilon was on it then, of all of them.
    """

    model_config = ConfigDict(extra="ignore")

    made: StrictStr = ""
    kind: StrictStr = "groups"
    unit: StrictStr = ""
    shared: StrictBool = False
    on_ledger: Epsilon | None = None
    n_queries: Count
    delta: Number
    covers: StrictStr
    plan: PublishPlan
    groups: tuple[PublishedCost, ...]

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "PublishedCosts":
        """Read the content of a `publication.json`, or name every entry that is not what it should be."""
        _require_format(table, _FORMATS, what="a publication")
        return super().from_dict(table)

    @model_serializer(mode="wrap")
    def _with_meaning(self, write: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {"format": _FORMAT, **write(self), "meaning": list(self.meaning)}

    def as_dict(self) -> dict[str, Any]:
        """Return what `publication.json` holds, and `result.json` under `published`."""
        return self.model_dump(mode="json")

    @property
    def epsilon_upper(self) -> float:
        """Return the largest of the published values, which holds for everybody."""
        return max(group.epsilon_upper for group in self.groups)

    @property
    def confidence(self) -> str:
        """Return how surely the values are upper ones, as a text."""
        return f"{100 * self.plan.confidence:.8g} %"

    @property
    def is_drawn(self) -> bool:
        """Say whether noise was drawn: a public price needs none, and is no statement about votes."""
        return self.plan.method != "independent"

    @property
    def meaning(self) -> tuple[str, ...]:
        """Return what the values mean and what they do not, in sentences for card, report and screen."""
        if not self.is_drawn:
            return ("It holds whatever the votes were. Nothing was drawn and nothing was spent.",)
        one = self.kind != "groups"
        whose = "one teacher answers otherwise" if one else "one person of the group has other data"
        said = [
            f"{'It is an upper value' if one else 'They are upper values'} with {self.confidence} confidence"
            f"{'' if one else ' each'}, over the noise of the publication.",
            f"{'It is a statement' if one else 'They are statements'} about the votes at hand: between them "
            f"and any in which {whose}. {'It is' if one else 'They are'} no guarantee for every data set; "
            "that is the public epsilon.",
        ]
        if self.covers == "forward direction":
            said.append("As in the papers, one direction of the divergence is covered, not both.")
        paid = [
            f"{'' if one else group.name + ': '}{_rounded_up(group.charged)} at Rényi order "
            f"{self.plan.order:g}"
            for group in self.groups
        ]
        said.append(
            f"The publication itself cost {', '.join(paid)}. That is contained in what is published, and it "
            f"is on the ledger of the run{'' if one else ', where every group paid for all of them'}."
        )
        if all(group.together is not None for group in self.groups):
            held = ", ".join(
                f"{'' if one else group.name + ': '}epsilon {_rounded_up(group.together)}"
                for group in self.groups
            )
            said.append(
                "Whatever the votes were, the labels and what was published of them are held to "
                f"{held} together, at delta {self.delta:g}."
            )
        if self.shared:
            said.append("Of the releases on its ledger this is about those of this run, not the others.")
        return tuple(said)


def _rounded_up(value: float | None) -> str:
    """Return a number with four digits, rounded up."""
    if not value or not math.isfinite(value):
        return "0" if value == 0 else "infinite"
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{math.ceil(value * scale * (1 - 1e-12)) / scale:.4g}"


# The whole result

FORMAT: Final = 1


def _without_nulls(value: Any) -> Any:
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, Mapping) else value


def _all_texts(value: Any) -> Any:
    return {k: str(v) for k, v in value.items()} if isinstance(value, Mapping) else value


class RunResult(ResultPart):
    """The public numbers of one run, in the sections of its `result.json`.

    Nothing in it comes from private data except through a mechanism that was charged, and through test rows
    that are treated as public. Of a run with classes `labels` is empty and `student.per_class` has a line for
    each; of one with many labels per row it is the other way around. `personal` is there where people had
    budgets of their own, `tested` where the queries were one batch that a test let through or not, and
    `published` where something was published of the cost of these very votes. `student` names who was to
    learn also where nothing came out to learn from.
    `result["spent"]["epsilon"]` reads it as the file does.

    >>> RunResult.from_dict({"format": 1, "seed": "seven"})
    Traceback (most recent call last):
        ...
    ValueError: Expected an entry at data, got nothing. ... Expected a whole number at seed, got a str.
    """

    format: Count
    data: DataPart
    partition: PartitionPart
    mechanism: MechanismPart
    budget: BudgetPart
    spent: SpentPart
    queries: QueriesPart
    tested: TestedPart | None = None
    cost: tuple[CostPoint, ...] = ()
    personal: PersonalPart | None = None
    labels: tuple[LabelPart, ...] = ()
    student: StudentPart
    seed: Whole | None = None
    versions: Annotated[dict[str, str], BeforeValidator(_all_texts)] = {}
    started: StrictStr = ""
    seconds: Annotated[dict[str, Number], BeforeValidator(_without_nulls)] = {}
    settings: dict[str, Any] = {}
    warnings: Texts = ()
    published: PublishedCosts | None = None

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "RunResult":
        """Read the content of a `result.json`, or name every entry that is not what it should be."""
        _require_format(table, (FORMAT,), what="a result")
        published = table.get("published")
        if isinstance(published, Mapping):
            _require_format(published, _FORMATS, what="a publication")
        return super().from_dict(table)

    @property
    def is_void(self) -> bool:
        """Say whether a batch failed its test and no label came out, so that there is no student."""
        return self.tested is not None and not self.tested.passed and not self.queries.n_answered

    @property
    def curve(self) -> tuple[tuple[int, float], ...]:
        """Return the epsilon over the queries."""
        return tuple((point.n_queries, point.epsilon) for point in self.cost)

    # Code that was written for the table of the file reads it all the same.

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]

    def __contains__(self, name: object) -> bool:
        return name in self.model_fields_set

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(self.as_dict())

    def keys(self) -> Iterator[str]:
        """Return the names of the sections that are there, as in `result.json`.

        >>> "format" in list(RunResult.model_construct(format=1).keys())
        True
        """
        return iter(self)


# What only the operator may see, where the settings ask for it


class NoisePoint(ResultPart):
    """The share of right labels, on average over noise of this scale."""

    sigma: Number
    accuracy: Share


class PrivateGroups(ResultPart):
    """The exact cost of each group, or None where it cannot be told."""

    exact_cost: tuple[GroupPoint, ...] | None = None


class PrivateNumbers(ResultPart):
    """What only the operator may see: it looks at votes, teachers or private rows. Every part may be missing.

    `gaps` are how far the winner of each query was ahead; of many labels, the votes between yes and no.
    """

    n_teachers: Count | None = None
    delta: AnyNumber | None = None
    gaps: tuple[Count, ...] = ()
    exact_cost: tuple[CostPoint, ...] | None = None
    seconds: dict[str, Number] = {}
    notes: Texts = ()
    personal: PrivateGroups | None = None
    accuracy_against_noise: tuple[NoisePoint, ...] = ()
    teacher_accuracies: tuple[Share, ...] = ()
    plurality_accuracy: Share | None = None
    open_model_accuracy: Share | None = None

    def __repr__(self) -> str:
        return "PrivateNumbers(<private>)"

    __str__ = __repr__


# Files


def write_json(path: Path, content: Mapping[str, Any], *, public: bool) -> None:
    """Write numbers for machines; infinities and NaN are refused, since JSON has none."""
    text = json.dumps(content, indent=1, allow_nan=False) + "\n"
    write_whole(path, text.encode(), shared=public)


def read_json(path: Path, *, advice: str) -> dict[str, Any]:
    """Return the table that a file of numbers holds."""
    try:
        table = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"Expected a readable file at {path}, got: {error.strerror or error}.") from error
    except (ValueError, RecursionError):
        # Without the cause, which would quote from a file that may be private.
        raise ValueError(f"Expected JSON in {path}, got something else. {advice}") from None
    if not isinstance(table, dict):
        raise ValueError(f"Expected a table in {path}, got a {type(table).__name__}. {advice}")
    return table


def write_result(folder: str | PathLike[str], result: RunResult) -> None:
    """Write the public result of a run into its folder."""
    write_json(Path(folder) / "result.json", result.as_dict(), public=True)


def read_result(folder: str | PathLike[str]) -> RunResult:
    """Return the public result of a run; nothing else in its folder is opened."""
    place = Path(folder)
    if not place.is_dir():
        what = "a file" if place.exists() else "none"
        raise ValueError(
            f"Expected the folder of a run, found {what} at {place}. "
            "Give the folder that `tellers run` wrote."
        )
    if not (place / "result.json").exists():
        if not (place / "config.toml").exists():
            raise ValueError(
                f"Expected the folder of a run, {place} has neither result.json nor config.toml. "
                "Give the folder that `tellers run` wrote."
            )
        raise ValueError(f"Expected result.json in {place}: the run is not finished. {how_to_resume(place)}")
    advice = f"Move it away. {how_to_resume(place)}"
    table = read_json(place / "result.json", advice=advice)
    try:
        return RunResult.from_dict(table)
    except ValueError as error:
        if "Read it with the version" in str(error):
            raise
        raise ValueError(
            f"{place / 'result.json'}: {error} The file was changed or damaged. {advice}"
        ) from error


def how_to_resume(folder: Path) -> str:
    """Return the command that goes on with a run."""
    return f"Go on with: tellers run {folder / 'config.toml'} --out {folder} --resume"


def read_published(folder: str | PathLike[str]) -> PublishedCosts | None:
    """Return what was published of the run in a folder, or None."""
    place = Path(folder) / PUBLICATION
    if not place.exists():
        return None
    try:
        return PublishedCosts.from_dict(read_json(place, advice=""))
    except ValueError as error:
        raise ValueError(
            f"Expected what was published in {place}, got something that cannot be read: {error} Restore the "
            "file, or move it away and ask for it again: what the ledger of the run holds is not paid for "
            "twice."
        ) from error


def read_private(folder: Path) -> PrivateNumbers:
    """Return the private numbers of a run, for the operator's eyes."""
    place = folder / "private" / "summary.json"
    if not place.exists():
        raise ValueError(
            f"Expected private numbers in {place}, found none: they are computed where the settings say "
            f"`private = true` under [report]. Write the public report, or set that. {how_to_resume(folder)}"
        )
    table = read_json(place, advice=f"Move it away. {how_to_resume(folder)}")
    try:
        return PrivateNumbers.from_dict(table)
    except ValueError as error:
        raise ValueError(f"{place}: {error} The file was changed or damaged.") from error
