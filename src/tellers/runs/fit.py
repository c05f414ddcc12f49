"""A fit of the classifiers: settings, inputs, ledger, result, groups, and fits on the same rows again."""

import hashlib
import json
import math
import platform
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import wraps
from inspect import signature
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import sklearn
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, validation
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .. import __version__
from ..data.dataset import count_copies
from ..data.label_models import OneEach
from ..data.metrics import LabelMetrics
from ..errors import BudgetExhausted, require_count
from ..ledger.base import Ledger, open_group_accounts, require_no_groups
from ..ledger.memory import MemoryLedger
from ..ledger.sqlite import SqliteLedger
from ..mechanisms.base import Mechanism
from ..mechanisms.confident import ConfidentGNMax
from ..mechanisms.gnmax import GNMax
from ..privacy import noise
from ..privacy._files import write_whole
from ..privacy.budget import Accountant, Budget
from ..privacy.release import SILENT, describe
from ..privacy.sealed import Sealed
from ..teachers.models import describe_estimator
from ..teachers.partitions import Partition, partition
from ..teachers.pool import VotedPool
from ._catalogue import make_model
from ._fit_groups import (
    OPTIONS,
    Seats,
    consent_of,
    group_rows,
    kept_budgets,
    largest,
    most_of,
    room_of,
    rounds_of,
    teachers_folder,
)
from ._numbers import label_counts, queries_part
from .card import ModelCard, export_student
from .labelling import ORDERS, Labels, Order, guaranteed_epsilon, label_pool, most_expected
from .personal.assignment import arrange, plan_as_dict
from .personal.consent import Consent
from .personal.plan import PersonalPlan
from .personal.rounds import Names, round_seed
from .repeats import notice, remembered
from .result import (
    FORMAT,
    SCORES,
    BudgetPart,
    DataPart,
    GroupPart,
    LabelPart,
    MechanismPart,
    PartitionPart,
    PersonalPart,
    RoundPart,
    RunResult,
    SpentPart,
    StudentPart,
)
from .room import Room

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
    from `random_state`, for experiments that protect nobody.

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
    variant: Literal["weighting", "vanishing", "upsampling"] = "weighting"
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
    """Return a constructor that keeps the parameters of its signature, and takes earlier ones too."""
    shown = signature(init)

    @wraps(init)
    def accept(self: "Fitting", **given: Any) -> None:
        old = {name: given.pop(name) for name in [*given] if name in self._moved}
        kept = shown.bind(self, **given)
        kept.apply_defaults()
        for name, value in [*kept.arguments.items()][1:]:
            setattr(self, name, value)
        self._accept_moved(old)

    return accept


# What comes into a fit, checked; a message never quotes an entry


def validated_labels(estimator: Any, X: Any, Y: Any) -> Any:
    """Return X and Y, rows x labels, as scikit-learn checks them for an estimator."""
    return validated(estimator, X, Y.toarray() if hasattr(Y, "toarray") else Y, multi_output=True)


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


def public_pool(estimator: Any, public: Any, X: NDArray[Any]) -> Any:
    """Return the pool, checked; how many of its rows are copies of private ones is sealed in `n_copies_`."""
    pool = validated(estimator, public, reset=False)
    estimator.n_copies_ = count_copies(pool, X)
    return pool


def declared_classes(classes: Sequence[Any] | None, n_classes: int | None) -> NDArray[Any] | None:
    """Return the declared classes, sorted as scikit-learn has them, or None where none are."""
    if n_classes is not None:
        require_count(2, n_classes=n_classes)
    if classes is None:
        return None if n_classes is None else np.arange(int(n_classes))
    table = np.asarray(classes)
    found: NDArray[Any] = np.unique(table)
    if table.ndim != 1 or found.size != table.size or found.size < 2 or n_classes not in (None, found.size):
        raise ValueError(
            "Expected two or more classes, each named once, and n_classes of them where that is given, got "
            f"shape {table.shape} with {found.size} different ones and n_classes={n_classes}."
        )
    return found


