"""A fit of the classifiers: settings, inputs, ledger, result, groups, and fits on the same rows again."""

import hashlib
import json
import math
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import wraps
from inspect import signature
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils import check_random_state, validation

from ..data.dataset import count_copies
from ..data.label_models import OneEach
from ..data.metrics import LabelMetrics
from ..errors import BudgetExhausted, require_count
from ..ledger.base import Ledger, open_group_accounts, require_no_groups
from ..ledger.memory import MemoryLedger
from ..ledger.opening import open_as_begun
from ..ledger.sqlite import SqliteLedger
from ..mechanisms.base import Mechanism, accountant_for, price_of
from ..privacy import noise
from ..privacy._clock import Clock
from ..privacy._files import write_whole
from ..privacy._price import delta_of
from ..privacy.budget import Accountant, Budget, clock_words
from ..privacy.rdp import RdpCurve
from ..privacy.release import SILENT, describe
from ..privacy.sealed import Sealed
from ..privacy.votes import OneOf, Unit
from ..students.sums import SumStudent
from ..teachers.ensemble import train_ensemble
from ..teachers.models import describe_estimator
from ..teachers.partitions import partition
from ..teachers.pool import VotedPool
from ._catalogue import make_model, model_name
from ._numbers import label_counts, queries_part, tested_part, versions_of
from ._voting import Spending, begin_asking, counts_of, spent_on
from .card import ModelCard, export_student
from .labelling import AfterFail, Labels, Order, check_asking, label_pool
from .personal.assignment import Assignment, PlanOptions, Variant, arrange, plan_as_dict
from .personal.consent import Consent, read_consent
from .personal.plan import PersonalPlan
from .personal.rounds import Names, round_name, round_seed
from .repeats import notice, remembered
from .result import (
    FORMAT,
    SCORES,
    BudgetPart,
    DataPart,
    LabelPart,
    MechanismPart,
    PartitionPart,
    RunResult,
    SpentPart,
    StudentPart,
)
from .room import Room
from .sums import (
    ROWS_EACH,
    Summed,
    Sums,
    ask_sum,
    require_known,
    require_models,
    spent_on_sum,
    sum_question,
    sums_of,
    wants_sum,
)

Indices = NDArray[np.int64]


class NoGuaranteeWarning(UserWarning):
    """A fit went through and promises nothing: its `epsilon_` is infinite, and `why_` says why."""


# Settings


@dataclass(frozen=True, kw_only=True)
class Queries:
    """How a classifier asks its teachers about the pool.

    At most `n_queries` rows are asked, until `max_labels` labels came out, in an `order` of `label_pool`;
    `batch` queries share one entry in the ledger. `first` and `per_round` are for orders and mechanisms in
    which the student takes part, and `warm_up` answers before it can speak. `seeded_noise` draws the noise
    from `random_state`, for experiments that protect nobody. `after_fail` is what `label_pool` does where a
    mechanism tests its batch and the test fails.

    >>> Queries(n_queries=100, order="active", first=20).batch
    10
    """

    n_queries: int | None = None
    max_labels: int | None = None
    order: Order = "shuffled"
    batch: int = 10
    first: int | None = None
    per_round: int | None = None
    warm_up: Mechanism | None = None
    seeded_noise: bool = False
    after_fail: AfterFail = "stop"


@dataclass(frozen=True, kw_only=True)
class Groups:
    """How people with budgets of their own take part in a fit, by `variant` and its options.

    `levels` name budgets, and of other numbers at most `max_groups` groups are made. The options are those of
    `personal.make_plan`. With `exhausted_leave` whoever has none left leaves, and the others go on; by
    upsampling with teachers trained anew.

    >>> Groups(levels={"low": 1.0, "high": 4.0}, exhausted_leave=True).variant
    'weighting'
    """

    levels: Mapping[str, float] | None = None
    max_groups: int = 20
    variant: Variant = "weighting"
    weights: Sequence[float] | None = None
    denominator: int | None = None
    precision: float | None = None
    min_persons: int | None = None
    power: float | None = None
    copies: Sequence[int] | None = None
    most: int | None = None
    grow: Literal["teachers", "shares"] | None = None
    exhausted_leave: bool = False


