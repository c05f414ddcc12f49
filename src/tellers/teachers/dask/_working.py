"""Tasks and what a worker does with one: find its teachers or train them, and let them vote."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtra
from ...privacy._rows import label_table, numeric_rows
from .._running import describe_teacher, load_teacher, refuse_other
from .._training import Task, copy_estimator, give_up, random_states, train_teacher, try_model
from ..ballots import FallbackTeacher, Rule, class_ballot, label_ballot
from ..ensemble import cast_label_votes, declared_labels
from ..models import dump_model, teacher_file
from .cluster import Versions, differences, say_different, versions_here
from .shards import Shard, find_kept, keep, read_queries, read_shard

if TYPE_CHECKING:
    from ...nn.batched import Batched


# --- What travels: a description of the teachers one way, whole numbers the other. ---
#
# A task names shards by their addresses. Rows, models and errors stay with the worker: what it sends back is
# ballots, the numbers of teachers, and kinds of errors.


@dataclass(frozen=True, eq=False, repr=False)
class Job:
    """What all teachers of a run have in common; none of it comes from their rows.

    `n_outputs` counts classes, or labels where `many`. `store` is a folder as the workers see it, for the
    teachers they finish. `engine` is how networks are trained: None is one after another.
    """

    model: Any
    n_outputs: int
    many: bool
    seed: int
    store: str
    n_teachers: int
    versions: Versions
    trusted: tuple[str, ...] = ()
    thresholds: float | tuple[float, ...] = 0.5
    resolution: int = 1
    on_mismatch: Literal["refuse", "retrain"] = "refuse"
    network: bool = False
    engine: "Batched | None" = None

    @property
    def made_for(self) -> dict[str, int]:
        """Return what the teachers answer, as their manifests say it."""
        return {"n_labels" if self.many else "n_classes": self.n_outputs}


@dataclass(frozen=True)
class Batch:
    """The teachers of one task, with the shard of each; those at different places never share a task."""

    numbers: tuple[int, ...]
    shards: tuple[Shard, ...]

    @property
    def at(self) -> str:
        """Return which resource its worker must have; "" is none."""
        return self.shards[0].at

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where the rows are."""
        return tuple(shard.address for shard in self.shards)

    def only(self, numbers: Sequence[int]) -> "Batch":
        """Return the same task with some of its teachers."""
        kept = [(number, shard) for number, shard in zip(self.numbers, self.shards) if number in set(numbers)]
        return replace(self, numbers=tuple(n for n, _ in kept), shards=tuple(s for _, s in kept))