def classes_read_off(y: NDArray[Any]) -> NDArray[Any]:
    """Return the classes that appear in y, which gives away that they do."""
    check_classification_targets(y)
    found: NDArray[Any] = np.unique(y)
    if found.size < 2:
        raise ValueError("Expected at least 2 classes in y, got one class. There is nothing to learn.")
    return found


def class_ids(y: NDArray[Any], classes: NDArray[Any]) -> Indices:
    """Return the place of each label among the classes, refusing one that has none."""
    numbers = {label: number for number, label in enumerate(classes.tolist())}
    ids = np.array([numbers.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (ids < 0).any():
        raise ValueError(
            f"Expected one of the {len(classes)} declared classes in every row of y, got another in row "
            f"{int(np.argmax(ids < 0))}. Declare every class, with labels of the type that y has."
        )
    return ids


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


# What parameters leave open


def model_or_default(model: Any) -> Any:
    """Return what was given, or else logistic regression on features of one scale."""
    return make_model("scaled_logistic") if model is None else model


def model_name(model: Any) -> str:
    """Return the name of an estimator's class, of a pipeline's last step."""
    return type(model.steps[-1][1] if isinstance(model, Pipeline) else model).__name__


def default_mechanism(n_teachers: int, *, saves: bool) -> Mechanism:
    """Return a mechanism whose noise grows with the teachers; silence is for those who save a budget."""
    if not saves:
        return GNMax(sigma=0.2 * n_teachers)
    return ConfidentGNMax(
        sigma=0.2 * n_teachers, threshold=0.6 * n_teachers, sigma_threshold=0.24 * n_teachers
    )


def default_n_teachers(n_units: int) -> int:
    """Return 1.5 times the root of the number of units, with ten units each at least and 250 at most."""
    return max(1, min(250, int(1.5 * n_units**0.5), n_units // 10))


def agreed_n_teachers(n_teachers: int | None, n_rows: int, *, by_name: bool) -> int:
    """Return how many teachers there are: as many as were said, or by the number of rows if public."""
    if n_teachers is not None:
        return n_teachers
    if by_name:
        raise ValueError(
            "Expected n_teachers where persons or ids are given, got none. How many there are is private, so "
            "nothing is derived from it. About 1.5 times the root of their rough number suits many tables."
        )
    return default_n_teachers(n_rows)


def n_processes(n_jobs: int | None) -> int | None:
    """Return how many processes train teachers: scikit-learn's -1 stands for every processor."""
    return None if n_jobs is None else effective_n_jobs(n_jobs)


def constant_student(X: NDArray[Any], labels: NDArray[np.int64]) -> Any:
    """Return a student that says the one class that was ever answered."""
    answered = labels != SILENT
    return DummyClassifier(strategy="most_frequent").fit(X[answered], labels[answered])


def spread_columns(
    scores: ArrayLike, student: Any, *, n_classes: int, never_met: float
) -> NDArray[np.float64]:
    """Return a student's scores with a column for every class, also those that no answer ever named."""
    table = np.asarray(scores, dtype=np.float64)
    met = np.asarray(getattr(student, "classes_", np.arange(n_classes)), dtype=np.int64)
    if len(met) == n_classes:
        return table
    if table.ndim == 1:
        table = np.stack([-table, table], axis=1)
    spread = np.full((len(table), n_classes), never_met)
    spread[:, met] = table
    return spread


# Budget and ledger

NO_LIMIT = 1e9  # without classes and pool there is no budget to keep, unless one was given
_DELTA = 1e-5


def agreed_delta(given: Budget | None, ledger: Any) -> float:
    """Return the delta of the budget that was given, or else of the ledger, or else the usual one."""
    known = given or _held(ledger)
    return _DELTA if known is None else known.delta


def agreed_budget(
    given: Budget | None, ledger: Any, *, unlimited: bool, consent: Consent | None, leave: bool
) -> Budget:
    """Return the budget that was given, or else that of the ledger, or else what everybody agreed to."""
    held = _held(ledger)
    if held is not None and given not in (None, held):
        raise ValueError(f"Expected the budget of the ledger, {held}, got {given}. Leave out one of the two.")
    most = 8.0
    if consent is not None:
        # Groups are held to their own budgets. While they leave one by one, the books as a whole add up what
        # some paid after others had left.
        epsilons = [group.epsilon for group in consent.groups]
        most = sum(epsilons) if leave else max(epsilons)
    return given or held or Budget(NO_LIMIT if unlimited else most, _DELTA)


def _held(ledger: Any) -> Budget | None:
    return getattr(getattr(ledger, "accountant", None), "budget", None)


@contextmanager
def open_books(
    ledger: Ledger | str | PathLike[str] | None,
    budget: Budget,
    *,
    allow_seeded: bool,
    consent: Consent | None,
) -> Iterator[Ledger]:
    """Open the ledger of a fit, with an account for every group of people."""
    if isinstance(ledger, (str, PathLike)):
        with SqliteLedger(ledger, Accountant(budget)) as opened:
            _open_groups(opened, consent)
            yield opened
        return
    books = MemoryLedger(Accountant(budget), allow_seeded=allow_seeded) if ledger is None else ledger
    _open_groups(books, consent)
    yield books


def _open_groups(ledger: Ledger, consent: Consent | None) -> None:
    if consent is None:
        require_no_groups(ledger)
    else:
        budgets = {group.name: Budget(group.epsilon, consent.delta) for group in consent.groups}
        open_group_accounts(ledger, budgets)


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


@dataclass(frozen=True)
class Target:
    """What is learned, in words for messages: classes or labels, and how they are declared."""

    what: str
    argument: str
    read_off: str


class Fitting:
    """What the classifiers of one class and of many labels per row share: all of a fit but the targets.

    A classifier says which mechanism it takes if none is given (`_usual_mechanism`), how its teachers are
    trained (`_train`), what it tells of released labels (`_tell_labels`) and how its student is taught
    (`_taught`). `_moved` says where parameters of earlier versions are now, and `_unused` which settings do
    not apply to it.
    """

    _moved: ClassVar[dict[str, tuple[str, str]]]
    _unused: ClassVar[tuple[str, ...]] = ()
    _target: ClassVar[Target]
    student: Any
    mechanism: Any
    budget: Any
    n_teachers: Any
    queries: Queries | None
    training: Training | None
    groups: Groups | None = None
    ledger: Any
    random_state: Any
    _usual_mechanism: Callable[..., Mechanism]
    _train: Callable[..., Any]
    _tell_labels: Callable[..., None]
    _taught: Callable[..., Any]

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

    def _check_asking(self) -> None:
        """Refuse settings that mean nothing, before teachers are trained."""
        chosen = self._queries
        if chosen.order not in ORDERS:
            raise ValueError(f"Expected order to be one of {', '.join(ORDERS)}, got {chosen.order!r}.")
        given = {
            "n_teachers": self.n_teachers, "n_queries": chosen.n_queries, "max_labels": chosen.max_labels,
        }  # fmt: skip
        require_count(batch=chosen.batch, **{name: n for name, n in given.items() if n is not None})
        for settings in (chosen, self._training):
            for one in fields(settings):
                if one.name in self._unused and getattr(settings, one.name) != one.default:
                    kind = type(settings).__name__
                    raise ValueError(
                        f"Expected {kind} without {one.name} for {type(self).__name__}, which has no use "
                        "for it, got one. Leave it out."
                    )

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
        check_is_fitted(self)
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
            budgets = kept_budgets(budgets, kept)
        else:
            pool = given = public_pool(self, public, X)
            rows = np.arange(len(pool))
        delta = agreed_delta(self.budget, self.ledger)
        consent = consent_of(self._groups, budgets, owners["persons"], delta=delta)
        leave = self._groups.exhausted_leave and consent is not None and len(consent.groups) > 1
        budget = agreed_budget(self.budget, self.ledger, unlimited=is_open, consent=consent, leave=leave)
        seats = self._seats(y, consent, saves=not is_open, seed=split, **owners)
        self.mechanism_, self.plan_ = seats.mechanism, seats.plan
        self.n_public_, self.n_teachers_ = len(pool), len(seats.partition)
        self._tell_partition(seats.partition, n_rows=len(X))
        # Opened before hours of training: a ledger with another budget is refused now.
        with open_books(self.ledger, budget, allow_seeded=seeded, consent=consent) as ledger:

            def vote(some: Seats, absent: Names) -> VotedPool:
                place = teachers_folder(training.folder, seats.plan, absent)
                ensemble = self._train(
                    *some.rows(X, y),
                    some.partition,
                    seed=round_seed(teach, absent),
                    folder=place,
                    public=given,
                )
                votes = ensemble.vote(pool)
                self.troubles_ = ensemble.troubles
                return VotedPool(votes)

            key = f"{name}/{question(self, pool, plan=seats.plan, seed=ask)}"
            source = noise.seeded(draw) if seeded else noise.secure()
            room, next_room = room_of(
                ledger, source, seats=seats, consent=consent, vote=vote, leave=leave, key=key,
                first=asking.warm_up, seed=split,
            )  # fmt: skip
            with telling_what_is_spent(ledger, budget), remembered(seen, self, budget):
                released = label_pool(
                    room, pool, seed=ask, order=asking.order, n_queries=asking.n_queries,
                    n_labels=asking.max_labels, batch=asking.batch, student=model_or_default(self.student),
                    first=asking.first, per_round=asking.per_round, warm_up=asking.warm_up,
                    queries=np.arange(len(pool)), key=key, next_room=next_room,
                )  # fmt: skip
                self._record(released, rows, ledger=ledger, budget=budget, reasons=reasons)
                self._tell_rounds(room, key=key, followed=next_room is not None)
                self._state(ledger, budget, seats, consent, leave=leave)
                self.student_ = self._taught(pool, released, seed=learn, lenient=is_open)

    def _reasons(self, *, declared: bool, pooled: bool, seeded: bool) -> list[str]:
        """Return why no epsilon may be stated, and warn; refuse where a ledger is kept all the same."""
        what, argument = self._target.what, self._target.argument
        if self.ledger is not None and not (declared and pooled):
            missing = "public pool" if declared else argument
            raise ValueError(
                f"Expected {what} and a public pool where a ledger is kept, got no {missing}. Its books "
                "would say a cost that is not the cost of this fit. "
                f"Pass {argument}=... and public=..., or leave out the ledger."
            )
        found = {
            f"The {what} were not declared, so they were read off {self._target.read_off}.": not declared,
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

    def _seats(
        self,
        y: Indices,
        consent: Consent | None,
        *,
        persons: Any,
        ids: Any,
        sites: Any,
        saves: bool,
        seed: int,
    ) -> Seats:
        """Deal the rows to teachers, plainly or as the budgets of their people ask for."""
        n_teachers, training = self.n_teachers, self._training
        if sites is None:
            by_name = persons is not None or ids is not None
            n_teachers = agreed_n_teachers(n_teachers, len(y), by_name=by_name)
        if consent is None:
            parts = partition(
                len(y), n_teachers, seed=seed, labels=y if training.stratified else None, persons=persons,
                ids=ids, sites=sites, site_names=training.site_names,
            )  # fmt: skip
            return Seats(parts, self.mechanism or self._usual_mechanism(len(parts), saves=saves))
        plain = self.mechanism or self._usual_mechanism(n_teachers, saves=saves)
        chosen = {name: getattr(self._groups, name) for name in OPTIONS}
        seating = arrange(self._groups.variant, consent, plain, n_teachers=n_teachers, seed=seed, **chosen)
        return Seats(seating.partition, plain, seating.plan, seating)

    def _tell_partition(self, parts: Partition, *, n_rows: int) -> None:
        """Set the attributes that say who is protected; the number of rows only where that is public."""
        self.relation_, self.unit_, self.notes_ = parts.relation, parts.unit, parts.notes
        self.n_private_ = n_rows if parts.relation.counts_are_public else None

    def _record(
        self, released: Labels, rows: NDArray[Any], *, ledger: Ledger, budget: Budget, reasons: list[str]
    ) -> None:
        """Set the attributes that say what came out and what it cost; all of it is public."""
        if not reasons and any(entry.event.get("noise") != "secure" for entry in ledger.entries()):
            reasons = ["The ledger holds answers with seeded noise."]
        self.released_, self.stopped_by_ = released, released.stopped_by
        self.n_queries_ = len(released)
        self._tell_labels(released, rows)
        self.spent_, self.delta_, self.why_ = ledger.spent, budget.delta, " ".join(reasons)
        self.budget_ = None if budget.epsilon == NO_LIMIT else budget

    def _tell_rounds(self, room: Room, *, key: str, followed: bool) -> None:
        """Set the attributes that say with which teachers it began, and which followed."""
        is_over = self.stopped_by_ == "the budget"
        self.rounds_, why = rounds_of(room, key=key, is_over=is_over, followed=followed)
        if why:
            warnings.warn(why, UserWarning, stacklevel=4)
        if self.rounds_ and self.plan_ is not None and self.rounds_[0]["absent"]:
            first = self.plan_.without(self.rounds_[0]["absent"])
            self.n_teachers_, self.mechanism_ = first.n_teachers, first.mechanism

    def _state(
        self, ledger: Ledger, budget: Budget, seats: Seats, consent: Consent | None, *, leave: bool
    ) -> None:
        """Set the attributes that say what is guaranteed, and to whom."""
        # A cap counts if it was set before the first release, which only a fresh ledger is sure of.
        n_most = min(self.n_public_, self._queries.n_queries or self.n_public_)
        is_fixed, is_guarantee, warm_up = self.ledger is None, not self.why_, self._queries.warm_up
        self.groups_: tuple[dict[str, Any], ...] = ()
        if consent is None or seats.plan is None:
            most = most_expected(n_most, self.mechanism_, warm_up) if is_fixed else None
            stated = guaranteed_epsilon(ledger, Accountant(budget), most=most)
        else:
            # Without those who left there is less noise: a price for all of it was not known beforehand.
            fixed = is_fixed and not leave
            prices = most_of(seats.plan, n_most, seats.plain, warm_up) if fixed else None
            self.groups_ = group_rows(ledger, consent, seats.plan, most=prices, is_guarantee=is_guarantee)
            most = None if prices is None else largest(prices.values())
            stated = guaranteed_epsilon(ledger, Accountant(budget), most=most)
            stated = min(stated, max(row["stated"] for row in self.groups_))
        self.epsilon_ = stated if is_guarantee else math.inf


@contextmanager
def telling_what_is_spent(ledger: Ledger, budget: Budget) -> Iterator[None]:
    """Add to whatever stops a fit what it has cost so far."""
    try:
        yield
    except Exception as error:
        spent = ledger.spent.epsilon(budget.delta)
        error.add_note(f"On the ledger, with or without labels: epsilon {spent:.4g} is spent.")
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
            own["personal"] = _personal_part(fitted)
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
            epsilon=math.inf if fitted.budget_ is None else fitted.budget_.epsilon, delta=fitted.delta_
        ),
        spent=SpentPart(
            epsilon=math.inf if fitted.why_ else fitted.epsilon_,
            delta=fitted.delta_,
            charged=fitted.spent_.epsilon(fitted.delta_),
            is_guarantee=not fitted.why_,
            why=fitted.why_,
        ),
        queries=queries_part(released, order=fitted._queries.order, stopped_by=fitted.stopped_by_),
        student=StudentPart(
            kind=kind,
            model=model,
            n_labels=int((released.labels != SILENT).sum()),
            accuracy=accuracy,
            **scores,
        ),
        versions={
            "tellers": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
        },
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        **own,
    )


def _personal_part(fitted: Any) -> PersonalPart:
    plan = fitted.plan_
    rounds: dict[str, Any] = {"rounds": tuple(RoundPart(**one) for one in fitted.rounds_)}
    return PersonalPart(
        variant=plan.variant,
        leave=fitted._groups.exhausted_leave,
        plan=tuple(plan.summary),
        groups=tuple(GroupPart(**row) for row in fitted.groups_),
        **(rounds if fitted.rounds_ else {}),
    )
