"""A finished run, read again from its folder.

Nothing is trained, asked or charged here: settings, plan, votes and labels are those on disk, what was
charged is on the ledger. The private table is not opened.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..accounting._publishable import available_methods
from ..ledger._chain import ChainedLedger
from ..ledger.base import Entry
from ..ledger.opening import is_url
from ..mechanisms.base import Mechanism
from ..mechanisms.gaussian_sum import GaussianSum
from ..privacy._price import delta_of
from ..privacy.budget import Accountant
from ..privacy.rdp import RdpCurve
from ..privacy.release import SILENT
from ..privacy.sealed import Sealed
from ..privacy.votes import LabelVotes, Votes
from ..teachers.partitions import Partition
from ..teachers.store import read_votes
from ._folder import RunFolder, open_books, publications_of, takes_part
from ._groups import batches_under, exact_by_groups
from ._numbers import exact_curve
from .labelling import Labels
from .personal.accounting import Asked
from .personal.assignment import Assignment, plan_from_dict
from .personal.plan import PersonalPlan
from .personal.variants import Vanishing
from .result import RunResult, read_private, read_result
from .settings.files import read_config
from .settings.sections import RunConfig

# What ends a run at a place that was known beforehand, whatever comes out.
FIXED_ENDS = ("the number of queries", "the end of the pool")


@dataclass(frozen=True, eq=False, repr=False)
class FinishedRun:
    """What there is of a finished run; with budgets per group, `plan` has the mechanism as it was used."""

    folder: RunFolder
    config: RunConfig
    result: RunResult
    plan: PersonalPlan | None = None

    def books(self) -> ChainedLedger:
        """Open the ledger of the run, to be closed by who asks for it.

        An empty one in its place would know of nothing, and is refused.
        """
        place = self.folder.path / self.config.budget.ledger
        if not is_url(self.config.budget.ledger) and not place.exists():
            raise ValueError(
                f"Expected the ledger of the run at {place}, found none. Restore it: what was spent is on it."
            )
        return open_books(self.config, self.folder)

    @property
    def kind(self) -> str:
        """Return what was released: classes, labels where a row has many, or classes paid for by groups."""
        return "groups" if self.plan is not None else "labels" if self.result.labels else "classes"

    @property
    def mechanism(self) -> Mechanism:
        """Return the mechanism as it was used."""
        if self.config.mechanism.is_sum:  # its noise followed from what the ledger had left
            told = self.result.mechanism.parameters
            return cast(Mechanism, GaussianSum(told["sigma"], told["steps"]))
        return self.config.build_mechanism() if self.plan is None else self.plan.mechanism

    @property
    def counts(self) -> dict[str, Any]:
        """Return the numbers of teachers and classes that prices of the run go by."""
        known = {"n_teachers": self.result.partition.n_teachers}
        return known if self.result.labels else {**known, "n_classes": len(self.result.data.class_names)}

    @cached_property
    def accountant(self) -> Accountant:
        """Return the budget of the run, as its ledger holds it: with groups, the ceiling for everybody."""
        with self.books() as ledger:
            return ledger.accountant

    def is_alone(self, entries: Iterable[Entry]) -> bool:
        """Say whether all of these entries are the run's own: its questions and its publications."""
        own = (f"{self.folder.key}/", publications_of(self.folder.key))
        return all(entry.key.startswith(own) for entry in entries)

    def labels(self) -> Labels:
        """Return what came out."""
        with np.load(self.folder.labels, allow_pickle=False) as kept:
            return Labels(kept["rows"], kept["labels"], kept["by_teachers"])

    def asked(self, ledger: ChainedLedger) -> Asked:
        """Return all queries as groups were counted, refusing a run whose cost cannot be summed up."""
        require_summable(self, ledger)
        plan, votes = self.plan, asked_votes(self)
        assert plan is not None  # there are groups
        assert not isinstance(votes, LabelVotes)  # of many labels there are none
        there = [batch for batch in batches_under(ledger, self.folder.key) if batch.is_settled]
        weights = [w for b in there if (w := plan.weights(b.n_queries, key=b.key)) is not None]
        if weights:
            # Those of weighting are the same in every batch; who vanishes does so by a batch's own schedule.
            votes = votes.weighted(weights[0] if weights[0].ndim == 1 else np.concatenate(weights, axis=1))
        one_price = getattr(plan.mechanism, "one_price", False)
        return Asked(plan, votes, answered=None if one_price else self.labels().by_teachers)


def asked_votes(run: FinishedRun) -> Votes | LabelVotes:
    """Return the votes on the rows that were asked, in that order, before weights; private."""
    rows = run.labels().rows
    if run.result.labels:
        return read_votes(run.folder.votes, kind="labels").votes[rows]
    return read_votes(run.folder.votes, n_classes=len(run.result.data.class_names)).votes[rows]


