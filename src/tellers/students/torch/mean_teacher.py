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
from torch import Tensor

from ...errors import require_count, require_positive
from ...nn.loop import Turn
from ...nn.networks import without_dropout
from ...nn.views import MEDIUM, STRONG, WEAK
from .training import StudentBatch, StudentRun, TorchStudent, ramp_up

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

    >>> from tellers.data import digits
    >>> data = digits()
    >>> student = MeanTeacherStudent(steps=10, width=4, image_shape=(8, 8), random_state=7)
    >>> student.fit(data.X[:100], data.y[:100], data.X[100:500]).predict(data.X[:2]).shape
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

    def _turns(self, run: StudentRun) -> Sequence[Turn]:
        require_positive(temperature=self.temperature)
        require_count(guesses=self.guesses)
        for name in ("threshold", "fade"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"Expected 0 <= {name} < 1, got {name}={getattr(self, name)!r}.")
        targets = run.known.targets
        found = _shares(self.class_shares, targets.argmax(1).cpu().numpy(), targets.shape[1])
        shares = None if found is None else torch.tensor(found).to(targets)
        # How often each class was guessed so far; at first as often as it should.
        run.memory["guessed"] = torch.full_like(targets[0], 1 / targets.shape[1])
        return [Turn(run.network, lambda batch: self._lost(run, batch, shares))]

    def _lost(self, run: StudentRun, batch: StudentBatch, shares: Tensor | None) -> Tensor:
        see = run.views.see
        labelled = see(batch.rows, MEDIUM)
        if not len(batch.pool):
            return run.told(run.network(labelled), batch)
        targets = self._guesses(run, batch.pool, shares)
        answers = run.network(torch.cat([labelled, see(batch.pool, STRONG)])).float()
        ramp, n = ramp_up(batch.share, self.ramp), len(labelled)
        told = run.told(answers[:n], batch)
        sure = targets.max(1).values >= self.threshold
        guessed = (-(targets * answers[n:].log_softmax(1)).sum(1) * sure).mean()
        loss: Tensor = told * (1 - self.fade * ramp) + self.weight * ramp * guessed
        return loss

    @torch.no_grad()
    def _guesses(self, run: StudentRun, rows: Tensor, shares: Tensor | None) -> Tensor:
        average = without_dropout(run.average)
        seen = torch.cat([run.views.see(rows, WEAK) for _ in range(self.guesses)])
        targets: Tensor = average(seen).float().softmax(1).view(self.guesses, len(rows), -1).mean(0)
        if shares is not None:
            often = run.memory["guessed"]
            often.lerp_(targets.mean(0), 1 - _MEMORY)
            targets = targets * (shares / often.clamp_min(1e-6))
        targets = targets / targets.sum(1, keepdim=True)
        targets = targets ** (1 / self.temperature)
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
    """
    seen = np.asarray(counts, dtype=np.float64) + 0.5  # a class that never came up may still be there
    n, n_classes = seen.sum(), len(seen)
    statistic = ((seen - n / n_classes) ** 2).sum() / (n / n_classes)
    chance = min(1.0, (n_classes - 1) / statistic) if statistic else 1.0
    return np.asarray((1 - chance) * seen / n + chance / n_classes)
