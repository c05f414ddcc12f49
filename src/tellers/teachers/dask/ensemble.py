"""The ensemble on a cluster: trained where its rows are, one ballot per teacher and query coming back."""

import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import TeacherFailed
from ...privacy._rows import numeric_rows
from ...privacy.sealed import Sealed
from ...privacy.votes import AnswerSpace, Votes
from .._old_names import renamed
from .._training import MANY, EndOfTraining, check_estimator, say_failed, seed_number
from ..ballots import ballots_of, require_by_query
from ..ensemble import is_network
from ..options import Progress, TrainingOptions
from ..partitions import Seed
from ._working import Answer, Job, ShardBatch, make_batches, pick_engine, try_out
from .cluster import Link, versions_here
from .dispatch import Dispatch, Patience
from .shards import Shard, check_shards

_TASKS_PER_THREAD = 8
_LARGEST_BATCH = 16
_LOOK_SECONDS = 0.05


@dataclass(frozen=True, eq=False, repr=False)
class DaskEnsemble:
    """Teachers on a cluster that vote; everything they say is private until a mechanism releases it.

    A teacher that cannot learn from its rows, or whose worker dies of them, votes by the rule, as on one
    machine; `troubles` says who did and why. Shards that nobody can read, and lost clusters, are errors.

    Guarantee: one changed unit of the partition changes one row of ballots, whatever was lost or run twice.
    Assumes:   every shard holds one part of one `Partition`; the queries are public; scheduler, workers and
               the store are as trusted as the machine that holds the votes.
    Reference: Papernot et al. 2017, section 2.1.

    >>> import tempfile
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers import SetOf
    >>> from tellers.teachers.dask import Cluster, connect, write_shards
    >>> from tellers.teachers import partition
    >>> X, y, parts = np.eye(8), np.arange(8) % 2, partition(8, 2, seed=7)
    >>> with connect(Cluster(n_workers=1)) as link, tempfile.TemporaryDirectory() as folder:
    ...     how = {"seed": 7, "link": link, "store": folder}
    ...     shards = write_shards(folder, X, y, parts)
    ...     ensemble = train_dask_ensemble(DecisionTreeClassifier(), shards, n_classes=2, **how)
    ...     ensemble.vote(X)
    ...     shards = write_shards(folder, X, np.stack([y, 1 - y], axis=1), parts)
    ...     how |= {"on_mismatch": "retrain", "space": SetOf(2)}
    ...     train_dask_ensemble(DecisionTreeClassifier(), shards, **how).vote(X)
    Votes(<private>, n_queries=8, n_teachers=2, n_classes=2)
    Votes(<private>, n_queries=8, n_teachers=2, n_labels=2)
    """

    link: Link
    job: Job
    batches: tuple[ShardBatch, ...]
    patience: Patience
    near: dict[int, str] = field(default_factory=dict)
    given_up: dict[int, str] = field(default_factory=dict)
    _troubles: dict[int, str] = field(default_factory=dict)

    @property
    def troubles(self) -> Sealed[dict[int, str]]:
        """Return who voted by the rule and why, by number; sealed, as rows decide it."""
        return Sealed(dict(self._troubles))

    def vote(self, X: ArrayLike | str, *, progress: Progress | None = None) -> Votes:
        """Return every teacher's ballot on every query: rows, or the address of a file that workers read."""
        return self.job.ballots.votes(self._ballots(X, progress))

    def __getattr__(self, name: str) -> Any:
        if name != "vote_labels":
            raise AttributeError(f"DaskEnsemble has no attribute {name!r}")
        renamed("DaskEnsemble.vote_labels", "DaskEnsemble.vote")
        return self.vote

    @property
    def n_classes(self) -> int:
        """Return how many classes the teachers vote on; those of many labels have none."""
        # An attribute that is not there, for whoever looks whether it is.
        return self.job.ballots.space.n_classes  # type: ignore[union-attr]

    def _ballots(self, X: ArrayLike | str, progress: Progress | None) -> NDArray[Any]:
        queries = X if isinstance(X, str) else numeric_rows(X)
        table: NDArray[Any] | None = None
        for answer in _all_answers(self, queries, progress):
            assert answer.ballots is not None  # asked with queries
            if table is None:
                shape = (len(self), *answer.ballots.shape[1:])
                if not isinstance(queries, str) and shape[1] != len(queries):
                    raise TeacherFailed("Expected a ballot on every query, got another number of them.")
                table = np.zeros(shape, dtype=answer.ballots.dtype)
            if answer.ballots.shape[1:] != table.shape[1:]:
                raise TeacherFailed("Expected ballots on the same queries from every worker, got others.")
            table[list(answer.numbers)] = answer.ballots
        assert table is not None  # there is at least one teacher
        return table

    @property
    def n_teachers(self) -> int:
        """Return how many teachers vote."""
        return self.job.n_teachers

    def __len__(self) -> int:
        return self.job.n_teachers

    def __repr__(self) -> str:
        space = self.job.ballots.space
        return f"DaskEnsemble(n_teachers={len(self)}, n_{space.kind}={space.n_answers})"


