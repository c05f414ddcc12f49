"""How votes become labels, in a settings file: a mechanism with its parameters, and many labels per row.

Names, parameters, their words and bounds are those that mechanisms declare (`mechanisms.registry`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from ...data._records import NAMED
from ...mechanisms.base import Mechanism, is_one_batch
from ...mechanisms.registry import (
    EVENTS,
    Parameter,
    answers_of,
    counts_parts,
    declared_fields,
    listens,
    mechanism_named,
    names,
    parameters,
    summary_of,
)
from .._catalogue import uses_torch
from ._document import toml_value
from .schema import (
    CHECKS,
    ONE_OR_MORE,
    Explaining,
    NameLists,
    Names,
    Options,
    Problem,
    Table,
    meant,
    only,
    option,
    wrong,
)  # fmt: skip

if TYPE_CHECKING:
    from ...accounting.sum_plan import SumPlan
    from ...privacy.budget import Accountant
    from ..sums import Sums

# Examples for one class per row are for 250 teachers; a settings file begins with so many times fewer.
_FEWER = 5
_LIMITS = {"above": "gt", "below": "lt", "least": "ge", "most": "le"}


@dataclass(frozen=True, init=False)
class MechanismConfig(metaclass=Explaining):
    """How votes become outcomes, with the parameters that this mechanism has and no others.

    `given` are the parameters that have a value. Each is an attribute too, and None where it has none.

    >>> MechanismConfig(name="gnmax", sigma=9).build()
    GNMax(sigma=9.0)
    >>> MechanismConfig(name="gnmax", sigma=9).sigma
    9.0
    """

    name: str
    given: Mapping[str, Any]
    title: ClassVar[str] = "mechanism"

    def __init__(
        self, *, name: str = "confident", given: Mapping[str, Any] | None = None, **changed: Any
    ) -> None:
        said = {**(given or {}), **changed}  # `dataclasses.replace` hands on what was given
        checked = _model(names()).model_validate({"name": name, **said})
        values = {key: getattr(checked, key) for key in parameters()}
        object.__setattr__(self, "name", checked.name)  # type: ignore[attr-defined]
        object.__setattr__(self, "given", {key: value for key, value in values.items() if value is not None})

    def __getattr__(self, parameter: str) -> Any:
        if parameter.startswith("_") or parameter not in parameters():
            raise AttributeError(f"{type(self).__name__} has no attribute {parameter!r}")
        return self.__dict__["given"].get(parameter)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: Any) -> core_schema.CoreSchema:
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: Any, _handler: Any) -> dict[str, Any]:
        return _model(names()).model_json_schema()

    @classmethod
    def declared(cls) -> dict[str, FieldInfo]:
        """Return the name of a mechanism and the parameters of all of them, as options of a file.

        >>> list(MechanismConfig.declared())[:2]
        ['name', 'gamma']
        """
        return _model(names()).model_fields

    def told(self) -> dict[str, FieldInfo]:
        """Return the options that a written file shows: those for labels only with a mechanism for them.

        >>> "share" in MechanismConfig(name="gnmax").told()
        False
        """
        hidden = [] if self.is_for_labels else [one.name for one in parameters().values() if one.for_labels]
        return {name: info for name, info in self.declared().items() if name not in hidden}

    @property
    def kind(self) -> Any:
        """Return the class of the mechanism."""
        return mechanism_named(self.name)

    @property
    def is_for_labels(self) -> bool:
        """Return whether it is a mechanism for many labels per row."""
        return answers_of(self.kind) == "labels"

    @property
    def is_sum(self) -> bool:
        """Return whether it releases the scores of a whole pool at once, by the section [sum]."""
        return answers_of(self.kind) == "scores"

    @property
    def hears_student(self) -> bool:
        """Return whether it asks for what the student thinks, so that it is taught between queries."""
        return listens(self.kind)

    @property
    def is_one_batch(self) -> bool:
        """Return whether all of its queries are asked in one batch, whose size is a parameter of its own."""
        return is_one_batch(self.kind)

    @property
    def has_exact_cost(self) -> bool:
        """Return whether its cost can be followed query by query, along a path that was fixed beforehand."""
        return hasattr(self.kind, "outcomes") and not self.hears_student

    def build(self, kind: Any = None, /, **more: Any) -> Mechanism:
        """Return the mechanism itself, or one like it of another kind; for many labels it is told more."""
        given = {**self.given, **more}
        if len(given.get("share", ())) == 1:  # one for all labels
            given["share"] = given["share"][0]
        mechanism: Mechanism = (kind or self.kind)(**given)
        return mechanism

    def _rules(self, whole: Any) -> Iterator[Problem]:
        unfit = whole._unfit_mechanism()
        if unfit:
            yield wrong("mechanism.name", unfit)
            return
        if self.is_sum:
            for name in self.given:
                words = f'Expected no {name} with mechanism "{self.name}", got one: see [sum] or [pool].'
                yield wrong(f"mechanism.{name}", words, "mechanism.name")
            if not self.given:
                yield from whole._mechanism_refusals()
            return
        own = [one for one in declared_fields(self.kind) if not one.metadata.get("of_votes")]
        missing = [one.name for one in own if one.default is MISSING and one.name not in self.given]
        foreign = [name for name in self.given if name not in [one.name for one in own]]
        for name in missing:
            words = f'Expected {name} for mechanism "{self.name}", got none. For example: '
            example = toml_value(_example(self.kind, name))
            yield wrong(f"mechanism.{name}", f"{words}{name} = {example}", "mechanism.name")
        for name in foreign:
            yield wrong(
                f"mechanism.{name}",
                f'Expected only {", ".join(one.name for one in own)} for mechanism "{self.name}", got {name} '
                "too. Drop it, or choose the mechanism it belongs to.",
                "mechanism.name",
            )
        if not missing and not foreign:
            yield from whole._mechanism_refusals()

    def _refusal(self, error: Exception) -> Problem:
        """Return what a mechanism refused beyond the limits of each option, as a problem of the parameter."""
        about = [name for name in self.given if re.search(rf"\b{name}\b", str(error))]
        return wrong(f"mechanism.{about[-1] if about else 'name'}", str(error), "mechanism.name")


def unfit_for_queries(name: str) -> str:
    """Return why a mechanism that takes the scores of a whole pool is not for who asks query by query."""
    return (
        f'Expected a mechanism that answers query by query, got "{name}", which releases the scores of a '
        "whole pool at once. Ask it by a run: tellers run."
    )


@cache
def _model(known: tuple[str, ...]) -> type[BaseModel]:
    """Return the options that these mechanisms make, with their types and limits."""
    summaries = " ".join(f"{name}: {summary_of(name)}." for name in names("classes"))
    sums = " ".join(f"{name}: {summary_of(name)}; see [sum]." for name in names("scores"))
    words = f"{summaries} {sums} Names for many labels are with [labels]."
    choices: Any = Literal[known]
    fields: dict[str, Any] = {"name": (choices, option("confident", words))}
    fields |= {one.name: _option(one) for one in parameters().values()}
    return create_model("mechanism", __config__=CHECKS, **fields)


def _option(one: Parameter) -> tuple[Any, Any]:
    """Return the type and the field of a parameter."""
    limits: dict[str, Any] = {_LIMITS[name]: one.limits[name] for name in _LIMITS if name in one.limits}
    kind, words, form = one.kind, one.words, one.limits.get("form")
    if form == "groups":
        kind, words, limits = NameLists, f"{words[:-1]}, by name.", {}
    elif form == "numbers":
        element = Annotated[float, Field(**limits)]
        kind, limits = Annotated[tuple[element, ...], Field(min_length=1), ONE_OR_MORE], {}
    elif "choices" in one.limits:
        kind = Literal[one.limits["choices"]]
    example = _example(mechanism_named(one.owners[0]), one.name)
    return kind | None, option(None, words, examples=[example], **limits)


def _example(kind: Any, parameter: str) -> Any:
    """Return a value of a mechanism's parameter that makes sense."""
    [said] = [field.metadata for field in declared_fields(kind) if field.name == parameter]
    if said.get("form") == "groups":
        return [["rain", "wind"], ["snow"]]
    value = said.get("example", "...")
    if "in_votes" in said and answers_of(kind) == "classes":
        value = value / _FEWER ** said["in_votes"]
    return value


