"""Who trains the teachers of a run: this machine, or a cluster that reads their parts from a folder of files.

On a cluster the rows start here, so each part is written once to a file that the workers read. Where they do
not see the folder, the run is refused: rows are never sent through the scheduler instead.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..config import RunConfig
from ..errors import ClusterFailed, MissingExtra
from ..teachers import is_network, train_label_teachers, train_teachers
from ..teachers.partition import Partition
from .folder import RunFolder
from .record import keep_troubles

if TYPE_CHECKING:
    from ..label_votes import LabelVotes
    from ..teachers.dask import DaskEnsemble, Link
    from ..votes import Votes

Progress = Callable[[int, int], object]
Ask = Callable[[NDArray[Any], Progress | None], Any]


@contextmanager
def taught(
    config: RunConfig,
    model: Any,
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    partition: Partition,
    n_classes: int | None,
    seed: int,
    folder: RunFolder,
    pool: NDArray[Any] | None = None,
    progress: Progress | None = None,
) -> "Iterator[Callable[[NDArray[Any], Progress | None], Votes | LabelVotes]]":
    """Train the teachers of a run, and give what asks them for their votes; `n_classes` None is many labels.

    The model is tried on rows of the public `pool` first. Who could not learn, or does not answer, votes by
    the rule, and is named in the private record of the run.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from tellers.teachers.partition import partition
    >>> X, y, parts = np.arange(8.0)[:, None], np.arange(8) % 2, partition(8, 2, seed=7)
    >>> place = RunFolder(Path(tempfile.mkdtemp()))
    >>> with place.held(), taught(
    ...     RunConfig(), DecisionTreeClassifier(), X, y, partition=parts, n_classes=2, seed=7, folder=place
    ... ) as ask:
    ...     ask(X, None)
    Votes(<private>, n_queries=8, n_teachers=2, n_classes=2)
    """
    given: dict[str, Any] = {"seed": seed, "progress": progress, "public": pool}
    if n_classes is None:
        limits = config.labels.thresholds
        given |= {
            "n_labels": len(config.labels.names), "resolution": config.labels.resolution,
            "thresholds": limits[0] if len(limits) == 1 else limits,
        }  # fmt: skip
    else:
        given["n_classes"] = n_classes
    if not config.cluster.address:
        chosen = config.teachers
        given |= {"folder": folder.teachers, "n_jobs": chosen.n_jobs or None}
        if n_classes is None:
            if not is_network(model):
                given |= {"timeout": chosen.timeout or None, "retries": chosen.retries}
            ensemble: Any = train_label_teachers(model, X, y, partition, **given)
        else:
            given |= {"timeout": chosen.timeout or None, "retries": chosen.retries}
            ensemble = train_teachers(model, X, y, partition, **given)
        yield _recorded(lambda rows, _progress: ensemble.vote(rows), ensemble, folder)
        return
    with _on_cluster(config, model, (X, y), partition, folder=folder, given=given) as asked:
        yield asked


def _recorded(ask: Ask, ensemble: Any, folder: RunFolder) -> Ask:
    """Return what asks teachers, and writes down each time who of them votes by the rule."""
    keep_troubles(folder, ensemble.troubles)

    def asked(rows: NDArray[Any], progress: Progress | None) -> Any:
        votes = ask(rows, progress)
        keep_troubles(folder, ensemble.troubles)
        return votes

    return asked


@contextmanager
def _on_cluster(
    config: RunConfig, model: Any, data: tuple[Any, Any], partition: Partition, *, folder: RunFolder,
    given: dict[str, Any],
) -> "Iterator[Callable[[NDArray[Any], Progress | None], Votes | LabelVotes]]":  # fmt: skip
    from ..teachers.dask import (
        Patience,
        connect,
        train_dask_ensemble,
        train_dask_label_ensemble,
        write_queries,
        write_shards,
    )
    from ..teachers.dask.places import inside, make_folder, remove

    given |= {
        "batch": config.cluster.batch or None, "patience": Patience(retries=config.teachers.retries),
    }  # fmt: skip
    with connect(cluster_of(config)) as link:
        place = _shared_folder(config, folder)
        _require_shared(link, place)
        kept = inside(place, "teachers")
        make_folder(kept)
        written = [inside(place, "shared.txt")]
        try:
            shards = write_shards(inside(place, "shards"), *data, partition)
            written += [shard.address for shard in shards]
            train = train_dask_label_ensemble if "n_labels" in given else train_dask_ensemble
            ensemble: DaskEnsemble = train(model, shards, link=link, store=kept, **given)

            def ask(rows: NDArray[Any], progress: Progress | None) -> "Votes | LabelVotes":
                written.append(inside(place, f"queries-{secrets.token_hex(8)}.npz"))
                write_queries(written[-1], rows)
                vote = ensemble.vote_labels if "n_labels" in given else ensemble.vote
                return vote(written[-1], progress=progress)

            yield _recorded(ask, ensemble, folder)
        finally:
            # The rows are here anyway: a second copy of them lies about no longer than it is read.
            for address in written:
                remove(address)


def cluster_of(config: RunConfig) -> Any:
    """Return the cluster that settings name.

    >>> from tellers.config import ClusterConfig
    >>> cluster_of(RunConfig(cluster=ClusterConfig(address="local"))).is_local
    True
    """
    from ..teachers.dask import Cluster

    chosen = config.cluster
    files = {name: config.data.path(getattr(chosen, name)) for name in ("ca", "certificate", "key")}
    return Cluster(
        address=chosen.address, n_workers=chosen.n_workers or None, timeout=chosen.timeout,
        patience=chosen.patience, **{name: "" if path is None else str(path) for name, path in files.items()},
    )  # fmt: skip


def _shared_folder(config: RunConfig, folder: RunFolder) -> str:
    """Return the folder that workers share with us: the one in the settings, one run in it apart, or ours."""
    written = config.cluster.folder
    if not written:
        return str(folder.teachers.parent.absolute())
    name = f"run-{folder.key}" + (f"-{folder.round}" if folder.round else "")
    if "://" in written:
        return f"{written.rstrip('/')}/{name}"
    place = config.data.path(written)
    assert place is not None  # something is written
    return str(place.absolute() / name)


def _require_shared(link: "Link", place: str) -> None:
    """Refuse workers that do not see the folder: what they read there is what was just written."""
    from ..teachers.dask.places import inside, read_bytes, write_bytes

    word = secrets.token_hex(16).encode()
    address = inside(place, "shared.txt")
    write_bytes(address, word)
    for worker, found in link.ask_workers(read_bytes, address).items():
        if isinstance(found, MissingExtra):
            raise MissingExtra(f"{found} (on the worker {worker})")
        if found != word:
            raise ClusterFailed(
                f"Expected a folder that every worker shares with this program, got {place}, which the "
                f"worker {worker} does not see. Rows are not sent through the scheduler: name a shared "
                "folder or the URL of an object store ([cluster] folder), or put the parts where the workers "
                "are and call tellers.teachers.dask.train_dask_ensemble."
            )
