"""Who the teachers learn from, and, where people have budgets of their own, how each group takes part."""

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.dataset import TableLines
from ..errors import BudgetExhausted
from ..ledger.base import Ledger, group_account, groups_on, open_group_accounts
from ..mechanisms.base import Mechanism
from ..privacy._files import write_whole
from ..privacy.budget import Accountant, Budget
from ..teachers._assignment import identities
from ..teachers.partitions import Partition, partition
from ._tables import Tables, read_agreed
from .personal._optimise import weights_by_price
from .personal.consent import Consent
from .personal.plan import PersonalPlan
from .personal.seating import arrange
from .personal.variants import Upsampling, Vanishing, Weighting, teachers_per_group
from .settings.sections import RunConfig

_DEALT = (
    "Who agreed to which budget was dealt at random by the seed ({shares}): an experiment. Nobody was asked."
)
_RECORDS_ALONE = (
    "It is known whose row each one is, and the settings protect one record all the same: a person with "
    "several rows is protected for each of them alone, not for all of them together."
)
# Batches of vanishing may lose so much to rounding before others are taken.
_LITTLE = 1.02


@dataclass(frozen=True, eq=False, repr=False)
class Electorate:
    """The rows of every teacher and, with budgets per group, the plan by which groups vote and pay.

    The partition numbers the rows of `X[source]` where `source` is given, as people are copied there.
    """

    partition: Partition
    source: NDArray[np.int64] | None = None
    plan: PersonalPlan | None = None
    consent: Consent | None = None
    leave: bool = False
    notes: tuple[str, ...] = ()

    @property
    def trains_anew(self) -> bool:
        """Return whether teachers are trained anew when a group leaves: they learned from all groups."""
        return self.leave and isinstance(self.plan, Upsampling)

    def rows(self, table: NDArray[Any]) -> NDArray[Any]:
        """Return the rows that the partition numbers."""
        return table if self.source is None else table[self.source]

    def batch(self, wanted: int, *, most: int) -> tuple[int, str]:
        """Return how many queries share a batch, and words where that is not what was wanted, or loses."""
        plan = self.plan
        if not isinstance(plan, Vanishing) or plan.loss(wanted) <= _LITTLE:
            return wanted, ""
        period = plan.period
        size = -(-wanted // period) * period
        if size <= most and plan.loss(size) < plan.loss(wanted):
            return size, (
                f"Batches are of {size} queries and not of {wanted}, in which a group, which pays for its "
                f"busiest teacher, would pay up to {plan.loss(wanted):.2f} times its fair share."
            )
        return wanted, (
            f"In batches of {wanted} queries a group, which pays for its busiest teacher, pays up to "
            f"{plan.loss(wanted):.2f} times its fair share. Batches of {period} would lose least."
        )

    def __repr__(self) -> str:
        variant = "plain" if self.plan is None else self.plan.variant
        return f"Electorate({variant}, n_teachers={len(self.partition)})"


def deal_rows(config: RunConfig, tables: Tables) -> Partition:
    """Return which private rows each teacher gets."""
    places = tables.private.places
    return _dealt(config, tables) if places is None else _dealt_by_place(config, tables.private.name, places)


def _dealt_by_place(config: RunConfig, name: str, places: TableLines) -> Partition:
    """Deal all lines of a table; those that cannot be used drop out of the part they were dealt to."""
    chosen = config.partition
    if config.protects == "person" and places.unit != "one source":
        raise ValueError(
            f'Expected the sources of clips in {name!r} for [partition] by = "person", got clips one by one. '
            "Name their sources when preparing them, and leave out by_clip."
        )
    if chosen.stratified and places.unit == "one source":
        raise ValueError(
            f"Expected clips that are dealt one by one in {name!r} for [partition] stratified = true, "
            "got some that stay together. Leave it out, or in [data]: options = {by_clip = true}"
        )
    dealt = partition(
        len(places), chosen.n_teachers, seed=config.seed,
        labels=places.classes if chosen.stratified else None,
        persons=places.units if places.unit == "one source" else None,
    )  # fmt: skip
    parts = tuple(np.sort(places.rows_at(part)) for part in dealt)
    relation = replace(dealt.relation, unit="source" if places.unit == "one source" else "clip")
    return Partition(parts, unit=places.unit, notes=(*dealt.notes, *places.notes), relation=relation)


def _dealt(config: RunConfig, tables: Tables) -> Partition:
    chosen, data = config.partition, tables.private
    if config.protects == "site":
        if data.sites is None:
            raise ValueError(
                f'Expected a column of sites in {data.name!r} for [partition] by = "site", got none.'
            )
        apart = set(identities(tables.apart, name="sites")) if tables.apart else set()
        names = [name for name in identities(chosen.sites, name="sites") if name not in apart]
        return partition(len(data), sites=data.sites, site_names=names, persons=data.persons)
    if config.protects == "person":
        if data.persons is None:
            raise ValueError(
                f'Expected a column of persons in {data.name!r} for [partition] by = "person", got none. '
                "Name it in [data] person."
            )
        return partition(len(data), chosen.n_teachers, seed=config.seed, persons=data.persons)
    labels = data.y if chosen.stratified else None
    dealt = partition(len(data), chosen.n_teachers, seed=config.seed, labels=labels, ids=data.ids)
    return dealt if data.persons is None else replace(dealt, notes=(*dealt.notes, _RECORDS_ALONE))


def seat_teachers(config: RunConfig, tables: Tables) -> Electorate:
    """Return which private rows each teacher gets, by the plan of the groups where there are any."""
    chosen = config.personal
    if not chosen.variant:
        return Electorate(deal_rows(config, tables))
    data, mechanism = tables.private, config.mechanism.build()
    if config.protects == "person" and data.persons is None:
        deal_rows(config, tables)  # says what is missing
    consent = read_agreed(config, data)
    try:
        n_teachers = config.partition.n_teachers
        options = _options(config, consent, mechanism)
        seating = arrange(
            chosen.variant, consent, mechanism, n_teachers=n_teachers, seed=config.seed, **options
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config.where('personal', 'variant')}: {error}") from error
    notes: tuple[str, ...] = ()
    if chosen.shares:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in chosen.shares.items())
        notes = (_DEALT.format(shares=shares),)
    leave = chosen.leave and len(consent.groups) > 1  # who is alone has nobody to leave
    return Electorate(seating.partition, seating.source, seating.plan, consent, leave=leave, notes=notes)


