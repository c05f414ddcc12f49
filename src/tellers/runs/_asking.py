"""Labels of the pool, charged to the ledger of the run, and what the ledger says of it then."""

import io
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..accounting.exact import exact_epsilons
from ..errors import BudgetExhausted
from ..ledger.base import Ledger
from ..mechanisms.base import Mechanism
from ..privacy import noise
from ..privacy._files import write_whole
from ..privacy.budget import Accountant, Budget
from ..privacy.votes import LabelVotes, Votes
from ..students.order import pool_order
from ..teachers.pool import VotedPool
from ._assignment import Electorate
from ._begin import make_student, open_books, takes_part
from ._folder import RunFolder
from ._groups import PersonalSpending, publications_of, spent_by_groups
from ._tables import LabelTables, Tables
from .labelling import Labels, Progress, guaranteed_epsilon, label_pool, most_expected
from .personal.rounds import Names, Rounds, VoteAnew, first_and_last
from .personal.variants import Upsampling
from .room import Room
from .settings.sections import RunConfig


@dataclass(frozen=True)
class Spending:
    """What the ledger says after a run: the guarantee, what was charged, how it grew, and so per group.

    `shared` says that the ledger holds other releases too; the numbers are then those of all together.
    """

    epsilon: float
    charged: float
    curve: tuple[tuple[int, float], ...]
    personal: PersonalSpending | None = None
    shared: bool = False


def absent_at_first(ledger: Ledger, config: RunConfig, electorate: Electorate, *, key: str) -> Names:
    """Return which groups the first teachers do not learn from, where teachers are trained anew.

    Those are the ones who cannot pay for one query; when a run goes on, the same ones, by the books.
    """
    if not electorate.trains_anew:
        return ()
    assert isinstance(electorate.plan, Upsampling)
    first = config.warm_up() or config.mechanism.build()
    return first_and_last(ledger, electorate.plan, first, key=key)[0]


def release_labels(
    config: RunConfig,
    tables: Tables | LabelTables,
    electorate: Electorate,
    *,
    mechanism: Mechanism,
    votes: Votes | LabelVotes,
    folder: RunFolder,
    vote_anew: VoteAnew | None = None,
    progress: Progress | None = None,
) -> tuple[Labels, Spending]:
    """Ask for labels of the pool until the rules of the config stop it, and keep them in the folder.

    Where the electorate has groups with budgets of their own, they are asked and pay by its plan. Where those
    leave whom all teachers learned from, `vote_anew` brings the votes of the others' teachers, as `Rounds`
    says.
    """
    asking, warm_up, plan = config.queries, config.warm_up(), electorate.plan
    accountant = Accountant(Budget(config.budget.epsilon, config.budget.delta))
    n_pool = len(tables.pool)
    most = min(asking.n_queries or n_pool, n_pool)
    if config.budget.stop == "private":
        most = min(most, _privately_affordable(config, mechanism, votes, tables.pool))
    # A name and no fingerprint: settings of the report may change, and other data are another question.
    key = folder.key
    has_part = takes_part(config)
    student = make_student(config, tables) if has_part and isinstance(tables, Tables) else None
    batch, note = (asking.batch, "") if plan is None else electorate.batch(asking.batch, most=most)
    with open_books(config, folder, electorate) as ledger:
        room, next_room = Room(VotedPool(votes), mechanism, ledger, noise.secure(), plan=plan), None
        if electorate.trains_anew and vote_anew is not None:
            assert electorate.consent is not None  # there are groups
            rounds = Rounds(electorate.consent, config.seed, vote_anew)
            room, next_room = rounds.begin(room, key=key, mechanism=warm_up), rounds.next_room
        elif electorate.leave:
            room = replace(room, exhausted_leave=True)
        labels = label_pool(
            room, tables.pool, seed=config.seed, order=asking.order, n_queries=most,
            n_labels=asking.n_labels or None, batch=batch, student=student,
            first=(asking.warm_up or asking.first or None) if has_part else None,
            per_round=(asking.per_round or None) if has_part else None, warm_up=warm_up,
            queries=np.arange(n_pool), key=key, next_room=next_room, progress=progress,
        )  # fmt: skip
        total, curve, n_asked = 0 * ledger.spent, [], 0
        for entry in ledger.entries():
            total = total + entry.charged
            if entry.key.startswith(f"{key}/"):
                n_asked += int(entry.event["n_queries"])
                curve.append((n_asked, accountant.epsilon(total)))
        # What it took to publish the cost of this run is told with what was published.
        own = (f"{key}/", publications_of(key))
        alone = all(entry.key.startswith(own) for entry in ledger.entries())
        used = [mechanism, *filter(None, [warm_up])]
        personal = None
        if plan is not None:
            personal = spent_by_groups(
                ledger, electorate, key=key, ceiling=accountant.budget, most=most, mechanisms=used, note=note,
                is_over=labels.stopped_by == "the budget",
            )  # fmt: skip
            epsilon = personal.epsilon
        else:
            worst = most_expected(most, *used) if alone else None
            epsilon = guaranteed_epsilon(ledger, accountant, most=worst, besides=own[1])
        spending = Spending(epsilon, accountant.epsilon(ledger.spent), tuple(curve), personal, not alone)
    content = io.BytesIO()
    values = {} if labels.values is None else {"values": labels.values}
    np.savez(content, rows=labels.rows, labels=labels.labels, by_teachers=labels.by_teachers, **values)
    write_whole(folder.labels, content.getvalue(), shared=True)
    return labels, spending


def _privately_affordable(
    config: RunConfig, mechanism: Mechanism, votes: Votes | LabelVotes, pool: Any
) -> int:
    """Return how many queries fit into the private budget: a number that depends on the votes."""
    if config.queries.order == "active" or not config.mechanism.has_exact_cost:
        raise ValueError(
            'Expected an order fixed beforehand and lnmax, gnmax or confident for [budget] stop = "private", '
            f"got order = {config.queries.order!r} and {config.mechanism.name}. Stop on the public budget."
        )
    order = pool_order(pool, config.queries.order, seed=config.seed)
    epsilons = exact_epsilons(mechanism, votes[order], delta=config.budget.delta).reveal()
    n = int(np.searchsorted(epsilons, config.budget.private_epsilon, side="right"))
    if n == 0:
        raise BudgetExhausted(
            f"The first query alone would pass private_epsilon = {config.budget.private_epsilon}. "
            "Raise it, or add noise."
        )
    return n
