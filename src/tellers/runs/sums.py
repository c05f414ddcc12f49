"""One Gaussian sum in a fit: settings, plan, prior, teachers that score the pool, and the student."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from ..accounting.sum_plan import SumPlan, plan_sum, with_prior
from ..errors import BudgetExhausted, require_count
from ..ledger.base import Ledger
from ..mechanisms.gaussian_sum import GaussianSum
from ..mechanisms.registry import answers_of
from ..privacy.budget import Accountant
from ..privacy.directions import public_directions
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..privacy.release import Release
from ..privacy.sealed import Sealed
from ..privacy.votes import Scores, Votes, keep, kept
from ..students.sums import SumStudent, fit_sum, released_frequencies
from ..teachers.ensemble import Ensemble, is_network, train_ensemble
from ..teachers.frequencies import LabelFrequencies
from ..teachers.partitions import Partition
from ._voting import Spending
from .labelling import Labels, guaranteed_epsilon
from .room import Room

Floats = NDArray[np.float64]
NAME = "gaussian-sum"
ROWS_EACH = 5
"""How many rows a teacher has where nobody says how many teachers there are: many drown the noise."""

# A coordinate in which public rows hardly differ is not blown up to the size of the others.
_FLOOR = 0.1
# Far from the origin a ridge is as good as a sum of moments, whatever the few rows of a teacher are.
_PENALTY = 1000.0


@dataclass(frozen=True, kw_only=True)
class Sums:
    """How a classifier asks for one Gaussian sum, as its `mechanism`; "gaussian-sum" is short for `Sums()`.

    The noise is that of a `mechanism`, or, left out, the least that the budget affords. A declared `prior` is
    how often each class or label is true, from public knowledge; left out, noisy frequencies are bought for
    `prior_share` of the price. Scores are brought onto the `n_directions` in which the pool differs most, and
    a column of frequency p has the weight (p (1 - p)) ** -balance.

    >>> Sums(prior=[0.5, 0.1]).n_directions
    50
    >>> Sums(prior_share=0)
    Traceback (most recent call last):
        ...
    ValueError: Expected prior_share between 0 and 1, got 0. To buy no prior, declare one: prior=...
    """

    mechanism: GaussianSum | None = None
    prior: Sequence[float] | None = None
    prior_share: float = 0.05
    n_directions: int = 50
    balance: float = 0.25

    def __post_init__(self) -> None:
        require_count(n_directions=self.n_directions)
        if not 0 < self.prior_share < 1:
            raise ValueError(
                f"Expected prior_share between 0 and 1, got {self.prior_share}. To buy no prior, declare "
                "one: prior=..."
            )
        if not 0 <= self.balance <= 1:
            raise ValueError(f"Expected balance in [0, 1], got {self.balance}.")

    def declared(self, n_columns: int) -> Floats | None:
        """Return the declared prior, one share for each column, or None.

        >>> Sums(prior=[0.5, 0.1]).declared(2), Sums().declared(2) is None
        (array([0.5, 0.1]), True)
        """
        if self.prior is None:
            return None
        table = np.asarray(self.prior, dtype=np.float64)
        if table.shape != (n_columns,) or not ((table > 0) & (table < 1)).all():
            raise ValueError(
                f"Expected a prior of {n_columns} shares between 0 and 1, got shape {table.shape} or others."
            )
        return table


def wants_sum(mechanism: Any) -> bool:
    """Say whether a classifier is to ask for one Gaussian sum."""
    return isinstance(mechanism, (GaussianSum, Sums)) or (isinstance(mechanism, str) and mechanism == NAME)


def sums_of(mechanism: Any) -> Sums:
    """Return how a sum is asked for, whichever way it was said."""
    if isinstance(mechanism, Sums):
        return mechanism
    return Sums(mechanism=mechanism if isinstance(mechanism, GaussianSum) else None)


def require_known(mechanism: Any) -> None:
    """Refuse names of other mechanisms, and others that release scores: there is no plan for those."""
    if wants_sum(mechanism) or mechanism is None:
        return
    if isinstance(mechanism, str):
        raise TypeError(
            f'Expected a mechanism, or "{NAME}", whose noise follows from the budget, got {mechanism!r}. '
            "Pass the mechanism itself, such as GNMax(sigma=40.0)."
        )
    if answers_of(mechanism) == Scores.kind:
        raise TypeError(
            f"Expected a mechanism that answers query by query, or a GaussianSum, got "
            f"{type(mechanism).__name__}, which releases the scores of a whole pool at once. Ask it through "
            "Room, and teach with students.fit_sum."
        )


def require_models(teacher: Any, student: Any, *, one_class: bool) -> None:
    """Refuse models that cannot score, or learn from scores, before anything is trained or charged."""
    if teacher is not None and is_network(teacher):
        raise TypeError(
            f"Expected teachers with fit and predict for a Gaussian sum, got the network "
            f"{type(teacher).__name__}. Networks answer by the query; take another mechanism."
        )
    if one_class and teacher is not None and is_regressor(teacher):
        raise TypeError(
            f"Expected a classifier as teacher of one class per row, got {type(teacher).__name__}: it would "
            "take the numbers of classes for amounts."
        )
    if student is not None and is_classifier(student):
        raise TypeError(
            "Expected a regressor as student of a Gaussian sum, which releases noisy scores and no labels, "
            f"got {type(student).__name__}. Take Ridge(), or leave it out."
        )


@dataclass(frozen=True, eq=False)
class _Coordinates:
    """Principal components of public rows, whitened but for directions in which they hardly differ."""

    scaler: StandardScaler
    turn: Floats

    @classmethod
    def of(cls, pool: NDArray[Any], n_directions: int) -> "_Coordinates":
        scaler = StandardScaler().fit(pool)
        rows = scaler.transform(pool)
        _, size, right = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
        n_kept = min(n_directions, max(1, int((size > 1e-6 * size[0]).sum())))
        variance = size[:n_kept] ** 2 / len(rows)
        return cls(scaler, right[:n_kept].T / np.sqrt(variance + _FLOOR * max(variance[0], 1e-12)))

    def __call__(self, rows: NDArray[Any]) -> Floats:
        return np.asarray(self.scaler.transform(rows) @ self.turn, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _WholePool:
    """Votes on a whole pool, asked for by the numbers of its rows; the votes stay with the room."""

    space: Scores
    n_teachers: int

    def vote(self, rows: Any) -> Votes:
        found: Votes = kept(self)
        if not np.array_equal(rows, np.arange(len(found))):
            raise ValueError("Expected all rows of the pool in their order, got others.")
        return found


@dataclass(frozen=True, eq=False, repr=False)
class Summed:
    """What came of asking for one Gaussian sum: all of it public but what is sealed."""

    plan: SumPlan
    prior: Floats
    release: Release
    student: SumStudent
    troubles: Sealed[dict[int, str]]

    @property
    def labels(self) -> Labels:
        """Return the labels that came along, of every row of the pool."""
        told = self.release.labels
        return Labels(
            rows=np.arange(len(told), dtype=np.int64), labels=told, by_teachers=self.release.answered,
            values=self.release.values,
        )  # fmt: skip


def sum_question(chosen: Sums, pool: NDArray[Any]) -> str:
    """Return a fingerprint of what is asked: public things alone."""
    prior = None if chosen.prior is None else np.asarray(chosen.prior, dtype=np.float64).tolist()
    asked = [
        repr(chosen.mechanism),
        prior,
        chosen.prior_share,
        chosen.n_directions,
        chosen.balance,
        pool.shape,
    ]
    digest = hashlib.sha256(json.dumps(asked).encode())
    digest.update(np.ascontiguousarray(pool, dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]


def planned(
    accountant: Accountant,
    ledger: Ledger,
    *,
    planner: Accountant,
    chosen: Sums,
    key: str,
    n_teachers: int,
) -> SumPlan:
    """Return the sum that was given with its prior, or the one with the least noise that the planner affords.

    What a fit that goes on has paid already is left out, so that it plans what it planned. What is not
    affordable as a whole is refused before a part of it is charged.
    """
    share = 0.0 if chosen.prior is not None else chosen.prior_share
    entries, mine = ledger.entries(), f"{key}/"
    spent = ledger.spent
    if any(entry.key.startswith(mine) for entry in entries):
        others = (entry.charged for entry in entries if not entry.key.startswith(mine))
        spent = sum(others, start=RdpCurve.zero(spent.orders))
    if chosen.mechanism is not None:
        given = with_prior(chosen.mechanism, prior_share=share)
        if not accountant.affords(spent, given.price()):
            raise BudgetExhausted(
                f"Expected a sum that the budget affords, got sigma = {given.scores.sigma:.4g}, which with "
                "its prior is too dear. Nothing was charged. Take more noise, or leave sigma out, and it "
                "follows from the budget."
            )
        return given
    try:
        plan = plan_sum(planner, spent=spent, prior_share=share)
    except ValueError as error:
        raise BudgetExhausted(str(error)) from None
    if plan.scores.sigma > n_teachers:
        raise BudgetExhausted(
            f"Expected a budget that affords less noise than {n_teachers} teachers can say, got one for "
            f"sigma = {plan.scores.sigma:.4g}. Nothing was charged. Take more teachers, or a larger budget."
        )
    return plan


def ask_sum(
    X: NDArray[Any],
    y: NDArray[np.int64],
    pool: NDArray[Any],
    parts: Partition,
    *,
    accountant: Accountant,
    planner: Accountant,
    ledger: Ledger,
    noise: Noise,
    key: str,
    chosen: Sums,
    n_columns: int,
    one_class: bool,
    teacher: Any,
    student: Any,
    seeds: tuple[int, int],
    options: Mapping[str, Any],
    step: Callable[[str], AbstractContextManager[Any]] = nullcontext,
) -> Summed:
    """Train teachers, buy a prior where none is declared, release the sum, and teach a student.

    `seeds` are those of teachers and student, and `options` those of `train_ensemble`. `step` is entered
    while something goes on: "teachers", "prior", "votes", "labels" and "student".
    """
    prior, n_teachers = chosen.declared(n_columns), len(parts)
    # Refused before teachers are trained.
    plan = planned(accountant, ledger, planner=planner, chosen=chosen, key=key, n_teachers=n_teachers)
    model, seen = teacher, pool
    if teacher is None:
        coordinates = _Coordinates.of(pool, chosen.n_directions)
        X, seen = coordinates(X), coordinates(pool)
        model = LogisticRegression(C=0.01, max_iter=200) if one_class else Ridge(alpha=_PENALTY)
    given = {**options, "public": None if options.get("public") is None else seen}
    plain = Scores(n_columns, plan.scores.steps, one_class=one_class)
    # What they learn does not depend on the prior: if they fail before it is bought, nothing is charged.
    with step("teachers"):
        trained = train_ensemble(model, X, y, parts, space=plain, seed=seeds[0], **given)
    assert isinstance(trained, Ensemble)  # networks were refused
    if prior is None:
        assert plan.prior is not None  # it has a share
        with step("prior"):
            counts = LabelFrequencies(
                y, parts, n_columns=n_columns, one_class=one_class, steps=plan.prior.steps
            )
            told = Room(counts, cast(Any, plan.prior), ledger, noise).ask([[0.0]], key=f"{key}/prior")
            prior = released_frequencies(told, shrink=True)
    scaler = StandardScaler().fit(pool)
    rows = np.asarray(scaler.transform(pool), dtype=np.float64)
    weights = (prior * (1 - prior)) ** -chosen.balance
    space = replace(
        plain, expected=tuple(prior.tolist()), column_weights=tuple(weights.tolist()),
        directions=public_directions(rows, chosen.n_directions),
    )  # fmt: skip
    ensemble = Ensemble(trained.teachers, space=space)
    voters = _WholePool(space, n_teachers)
    with step("votes"):
        keep(voters, ensemble.vote(seen))
    # By numbers of rows: that coordinates come out the same to the last bit elsewhere is not promised.
    with step("labels"):
        room = Room(voters, cast(Any, plan.scores), ledger, noise)
        release = room.ask(np.arange(len(pool)), key=f"{key}/pool")
    with step("student"):
        taught = fit_sum(
            rows, release, estimator=student, frequencies=prior, column_weights=weights, seed=seeds[1]
        )
    whole = replace(taught, model=Pipeline([("scale", scaler), ("model", taught.model)]))
    return Summed(plan, prior, release, whole, ensemble.troubles)


def spent_on_sum(
    found: Summed, ledger: Ledger, accountant: Accountant, *, alone: bool, besides: str | None = None
) -> Spending:
    """Return what may be stated: what a sum and its prior cost was known before the first of them.

    With others on the ledger it is the budget; `besides` are the questions that are told apart.
    """
    most, charged = found.plan.price() if alone else None, accountant.epsilon(ledger.spent)
    epsilon = guaranteed_epsilon(ledger, accountant, most=most, besides=besides)
    told: dict[str, Any] = {}
    if accountant.clock is not None:
        told = {"left": accountant.left(ledger.spent), "renyi": ledger.spent.epsilon(accountant.budget.delta)}
    curve = ((len(found.release), charged, told.get("left")),)
    return Spending(epsilon, charged, curve, shared=not alone, **told)
