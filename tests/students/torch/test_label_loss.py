"""Known label noise: what is lost is least for a network that knows the truth."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from tellers import SILENT  # noqa: E402
from tellers.nn.losses import (  # noqa: E402
    ClassLoss,
    LabelLoss,
    confusion_of,
)
from tellers.students.torch import MeanTeacherStudent  # noqa: E402


def loss_for(noise, handling, smoothing=0.0, n_classes=3):
    return ClassLoss.made(noise, handling, smoothing=smoothing, n_outputs=n_classes, device="cpu")


def label_loss(noise, handling):
    return LabelLoss.made(noise, handling, smoothing=0.1, n_outputs=2, device="cpu")


@given(
    noise=st.floats(0.0, 0.6),
    n_classes=st.integers(3, 6),
    truth=st.integers(0, 2),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=50, deadline=None)
def test_forward_correction_is_least_at_the_truth(noise, n_classes, truth, seed):
    """On average over the noise no answer loses less than the truth; a plain loss is least at the noise."""
    loss = loss_for(noise, "forward", n_classes=n_classes)
    released = torch.tensor(confusion_of(noise, n_classes)[truth], dtype=torch.float32)
    labels = loss.targets(torch.arange(n_classes))
    sure = torch.full((n_classes,), -20.0)
    sure[truth] = 20.0
    other = torch.randn(n_classes, generator=torch.Generator().manual_seed(seed)) * 3

    def expected(answers):
        return float((released * loss.rows(answers.expand(n_classes, -1), labels)).sum())

    assert expected(sure) <= expected(other) + 1e-4


def test_without_noise_all_ways_are_the_cross_entropy():
    answers, labels = torch.randn(7, 3, generator=torch.Generator().manual_seed(1)), torch.arange(7) % 3
    wanted = torch.nn.functional.cross_entropy(answers, labels)
    for handling in ("forward", "soft", "select"):
        loss = loss_for(0.0, handling)
        assert torch.allclose(loss(answers, loss.targets(labels), share=1.0), wanted)


def test_selection_leaves_out_what_fits_worst_but_not_at_first():
    loss, answers = loss_for(0.25, "select"), torch.zeros(4, 3)
    answers[:, 0] = 5.0
    targets = loss.targets(torch.tensor([0, 0, 0, 2]))  # the last one is wrong
    kept = loss(answers, targets, share=0.5)
    assert torch.allclose(kept, loss.rows(answers, targets)[:3].mean())
    assert loss(answers, targets, share=0.0) > kept


def test_soft_targets_are_chances_of_the_truth():
    confusion = np.array([[0.9, 0.1], [0.3, 0.7]])
    loss = loss_for(confusion, "soft", n_classes=2)
    np.testing.assert_allclose(loss.targets(torch.tensor([0, 1])), [[0.75, 0.25], [0.125, 0.875]], rtol=1e-6)


def test_silence_about_a_label_loses_nothing():
    loss = label_loss([0.0, 0.2], "forward")
    targets = loss.targets(torch.tensor([[1, SILENT], [SILENT, SILENT]]))
    one, other = (loss.rows(torch.tensor([[1.0, said], [said, said]]), targets) for said in (-3.0, 3.0))
    assert torch.equal(one, other)
    assert one[1] == 0
    with pytest.raises(ValueError, match="one for each of 2 labels"):
        label_loss(0.5, "forward")
    with pytest.raises(ValueError, match="'forward' or 'soft'"):
        label_loss(0.1, "select")


@pytest.mark.parametrize("handling", ["forward", "soft", "select"])
def test_a_student_takes_a_confusion_matrix(handling):
    rows = np.random.default_rng(0).normal(size=(40, 3))
    student = MeanTeacherStudent(
        steps=4, width=1, device="cpu", label_noise=[[0.9, 0.1], [0.2, 0.8]], noise_handling=handling
    )
    assert student.fit(rows[:20], np.arange(20) % 2, rows[20:]).predict(rows).shape == (40,)
