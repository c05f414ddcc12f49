"""Whatever a made-up cluster does to tasks, each teacher is answered for once, or named as failed."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers.errors import TeacherFailed
from tellers.teachers.dask import Patience, Shard, dispatch
from tellers.teachers.dask._working import Answer, make_batches
from tellers.teachers.dask.dispatch import Dispatch

FATES = (
    "answers",
    "answers",
    "answers",
    "is lost",
    "raises",
    "dies",
    "is gone",
    "fails in part",
    "cannot learn",
    "line breaks",
)


class KilledWorker(Exception):
    """What Dask calls a task of which workers died: it is known by this name."""


class Copy:
    """A task on a made-up cluster, which ends after a few looks as fate has it."""

    def __init__(self, key, numbers, fate, looks, given_up):
        self.key, self.numbers, self.fate, self.looks = key, numbers, fate, looks
        self.given_up = given_up

    @property
    def status(self):
        self.looks -= 1
        if self.looks > 0:
            return "pending"
        return {"is lost": "cancelled", "raises": "error", "dies": "error"}.get(self.fate, "finished")

    def exception(self, timeout):
        return KilledWorker() if self.fate == "dies" else RuntimeError()

    def result(self, timeout):
        if self.fate == "is gone":
            raise OSError
        failed = {self.numbers[0]: "ValueError"} if self.fate == "fails in part" else {}
        unable = {self.numbers[0]: "ValueError"} if self.fate == "cannot learn" else {}
        unable = {number: why for number, why in unable.items() if number not in self.given_up}
        done = tuple(number for number in self.numbers if number not in {**failed, **unable})
        ballots = np.array([[number] for number in done], dtype=np.uint8) if done else None
        return Answer(done, ballots, failed, worker="one", unable=unable)


class Line:
    """A line to a made-up cluster, which breaks as fate has it."""

    def __init__(self, fates):
        self.fates, self.is_lost, self.n_broken = list(fates), False, 0
        self.cluster = SimpleNamespace(patience=60.0, address="made up")
        self.client = self

    def submit(self, _work, _order, numbers, _addresses, _queries, given_up, *, key, **_where):
        fate, looks = self.fates.pop() if self.fates else ("answers", 1)
        self.is_lost = self.is_lost or fate == "line breaks"
        return Copy(key, numbers, fate, looks, given_up)

    def again(self):
        self.is_lost, self.n_broken = False, self.n_broken + 1

    def workers(self):
        return {"one": (1, frozenset()), "two": (2, frozenset())}

    def processing(self):
        return {}

    def cancel(self, copies, force):
        assert copies


def shards(n):
    return [Shard(f"{number}.npz") for number in range(n)]


@given(
    n_teachers=st.integers(1, 9),
    size=st.integers(1, 4),
    fates=st.lists(st.tuples(st.sampled_from(FATES), st.integers(1, 6)), max_size=40),
    in_flight=st.integers(1, 5),
    whole=st.booleans(),
)
def test_each_teacher_is_answered_for_once_or_named(n_teachers, size, fates, in_flight, whole):
    patience = Patience(retries=2, in_flight=in_flight, slow_factor=1e-6, slow_seconds=1e-9)
    line = Line(fates)
    round_ = Dispatch(line, b"", make_batches(shards(n_teachers), size), patience, "queries", whole=whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "_LOOK_SECONDS", 0)
        answers = list(round_.answers())
    voted = [number for answer in answers for number in answer.numbers]
    assert len(voted) == len(set(voted))
    assert not set(voted) & set(round_.failures)
    assert {*voted, *round_.failures} == set(range(n_teachers))
    # A ballot stays with its teacher.
    assert all((answer.ballots[:, 0] == answer.numbers).all() for answer in answers)
    assert round_.most_in_flight <= in_flight


def test_who_cannot_learn_is_tried_again_then_given_up_and_votes():
    line = Line([("cannot learn", 1)] * 9)
    round_ = Dispatch(line, b"", make_batches(shards(1), 1), Patience(retries=2), "queries")
    assert [answer.numbers for answer in round_.answers()] == [(0,)]
    assert round_.given_up == {0: "ValueError"}
    assert not round_.failures
    assert len(line.fates) == 9 - 3 - 1  # three tries, and the vote


def test_an_answer_for_other_teachers_is_refused():
    class Wrong(Line):
        def submit(self, *given, **named):
            copy = super().submit(*given, **named)
            copy.numbers = [5]
            return copy

    with pytest.raises(TeacherFailed, match="for each teacher of a task"):
        list(Dispatch(Wrong([]), b"", make_batches(shards(2), 1), Patience()).answers())


def test_ballots_that_are_not_whole_numbers_are_refused():
    with pytest.raises(TypeError, match="whole numbers"):
        Answer((0,), np.array([[0.5]]))
