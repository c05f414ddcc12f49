"""Rounds: by upsampling, whoever leaves is unlearned, and the others go on with teachers trained anew.

Every teacher of upsampling learned from every group, so a group that falls silent is still heard. When its
budget is used, the rows of all others are dealt anew, to teachers that never saw the ones who left, and the
vote goes on against the same accounts of those who stay.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from ...errors import BudgetExhausted
from ...ledger.base import AccountState, Ledger
from ...mechanisms.base import Mechanism
from ...privacy.rdp import RdpCurve
from ..result import RoundPart
from ..room import Room, Voters
from .assignment import Assignment, assign_by_plan
from .consent import Consent
from .plan import PersonalPlan
from .variants import Upsampling

Names = tuple[str, ...]
# Some could pay for one more query, but not for one without those who left first.
_TOO_DEAR = (
    "there are fewer teachers, who vote with less noise, and what is left does not pay for one of their "
    "answers. Take more noise, or budgets that are used up together."
)
VoteAnew = Callable[[Assignment, Names], Voters]


@dataclass(frozen=True, eq=False)
class Standing:
    """Who takes no part in the next query, and the plan of the others; None where there is no next query.

    `why` says why people who have some budget left cannot go on; "" where everybody's was used.
    """

    absent: Names
    plan: Upsampling | None = None
    why: str = ""


def who_goes_on(
    plan: Upsampling,
    mechanism: Mechanism,
    accounts: Mapping[str, AccountState],
    *,
    absent: Iterable[str] = (),
) -> Standing:
    """Return who can pay for one more query by `mechanism` when everybody who cannot has left.

    Without those who left there are fewer teachers and less noise, and a query costs the others more: whoever
    cannot pay that leaves as well, before anybody is trained for them.
    """
    gone, first = set(absent), set[str]()
    while True:
        names = tuple(group.name for group in plan.groups if group.name in gone)
        if len(names) == len(plan.groups):
            return Standing(names, why=_unused(plan, first, _TOO_DEAR))
        try:
            rest = (plan.without(names) if names else plan).using(mechanism)
            _require_enough(rest)
        except ValueError as error:
            because = f"too few people are left to train teachers anew. {error}"
            return Standing(names, why=_unused(plan, names, because))
        over = cannot_pay(rest, rest.prices(1, key=""), accounts)
        if not over:
            return Standing(names, rest)
        gone.update(over)
        first = first or set(gone)


def cannot_pay(
    plan: PersonalPlan, prices: Mapping[str, RdpCurve], accounts: Mapping[str, AccountState]
) -> list[str]:
    """Return the groups of a plan whose accounts do not pay these prices."""
    states = {group.name: accounts[group.account] for group in plan.groups}
    return [name for name, held in states.items() if not held.accountant.affords(held.spent, prices[name])]


def _unused(plan: Upsampling, gone: Iterable[str], because: str) -> str:
    """Return words where some have budget left and cannot go on without those who are gone."""
    left, rest = (
        ", ".join(group.name for group in plan.groups if (group.name in gone) == is_gone)
        for is_gone in (True, False)
    )
    return f"Asking ended with some budget of {rest} unused: without {left} {because}" if rest else ""


def _require_enough(rest: Upsampling) -> None:
    """Refuse people too few to train anybody: half of an even share is what one teacher needs at least."""
    least = rest.n_teachers if rest.grow == "shares" else max(1, rest.n_persons // (2 * rest.n_plain))
    if rest.n_copies < least:
        needs = "as there are teachers" if rest.grow == "shares" else "as one teacher needs"
        raise ValueError(f"Expected at least {least} of them, copies counted, {needs}, got {rest.n_copies}.")


def round_seed(seed: int, absent: Names) -> int:
    """Return the seed of a round: the given one while all are there, then one for each number of leavers."""
    if not absent:
        return int(seed)
    return int(np.random.SeedSequence(int(seed), spawn_key=(len(absent),)).generate_state(1)[0])


def round_name(plan: PersonalPlan | None, absent: Names) -> str:
    """Return a name for files of a round: which groups of the plan, by number, were not learned from."""
    groups = () if plan is None else plan.groups
    gone = [str(at) for at, group in enumerate(groups) if group.name in absent]
    return f"without_{'_'.join(gone)}" if gone else ""


def assign_without(plan: Upsampling, consent: Consent, absent: Names, *, seed: int) -> Assignment:
    """Deal the rows of everybody who is left to teachers of their own; nobody absent is in any part."""
    there = plan.without(absent) if absent else plan
    return replace(assign_by_plan(there, consent, seed=round_seed(seed, absent)), leave=True)


def rounds_on(ledger: Ledger, plan: Upsampling, *, key: str) -> tuple[RoundPart, ...]:
    """Return the rounds of the questions under a key, in the order they were asked.

    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger
    >>> from tellers.runs.personal import Group
    >>> plan = Upsampling((Group("all", 0.7, 5),), GNMax(4.0), 5, copies_of=(1,))
    >>> rounds_on(MemoryLedger(Accountant(Budget(0.7, 1e-5))), plan, key="run")
    ()
    """
    asked = [entry.event for entry in ledger.entries() if entry.key.startswith(f"{key}/")]
    rounds, done = list[RoundPart](), 0
    for absent, events in groupby(asked, key=lambda event: tuple(event["groups"]["absent"])):
        n_queries = sum(int(event["n_queries"]) for event in events)
        n_teachers = (plan.without(absent) if absent else plan).n_teachers
        # By number, as everywhere else; the books sort by name.
        names = tuple(group.name for group in plan.groups if group.name in absent)
        rounds.append(RoundPart(absent=names, n_teachers=n_teachers, after=done, n_queries=n_queries))
        done += n_queries
    return tuple(rounds)


def first_and_last(
    ledger: Ledger, plan: Upsampling, mechanism: Mechanism, *, key: str
) -> tuple[Names, Names]:
    """Return who was absent from the first question under a key, and from the last one so far.

    Where nothing was asked yet, whoever cannot pay for a first query is not learned from at all.
    """
    rounds = rounds_on(ledger, plan, key=key)
    if rounds:
        return rounds[0].absent, rounds[-1].absent
    standing = who_goes_on(plan, mechanism, ledger.accounts())
    if standing.plan is None:
        raise BudgetExhausted(
            standing.why or "Expected a group that can pay for one query, got none. Take more noise."
        )
    return standing.absent, standing.absent


@dataclass(frozen=True, eq=False)
class Rounds:
    """Rooms one after another, each with teachers trained anew without the groups whose budget is used.

    `vote_anew(assignment, absent)` trains the teachers of a round and returns what votes; who is absent names
    the round. All rooms share one ledger, and a group that left is never charged again.

    Guarantee: all releases of all rounds together are (epsilon, delta)-differentially private for one person
               of a group, at the budget of its account; what is released after a group has left does not
               depend on its rows at all.
    Assumes:   budgets, groups and numbers of people are public; teachers of a round are trained on the parts
               that they were assigned and on nothing else, with seeds of their own; prices are
               data-independent, so that who leaves, and when, follows from public costs and released answers
               alone.
    Reference: Feldman and Zrnic 2021 (Rényi filters, one per group); Mühl and Boenisch 2022, section 3.1; the
               argument is in docs/maths/personalised.md, "Unlearning who left".

    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, Room, Votes, noise
    >>> from tellers.ledger import open_group_accounts
    >>> from tellers.runs.personal import read_consent
    >>> from tellers.teachers import VotedPool
    >>> consent = read_consent([1.0] * 60 + [8.0] * 60, delta=1e-5)
    >>> plan = Upsampling(consent.groups, GNMax(8.0), 20, copies_of=(1, 2))
    >>> def vote_anew(assignment, absent):
    ...     print(len(assignment.partition), "teachers without", absent)
    ...     return VotedPool(Votes.from_ballots(np.zeros((len(assignment.partition), 9), int), n_classes=2))
    >>> ledger = MemoryLedger(Accountant(Budget(9.0, 1e-5)))
    >>> open_group_accounts(ledger, {group.name: Budget(group.epsilon, 1e-5) for group in consent.groups})
    >>> rounds = Rounds(consent, 7, vote_anew)
    >>> room = rounds.begin(Room(None, GNMax(8.0), ledger, noise.secure(), plan=plan), key="run")
    30 teachers without ()
    >>> for query in range(9):
    ...     try:
    ...         released = room.ask([query], key=f"run/{query}")
    ...     except BudgetExhausted:
    ...         room = rounds.next_room(room)
    ...         released = room.ask([query], key=f"run/{query}")
    10 teachers without ('epsilon 1',)
    """

    consent: Consent
    seed: int
    vote_anew: VoteAnew

    def begin(self, room: Room, *, key: str, mechanism: Mechanism | None = None) -> Room:
        """Return the room in which the questions under a key go on, or begin, the first by `mechanism`."""
        first = mechanism or room.mechanism
        return self._anew(room, first_and_last(room.ledger, _plan(room), first, key=key)[1])

    def next_room(self, room: Room) -> Room | None:
        """Return the room in which the others go on when this one cannot pay for a query, or None.

        It is None when every budget is used, when people are too few, and when the main account refuses.
        """
        standing = who_goes_on(_plan(room), room.mechanism, room.ledger.accounts(), absent=room.absent)
        if standing.plan is None or set(standing.absent) == set(room.absent):
            return None
        main = getattr(room.ledger, "accountant", None)
        price = replace(room, absent=standing.absent).price(1)
        if main is not None and not main.affords(room.ledger.spent, price):
            return None  # nobody is trained for a question that would be refused
        return self._anew(room, standing.absent)

    def _anew(self, room: Room, absent: Names) -> Room:
        assignment = assign_without(_plan(room), self.consent, absent, seed=self.seed)
        return replace(room, ensemble=self.vote_anew(assignment, absent), absent=absent)


def _plan(room: Room) -> Upsampling:
    if not isinstance(room.plan, Upsampling):
        raise TypeError(
            "Expected a room with a plan by upsampling; by weighting and vanishing teachers fall silent when "
            "their group leaves (exhausted_leave=True), and nobody is trained anew."
        )
    return room.plan
