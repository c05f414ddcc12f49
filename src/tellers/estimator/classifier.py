"""The classifier: one fit from private rows to a public student, in scikit-learn's manner."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .. import noise
from ..budget import Accountant, Budget
from ..card import ModelCard, export_student
from ..door import Room
from ..labelling import Labels, guaranteed_epsilon, label_pool, most_expected
from ..ledger import Ledger
from ..mechanisms import Mechanism, NoisyHistogram
from ..personal import Consent
from ..personal.rounds import round_seed
from ..release import SILENT
from ..students import fit_distilled, fit_supervised
from ..students.order import Order
from ..teachers.pool import VotedPool
from . import _books, _groups, _inputs, _models
from ._fitting import Fitting, remembered, telling_what_is_spent
from ._repeats import notice
from ._result import public_result

_ADVICE = "epsilon_ is infinite. Declare classes=..., pass public=... and leave seeded_noise alone."


class NoGuaranteeWarning(UserWarning):
    """A fit went through and promises nothing: its `epsilon_` is infinite, and `why_` says why."""


def _student_has(method: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "student_", _models.model_or_default(self.student)), method)


class PateClassifier(Fitting, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Teachers on private rows, noisy votes on a public pool, a student of the labels that came out.

    What `fit` leaves behind is public: the student, the labels it learnt from and what they cost, never a
    vote or a teacher. Classes are declared (`n_classes` or `classes`) and the pool is given (`public`). A fit
    without them goes through, with a `NoGuaranteeWarning` and an infinite `epsilon_`. What is left at None
    comes from public numbers: as teachers 1.5 times the root of the number of rows, and 250 at most (with
    persons or ids that number is private, and `n_teachers` has to be said); ConfidentGNMax with sigma,
    threshold and sigma_threshold at 0.2, 0.6 and 0.24 of the teachers; epsilon 8 at delta 1e-5; logistic
    regression on standardised features. Where people agreed to different budgets, `fit(..., budgets=...)`
    takes them by `variant` and its options, which are those of `personal.make_plan`; with `exhausted_leave`
    whoever has none left leaves, and the others go on; by upsampling with teachers trained anew, in
    `rounds_`.

    Every teacher votes, whatever its rows are: one that could not learn by a public rule. Who that was, and
    how many rows of the pool are copies of private ones, is `Sealed`: `troubles_` and `n_copies_` are for
    whoever fits, and no copy of a classifier, pickled or not, holds them.

    Guarantee: with classes and pool declared, everything a fitted classifier holds unsealed and says is
               (`epsilon_`, `delta_`)-differentially private between tables that are neighbours by
               `relation_`, and epsilon_ <= budget.epsilon; with budgets also for each group at its own
               epsilon ("stated" in `groups_`).
    Assumes:   `public`, parameters and budgets do not depend on private rows; it is of this fit:
               other fits on the same rows add up, unless they share a `ledger`, whose budget `epsilon_` is.
    Reference: Papernot et al. 2017, section 2; Papernot et al. 2018, section 4; see `Accountant`.

    >>> from tellers.datasets import digits
    >>> X, y = digits().X, digits().y
    >>> pate = PateClassifier(n_classes=10, n_teachers=40, n_queries=60, budget=Budget(epsilon=8, delta=1e-4))
    >>> pate = pate.fit(X[:1000], y[:1000], public=X[1000:1400])
    >>> pate.unit_, pate.n_teachers_, 0 < pate.epsilon_ <= 8
    ('one record', 40, True)
    >>> pate.predict(X[1400:]).shape, pate.predict_proba(X[1400:]).shape
    ((397,), (397, 10))
    """

    def __init__(
        self,
        *,
        teacher: Any = None,
        student: Any = None,
        mechanism: Mechanism | None = None,
        budget: Budget | None = None,
        n_teachers: int | None = None,
        n_classes: int | None = None,
        classes: Sequence[Any] | None = None,
        order: Order = "shuffled",
        n_queries: int | None = None,
        n_labels: int | None = None,
        batch: int = 10,
        first: int | None = None,
        per_round: int | None = None,
        warm_up: Mechanism | None = None,
        temperature: float | None = None,
        floor: float = 0.0,
        stratified: bool = False,
        site_names: Sequence[Any] | None = None,
        levels: Mapping[str, float] | None = None,
        max_groups: int = 20,
        variant: Literal["weighting", "vanishing", "upsampling"] = "weighting",
        weights: Sequence[float] | None = None,
        denominator: int | None = None,
        precision: float | None = None,
        min_persons: int | None = None,
        power: float | None = None,
        copies: Sequence[int] | None = None,
        most: int | None = None,
        grow: Literal["teachers", "shares"] | None = None,
        exhausted_leave: bool = False,
        ledger: Ledger | str | PathLike[str] | None = None,
        folder: str | PathLike[str] | None = None,
        n_jobs: int | None = None,
        seeded_noise: bool = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.teacher = teacher
        self.student = student
        self.mechanism = mechanism
        self.budget = budget
        self.n_teachers = n_teachers
        self.n_classes = n_classes
        self.classes = classes
        self.order = order
        self.n_queries = n_queries
        self.n_labels = n_labels
        self.batch = batch
        self.first = first
        self.per_round = per_round
        self.warm_up = warm_up
        self.temperature = temperature
        self.floor = floor
        self.stratified = stratified
        self.site_names = site_names
        self.levels = levels
        self.max_groups = max_groups
        self.variant = variant
        self.weights = weights
        self.denominator = denominator
        self.precision = precision
        self.min_persons = min_persons
        self.power = power
        self.copies = copies
        self.most = most
        self.grow = grow
        self.exhausted_leave = exhausted_leave
        self.ledger = ledger
        self.folder = folder
        self.n_jobs = n_jobs
        self.seeded_noise = seeded_noise
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        public: Any = None,
        classes: Sequence[Any] | None = None,
        persons: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        sites: ArrayLike | None = None,
        budgets: ArrayLike | Mapping[Any, Any] | None = None,
    ) -> "PateClassifier":
        """Train teachers on private rows, ask them about `public` ones, and teach a student what they said.

        `classes` declares the classes for this fit, where the parameters do not. `persons`, `ids` and `sites`
        have an entry per private row. All rows of a person go to one teacher, by a keyed hash of the person;
        `ids` name single rows, which then may come and go as persons may; every site is one teacher, in the
        order of `site_names`. Without any of them rows keep their place, and their number is public.
        `budgets` say what everybody agreed to: an epsilon or a name among `levels` for every private row, or
        a mapping from `persons` to those.
        """
        self._check_parameters()
        _groups.check_groups(self, budgets, sites=sites, ids=ids)
        self._forget()
        X, y = _inputs.validated(self, X, y)
        check_consistent_length(X, persons, ids, sites, None if isinstance(budgets, Mapping) else budgets)
        declared = _inputs.declared_classes(self.classes if classes is None else classes, self.n_classes)
        is_open = declared is None or public is None
        seeded = self.seeded_noise or (is_open and self.random_state is not None)
        reasons = self._reasons(
            declared=declared is not None,
            pooled=public is not None,
            seeded=seeded,
            what="classes",
            argument="classes",
            read_off="y",
        )
        if reasons:
            warnings.warn(f"{' '.join(reasons)} {_ADVICE}", NoGuaranteeWarning, stacklevel=2)
        # Without a guarantee that was said already, and there is no epsilon to add up.
        seen = None if reasons else notice(X, self.ledger)
        self.classes_ = _inputs.classes_read_off(y) if declared is None else declared
        y = _inputs.class_ids(y, self.classes_)
        name, seed = _books.identity(self.folder, self.random_state)
        split, teach, ask, learn, draw = (int(n) for n in np.random.SeedSequence(seed).generate_state(5))

        owners, given = {"persons": persons, "ids": ids, "sites": sites}, None
        if public is None:
            rows, kept = _inputs.halves(y, seed=split)
            pool, X, y = X[rows], X[kept], y[kept]
            owners = {n: None if o is None else np.asarray(o)[kept] for n, o in owners.items()}
            budgets = _groups.kept_budgets(budgets, kept)
        else:
            pool = given = _inputs.public_pool(self, public, X)
            rows = np.arange(len(pool))
        delta = _books.agreed_delta(self.budget, self.ledger)
        consent = _groups.consent_of(self, budgets, owners["persons"], delta=delta)
        leave = self.exhausted_leave and consent is not None and len(consent.groups) > 1
        budget = _books.agreed_budget(
            self.budget, self.ledger, unlimited=is_open, consent=consent, leave=leave
        )
        seats = _groups.seats_of(self, y, consent, saves=not is_open, seed=split, **owners)
        self.mechanism_, self.plan_ = seats.mechanism, seats.plan
        self.n_public_, self.n_teachers_ = len(pool), len(seats.partition)
        self._tell_partition(seats.partition, n_rows=len(X))
        # Opened before hours of training: books with another budget are refused now.
        with _books.open_books(self.ledger, budget, allow_seeded=seeded, consent=consent) as ledger:

            def vote(some: _groups.Seats, absent: tuple[str, ...]) -> VotedPool:
                ensemble = _models.train(
                    _models.model_or_default(self.teacher), *some.rows(X, y), some.partition,
                    n_classes=len(self.classes_), seed=round_seed(teach, absent), n_jobs=self.n_jobs,
                    folder=_groups.teachers_folder(self.folder, seats.plan, absent), public=given,
                )  # fmt: skip
                votes = ensemble.vote(pool)
                self.troubles_ = ensemble.troubles
                return VotedPool(votes)

            key = f"{name}/{_books.question(self, pool, plan=seats.plan, seed=ask)}"
            source = noise.seeded(draw) if seeded else noise.secure()
            room, next_room = _groups.room_of(
                ledger, source, seats=seats, consent=consent, vote=vote, leave=leave, key=key,
                first=self.warm_up, seed=split,
            )  # fmt: skip
            with telling_what_is_spent(ledger, budget), remembered(seen, self, budget):
                released = label_pool(
                    room, pool, seed=ask, order=self.order, n_queries=self.n_queries, n_labels=self.n_labels,
                    batch=self.batch, student=_models.model_or_default(self.student), first=self.first,
                    per_round=self.per_round, warm_up=self.warm_up, queries=np.arange(len(pool)), key=key,
                    next_room=next_room,
                )  # fmt: skip
                self._record(released, rows, ledger=ledger, budget=budget, reasons=reasons)
                self._tell_rounds(room, key=key, followed=next_room is not None)
                self._state(ledger, budget, seats, consent, leave=leave)
                self.student_ = self._taught(pool, released, seed=learn, lenient=is_open)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the student's class for every row, as it was declared."""
        rows = self._rows(X)
        return np.asarray(self.classes_[np.asarray(self.student_.predict(rows)).astype(np.int64)])

    @available_if(_student_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the student's probabilities, a column for each of `classes_`: 0 for one it never met."""
        rows = self._rows(X)
        return _models.spread_columns(
            self.student_.predict_proba(rows), self.student_, n_classes=len(self.classes_), never_met=0.0
        )

    @available_if(_student_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the student's scores, a column for each of `classes_`; one number a row for two classes."""
        rows = self._rows(X)
        # The lowest number and not infinity, as scikit-learn's own cross_val_predict has it: metrics take it.
        lowest = float(np.finfo(np.float64).min)
        return _models.spread_columns(
            self.student_.decision_function(rows),
            self.student_,
            n_classes=len(self.classes_),
            never_met=lowest,
        )

    def export(
        self,
        folder: str | PathLike[str],
        *,
        name: str = "private rows",
        accuracy: float | None = None,
        trusted: Sequence[str] = (),
        overwrite: bool = False,
    ) -> Path:
        """Write the student with its model card into a folder of their own, and return the folder.

        `name` says what the data are and `accuracy` what was measured on public test rows; both go on the
        card. `load_student` reads the student again: it answers with the numbers of the card's classes.

        >>> import tempfile
        >>> from tellers.card import load_student
        >>> from tellers.datasets import breast_cancer
        >>> X, y = breast_cancer().X, breast_cancer().y
        >>> pate = PateClassifier(n_classes=2).fit(X[:400], y[:400], public=X[400:500])
        >>> with tempfile.TemporaryDirectory() as room:
        ...     place = pate.export(Path(room) / "student", name="tumours")
        ...     bool((load_student(place).predict(X[500:]) == pate.predict(X[500:])).all())
        True
        """
        check_is_fitted(self)
        card = ModelCard.from_result(public_result(self, name, accuracy=accuracy))
        return export_student(self.student_, folder, card=card, trusted=trusted, overwrite=overwrite)

    def _rows(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        rows: NDArray[Any] = _inputs.validated(self, X, reset=False)
        return rows

    def _check_parameters(self) -> None:
        """Refuse what can be refused before teachers are trained."""
        self._check_asking()
        if self.temperature is not None and not isinstance(self.mechanism, NoisyHistogram):
            raise TypeError(
                "Expected mechanism=NoisyHistogram(...) with a temperature, which distils its noisy counts, "
                f"got {type(self.mechanism).__name__}. Set that mechanism, or leave out the temperature."
            )

    def _record(
        self, released: Labels, rows: NDArray[Any], *, ledger: Ledger, budget: Budget, reasons: list[str]
    ) -> None:
        """Set the attributes that say what came out and what it cost; all of it is public."""
        if not reasons and any(entry.event.get("noise") != "secure" for entry in ledger.entries()):
            reasons = ["The ledger holds answers with seeded noise."]
        answered = released.labels != SILENT
        self.released_, self.stopped_by_ = released, released.stopped_by
        self.rows_ = rows[released.rows[answered]]
        self.labels_ = self.classes_[released.labels[answered]]
        self.n_queries_, self.n_labels_ = len(released), int(answered.sum())
        self.answered_share_ = released.n_answered / max(1, len(released))
        self.spent_, self.delta_, self.why_ = ledger.spent, budget.delta, " ".join(reasons)
        self.budget_ = None if budget.epsilon == _books.NO_LIMIT else budget

    def _state(
        self, ledger: Ledger, budget: Budget, seats: _groups.Seats, consent: Consent | None, *, leave: bool
    ) -> None:
        """Set the attributes that say what is guaranteed, and to whom."""
        # A cap counts if it was set before the first release, which only fresh books are sure of.
        n_most = min(self.n_public_, self.n_queries or self.n_public_)
        is_fixed, is_guarantee = self.ledger is None, not self.why_
        self.groups_: tuple[dict[str, Any], ...] = ()
        if consent is None or seats.plan is None:
            most = most_expected(n_most, self.mechanism_, self.warm_up) if is_fixed else None
            stated = guaranteed_epsilon(ledger, Accountant(budget), most=most)
        else:
            # Without those who left there is less noise: a price for all of it was not known beforehand.
            fixed = is_fixed and not leave
            prices = _groups.most_of(seats.plan, n_most, seats.plain, self.warm_up) if fixed else None
            self.groups_ = _groups.group_rows(
                ledger, consent, seats.plan, most=prices, is_guarantee=is_guarantee
            )
            most = None if prices is None else _groups.largest(prices.values())
            stated = guaranteed_epsilon(ledger, Accountant(budget), most=most)
            stated = min(stated, max(row["stated"] for row in self.groups_))
        self.epsilon_ = stated if is_guarantee else math.inf

    def _tell_rounds(self, room: Room, *, key: str, followed: bool) -> None:
        """Set the attributes that say with which teachers it began, and which followed."""
        is_over = self.stopped_by_ == "the budget"
        self.rounds_, why = _groups.rounds_of(room, key=key, is_over=is_over, followed=followed)
        if why:
            warnings.warn(why, UserWarning, stacklevel=3)
        if self.rounds_ and self.plan_ is not None and self.rounds_[0]["absent"]:
            first = self.plan_.without(self.rounds_[0]["absent"])
            self.n_teachers_, self.mechanism_ = first.n_teachers, first.mechanism

    def _taught(self, pool: NDArray[Any], released: Labels, *, seed: int, lenient: bool) -> Any:
        model, rows = _models.model_or_default(self.student), pool[released.rows]
        if lenient and self.n_labels_ and (self.labels_ == self.labels_[0]).all():
            return _models.constant_student(rows, released.labels)
        if self.temperature is None:
            return fit_supervised(model, rows, released.labels, seed=seed)
        assert released.values is not None  # a noisy histogram has them
        return fit_distilled(
            model, rows, released.values, temperature=self.temperature, floor=self.floor, seed=seed
        )
