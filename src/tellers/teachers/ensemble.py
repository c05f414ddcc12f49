"""Ensembles: one teacher per part, trained here or loaded, and the votes they cast."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count
from ..privacy._rows import KeptRows, numeric_rows
from ..privacy.sealed import Sealed
from ..privacy.votes import AnswerSpace, Votes
from ._training import seed_number, train_models
from .ballots import Ballots, ask_teachers, ballots_of, known_troubles, made_for, require_by_query
from .models import find_model, load_model, teacher_file
from .options import TrainingOptions
from .partitions import Partition, Seed

if TYPE_CHECKING:
    from .torch.ensemble import TorchEnsemble


# --- The ensemble: one teacher per part, and the votes they cast. ---


class VotingTeachers(ABC):
    """Teachers that vote; a class says who they are and how they are asked."""

    ballots: Ballots
    _troubles: dict[int, str]

    def vote(self, X: ArrayLike) -> Votes:
        """Return every teacher's ballot on every query."""
        return self.ballots.votes(self._said(X))

    def probabilities(self, X: ArrayLike) -> Sealed[NDArray[np.float64]]:
        """Return how likely every teacher finds each label, teachers x queries x labels.

        Sealed: do not tune on it.
        """
        if self.space.kind != "labels":
            raise ValueError("Expected teachers of many labels, got some that name one class.")
        return Sealed(self._said(X))

    def accuracies(self, X: ArrayLike, y: ArrayLike) -> Sealed[NDArray[np.float64]]:
        """Return each teacher's share of right answers, sealed: it was learned from private rows."""
        queries = numeric_rows(X)
        truth = self.ballots.targets(y, n_rows=len(queries))
        return Sealed(self.ballots.accuracies(self.vote(queries), truth))

    @property
    def troubles(self) -> Sealed[dict[int, str]]:
        """Return who votes by the rule and why, by number; sealed, as rows decide it."""
        return Sealed(dict(self._troubles))

    @property
    def space(self) -> AnswerSpace:
        """Return the space of their answers."""
        return self.ballots.space

    @property
    def n_teachers(self) -> int:
        """Return how many teachers vote."""
        return len(self)

    def __getattr__(self, name: str) -> Any:
        # What a room looks at; teachers of one class per row have no labels, and the other way round.
        if name not in ("n_classes", "n_labels", "resolution"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.space, name)

    def _said(self, X: ArrayLike) -> NDArray[Any]:
        said, troubles = self._ask(numeric_rows(X))
        self._troubles.update(troubles)
        return said

    @abstractmethod
    def _ask(self, queries: NDArray[Any]) -> tuple[NDArray[Any], dict[int, str]]:
        """Return what every teacher says to queries, and who answers by the rule and why."""

    @abstractmethod
    def __len__(self) -> int: ...

    def __repr__(self) -> str:
        about = f"n_{self.space.kind}={self.space.n_answers}"
        return f"{type(self).__name__}(n_teachers={len(self)}, {about})"