@dataclass(frozen=True, kw_only=True)
class Training:
    """How rows are dealt to teachers, and how teachers and student are taught.

    `folder` keeps teachers, so that a fit that was cut short goes on; `n_jobs` processes train them, -1 for
    every processor. `stratified` deals every class evenly, and `site_names` declare the sites in their order.
    With a `temperature` the student is distilled from noisy counts, of which `floor` is taken off.

    >>> Training(n_jobs=-1, folder="kept").stratified
    False
    """

    n_jobs: int | None = None
    folder: str | PathLike[str] | None = None
    stratified: bool = False
    site_names: Sequence[Any] | None = None
    temperature: float | None = None
    floor: float = 0.0


# What a variant may be told, as `Groups` names it.
OPTIONS = tuple(PlanOptions.__annotations__)
_PLACES: dict[type, str] = {Queries: "queries", Groups: "groups", Training: "training"}


def moved(*kinds: type, without: Sequence[str] = ()) -> dict[str, tuple[str, str]]:
    """Return where parameters of earlier versions are now: the settings object, and the name in it."""
    return {
        one.name: (_PLACES[kind], one.name)
        for kind in kinds
        for one in fields(kind)
        if one.name not in without
    }


def accepting_moved(init: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that keeps the parameters of its signature, and takes earlier ones too.

    `epsilon` and `delta` may be given in place of a budget, and with either the `rule` by which it is held.
    """
    shown = signature(init)

    @wraps(init)
    def accept(self: "Fitting", **given: Any) -> None:
        _make_budget(given)
        old = {name: given.pop(name) for name in [*given] if name in self._moved}
        kept = shown.bind(self, **given)
        kept.apply_defaults()
        for name, value in [*kept.arguments.items()][1:]:
            setattr(self, name, value)
        self._accept_moved(old)

    return accept


def _make_budget(given: dict[str, Any], *, now: Budget | Accountant | None = None) -> None:
    """Put a budget in place of epsilon, delta and rule; what is not said is as it is now, or delta 1e-5."""
    stated = {name: given.pop(name) for name in ("epsilon", "delta") if name in given}
    rule = given.pop("rule", None)
    if not stated and rule is None:
        return
    plain, held = budget_of(now), getattr(now, "rule", None)
    if stated:
        if given.get("budget") is not None:
            raise ValueError(
                "Expected either budget=Budget(...) or epsilon=..., delta=..., got both. Keep one."
            )
        if plain is None and "epsilon" not in stated:
            raise ValueError("Expected epsilon=... with delta=..., got delta alone. Say both, or neither.")
        given["budget"] = replace(plain, **stated) if plain else Budget(**{"delta": _DELTA, **stated})
    chosen = given.get("budget", plain)
    if rule is not None and not isinstance(chosen, Budget):
        raise ValueError(
            f"Expected budget=Budget(...) or epsilon=... with rule={rule!r}, got none. A ledger that is "
            "there keeps its own rule."
        )
    if rule is not None or held is not None:
        by = rule or held or "renyi"
        given["budget"] = Accountant.by(by, chosen) if by != "renyi" and chosen is not None else chosen


def budget_of(given: Budget | Accountant | None) -> Budget | None:
    """Return the budget of what was given as one: a budget, or the arithmetic by which it is held."""
    return given.budget if isinstance(given, Accountant) else given


def check_groups(chosen: Groups, budgets: Any, *, sites: Any, ids: Any, stratified: bool) -> None:
    """Refuse parameters that do not go with budgets per person, or without them."""
    variants = get_args(Variant)
    if chosen.variant not in variants:
        raise ValueError(f"Expected variant to be one of {', '.join(variants)}, got {chosen.variant!r}.")
    if budgets is None:
        given = [name for name in ("levels", *OPTIONS) if getattr(chosen, name) is not None]
        given += ["exhausted_leave"] * bool(chosen.exhausted_leave)
        if given:
            # Passed over, everybody would be treated alike and nobody would be told.
            raise ValueError(f"Expected fit(..., budgets=...) with {given[0]}, got no budgets. Pass them.")
        return
    others = {"sites": sites is not None, "ids": ids is not None, "stratified": stratified}
    for name in (name for name, is_given in others.items() if is_given):
        raise ValueError(
            f"Expected no {name} with budgets: who shares a teacher follows from the budgets. "
            "Leave out one of the two."
        )


# What comes into a fit, checked, and what its parameters leave open; a message never quotes an entry


def validated(estimator: Any, *tables: Any, reset: bool = True, **how: Any) -> Any:
    """Return X, or X and y, as scikit-learn checks them for an estimator."""
    try:
        if hasattr(validation, "validate_data"):
            return validation.validate_data(estimator, *tables, reset=reset, **how)
        return estimator._validate_data(*tables, reset=reset, **how)  # scikit-learn before 1.6
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
    # Raised out here, where the error that quotes the entry is no longer attached.
    raise ValueError("Expected numbers in X, got something else. Turn text and categories into codes first.")


def halves(ids: Indices, *, seed: int) -> tuple[Indices, Indices]:
    """Return the rows of a pool and the other rows, which have half of every class or more."""
    shuffled = np.random.default_rng(seed).permutation(len(ids))
    dealt = shuffled[np.argsort(ids[shuffled], kind="stable")]
    return np.sort(dealt[1::2]), np.sort(dealt[::2])


def seed_number(random_state: Any) -> int:
    """Return a whole number from what scikit-learn calls a random state."""
    if random_state is None:
        return secrets.randbits(31)
    if isinstance(random_state, Integral):
        require_count(0, random_state=int(random_state))
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def model_or_default(model: Any) -> Any:
    """Return what was given, or else logistic regression on features of one scale."""
    return make_model("scaled_logistic") if model is None else model


def agreed_n_teachers(n_teachers: int | None, n_rows: int, *, by_name: bool) -> int:
    """Return how many teachers there are: as many as were said, or by the number of rows if public.

    That is 1.5 times the root of their number, with ten rows each at least and 250 teachers at most.
    """
    if n_teachers is not None:
        return n_teachers
    if by_name:
        raise ValueError(
            "Expected n_teachers where persons or ids are given, got none. How many there are is private, so "
            "nothing is derived from it. About 1.5 times the root of their rough number suits many tables."
        )
    return max(1, min(250, int(1.5 * n_rows**0.5), n_rows // 10))


# Budget and ledger

_USUAL = 8.0
NO_LIMIT = 1e9  # without classes and pool there is no budget to keep, unless one was given
_DELTA = 1e-5


def agreed_budget(given: Budget | Accountant | None, ledger: Any) -> Accountant | None:
    """Return how the budget is held that was given, or else that of the ledger; None where there is neither.

    A ledger that is there has a rule of its own; a budget without one is held by Rényi divergence.
    """
    there: Accountant | None = getattr(ledger, "accountant", None)
    plain = budget_of(given)
    if there is None:
        return given if isinstance(given, Accountant) or given is None else Accountant(given)
    if plain not in (None, there.budget):
        raise ValueError(
            f"Expected the budget of the ledger, {there.budget}, got {plain}. Leave out one of the two."
        )
    if isinstance(given, Accountant) and given.rule != there.rule:
        raise ValueError(
            f"Expected the rule of the ledger, {there.rule!r}, got {given.rule!r}. It keeps it for good: "
            "leave the rule out."
        )
    return there


def usual_epsilon(assignment: Assignment) -> float:
    """Return what may be spent where nobody said it: 8, or what everybody agreed to."""
    if assignment.consent is None:
        return _USUAL
    # Groups are held to their own budgets. While they leave one by one, the books as a whole add up what
    # some paid after others had left.
    epsilons = [group.epsilon for group in assignment.consent.groups]
    return sum(epsilons) if assignment.leave else max(epsilons)


@contextmanager
def open_books(
    ledger: Ledger | str | PathLike[str] | None,
    accountant: Accountant,
    *,
    allow_seeded: bool,
    consent: Consent | None,
) -> Iterator[Ledger]:
    """Open the ledger of a fit, with an account for every group of people."""
    opened: Any = nullcontext(ledger)
    if isinstance(ledger, (str, PathLike)):
        # The terms of a clock go by a price; a ledger that is there keeps its own.
        opened = (SqliteLedger if accountant.clock is None else open_as_begun)(ledger, accountant)
    elif ledger is None:
        opened = nullcontext(MemoryLedger(accountant, allow_seeded=allow_seeded))
    with opened as books:
        if consent is None:
            require_no_groups(books)
        else:
            budgets = {group.name: Budget(group.epsilon, consent.delta) for group in consent.groups}
            open_group_accounts(books, budgets)
        yield books


def identity(folder: str | PathLike[str] | None, random_state: Any) -> tuple[str, int]:
    """Return a name for the questions of a fit and its seed; a folder keeps both for the next one."""
    name, seed = f"fit-{secrets.token_hex(8)}", seed_number(random_state)
    if folder is None:
        return name, seed
    place = Path(folder) / "fit.json"
    if place.exists():
        kept = json.loads(place.read_bytes())
        return kept["name"], kept["seed"] if random_state is None else seed
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(place, json.dumps({"name": name, "seed": seed}).encode())
    return name, seed


def question(fitted: Any, pool: NDArray[Any], *, plan: PersonalPlan | None, seed: int) -> str:
    """Return a fingerprint of all that decides which rows are asked, and how: public things alone."""
    chosen = fitted._queries
    asked = [repr(fitted.mechanism_), chosen.order, seed, pool.shape]
    if plan is not None:
        asked += [plan_as_dict(plan), fitted._groups.exhausted_leave]
    if chosen.order == "active" or chosen.warm_up is not None:
        student = describe_estimator(model_or_default(fitted.student))
        asked += [student, repr(chosen.warm_up), chosen.first, chosen.per_round]
    digest = hashlib.sha256(json.dumps(asked).encode())
    digest.update(np.ascontiguousarray(pool, dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]


# The fit itself


class Fitting:
    """What the classifiers of one class and of many labels per row share: all of a fit but the targets.

    A classifier says which mechanism it takes if none is given (`_usual_mechanism`), what its teachers answer
    (`_space`), what it tells of released labels (`_tell_labels`) and how its student is taught (`_taught`).
    `_moved` says where parameters of earlier versions are now, `_unused` which settings do not apply to it,
    and `_target` what is learned, in words for messages: what it is, how it is declared and read off.
    """

    _moved: ClassVar[dict[str, tuple[str, str]]]
    _unused: ClassVar[tuple[str, ...]] = ()
    _target: ClassVar[tuple[str, str, str]]
    _one_class: ClassVar[bool] = True
    mechanism: Any
    mechanism_: Any
    teacher: Any
    student: Any
    student_: Any
    thresholds: float | Sequence[float] = 0.5
    queries: Queries | None
    training: Training | None
    groups: Groups | None = None

    # Parameters

    def _accept_moved(self, given: Mapping[str, Any]) -> None:
        """Set parameters that have moved into a settings object, and say where they are now."""
        kinds = {name: kind for kind, name in _PLACES.items()}
        for name, value in given.items():
            place, new = self._moved[name]
            where = f"{place}={kinds[place].__name__}({new}=...)" if place else f"{new}=..."
            warnings.warn(
                f"{type(self).__name__}({name}=...) is now {where}. The old name will go.",
                DeprecationWarning,
                stacklevel=3,
            )
            if place:
                setattr(self, place, replace(getattr(self, place) or kinds[place](), **{new: value}))
            else:
                setattr(self, new, value)

    def set_params(self, **params: Any) -> Any:
        """Set parameters by name, as scikit-learn has it; those that have moved are accepted too."""
        _make_budget(params, now=self.budget)
        self._accept_moved({name: params.pop(name) for name in [*params] if name in self._moved})
        return super().set_params(**params)  # type: ignore[misc]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self)._moved:
            self._accept_moved({name: value})
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        # Called for what is not there: a parameter of an earlier version, read where it is now.
        if name.startswith("_") or name not in type(self)._moved:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        place, new = type(self)._moved[name]
        return getattr(getattr(self, f"_{place}") if place else self, new)

    @property
    def _queries(self) -> Queries:
        return self.queries or Queries()

    @property
    def _groups(self) -> Groups:
        return self.groups or Groups()

    @property
    def _training(self) -> Training:
        return self.training or Training()

    @property
    def _sums(self) -> Sums:
        return sums_of(self.mechanism)

    @property
    def _is_sum(self) -> bool:
        return wants_sum(self.mechanism)

    def _check_asking(self) -> None:
        """Refuse settings that mean nothing, before teachers are trained."""
        chosen = self._queries
        require_known(self.mechanism)
        check_asking(
            chosen.order,
            batch=chosen.batch,
            n_teachers=self.n_teachers,
            n_queries=chosen.n_queries,
            max_labels=chosen.max_labels,
        )
        for settings in (chosen, self._training):
            for one in fields(settings):
                if one.name in self._unused and getattr(settings, one.name) != one.default:
                    kind = type(settings).__name__
                    raise ValueError(
                        f"Expected {kind} without {one.name} for {type(self).__name__}, which has no use "
                        "for it, got one. Leave it out."
                    )
        if not self._is_sum:
            return
        for one in fields(chosen):
            if one.name != "seeded_noise" and getattr(chosen, one.name) != one.default:
                raise ValueError(
                    f"Expected Queries without {one.name} for a Gaussian sum, which asks for the whole pool "
                    "at once, got it. Leave it out."
                )
        if self._training.temperature is not None or self._training.floor:
            raise ValueError(
                "Expected Training without temperature and floor for a Gaussian sum, whose student learns "
                "from noisy scores, got one. Leave them out."
            )
        if self.thresholds != 0.5:
            raise ValueError(
                "Expected no thresholds for a Gaussian sum, to which teachers hand in their scores, got "
                "some. Leave them out."
            )
        require_models(self.teacher, self.student, one_class=self._one_class)

    # State

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "student_")

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels with a classifier: not what is sealed, which is for who fitted it."""
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if not isinstance(value, Sealed)}

    def _forget(self) -> None:
        """Drop what an earlier fit left: its student must not stand beside what this one costs."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)

    def _rows(self, X: Any) -> NDArray[Any]:
        validation.check_is_fitted(self)
        rows: NDArray[Any] = validated(self, X, reset=False)
        return rows

    def _export(self, folder: str | PathLike[str], result: RunResult, **how: Any) -> Path:
        card = ModelCard.from_result(result)
        return export_student(self.student_, folder, card=card, **how)

    # The steps of a fit

    def _fit(
        self,
        X: NDArray[Any],
        encode: Callable[[], Indices],
        *,
        public: Any,
        declared: bool,
        owners: dict[str, Any],
        budgets: Any = None,
    ) -> None:
        """Train teachers on checked rows, ask them about the pool, and teach a student what they said.

        `encode` returns the targets as numbers, and sets what is known of them; called once it is said that
        nothing is guaranteed, where that is so.
        """
        asking, training = self._queries, self._training
        is_open = not declared or public is None
        seeded = asking.seeded_noise or (is_open and self.random_state is not None)
        reasons = self._reasons(declared=declared, pooled=public is not None, seeded=seeded)
        # Without a guarantee that was said already, and there is no epsilon to add up.
        seen = None if reasons else notice(X, self.ledger)
        y = encode()
        name, seed = identity(training.folder, self.random_state)
        split, teach, ask, learn, draw = (int(n) for n in np.random.SeedSequence(seed).generate_state(5))
        given = None
        if public is None:
            if len(X) < 2:
                raise ValueError("Expected 2 rows or more, half of which become the pool, got one sample.")
            # Rows that are alike in all labels are dealt evenly, as classes are.
            kinds = y if y.ndim == 1 else np.unique(y, axis=0, return_inverse=True)[1].reshape(-1)
            rows, kept = halves(kinds, seed=split)
            pool, X, y = X[rows], X[kept], y[kept]
            owners = {n: None if o is None else np.asarray(o)[kept] for n, o in owners.items()}
            if not (budgets is None or isinstance(budgets, Mapping)):  # from persons, it holds for all rows
                budgets = np.asarray(budgets)[kept]
        else:
            pool = given = validated(self, public, reset=False)
            self.n_copies_ = count_copies(pool, X)
            rows = np.arange(len(pool))
        agreed = agreed_budget(self.budget, self.ledger)
        delta = _DELTA if agreed is None else agreed.budget.delta
        assignment, plain = self._assigned(y, budgets, delta=delta, saves=not is_open, seed=split, **owners)
        accountant = agreed or Accountant(Budget(NO_LIMIT if is_open else usual_epsilon(assignment), _DELTA))
        budget = accountant.budget
        if accountant.clock is not None and assignment.consent is not None:
            raise ValueError(
                "Expected a budget held by Rényi divergence with budgets per person, got one on a clock, "
                "which has no largest of several prices for the data to be charged. Leave out the rule."
            )
        price = None
        if accountant.clock is not None and not self._is_sum:
            space, known = self._space(), {"n_teachers": len(assignment.partition)}
            if space.kind == OneOf.kind:
                known["n_classes"] = space.n_answers
            price = price_of(plain, Unit(), **known)
        usual = accountant.clock in (None, Clock.for_delta(budget.delta))
        if getattr(self.ledger, "accountant", None) is None and accountant.order is None and usual:
            accountant = accountant_for(plain, budget, accountant.rule, price=price)
        self._tell_assignment(assignment, plain, n_rows=len(X), n_public=len(pool))
        if price is not None:
            # A mechanism without a clock price is refused before hours of training too.
            accountant.affords(RdpCurve.zero(), price)
        # Opened before hours of training: a ledger with another budget is refused now.
        with open_books(self.ledger, accountant, allow_seeded=seeded, consent=assignment.consent) as ledger:
            accountant = getattr(ledger, "accountant", None) or accountant
            if self._is_sum:
                source, seeds = noise.seeded(draw) if seeded else noise.secure(), (teach, learn)
                key = f"{name}/{sum_question(self._sums, pool)}"
                with telling_what_is_spent(ledger, accountant), remembered(seen, self, budget):
                    found = self._sum(
                        X, y, pool, assignment, accountant=accountant, ledger=ledger, noise=source, key=key,
                        seeds=seeds, public=given,
                    )  # fmt: skip
                    spending = spent_on_sum(found, ledger, accountant, alone=self.ledger is None)
                    self._record(
                        found.labels, rows, spending, ledger=ledger, held=accountant, reasons=reasons
                    )
                    self.student_ = found.student
                return

            def vote(some: Assignment, absent: Names) -> VotedPool:
                of_round, place = round_name(assignment.plan, absent), None
                if training.folder is not None:
                    place = Path(training.folder) / (f"teachers_{of_round}" if of_round else "teachers")
                ensemble = train_ensemble(
                    model_or_default(self.teacher),
                    some.rows(X),
                    some.rows(y),
                    some.partition,
                    space=self._space(),
                    thresholds=self.thresholds,
                    seed=round_seed(teach, absent),
                    n_jobs=None if training.n_jobs is None else effective_n_jobs(training.n_jobs),
                    folder=place,
                    public=given,
                )
                votes = ensemble.vote(pool)
                self.troubles_ = ensemble.troubles
                return VotedPool(votes)

            key = f"{name}/{question(self, pool, plan=assignment.plan, seed=ask)}"
            source = noise.seeded(draw) if seeded else noise.secure()
            # Where teachers are trained anew, who votes first follows from the books.
            voters: Any = None if assignment.trains_anew else vote(assignment, ())
            room, next_room = begin_asking(
                Room(voters, plain, ledger, source), assignment, vote, key=key, first=asking.warm_up,
                seed=split,
            )  # fmt: skip
            with telling_what_is_spent(ledger, accountant), remembered(seen, self, budget):
                released = label_pool(
                    room, pool, seed=ask, order=asking.order, n_queries=asking.n_queries,
                    n_labels=asking.max_labels, batch=asking.batch, student=model_or_default(self.student),
                    first=asking.first, per_round=asking.per_round, warm_up=asking.warm_up,
                    queries=np.arange(len(pool)), key=key, next_room=next_room,
                    after_fail=asking.after_fail,
                )  # fmt: skip
                spending = spent_on(
                    ledger, assignment, accountant, key=key, used=[plain, asking.warm_up],
                    counts=counts_of(room.ensemble),
                    most=getattr(plain, "n_queries", min(len(pool), asking.n_queries or len(pool))),
                    is_over=released.stopped_by == "the budget",
                    # A cap counts if it was set before the first release, which only a fresh ledger is sure
                    # of. Without those who left there is less noise: a price for all of it was not known.
                    is_fixed=self.ledger is None and not assignment.leave, after_fail=asking.after_fail,
                )  # fmt: skip
                self._record(released, rows, spending, ledger=ledger, held=accountant, reasons=reasons)
                if released.is_void:
                    raise ValueError(
                        "Expected a batch that passes its test, got one that failed: nothing was released, "
                        "and there is no student. Queries(after_fail='full price') asks the same rows again "
                        "without a test, as far as the budget goes; or plan for votes that are less clear."
                    )
                self.student_ = self._taught(pool, released, seed=learn, lenient=is_open)

    def _sum(
        self,
        X: NDArray[Any],
        y: Indices,
        pool: NDArray[Any],
        assignment: Assignment,
        *,
        accountant: Accountant,
        public: Any,
        **how: Any,
    ) -> Summed:
        """Release one Gaussian sum of the pool, and set what is known of it."""
        training, parts = self._training, assignment.partition
        options = {
            "n_jobs": None if training.n_jobs is None else effective_n_jobs(training.n_jobs),
            "folder": None if training.folder is None else Path(training.folder) / "teachers",
            "public": public,
        }
        # Where nothing is guaranteed and no budget was given, as much noise as there usually is.
        no_limit = accountant.budget.epsilon >= NO_LIMIT
        planner = Accountant(Budget(_USUAL, accountant.budget.delta)) if no_limit else accountant
        found = ask_sum(
            X, y, pool, parts, accountant=accountant, planner=planner,
            chosen=self._sums, n_columns=len(self.classes_), one_class=self._one_class, teacher=self.teacher,
            student=self.student, options=options, **how,
        )  # fmt: skip
        self.mechanism_, self.prior_, self.troubles_ = found.plan.scores, found.prior, found.troubles
        return found

    def _reasons(self, *, declared: bool, pooled: bool, seeded: bool) -> list[str]:
        """Return why no epsilon may be stated, and warn; refuse where a ledger is kept all the same."""
        what, argument, read_off = self._target
        if self.ledger is not None and not (declared and pooled):
            missing = "public pool" if declared else argument
            raise ValueError(
                f"Expected {what} and a public pool where a ledger is kept, got no {missing}. Its books "
                "would say a cost that is not the cost of this fit. "
                f"Pass {argument}=... and public=..., or leave out the ledger."
            )
        found = {
            f"The {what} were not declared, so they were read off {read_off}.": not declared,
            "No public pool was given, so half of the rows became the pool.": not pooled,
            "The noise was drawn from random_state, and who knows that can take it off.": seeded,
        }
        reasons = [reason for reason, holds in found.items() if holds]
        if reasons:
            advice = (
                f"epsilon_ is infinite. Declare {argument}=..., pass public=... and leave seeded_noise alone."
            )
            warnings.warn(f"{' '.join(reasons)} {advice}", NoGuaranteeWarning, stacklevel=4)
        return reasons

    def _assigned(
        self,
        y: Indices,
        budgets: Any,
        *,
        persons: Any,
        ids: Any,
        sites: Any,
        delta: float,
        saves: bool,
        seed: int,
    ) -> tuple[Assignment, Mechanism]:
        """Deal the rows to teachers, plainly or as the budgets of their people ask for.

        Returns the mechanism for teachers of one vote each too.
        """
        n_teachers, training, chosen = self.n_teachers, self._training, self._groups
        if sites is None:
            by_name = persons is not None or ids is not None
            if n_teachers is None and self._is_sum and not by_name:
                n_teachers = max(1, len(y) // ROWS_EACH)
            n_teachers = agreed_n_teachers(n_teachers, len(y), by_name=by_name)
        if budgets is None:
            parts = partition(
                len(y), n_teachers, seed=seed, labels=y if training.stratified else None, persons=persons,
                ids=ids, sites=sites, site_names=training.site_names,
            )  # fmt: skip
            return Assignment(parts), self.mechanism or self._usual_mechanism(len(parts), saves=saves)
        consent = read_consent(
            budgets, delta=delta, levels=chosen.levels, persons=persons, max_groups=chosen.max_groups
        )
        plain = self.mechanism or self._usual_mechanism(n_teachers, saves=saves)
        options: Any = {name: getattr(chosen, name) for name in OPTIONS}
        seated = arrange(chosen.variant, consent, plain, n_teachers=n_teachers, seed=seed, **options)
        return replace(seated, leave=chosen.exhausted_leave and len(consent.groups) > 1), plain

    def _tell_assignment(
        self, assignment: Assignment, plain: Mechanism, *, n_rows: int, n_public: int
    ) -> None:
        """Set the attributes that say who is protected; the number of rows only where that is public."""
        parts, self.plan_ = assignment.partition, assignment.plan
        self.mechanism_ = plain if self.plan_ is None else self.plan_.mechanism
        self.n_public_, self.n_teachers_ = n_public, len(parts)
        self.relation_, self.unit_, self.notes_ = parts.relation, parts.unit, parts.notes
        self.n_private_ = n_rows if parts.relation.counts_are_public else None

    def _record(
        self,
        released: Labels,
        rows: NDArray[Any],
        spending: Spending,
        *,
        ledger: Ledger,
        held: Accountant,
        reasons: list[str],
    ) -> None:
        """Set the attributes that say what came out, what it cost, and what is guaranteed to whom; public."""
        if not reasons and any(entry.event.get("noise") != "secure" for entry in ledger.entries()):
            reasons = ["The ledger holds answers with seeded noise."]
        self.released_, self.stopped_by_ = released, released.stopped_by
        self.n_queries_ = len(released)
        self._tell_labels(released, rows)
        budget = held.budget
        self.spent_, self.delta_, self.why_ = ledger.spent, budget.delta, " ".join(reasons)
        self.budget_ = None if budget.epsilon == NO_LIMIT else budget
        self.rule_, self.left_ = held.rule, held.left(ledger.spent)
        personal = spending.personal
        self.epsilon_ = math.inf if self.why_ else spending.epsilon
        self.rounds_: tuple[dict[str, Any], ...] = ()
        self.groups_: tuple[dict[str, Any], ...] = ()
        self._personal = None if personal is None else personal.part
        if personal is None:
            return
        for words in personal.notes:
            warnings.warn(words, UserWarning, stacklevel=4)
        promised = {"stated": math.inf} if self.why_ else {}
        self.groups_ = tuple(
            {
                **group.model_dump(exclude_unset=True),
                **promised,
                "has_left": personal.part.left_after(group.name) is not None,
            }
            for group in personal.part.groups
        )
        self.rounds_ = tuple(one.model_dump() for one in personal.part.rounds)
        if self.rounds_ and self.plan_ is not None and self.rounds_[0]["absent"]:
            first = self.plan_.without(self.rounds_[0]["absent"])
            self.n_teachers_, self.mechanism_ = first.n_teachers, first.mechanism


@contextmanager
def telling_what_is_spent(ledger: Ledger, accountant: Accountant) -> Iterator[None]:
    """Add to whatever stops a fit what it has cost so far."""
    try:
        yield
    except Exception as error:
        spent, words = ledger.spent, "On the ledger, with or without labels: "
        if accountant.clock is not None:
            told = clock_words(accountant.budget.epsilon, accountant.left(spent))
            error.add_note(f"{words}{told}.")
        else:
            error.add_note(f"{words}epsilon {accountant.epsilon(spent):.4g} is spent.")
        if isinstance(error, BudgetExhausted):
            error.add_note("Take more noise, and more teachers to bear it, or a larger budget.")
        raise


# The result of a fit, as a run writes it down


def public_result(
    fitted: Any,
    name: str,
    *,
    accuracy: float | None = None,
    label_names: Sequence[str] = (),
    measured: LabelMetrics | None = None,
) -> RunResult:
    """Return the result of a fit, in the shape of a run's; with `label_names`, of many labels."""
    released, student = fitted.released_, fitted.student_
    parameters = describe(fitted.mechanism_, noise.secure())["parameters"]
    names, own = {"class_names": tuple(map(str, fitted.classes_))}, dict[str, Any]()
    kind, model, scores = "supervised", model_name(student), dict[str, Any]()
    if isinstance(student, SumStudent):
        model = f"{model_name(student.model)}, of noisy scores"
    # What a test takes of delta is not there to convert with.
    renyi = fitted.spent_.epsilon(fitted.delta_ - delta_of(fitted.spent_))

    def on_clock(told: dict[str, Any]) -> dict[str, Any]:
        return told if fitted.rule_ == "clock" else {}

    if label_names:
        names = {"class_names": ("no", "yes"), "label_names": tuple(label_names)}
        for parameter in {"groups", "negative", "positive"} & set(parameters):
            # By name, where the mechanism knows numbers: the card is read without it.
            parameters[parameter] = [[label_names[at] for at in group] for group in parameters[parameter]]
        own["labels"] = tuple(
            LabelPart(name=label, **label_counts(released, at)) for at, label in enumerate(label_names)
        )
        if isinstance(student, OneEach):
            model = f"{model_name(student.estimator)}, one per label"
        found = {} if measured is None else {score: getattr(measured, score, math.nan) for score in SCORES}
        scores["scores"] = {score: value for score, value in found.items() if not math.isnan(value)}
        accuracy = None if measured is None else measured.accuracy
    else:
        kind = "supervised" if fitted._training.temperature is None else "distilled"
        if fitted.plan_ is not None and not fitted.why_:
            own["personal"] = fitted._personal
    return RunResult(
        format=FORMAT,
        data=DataPart(
            name=name,
            n_private=fitted.n_private_,
            n_public=fitted.n_public_,
            n_test=0,
            n_features=fitted.n_features_in_,
            **names,
        ),
        partition=PartitionPart(
            n_teachers=fitted.n_teachers_, unit=fitted.unit_, relation=fitted.relation_, notes=fitted.notes_
        ),
        mechanism=MechanismPart(name=type(fitted.mechanism_).__name__, **parameters),
        budget=BudgetPart(
            epsilon=math.inf if fitted.budget_ is None else fitted.budget_.epsilon,
            delta=fitted.delta_,
            **on_clock({"rule": "clock", "left": fitted.left_}),
        ),
        spent=SpentPart(
            epsilon=fitted.epsilon_,
            delta=fitted.delta_,
            **(on_clock({"renyi": renyi}) or {"charged": renyi}),
            is_guarantee=not fitted.why_,
            why=fitted.why_,
        ),
        queries=queries_part(released, order=fitted._queries.order, stopped_by=fitted.stopped_by_),
        **tested_part(fitted.mechanism_, released, after_fail=fitted._queries.after_fail),
        student=StudentPart(
            kind=kind,
            model=model,
            n_labels=int((released.labels != SILENT).sum()),
            accuracy=accuracy,
            **scores,
        ),
        versions=versions_of("numpy", "scikit-learn"),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        **own,
    )
