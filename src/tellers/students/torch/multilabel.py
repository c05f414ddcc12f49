"""MixMatch for many labels per row: every label is guessed, sharpened and blended for itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ...errors import require_count, require_positive
from ...label_models import label_table
from ...release import SILENT, Release
from .estimator import TorchStudent
from .lesson import Batch
from .loop import Method, Turn
from .many_labels import LabelLoss
from .mixmatch import blended
from .setting import Loss, Setting, ramp_up
from .views import MEDIUM


@dataclass(kw_only=True, eq=False, repr=False)
class MultilabelMixMatchStudent(TorchStudent):
    """Learns blends of rows with many labels each; a label that is silent in a row is guessed there.

    Labels are rows x labels of 1, 0 and SILENT; `predict` gives 1 and 0, `predict_proba` the chance of a yes,
    `classes_` the numbers of the labels. A guess p becomes p^(1/T) / (p^(1/T) + (1-p)^(1/T)) with T the
    `temperature`, label by label. `label_noise` is the chance that an answer is wrong, one number or one per
    label. The other settings are those of `MixMatchStudent`.

    Reference: Berthelot et al. 2019, section 3; Dullerud et al. 2022, section 5.2 (its use for many labels).

    >>> from tellers.datasets.made_labels import made_multilabel
    >>> data = made_multilabel(("sun", "rain", "wind"), n_rows=400, seed=7)
    >>> student = MultilabelMixMatchStudent(steps=60, width=2, random_state=7)
    >>> student.fit(data.X[:100], data.y[:100], data.X[100:]).predict(data.X[:2]).shape
    (2, 3)
    """

    multilabel: ClassVar[bool] = True

    pool_batch_size: int = 128
    weight: float = 2.0
    ramp: float = 1.0
    temperature: float = 0.5
    guesses: int = 2
    mixing: float = 0.75

    def _method(self, network: nn.Module, average: nn.Module, setting: Setting) -> Method:
        require_positive(temperature=self.temperature, mixing=self.mixing)
        require_count(guesses=self.guesses)
        return _LabelMixMatch(self, network, setting)

    def _read_labels(self, y: Any, n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        said = y.labels if isinstance(y, Release) else y
        table = label_table(said, n_rows=n_rows, n_labels=self.n_classes, silent=True)
        self._require_enough(table)
        return table, np.arange(table.shape[1])

    def _require_enough(self, labels: NDArray[np.int64]) -> None:
        if not (labels != SILENT).any():
            raise ValueError(
                "Expected at least one released label, got silence for every row and label. Ask more "
                "queries, or ask with a lower threshold; silence was charged too."
            )

    def _places(self, y: Any, classes: NDArray[np.int64], *, n_rows: int) -> NDArray[np.int64]:
        return label_table(y, n_rows=n_rows, n_labels=len(classes))

    def _loss(self, n_outputs: int, device: torch.device) -> Loss:
        return LabelLoss.made(
            label_noise=self.label_noise, handling=self.noise_handling, smoothing=self.smoothing,
            n_labels=n_outputs, device=device,
        )  # fmt: skip

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


class _LabelMixMatch:
    def __init__(self, student: MultilabelMixMatchStudent, network: nn.Module, setting: Setting) -> None:
        self.student, self.network, self.setting = student, network, setting
        self.turns: Sequence[Turn] = (Turn(network, self.loss),)
        self.memory: dict[str, Tensor] = {}

    def loss(self, batch: Batch) -> Tensor:
        student, see, n = self.student, self.setting.views.see, len(batch.rows)
        rows = see(batch.rows, MEDIUM)
        # What was not told is guessed: a blend needs a target for both of its rows.
        targets = torch.where(batch.targets < 0, self._guesses(rows, n), batch.targets)
        if len(batch.pool):
            seen = torch.cat([see(batch.pool, MEDIUM) for _ in range(student.guesses)])
            guessed = self._guesses(seen, len(batch.pool)).repeat(student.guesses, 1)
            rows, targets = torch.cat([rows, seen]), torch.cat([targets, guessed])
        mixed, targets = blended(rows, targets, mixing=student.mixing)
        answers = self.network(mixed).float()
        # A guess counts for a told row as it does for others: not as much as what was told.
        told = torch.where(batch.targets < 0, float(SILENT), targets[:n])
        loss = self.setting.loss(answers[:n], told, share=batch.share)
        if len(batch.pool):
            distance = (answers[n:].sigmoid() - targets[n:]).square().mean()
            loss = loss + student.weight * ramp_up(batch.share, student.ramp) * distance
        return loss

    @torch.no_grad()
    def _guesses(self, seen: Tensor, n_rows: int) -> Tensor:
        answers = self.network(seen).float().sigmoid()
        return sharpened(answers.view(-1, n_rows, answers.shape[1]).mean(0), self.student.temperature)


def sharpened(chances: Tensor, temperature: float) -> Tensor:
    """Return chances of a yes, surer for temperatures below 1.

    >>> sharpened(torch.tensor([0.5, 0.8, 0.0]), 0.5)
    tensor([0.5000, 0.9412, 0.0000])
    """
    yes, no = chances ** (1 / temperature), (1 - chances) ** (1 / temperature)
    return yes / (yes + no)