class Ensemble(VotingTeachers):
    """Trained teachers that vote; everything they say is private until a mechanism releases it.

    Every teacher votes. One that could not be trained, or does not answer, votes by a public rule
    (`FallbackTeacher`); `troubles` says who did and why.

    Over a `SetOf` labels, a teacher says yes where its probability of a label reaches the label's threshold.
    Thresholds are public: given, or found with `metrics.tune_thresholds` by a model of public rows. With a
    resolution above 1 the votes are the probabilities themselves, in such parts, for a mechanism that adds
    those up.

    Parameters
    ----------
    teachers : sequence of fitted models, one per part.
    n_classes : how many classes they tell apart; short for `space=OneOf(n_classes)`.
    space : what they answer, `OneOf` or `SetOf`.
    thresholds : of labels, one for all or one each.

    Guarantee: one changed unit of the partition changes one row of ballots, on any of the labels.
    Assumes:   the teachers were trained on the parts of one `Partition`; queries and thresholds are public.
    Reference: Papernot et al. 2017, section 2.1; Dullerud et al. 2022, section 3.

    >>> from tellers import SetOf
    >>> from tellers.teachers.models import ConstantLabels, ConstantTeacher
    >>> ensemble = Ensemble((ConstantTeacher(0), ConstantTeacher(2)), n_classes=3)
    >>> ensemble, ensemble.vote([[0.1], [0.2]])
    (Ensemble(n_teachers=2, n_classes=3), Votes(<private>, n_queries=2, n_teachers=2, n_classes=3))
    >>> ensemble.accuracies([[0.1], [0.2]], [2, 0]), ensemble.troubles
    (Sealed(<private>), Sealed(<private>))
    >>> many = Ensemble((ConstantLabels((0, 1)), ConstantLabels((1, 1))), space=SetOf(2))
    >>> many, many.vote([[0.1]]).sums, many.probabilities([[0.1]])
    (Ensemble(n_teachers=2, n_labels=2), array([[1, 2]]), Sealed(<private>))
    """

    def __init__(
        self,
        teachers: Sequence[Any],
        n_classes: int | None = None,
        *,
        space: AnswerSpace | None = None,
        thresholds: float | Sequence[float] = 0.5,
    ) -> None:
        require_count(n_teachers=len(teachers))
        self.teachers = tuple(teachers)
        self.ballots = ballots_of(space, n_classes=n_classes, thresholds=thresholds)
        self._troubles = known_troubles(dict(enumerate(self.teachers)))

    def __len__(self) -> int:
        return len(self.teachers)

    def _ask(self, queries: NDArray[Any]) -> tuple[NDArray[Any], dict[int, str]]:
        return ask_teachers(dict(enumerate(self.teachers)), queries, self.ballots)


def train_ensemble(
    model: Any,
    X: ArrayLike | KeptRows,
    y: ArrayLike,
    partition: Partition,
    *,
    seed: Seed,
    n_classes: int | None = None,
    space: AnswerSpace | None = None,
    thresholds: float | Sequence[float] = 0.5,
    **options: Any,
) -> "Ensemble | TorchEnsemble":
    """Train one copy of a model on each part: anything with `fit(X, y)` and `predict(X)`, or a network.

    Every `random_state` is drawn from the seed and the teacher's number. Rows have one class each, or many
    labels over a `SetOf`: y is then rows x labels of 0 and 1. An estimator of scikit-learn's that takes many
    labels is fitted as it is; of any other classifier every label gets a copy (`label_models.OneEach`). A
    part whose rows all have one answer makes a teacher that always gives it. Networks (`TorchClassifier`) are
    trained all in one batched program or one after another, on a CPU in `n_jobs` processes of one thread.

    Before private rows are touched, the model is tried on `public` rows with made-up labels, or on rows that
    are made up, and refused if it fails there. After that nothing in the rows stops the training: a teacher
    that cannot learn votes by the rule, as one without rows does. `Ensemble.troubles` says who.

    Parameters
    ----------
    n_classes : how many classes there are; short for `space=OneOf(n_classes)`.
    space : what teachers answer, `OneOf` or `SetOf`.
    thresholds : of labels, one for all or one each; see `Ensemble`.
    options : folder, n_jobs, progress, timeout, retries, on_mismatch, trusted, public, engine; see
        `TrainingOptions`.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.data import digits
    >>> from tellers import SetOf
    >>> from tellers.teachers import partition
    >>> data, parts = digits(), partition(1000, 5, seed=7)
    >>> train_ensemble(DecisionTreeClassifier(), data.X[:1000], data.y[:1000], parts, n_classes=10, seed=7)
    Ensemble(n_teachers=5, n_classes=10)
    >>> X = np.random.default_rng(7).normal(size=(200, 2))
    >>> parts = partition(200, 4, seed=7)
    >>> train_ensemble(DecisionTreeClassifier(), X, X > 0, parts, space=SetOf(2), seed=7)
    Ensemble(n_teachers=4, n_labels=2)
    """
    how, ballots = TrainingOptions(**options), ballots_of(space, n_classes=n_classes, thresholds=thresholds)
    rows: Any = X if isinstance(X, KeptRows) else numeric_rows(X)
    targets = ballots.targets(y, n_rows=len(rows))
    given: dict[str, Any] = {"ballots": ballots, "seed": seed_number(seed), "options": how}
    if is_network(model):
        require_by_query(ballots.space, "networks")
        from .torch.ensemble import train_networks

        return train_networks(model, rows, targets, partition, **given)
    if how.engine != "auto":
        raise ValueError(f"Expected an engine for networks alone, got one for {type(model).__name__}.")
    teachers = train_models(model, rows, targets, partition, **given)
    return Ensemble(teachers, space=ballots.space, thresholds=thresholds)


