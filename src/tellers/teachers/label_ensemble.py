"""An ensemble on many labels: every teacher says yes or no, or how likely, to each of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..label_models import OneEach, label_table, takes_labels
from ..metrics import measure
from ..rows import numeric_rows
from ..sealed import Sealed
from .ballots import label_ballot
from .ensemble import known_troubles
from .loading import load_teachers
from .partition import Partition, Seed
from .running import train_each

if TYPE_CHECKING:
    from ..label_votes import LabelVotes
    from .torch import TorchLabelEnsemble

    AnyLabelEnsemble: TypeAlias = "LabelEnsemble | TorchLabelEnsemble"

Floats = NDArray[np.float64]
Thresholds = float | tuple[float, ...]


class LabelVoters(ABC):
    """Teachers that vote on many labels by their probabilities; a class says what those are.

    >>> from tellers.teachers.models import ConstantLabels
    >>> voters: LabelVoters = LabelEnsemble((ConstantLabels((0, 1)),), n_labels=2)
    >>> voters.vote([[0.1]]), voters.probabilities([[0.1]]), voters.accuracies([[0.1]], [[1, 1]])
    (LabelVotes(<private>, n_queries=1, n_teachers=1, n_labels=2), Sealed(<private>), Sealed(<private>))
    """

    thresholds: Thresholds
    resolution: int

    def vote(self, X: ArrayLike) -> "LabelVotes":
        """Return every teacher's ballot on every query and label."""
        return cast_label_votes(
            self._probabilities(X), thresholds=self.thresholds, resolution=self.resolution
        )

    def probabilities(self, X: ArrayLike) -> Sealed[Floats]:
        """Return what every teacher says, teachers x queries x labels, sealed: do not tune on it."""
        return Sealed(self._probabilities(X))

    def accuracies(self, X: ArrayLike, Y: ArrayLike) -> Sealed[Floats]:
        """Return each teacher's share of right answers, over rows and labels, sealed."""
        return label_accuracies(self.vote(X), Y)

    @abstractmethod
    def _probabilities(self, X: ArrayLike) -> Floats:
        """Return what every teacher says, teachers x queries x labels."""