def train_dask_ensemble(
    model: Any,
    shards: Sequence[Shard],
    *,
    seed: Seed,
    link: Link,
    store: str | PathLike[str],
    n_classes: int | None = None,
    space: AnswerSpace | None = None,
    thresholds: float | Sequence[float] = 0.5,
    **options: Any,
) -> DaskEnsemble:
    """Train one copy of a model on each shard, where it is, and keep it in the workers' store.

    Teachers and ballots are those of `train_ensemble` for the same parts and seed. `store` is a folder or URL
    as the workers see it, theirs alone or shared, as private as the rows: a worker that lacks a teacher
    trains it again.

    Parameters
    ----------
    n_classes, space, thresholds : what teachers answer; see `train_ensemble`.
    options : `patience` (see `Patience`), `batch`, the teachers of one task, and of `TrainingOptions`
        progress, on_mismatch, trusted, public, and engine for networks, whose tasks are the chunks of the
        batched trainer.

    >>> import tempfile
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.teachers.dask import Cluster, Shard, connect
    >>> with connect(Cluster(address="tcp://127.0.0.1:9", timeout=0.2)) as link:
    ...     train_dask_ensemble(
    ...         DecisionTreeClassifier(), [Shard("/data/ward-3.npz")], n_classes=2, seed=7, link=link,
    ...         store="/data/teachers",
    ...     )
    Traceback (most recent call last):
        ...
    tellers.errors.ClusterFailed: Expected a scheduler at tcp://127.0.0.1:9, nobody answered in ...
    """
    require_by_query(space, "teachers on a cluster")
    ballots, network = ballots_of(space, n_classes=n_classes, thresholds=thresholds), is_network(model)
    job = Job(
        model if network else ballots.model(model), ballots, seed_number(seed), fspath(store), len(shards),
        network=network,
    )  # fmt: skip
    return _train(job, check_shards(shards), link, **options)


def _train(
    job: Job,
    shards: tuple[Shard, ...],
    link: Link,
    *,
    patience: Patience | None = None,
    batch: int | None = None,
    **options: Any,
) -> DaskEnsemble:
    how = TrainingOptions(n_jobs=batch, **options)
    check_estimator(job.model)
    packages = _packages(job.model)
    link.require_versions(packages)
    job = replace(
        job, versions=versions_here(packages), on_mismatch=how.on_mismatch, trusted=tuple(how.trusted)
    )
    rules = patience or Patience()
    public: Any = how.public
    _try_out(job, shards[0], link, None if public is None else public[:MANY])
    if job.network:
        job = replace(job, engine=_engine(job, shards[0], link, how.engine))
        size = 1 if job.engine is None else job.engine.chunk or 1
    else:
        n_threads = max(1, sum(n for n, _ in link.workers().values()))  # they may all be lost just now
        size = batch or min(max(math.ceil(len(shards) / (_TASKS_PER_THREAD * n_threads)), 1), _LARGEST_BATCH)
    ensemble = DaskEnsemble(link, job, make_batches(shards, size), rules)
    for answer in _all_answers(ensemble, None, how.progress):
        ensemble.near.update(dict.fromkeys(answer.numbers, answer.worker))
    # What was refused or overwritten once is right now: votes take the teachers as they are.
    return replace(ensemble, job=replace(job, on_mismatch="refuse"))


