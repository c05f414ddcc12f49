"""MixMatch, for one class or many labels per row: guesses for unlabelled rows, sharpened and mixed.

Each unlabelled row gets one guess, the mean over several views. Rows, labelled or not, are then blended in
pairs, their targets with them, so that the network learns to go evenly from one row to another.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ...errors import require_count, require_positive
from ...nn.loop import Turn
from ...nn.losses import LabelLoss
from ...nn.views import MEDIUM
from ...privacy._rows import label_table
from ...privacy.release import SILENT, Release
from ..fitting import require_answers
from .training import StudentBatch, StudentRun, TorchStudent, ramp_up


@dataclass(kw_only=True, eq=False, repr=False)
class _MixMatch(TorchStudent):
    """What both students share; they differ in how a guess is sharpened and how far it is from an answer."""

    pool_batch_size: int = 128
    ramp: float = 1.0
    temperature: float = 0.5
    guesses: int = 2
    mixing: float = 0.75

    @abstractmethod
    def _sharpened(self, chances: Tensor) -> Tensor:
        """Return chances that are surer, for temperatures below 1."""

    @abstractmethod
    def _distance(self, chances: Tensor, guessed: Tensor) -> Tensor:
        """Return how far answers are from guesses."""

    def _completed(self, run: StudentRun, targets: Tensor, rows: Tensor) -> Tensor:
        """Return the targets of labelled rows, all of them."""
        return targets

    def _turns(self, run: StudentRun) -> Sequence[Turn]:
        require_positive(temperature=self.temperature, mixing=self.mixing)
        require_count(guesses=self.guesses)
        return [Turn(run.network, lambda batch: self._lost(run, batch))]

    def _lost(self, run: StudentRun, batch: StudentBatch) -> Tensor:
        see, n = run.views.see, len(batch.rows)
        rows = see(batch.rows, MEDIUM)
        targets = self._completed(run, batch.targets, rows)
        if len(batch.pool):
            seen = torch.cat([see(batch.pool, MEDIUM) for _ in range(self.guesses)])
            guessed = self._guesses(run, seen, len(batch.pool)).repeat(self.guesses, 1)
            rows, targets = torch.cat([rows, seen]), torch.cat([targets, guessed])
        mixed, targets = blended(rows, targets, mixing=self.mixing)
        answers = run.network(mixed).float()
        # A guess counts for a told row as it does for others: not as much as what was told.
        told = torch.where(batch.targets < 0, float(SILENT), targets[:n])
        loss = run.told(answers[:n], replace(batch, targets=told))
        if len(batch.pool):
            distance = self._distance(self._probabilities(answers[n:]), targets[n:])
            loss = loss + self.weight * ramp_up(batch.share, self.ramp) * distance
        return loss

    @torch.no_grad()
    def _guesses(self, run: StudentRun, seen: Tensor, n_rows: int) -> Tensor:
        answers = self._probabilities(run.network(seen).float())
        return self._sharpened(answers.view(-1, n_rows, answers.shape[1]).mean(0))


@dataclass(kw_only=True, eq=False, repr=False)
class MixMatchStudent(_MixMatch):
    """Learns blends of rows, with sharpened guesses in place of labels where there are none.

    Guesses are the mean over `guesses` views, raised to 1 / `temperature`. Pairs are blended by shares from a
    Beta distribution with both parameters `mixing`. `weight` scales the squared distance from guesses, summed
    over classes. With weight 0 labelled rows are blended among themselves. The other settings are those of
    every torch student.

    Reference: Berthelot et al. 2019, section 3.

    >>> student = MixMatchStudent(steps=40, mixing=0.5, random_state=7)
    >>> student.fit([[0.0], [1.0]], [0, 1], [[0.1], [0.9]]).predict_proba([[0.0]]).argmax()
    0
    """

    weight: float = 3.0

    def _sharpened(self, chances: Tensor) -> Tensor:
        sharp = chances ** (1 / self.temperature)
        return sharp / sharp.sum(1, keepdim=True)

    def _distance(self, chances: Tensor, guessed: Tensor) -> Tensor:
        return (chances - guessed).square().sum(1).mean()


@dataclass(kw_only=True, eq=False, repr=False)
class MultilabelMixMatchStudent(_MixMatch):
    """Learns blends of rows with many labels each; a label that is silent in a row is guessed there.

    Labels are rows x labels of 1, 0 and SILENT; `predict` gives 1 and 0, `predict_proba` the chance of a yes,
    `classes_` the numbers of the labels. A guess p becomes p^(1/T) / (p^(1/T) + (1-p)^(1/T)) with T the
    `temperature`, label by label. `label_noise` is the chance that an answer is wrong, one number or one per
    label. The other settings are those of `MixMatchStudent`.

    Reference: Berthelot et al. 2019, section 3; Dullerud et al. 2022, section 5.2 (its use for many labels).

    >>> from tellers.data.named import made_multilabel
    >>> data = made_multilabel(("sun", "rain", "wind"), n_rows=400, seed=7)
    >>> student = MultilabelMixMatchStudent(steps=60, width=2, random_state=7)
    >>> student.fit(data.X[:100], data.y[:100], data.X[100:]).predict(data.X[:2]).shape
    (2, 3)
    """

    multilabel: ClassVar[bool] = True
    _loss: ClassVar[type[LabelLoss]] = LabelLoss

    weight: float = 2.0

    def _sharpened(self, chances: Tensor) -> Tensor:
        yes, no = chances ** (1 / self.temperature), (1 - chances) ** (1 / self.temperature)
        return yes / (yes + no)

    def _distance(self, chances: Tensor, guessed: Tensor) -> Tensor:
        return (chances - guessed).square().mean()

    def _completed(self, run: StudentRun, targets: Tensor, rows: Tensor) -> Tensor:
        # What was not told is guessed: a blend needs a target for both of its rows.
        return torch.where(targets < 0, self._guesses(run, rows, len(rows)), targets)

    def _read_labels(self, y: Any, n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        said = y.labels if isinstance(y, Release) else y
        table = label_table(said, n_rows=n_rows, n_labels=self.n_classes, silent=True)
        self._require_enough(table)
        return table, np.arange(table.shape[1])

    def _require_enough(self, labels: NDArray[np.int64]) -> None:
        require_answers(labels)

    def _places(self, y: Any, classes: NDArray[np.int64], *, n_rows: int) -> NDArray[np.int64]:
        return label_table(y, n_rows=n_rows, n_labels=len(classes))

    @staticmethod
    def _probabilities(answers: Tensor) -> Tensor:
        return answers.sigmoid()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return 1 or 0 for every row and label.

        >>> student = MultilabelMixMatchStudent(steps=50, weight=0, random_state=7)
        >>> student.fit([[0.0], [1.0]], [[0, 1], [1, 1]]).predict([[0.0], [1.0]])
        array([[0, 1],
               [1, 1]])
        """
        return (self.predict_proba(X) >= 0.5).astype(np.int64)


def blended(rows: Tensor, targets: Tensor, *, mixing: float) -> tuple[Tensor, Tensor]:
    """Return every row blended with another one, itself having the larger share, and the targets alike."""
    parameter = torch.tensor(mixing, device=rows.device)
    share = torch.distributions.Beta(parameter, parameter).sample((len(rows),))
    share = torch.maximum(share, 1 - share)
    other = torch.randperm(len(rows), device=rows.device)

    def mix(values: Tensor) -> Tensor:
        own = share.view(-1, *[1] * (values.dim() - 1))
        return own * values + (1 - own) * values[other]

    return mix(rows), mix(targets)
