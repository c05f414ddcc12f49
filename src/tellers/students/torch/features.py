"""Features of public rows, learned without a label: two views of a row look alike, other rows do not.

Teachers that look at such features need far fewer private rows to agree, and where teachers agree, an answer
costs next to nothing. A student may begin with the same network. What is public costs nothing, however it is
used.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional

from ...errors import require_count, require_positive
from ...nn.devices import find_device, seeded
from ...nn.estimator import as_rows, drawn_seed
from ...nn.loop import Progress, Turn
from ...nn.networks import Factory, Shape, TwoPart, build_student_network
from ...nn.views import STRONG, Inputs, Views, views_for
from ...nn.weights import load_arrays
from ...privacy._rows import numeric_rows
from .training import (
    Precision,
    Schedule,
    StudentBatch,
    StudentRows,
    student_shape,
    train_student,
)

_ROWS_AT_ONCE = 2048
_HIDDEN, _COMPARED = 512, 128  # what is compared is thrown away afterwards


@dataclass(kw_only=True, eq=False)
class PublicFeatures:
    """A network that learned to tell public rows apart, whatever view of them it sees.

    `fit(X)` learns from public rows, `transform(X)` says what the network sees in any rows, private ones too,
    and `network(n_classes)` makes the networks of students that begin where this one ended. `kind` is "cnn",
    "mlp" or "auto"; `width`, `views`, `image_shape`, `precision`, `device` and `random_state` are those of
    torch students.
    Batches should be large, and views as strong as leaves the class of a row alone.

    Guarantee: made of the rows given to `fit` alone; costs nothing where these are public.
    Assumes:   the rows given to `fit` are public, and none of them is a private row.
    Reference: Chen et al. 2020 (contrastive learning, SimCLR).

    >>> from tellers.data import digits
    >>> pool = digits().X[:300]
    >>> features = PublicFeatures(steps=5, width=4, image_shape=(8, 8), random_state=7).fit(pool)
    >>> features.transform(pool[:5]).shape
    (5, 16)
    """

    kind: str = "auto"
    width: int = 64
    image_shape: Shape | None = None
    views: Views | Mapping[str, Any] | None = None
    steps: int = 2000
    batch_size: int = 1024
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    temperature: float = 0.3
    precision: Precision = "auto"
    device: str = "auto"
    random_state: int | None = None

    def fit(self, X: ArrayLike, y: None = None, *, progress: Progress | None = None) -> Self:
        """Learn from public rows; `y` is there for pipelines, and has to be None.

        >>> PublicFeatures().fit([[0.0]])
        Traceback (most recent call last):
            ...
        ValueError: Expected two public rows or more to tell apart, got 1.
        """
        if y is not None:
            raise ValueError("Expected no labels: features are learned from public rows alone. Leave y out.")
        require_count(steps=self.steps, width=self.width)
        require_count(2, batch_size=self.batch_size)
        require_positive(temperature=self.temperature, learning_rate=self.learning_rate)
        rows = numeric_rows(X)
        if len(rows) < 2:
            raise ValueError(f"Expected two public rows or more to tell apart, got {len(rows)}.")
        seed, device = drawn_seed(self.random_state), find_device(self.device)
        shape = student_shape(rows.shape, image_shape=self.image_shape, squares=self.kind == "cnn")
        table = as_rows(rows, shape, image_shape=self.image_shape)
        inputs = Inputs.measured([table])
        own = build_student_network(self.kind, shape, n_outputs=2, width=int(self.width), seed=seed)
        learner = _Learner(own, seed=seed)
        everything = inputs.tensor(table, device)
        views = views_for(self.views, shape)
        known = StudentRows(
            everything, torch.zeros(len(table), 1, device=device), everything[:0], n_labelled=2
        )
        contrast = _Contrast(learner, everything, views, self.temperature, int(self.batch_size))
        course = train_student(
            lambda _: [Turn(learner, contrast)], learner, known, views=views, loss=None, shape=shape,
            schedule=Schedule(
                steps=int(self.steps), learning_rate=self.learning_rate, weight_decay=self.weight_decay,
                precision=self.precision,
            ),
            seed=seed, progress=progress,
        )  # fmt: skip
        load_arrays(learner, course.best)
        self.shape_, self.inputs_ = shape, inputs
        self.features_ = learner.features.cpu().eval()
        self.n_features_ = learner.n_features
        return self

    def transform(self, X: ArrayLike, *, strength: float = 0.0, seed: int = 0) -> NDArray[np.float32]:
        """Return what the network sees in rows, or with `strength` in a view of each (0.25 is a weak one).

        >>> PublicFeatures().transform([[0.0]])
        Traceback (most recent call last):
            ...
        ValueError: Expected fitted PublicFeatures. Call fit(X) with public rows first.
        """
        self._check_fitted()
        device = find_device(self.device)
        rows = as_rows(numeric_rows(X), self.shape_, image_shape=self.image_shape)
        views, parts = views_for(self.views, self.shape_), []
        network = copy.deepcopy(self.features_).to(device)
        with seeded(seed, device), torch.no_grad():
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                some = self.inputs_.tensor(rows[start : start + _ROWS_AT_ONCE], device)
                parts.append(network(views.see(some, strength) if strength else some).float().cpu().numpy())
        return np.concatenate(parts)

    def fit_transform(self, X: ArrayLike, y: None = None) -> NDArray[np.float32]:
        """Learn from public rows and say what the network sees in them.

        >>> PublicFeatures(steps=2, width=2, random_state=7).fit_transform([[0.0], [1.0], [2.0]]).shape
        (3, 16)
        """
        return self.fit(X, y).transform(X)

    def network(self, n_classes: int) -> Factory:
        """Return a function that makes networks of these features and a new head, for a student's `network`.

        >>> features = PublicFeatures(steps=2, width=2, random_state=7).fit([[0.0], [1.0], [2.0]])
        >>> features.network(3)()(torch.zeros(5, 1)).shape
        torch.Size([5, 3])
        """
        self._check_fitted()
        require_count(2, n_classes=n_classes)
        return _Beginning(self.features_, self.n_features_, int(n_classes))

    def _check_fitted(self) -> None:
        if not hasattr(self, "features_"):
            raise ValueError("Expected fitted PublicFeatures. Call fit(X) with public rows first.")


@dataclass(frozen=True, eq=False)
class _Beginning:
    """Makes networks that begin with learned features; a class, so that estimators can be copied."""

    features: nn.Module
    n_features: int
    n_classes: int

    def __call__(self) -> nn.Module:
        return TwoPart(copy.deepcopy(self.features), nn.Linear(self.n_features, self.n_classes))


class _Learner(nn.Module):
    """Features, and a projection of them in which rows are compared."""

    def __init__(self, network: nn.Module, *, seed: int) -> None:
        super().__init__()
        assert isinstance(network, TwoPart)
        assert isinstance(network.head, nn.Linear)
        self.features, self.n_features = network.features, network.head.in_features
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            self.project = nn.Sequential(
                nn.Linear(self.n_features, _HIDDEN), nn.BatchNorm1d(_HIDDEN), nn.ReLU(),
                nn.Linear(_HIDDEN, _COMPARED),
            )  # fmt: skip

    def forward(self, rows: Tensor) -> Tensor:
        projected: Tensor = self.project(self.features(rows))
        return projected


class _Contrast:
    """The loss of one step: each view has to find its partner among all others of the batch."""

    def __init__(
        self, learner: _Learner, pool: Tensor, views: Views, temperature: float, batch_size: int
    ) -> None:
        self.learner, self.pool, self.views, self.temperature = learner, pool, views, temperature
        self.n = min(batch_size, len(pool))
        self.partner = torch.arange(2 * self.n, device=pool.device).roll(self.n)
        self.itself = torch.eye(2 * self.n, dtype=torch.bool, device=pool.device)

    def __call__(self, batch: StudentBatch) -> Tensor:
        # No row twice in a batch: it would have to differ from itself.
        some = self.pool[torch.randperm(len(self.pool), device=self.pool.device)[: self.n]]
        seen = torch.cat([self.views.see(some, STRONG), self.views.see(some, STRONG)])
        made = functional.normalize(self.learner(seen).float(), dim=1)
        alike = (made @ made.T / self.temperature).masked_fill(self.itself, -1e9)
        return functional.cross_entropy(alike, self.partner)
