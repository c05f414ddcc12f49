"""Teachers of a run, their votes on the pool, and the labels that are released of them.

Teachers are trained here or on a cluster, or kept on disk. Labels are charged to the ledger of the run.
"""

import io
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..accounting.exact import exact_epsilons
from ..errors import BudgetExhausted, ClusterFailed, MissingExtra
from ..ledger.base import Ledger
from ..mechanisms.base import Mechanism, is_one_batch
from ..privacy import noise
from ..privacy._files import write_whole
from ..privacy.budget import Accountant
from ..privacy.rdp import RdpCurve
from ..privacy.votes import SetOf, Votes
from ..teachers.ensemble import train_ensemble
from ..teachers.partitions import Partition
from ..teachers.pool import VotedPool
from ..teachers.store import read_votes, save_votes
from ._folder import RunFolder, keep_troubles, make_student, make_teacher, publications_of, takes_part
from ._tables import Tables, save_partition
from .labelling import (
    AfterFail,
    Labels,
    NextRoom,
    Progress,
    after_fail_key,
    guaranteed_epsilon,
    label_pool,
    most_expected,
    pool_order,
    require_one_batch,
)
from .personal.assignment import Assignment
from .personal.rounds import (
    Names,
    Rounds,
    VoteAnew,
    assign_without,
    first_and_last,
    round_name,
    round_seed,
)
from .personal.variants import Upsampling
from .room import Room
from .settings.sections import RunConfig

if TYPE_CHECKING:
    from ..teachers.dask.cluster import Link
    from ._groups import PersonalSpending


# Training, here or on a cluster
#
# On a cluster the rows start here, so each part is written once to a file that the workers read. Where they
# do not see the folder, the run is refused: rows are never sent through the scheduler instead.


Ask = Callable[[NDArray[Any], Progress | None], Any]


@contextmanager
def trained(
    config: RunConfig,
    tables: Tables,
    assignment: Assignment,
    *,
    seed: int,
    folder: RunFolder,
    progress: Progress | None = None,
) -> Iterator[Ask]:
    """Train the teachers of a run, and give what asks them for their votes.

    The model is tried on rows of the public pool first. Who could not learn, or does not answer, votes by
    the rule, and is named in the private record of the run.
    """
    chosen, model = config.teachers, make_teacher(config, tables)
    rows = (assignment.rows(tables.private.X), assignment.rows(tables.private.y))
    given: dict[str, Any] = {"seed": seed, "progress": progress, "public": tables.pool}
    given["space"] = tables.space
    if isinstance(tables.space, SetOf):
        limits = config.labels.thresholds
        given["space"] = replace(tables.space, resolution=config.labels.resolution)
        given["thresholds"] = limits[0] if len(limits) == 1 else limits
    if config.cluster.address:
        with _on_cluster(config, model, rows, assignment.partition, folder=folder, given=given) as asked:
            yield asked
        return
    given |= {
        "folder": folder.teachers, "n_jobs": chosen.n_jobs or None, "timeout": chosen.timeout or None,
        "retries": chosen.retries,
    }  # fmt: skip
    ensemble = train_ensemble(model, *rows, assignment.partition, **given)
    yield _recorded(lambda asked, _progress: ensemble.vote(asked), ensemble, folder)


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
) -> Iterator[Ask]:  # fmt: skip
    from ..teachers._places import inside, make_folder, remove
    from ..teachers.dask.cluster import Cluster, connect
    from ..teachers.dask.dispatch import Patience
    from ..teachers.dask.ensemble import train_dask_ensemble
    from ..teachers.dask.shards import write_queries, write_shards

    given |= {
        "batch": config.cluster.batch or None, "patience": Patience(retries=config.teachers.retries),
    }  # fmt: skip
    chosen = config.cluster
    files = {name: config.data.path(getattr(chosen, name)) for name in ("ca", "certificate", "key")}
    cluster = Cluster(
        address=chosen.address, n_workers=chosen.n_workers or None, timeout=chosen.timeout,
        patience=chosen.patience, **{name: "" if path is None else str(path) for name, path in files.items()},
    )  # fmt: skip
    with connect(cluster) as link:
        place = _shared_folder(config, folder)
        _require_shared(link, place)
        kept = inside(place, "teachers")
        make_folder(kept)
        written = [inside(place, "shared.txt")]
        try:
            shards = write_shards(inside(place, "shards"), *data, partition)
            written += [shard.address for shard in shards]
            ensemble = train_dask_ensemble(model, shards, link=link, store=kept, **given)

            def ask(rows: NDArray[Any], progress: Progress | None) -> Any:
                written.append(inside(place, f"queries-{secrets.token_hex(8)}.npz"))
                write_queries(written[-1], rows)
                return ensemble.vote(written[-1], progress=progress)

            yield _recorded(ask, ensemble, folder)
        finally:
            # The rows are here anyway: a second copy of them lies about no longer than it is read.
            for address in written:
                remove(address)


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
    from ..teachers._places import inside, read_bytes, write_bytes

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


