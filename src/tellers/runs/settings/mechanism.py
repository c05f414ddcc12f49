"""How votes become labels, in a settings file: a mechanism by its name, and its parameters.

Names, parameters, their words and bounds are those that mechanisms declare (`mechanisms.registry`).
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import TYPE_CHECKING, Any

from ...mechanisms.base import listens
from ...mechanisms.registry import answers_of, declared_fields, mechanism_named, names, parameters, summary_of
from ._fields import complain, option, toml_value

if TYPE_CHECKING:
    from ...mechanisms.base import Mechanism


# Examples for one class per row are for 250 teachers; a settings file begins with so many times fewer.
_FEWER = 5


@dataclass(frozen=True, init=False)
class MechanismConfig:
    """How votes become outcomes, with the parameters that this mechanism has and no others.

    `given` are the parameters that have a value. Each is an attribute too, and None where it has none.

    >>> MechanismConfig(name="gnmax", sigma=9).build()
    GNMax(sigma=9.0)
    >>> MechanismConfig(name="gnmax", sigma=9).sigma
    9.0
    """

    name: str
    given: Mapping[str, Any]

    def __init__(
        self, *, name: str = "confident", given: Mapping[str, Any] | None = None, **changed: Any
    ) -> None:
        from ._checks import check_options  # which knows the sections, this one too

        said = {**(given or {}), **changed}  # `dataclasses.replace` hands on what was given
        values = {"name": name, **{key: value for key, value in said.items() if value is not None}}
        checked, problems = check_options(type(self), values, ("mechanism",))
        complain(problems)
        object.__setattr__(self, "name", checked.pop("name"))
        object.__setattr__(self, "given", {key: checked[key] for key in parameters() if key in checked})

    def __getattr__(self, parameter: str) -> Any:
        if parameter.startswith("_") or parameter not in parameters():
            raise AttributeError(f"{type(self).__name__} has no attribute {parameter!r}")
        return self.__dict__["given"].get(parameter)

    @staticmethod
    def declared_options() -> "list[Field[Any]]":
        """Return the name of a mechanism and the parameters of all of them, as options of a file.

        >>> [option.name for option in MechanismConfig.declared_options()][:2]
        ['name', 'gamma']
        """
        known = " ".join(f"{name}: {summary_of(name)}." for name in names("class"))
        words = f"{known} Names for many labels are with [labels]."
        found = [_named("name", str, option("confident", words, choices=names()))]
        for one in parameters().values():
            words = f"{one.words[:-1]}, by name." if one.limits.get("form") == "groups" else one.words
            example = example_of(one.owners[0], one.name)
            limits = {**one.limits, "example": example, "for_labels": one.for_labels}
            found.append(_named(one.name, one.kind, option(None, words, **limits)))
        return found

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

    def build(self) -> "Mechanism":
        """Return the mechanism itself, for one class per row; see `RunConfig.build_mechanism` for labels."""
        mechanism: Mechanism = self.kind(**self.given)
        return mechanism


def example_of(name: str, parameter: str) -> str:
    """Return a value of a mechanism's parameter that makes sense, as a file would write it."""
    kind = mechanism_named(name)
    [said] = [field.metadata for field in declared_fields(kind) if field.name == parameter]
    if said.get("form") == "groups":
        return '[["rain", "wind"], ["snow"]]'
    value = said.get("example", "...")
    if "in_votes" in said and answers_of(kind) == "class":
        value = value / _FEWER ** said["in_votes"]
    return toml_value(value)


def _named(name: str, kind: Any, made: "Field[Any]") -> "Field[Any]":
    made.name, made.type = name, kind
    return made
