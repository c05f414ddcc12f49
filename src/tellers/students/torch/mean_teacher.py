"""A student that agrees with its own average: weak views are guessed, strong ones have to say the same.

The average of past weights answers a weak view of every unlabelled row. Its guesses are evened out until all
classes come up as often as they should (distribution alignment), sharpened, and learned from strong views of
the same rows wherever they are sure enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from ...errors import require_count, require_positive
from .estimator import TorchStudent
from .lesson import Batch
from .loop import Method, Turn
from .networks import without_dropout
from .setting import Setting, ramp_up
from .views import MEDIUM, STRONG, WEAK

_MEMORY = 0.99  # of how often each class was guessed


@dataclass(kw_only=True, eq=False, repr=False)
class MeanTeacherStudent(TorchStudent):
    """Learns strong views of unlabelled rows from what its own average says of weak ones.

    Guesses are the mean over `guesses` weak views, aligned to `class_shares`, raised to 1 / `temperature`,
    and learned where the best class has at least `threshold`. `class_shares` are "labels" (how often each
    class was released, drawn towards equal shares as far as chance explains the difference), "equal", None
    (no alignment), or shares. Labels count 1 - `fade` of what they do at first once the ramp is over, so that
    few of them are not learned by heart. The other settings are those of every torch student.

    Reference: Tarvainen and Valpola 2017 (the averaged teacher); Berthelot et al. 2020 (alignment, strong
               views); Sohn et al. 2020 (the threshold).

    >>> from tellers.datasets import digits
    >>> data = digits()
    >>> student = MeanTeacherStudent(steps=60, width=4, image_shape=(8, 8), random_state=7)
    >>> student.fit(data.X[:100], data.y[:100], data.X[100:1000]).predict(data.X[:2]).shape
    (2,)
    """

    batch_size: int = 96
    pool_batch_size: int = 384
    weight: float = 2.0
    temperature: float = 0.5
    threshold: float = 0.7
    guesses: int = 1
    class_shares: Literal["labels", "equal"] | ArrayLike | None = "labels"
    fade: float = 0.6

    def _method(self, network: nn.Module, average: nn.Module, setting: Setting) -> Method:
        require_positive(temperature=self.temperature)
        require_count(guesses=self.guesses)
        for name in ("threshold", "fade"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"Expected 0 <= {name} < 1, got {name}={getattr(self, name)!r}.")
        return _MeanTeacher(self, network, average, setting)


class _MeanTeacher:
    def __init__(
        self, student: MeanTeacherStudent, network: nn.Module, average: nn.Module, setting: Setting
    ) -> None:
        self.student, self.network, self.average, self.setting = student, network, average, setting
        targets = setting.lesson.targets
        shares = _shares(student.class_shares, targets.argmax(1).cpu().numpy(), targets.shape[1])
        self.shares = None if shares is None else torch.tensor(shares).to(targets)
        # How often each class was guessed so far; at first as often as it should.
        self.guessed = torch.full_like(targets[0], 1 / targets.shape[1])
        self.turns: Sequence[Turn] = (Turn(network, self.loss),)
        self.memory = {"guessed": self.guessed}

    def loss(self, batch: Batch) -> Tensor:
        see, student = self.setting.views.see, self.student
        labelled = see(batch.rows, MEDIUM)
        if not len(batch.pool):
            return self.setting.loss(self.network(labelled).float(), batch.targets, share=batch.share)
        targets = self._targets(batch.pool)
        answers = self.network(torch.cat([labelled, see(batch.pool, STRONG)])).float()
        ramp, n = ramp_up(batch.share, student.ramp), len(labelled)
        told = self.setting.loss(answers[:n], batch.targets, share=batch.share)
        sure = targets.max(1).values >= student.threshold
        guessed = (-(targets * answers[n:].log_softmax(1)).sum(1) * sure).mean()
        loss: Tensor = told * (1 - student.fade * ramp) + student.weight * ramp * guessed
        return loss

    @torch.no_grad()
    def _targets(self, rows: Tensor) -> Tensor:
        average = without_dropout(self.average)
        n = self.student.guesses
        seen = torch.cat([self.setting.views.see(rows, WEAK) for _ in range(n)])
        targets: Tensor = average(seen).float().softmax(1).view(n, len(rows), -1).mean(0)
        if self.shares is not None:
            self.guessed.lerp_(targets.mean(0), 1 - _MEMORY)
            targets = targets * (self.shares / self.guessed.clamp_min(1e-6))
        targets = targets / targets.sum(1, keepdim=True)
        targets = targets ** (1 / self.student.temperature)
        return targets / targets.sum(1, keepdim=True)


def _shares(
    wanted: Literal["labels", "equal"] | ArrayLike | None, ids: NDArray[np.int64], n_classes: int
) -> NDArray[np.float64] | None:
    equal = np.full(n_classes, 1 / n_classes)
    if wanted is None:
        return None
    if isinstance(wanted, str):
        if wanted == "equal":
            return equal
        if wanted != "labels":
            raise ValueError(f"Expected class_shares 'labels', 'equal', None or shares, got {wanted!r}.")
        return shrunk_shares(np.bincount(ids, minlength=n_classes))
    given = np.asarray(wanted, dtype=np.float64)
    if given.shape != (n_classes,) or not (given > 0).all():
        raise ValueError(f"Expected {n_classes} positive class_shares, one per class, got others.")
    return np.asarray(given / given.sum())


def shrunk_shares(counts: ArrayLike) -> NDArray[np.float64]:
    """Return the shares of classes, drawn to equal ones as far as chance alone explains that they differ.

    With K classes, chance gives a chi-squared statistic of K - 1 on average: what is there beyond it is kept.

    >>> shrunk_shares([52, 48]), shrunk_shares([240, 60]).round(2)
    (array([0.5, 0.5]), array([0.8, 0.2]))
    """
    seen = np.asarray(counts, dtype=np.float64) + 0.5  # a class that never came up may still be there
    n, n_classes = seen.sum(), len(seen)
    statistic = ((seen - n / n_classes) ** 2).sum() / (n / n_classes)
    chance = min(1.0, (n_classes - 1) / statistic) if statistic else 1.0
    return np.asarray((1 - chance) * seen / n + chance / n_classes)
