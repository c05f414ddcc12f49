"""The classifiers: one fit from private rows to a public student, in scikit-learn's manner."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from ..data.metrics import LabelMetrics
from ..errors import require_count
from ..ledger.base import Ledger
from ..mechanisms._admission import is_multilabel
from ..mechanisms._fields import USUAL_SILENCE
from ..mechanisms.base import Mechanism, label_space
from ..mechanisms.confident import ConfidentGNMax
from ..mechanisms.gnmax import GNMax
from ..mechanisms.labels.binary import Binary
from ..privacy._rows import label_table
from ..privacy.budget import Accountant, Budget
from ..privacy.release import SILENT
from ..privacy.votes import OneOf, SetOf
from ..students.fitting import fit_distilled, fit_supervised, spread_columns
from ..teachers.ballots import check_thresholds
from . import fit as _fit
from .fit import Fitting, Groups, Indices, Queries, Training
from .labelling import Labels
from .sums import Sums


def _student_has(method: str) -> Callable[[Any], bool]:
    def has(self: Any) -> bool:
        if self._is_sum:  # its student knows scores, and no probabilities
            return method == "decision_function"
        return hasattr(getattr(self, "student_", _fit.model_or_default(self.student)), method)

    return has


class PateClassifier(Fitting, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Teachers on private rows, noisy votes on a public pool, a student of the labels that came out.

    What `fit` leaves behind is public: the student, the labels it learnt from and what they cost, never a
    vote or a teacher. Classes are declared (`n_classes` or `classes`) and the pool is given (`public`). A fit
    without them goes through, with a `NoGuaranteeWarning` and an infinite `epsilon_`. What is left at None
    comes from public numbers.

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

    Parameters
    ----------
    teacher, student : estimator, optional
        Any classifier; left out, logistic regression on standardised features.
    mechanism : Mechanism, optional
        Left out, ConfidentGNMax with sigma, threshold and sigma_threshold at 0.2, 0.6 and 0.24 of the
        teachers. A `GaussianSum` releases the scores of the whole pool at once, and "gaussian-sum" is the one
        with the least noise that the budget affords; `Sums(...)` says more. The student is then a regressor
        of those scores.
    budget : Budget or Accountant, optional
        Left out, that of the ledger, or epsilon 8 at delta 1e-5. `epsilon=` and `delta=` may be given in its
        place, and with either `rule="clock"`, by which the same budget buys more labels: an `Accountant` is
        kept then. What a fit states on a clock is the whole budget; `left_` is the share of it that is left.
    n_teachers : int, optional
        Left out, 1.5 times the root of the number of rows, and 250 at most. With persons or ids that number
        is private, and `n_teachers` has to be said.
    n_classes, classes : int, sequence, optional
        The classes, 0 to n_classes - 1 or by name.
    queries : Queries, optional
        How many rows of the pool are asked, in which order, and by which rules.
    groups : Groups, optional
        How people with budgets of their own take part, where `fit` is given their budgets.
    training : Training, optional
        How rows are dealt and teachers and student are taught.
    ledger : Ledger or path, optional
        Where every fit is charged; left out, each fit has its own.
    random_state : int, optional
        Decides the parts, the order and the models; never the noise, unless `queries` says so.

    Examples
    --------
    >>> from tellers.data import digits
    >>> from tellers.runs import Queries
    >>> X, y = digits().X, digits().y
    >>> pate = PateClassifier(
    ...     n_classes=10, n_teachers=40, queries=Queries(n_queries=60), budget=Budget(epsilon=8, delta=1e-4)
    ... )
    >>> pate = pate.fit(X[:1000], y[:1000], public=X[1000:1400])
    >>> pate.unit_, pate.n_teachers_, 0 < pate.epsilon_ <= 8
    ('one record', 40, True)
    >>> pate.predict(X[1400:]).shape, pate.predict_proba(X[1400:]).shape
    ((397,), (397, 10))
    """

    _moved: ClassVar = {
        "n_labels": ("queries", "max_labels"),
        **_fit.moved(Queries, Groups, Training, without=("max_labels",)),
    }
    _target = ("classes", "classes", "y")

    @_fit.accepting_moved
    def __init__(
        self,
        *,
        teacher: Any = None,
        student: Any = None,
        mechanism: Mechanism | Sums | Literal["gaussian-sum"] | None = None,
        budget: Budget | Accountant | None = None,
        n_teachers: int | None = None,
        n_classes: int | None = None,
        classes: Sequence[Any] | None = None,
        queries: Queries | None = None,
        groups: Groups | None = None,
        training: Training | None = None,
        ledger: Ledger | str | PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        """Keep every parameter as it is; `fit` looks at them."""

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
        order of `training.site_names`. Without any of them rows keep their place, and their number is public.
        `budgets` say what everybody agreed to: an epsilon or a name among `groups.levels` for every private
        row, or a mapping from `persons` to those.
        """
        self._check_asking()
        if self._is_sum and budgets is not None:
            raise ValueError(
                "Expected no budgets per person for a Gaussian sum, which everybody pays alike, got some. "
                "Leave them out, or take a mechanism that answers query by query."
            )
        if self._training.temperature is not None and not getattr(self.mechanism, "releases_counts", False):
            raise TypeError(
                "Expected mechanism=NoisyHistogram(...) with a temperature, which distils its noisy counts, "
                f"got {type(self.mechanism).__name__}. Set that mechanism, or leave out the temperature."
            )
        _fit.check_groups(self._groups, budgets, sites=sites, ids=ids, stratified=self._training.stratified)
        self._forget()
        X, y = _fit.validated(self, X, y)
        check_consistent_length(X, persons, ids, sites, None if isinstance(budgets, Mapping) else budgets)
        declared = _declared_classes(self.classes if classes is None else classes, self.n_classes)

        def encode() -> NDArray[np.int64]:
            self.classes_ = _classes_read_off(y) if declared is None else declared
            return _class_ids(y, self.classes_)

        owners = {"persons": persons, "ids": ids, "sites": sites}
        self._fit(X, encode, public=public, declared=declared is not None, owners=owners, budgets=budgets)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the student's class for every row, as it was declared."""
        rows = self._rows(X)
        return np.asarray(self.classes_[np.asarray(self.student_.predict(rows)).astype(np.int64)])

    @available_if(_student_has("predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the student's probabilities, a column for each of `classes_`: 0 for one it never met."""
        rows = self._rows(X)
        return self._spread(self.student_.predict_proba(rows), never_met=0.0)

    @available_if(_student_has("decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the student's scores, a column for each of `classes_`; one number a row for two classes."""
        rows = self._rows(X)
        # The lowest number and not infinity, as scikit-learn's own cross_val_predict has it: metrics take it.
        lowest = float(np.finfo(np.float64).min)
        said = self.student_.decision_function(rows)
        if self._is_sum and len(self.classes_) == 2:
            said = said[:, 1] - said[:, 0]
        return self._spread(said, never_met=lowest)

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
        >>> from tellers.runs import load_student
        >>> from tellers.data import breast_cancer
        >>> X, y = breast_cancer().X, breast_cancer().y
        >>> pate = PateClassifier(n_classes=2).fit(X[:400], y[:400], public=X[400:500])
        >>> with tempfile.TemporaryDirectory() as room:
        ...     place = pate.export(Path(room) / "student", name="tumours")
        ...     bool((load_student(place).predict(X[500:]) == pate.predict(X[500:])).all())
        True
        """
        check_is_fitted(self)
        result = _fit.public_result(self, name, accuracy=accuracy)
        return self._export(folder, result, trusted=trusted, overwrite=overwrite)

    def _spread(self, scores: ArrayLike, *, never_met: float) -> NDArray[np.float64]:
        return spread_columns(scores, self.student_, n_classes=len(self.classes_), never_met=never_met)

    def _usual_mechanism(self, n_teachers: int, *, saves: bool) -> Mechanism:
        # The noise grows with the teachers; silence is for those who save a budget.
        if not saves:
            return GNMax(sigma=0.2 * n_teachers)
        return ConfidentGNMax(
            sigma=0.2 * n_teachers, threshold=0.6 * n_teachers, sigma_threshold=0.24 * n_teachers,
            expected_silence=USUAL_SILENCE,
        )  # fmt: skip

    def _space(self) -> OneOf:
        return OneOf(len(self.classes_))

    def _tell_labels(self, released: Labels, rows: NDArray[Any]) -> None:
        answered = released.labels != SILENT
        self.rows_ = rows[released.rows[answered]]
        self.labels_ = self.classes_[released.labels[answered]]
        self.n_labels_ = int(answered.sum())
        self.answered_share_ = released.n_answered / max(1, len(released))

    def _taught(self, pool: NDArray[Any], released: Labels, *, seed: int, lenient: bool) -> Any:
        model, rows, training = _fit.model_or_default(self.student), pool[released.rows], self._training
        if lenient and self.n_labels_ and (self.labels_ == self.labels_[0]).all():
            # A student that says the one class that was ever answered.
            answered = released.labels != SILENT
            constant = DummyClassifier(strategy="most_frequent")
            return constant.fit(rows[answered], released.labels[answered])
        if training.temperature is None:
            return fit_supervised(model, rows, released.labels, seed=seed)
        assert released.values is not None  # a noisy histogram has them
        return fit_distilled(
            model, rows, released.values, temperature=training.temperature, floor=training.floor, seed=seed
        )


class PateMultilabelClassifier(Fitting, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Teachers on private rows, noisy votes on every label of a public pool, a student of what came out.

    The manners are those of `PateClassifier`, with Y rows x labels of 0 and 1. Labels are declared
    (`n_outputs`, or by the mechanism) and the pool is given (`public`); a fit without them goes through, with
    a `NoGuaranteeWarning` and an infinite `epsilon_`. With a mechanism that counts in parts of a vote
    (`resolution`) teachers hand in their probabilities instead of yes or no.

    Guarantee: with labels and pool declared, everything a fitted classifier holds and says is
               (`epsilon_`, `delta_`)-differentially private for one `unit_`, and epsilon_ <= budget.epsilon.
    Assumes:   `public`, parameters, thresholds and the number of rows do not depend on private rows; `notes_`
               say what a partition leaves out. It is of this fit: other fits on the same rows add up, unless
               they share a `ledger`, whose budget `epsilon_` then is.
    Reference: Dullerud et al. 2022; Papernot et al. 2018, section 4; see `Accountant`.

    Parameters
    ----------
    teacher, student, budget, n_teachers, queries, training, ledger, random_state
        As of `PateClassifier`.
    mechanism : Mechanism, optional
        One for labels: Binary, Tau, Powerset, GNThreshold, DependentBinary, ...; left out, Binary with sigma
        at 0.2 of the teachers. A `GaussianSum` releases the scores of the whole pool at once, and
        "gaussian-sum" is the one with the least noise that the budget affords; the student is then a
        regressor of those scores, and ranks rows by `decision_function`. `Sums(...)` says more.
    n_outputs : int, optional
        How many labels a row has.
    thresholds : float or sequence of floats
        From which probability on a teacher says yes; public.

    Examples
    --------
    >>> from sklearn.datasets import make_multilabel_classification
    >>> X, Y = make_multilabel_classification(900, n_classes=3, random_state=7)
    >>> pate = PateMultilabelClassifier(n_outputs=3, n_teachers=30, budget=Budget(epsilon=8, delta=1e-4))
    >>> pate = pate.fit(X[:600], Y[:600], public=X[600:750])
    >>> pate.unit_, pate.n_outputs_, 0 < pate.epsilon_ <= 8
    ('one record', 3, True)
    >>> pate.predict(X[750:]).shape, pate.predict_proba(X[750:]).shape, 0 < pate.score(X[750:], Y[750:]) < 1
    ((150, 3), (150, 3), True)
    """

    _unused = ("max_labels", "warm_up", "stratified", "temperature", "floor")
    _moved: ClassVar = {"n_labels": ("", "n_outputs"), **_fit.moved(Queries, Training, without=_unused)}
    _target = ("labels", "n_outputs", "Y")
    _one_class = False

    @_fit.accepting_moved
    def __init__(
        self,
        *,
        teacher: Any = None,
        student: Any = None,
        mechanism: Mechanism | Sums | Literal["gaussian-sum"] | None = None,
        budget: Budget | Accountant | None = None,
        n_teachers: int | None = None,
        n_outputs: int | None = None,
        thresholds: float | Sequence[float] = 0.5,
        queries: Queries | None = None,
        training: Training | None = None,
        ledger: Ledger | str | PathLike[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        """Keep every parameter as it is; `fit` looks at them."""

    def fit(
        self,
        X: Any,
        Y: Any,
        *,
        public: Any = None,
        persons: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        sites: ArrayLike | None = None,
    ) -> "PateMultilabelClassifier":
        """Train teachers on private rows, ask them about `public` ones, and teach a student what they said.

        `persons`, `ids` and `sites` have an entry per private row, as in `PateClassifier.fit`.
        """
        self._check_asking()
        if self.mechanism is not None and not self._is_sum and not is_multilabel(self.mechanism):
            raise TypeError(
                f"Expected a mechanism for labels, such as Binary, got {type(self.mechanism).__name__}. For "
                "one class per row take PateClassifier."
            )
        self._forget()
        X, Y = _fit.validated(self, X, Y.toarray() if hasattr(Y, "toarray") else Y, multi_output=True)
        check_consistent_length(X, persons, ids, sites)
        declared = self._declared()
        Y = label_table(Y, n_rows=len(X), n_labels=declared)

        def encode() -> NDArray[np.int64]:
            self.n_labels_ = self.n_outputs_ = Y.shape[1]
            self.classes_ = [np.array([0, 1])] * self.n_outputs_  # one entry for each label
            check_thresholds(self.thresholds, n_labels=self.n_outputs_)
            return np.asarray(Y)

        owners = {"persons": persons, "ids": ids, "sites": sites}
        self._fit(X, encode, public=public, declared=declared is not None, owners=owners)
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the student's answer to every label, rows x labels of 0 and 1."""
        rows = self._rows(X)
        return np.asarray(self.student_.predict(rows))

    @available_if(lambda self: not self._is_sum)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the student's probability of every label, rows x labels."""
        rows = self._rows(X)
        return np.asarray(self.student_.predict_proba(rows))

    @available_if(lambda self: self._is_sum)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the scores of a student of a Gaussian sum, rows x labels: above 0 it says yes."""
        rows = self._rows(X)
        return np.asarray(self.student_.decision_function(rows))

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of right answers, over rows and labels.

        scikit-learn's own score counts rows that are right in every label; of many labels few are.
        """
        said = self.predict(X)
        truth = label_table(y, n_rows=len(said), n_labels=self.n_outputs_)
        return float(np.average((said == truth).mean(axis=1), weights=sample_weight))

    def export(
        self,
        folder: str | PathLike[str],
        *,
        name: str = "private rows",
        label_names: Sequence[str] | None = None,
        measured: LabelMetrics | None = None,
        trusted: Sequence[str] = (),
        overwrite: bool = False,
    ) -> Path:
        """Write the student with its model card into a folder of their own, and return the folder.

        `name` says what the data are, `label_names` what the labels are, in their order, and `measured` what
        `metrics.measure` found on public test rows; all of it goes on the card. `load_student` reads the
        student again: it answers rows x labels of 0 and 1.

        >>> import tempfile
        >>> from sklearn.datasets import make_multilabel_classification
        >>> from tellers.runs import load_student
        >>> X, Y = make_multilabel_classification(900, n_classes=2, random_state=7)
        >>> pate = PateMultilabelClassifier(n_outputs=2, n_teachers=30)
        >>> pate = pate.fit(X[:600], Y[:600], public=X[600:750])
        >>> with tempfile.TemporaryDirectory() as room:
        ...     place = pate.export(Path(room) / "student", label_names=["rain", "wind"])
        ...     bool((load_student(place).predict(X[750:]) == pate.predict(X[750:])).all())
        True
        """
        check_is_fitted(self)
        given = [f"label {label}" for label in range(self.n_outputs_)] if label_names is None else label_names
        names = [str(label) for label in given]
        if len(names) != self.n_outputs_ or len(set(names)) < len(names) or not all(map(str.strip, names)):
            raise ValueError(
                f"Expected {self.n_outputs_} different label_names, one for each label in its order, got "
                f"{len(names)}, {len(set(names))} different."
            )
        result = _fit.public_result(self, name, label_names=names, measured=measured)
        return self._export(folder, result, trusted=trusted, overwrite=overwrite)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.target_tags.two_d_labels = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags

    def _declared(self) -> int | None:
        said = getattr(self.mechanism, "n_labels", None)
        if None not in (said, self.n_outputs) and said != self.n_outputs:
            raise ValueError(
                f"Expected n_outputs={said}, as in the mechanism, got n_outputs={self.n_outputs}. Leave it "
                "out."
            )
        return said if self.n_outputs is None else int(self.n_outputs)

    def _usual_mechanism(self, n_teachers: int, *, saves: bool) -> Mechanism:
        return Binary(sigma=0.2 * n_teachers, n_labels=self.n_outputs_)

    def _space(self) -> SetOf:
        return SetOf(self.n_outputs_, label_space(self.mechanism_).resolution)

    def _tell_labels(self, released: Labels, rows: NDArray[Any]) -> None:
        self.rows_, self.labels_ = rows[released.rows], released.labels
        self.n_answered_ = released.n_answered
        self.n_told_ = int((released.labels != SILENT).sum())

    def _taught(self, pool: NDArray[Any], released: Labels, *, seed: int, lenient: bool) -> Any:
        return fit_supervised(
            _fit.model_or_default(self.student), pool[released.rows], released.labels, seed=seed
        )


# Classes: declared, or read off, and their places


def _declared_classes(classes: Sequence[Any] | None, n_classes: int | None) -> NDArray[Any] | None:
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


def _classes_read_off(y: NDArray[Any]) -> NDArray[Any]:
    """Return the classes that appear in y, which gives away that they do."""
    check_classification_targets(y)
    found: NDArray[Any] = np.unique(y)
    if found.size < 2:
        raise ValueError("Expected at least 2 classes in y, got one class. There is nothing to learn.")
    return found


def _class_ids(y: NDArray[Any], classes: NDArray[Any]) -> Indices:
    """Return the place of each label among the classes, refusing one that has none."""
    numbers = {label: number for number, label in enumerate(classes.tolist())}
    ids = np.array([numbers.get(label, -1) for label in y.tolist()], dtype=np.int64)
    if (ids < 0).any():
        raise ValueError(
            f"Expected one of the {len(classes)} declared classes in every row of y, got another in row "
            f"{int(np.argmax(ids < 0))}. Declare every class, with labels of the type that y has."
        )
    return ids
