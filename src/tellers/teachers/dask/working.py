"""What a worker does with a task: find its teachers or train them, and let them vote.

A teacher is a function of its shard, its number and the seed. So it does not matter which worker trains it,
nor how often: a worker that does not find it in its store trains it, and gets the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtra
from ...label_models import label_table
from ...rows import numeric_rows
from ..ballots import class_ballot, label_ballot
from ..ensemble import declared_labels
from ..fallback import FallbackTeacher, Rule
from ..label_ensemble import cast_label_votes
from ..models import dump_model, teacher_file
from ..running import describe_teacher, load_teacher, refuse_other
from ..training import Task, copy_estimator, give_up, train_teacher
from ..trial import try_model
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
    """A file of one teacher could not be read or written: nothing that its rows say."""


class Unable(Exception):
    """One teacher could not learn from its rows; the words are the kind of error, never its text."""


@dataclass(eq=False, repr=False)
class _Done:
    """What came of a task, teacher by teacher; see `Answer`."""

    ballots: dict[int, NDArray[Any]] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    unable: dict[int, str] = field(default_factory=dict)
    troubles: dict[int, str] = field(default_factory=dict)


def work(
    order: bytes,
    numbers: Sequence[int],
    addresses: Sequence[str],
    queries: str | NDArray[Any] | None = None,
    given_up: Mapping[int, str] | None = None,
) -> Answer:
    """Train some teachers, or find them, and return their ballots on the queries, if there are any.

    Who is `given_up` (a number, and why) was tried often enough: it is not trained, and votes by the rule.
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
        found = (_networks if job.network else _one_by_one)(job, numbers, addresses, rows, given_up or {})
    except Stopped as stopped:
        return Answer((), stop=(stopped.kind, stopped.words), worker=who)
    except MissingExtra as error:
        return Answer((), stop=("extra", f"{error} (on the worker {who})"), worker=who)
    except Failed as error:
        return Answer((), failures={number: str(error) for number in numbers}, worker=who)
    except Exception as error:
        kind = type(error).__name__
        return Answer((), failures=dict.fromkeys(numbers, kind), worker=who)
    done = tuple(number for number in numbers if number not in {*found.failures, *found.unable})
    table = None if rows is None or not done else np.stack([found.ballots[number] for number in done])
    return Answer(done, table, found.failures, worker=who, unable=found.unable, troubles=found.troubles)


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


def try_out(order: bytes, address: str, public: NDArray[Any] | None) -> tuple[str, str] | None:
    """Try the model of a job on stand-in rows of the shape that a shard has; say what is wrong, if it fails.

    >>> try_out(b"", "nowhere", None)
    ('order', 'Expected a task that this worker can open, got one that raises EOFError.')
    """
    try:
        job = _open(order, _worker())
        shape = rows_of(job, address)[0].shape[1:] if public is None else public.shape[1:]
        if job.network:
            from ..torch.choice import try_network

            try_network(job.model, shape, job.made_for, public=public)
        else:
            try_model(job.model, shape, job.made_for, public=public)
    except Stopped as stopped:
        return (stopped.kind, stopped.words)
    except MissingExtra as error:
        return ("extra", f"{error} (on the worker {_worker()})")
    except Failed:
        return None  # a shard that cannot be read is named by the task that reads it
    except Exception as error:  # of rows that are nobody's
        return ("value", str(error))
    return None


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
    job: Job,
    numbers: Sequence[int],
    addresses: Sequence[str],
    queries: NDArray[Any] | None,
    given_up: Mapping[int, str],
) -> _Done:
    done = _Done()
    for number, address in zip(numbers, addresses):
        try:
            content, trouble = _teacher(job, number, address, given_up.get(number))
            if queries is not None:
                teacher = _load(job, number, content)
                done.ballots[number], trouble = _ballot(job, number, teacher, queries)
            if trouble is not None:
                done.troubles[number] = trouble
        except Failed as error:
            done.failures[number] = str(error)
        except Unable as error:
            done.unable[number] = str(error)
    return done


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
        if not len(y) and X.ndim > 1 and not len(X):
            # Nobody was dealt to this teacher.
            return X, np.zeros((0, job.n_outputs) if job.many else 0, dtype=np.int64)
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


def _teacher(job: Job, number: int, address: str, given_up: str | None) -> tuple[bytes, str | None]:
    """Return the file of a teacher: the one in the store, or that of one that is trained now, or given up."""
    X, y = rows_of(job, address)
    name = teacher_file(number)
    wanted = describe_teacher(job.model, X, y, made_for=job.made_for, seed=job.seed)
    content, trouble = kept_or_refused(job, name, wanted), None
    if content is None:
        task = Task(number, copy_estimator(job.model, job.seed, number), X, y, made_for=job.made_for)
        outcome = train_teacher(task) if given_up is None else give_up(task, given_up)
        if outcome.stop is not None:
            raise outcome.stop
        if outcome.failure is not None:
            raise Unable(outcome.failure)
        if isinstance(outcome.model, FallbackTeacher):
            trouble = outcome.model.trouble
        try:
            content = dump_model(outcome.model, trusted=job.trusted)
            keep(job.store, name, content=content, made_of=wanted)
        except TypeError as error:
            raise Stopped("value", str(error)) from None
        except OSError as error:
            raise Failed(f"its file could not be written: {error.strerror or type(error).__name__}") from None
    return content, trouble


def _load(job: Job, number: int, content: bytes) -> Any:
    # From its bytes even if it was just trained: the ballots are the same whether it was found or not.
    try:
        return load_teacher(content, like=job.model, trusted=job.trusted, where=f"{number} in {job.store}")
    except ValueError as error:
        raise Stopped("value", str(error)) from None


def _ballot(job: Job, number: int, teacher: Any, queries: NDArray[Any]) -> tuple[NDArray[Any], str | None]:
    if job.many:
        said, trouble = label_ballot(teacher, queries, n_labels=job.n_outputs)
        votes = cast_label_votes(said[None], thresholds=job.thresholds, resolution=job.resolution)
        return np.asarray(votes.block()[0], dtype=np.min_scalar_type(job.resolution)), trouble
    ballot, trouble = class_ballot(teacher, queries, number=number, rule=Rule(queries, job.n_outputs))
    return np.asarray(ballot, dtype=np.min_scalar_type(job.n_outputs - 1)), trouble


def _networks(
    job: Job,
    numbers: Sequence[int],
    addresses: Sequence[str],
    queries: NDArray[Any] | None,
    given_up: Mapping[int, str],
) -> _Done:
    # Torch is looked for where networks are trained.
    from .networks import train_networks

    ballots, troubles = train_networks(job, numbers, addresses, queries, given_up=given_up)
    return _Done(ballots, troubles=troubles)


def _worker() -> str:
    try:
        from distributed import get_worker

        return str(get_worker().address)
    except (ImportError, ValueError):  # not on a worker
        return ""