def stored_votes(path: Path, tables: Tables) -> Votes:
    """Return the votes of a file, of the kind that the tables ask for."""
    if tables.many_labels:
        return read_votes(path, kind="labels").votes
    return read_votes(path, n_classes=tables.n_outputs).votes


@dataclass(frozen=True, eq=False, repr=False)
class Voting:
    """Where the votes of a run come from, round by round; who is absent names the round.

    `step` and `show` are told what goes on: "teachers" and "votes" at first, "anew" afterwards.
    """

    config: RunConfig
    tables: Tables
    folder: RunFolder
    assignment: Assignment
    step: Callable[[str], AbstractContextManager[None]]
    show: Callable[[str, int, int], object]

    def place(self, absent: Names) -> RunFolder:
        """Return the folder with teachers and votes of a round."""
        return self.folder.of_round(round_name(self.assignment.plan, absent))

    def seated(self, absent: Names) -> Assignment:
        """Return who learns from whom in a round: all groups, or those who did not leave."""
        plan, consent = self.assignment.plan, self.assignment.consent
        if not absent or consent is None or not isinstance(plan, Upsampling):
            return self.assignment
        return assign_without(plan, consent, absent, seed=self.config.seed)

    def train(self, absent: Names) -> None:
        """Train the teachers of the first round, and ask them nothing yet."""
        if not self._is_done(absent):
            with self.step("teachers"), self._trained(self.seated(absent), absent, "teachers"):
                pass

    def votes(self, absent: Names) -> Votes:
        """Return the votes of the first round on the pool, and see that there are those on the test rows."""
        place = self.place(absent)
        if self._is_done(absent):
            return stored_votes(place.votes, self.tables)
        with ExitStack() as teachers:
            with self.step("teachers"):
                ask = teachers.enter_context(self._trained(self.seated(absent), absent, "teachers"))
            with self.step("votes"):
                votes: Votes = ask(self.tables.pool, partial(self.show, "votes"))
                save_votes(place.votes, votes)
                if self._wants_test:
                    save_votes(place.test_votes, ask(self.tables.test.X, None))
        return votes

    def anew(self, assignment: Assignment, absent: Names) -> VotedPool:
        """Return the votes of a round, for a room: what `Rounds` asks for."""
        place = self.place(absent)
        if not place.votes.exists():
            with self.step("anew"), self._trained(assignment, absent, "anew") as ask:
                save_votes(place.votes, ask(self.tables.pool, None))
        return VotedPool(stored_votes(place.votes, self.tables))

    def cast(self, absent: Names) -> tuple[Assignment, Votes]:
        """Return who learned from whom in a round that was asked, and its votes on the pool."""
        return self.seated(absent), stored_votes(self.place(absent).votes, self.tables)

    def test_votes(self, absent: Names) -> Votes | None:
        """Return the votes of the first round on the test rows, where they were wanted."""
        place = self.place(absent)
        if self.tables.test is None or not place.test_votes.exists():
            return None
        return stored_votes(place.test_votes, self.tables)

    @property
    def _wants_test(self) -> bool:
        return self.config.report.private and self.tables.test is not None

    def _is_done(self, absent: Names) -> bool:
        place = self.place(absent)
        return place.votes.exists() and (place.test_votes.exists() or not self._wants_test)

    def _trained(self, assignment: Assignment, absent: Names, step: str) -> AbstractContextManager[Ask]:
        place = self.place(absent)
        if place.round:
            place.votes.parent.mkdir(exist_ok=True, mode=0o700)
            save_partition(place.partition, assignment)
        return trained(
            self.config, self.tables, assignment, folder=place, progress=partial(self.show, step),
            seed=round_seed(self.config.seed, absent) if absent else self.config.seed,
        )  # fmt: skip


