"""A run that asks one Gaussian sum: teachers that score the whole pool, a prior, the sum, and its student.

What a killed run had paid for is read from its ledger, and its teachers from their folder; votes on scores
are made again, and stay in memory.
"""

from functools import partial

from ..ledger.base import Ledger
from ..ledger.memory import MemoryLedger
from ..privacy import noise
from ..privacy.budget import Accountant
from ._folder import keep_troubles, make_student, make_teacher, publications_of
from ._voting import Spending, Voting, keep_labels
from .labelling import guaranteed_epsilon
from .settings.sections import RunConfig
from .sums import Summed, ask_sum, planned


def require_affordable(
    config: RunConfig, accountant: Accountant, ledger: Ledger | None = None, *, key: str = "", n_teachers: int
) -> None:
    """Refuse a sum that, with its prior, a ledger does not pay for; without one a budget that is whole.

    What the run under `key` has paid for already counts as left.
    """
    books = MemoryLedger(accountant) if ledger is None else ledger
    chosen, mine = config.sum.asked(), key or "run"
    planned(accountant, books, planner=accountant, chosen=chosen, key=mine, n_teachers=n_teachers)


def release_sum(voting: Voting, ledger: Ledger) -> tuple[Summed, Spending]:
    """Train the teachers, buy the prior where none is declared, release the sum, and teach the student.

    Guarantee: the prior and the sum together keep to the budget of the ledger, whenever the run was killed.
    Assumes:   the pool, its directions and the number of teachers do not depend on private rows.
    Reference: "Gaussian sums", section "Composition".
    """
    config, tables, folder, assignment = voting.config, voting.tables, voting.folder, voting.assignment
    accountant = getattr(ledger, "accountant", config.accountant)
    chosen, key = config.teachers, folder.key
    found = ask_sum(
        assignment.rows(tables.private.X), assignment.rows(tables.private.y), tables.pool,
        assignment.partition, accountant=accountant, planner=accountant, ledger=ledger, noise=noise.secure(),
        key=key, chosen=config.sum.asked(), n_columns=tables.n_outputs, one_class=not tables.many_labels,
        teacher=make_teacher(config, tables), student=make_student(config, tables),
        seeds=(config.seed, config.seed),
        options={
            "public": tables.pool, "folder": folder.teachers, "n_jobs": chosen.n_jobs or None,
            "timeout": chosen.timeout or None, "retries": chosen.retries,
            "progress": partial(voting.show, "teachers"),
        },
        step=voting.step,
    )  # fmt: skip
    keep_troubles(folder, found.troubles)
    keep_labels(folder, found.labels)
    return found, _spent(found, ledger, accountant, key=key)


def _spent(found: Summed, ledger: Ledger, accountant: Accountant, *, key: str) -> Spending:
    """Return what may be stated: what a sum and its prior cost was known before the first of them."""
    published = publications_of(key)
    alone = all(entry.key.startswith((f"{key}/", published)) for entry in ledger.entries())
    epsilon = guaranteed_epsilon(
        ledger, accountant, most=found.plan.price() if alone else None, besides=published
    )
    charged, n_asked = accountant.epsilon(ledger.spent), len(found.release)
    if accountant.clock is None:
        return Spending(epsilon, charged, ((n_asked, charged, None),), shared=not alone)
    left, renyi = accountant.left(ledger.spent), ledger.spent.epsilon(accountant.budget.delta)
    return Spending(epsilon, charged, ((n_asked, charged, left),), shared=not alone, left=left, renyi=renyi)
