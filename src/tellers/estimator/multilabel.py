"""The classifier of many labels: one fit from private rows to a public student, in scikit-learn's manner."""

import math
import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from .. import noise
from ..admission import is_multilabel, require_fit
from ..budget import Accountant, Budget
from ..card import ModelCard, export_student
from ..door import Room
from ..label_models import label_table
from ..labelling import Labels, guaranteed_epsilon, label_pool, most_expected
from ..ledger import Ledger
from ..mechanisms import Mechanism
from ..mechanisms.labels import Binary
from ..metrics import LabelMetrics, measure
from ..release import SILENT
from ..students import fit_labels
from ..students.order import Order
from ..teachers import train_label_teachers
from ..teachers.label_ensemble import check_thresholds
from ..teachers.partition import partition
from ..teachers.pool import VotedPool
from . import _books, _inputs, _models
from ._fitting import Fitting, remembered, telling_what_is_spent
from ._repeats import notice
from ._result import public_label_result
from .classifier import NoGuaranteeWarning

_ADVICE = "epsilon_ is infinite. Declare n_labels=..., pass public=... and leave seeded_noise alone."


class PateMultilabelClassifier(Fitting, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Teachers on private rows, noisy votes on every label of a public pool, a student of what came out.

    The manners are those of `PateClassifier`, with Y rows x labels of 0 and 1. Labels are declared
    (`n_labels`, or by the mechanism) and the pool is given (`public`); a fit without them goes through, with
    a `NoGuaranteeWarning` and an infinite `epsilon_`. `mechanism` is one for labels (Binary, Tau, Powerset,
    GNThreshold, DependentBinary, ...); left at None it is Binary with sigma at 0.2 of the teachers.
    `thresholds` say from which probability on a teacher says yes; they are public. With a mechanism that
    counts in parts of a vote (`resolution`) teachers hand in their probabilities instead.

    Guarantee: with labels and pool declared, everything a fitted classifier holds and says is
               (`epsilon_`, `delta_`)-differentially private for one `unit_`, and epsilon_ <= budget.epsilon.
    Assumes:   `public`, parameters, thresholds and the number of rows do not depend on private rows; `notes_`
               say what a partition leaves out. It is of this fit: other fits on the same rows add up, unless
               they share a `ledger`, whose budget `epsilon_` then is.
    Reference: Dullerud et al. 2022; Papernot et al. 2018, section 4; see `Accountant`.

    >>> from sklearn.datasets import make_multilabel_classification
    >>> X, Y = make_multilabel_classification(900, n_classes=3, random_state=7)
    >>> pate = PateMultilabelClassifier(n_labels=3, n_teachers=30, budget=Budget(epsilon=8, delta=1e-4))
    >>> pate = pate.fit(X[:600], Y[:600], public=X[600:750])
    >>> pate.unit_, pate.n_labels_, 0 < pate.epsilon_ <= 8
    ('one record', 3, True)
    >>> pate.predict(X[750:]).shape, pate.predict_proba(X[750:]).shape, 0 < pate.score(X[750:], Y[750:]) < 1
    ((150, 3), (150, 3), True)
    """

    def __init__(
        self,
        *,
        teacher: Any = None,
        student: Any = None,
        mechanism: Mechanism | None = None,
        budget: Budget | None = None,
        n_teachers: int | None = None,
        n_labels: int | None = None,
        thresholds: float | Sequence[float] = 0.5,
        order: Order = "shuffled",
        n_queries: int | None = None,
        batch: int = 10,
        first: int | None = None,
        per_round: int | None = None,
        site_names: Sequence[Any] | None = None,
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
        self.n_labels = n_labels
        self.thresholds = thresholds
        self.order = order
        self.n_queries = n_queries
        self.batch = batch
        self.first = first
        self.per_round = per_round
        self.site_names = site_names
        self.ledger = ledger
        self.folder = folder
        self.n_jobs = n_jobs
        self.seeded_noise = seeded_noise
        self.random_state = random_state

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
        self._check_parameters()
        self._forget()
        X, Y = _inputs.validated_labels(self, X, Y)
        check_consistent_length(X, persons, ids, sites)
        declared = self._declared()
        Y = label_table(Y, n_rows=len(X), n_labels=declared)
        is_open = declared is None or public is None
        seeded = self.seeded_noise or (is_open and self.random_state is not None)
        reasons = self._reasons(
            declared=declared is not None,
            pooled=public is not None,
            seeded=seeded,
            what="labels",
            argument="n_labels",
            read_off="Y",
        )
        if reasons:
            warnings.warn(f"{' '.join(reasons)} {_ADVICE}", NoGuaranteeWarning, stacklevel=2)
        # Without a guarantee that was said already, and there is no epsilon to add up.
        seen = None if reasons else notice(X, self.ledger)
        self.n_labels_ = self.n_outputs_ = Y.shape[1]
        self.classes_ = [np.array([0, 1])] * self.n_labels_
        limits = check_thresholds(self.thresholds, n_labels=self.n_labels_)
        name, seed = _books.identity(self.folder, self.random_state)
        split, teach, ask, learn, draw = (int(n) for n in np.random.SeedSequence(seed).generate_state(5))

        owners, given = {"persons": persons, "ids": ids, "sites": sites}, None
        if public is None:
            if len(X) < 2:
                raise ValueError("Expected 2 rows or more, half of which become the pool, got one sample.")
            # Rows that are alike in all labels are dealt evenly, as classes are.
            rows, kept = _inputs.halves(np.unique(Y, axis=0, return_inverse=True)[1].reshape(-1), seed=split)
            pool, X, Y = X[rows], X[kept], Y[kept]
            owners = {n: None if o is None else np.asarray(o)[kept] for n, o in owners.items()}
        else:
            pool = given = _inputs.public_pool(self, public, X)
            rows = np.arange(len(pool))
        budget = _books.agreed_budget(self.budget, self.ledger, unlimited=is_open, consent=None, leave=False)
        parts = self._partition(len(X), seed=split, **owners)
        self.mechanism_ = self.mechanism or Binary(sigma=0.2 * len(parts), n_labels=self.n_labels_)
        self.n_public_, self.n_teachers_ = len(pool), len(parts)
        self._tell_partition(parts, n_rows=len(X))
        # Opened before hours of training: books with another budget are refused now.
        with _books.open_books(self.ledger, budget, allow_seeded=seeded, consent=None) as ledger:
            ensemble = train_label_teachers(
                _models.model_or_default(self.teacher), X, Y, parts, n_labels=self.n_labels_, seed=teach,
                thresholds=limits, resolution=self._resolution(), n_jobs=_models.n_processes(self.n_jobs),
                folder=None if self.folder is None else Path(self.folder) / "teachers", public=given,
            )  # fmt: skip
            require_fit(self.mechanism_, ensemble)
            source = noise.seeded(draw) if seeded else noise.secure()
            room = Room(VotedPool(ensemble.vote(pool)), self.mechanism_, ledger, source)
            self.troubles_ = ensemble.troubles
            with telling_what_is_spent(ledger, budget), remembered(seen, self, budget):
                released = label_pool(
                    room, pool, seed=ask, order=self.order, n_queries=self.n_queries, batch=self.batch,
                    student=_models.model_or_default(self.student), first=self.first,
                    per_round=self.per_round, queries=np.arange(len(pool)),
                    key=f"{name}/{_books.question(self, pool, plan=None, seed=ask)}",
                )  # fmt: skip
                self._record(released, rows, ledger=ledger, budget=budget, reasons=reasons)
                self.student_ = fit_labels(
                    _models.model_or_default(self.student), pool[released.rows], released.labels, seed=learn
                )
        return self

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Return the student's answer to every label, rows x labels of 0 and 1."""
        rows = self._rows(X)
        return np.asarray(self.student_.predict(rows))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the student's probability of every label, rows x labels."""
        rows = self._rows(X)
        return np.asarray(self.student_.predict_proba(rows))

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of right answers, over rows and labels.

        scikit-learn's own score counts rows that are right in every label; of many labels few are.
        """
        said = self.predict(X)
        truth = label_table(y, n_rows=len(said), n_labels=self.n_labels_)
        if sample_weight is None:
            return measure(truth, said).accuracy
        return float(np.average((said == truth).mean(axis=1), weights=np.asarray(sample_weight)))

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
        >>> from tellers.card import load_student
        >>> X, Y = make_multilabel_classification(900, n_classes=2, random_state=7)
        >>> pate = PateMultilabelClassifier(n_labels=2, n_teachers=30)
        >>> pate = pate.fit(X[:600], Y[:600], public=X[600:750])
        >>> with tempfile.TemporaryDirectory() as room:
        ...     place = pate.export(Path(room) / "student", label_names=["rain", "wind"])
        ...     bool((load_student(place).predict(X[750:]) == pate.predict(X[750:])).all())
        True
        """
        check_is_fitted(self)
        given = [f"label {label}" for label in range(self.n_labels_)] if label_names is None else label_names
        names = [str(label) for label in given]
        if len(names) != self.n_labels_ or len(set(names)) < len(names) or not all(map(str.strip, names)):
            raise ValueError(
                f"Expected {self.n_labels_} different label_names, one for each label in its order, got "
                f"{len(names)}, {len(set(names))} different."
            )
        result = public_label_result(self, name, label_names=names, measured=measured)
        card = ModelCard.from_result(result)
        return export_student(self.student_, folder, card=card, trusted=trusted, overwrite=overwrite)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.target_tags.two_d_labels = True
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.multi_label = True
        return tags

    def _rows(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        rows: NDArray[Any] = _inputs.validated(self, X, reset=False)
        return rows

    def _check_parameters(self) -> None:
        """Refuse what can be refused before teachers are trained."""
        self._check_asking()
        if self.mechanism is not None and not is_multilabel(self.mechanism):
            raise TypeError(
                f"Expected a mechanism for labels, such as Binary, got {type(self.mechanism).__name__}. For "
                "one class per row take PateClassifier."
            )

    def _declared(self) -> int | None:
        said = getattr(self.mechanism, "n_labels", None)
        if None not in (said, self.n_labels) and said != self.n_labels:
            raise ValueError(
                f"Expected n_labels={said}, as in the mechanism, got n_labels={self.n_labels}. Leave it out."
            )
        return said if self.n_labels is None else int(self.n_labels)

    def _resolution(self) -> int:
        mechanism = self.mechanism_
        return int(getattr(mechanism, "votes_resolution", getattr(mechanism, "resolution", 1)))

    def _partition(self, n_rows: int, *, seed: int, persons: Any, ids: Any, sites: Any) -> Any:
        n_teachers = self.n_teachers
        if sites is None:
            n_teachers = _models.agreed_n_teachers(
                n_teachers, n_rows, by_name=persons is not None or ids is not None
            )
        return partition(
            n_rows, n_teachers, seed=seed, persons=persons, ids=ids, sites=sites, site_names=self.site_names
        )

    def _record(
        self, released: Labels, rows: NDArray[Any], *, ledger: Ledger, budget: Budget, reasons: list[str]
    ) -> None:
        """Set the attributes that say what came out and what it cost; all of it is public."""
        if not reasons and any(entry.event.get("noise") != "secure" for entry in ledger.entries()):
            reasons = ["The ledger holds answers with seeded noise."]
        self.released_, self.stopped_by_ = released, released.stopped_by
        self.rows_, self.labels_ = rows[released.rows], released.labels
        self.n_queries_, self.n_answered_ = len(released), released.n_answered
        self.n_told_ = int((released.labels != SILENT).sum())
        self.spent_, self.delta_, self.why_ = ledger.spent, budget.delta, " ".join(reasons)
        self.budget_ = None if budget.epsilon == _books.NO_LIMIT else budget
        # A cap counts if it was set before the first release, which only fresh books are sure of.
        n_most = min(self.n_public_, self.n_queries or self.n_public_)
        most = most_expected(n_most, self.mechanism_) if self.ledger is None else None
        stated = guaranteed_epsilon(ledger, Accountant(budget), most=most)
        self.epsilon_ = math.inf if self.why_ else stated