# Labels of the pool, charged to the ledger of the run, and what the ledger says of it then


@dataclass(frozen=True)
class Spending:
    """What the ledger says after a run: the guarantee, what was charged, how it grew, and so per group.

    `shared` says that the ledger holds other releases too; the numbers are then those of all together. The
    curve has the number of queries, the epsilon and, on a clock, the share of it that was left. On a clock
    `left` is that share at the end, and `renyi` the Rényi epsilon of what is on the ledger, to compare.
    """

    epsilon: float
    charged: float
    curve: tuple[tuple[int, float, float | None], ...]
    personal: "PersonalSpending | None" = None
    shared: bool = False
    left: float | None = None
    renyi: float | None = None


def counts_of(votes: Any) -> dict[str, Any]:
    """Return the numbers of teachers and classes that votes, or whoever casts them, say they have."""
    said = {name: getattr(votes, name, None) for name in ("n_teachers", "n_classes")}
    return {name: int(n) for name, n in said.items() if n is not None}


def absent_at_first(ledger: Ledger, config: RunConfig, assignment: Assignment, *, key: str) -> Names:
    """Return which groups the first teachers do not learn from, where teachers are trained anew.

    Those are the ones who cannot pay for one query; when a run goes on, the same ones, by the books.
    """
    if not assignment.trains_anew:
        return ()
    assert isinstance(assignment.plan, Upsampling)
    first = config.warm_up() or config.mechanism.build()
    return first_and_last(ledger, assignment.plan, first, key=key)[0]


def release_labels(voting: Voting, votes: Votes, ledger: Ledger) -> tuple[Labels, Spending]:
    """Ask for labels of the pool until the rules of the config stop it, and keep them in the folder.

    Where the assignment has groups with budgets of their own, they are asked and pay by its plan. Where those
    leave whom all teachers learned from, `voting` brings the votes of the others' teachers, as `Rounds` says.
    """
    config, tables, assignment, folder = voting.config, voting.tables, voting.assignment, voting.folder
    asking, mechanism, warm_up = config.queries, config.build_mechanism(), config.warm_up()
    n_pool = len(tables.pool)
    most = min(asking.n_queries or n_pool, n_pool)
    if is_one_batch(mechanism):
        require_one_batch(
            mechanism, asking.order, n_pool=n_pool, n_queries=asking.n_queries or None,
            n_labels=asking.n_labels or None,
        )  # fmt: skip
        most = int(mechanism.n_queries)  # type: ignore[attr-defined]
    if config.budget.stop == "private":
        most = min(most, _privately_affordable(config, mechanism, votes, tables.pool))
    # A name and no fingerprint: settings of the report may change, and other data are another question.
    key = folder.key
    batch, note = asking.batch, ""
    if assignment.plan is not None:
        from ._groups import batch_size

        batch, note = batch_size(assignment.plan, batch, most=most)
    room, next_room = begin_asking(
        Room(VotedPool(votes), mechanism, ledger, noise.secure()), assignment, voting.anew, key=key,
        first=warm_up, seed=config.seed,
    )  # fmt: skip
    labels = ask_by_settings(
        config, tables, room, n_queries=most, batch=batch, key=key, next_room=next_room,
        progress=partial(voting.show, "labels"),
    )  # fmt: skip
    spending = spent_on(
        ledger, assignment, getattr(ledger, "accountant", None) or config.accountant(), key=key, most=most,
        counts=counts_of(votes), used=[mechanism, warm_up], note=note, after_fail=asking.after_fail,
        is_over=labels.stopped_by == "the budget",
    )  # fmt: skip
    keep_labels(folder, labels)
    return labels, spending


def keep_labels(folder: RunFolder, labels: Labels) -> None:
    """Write the released labels into the folder of a run, with noisy values where there are some."""
    content = io.BytesIO()
    values = {} if labels.values is None else {"values": labels.values}
    np.savez(content, rows=labels.rows, labels=labels.labels, by_teachers=labels.by_teachers, **values)
    write_whole(folder.labels, content.getvalue(), shared=True)