def _all_answers(
    ensemble: DaskEnsemble, queries: str | NDArray[Any] | None, progress: Progress | None
) -> "list[Answer]":
    """Return an answer for every teacher, or raise; never a part of them, which would be a vote short."""
    round_ = Dispatch(
        ensemble.link, pickled(ensemble.job), ensemble.batches, ensemble.patience, queries,
        near=ensemble.near, whole=ensemble.job.network, given_up=ensemble.given_up,
        troubles=ensemble._troubles,
    )  # fmt: skip
    answers, n_done = [], 0
    try:
        for answer in round_.answers():
            answers.append(answer)
            n_done += len(answer.numbers)
            if progress is not None:
                progress(n_done, len(ensemble))
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(_say_kept(ensemble, n_done))
        raise
    if round_.failures:
        raise TeacherFailed(f"{say_failed(round_.failures)} {_say_kept(ensemble, n_done)}")
    numbers = sorted(number for answer in answers for number in answer.numbers)
    if numbers != list(range(len(ensemble))):
        raise TeacherFailed(
            f"Expected one answer from each of {len(ensemble)} teachers, got another number of them."
        )
    return answers


def pickled(job: Job) -> bytes:
    """Return a job as bytes; a class of a script, which workers cannot import, goes along by value."""
    from distributed.protocol.pickle import dumps

    content: bytes = dumps(job)
    return content


def _try_out(job: Job, shard: Shard, link: Link, public: NDArray[Any] | None) -> None:
    """Let a worker try the model on rows that are nobody's; refuse one that fails there."""
    future = link.client.submit(
        try_out, pickled(job), shard.address, public, pure=False,
        resources={shard.at: 1} if shard.at else None,
    )  # fmt: skip
    seen = time.monotonic()
    while future.status == "pending":
        with suppress(OSError, TimeoutError, RuntimeError):
            if any(not shard.at or shard.at in names for _, names in link.workers().values()):
                seen = time.monotonic()
        if link.is_lost or time.monotonic() - seen > link.cluster.patience:
            return  # handing out tasks mends that, or says it
        time.sleep(_LOOK_SECONDS)
    if future.status == "error":
        name, kind = type(job.model).__name__, type(future.exception()).__name__
        raise ValueError(
            f"Expected a model that can learn rows that are made up, got {name}, of which a worker fails "
            f"({kind}). No private row was touched."
        )
    found = future.result() if future.status == "finished" else None
    if found is not None:
        raise found.error


def _engine(job: Job, shard: Shard, link: Link, asked: Any) -> Any:
    """Return the engine that a worker picks, for all of them: they share the order of arithmetic."""
    found = link.client.submit(
        pick_engine, pickled(job), shard.address, asked, pure=False,
        resources={shard.at: 1} if shard.at else None,
    ).result()  # fmt: skip
    if isinstance(found, EndOfTraining):
        raise found.error
    return found


def _packages(model: Any) -> tuple[str, ...]:
    """Return what a worker needs beyond scikit-learn, as far as it can be told from the model's class."""
    from importlib.metadata import packages_distributions

    if is_network(model):
        return ("torch",)
    top = type(model).__module__.partition(".")[0]
    return tuple(packages_distributions().get(top, ())[:1]) if top not in ("sklearn", "tellers") else ()


def _say_kept(ensemble: DaskEnsemble, n_done: int) -> str:
    return (
        f"{n_done} of {len(ensemble)} teachers are done; finished ones are kept in the workers' store "
        f"({ensemble.job.store}). Call again with the same arguments to go on from there."
    )
