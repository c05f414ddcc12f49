"""The neighbouring relation: which two tables an epsilon compares.

An epsilon says nothing until it is said for whom. A `Relation` is that statement as a value: what one unit
is, how it may change, what it keeps, and what is public beside it. The assignment of rows to teachers decides
it; results, cards, reports and the service carry it and print the same sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import require_count

Kind = Literal["record", "person", "site", "clip", "source"]
Change = Literal["add or remove", "replace"]

_ROWS = {"record": "one row", "clip": "one clip", "site": "all rows of one site"}


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Tables are neighbours if they differ in one `unit`, by `change`; what is `public` is the same in both.

    `keeps` are columns that a changed unit keeps; `n_teachers` is how many teachers learn from one unit, and
    so how many ballots it moves.

    Guarantee: a table and its neighbour differ in the rows of `n_teachers` teachers and in nothing public.
    Assumes:   what is `public` does not depend on one unit, or need not be protected.
    Reference: Dwork and Roth 2014, definition 2.4, for tables of units instead of rows.

    >>> relation = Relation(unit="person", change="add or remove", public=("classes", "columns"))
    >>> relation.name
    'one person'
    >>> print(relation.sentence)
    Two tables are neighbours if they differ in all rows of one person, who may be added, removed or ...
    >>> Relation.from_dict(relation.as_dict()) == relation
    True
    """

    unit: Kind
    change: Change
    keeps: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    n_teachers: int = 1

    def __post_init__(self) -> None:
        for name, known in (("unit", get_args(Kind)), ("change", get_args(Change))):
            if getattr(self, name) not in known:
                words = ", ".join(map(repr, known))
                raise ValueError(f"Expected {name} to be one of {words}, got {getattr(self, name)!r}.")
        require_count(n_teachers=self.n_teachers)
        for name in ("keeps", "public"):
            object.__setattr__(self, name, tuple(str(one) for one in getattr(self, name)))

    @property
    def name(self) -> str:
        """Return what is protected, in two words."""
        return f"one {self.unit}"

    @property
    def counts_are_public(self) -> bool:
        """Say whether the number of rows may be told: where units come and go, one of them changes it."""
        return "number of rows" in self.public

    @property
    def sentence(self) -> str:
        """Return the relation in plain words, the same wherever it is printed."""
        rows = _ROWS.get(self.unit, f"all rows of one {self.unit}")
        pronoun = "who" if self.unit == "person" else "which"
        how = "added, removed or changed" if self.change == "add or remove" else "replaced by any other"
        words = f"Two tables are neighbours if they differ in {rows}, {pronoun} may be {how}"
        if self.keeps:
            words += f" with the same {' and '.join(self.keeps)}"
        words += "."
        if self.n_teachers > 1:
            words += f" Up to {self.n_teachers} teachers learn from it, and the price counts all of them."
        if self.public:
            words += f" Public and the same in both: {', '.join(self.public)}."
        return words

    def as_dict(self) -> dict[str, Any]:
        """Return the relation as plain values for JSON, with its sentence."""
        return {
            "unit": self.unit,
            "change": self.change,
            "keeps": list(self.keeps),
            "public": list(self.public),
            "n_teachers": self.n_teachers,
            "sentence": self.sentence,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Relation":
        """Return the relation that `as_dict` wrote down."""
        return cls(
            unit=values["unit"], change=values["change"], keeps=tuple(values.get("keeps", ())),
            public=tuple(values.get("public", ())), n_teachers=int(values.get("n_teachers", 1)),
        )  # fmt: skip