def _options(config: RunConfig, consent: Consent, mechanism: Mechanism) -> dict[str, Any]:
    chosen, options = config.personal, dict[str, Any]()
    if chosen.variant == "vanishing":
        options["power"] = chosen.power
    else:
        options["precision"] = chosen.precision or None
    if chosen.variant == "upsampling":
        return {**options, "grow": chosen.grow, "most": chosen.most}
    options["min_persons"] = chosen.min_persons or None
    if chosen.weights == "price":
        groups, least = consent.groups, options["min_persons"]
        per_group = teachers_per_group(groups, config.partition.n_teachers, min_persons=least)
        budgets = [group.epsilon for group in groups]
        options["weights"] = weights_by_price(
            budgets, per_group, mechanism, delta=config.budget.delta
        ).weights
    return options


def group_rows(electorate: Electorate) -> list[dict[str, Any]]:
    """Return one row per group: who is in it, and how it takes part; public, before anything runs."""
    plan, consent = electorate.plan, electorate.consent
    if plan is None or consent is None:
        return []
    rows = []
    for at, known in enumerate(consent.summary()):
        row = {
            "name": known["group"], "epsilon": known["epsilon"], "n_persons": known["persons"],
            "share": known["share"], "waste": known["waste"],
        }  # fmt: skip
        row["n_teachers"] = len(plan.members[at]) if plan.members else plan.n_teachers
        if isinstance(plan, Weighting):
            row["weight"] = plan.weight_of[at]
        elif isinstance(plan, Vanishing):
            row["frequency"] = plan.frequency_of[at]
        elif isinstance(plan, Upsampling):
            row["copies"] = plan.copies_of[at]
        rows.append(row)
    return rows


def save_partition(path: Path, electorate: Electorate) -> None:
    """Write down which rows each teacher has, and of which rows those are copies."""
    flat, parts = io.BytesIO(), electorate.partition
    copied = {} if electorate.source is None else {"source": electorate.source}
    np.savez(flat, rows=np.concatenate(list(parts)), sizes=parts.sizes, **copied)
    write_whole(path, flat.getvalue())


def open_groups(ledger: Ledger, config: RunConfig, electorate: Electorate, *, key: str) -> None:
    """Open the accounts of all groups, and see that each can pay for a question of its own.

    With budgets per group every question on a ledger must be paid by groups, and by the same ones: what a
    question without them cost a group is not known.
    """
    plan, place = electorate.plan, config.where("budget", "ledger")
    there = {group_account(name) for name in groups_on(ledger)}
    if plan is None:
        if there:
            raise ValueError(
                f"{place}: Expected a ledger without groups for a run without [personal], got one with "
                f"{len(there)}. What is asked here would not be charged to them: take another ledger."
            )
        return
    mine = {group.account for group in plan.groups}
    if there and there != mine:
        raise ValueError(
            f"{place}: Expected a ledger with the groups of this run, got one with others. "
            "Take another ledger."
        )
    if any("groups" not in entry.event for entry in ledger.entries()):
        raise ValueError(
            f"{place}: Expected a ledger on which groups paid for every question, got one with others. "
            "What those cost each group is not known: take another ledger."
        )
    delta = config.budget.delta
    open_group_accounts(ledger, {group.name: Budget(group.epsilon, delta) for group in plan.groups})
    if ledger.asked(f"{key}/0") is not None:
        return
    first = plan.using(config.warm_up() or config.mechanism.build())
    states, refusals = ledger.accounts(), list[BudgetExhausted]()
    for group, unit in zip(first.groups, first.units, strict=True):
        state, price = states[group.account], first.mechanism.price(unit)
        try:
            Accountant(Budget(config.budget.epsilon, delta)).require(ledger.spent, price, key=f"{key}/0")
            state.accountant.require(state.spent, price, key=f"{key}/0", account=group.account)
        except BudgetExhausted as refusal:
            refusals.append(refusal)
    # Whoever cannot pay once leaves at once, if groups may leave; somebody must stay.
    if refusals and not (electorate.leave and len(refusals) < len(plan.groups)):
        raise refusals[0]