def ask_by_settings(
    config: RunConfig, tables: Tables, room: Room, *, n_queries: int, batch: int, **how: Any
) -> Labels:
    """Ask a room for labels of the pool, in the order and with the student that the settings say."""
    has_part = takes_part(config)
    student = make_student(config, tables) if has_part and not tables.many_labels else None
    return label_pool(
        room, tables.pool, seed=config.seed, n_queries=n_queries, batch=batch, student=student,
        warm_up=config.warm_up(), queries=np.arange(len(tables.pool)),
        **config.queries.asked(with_student=has_part), **how,
    )  # fmt: skip


def begin_asking(
    room: Room,
    assignment: Assignment,
    vote_anew: VoteAnew,
    *,
    key: str,
    first: Mechanism | None,
    seed: int,
) -> tuple[Room, NextRoom | None]:
    """Return the room as the groups of an assignment use it, and what follows it when some of them left.

    Where all teachers learned from those who left, `vote_anew` brings those of the others, as `Rounds` says.
    """
    if not assignment.trains_anew:
        return replace(room, plan=assignment.plan, exhausted_leave=assignment.leave), None
    assert assignment.consent is not None  # there are groups
    rounds = Rounds(assignment.consent, seed, vote_anew)
    begun = rounds.begin(replace(room, plan=assignment.plan), key=key, mechanism=first)
    return begun, rounds.next_room


def spent_on(
    ledger: Ledger,
    assignment: Assignment,
    accountant: Accountant,
    *,
    key: str,
    most: int,
    counts: Mapping[str, Any],
    used: Iterable[Mechanism | None],
    is_over: bool,
    note: str = "",
    is_fixed: bool = True,
    after_fail: AfterFail = "stop",
) -> Spending:
    """Return what the ledger says of the questions under a key, of which there could be `most`.

    `is_fixed` says that this was known before the first release, and who would be asked; only then may less
    than the budget be stated. `counts` are the numbers of teachers and classes that prices go by, and
    `after_fail` says what follows a failed test: both paths are public, and the dearer one is stated.
    """
    mechanisms = [one for one in used if one is not None]
    # What it took to publish the cost of a run is told with what was published.
    asked, published = f"{key}/", publications_of(key)
    total, n_asked, alone = RdpCurve.zero(ledger.spent.orders), 0, True
    curve: list[tuple[int, float, float | None]] = []
    on_clock = accountant.clock is not None
    for entry in ledger.entries():
        total = total + entry.charged
        if entry.key.startswith(f"{after_fail_key(key)}/"):
            after_fail = "full price"  # whatever the settings say by now
        if entry.key.startswith(asked):
            n_asked += int(entry.event["n_queries"])
            left = accountant.left(total) if on_clock else None
            curve.append((n_asked, accountant.epsilon(total), left))
        alone = alone and entry.key.startswith((asked, published))
    charged = accountant.epsilon(ledger.spent)
    if assignment.plan is not None:
        from ._groups import spent_by_groups

        personal = spent_by_groups(
            ledger, assignment, key=key, ceiling=accountant.budget, most=most, mechanisms=mechanisms,
            note=note, is_over=is_over, is_fixed=alone and is_fixed,
        )  # fmt: skip
        return Spending(personal.epsilon, charged, tuple(curve), personal, not alone)
    fixed = alone and is_fixed
    worst = most_expected(most, *mechanisms, after_fail=after_fail, **counts) if fixed else None
    epsilon = guaranteed_epsilon(ledger, accountant, most=worst, besides=published)
    if on_clock:
        left, delta = accountant.left(ledger.spent), accountant.budget.delta
        return Spending(epsilon, charged, tuple(curve), None, not alone, left, ledger.spent.epsilon(delta))
    return Spending(epsilon, charged, tuple(curve), None, not alone)


def _privately_affordable(config: RunConfig, mechanism: Mechanism, votes: Votes, pool: NDArray[Any]) -> int:
    """Return how many queries fit into the private budget: a number that depends on the votes."""
    order = pool_order(pool, config.queries.order, seed=config.seed)
    epsilons = exact_epsilons(mechanism, votes[order], delta=config.budget.delta).reveal()
    n = int(np.searchsorted(epsilons, config.budget.private_epsilon, side="right"))
    if n == 0:
        raise BudgetExhausted(
            f"The first query alone would pass private_epsilon = {config.budget.private_epsilon}. "
            "Raise it, or add noise."
        )
    return n