def make_batches(shards: Sequence[Shard], size: int) -> tuple[Batch, ...]:
    """Return tasks of up to `size` teachers, in the order of their numbers, each at one place."""
    batches: list[Batch] = []
    for number, shard in enumerate(shards):
        if batches and len(batches[-1].numbers) < size and batches[-1].at == shard.at:
            last = batches.pop()
            batches.append(Batch((*last.numbers, number), (*last.shards, shard)))
        else:
            batches.append(Batch((number,), (shard,)))
    return tuple(batches)


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What a worker says of one task: ballots in whole numbers (None after training), and what failed.

    `failures` are those of files and machines, `unable` who could not learn from its rows, and `troubles` why
    teachers among the `numbers` vote by the rule. `stop` is a pair of a kind and words, for what would fail
    everywhere. `worker` is who answers.
    """

    numbers: tuple[int, ...]
    ballots: NDArray[Any] | None = None
    failures: dict[int, str] | None = None
    stop: tuple[str, str] | None = None
    worker: str = ""
    unable: dict[int, str] = field(default_factory=dict)
    troubles: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "failures", dict(self.failures or {}))
        if self.ballots is not None and np.asarray(self.ballots).dtype.kind not in "iu":
            raise TypeError("Expected ballots in whole numbers, got others.")


# --- Networks on a worker: a task trains its teachers together, with the engine that all workers use ---


def engine_for(job: Job, address: str, asked: Any) -> Any:
    """Return the engine for a job's networks on this machine, measured with rows of a shard's shape."""
    from ...nn.devices import find_device
    from ...nn.networks import build_network, check_network
    from ..torch._units import choose_engine

    try:
        X, _ = rows_of(job, address)
    except Failed as error:
        raise ValueError(str(error)) from None
    shape = job.model.row_shape(X.shape)
    network = build_network(job.model.network, shape, n_classes=job.n_outputs, seed=0)
    check_network(network, shape, n_classes=job.n_outputs)
    return choose_engine(
        asked, network, shape=shape, recipe=job.model.recipe(), n_classes=job.n_outputs,
        device=find_device(job.model.device), n_teachers=job.n_teachers,
    ).engine  # fmt: skip


def train_networks(
    job: Job,
    numbers: Sequence[int],
    addresses: Sequence[str],
    queries: NDArray[Any] | None,
    *,
    given_up: Mapping[int, str],
) -> tuple[dict[int, NDArray[Any]], dict[int, str]]:
    """Find or train the networks of a task, as one unit; return their ballots, and who could not learn."""
    from ...nn.batched import NO_ANSWER
    from ...nn.devices import find_device
    from ...nn.networks import build_network
    from ..torch._units import (
        Unit,
        describe_unit,
        engine_name,
        give_up_unit,
        pack_states,
        read_troubles,
        train_unit,
        unit_states,
    )
    from ..torch.ensemble import TorchEnsemble, TorchLabelEnsemble

    tables = [rows_of(job, address) for address in addresses]
    targets = np.concatenate([y for _, y in tables])
    shape = job.model.row_shape(tables[0][0].shape)
    unit = Unit(
        range(numbers[0], numbers[-1] + 1), job.model, np.concatenate([X for X, _ in tables]),
        targets.astype(np.float32) if job.many else targets, sizes=[len(y) for _, y in tables],
        seeds=[random_states(job.seed, number, 1)[0] for number in numbers], shape=shape,
        n_classes=job.n_outputs, engine=job.engine, n_teachers=job.n_teachers,
    )  # fmt: skip
    network = build_network(job.model.network, shape, n_classes=job.n_outputs, seed=0)
    device = find_device(job.model.device)
    wanted = describe_unit(unit, network, device=device.type, seed=job.seed)
    content = kept_or_refused(job, unit.file, wanted)
    if content is None:
        hopeless = given_up.get(numbers[0])
        outcome = train_unit(unit) if hopeless is None else give_up_unit(unit, hopeless)
        if outcome.stop is not None:
            raise Stopped("value", str(outcome.stop))
        assert outcome.states is not None  # without a folder they are handed on
        content = pack_states(unit, outcome.states, outcome.troubles)
        keep(job.store, unit.file, content=content, made_of=wanted)
    troubles = read_troubles(content)
    if queries is None:
        return {}, troubles
    kept = unit_states(content, network, n_outputs=job.n_outputs, n_teachers=len(numbers))
    states = {name: values.to(device) for name, values in kept.items()}
    engine = engine_name(job.engine)
    if job.many:
        ensemble: Any = TorchLabelEnsemble(
            job.model, states, shape, job.n_outputs, engine, job.thresholds, job.resolution
        )
        ballots: Any = ensemble.vote(queries).block().astype(np.min_scalar_type(job.resolution))
    else:
        ensemble = TorchEnsemble(job.model, states, shape, job.n_outputs, engine)
        ballots = np.array(ensemble.vote(queries).ballots, dtype=np.min_scalar_type(job.n_outputs - 1))
        rule = Rule(queries, job.n_outputs)
        for place in ensemble.troubles.reveal():
            ballots[place] = rule.ballot(numbers[place])  # by their numbers among all teachers
    for place in ensemble.troubles.reveal():
        troubles.setdefault(numbers[place], NO_ANSWER)
    return dict(zip(numbers, ballots)), troubles


# --- What a worker does with a task: find its teachers or train them, and let them vote. ---
#
# A teacher is a function of its shard, its number and the seed. So it does not matter which worker trains it,
# nor how often: a worker that does not find it in its store trains it, and gets the same.


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
    """Return public queries: as a task of its own they reach each worker once, and again if it is lost."""
    return rows


def pick_engine(order: bytes, address: str, asked: Any) -> Any:
    """Return how networks are trained on this worker's device: `Batched(...)`, or None for a loop.

    A pair of a kind and words says why it cannot be told. See `work` for the order.
    """
    try:
        job = _open(order, _worker())

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
    """Try the model of a job on stand-in rows of the shape that a shard has.

    Say what is wrong, if it fails.
    """
    try:
        job = _open(order, _worker())
        shape = rows_of(job, address)[0].shape[1:] if public is None else public.shape[1:]
        if job.network:
            from ..torch._units import try_network

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
    """Return the rows of a shard, checked as those of a table are; a message names a place, not an entry."""
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
    """Return a model of the store if it is made of the same, None if there is none, or refuse another one."""
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

    ballots, troubles = train_networks(job, numbers, addresses, queries, given_up=given_up)
    return _Done(ballots, troubles=troubles)


def _worker() -> str:
    try:
        from distributed import get_worker

        return str(get_worker().address)
    except (ImportError, ValueError):  # not on a worker
        return ""
