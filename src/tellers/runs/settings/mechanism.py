"""How votes become labels, in a settings file: a mechanism by its name, and its parameters.

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

from ...mechanisms.registry import (
    Parameter,
    answers_of,
    declared_fields,
    listens,
    mechanism_named,
    names,
    parameters,
    summary_of,
)
from ._document import toml_value
from .schema import CHECKS, ONE_OR_MORE, Explaining, NameLists, Problem, option, wrong

if TYPE_CHECKING:
    from ...mechanisms.base import Mechanism


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
    def hears_student(self) -> bool:
        """Return whether it asks for what the student thinks, so that it is taught between queries."""
        return listens(self.kind)

    @property
    def has_exact_cost(self) -> bool:
        """Return whether its cost can be followed query by query, along a path that was fixed beforehand."""
        return hasattr(self.kind, "outcomes") and not self.hears_student

    def build(self, kind: Any = None, /, **more: Any) -> "Mechanism":
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


@cache
def _model(known: tuple[str, ...]) -> type[BaseModel]:
    """Return the options that these mechanisms make, with their types and limits."""
    summaries = " ".join(f"{name}: {summary_of(name)}." for name in names("classes"))
    words = f"{summaries} Names for many labels are with [labels]."
    fields: dict[str, Any] = {"name": (Literal[known], option("confident", words))}
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
