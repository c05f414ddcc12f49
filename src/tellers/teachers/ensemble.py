"""Ensembles: one teacher per part, trained here or loaded, and the votes they cast."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.label_models import OneEach, takes_labels
from ..data.metrics import measure
from ..errors import require_count
from ..privacy._rows import class_ids, label_table, numeric_rows
from ..privacy.sealed import Sealed
from ..privacy.votes import Votes
from ._assignment import Seed
from ._running import Progress, train_each
from ._training import one_thread
from .ballots import FallbackTeacher, Rule, class_ballot, label_ballot
from .models import find_teacher, load_model
from .partitions import Partition

if TYPE_CHECKING:
    from ..privacy.votes import LabelVotes
    from .torch.ensemble import TorchEnsemble, TorchLabelEnsemble

    AnyEnsemble: TypeAlias = "Ensemble | TorchEnsemble"
    AnyLabelEnsemble: TypeAlias = "LabelEnsemble | TorchLabelEnsemble"


# --- The ensemble: one teacher per part, trained on this machine, and the votes they cast. ---


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Trained teachers that vote; everything they say is private until a mechanism releases it.

    Every teacher votes. One that could not be trained, or does not answer, votes by a public rule
    (`FallbackTeacher`); `troubles` says who did and why.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   the teachers were trained on the parts of one `Partition`; the queries are public.
    Reference: Papernot et al. 2017, section 2.1.

    >>> from tellers.teachers.models import ConstantTeacher
    >>> ensemble = Ensemble((ConstantTeacher(0), ConstantTeacher(2)), n_classes=3)
    >>> ensemble
    Ensemble(n_teachers=2, n_classes=3)
    >>> ensemble.vote([[0.1], [0.2]])
    Votes(<private>, n_queries=2, n_teachers=2, n_classes=3)
    >>> ensemble.accuracies([[0.1], [0.2]], [2, 0]), ensemble.troubles
    (Sealed(<private>), Sealed(<private>))
    """

    teachers: tuple[Any, ...]
    n_classes: int
    _troubles: dict[int, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        require_count(2, n_classes=self.n_classes)
        require_count(n_teachers=len(self.teachers))

    def vote(self, X: ArrayLike) -> Votes:
        """Return every teacher's ballot on every query."""
        queries = numeric_rows(X)
        rule = Rule(queries, self.n_classes)
        ballots = np.empty((len(self), len(queries)), dtype=np.int64)
        with one_thread():
            for number, teacher in enumerate(self.teachers):
                ballots[number], trouble = class_ballot(teacher, queries, number=number, rule=rule)
                if trouble is not None:
                    self._troubles[number] = trouble
        return Votes.from_ballots(ballots, n_classes=self.n_classes)

    def accuracies(self, X: ArrayLike, y: ArrayLike) -> Sealed[NDArray[np.float64]]:
        """Return each teacher's share of right answers, sealed: it was learned from private rows."""
        queries = numeric_rows(X)
        labels = declared_labels(y, n_rows=len(queries), n_classes=self.n_classes)
        ballots = self.vote(queries).ballots
        assert ballots is not None  # vote makes its votes of ballots
        return Sealed(np.asarray((ballots == labels).mean(axis=1), dtype=np.float64))

    @property
    def troubles(self) -> Sealed[dict[int, str]]:
        """Return who voted by the rule and why, by number; sealed, as rows decide it."""
        return Sealed(known_troubles(self.teachers) | self._troubles)

    def __len__(self) -> int:
        return len(self.teachers)

    def __repr__(self) -> str:
        return f"Ensemble(n_teachers={len(self)}, n_classes={self.n_classes})"


def train_ensemble(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    partition: Partition,
    *,
    n_classes: int,
    seed: Seed,
    folder: str | PathLike[str] | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
    timeout: float | None = None,
    retries: int = 1,
    on_mismatch: Literal["refuse", "retrain"] = "refuse",
    trusted: Sequence[str] = (),
    public: ArrayLike | None = None,
) -> Ensemble:
    """Train one copy of an estimator on each part: anything with `fit(X, y)` and `predict(X)`.

    Every `random_state` is drawn from the seed and the teacher's number. A part with one class makes a
    `ConstantTeacher`. With `folder`, finished teachers are kept there and reused by the next call; those made
    of something else (other rows, parameters, seed, versions) are refused, or trained anew with
    `on_mismatch="retrain"`. `n_jobs=None` starts processes where a loop would take long. `progress` is called
    with the number of finished teachers and of all.

    Before private rows are touched, the estimator is tried on `public` rows with made-up labels, or on rows
    that are made up, and refused if it fails there. After that nothing in the rows stops the training: a
    teacher that raises, takes more than `timeout` seconds or kills its process is tried again `retries`
    times, and then votes by the rule, as one without rows does. `Ensemble.troubles` says who.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.data import digits
    >>> from tellers.teachers import partition
    >>> data = digits()
    >>> parts = partition(1000, 5, seed=7)
    >>> train_ensemble(DecisionTreeClassifier(), data.X[:1000], data.y[:1000], parts, n_classes=10, seed=7)
    Ensemble(n_teachers=5, n_classes=10)
    """
    require_count(2, n_classes=n_classes)
    rows = numeric_rows(X)
    labels = declared_labels(y, n_rows=len(rows), n_classes=int(n_classes))
    teachers = train_each(
        estimator, rows, labels, partition, made_for={"n_classes": int(n_classes)}, seed=seed, folder=folder,
        n_jobs=n_jobs, progress=progress, timeout=timeout, retries=retries, on_mismatch=on_mismatch,
        trusted=trusted, public=None if public is None else numeric_rows(public),
    )  # fmt: skip
    return Ensemble(teachers, int(n_classes))


def declared_labels(values: ArrayLike, *, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    """Return y as class ids, one for each row."""
    labels = np.asarray(values)
    if labels.shape != (n_rows,):
        raise ValueError(f"Expected y with one class id for each of {n_rows} rows, got shape {labels.shape}.")
    return class_ids(labels, n_classes=n_classes)


def known_troubles(teachers: Sequence[Any]) -> dict[int, str]:
    """Return which teachers vote by the rule, and why; private."""
    return {
        number: teacher.trouble
        for number, teacher in enumerate(teachers)
        if isinstance(teacher, FallbackTeacher)
    }


# --- Teachers that were trained before, read from their folder without the rows they were trained on. ---


def load_ensemble(
    folder: str | PathLike[str], *, n_classes: int, n_teachers: int | None = None, trusted: Sequence[str] = ()
) -> "AnyEnsemble":
    """Return the teachers that `train_ensemble` or `train_torch_ensemble` kept in a folder.

    `trusted` names types beyond scikit-learn's that the models may be made of. All teachers of one partition
    belong in a vote: a gap in their numbers is refused, and so is another number than `n_teachers`. Torch is
    loaded where the folder holds networks.

    Guarantee: one changed unit of the partition changes one row of ballots.
    Assumes:   the folder holds the teachers of one partition, all of them.
    Reference: Papernot et al. 2017, section 2.1.

    >>> import tempfile
    >>> from tellers.teachers.models import ConstantTeacher, save_teacher
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         save_teacher(Path(folder), number, model=ConstantTeacher(number), made_of={"seed": 7})
    ...     load_ensemble(folder, n_classes=3)
    Ensemble(n_teachers=3, n_classes=3)
    """
    require_count(2, n_classes=n_classes)
    place = Path(folder)
    there = sorted(path.name for path in place.glob("teacher-*.skops"))
    if any(place.glob("teachers-*.safetensors")):
        if there:
            raise ValueError(
                f"Expected teachers of one kind in {place}, got networks (.safetensors) and others (.skops). "
                "Give each kind a folder of its own."
            )
        from .torch.ensemble import load_torch_ensemble

        return load_torch_ensemble(place, n_classes=n_classes, n_teachers=n_teachers)
    teachers = load_teachers(place, {"n_classes": int(n_classes)}, n_teachers, trusted=trusted)
    return Ensemble(teachers, int(n_classes))


def load_teachers(
    place: Path, made_for: Mapping[str, int], n_teachers: int | None, *, trusted: Sequence[str] = ()
) -> tuple[Any, ...]:
    """Return all models of a folder; manifests that say they answer something else are refused."""
    there = sorted(path.name for path in place.glob("teacher-*.skops"))
    teachers = []
    for number in range(len(there)):
        found = find_teacher(place, number)
        if found is None:
            raise ValueError(
                f"Expected a finished teacher {number} in {place}, got none. Let the run that trains them "
                "end first."
            )
        said = {name: found[1][name] for name in ("n_classes", "n_labels") if name in found[1]}
        if said and said != dict(made_for):
            wanted, got = (", ".join(f"{n}={v}" for n, v in each.items()) for each in (made_for, said))
            raise ValueError(f"Expected teachers with {wanted} in {place}, got {got} in teacher {number}.")
        teachers.append(load_model(found[0], trusted=tuple(trusted)))
    if not teachers or n_teachers not in (None, len(teachers)):
        wanted = "teachers" if n_teachers is None else f"{n_teachers} teachers"
        raise ValueError(f"Expected {wanted} (teacher-00000.skops, ...) in {place}, got {len(teachers)}.")
    return tuple(teachers)


# --- An ensemble on many labels: every teacher says yes or no, or how likely, to each of them. ---


Floats = NDArray[np.float64]
Thresholds = float | tuple[float, ...]


class LabelVoters(ABC):
    """Teachers that vote on many labels by their probabilities; a class says what those are."""

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
    (LabelEnsemble(n_teachers=2, n_labels=2), Votes(<private>, n_queries=2, n_teachers=2, n_labels=2))
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
        queries = numeric_rows(X)
        table = np.empty((len(self), len(queries), self.n_labels))
        with one_thread():
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
    >>> from tellers.teachers import partition
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
    """Return the estimator if it takes many labels by itself, else one copy of it for each of them."""
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
        from .torch.ensemble import load_torch_label_ensemble

        return load_torch_label_ensemble(
            folder, n_labels=n_labels, n_teachers=n_teachers, thresholds=thresholds, resolution=resolution
        )
    teachers = load_teachers(Path(folder), {"n_labels": int(n_labels)}, n_teachers, trusted=trusted)
    return LabelEnsemble(teachers, int(n_labels), limits, int(resolution))


def check_thresholds(thresholds: float | Sequence[float], *, n_labels: int) -> Thresholds:
    """Return thresholds as plain numbers, one for all labels or one each, refusing what is no probability."""
    limits = np.asarray(thresholds, dtype=np.float64)
    if limits.shape not in ((), (n_labels,)) or not ((limits > 0) & (limits <= 1)).all():
        raise ValueError(
            f"Expected one threshold above 0 and up to 1, or one per label ({n_labels}), got shape "
            f"{limits.shape} or a value outside."
        )
    return float(limits) if limits.ndim == 0 else tuple(float(limit) for limit in limits)


def cast_label_votes(probabilities: Floats, *, thresholds: Thresholds, resolution: int) -> "LabelVotes":
    """Return votes of probabilities, teachers x queries x labels: yes or no, or parts of a vote."""
    # Loaded when votes are cast: it needs SciPy, which a machine that trains networks may lack.
    from ..privacy.votes import LabelVotes

    n_labels = probabilities.shape[2]
    if resolution > 1:
        return LabelVotes.from_ballots(probabilities, n_labels=n_labels, resolution=resolution)
    return LabelVotes.from_probabilities(probabilities, n_labels=n_labels, thresholds=thresholds)


def label_accuracies(votes: "LabelVotes", Y: ArrayLike) -> Sealed[Floats]:
    """Return each teacher's share of right answers, over rows and labels, sealed."""
    truth = label_table(Y, n_rows=len(votes), n_labels=votes.n_labels)
    said = (votes.block() * 2 >= votes.resolution).astype(np.int64)
    return Sealed(np.array([measure(truth, one).accuracy for one in said]))


# --- Which backend trains a model: torch networks are trained together, everything else one by one. ---


def is_network(model: Any) -> bool:
    """Say whether a model is a torch network, of which many are trained together; torch is not loaded for it.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> is_network(DecisionTreeClassifier())
    False
    """
    return bool(getattr(type(model), "trained_together", False))


def train_teachers(
    model: Any,
    X: ArrayLike,
    y: ArrayLike,
    partition: Partition,
    *,
    n_classes: int,
    seed: Seed,
    timeout: float | None = None,
    retries: int = 1,
    **options: Any,
) -> "AnyEnsemble":
    """Train one copy of a model on each part, with the backend that it belongs to.

    `options` are those of `train_ensemble`, or of `train_torch_ensemble` for a network. A network is not
    stopped after `timeout` seconds, nor tried again: what fails in it fails the same way each time.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.data import digits
    >>> from tellers.teachers import partition
    >>> data, parts = digits(), partition(1000, 5, seed=7)
    >>> train_teachers(DecisionTreeClassifier(), data.X[:1000], data.y[:1000], parts, n_classes=10, seed=7)
    Ensemble(n_teachers=5, n_classes=10)
    """
    shared: dict[str, Any] = {"n_classes": n_classes, "seed": seed, **options}
    if not is_network(model):
        return train_ensemble(model, X, y, partition, timeout=timeout, retries=retries, **shared)
    if timeout is not None:
        raise ValueError(
            "Expected no time limit for networks, which are trained together, got "
            f"{timeout:g} seconds. Leave it out."
        )
    from .torch.ensemble import train_torch_ensemble

    return train_torch_ensemble(model, X, y, partition, **shared)


def train_label_teachers(
    model: Any, X: ArrayLike, Y: ArrayLike, partition: Partition, *, n_labels: int, seed: Seed, **options: Any
) -> "AnyLabelEnsemble":
    """Train one copy of a model on each part of rows with many labels, with the backend it belongs to.

    `options` are those of `train_label_ensemble`, or of `train_torch_label_ensemble` for a network.

    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.teachers import partition
    >>> X = np.random.default_rng(7).normal(size=(200, 2))
    >>> parts = partition(200, 4, seed=7)
    >>> train_label_teachers(DecisionTreeClassifier(), X, X > 0, parts, n_labels=2, seed=7)
    LabelEnsemble(n_teachers=4, n_labels=2)
    """
    if not is_network(model):
        return train_label_ensemble(model, X, Y, partition, n_labels=n_labels, seed=seed, **options)
    from .torch.ensemble import train_torch_label_ensemble

    return train_torch_label_ensemble(model, X, Y, partition, n_labels=n_labels, seed=seed, **options)
