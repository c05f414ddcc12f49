"""People with budgets of their own in a fit: who agreed to what, who shares a teacher, what each pays."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..ledger.base import Ledger
from ..mechanisms.base import Mechanism
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..teachers.partitions import Partition
from . import _groups
from .labelling import NextRoom, guaranteed_epsilon
from .personal.assignment import GroupAssignment
from .personal.consent import Consent, read_consent
from .personal.plan import PersonalPlan
from .personal.rounds import Names, Rounds, round_name, rounds_on, who_goes_on
from .personal.variants import Upsampling
from .room import Room, Voters

if TYPE_CHECKING:
    from .fit import Groups

VARIANTS = ("weighting", "vanishing", "upsampling")
OPTIONS = ("weights", "denominator", "precision", "min_persons", "power", "copies", "most", "grow")


def check_groups(chosen: "Groups", budgets: Any, *, sites: Any, ids: Any, stratified: bool) -> None:
    """Refuse parameters that do not go with budgets per person, or without them."""
    if chosen.variant not in VARIANTS:
        raise ValueError(f"Expected variant to be one of {', '.join(VARIANTS)}, got {chosen.variant!r}.")
    if budgets is None:
        given = [name for name in ("levels", *OPTIONS) if getattr(chosen, name) is not None]
        given += ["exhausted_leave"] * bool(chosen.exhausted_leave)
        if given:
            # Passed over, everybody would be treated alike and nobody would be told.
            raise ValueError(f"Expected fit(..., budgets=...) with {given[0]}, got no budgets. Pass them.")
        return
    for name, differs in {
        "sites": sites is not None,
        "ids": ids is not None,
        "stratified": stratified,
    }.items():
        if differs:
            raise ValueError(
                f"Expected no {name} with budgets: who shares a teacher follows from the budgets. "
                "Leave out one of the two."
            )


def kept_budgets(budgets: Any, rows: NDArray[np.int64]) -> Any:
    """Return the budgets of some rows; a mapping from persons holds for all of them."""
    return budgets if budgets is None or isinstance(budgets, Mapping) else np.asarray(budgets)[rows]


def consent_of(chosen: "Groups", budgets: Any, persons: ArrayLike | None, *, delta: float) -> Consent | None:
    """Return who agreed to what, or None where all are treated alike."""
    if budgets is None:
        return None
    return read_consent(
        budgets, delta=delta, levels=chosen.levels, persons=persons, max_groups=chosen.max_groups
    )


@dataclass(frozen=True, eq=False, repr=False)
class Seats:
    """Every teacher's rows, the mechanism for teachers of one vote each, and the plan where there is one."""

    partition: Partition
    plain: Mechanism
    plan: PersonalPlan | None = None
    seating: GroupAssignment | None = None

    @property
    def mechanism(self) -> Mechanism:
        """Return the mechanism that answers."""
        return self.plain if self.plan is None else self.plan.mechanism

    def rows(self, *tables: NDArray[Any]) -> list[NDArray[Any]]:
        """Return tables as the partition numbers their rows."""
        return [table if self.seating is None else self.seating.rows(table) for table in tables]


def room_of(
    ledger: Ledger,
    source: Noise,
    *,
    seats: Seats,
    consent: Consent | None,
    vote: Callable[[Seats, Names], Voters],
    leave: bool,
    key: str,
    first: Mechanism | None,
    seed: int,
) -> tuple[Room, NextRoom | None]:
    """Return the room with its teachers, and what follows it where groups leave whom all of them knew.

    `vote(seats, absent)` trains the teachers of some seats; who is absent names the round.
    """
    if consent is None or not leave or not isinstance(seats.plan, Upsampling):
        ensemble = vote(seats, ())
        return Room(ensemble, seats.plain, ledger, source, plan=seats.plan, exhausted_leave=leave), None

    def vote_anew(seating: GroupAssignment, absent: Names) -> Voters:
        return vote(Seats(seating.partition, seats.plain, seating.plan, seating), absent)

    nobody: Any = None  # who votes follows from the books
    room = Room(nobody, seats.plain, ledger, source, plan=seats.plan)
    rounds = Rounds(consent, seed, vote_anew)
    return rounds.begin(room, key=key, mechanism=first), rounds.next_room


def teachers_folder(folder: Any, plan: PersonalPlan | None, absent: Names) -> Path | None:
    """Return where the teachers of a round are kept, if anywhere."""
    if folder is None:
        return None
    name = round_name(plan, absent) if isinstance(plan, Upsampling) else ""
    return Path(folder) / "_".join(["teachers", *filter(None, [name])])


def rounds_of(
    room: Room, *, key: str, is_over: bool, followed: bool
) -> tuple[tuple[dict[str, Any], ...], str]:
    """Return the rounds that were asked, and words where a budget ended them before others were used."""
    if not followed or not isinstance(room.plan, Upsampling):
        return (), ""
    rounds = rounds_on(room.ledger, room.plan, key=key)
    last = rounds[-1].absent if rounds else ()
    standing = who_goes_on(room.plan, room.mechanism, room.ledger.accounts(), absent=last)
    return tuple(asdict(one) for one in rounds), standing.why if is_over else ""


def most_of(plan: PersonalPlan, n_queries: int, *mechanisms: Mechanism | None) -> dict[str, RdpCurve]:
    """Return the price of so many queries for each group, whoever of it takes part."""
    prices: dict[str, list[RdpCurve]] = {group.name: [] for group in plan.groups}
    for mechanism in mechanisms:
        if mechanism is not None:
            fitted = plan.using(mechanism)
            for group, unit in zip(fitted.groups, fitted.units, strict=True):
                prices[group.name].append(n_queries * fitted.mechanism.price(unit))
    return {name: largest(curves) for name, curves in prices.items()}


def largest(curves: Iterable[RdpCurve]) -> RdpCurve:
    """Return the largest value at every order."""
    every = list(curves)
    return RdpCurve(every[0].orders, np.max([curve.values for curve in every], axis=0))


def group_rows(
    ledger: Ledger,
    consent: Consent,
    plan: PersonalPlan,
    *,
    most: Mapping[str, RdpCurve] | None,
    is_guarantee: bool,
) -> tuple[dict[str, Any], ...]:
    """Return a row per group: its people, its budget, what it was charged and what is stated."""
    accounts, entries = ledger.accounts(), ledger.entries()
    absent = entries[-1].event.get("groups", {}).get("absent", ()) if entries else ()
    rows = []
    for row, group in zip(_groups.group_rows(plan, consent), consent.groups, strict=True):
        paid = [entry.event.get("n_queries", 0) for entry in entries if group.account in entry.also]
        state = accounts[group.account]
        bound = None if most is None else most[group.name]
        stated = guaranteed_epsilon(ledger, state.accountant, most=bound, account=group.account)
        rows.append(
            {
                **row,
                "n_queries": sum(paid),
                "spent": state.epsilon,
                "budget_left": state.accountant.left(state.spent),
                "stated": stated if is_guarantee else math.inf,
                "has_left": group.name in absent,
            }
        )
    return tuple(rows)
