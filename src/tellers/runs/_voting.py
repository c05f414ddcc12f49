"""Teachers of a run and their votes on the pool: trained here or on a cluster, or kept on disk."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from ..data.dataset import MultilabelDataset
from ..errors import ClusterFailed, MissingExtra
from ..privacy.votes import LabelVotes, Votes
from ..teachers.ensemble import is_network, train_label_teachers, train_teachers
from ..teachers.partitions import Partition
from ..teachers.pool import VotedPool
from ..teachers.store import read_label_votes, read_votes, save_label_votes, save_votes
from ._assignment import Electorate, save_partition
from ._begin import make_teacher
from ._folder import RunFolder, keep_troubles
from ._tables import LabelTables, Tables
from .personal.rounds import Names, round_name, round_seed, seat_without
from .personal.seating import Seating
from .personal.variants import Upsampling
from .settings.sections import RunConfig

if TYPE_CHECKING:
    from ..teachers.dask.cluster import Link
    from ..teachers.dask.ensemble import DaskEnsemble


# Training, here or on a cluster
#
# On a cluster the rows start here, so each part is written once to a file that the workers read. Where they
# do not see the folder, the run is refused: rows are never sent through the scheduler instead.


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
    from ..teachers.dask.cluster import connect
    from ..teachers.dask.dispatch import Patience
    from ..teachers.dask.ensemble import train_dask_ensemble, train_dask_label_ensemble
    from ..teachers.dask.shards import inside, make_folder, remove, write_queries, write_shards

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
    """Return the cluster that settings name."""
    from ..teachers.dask.cluster import Cluster

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
    from ..teachers.dask.shards import inside, read_bytes, write_bytes

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


# Votes on the pool, from disk or from teachers that are trained now
#
# Where a group of upsampling has left, the others vote with teachers trained anew: a round of its own, with a
# folder of its own for its partition, its teachers and its votes.


Step = Callable[[str], AbstractContextManager[None]]


def write_votes(path: Path, votes: Votes | LabelVotes) -> None:
    """Write votes of either kind down."""
    if isinstance(votes, LabelVotes):
        save_label_votes(path, votes)
    else:
        save_votes(path, votes)


def stored_votes(path: Path, tables: Tables | LabelTables) -> Votes | LabelVotes:
    """Return the votes of a file, of the kind that the tables ask for."""
    if isinstance(tables, LabelTables):
        return read_label_votes(path).votes
    return read_votes(path, n_classes=tables.private.n_classes).votes


@dataclass(frozen=True, eq=False, repr=False)
class Voting:
    """Where the votes of a run come from, round by round; who is absent names the round.

    `step` and `progress` are told what goes on: "teachers" and "votes" at first, "anew" afterwards.
    """

    config: RunConfig
    tables: Tables | LabelTables
    folder: RunFolder
    electorate: Electorate
    step: Step | None = None
    progress: Callable[[str], Progress] | None = None

    def place(self, absent: Names) -> RunFolder:
        """Return the folder with teachers and votes of a round."""
        plan = self.electorate.plan
        return self.folder.of_round(round_name(plan, absent)) if isinstance(plan, Upsampling) else self.folder

    def seated(self, absent: Names) -> Electorate:
        """Return who learns from whom in a round: all groups, or those who did not leave."""
        plan, consent = self.electorate.plan, self.electorate.consent
        if not absent or consent is None or not isinstance(plan, Upsampling):
            return self.electorate
        return self._at(seat_without(plan, consent, absent, seed=self.config.seed))

    def votes(self, absent: Names = ()) -> Votes | LabelVotes:
        """Return the votes of the first round on the pool, and see that there are those on the test rows."""
        place, tables = self.place(absent), self.tables
        on_test = tables.test.X if self.config.report.private and tables.test is not None else None
        if not place.votes.exists() or not (on_test is None or place.test_votes.exists()):
            with ExitStack() as teachers:
                with self._step("teachers"):
                    ask = teachers.enter_context(self._trained(self.seated(absent), absent, "teachers"))
                with self._step("votes"):
                    write_votes(place.votes, ask(tables.pool, self._progress("votes")))
                    if on_test is not None:
                        write_votes(place.test_votes, ask(on_test, None))
        return self._read(absent)

    def anew(self, seating: Seating, absent: Names) -> VotedPool:
        """Return the votes of a round, for a room: what `Rounds` asks for."""
        place = self.place(absent)
        if not place.votes.exists():
            with self._step("anew"), self._trained(self._at(seating), absent, "anew") as ask:
                write_votes(place.votes, ask(self.tables.pool, None))
        return VotedPool(self._read(absent))

    def cast(self, absent: Names) -> tuple[Electorate, Votes]:
        """Return who learned from whom in a round that was asked, and its votes on the pool."""
        votes = self._read(absent)
        assert not isinstance(votes, LabelVotes)  # groups vote on classes
        return self.seated(absent), votes

    def test_votes(self, absent: Names) -> Votes | LabelVotes | None:
        """Return the votes of the first round on the test rows, where they were wanted."""
        place = self.place(absent)
        if self.tables.test is None or not place.test_votes.exists():
            return None
        return stored_votes(place.test_votes, self.tables)

    def _step(self, name: str) -> AbstractContextManager[None]:
        return nullcontext() if self.step is None else self.step(name)

    def _read(self, absent: Names) -> Votes | LabelVotes:
        return stored_votes(self.place(absent).votes, self.tables)

    def _at(self, seating: Seating) -> Electorate:
        return replace(self.electorate, partition=seating.partition, source=seating.source, plan=seating.plan)

    def _progress(self, step: str) -> Progress | None:
        return None if self.progress is None else self.progress(step)

    def _trained(self, electorate: Electorate, absent: Names, step: str) -> AbstractContextManager[Any]:
        data, place = self.tables.private, self.place(absent)
        if place.round:
            place.votes.parent.mkdir(exist_ok=True, mode=0o700)
            save_partition(place.partition, electorate)
        return taught(
            self.config, make_teacher(self.config, self.tables), electorate.rows(data.X),
            electorate.rows(data.y), partition=electorate.partition,
            n_classes=None if isinstance(data, MultilabelDataset) else data.n_classes,
            seed=round_seed(self.config.seed, absent), folder=place, pool=self.tables.pool,
            progress=self._progress(step),
        )  # fmt: skip
