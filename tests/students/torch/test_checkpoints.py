"""Training that was cut short goes on to the same result, and never with another student's checkpoint."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tellers.nn.loop import FILE  # noqa: E402
from tellers.students.torch import (  # noqa: E402
    GanStudent,
    MeanTeacherStudent,
    MixMatchStudent,
    PublicRows,
    VatStudent,
)

RNG = np.random.default_rng(0)
X, POOL = RNG.normal(size=(20, 5)), RNG.normal(size=(60, 5))
Y = (X[:, 0] > 0).astype(int)
TINY = {"steps": 12, "width": 2, "batch_size": 8, "pool_batch_size": 16, "random_state": 3, "device": "cpu"}


class Killed(Exception):
    pass


def kill_at(step):
    def progress(done, total):
        if done == step:
            raise Killed

    return progress


@pytest.mark.parametrize(
    ("kind", "validation"),
    [
        *((kind, None) for kind in (GanStudent, MeanTeacherStudent, MixMatchStudent, VatStudent)),
        (MeanTeacherStudent, PublicRows(X, Y)),
    ],
)
def test_goes_on_to_the_same_result(kind, validation, tmp_path):
    student = kind(**TINY, check_every=3)
    whole = kind(**TINY, check_every=3).fit(X, Y, POOL, validation=validation)
    with pytest.raises(Killed):
        student.fit(X, Y, POOL, validation=validation, folder=tmp_path, save_every=4, progress=kill_at(6))
    seen = []
    student.fit(X, Y, POOL, validation=validation, folder=tmp_path, save_every=4,
                progress=lambda done, total: seen.append(done))  # fmt: skip
    assert seen[0] == 5  # not from the beginning
    assert student.n_steps_ == whole.n_steps_
    for name, values in whole.state_.items():
        np.testing.assert_array_equal(student.state_[name], values, err_msg=name)


def test_goes_on_to_the_same_result_with_labels_held_out(tmp_path):
    whole = VatStudent(**TINY, check_every=3).fit(X, Y, POOL, validation="released")
    student = VatStudent(**TINY, check_every=3)
    how = {"validation": "released", "folder": tmp_path, "save_every": 4}
    with pytest.raises(Killed):
        student.fit(X, Y, POOL, progress=kill_at(6), **how)
    student.fit(X, Y, POOL, **how)
    np.testing.assert_array_equal(student.predict_proba(POOL), whole.predict_proba(POOL))


@pytest.mark.parametrize(("before", "after"), [(None, "released"), ("released", None)])
def test_does_not_go_on_with_other_labels_held_out(before, after, tmp_path):
    with pytest.raises(Killed):
        VatStudent(**TINY).fit(
            X, Y, POOL, validation=before, folder=tmp_path, save_every=4, progress=kill_at(6)
        )
    with pytest.raises(ValueError, match="got one of other settings"):
        VatStudent(**TINY).fit(X, Y, POOL, validation=after, folder=tmp_path)


def test_a_checkpoint_needs_a_seed(tmp_path):
    with pytest.raises(ValueError, match="Expected random_state for a training with a checkpoint"):
        VatStudent(**{**TINY, "random_state": None}).fit(X, Y, POOL, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_finished_training_is_not_done_again(tmp_path):
    first = VatStudent(**TINY).fit(X, Y, POOL, folder=tmp_path)
    seen = []
    again = VatStudent(**TINY).fit(
        X, Y, POOL, folder=tmp_path, progress=lambda done, total: seen.append(done)
    )
    assert not seen
    np.testing.assert_array_equal(first.predict_proba(POOL), again.predict_proba(POOL))


@pytest.mark.parametrize("change", ["settings", "labels", "pool", "student"])
def test_another_students_checkpoint_is_refused(change, tmp_path):
    VatStudent(**TINY).fit(X, Y, POOL, folder=tmp_path)
    kind = MixMatchStudent if change == "student" else VatStudent
    other = kind(**{**TINY, "smoothing": 0.2 if change == "settings" else 0.1})
    y, pool = 1 - Y if change == "labels" else Y, POOL[:-1] if change == "pool" else POOL
    with pytest.raises(ValueError, match="other settings, rows or labels"):
        other.fit(X, y, pool, folder=tmp_path)


def test_a_damaged_checkpoint_is_refused_and_no_code_of_it_is_run(tmp_path):
    VatStudent(**TINY).fit(X, Y, POOL, folder=tmp_path)
    content = (tmp_path / FILE).read_bytes()
    for bad in (content[: len(content) // 2], b"", b"\x80\x04N."):
        (tmp_path / FILE).write_bytes(bad)
        with pytest.raises(ValueError, match="damaged file"):
            VatStudent(**TINY).fit(X, Y, POOL, folder=tmp_path)
