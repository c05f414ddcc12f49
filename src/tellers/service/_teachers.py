"""What a service serves: teachers, or their votes on a pool, loaded from the settings."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from ..mechanisms.base import Mechanism, price_of
from ..mechanisms.registry import counts_parts, listens
from ..privacy import OneOf, SetOf, Unit
from ..privacy._files import load_npy
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve
from ..privacy.relation import Relation
from ..runs._folder import RunFolder, require_queries
from ..runs.personal.plan import PersonalPlan
from ..runs.result import read_result
from ..runs.room import Voters
from ..runs.settings.files import read_config
from ..teachers.ensemble import load_ensemble
from ..teachers.pool import open_pool
from ._ledger import read_plan
from .settings import ServiceSettings, unfit_for_single_questions

Asked = NDArray[np.float64] | NDArray[np.int64]


class NotAnswerable(ValueError):
    """A question that these teachers cannot be asked; nothing was charged."""


@dataclass(frozen=True, eq=False, repr=False)
class Served:
    """What a service serves: teachers, a mechanism, the budget and the ledger of a run or of the settings.

    Rows get one of `n_classes` classes, or some of `n_labels` labels: the other is 0. `n_pool` is how many
    rows can be asked by their id, `n_features` the width of rows that can be asked as they are; either may
    be 0.
    """

    ensemble: Voters
    mechanism: Mechanism
    budget: Budget
    ledger: str
    n_classes: int
    n_teachers: int
    n_pool: int = 0
    n_features: int = 0
    # The numbers of a row, as bytes, to its id; empty where no rows of a pool are known.
    ids: dict[bytes, int] | None = None
    pool: NDArray[np.float64] | None = None
    # How groups of people with budgets of their own take part, and whether they leave when theirs is used.
    plan: PersonalPlan | None = None
    leave: bool = False
    relation: Relation | None = None
    n_labels: int = 0
    label_names: tuple[str, ...] = ()
    rule: str = "renyi"

    @property
    def accountant(self) -> Accountant:
        """Return the arithmetic of the budget, by the rule of its ledger."""
        return Accountant.by(self.rule, self.budget, price=self.price if self.rule == "clock" else None)

    @property
    def price(self) -> RdpCurve:
        """Return the price of one query, by the numbers of teachers and classes; groups have their own."""
        return price_of(self.mechanism, Unit(), **self.counts)

    @property
    def is_quick(self) -> bool:
        """Return whether votes are there to be looked up, and no teacher has to be asked."""
        return self.ids is not None or not self.n_features

    @property
    def counts(self) -> dict[str, Any]:
        """Return the numbers of teachers and classes that prices go by."""
        return {"n_teachers": self.n_teachers, **({"n_classes": self.n_classes} if self.n_classes else {})}

    @property
    def listens(self) -> bool:
        """Return whether the mechanism wants to hear the student's probabilities."""
        return listens(self.mechanism)

    def question(self, rows: list[list[float]] | None, ids: list[int] | None) -> Asked:
        """Return what the room is asked with, or refuse rows on which there are no votes.

        Widths, ids and which of both may be sent are in the model of questions.
        """
        if ids is not None:
            wanted = np.asarray(ids, dtype=np.int64)
            return wanted if self.pool is None else self.pool[wanted]
        asked = np.asarray(rows, dtype=np.float64)
        if self.ids is None:
            return asked
        found = [self.ids.get(row.tobytes(), -1) for row in asked + 0.0]  # -0.0 is 0.0
        if -1 in found:
            raise NotAnswerable(
                f"Row {found.index(-1)} is none of the pool's, and there are votes on no others."
            )
        return np.asarray(found, dtype=np.int64)

    def belief(self, student: list[list[float]] | None, n_queries: int) -> NDArray[np.float64] | None:
        """Return the student's probabilities, checked before anything is charged for them."""
        if student is None:
            return None
        if len(student) != n_queries:
            raise NotAnswerable(f"Expected {self.n_classes} probabilities of the student for each query.")
        belief = np.asarray(student, dtype=np.float64)
        if (abs(belief.sum(axis=1) - 1) > 1e-6).any():
            raise NotAnswerable("Expected probabilities of the student that are at least 0 and sum to 1.")
        return belief


def open_served(settings: ServiceSettings) -> Served:
    """Load what the settings name, or say which of them names nothing of the kind."""
    data, place = settings.data, settings.path(settings.data.path)
    try:
        served = _LOADERS[data.source](settings, place)
        has_ballots = getattr(served.ensemble, "has_ballots", True)
        plan = read_plan(settings, served.mechanism, n_teachers=served.n_teachers, has_ballots=has_ballots)
        if plan is not None and served.rule == "clock":
            settings.refuse(
                "ledger.rule",
                'Expected "renyi" where groups of people pay from budgets of their own, got "clock": the '
                "data are charged the largest of several prices, which a clock has none of.",
            )
        served = replace(served, plan=plan, leave=settings.personal.leave)
        _require_priced(settings, served)
        return served
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        settings.refuse("data.path", str(error))


