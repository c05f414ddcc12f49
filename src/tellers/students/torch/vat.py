"""Virtual adversarial training: answers do not change in the direction where they would change most.

For every unlabelled row the direction in which the answer changes fastest is found by one step of power
iteration; the network then learns to say the same there. Answers are pushed to be sure as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...errors import require_count, require_positive
from ...nn.loop import Turn
from ...nn.networks import without_dropout
from ...nn.views import MEDIUM
from .training import StudentBatch, StudentRun, TorchStudent, ramp_up

_PROBE = 0.05  # of the radius: far enough for float32, near enough for the curvature at the row itself


@dataclass(kw_only=True, eq=False, repr=False)
class VatStudent(TorchStudent):
    """Learns to answer alike in a ball around each row, and to be sure.

    `radius` is that of the ball, in standard deviations per feature (of all pixels, for images). `entropy`
    weighs being sure against answering alike, `n_probes` says how often the worst direction is refined. The
    other settings are those of every torch student.

    Reference: Miyato et al. 2018, equations 5 to 12; the student of Papernot et al. 2018, appendix.

    >>> student = VatStudent(steps=40, random_state=7).fit([[0.0], [1.0]], [0, 1], [[0.1], [0.9]])
    >>> student.predict([[0.0], [1.0]])
    array([0, 1])
    """

    radius: float = 0.25
    entropy: float = 0.3
    n_probes: int = 1

    def _turns(self, run: StudentRun) -> Sequence[Turn]:
        require_positive(radius=self.radius)
        require_count(n_probes=self.n_probes)
        if not self.entropy >= 0:
            raise ValueError(f"Expected entropy >= 0, got entropy={self.entropy!r}.")
        rows = run.known.inputs
        radius = float(self.radius * rows.std() * rows[0].numel() ** 0.5)
        return [Turn(run.network, lambda batch: self._lost(run, batch, radius))]

    def _lost(self, run: StudentRun, batch: StudentBatch, radius: float) -> Tensor:
        told = run.told(run.network.train()(run.views.see(batch.rows, MEDIUM)), batch)
        if not len(batch.pool):
            return told
        # The same units in every pass, or the difference would be the dropout's.
        network = without_dropout(run.network)
        rows = run.views.see(batch.pool, MEDIUM)
        answers = network(rows).float()
        away = self._worst(network, rows, answers.detach(), radius)
        unlike = _divergence(answers.detach(), network(rows + away).float())
        unsure = -(answers.softmax(1) * answers.log_softmax(1)).sum(1).mean()
        loss: Tensor = told + self.weight * ramp_up(batch.share, self.ramp) * (unlike + self.entropy * unsure)
        return loss

    def _worst(self, network: nn.Module, rows: Tensor, answers: Tensor, radius: float) -> Tensor:
        """Return the direction in which answers change most, as long as the radius."""
        away = _unit(torch.randn_like(rows))
        for _ in range(self.n_probes):
            probe = (_PROBE * radius * away).requires_grad_()
            # In full precision: what is differentiated here is small.
            with torch.autocast(rows.device.type, enabled=False):
                unlike = _divergence(answers, network(rows + probe).float())
            (slope,) = torch.autograd.grad(unlike, probe)
            away = _unit(slope)
        return radius * away


def _divergence(before: Tensor, after: Tensor) -> Tensor:
    logs = before.log_softmax(1)
    return (logs.exp() * (logs - after.log_softmax(1))).sum(1).mean()


def _unit(directions: Tensor) -> Tensor:
    flat = directions.flatten(1)
    units: Tensor = flat / flat.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return units.view_as(directions)
