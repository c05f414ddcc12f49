"""Tasks and what a worker does with one: find its teachers or train them, and let them vote."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import ClusterFailed, MissingExtra
from ...privacy._rows import numeric_rows
from .._training import (
    EndOfTraining,
    ModelTraining,
    Training,
    give_up,
    make_task,
    refuse_other,
    train_unit,
    try_model,
)
from ..ballots import Ballots
from ..models import find_model, write_model
from .cluster import Versions, differences, say_different, versions_here
from .shards import Shard, read_queries, read_shard

# --- What travels: a description of the teachers one way, whole numbers the other. ---
#
# A task names shards by their addresses. Rows, models and errors stay with the worker: what it sends back is
# ballots, the numbers of teachers, and kinds of errors.


@dataclass(frozen=True, eq=False, repr=False)
class Job:
    """What all teachers of a run have in common; none of it comes from their rows.

    `store` is a folder as the workers see it, for the teachers they finish. `engine` is how networks are
    trained: None is one after another.
    """

    model: Any
    ballots: Ballots
    seed: int
    store: str
    n_teachers: int
    versions: Versions = field(default_factory=dict)
    trusted: tuple[str, ...] = ()
    on_mismatch: Literal["refuse", "retrain"] = "refuse"
    network: bool = False
    engine: Any = None


@dataclass(frozen=True)
class ShardBatch:
    """The teachers of one task, with the shard of each; those at different places never share a task."""

    numbers: tuple[int, ...]
    shards: tuple[Shard, ...]

    @property
    def at(self) -> str:
        """Return which resource its worker must have; "" is none."""
        return self.shards[0].at

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(shard.address for shard in self.shards)

    def only(self, numbers: Sequence[int]) -> "ShardBatch":
        kept = [(number, shard) for number, shard in zip(self.numbers, self.shards) if number in set(numbers)]
        return replace(self, numbers=tuple(n for n, _ in kept), shards=tuple(s for _, s in kept))


def make_batches(shards: Sequence[Shard], size: int) -> tuple[ShardBatch, ...]:
    """Return tasks of up to `size` teachers, in the order of their numbers, each at one place."""
    batches: list[ShardBatch] = []
    for number, shard in enumerate(shards):
        if batches and len(batches[-1].numbers) < size and batches[-1].at == shard.at:
            last = batches.pop()
            batches.append(ShardBatch((*last.numbers, number), (*last.shards, shard)))
        else:
            batches.append(ShardBatch((number,), (shard,)))
    return tuple(batches)


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What a worker says of one task: ballots in whole numbers (None after training), and what failed.

    `failures` are those of files and machines, `unable` who could not learn from its rows, and `troubles` why
    teachers among the `numbers` vote by the rule. `stop` is what would fail everywhere, in words without
    rows, and `worker` who answers.
    """

    numbers: tuple[int, ...]
    ballots: NDArray[Any] | None = None
    failures: dict[int, str] = field(default_factory=dict)
    stop: Exception | None = None
    worker: str = ""
    unable: dict[int, str] = field(default_factory=dict)
    troubles: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.ballots is not None and self.ballots.dtype.kind not in "iu":
            raise TypeError("Expected ballots in whole numbers, got others.")


# --- What a worker does with a task: find its teachers or train them, and let them vote. ---
#
# A teacher is a function of its shard, its number and the seed. So it does not matter which worker trains it,
# nor how often: a worker that does not find it in its store trains it, and gets the same.


class Failed(Exception):
    """A file of one teacher could not be read or written: nothing that its rows say."""


class Unable(Exception):
    """One teacher could not learn from its rows; the words are the kind of error, never its text."""


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
    """
    who = _worker()
    try:
        job = _open(order, who)
        rows = None
        if queries is not None:
            rows = numeric_rows(read_queries(queries) if isinstance(queries, str) else queries)
        return _answer(job, dict(zip(numbers, addresses)), rows, given_up or {}, worker=who)
    except EndOfTraining as end:
        return Answer((), stop=end.error, worker=who)
    except MissingExtra as error:
        return Answer((), stop=MissingExtra(f"{error} (on the worker {who})"), worker=who)
    except Exception as error:
        why = str(error) if isinstance(error, Failed) else type(error).__name__
        return Answer((), failures=dict.fromkeys(numbers, why), worker=who)


def hold(rows: NDArray[Any]) -> NDArray[Any]:
    """Return public queries: as a task of its own they reach each worker once, and again if it is lost."""
    return rows


def pick_engine(order: bytes, address: str, asked: Any) -> Any:
    """Return the engine of networks on this worker's device, None for a loop, or why it cannot be told."""

    def pick(job: Job) -> Any:
        from ..torch.ensemble import choose_engine

        training: Any = _backend(job, {0: address})
        return choose_engine(asked, training)

    return _answered(order, pick)


def try_out(order: bytes, address: str, public: NDArray[Any] | None) -> EndOfTraining | None:
    """Try the model of a job on stand-in rows of the shape of a shard; say what is wrong if it fails."""

    def tried(job: Job) -> None:
        try:
            shape = rows_of(job, address)[0].shape[1:] if public is None else public.shape[1:]
        except Failed:
            return  # a shard that cannot be read is named by the task that reads it
        if job.network:
            from ..torch.ensemble import try_network

            try_network(job.model, shape, job.ballots, public=public)
        else:
            try_model(job.model, shape, job.ballots, public=public)

    found: EndOfTraining | None = _answered(order, tried)
    return found


