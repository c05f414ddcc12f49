"""A run that asks one Gaussian sum; of one that was killed the scores are made again, and stay in memory."""

from functools import partial

from ..ledger.base import Ledger
from ..privacy import noise
from ._folder import keep_troubles, make_student, make_teacher, publications_of
from ._voting import Spending, Voting, keep_labels
from .sums import Summed, ask_sum, spent_on_sum


def release_sum(voting: Voting, ledger: Ledger) -> tuple[Summed, Spending]:
    """Train the teachers, buy the prior where none is declared, release the sum, and teach the student.

    Guarantee: the prior and the sum together keep to the budget of the ledger, whenever the run was killed.
    Assumes:   the pool, its directions and the number of teachers do not depend on private rows.
    Reference: "Gaussian sums", section "Composition".
    """
    config, tables, folder, assignment = voting.config, voting.tables, voting.folder, voting.assignment
    accountant = getattr(ledger, "accountant", None) or config.accountant()
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
    published = publications_of(key)
    alone = all(entry.key.startswith((f"{key}/", published)) for entry in ledger.entries())
    return found, spent_on_sum(found, ledger, accountant, alone=alone, besides=published)