def _require_priced(settings: ServiceSettings, served: Served) -> None:
    """Refuse a mechanism that a clock has no price for, before a ledger is begun."""
    if served.rule != "clock":
        return
    try:
        served.accountant.affords(RdpCurve.zero(), served.price)
    except ValueError as error:
        name = type(served.mechanism).__name__
        settings.refuse("ledger.rule", f"Expected a mechanism with a clock price, got {name}. {error}")


def _from_run(settings: ServiceSettings, place: Path) -> Served:
    folder = RunFolder(place)
    if folder.config.is_file():
        require_queries(read_config(folder.config), "for a service", "Hand out its student.")
    if not folder.votes.is_file() or not folder.config.is_file():
        raise ValueError(f"Expected the folder of a finished run at {place}, got none.")
    run, result = read_config(folder.config), read_result(place)
    names, chosen = run.labels.names, settings.mechanism or run.mechanism
    if chosen.is_for_labels != bool(names):
        wanted = "many labels" if names else "one class per row"
        settings.refuse(
            "mechanism.name", f'Expected a mechanism for {wanted}, as of the run, got "{chosen.name}".'
        )
    if chosen.is_one_batch:
        settings.refuse("mechanism.name", unfit_for_single_questions(chosen.name))
    n_classes = 0 if names else len(result.data.class_names)
    pool = open_pool(folder.votes, n_classes=n_classes, n_labels=len(names))
    own = settings.ledger.url
    terms = settings.ledger if own else run.budget
    return Served(
        pool,
        run.labels.build(chosen) if names else chosen.build(),
        Budget(terms.epsilon, terms.delta),
        settings.place(own) if own else str(place / run.budget.ledger),
        n_classes, pool.n_teachers, n_pool=len(pool), relation=result.partition.relation,
        n_labels=len(names), label_names=names, rule=terms.rule, **_known_rows(settings, len(pool)),
    )  # fmt: skip


def _from_votes(settings: ServiceSettings, place: Path) -> Served:
    data = settings.data
    pool = open_pool(place, n_classes=data.n_classes, n_labels=data.n_labels)
    return Served(
        pool, *_terms(settings, pool), data.n_classes, pool.n_teachers, n_pool=len(pool),
        n_labels=data.n_labels, rule=settings.ledger.rule, **_known_rows(settings, len(pool)),
    )  # fmt: skip


def _from_teachers(settings: ServiceSettings, place: Path) -> Served:
    data = settings.data
    ensemble = load_ensemble(place, space=SetOf(data.n_labels) if data.n_labels else OneOf(data.n_classes))
    width = getattr(ensemble, "n_features", data.n_features)
    if width != data.n_features:
        raise ValueError(f"Expected n_features = {width}, which these networks take, got {data.n_features}.")
    pool = None if not data.pool else _read_rows(settings)
    if pool is not None and pool.shape[1] != data.n_features:
        raise ValueError(
            f"Expected {data.n_features} numbers in every row of {data.pool}, got {pool.shape[1]}."
        )
    return Served(
        ensemble, *_terms(settings, ensemble), data.n_classes, len(ensemble), n_labels=data.n_labels,
        n_pool=0 if pool is None else len(pool), n_features=data.n_features, pool=pool,
        rule=settings.ledger.rule,
    )  # fmt: skip


_LOADERS = {"run": _from_run, "votes": _from_votes, "teachers": _from_teachers}


def _terms(settings: ServiceSettings, ensemble: Any) -> tuple[Mechanism, Budget, str]:
    chosen = settings.mechanism
    assert chosen is not None  # the rules of the settings see to it
    more = {"n_labels": settings.data.n_labels} if chosen.is_for_labels else {}
    if more and counts_parts(chosen.kind):
        more["resolution"] = ensemble.resolution
    try:
        mechanism = chosen.build(**more)
    except (TypeError, ValueError) as error:
        settings.refuse("mechanism.name", str(error))
    terms = settings.ledger
    return mechanism, Budget(terms.epsilon, terms.delta), settings.place(terms.url)


def _known_rows(settings: ServiceSettings, n_pool: int) -> dict[str, Any]:
    if not settings.data.pool:
        return {}
    rows = _read_rows(settings)
    if len(rows) != n_pool:
        raise ValueError(f"Expected {n_pool} rows in {settings.data.pool}, one per query, got {len(rows)}.")
    # The first of equal rows speaks for all of them: asked twice, a row is asked by one id.
    ids: dict[bytes, int] = {}
    for number, row in enumerate(rows):
        ids.setdefault(row.tobytes(), number)
    return {"ids": ids, "n_features": int(rows.shape[1])}


def _read_rows(settings: ServiceSettings) -> NDArray[np.float64]:
    place: Path = settings.path(settings.data.pool)
    try:
        rows = load_npy(place)
    except (OSError, ValueError) as error:
        raise ValueError(f"Expected rows of numbers in {place} (numpy.save), got none: {error}") from error
    if rows.ndim != 2 or rows.dtype.kind not in "biuf" or not len(rows):
        raise ValueError(f"Expected a table of numbers in {place}, one row per query, got something else.")
    if not np.isfinite(rows).all():
        raise ValueError(f"Expected finite numbers in {place}, got others.")
    return np.ascontiguousarray(rows, dtype=np.float64) + 0.0  # -0.0 is 0.0
