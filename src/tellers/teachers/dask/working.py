"""What a worker does with a task: find its teachers or train them, and let them vote.

A teacher is a function of its shard, its number and the seed. So it does not matter which worker trains it,
nor how often: a worker that does not find it in its store trains it, and gets the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtra, TeacherFailed
from ...label_models import label_table
from ...rows import numeric_rows
from ..ensemble import Ensemble, declared_labels
from ..label_ensemble import LabelEnsemble
from ..models import dump_model, teacher_file
from ..running import describe_teacher, load_teacher, refuse_other
from ..training import Task, copy_estimator, train_teacher
from .places import find_kept, keep
from .shards import read_queries, read_shard
from .tasks import Answer, Job
from .versions import differences, say_different, versions_here


class Stopped(Exception):
    """What is wrong here is wrong with every task: the kind, and words without rows."""

    def __init__(self, kind: str, words: str) -> None:
        self.kind, self.words = kind, words
        super().__init__(words)


class Failed(Exception):
    """One teacher failed; the words are the kind of error, never its text."""


def work(
    order: bytes, numbers: Sequence[int], addresses: Sequence[str], queries: str | NDArray[Any] | None = None
) -> Answer:
    """Train some teachers, or find them, and return their ballots on the queries, if there are any.

    `order` is a pickled `Job`: the scheduler, which hands tasks on, need not be able to open it. Whatever is
    raised here stays here: its text may quote rows, and it would pass through the scheduler.

    >>> import pickle, tempfile
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.teachers.dask.shards import write_shard
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_shard(f"{folder}/part.npz", [[0.5], [0.7]], [0, 1])
    ...     tree = DecisionTreeClassifier()
    ...     job = Job(tree, n_outputs=2, many=False, seed=7, store=folder, n_teachers=1, versions={})
    ...     work(pickle.dumps(job), [0], [f"{folder}/part.npz"], np.array([[0.55], [0.8]])).ballots
    array([[0, 1]], dtype=uint8)
    """
    who = _worker()
    try:
        job = _open(order, who)
        rows = None
        if queries is not None:
            rows = numeric_rows(read_queries(queries) if isinstance(queries, str) else queries)
        ballots, failures = (_networks if job.network else _one_by_one)(job, numbers, addresses, rows)
    except Stopped as stopped:
        return Answer((), stop=(stopped.kind, stopped.words), worker=who)
    except MissingExtra as error:
        return Answer((), stop=("extra", f"{error} (on the worker {who})"), worker=who)
    except Failed as error:
        return Answer((), failures={number: str(error) for number in numbers}, worker=who)
    except Exception as error:
        kind = type(error).__name__
        return Answer((), failures=dict.fromkeys(numbers, kind), worker=who)
    done = tuple(number for number in numbers if number not in failures)
    table = None if rows is None or not done else np.stack([ballots[number] for number in done])
    return Answer(done, table, failures, worker=who)


def hold(rows: NDArray[Any]) -> NDArray[Any]:
    """Return public queries: as a task of its own they reach each worker once, and again if it is lost.

    >>> hold(np.zeros((1, 1)))
    array([[0.]])
    """
    return rows


def pick_engine(order: bytes, address: str, asked: Any) -> Any:
    """Return how networks are trained on this worker's device: `Batched(...)`, or None for a loop.

    A pair of a kind and words says why it cannot be told. See `work` for the order.

    >>> pick_engine(b"", "nowhere", "auto")
    ('order', 'Expected a task that this worker can open, got one that raises EOFError.')
    """
    try:
        job = _open(order, _worker())
        from .networks import engine_for

        return engine_for(job, address, asked)
    except Stopped as stopped:
        return (stopped.kind, stopped.words)
    except MissingExtra as error:
        return ("extra", f"{error} (on the worker {_worker()})")
    except ValueError as error:
        return ("value", str(error))
    except Exception as error:
        return ("value", f"Expected a worker that can train networks, got {type(error).__name__} on one.")


def _open(order: bytes, who: str) -> Job:
    import pickle

    try:
        job: Job = pickle.loads(order)  # noqa: S301 - whoever may send a worker tasks runs code there anyway
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0]
        raise Stopped(
            "extra", say_different(f"the worker {who}", [f"{missing} missing instead of one"])
        ) from None
    except Exception as error:
        kind = type(error).__name__
        raise Stopped(
            "order", f"Expected a task that this worker can open, got one that raises {kind}."
        ) from None
    lines = differences(job.versions, versions_here(tuple(job.versions)))
    if lines:
        raise Stopped("versions", say_different(f"the worker {who}", lines))
    return job


def _one_by_one(
    job: Job, numbers: Sequence[int], addresses: Sequence[str], queries: NDArray[Any] | None
) -> tuple[dict[int, NDArray[Any]], dict[int, str]]:
    ballots, failures = {}, {}
    for number, address in zip(numbers, addresses):
        try:
            content = _teacher(job, number, address)
            if queries is not None:
                ballots[number] = _ballot(job, _load(job, number, content), queries)
        except Failed as error:
            failures[number] = str(error)
    return ballots, failures


def rows_of(job: Job, address: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of a shard, checked as those of a table are; a message names a place, not an entry.

    >>> job = Job(None, n_outputs=2, many=False, seed=7, store="", n_teachers=1, versions={})
    >>> rows_of(job, "nowhere.npz")
    Traceback (most recent call last):
        ...
    tellers.teachers.dask.working.Failed: Expected a shard at nowhere.npz, found nothing ...
    """
    try:
        X, y = read_shard(address)
        rows = numeric_rows(X)
        if job.many:
            return rows, label_table(y, n_rows=len(rows), n_labels=job.n_outputs)
        return rows, declared_labels(y, n_rows=len(rows), n_classes=job.n_outputs)
    except (TypeError, ValueError) as error:
        raise Failed(str(error)) from None


