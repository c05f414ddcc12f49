"""What was published of a run's costs: `publication.json` and its part of `result.json`, read and checked."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ..smooth import PublishPlan
from .entries import COUNT, EPSILON, FLAG, NUMBER, SHARE, TABLE, TABLES, TEXT, Entries

FILE: Final = "publication.json"
EVERYONE: Final = "everyone"
"""The name of the one line where all have the same budget."""
_FORMAT = 2
# Of a run with budgets per group alone, before other runs had one.
_FORMATS = (1, _FORMAT)


@dataclass(frozen=True, kw_only=True)
class PublishedCost:
    """What may be told of one group, or of everyone: budget, public cost, an upper value of the real one.

    `public` is an epsilon of the labels that holds whatever the votes were. `epsilon_upper` was published; it
    contains `charged`, the Rényi price of the publication at its order. `after` is the epsilon on the account
    then, `together` what the labels and all published numbers are held to, whatever the votes were.

    >>> PublishedCost(
    ...     name="low", budget=5.0, public=2.8, epsilon_upper=2.1, charged=0.05, after=2.9, budget_left=0.6
    ... ).epsilon_upper
    2.1
    """

    name: str
    budget: float
    public: float
    epsilon_upper: float
    charged: float
    after: float
    budget_left: float
    together: float | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedCosts:
    """The costs of one run, published together by one plan; public. One line, or one for each group.

    `kind` says what the run released: "classes", "labels" or, with budgets per group, "groups". `shared` says
    that other releases were on its ledger, and `on_ledger` which epsilon was on it then, of all of them.

    >>> line = PublishedCost(
    ...     name="everyone", budget=5.0, public=2.8, epsilon_upper=2.1, charged=0.05, after=2.9,
    ...     budget_left=0.6, together=2.9,
    ... )
    >>> plan = PublishPlan("envelope", 12.0, 0.02, 30.0, confidence=0.95, expected_epsilon=2.2)
    >>> told = PublishedCosts(
    ...     plan=plan, delta=1e-5, covers="both directions", n_queries=90, groups=(line,), kind="classes"
    ... )
    >>> told.epsilon_upper, told.is_drawn, told.confidence, told.meaning[0]
    (2.1, True, '95 %', 'It is an upper value with 95 % confidence, over the noise of the publication.')
    >>> PublishedCosts.from_dict(told.as_dict()) == told
    True
    >>> PublishedCosts.from_dict({"format": 9})
    Traceback (most recent call last):
        ...
    ValueError: Expected a publication of format 1 or 2, got format 9. Read it with the version that wrote it.
    """

    plan: PublishPlan
    delta: float
    covers: str
    n_queries: int
    groups: tuple[PublishedCost, ...]
    made: str = ""
    kind: str = "groups"
    unit: str = ""
    shared: bool = False
    on_ledger: float | None = None

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "PublishedCosts":
        """Read the content of a `publication.json`, or say which entry is not what it should be."""
        read = Entries(table)
        found = read.at("format", COUNT)
        if found not in _FORMATS:
            raise ValueError(
                f"Expected a publication of format {' or '.join(map(str, _FORMATS))}, got format {found}. "
                "Read it with the version that wrote it."
            )
        settings: dict[str, Any] = read.at("plan", TABLE)
        plan = Entries(settings)
        method: Any = plan.at("method", TEXT)
        groups = [Entries(group) for group in read.at("groups", TABLES)]
        return cls(
            plan=PublishPlan(
                method,
                plan.at("order", NUMBER),
                plan.at("beta", NUMBER),
                plan.at("sigma_release", NUMBER),
                confidence=plan.at("confidence", SHARE),
                expected_epsilon=plan.at("expected_epsilon", EPSILON),
                offset=plan.at("offset", NUMBER, None),
            ),
            delta=read.at("delta", NUMBER),
            covers=read.at("covers", TEXT),
            n_queries=read.at("n_queries", COUNT),
            groups=tuple(
                PublishedCost(
                    name=one.at("name", TEXT),
                    budget=one.at("budget", EPSILON),
                    public=one.at("public", EPSILON),
                    epsilon_upper=one.at("epsilon_upper", EPSILON),
                    charged=one.at("charged", NUMBER),
                    after=one.at("after", EPSILON),
                    budget_left=one.at("budget_left", SHARE),
                    together=one.at("together", EPSILON, None),
                )
                for one in groups
            ),
            made=read.at("made", TEXT, ""),
            kind=read.at("kind", TEXT, "groups"),
            unit=read.at("unit", TEXT, ""),
            shared=read.at("shared", FLAG, False),
            on_ledger=read.at("on_ledger", EPSILON, None),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return what `publication.json` holds, and `result.json` under `published`."""
        return {
            "format": _FORMAT,
            "made": self.made,
            "kind": self.kind,
            "unit": self.unit,
            "shared": self.shared,
            "on_ledger": self.on_ledger,
            "n_queries": self.n_queries,
            "delta": self.delta,
            "covers": self.covers,
            "plan": asdict(self.plan),
            "groups": [asdict(group) for group in self.groups],
            "meaning": list(self.meaning),
        }

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
            f"{'' if one else group.name + ': '}{_up(group.charged)} at Rényi order {self.plan.order:g}"
            for group in self.groups
        ]
        said.append(
            f"The publication itself cost {', '.join(paid)}. That is contained in what is published, and it "
            f"is on the ledger of the run{'' if one else ', where every group paid for all of them'}."
        )
        if all(group.together is not None for group in self.groups):
            held = ", ".join(
                f"{'' if one else group.name + ': '}epsilon {_up(group.together)}" for group in self.groups
            )
            said.append(
                "Whatever the votes were, the labels and what was published of them are held to "
                f"{held} together, at delta {self.delta:g}."
            )
        if self.shared:
            said.append("Of the releases on its ledger this is about those of this run, not the others.")
        return tuple(said)


def _up(value: float | None) -> str:
    """Return a number with four digits, rounded up."""
    if not value or not math.isfinite(value):
        return "0" if value == 0 else "infinite"
    scale = 10.0 ** (3 - math.floor(math.log10(value)))
    return f"{math.ceil(value * scale * (1 - 1e-12)) / scale:.4g}"


def read_published(folder: str | PathLike[str]) -> PublishedCosts | None:
    """Return what was published of the run in a folder, or None.

    >>> read_published("nowhere")
    """
    place = Path(folder) / FILE
    if not place.exists():
        return None
    try:
        table = json.loads(place.read_bytes())
        if not isinstance(table, dict):
            raise ValueError("Expected a table.")
        return PublishedCosts.from_dict(table)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"Expected what was published in {place}, got something that cannot be read: {error} Restore the "
            "file, or move it away and ask for it again: what the ledger of the run holds is not paid for "
            "twice."
        ) from error