def _answered(order: bytes, ask: Callable[[Job], Any]) -> Any:
    """Return what a question about a job's model gives, of rows that are nobody's, or why it does not."""
    who = _worker()
    try:
        return ask(_open(order, who))
    except EndOfTraining as end:
        return end
    except MissingExtra as error:
        return EndOfTraining(MissingExtra(f"{error} (on the worker {who})"))
    except (Failed, ImportError, ValueError) as error:
        return EndOfTraining(ValueError(str(error)))
    except Exception as error:
        words = f"Expected a worker that can train it, got {type(error).__name__} on one."
        return EndOfTraining(ValueError(words))


def _open(order: bytes, who: str) -> Job:
    import pickle

    try:
        job: Job = pickle.loads(order)  # noqa: S301 - whoever may send a worker tasks runs code there anyway
    except ImportError as error:
        missing = (error.name or str(error)).partition(".")[0]
        words = say_different(f"the worker {who}", [f"{missing} missing instead of one"])
        raise EndOfTraining(MissingExtra(words)) from None
    except Exception as error:
        words = f"Expected a task that this worker can open, got one that raises {type(error).__name__}."
        raise EndOfTraining(ClusterFailed(words)) from None
    lines = differences(job.versions, versions_here(tuple(job.versions)))
    if lines:
        raise EndOfTraining(ClusterFailed(say_different(f"the worker {who}", lines)))
    return job


def _answer(
    job: Job,
    places: Mapping[int, str],
    queries: NDArray[Any] | None,
    given_up: Mapping[int, str],
    *,
    worker: str,
) -> Answer:
    """Find or train the teachers of a task, one by one or networks as one unit, and let them vote."""
    numbers, backend = list(places), _backend(job, places)
    ballots, (failures, unable, troubles) = dict[int, Any](), (dict[int, str]() for _ in range(3))
    units = [range(n, n + 1) for n in numbers]
    if job.network:
        units = [range(numbers[0], numbers[-1] + 1)]
    for unit in units:
        try:
            content = _found_or_trained(job, backend, unit, given_up.get(unit[0]))
            # From its bytes even if it was just trained: the same ballots, whether it was found or not.
            with _stopping():
                made = backend.load(unit, content)
            troubles |= backend.troubles(unit, made)
            if queries is not None:
                said, by_rule = backend.ask(unit, made, queries)
                ballots |= dict(zip(unit, job.ballots.whole(said)))
                troubles |= by_rule
        except Failed as error:
            failures |= dict.fromkeys(unit, str(error))
        except Unable as error:
            unable |= dict.fromkeys(unit, str(error))
    done = tuple(number for number in numbers if number not in {*failures, *unable})
    table = np.stack([ballots[number] for number in done]) if ballots else None
    return Answer(done, table, failures, worker=worker, unable=unable, troubles=troubles)


@contextmanager
def _stopping() -> Iterator[None]:
    """Let what is wrong with a model or a store, whatever the rows are, end the run."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise EndOfTraining(ValueError(str(error))) from None


def _backend(job: Job, places: Mapping[int, str]) -> Training:
    """Return what trains the teachers of a task, whose rows are at these places."""

    def rows(number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        return rows_of(job, places[number])

    if not job.network:
        return ModelTraining(job.model, rows, job.ballots, job.seed, trusted=job.trusted, where=job.store)
    # Torch is looked for where networks are trained.
    from ..torch.ensemble import NetworkTraining

    return NetworkTraining.of(
        job.model, rows(min(places))[0].shape, job.ballots, seed=job.seed, n_teachers=job.n_teachers,
        rows=rows, where=job.store, engine=job.engine,
    )  # fmt: skip


def rows_of(job: Job, address: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the rows of a shard, checked as those of a table are; a message names a place, not an entry."""
    try:
        X, y = read_shard(address)
        if not len(y) and X.ndim > 1 and not len(X):
            return X, job.ballots.made_up(2)[:0]  # nobody was dealt to this teacher
        rows = numeric_rows(X)
        return rows, job.ballots.targets(y, n_rows=len(rows))
    except (TypeError, ValueError) as error:
        raise Failed(str(error)) from None


def _found_or_trained(job: Job, backend: Training, unit: range, given_up: str | None) -> bytes:
    """Return the file of a unit: the one in the store, or that of one that is trained now, or given up."""
    task, name = make_task(backend, unit), backend.file(unit)
    wanted = backend.made_of(task)
    found = find_model(job.store, name)
    if found is not None and found[1] == wanted:
        return found[0]
    if found is not None and job.on_mismatch == "refuse":
        with _stopping():
            refuse_other(job.store, name, wanted=wanted, made_of=found[1])
    outcome = train_unit(task) if given_up is None else give_up(task, given_up)
    if isinstance(outcome.stop, MissingExtra):
        raise outcome.stop
    if outcome.stop is not None:
        raise EndOfTraining(ValueError(str(outcome.stop)))
    if outcome.failure is not None:
        raise Unable(outcome.failure)
    with _stopping():
        content = backend.dump(unit, outcome.made)
    try:
        write_model(job.store, name, content=content, made_of=wanted)
    except OSError as error:
        raise Failed(f"its file could not be written: {error.strerror or type(error).__name__}") from None
    return content


def _worker() -> str:
    try:
        from distributed import get_worker

        return str(get_worker().address)
    except (ImportError, ValueError):  # not on a worker
        return ""