def read_finished(folder: str | PathLike[str]) -> FinishedRun:
    """Return the finished run in a folder, or say what is not as it should be."""
    place = RunFolder(Path(folder))
    result = read_result(place.path)
    return finished_of(place, read_config(place.config), result)


def finished_of(place: RunFolder, config: RunConfig, result: RunResult) -> FinishedRun:
    """Return the run whose public numbers these are, with the plan in its folder where there are groups."""
    if result.personal is None:
        return FinishedRun(place, config, result)
    try:
        record = json.loads(place.plan.read_bytes())
    except (OSError, ValueError):
        raise ValueError(
            f"Expected the plan of the groups in {place.plan}, got none that can be read."
        ) from None
    return FinishedRun(place, config, result, plan_from_dict(record).using(config.mechanism.build()))


def require_summable(run: FinishedRun, ledger: ChainedLedger) -> None:
    """Refuse a run whose cost along the path that was taken bounds nothing, or whose books are not its own.

    Guarantee: if it passes, the list of queries was fixed before the first vote was counted.
    Assumes:   the settings in the folder are those the run was made with.
    Reference: docs/maths/publishing.md, "What a run can publish".
    """
    told = f"Its public epsilon stays: {run.result.spent.epsilon:.4g}. Nothing was charged."
    if run.config.budget.stop == "private":
        raise ValueError(
            'Expected a run that stops on a public budget, got one with [budget] stop = "private": how many '
            f"queries were asked depends on the votes, and no published cost covers that. {told}"
        )
    if takes_part(run.config):
        how = "in the active order" if run.config.queries.order == "active" else "by an interactive mechanism"
        raise ValueError(
            f"Expected an order fixed beforehand, got a run {how}, in which the student took part in the "
            "asking: what was asked then depends on what came out, and a cost along the path that was taken "
            f"bounds nothing. {told}"
        )
    if run.plan is not None:
        _require_all_took_part(run.plan, ledger, run.folder.key)
    entries, ended_by = ledger.entries(), run.result.queries.stopped_by
    fixed, one_price = ended_by in FIXED_ENDS, getattr(run.mechanism, "one_price", False)
    if not fixed and one_price:
        # Every query costs the same and is answered: where it ends was known beforehand, unless others
        # spend from the same budget.
        fixed = run.plan is not None or ended_by != "the budget" or run.is_alone(entries)
    if isinstance(run.plan, Vanishing) and fixed and not one_price:
        # With more answers the budgets would have cut batches short, and so changed who sits out when.
        fixed = _always_affordable(ledger, run.plan, run.folder.key)
    if not fixed:
        how = f"ended by {ended_by}" if run.plan is None else "a budget or a number of labels may end"
        raise ValueError(
            f"Expected a run that ends at a number of queries fixed beforehand, got one that {how}: how many "
            "are asked then depends on what comes out, and a cost summed up to there bounds nothing. Set "
            f"[queries] n_queries so low that every budget reaches. {told}"
        )
    own = (each for each in entries if each.key.startswith(f"{run.folder.key}/") and each.is_settled)
    if sum(int(each.event["n_queries"]) for each in own) != len(run.labels()):
        raise ValueError(
            f"Expected the labels in {run.folder.labels.name} to be those on the ledger, got others. Was the "
            "folder or its ledger replaced? Nothing was charged."
        )


def _require_all_took_part(plan: PersonalPlan, ledger: ChainedLedger, key: str) -> None:
    if "envelope" not in available_methods(plan.mechanism):
        raise ValueError(
            "Expected gnmax or confident to publish what a run cost each group, got "
            f"{type(plan.mechanism).__name__}. Nothing was charged."
        )
    gone = sorted({name for batch in batches_under(ledger, key) for name in batch.absent})
    if gone:
        raise ValueError(
            "Expected a run in which every group took part to the end, got one that "
            f"{' and '.join(map(repr, gone))} left: costs are published for one plan of the groups. Let "
            "nobody leave ([personal] leave = false), or end it before ([queries] n_queries)."
        )


def _always_affordable(ledger: ChainedLedger, plan: PersonalPlan, key: str) -> bool:
    """Say whether every budget would have paid for all batches, had every query been answered."""
    states, nothing = ledger.accounts(), RdpCurve.zero()
    own = [entry.also for entry in ledger.entries() if entry.key.startswith(f"{key}/")]
    for name in (group.account for group in plan.groups):
        reserved = sum((paid[name].reserved for paid in own if name in paid), start=nothing)
        if not states[name].accountant.affords(nothing, reserved):
            return False
    return True