def is_network(model: Any) -> bool:
    """Say whether a model is a torch network, of which many are trained together; torch is not loaded for it.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> is_network(DecisionTreeClassifier())
    False
    """
    return bool(getattr(type(model), "trained_together", False))


# --- Teachers that were trained before, read from their folder without the rows they were trained on. ---


def load_ensemble(
    folder: str | PathLike[str],
    *,
    n_classes: int | None = None,
    space: AnswerSpace | None = None,
    n_teachers: int | None = None,
    thresholds: float | Sequence[float] = 0.5,
    trusted: Sequence[str] = (),
    network: Any = None,
    device: str = "auto",
) -> "Ensemble | TorchEnsemble":
    """Return the teachers that `train_ensemble` kept in a folder, models or networks.

    All teachers of one partition belong in a vote: a gap in their numbers is refused, and so is another
    number than `n_teachers`. Torch is loaded where the folder holds networks. Their files say which network
    they hold the weights of; one that was made by a function needs that function again.

    Parameters
    ----------
    n_classes, space, thresholds : what they answer; see `train_ensemble`.
    n_teachers : how many there should be.
    trusted : types beyond scikit-learn's that models may be made of.
    network : the function that made the networks, where one did.
    device : where networks vote.

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
    ballots, place = ballots_of(space, n_classes=n_classes, thresholds=thresholds), Path(folder)
    if any(place.glob("teachers-*.safetensors")):
        if any(place.glob("teacher-*.skops")):
            raise ValueError(
                f"Expected teachers of one kind in {place}, got networks (.safetensors) and others (.skops). "
                "Give each kind a folder of its own."
            )
        from .torch.ensemble import load_networks

        require_by_query(ballots.space, "networks")

        return load_networks(place, ballots, n_teachers, network=network, device=device)
    teachers = _load_models(place, made_for(ballots.space), n_teachers, trusted=trusted)
    return Ensemble(teachers, space=ballots.space, thresholds=thresholds)


def _load_models(
    place: Path, wanted: dict[str, int], n_teachers: int | None, *, trusted: Sequence[str]
) -> list[Any]:
    """Return all models of a folder; manifests that say they answer something else are refused."""
    teachers: list[Any] = []
    for number in range(len(list(place.glob("teacher-*.skops")))):
        found = find_model(place, teacher_file(number))
        if found is None:
            raise ValueError(
                f"Expected a finished teacher {number} in {place}, got none. Let the run that trains them "
                "end first."
            )
        said = {name: found[1][name] for name in ("n_classes", "n_labels") if name in found[1]}
        if said and said != wanted:
            named, got = (", ".join(f"{n}={v}" for n, v in each.items()) for each in (wanted, said))
            raise ValueError(f"Expected teachers with {named} in {place}, got {got} in teacher {number}.")
        teachers.append(load_model(found[0], trusted=tuple(trusted)))
    if not teachers or n_teachers not in (None, len(teachers)):
        asked = "teachers" if n_teachers is None else f"{n_teachers} teachers"
        raise ValueError(f"Expected {asked} (teacher-00000.skops, ...) in {place}, got {len(teachers)}.")
    return teachers