def kept_or_refused(job: Job, name: str, wanted: dict[str, Any]) -> bytes | None:
    """Return a model of the store if it is made of the same, None if there is none, or refuse another one.

    >>> job = Job(None, n_outputs=2, many=False, seed=7, store="nowhere", n_teachers=1, versions={})
    >>> kept_or_refused(job, "teacher-00000.skops", {})
    """
    found = find_kept(job.store, name)
    if found is None:
        return None
    content, made_of = found
    if made_of == wanted:
        return content
    if job.on_mismatch == "refuse":
        try:
            refuse_other(job.store, name, wanted=wanted, made_of=made_of)
        except ValueError as error:
            raise Stopped("value", str(error)) from None
    return None


def _teacher(job: Job, number: int, address: str) -> bytes:
    """Return the file of a teacher: the one in the store, or that of one that is trained now."""
    X, y = rows_of(job, address)
    name = teacher_file(number)
    wanted = describe_teacher(job.model, X, y, made_for=job.made_for, seed=job.seed)
    content = kept_or_refused(job, name, wanted)
    if content is None:
        outcome = train_teacher(Task(number, copy_estimator(job.model, job.seed, number), X, y))
        if outcome.failure is not None:
            raise Failed(outcome.failure)
        try:
            content = dump_model(outcome.model, trusted=job.trusted)
            keep(job.store, name, content=content, made_of=wanted)
        except TypeError as error:
            raise Stopped("value", str(error)) from None
        except OSError as error:
            raise Failed(f"its file could not be written: {error.strerror or type(error).__name__}") from None
    return content


def _load(job: Job, number: int, content: bytes) -> Any:
    # From its bytes even if it was just trained: the ballots are the same whether it was found or not.
    try:
        return load_teacher(content, like=job.model, trusted=job.trusted, where=f"{number} in {job.store}")
    except ValueError as error:
        raise Stopped("value", str(error)) from None


def _ballot(job: Job, teacher: Any, queries: NDArray[Any]) -> NDArray[Any]:
    try:
        if job.many:
            said = LabelEnsemble((teacher,), job.n_outputs, job.thresholds, job.resolution).vote(queries)
            return np.asarray(said.block()[0], dtype=np.min_scalar_type(job.resolution))
        ballots = Ensemble((teacher,), job.n_outputs).vote(queries).ballots
    except TeacherFailed:
        raise Failed("it could not vote") from None
    assert ballots is not None  # vote makes its votes of ballots
    return np.asarray(ballots[0], dtype=np.min_scalar_type(job.n_outputs - 1))


def _networks(
    job: Job, numbers: Sequence[int], addresses: Sequence[str], queries: NDArray[Any] | None
) -> tuple[dict[int, NDArray[Any]], dict[int, str]]:
    # Torch is looked for where networks are trained.
    from .networks import train_networks

    return train_networks(job, numbers, addresses, queries), {}


def _worker() -> str:
    try:
        from distributed import get_worker

        return str(get_worker().address)
    except (ImportError, ValueError):  # not on a worker
        return ""