@dataclass(frozen=True, eq=False, repr=False)
class LabelEnsemble(LabelVoters):
    """Trained teachers that vote on many labels; what they say is private until a mechanism releases it.

    A teacher says yes where its probability of a label reaches the label's threshold. Thresholds are public:
    given, or found with `metrics.tune_thresholds` by a model of public rows. With a `resolution` above 1 the
    votes are the probabilities themselves, in such parts, for a mechanism that adds those up. A teacher that
    could not be trained, or does not answer, says no to every label; `troubles` says who did and why.

    Guarantee: one changed unit of the partition changes one row of ballots, on any of the labels.
    Assumes:   the teachers were trained on the parts of one `Partition`; queries and thresholds are public.
    Reference: Dullerud et al. 2022, section 3.

    >>> from tellers.teachers.models import ConstantLabels
    >>> ensemble = LabelEnsemble((ConstantLabels((0, 1)), ConstantLabels((1, 1))), n_labels=2)
    >>> ensemble, ensemble.vote([[0.1], [0.2]])
    (LabelEnsemble(n_teachers=2, n_labels=2), LabelVotes(<private>, n_queries=2, n_teachers=2, n_labels=2))
    >>> ensemble.probabilities([[0.1]]), ensemble.accuracies([[0.1]], [[1, 1]]), ensemble.troubles
    (Sealed(<private>), Sealed(<private>), Sealed(<private>))
    """

    teachers: tuple[Any, ...]
    n_labels: int
    thresholds: Thresholds = 0.5
    resolution: int = 1
    _troubles: dict[int, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        require_count(n_labels=self.n_labels, n_teachers=len(self.teachers), resolution=self.resolution)
        object.__setattr__(self, "thresholds", check_thresholds(self.thresholds, n_labels=self.n_labels))

    def _probabilities(self, X: ArrayLike) -> Floats:
        from threadpoolctl import threadpool_limits

        queries = numeric_rows(X)
        table = np.empty((len(self), len(queries), self.n_labels))
        with threadpool_limits(limits=1):
            for number, teacher in enumerate(self.teachers):
                table[number], trouble = label_ballot(teacher, queries, n_labels=self.n_labels)
                if trouble is not None:
                    self._troubles[number] = trouble
        return table

    @property
    def troubles(self) -> Sealed[dict[int, str]]:
        """Return who said no to everything by the rule and why, by number; sealed, as rows decide it."""
        return Sealed(known_troubles(self.teachers) | self._troubles)

    def __len__(self) -> int:
        return len(self.teachers)

    def __repr__(self) -> str:
        return f"LabelEnsemble(n_teachers={len(self)}, n_labels={self.n_labels})"


def train_label_ensemble(
    estimator: Any,
    X: ArrayLike,
    Y: ArrayLike,
    partition: Partition,
    *,
    n_labels: int,
    seed: Seed,
    thresholds: float | Sequence[float] = 0.5,
    resolution: int = 1,
    public: ArrayLike | None = None,
    **options: Any,
) -> LabelEnsemble:
    """Train one copy of an estimator on each part of rows with many labels, Y rows x labels of 0 and 1.

    An estimator of scikit-learn's that takes many labels is fitted as it is; of any other classifier every
    label gets a copy (`label_models.OneEach`). A label that is always 0, or always 1, in a part is answered
    so by its teacher. `options` are those of `train_ensemble`: folder, n_jobs, progress, timeout, public, ...

    >>> from sklearn.linear_model import LogisticRegression
    >>> from tellers.teachers.partition import partition
    >>> X = np.random.default_rng(7).normal(size=(200, 2))
    >>> train_label_ensemble(LogisticRegression(), X, X > 0, partition(200, 4, seed=7), n_labels=2, seed=7)
    LabelEnsemble(n_teachers=4, n_labels=2)
    """
    require_count(n_labels=n_labels, resolution=resolution)
    limits = check_thresholds(thresholds, n_labels=int(n_labels))
    rows = numeric_rows(X)
    labels = label_table(Y, n_rows=len(rows), n_labels=int(n_labels))
    teachers = train_each(
        label_model(estimator, n_labels=int(n_labels)),
        rows,
        labels,
        partition,
        made_for={"n_labels": int(n_labels)},
        seed=seed,
        public=None if public is None else numeric_rows(public),
        **options,
    )
    return LabelEnsemble(teachers, int(n_labels), limits, int(resolution))


def label_model(estimator: Any, *, n_labels: int) -> Any:
    """Return the estimator if it takes many labels by itself, else one copy of it for each of them.

    >>> from sklearn.linear_model import LogisticRegression
    >>> type(label_model(LogisticRegression(), n_labels=2)).__name__
    'OneEach'
    """
    # One label is one column, which scikit-learn would take for classes.
    if callable(getattr(estimator, "fit", None)) and not (n_labels > 1 and takes_labels(estimator)):
        return OneEach(estimator)
    return estimator


def load_label_ensemble(
    folder: str | PathLike[str],
    *,
    n_labels: int,
    n_teachers: int | None = None,
    thresholds: float | Sequence[float] = 0.5,
    resolution: int = 1,
    trusted: Sequence[str] = (),
) -> "AnyLabelEnsemble":
    """Return the teachers, or networks, of many labels that were kept in a folder.

    >>> import tempfile
    >>> from tellers.teachers.models import ConstantLabels, save_teacher
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         model = ConstantLabels((0, number % 2))
    ...         save_teacher(Path(folder), number, model=model, made_of={"n_labels": 2})
    ...     load_label_ensemble(folder, n_labels=2)
    LabelEnsemble(n_teachers=3, n_labels=2)
    """
    require_count(n_labels=n_labels)
    limits = check_thresholds(thresholds, n_labels=int(n_labels))
    if any(Path(folder).glob("teachers-*.safetensors")):
        from .torch import load_torch_label_ensemble

        return load_torch_label_ensemble(
            folder, n_labels=n_labels, n_teachers=n_teachers, thresholds=thresholds, resolution=resolution
        )
    teachers = load_teachers(Path(folder), {"n_labels": int(n_labels)}, n_teachers, trusted=trusted)
    return LabelEnsemble(teachers, int(n_labels), limits, int(resolution))


def check_thresholds(thresholds: float | Sequence[float], *, n_labels: int) -> Thresholds:
    """Return thresholds as plain numbers, one for all labels or one each, refusing what is no probability.

    >>> check_thresholds([0.2, 0.8], n_labels=2), check_thresholds(0.5, n_labels=2)
    ((0.2, 0.8), 0.5)
    """
    limits = np.asarray(thresholds, dtype=np.float64)
    if limits.shape not in ((), (n_labels,)) or not ((limits > 0) & (limits <= 1)).all():
        raise ValueError(
            f"Expected one threshold above 0 and up to 1, or one per label ({n_labels}), got shape "
            f"{limits.shape} or a value outside."
        )
    return float(limits) if limits.ndim == 0 else tuple(float(limit) for limit in limits)


def cast_label_votes(probabilities: Floats, *, thresholds: Thresholds, resolution: int) -> "LabelVotes":
    """Return votes of probabilities, teachers x queries x labels: yes or no, or parts of a vote.

    >>> said = np.array([[[0.7, 0.4]]])
    >>> cast_label_votes(said, thresholds=0.5, resolution=1).sums
    array([[1, 0]])
    >>> cast_label_votes(said, thresholds=0.5, resolution=100).sums
    array([[70, 40]])
    """
    # Loaded when votes are cast: it needs SciPy, which a machine that trains networks may lack.
    from ..label_votes import LabelVotes

    n_labels = probabilities.shape[2]
    if resolution > 1:
        return LabelVotes.from_ballots(probabilities, n_labels=n_labels, resolution=resolution)
    return LabelVotes.from_probabilities(probabilities, n_labels=n_labels, thresholds=thresholds)


def label_accuracies(votes: "LabelVotes", Y: ArrayLike) -> Sealed[Floats]:
    """Return each teacher's share of right answers, over rows and labels, sealed.

    >>> from tellers import LabelVotes
    >>> votes = LabelVotes.from_ballots([[[1, 0]], [[1, 1]]], n_labels=2)
    >>> label_accuracies(votes, [[1, 1]])
    Sealed(<private>)
    """
    truth = label_table(Y, n_rows=len(votes), n_labels=votes.n_labels)
    said = (votes.block() * 2 >= votes.resolution).astype(np.int64)
    return Sealed(np.array([measure(truth, one).accuracy for one in said]))