# Many labels per row: which there are, what goes with what, and the mechanism it makes

_NAMES = "labels.names"
_CHOSEN = "mechanism.name"
_EXAMPLE = 'For example, in [labels]: names = ["rain", "wind"]'


class LabelsConfig(Options, title="labels"):
    """Many labels per row: teachers say yes or no to each of them.

    >>> LabelsConfig(names=("rain", "wind"), thresholds=0.3).thresholds
    (0.3,)
    """

    names: Names = option(
        (),
        "All labels, which makes it a run of many labels per row. files: the columns of 0 and 1; of voc, "
        "chexpert and mulan those that are wanted. [mechanism] "
        f"is then one of {', '.join(names('labels')[:-1])} or {names('labels')[-1]}.",
    )
    thresholds: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], ONE_OR_MORE] = option(
        (0.5,),
        "From which probability on a teacher says yes, one for all labels or one each; fixed beforehand, or "
        "on public rows.",
        min_length=1,
    )
    resolution: int = option(
        1,
        "binary, gnthreshold and their kin: teachers hand in probabilities, counted in so many parts of a "
        "vote; 1 = yes or no.",
        ge=1,
        le=10_000,
    )
    implies: Table = option(
        dict,
        'binary: where a label is present, so are those, e.g. {pneumonia = ["opacity"]}; not asked then.',
    )
    implies_not: Table = option(
        dict, 'binary: where a label is absent, so are those, e.g. {opacity = ["pneumonia"]}; not asked then.'
    )

    def build(self, chosen: MechanismConfig) -> Mechanism:
        """Return the mechanism for these labels.

        >>> LabelsConfig(names=("rain", "wind")).build(MechanismConfig(name="binary", sigma=9.0))
        Binary(sigma=9.0, n_labels=2, resolution=1)
        """
        more: dict[str, Any] = {"n_labels": len(self.names)}
        if counts_parts(chosen.kind):
            more["resolution"] = self.resolution
        if chosen.groups:
            more["groups"] = tuple(tuple(map(self.names.index, group)) for group in chosen.groups)
        if not self.implies and not self.implies_not:
            return chosen.build(**more)
        more |= {"positive": self._pairs(self.implies), "negative": self._pairs(self.implies_not)}
        return chosen.build(_with_implications()[chosen.kind], **more)

    def _pairs(self, told: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
        at = self.names.index
        return tuple((at(cause), at(effect)) for cause, effects in told.items() for effect in effects)

    def _rules(self, whole: Any) -> Iterator[Problem]:
        data, chosen = whole.data, whole.mechanism
        if not self.names:
            yield from self._without_names(whole)
            return
        if not chosen.is_for_labels and not chosen.is_sum:
            yield wrong(
                _CHOSEN,
                f"Expected one of {', '.join((*names('labels'), *names('scores')))} where rows have many "
                f'labels, got "{chosen.name}". For example: name = "binary" and sigma = 8.0 in [mechanism]',
                _NAMES,
            )
        if not data.record.load_labels:
            able = [toml_value(name) for name, one in NAMED.items() if one.load_labels]
            yield wrong(
                "data.name",
                f"Expected {', '.join(able[:-1])} or {able[-1]} where rows have many labels, got "
                f'"{data.name}", in which each has one class.',
                _NAMES,
            )
        for name, those in (("target", ("files",)), ("classes", ("files", "clips"))):
            if getattr(data, name) and data.name in those:
                words = "Expected none where rows have many labels, got one."
                yield wrong(f"data.{name}", f"{words} [labels] names says their columns.", _NAMES)
        for role in ("person", "site"):
            if getattr(data, role) in self.names:
                words = f"Expected a column of its own, [data] {role} names one of them too."
                yield wrong(_NAMES, words, f"data.{role}")
        for key, wanted, why in (
            ("partition.stratified", (False,), "which have no classes to deal evenly"),
            ("personal.variant", ("",), "whose price per group is not known yet"),
            ("queries.order", ("shuffled", "given", "typical"), "as a student is unsure per label"),
            (
                "student.kind",
                ("supervised", "semi_supervised"),
                "of which no shares are released and none is guessed",
            ),
        ):
            yield from whole.expect(key, wanted, f"for many labels per row, {why}", _NAMES)
        yield from self._one_for_each("labels.thresholds", self.thresholds)
        if chosen.is_for_labels:
            yield from self._mechanism_rules(whole)

    def _without_names(self, whole: Any) -> Iterator[Problem]:
        for name in self.changed():
            words = f"Expected it only with names, got it without. {_EXAMPLE}"
            yield wrong(f"labels.{name}", words, _NAMES)
        if whole.mechanism.is_for_labels:
            yield wrong(
                _CHOSEN,
                f"Expected one of {', '.join(names('class'))} where each row has one class, got "
                f'"{whole.mechanism.name}", which is for rows of many labels. {_EXAMPLE}',
                _NAMES,
            )
        named, is_clips = whole.data.name, whole.data.name == "clips"
        if not whole.data.record.load and not (is_clips and whole.data.classes):
            more = ' Or, where every clip has one, in [data]: classes = ["dog", "rain"]' if is_clips else ""
            yield wrong("data.name", f'Expected labels for "{named}", got none. {_EXAMPLE}{more}', _NAMES)

    def _mechanism_rules(self, whole: Any) -> Iterator[Problem]:
        """Return what of a mechanism does not fit these labels."""
        chosen = whole.mechanism
        if not counts_parts(chosen.kind):
            when = f'with mechanism "{chosen.name}", which counts yes and no'
            yield from whole.expect("labels.resolution", (1,), when, _CHOSEN)
        if "thresholds" in self.changed():
            when = "with thresholds, which turn probabilities into yes and no"
            advice = "Keep one of the two."
            yield from whole.expect("labels.resolution", (1,), when, "labels.thresholds", advice=advice)
        in_groups = [name for group in chosen.groups or () for name in group]
        yield from self._known("mechanism.groups", in_groups)
        if len(set(in_groups)) < len(in_groups):
            yield wrong("mechanism.groups", "Expected every label in one group at most, got one twice.")
        yield from self._one_for_each("mechanism.share", chosen.share or (0.5,))
        for key, told in (("labels.implies", self.implies), ("labels.implies_not", self.implies_not)):
            if told and chosen.kind not in _with_implications():
                able = [name for name in names("labels") if mechanism_named(name) in _with_implications()]
                listed = " or ".join(map(toml_value, able))
                yield wrong(key, f'Expected it only with mechanism {listed}, got "{chosen.name}".', _CHOSEN)
            for cause, effects in told.items():
                if isinstance(effects, (list, tuple)) and all(isinstance(e, str) for e in effects):
                    yield from self._known(key, (cause, *effects))
                    continue
                table, name = key.split(".")
                words = f"Expected a list of labels, got {toml_value(effects)}. For example: "
                yield wrong((table, name, cause), f'{words}{name} = {{{cause} = ["wind"]}}')

    def _known(self, key: str, said: "list[str] | tuple[str, ...]") -> Iterator[Problem]:
        for name in said:
            if name not in self.names:
                words = f"Expected labels of [labels] names, got {toml_value(name)}, which is none."
                yield wrong(key, words + meant(name, self.names), _NAMES)

    def _one_for_each(self, key: str, numbers: tuple[float, ...]) -> Iterator[Problem]:
        n_labels, n_given = len(self.names), len(numbers)
        if n_given not in (1, n_labels):
            words = f"Expected one number, or one for each of {n_labels} labels, got {n_given}."
            yield wrong(key, words, _NAMES)

    def _refusals(self, whole: Any) -> Iterator[Problem]:
        """Return what the mechanism itself refuses, once its parameters are all there."""
        if not self.names or any(self._mechanism_rules(whole)):
            return
        try:
            self.build(whole.mechanism)
        except ValueError as error:
            words = str(error)
            if "implications" not in words:
                yield whole.mechanism._refusal(error)
                return
            # By name, where a mechanism that only knows numbers has none.
            words = re.sub(r"\blabel (\d+)\b", lambda found: self.names[int(found[1])], words)
            yield wrong(f"labels.{'implies_not' if self.implies_not else 'implies'}", words, _CHOSEN, _NAMES)


def _with_implications() -> dict[type, type]:
    """Return which mechanisms may be told what labels follow from others, and those that they are then."""
    kinds = [kind for kind in EVENTS.values() if hasattr(kind, "adds_implications_to")]
    return {kind.adds_implications_to: kind for kind in kinds}


# One Gaussian sum: its noise, its prior and its directions

AUTO = "auto"
"""The model that suits a Gaussian sum, in place of a name."""

# Options of other sections that say nothing of one sum for the whole pool.
_USUAL: dict[str, Any] = {
    "queries.order": "shuffled", "queries.n_queries": 0, "queries.n_labels": 0, "personal.variant": "",
    "labels.thresholds": (0.5,), "labels.resolution": 1, "labels.implies": {}, "labels.implies_not": {},
    "cluster.address": "", "student.kind": "supervised", "report.private": False,
}  # fmt: skip
_Share = Annotated[float, Field(gt=0, lt=1)]


class SumConfig(Options, title="sum"):
    """How one Gaussian sum is asked for, with mechanism "gaussian-sum".

    >>> SumConfig(prior_share=0.1).asked()
    Sums(mechanism=None, prior=None, prior_share=0.1, n_directions=50, balance=0.25)
    """

    sigma: float = option(
        0.0,
        "Standard deviation of the noise on every entry of the sum, in norms of one ballot; 0 = the least "
        "that the budget affords.",
        ge=0,
    )
    prior: Annotated[tuple[_Share, ...], ONE_OR_MORE] = option(
        (),
        "How often each class or label is true, from public knowledge, one share each; [] = noisy shares are "
        "bought.",
    )
    prior_share: float = option(0.05, "The part of the price that a bought prior takes.", gt=0, lt=1)
    n_directions: int = option(
        50, "Scores are brought onto so many directions in which the pool differs most.", ge=1
    )
    balance: float = option(
        0.25, "A column of frequency p has the weight (p (1 - p)) ** -balance.", ge=0, le=1
    )

    def asked(self) -> "Sums":
        """Return how the sum is asked for, as `ask_sum` takes it."""
        from ...accounting.sum_plan import given_sum
        from ..sums import Sums

        return Sums(
            mechanism=given_sum(self.sigma) if self.sigma else None, prior=self.prior or None,
            prior_share=self.prior_share, n_directions=self.n_directions, balance=self.balance,
        )  # fmt: skip

    def plan(self, accountant: "Accountant") -> "SumPlan":
        """Return the sum and its prior as a budget of which nothing is spent has them.

        >>> from tellers import Accountant, Budget
        >>> round(SumConfig().plan(Accountant(Budget(1.0, 1e-5))).scores.sigma, 2)
        8.3
        """
        from ...accounting.sum_plan import given_sum, plan_sum, with_prior

        share = 0.0 if self.prior else self.prior_share
        given = with_prior(given_sum(self.sigma), prior_share=share) if self.sigma else None
        return given or plan_sum(accountant, prior_share=share)

    def _rules(self, whole: Any) -> Iterator[Problem]:
        if not whole.mechanism.is_sum:
            for name in self.changed():
                yield only(f"sum.{name}", 'mechanism "gaussian-sum"', _CHOSEN)
            for section in ("teachers", "student"):
                if getattr(whole, section).model == AUTO:
                    yield only(f"{section}.model", 'mechanism "gaussian-sum"', _CHOSEN)
            return
        n_columns = len(whole.labels.names or whole.data.classes)
        if self.prior and n_columns and len(self.prior) != n_columns:
            words = f"Expected one share for each of {n_columns} classes or labels, got {len(self.prior)}."
            yield wrong("sum.prior", words, "labels.names", "data.classes")
        if self.prior and "prior_share" in self.changed():
            yield only("sum.prior_share", "a prior that is bought, prior = []", "sum.prior")
        when = 'with mechanism "gaussian-sum", which asks teachers for their scores of the whole pool at once'
        for key, value in _USUAL.items():
            section, name = key.split(".")
            if getattr(getattr(whole, section), name) != value:
                yield from whole.expect(key, (value,), when, _CHOSEN)
        yield from self._model_rules(whole)

    def _model_rules(self, whole: Any) -> Iterator[Problem]:
        student, teachers = whole.student, whole.teachers
        if student.model != AUTO and ":" not in student.model:
            yield wrong(
                "student.model",
                'Expected "auto", or a regressor as package.module:Name, with mechanism "gaussian-sum", of '
                f'which noisy scores come out, got "{student.model}".',
                _CHOSEN,
            )
        if uses_torch(teachers.model):
            yield wrong(
                "teachers.model",
                'Expected "auto" or a model of scikit-learn with mechanism "gaussian-sum", got '
                f'"{teachers.model}". Networks answer by the query.',
                _CHOSEN,
            )
        for section, chosen in (("teachers", teachers), ("student", student)):
            if chosen.model == AUTO and chosen.parameters:
                words = 'Expected none with model = "auto", got some. Leave them out, or name a model.'
                yield wrong(f"{section}.parameters", words, f"{section}.model")
