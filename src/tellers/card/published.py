"""What was published of a run's costs per group: `publication.json`, read and checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ..smooth import PublishPlan
from .entries import COUNT, EPSILON, NUMBER, SHARE, TABLE, TABLES, TEXT, Entries

FILE: Final = "publication.json"
_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class PublishedCost:
    """What may be told of one group: its budget, what it was charged, and an upper value of what it cost.

    `public` is the epsilon it was charged for the labels. `epsilon_upper` was published; it contains
    `charged`, the Rényi price of the publication at its order. `after` is the epsilon on its account then.

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


@dataclass(frozen=True, kw_only=True)
class PublishedCosts:
    """The costs of all groups of one run, published together by one plan; public.

    >>> PublishedCosts.from_dict({"format": 9})
    Traceback (most recent call last):
        ...
    ValueError: Expected a publication of format 1, got format 9. Read it with the version that wrote it.
    """

    plan: PublishPlan
    delta: float
    covers: str
    n_queries: int
    groups: tuple[PublishedCost, ...]
    made: str = ""

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "PublishedCosts":
        """Read the content of a `publication.json`, or say which entry is not what it should be."""
        read = Entries(table)
        found = read.at("format", COUNT)
        if found != _FORMAT:
            raise ValueError(
                f"Expected a publication of format {_FORMAT}, got format {found}. "
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
                )
                for one in groups
            ),
            made=read.at("made", TEXT, ""),
        )


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
            "file: what it holds was paid for, and is kept nowhere else."
        ) from error