@dataclass(frozen=True, eq=False)
class GroupAccount:
    """What the books say of one group after a run; `exact` is private, and sealed.

    `public` is the epsilon charged for the labels, `on_account` that of all there is on its account.
    """

    name: str
    budget: float
    public: float
    stated: float
    on_account: float
    left: float
    n_labels: int
    exact: Sealed[float] | None = None


def account_for_groups(run: FinishedRun, *, private: bool = False) -> tuple[GroupAccount, ...]:
    """Return what a finished run cost each group, by its ledger and, if asked for, exactly and sealed.

    Exact costs of upsampling need to know whose data taught whom: they are there if the run kept its private
    numbers.
    """
    plan = run.plan
    assert plan is not None
    assert run.result.personal is not None
    exact = _exact(run, plan) if private else {}
    with run.books() as ledger:
        states = ledger.accounts()
        labels = {
            group.name: sum(
                b.n_labels for b in batches_under(ledger, run.folder.key) if group.name not in b.absent
            )
            for group in plan.groups
        }
    return tuple(
        GroupAccount(
            group.name,
            budget=group.epsilon,
            public=told.spent,
            stated=told.stated,
            on_account=states[group.account].epsilon,
            left=states[group.account].accountant.left(states[group.account].spent),
            n_labels=labels[group.name],
            exact=exact.get(group.name),
        )
        for group, told in zip(plan.groups, run.result.personal.groups, strict=True)
    )


def _exact(run: FinishedRun, plan: PersonalPlan) -> dict[str, Sealed[float]]:
    if plan.members:
        with run.books() as ledger:
            batches = batches_under(ledger, run.folder.key)
        asked, votes = run.labels(), asked_votes(run)
        assert not isinstance(votes, LabelVotes)  # of many labels there are no groups
        costs = exact_by_groups(
            # Each teacher is of one group: who the rows belong to does not matter, and they are not read.
            Assignment(Partition((np.arange(1),), unit="one record"), plan=plan),
            votes,
            labels=replace(asked, rows=np.arange(len(asked))),  # the votes kept are those on what was asked
            batches=batches,
            delta=run.config.budget.delta,
        )
        last = costs.reveal()[-1].epsilon if costs is not None else {}
    else:
        groups = read_private(run.folder.path).personal if run.folder.summary.exists() else None
        last = groups.exact_cost[-1].epsilon if groups and groups.exact_cost else {}
    return {name: Sealed(epsilon) for name, epsilon in last.items()}


@dataclass(frozen=True, eq=False)
class PoolAccount:
    """What the books say of a run with one budget for all; `exact` is private, and sealed.

    `n_answered` counts rows of which the teachers told a label, `n_told` the labels they told, `n_inferred`
    those that follow from others. `charged` is the epsilon on the ledger for the labels, `stated` what the
    run is held to, `left` the share of the budget that is left, publications counted. On a clock (`rule`)
    only ticks are charged, and `renyi` is there in place of `charged`: the Rényi epsilon of the labels, to
    compare.
    """

    n_queries: int
    n_answered: int
    n_told: int
    n_inferred: int
    charged: float | None
    stated: float
    left: float
    exact: Sealed[float] | None = None
    rule: str = "renyi"
    renyi: float | None = None


def account_for_pool(run: FinishedRun, *, private: bool = False) -> PoolAccount:
    """Return what a finished run cost, by its ledger and, if asked for, exactly and sealed.

    There is no exact cost where a student took part in the asking, of mechanisms that have none, and of many
    labels where only sums of ballots were kept.
    """
    labels, delta = run.labels(), run.config.budget.delta
    with run.books() as ledger:
        own = (each.charged for each in ledger.entries() if each.key.startswith(f"{run.folder.key}/"))
        charged = sum(own, start=RdpCurve.zero())
        renyi = charged.epsilon(delta - delta_of(charged))  # a test took its part of delta
        left, rule = run.accountant.left(ledger.spent), run.accountant.rule
    exact = None
    if private and len(labels) and not takes_part(run.config) and not run.config.mechanism.is_sum:
        curve = exact_curve(run.config, asked_votes(run))
        exact = Sealed(curve[-1].epsilon) if curve else None
    return PoolAccount(
        n_queries=len(labels), n_answered=labels.n_answered, n_told=labels.n_told,
        n_inferred=int(((labels.labels != SILENT) & ~labels.by_teachers).sum()),
        charged=None if rule == "clock" else renyi, stated=run.result.spent.epsilon, left=left, exact=exact,
        rule=rule, renyi=renyi if rule == "clock" else None,
    )  # fmt: skip
