"""The door of the room: the single way from a question to a label."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from numpy.typing import ArrayLike

from ..accounting.exact import exact_cost
from ..errors import BudgetExhausted, KeyReused, LedgerConflict
from ..ledger.base import Ledger, Ticket, canonical, group_account
from ..ledger.vault import Vault
from ..mechanisms._admission import fingerprint, require_fit, require_votes
from ..mechanisms.base import Mechanism, is_by_batch, price_of
from ..mechanisms.registry import answers_of, listens
from ..privacy.noise import Noise
from ..privacy.rdp import RdpCurve
from ..privacy.release import Cost, Release, describe
from ..privacy.votes import OneOf, SetOf, Unit, Votes, keep, kept

if TYPE_CHECKING:
    from .personal.plan import PersonalPlan

_SETTLE_TRIES = 3
_MOST_PRICES = 1000


class Voters(Protocol):
    """Teachers that vote, for a class each or on many labels at once.

    What it says of itself is checked before anything is charged: `n_labels` and `resolution` where the votes
    are on many labels (and `has_ballots`, where that is not so), `n_classes` where they are not. One that
    says `n_teachers` is priced by it, and never has votes of more or fewer.
    """

    def vote(self, X: Any, /) -> Votes:
        """Return the votes on every row of X."""
        ...


@dataclass(frozen=True, eq=False)
class Room:
    """Teachers, a mechanism and a ledger behind one verb.

    With a `plan` groups of people take part in their own ways and pay from accounts of their own: the
    mechanism is the one for one vote per teacher, which the plan fits to its votes. The first group that
    cannot pay ends it, or, with `exhausted_leave`, leaves while the others go on. `absent` are groups of the
    plan that left before: they neither vote nor pay here, and by upsampling no teacher may have learned from
    them (`personal.rounds` sees to that).

    How long an exact cost takes depends on the votes. `later` is handed that work, for a ledger with a vault,
    when the answer is on the books; by default it is done at once, before `ask` returns.

    Guarantee: whatever is asked, in whatever order and by whomever, all releases together stay within the
               budget of the ledger. The price is on the books before the teachers are asked; a key is
               answered and charged once.
    Assumes:   one unit changes one ballot per query; X and `student` depend on public data and released
               labels only.
    Reference: Feldman and Zrnic 2021 (Rényi filters), by way of the ledger.

    >>> import numpy as np
    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, Votes, noise
    >>> class Agreed:
    ...     def vote(self, X):
    ...         return Votes.from_ballots(np.tile(X, (250, 1)), n_classes=10)
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    >>> room = Room(Agreed(), GNMax(sigma=20.0), ledger, noise.secure())
    >>> room.ask([3, 1, 4], key="batch 0").labels
    array([3, 1, 4])
    """

    ensemble: Voters
    mechanism: Mechanism
    ledger: Ledger
    noise: Noise
    later: Callable[[Callable[[], None]], object] | None = None
    plan: "PersonalPlan | None" = None
    exhausted_leave: bool = False
    absent: tuple[str, ...] = ()
    _prices: dict[tuple[object, ...], RdpCurve] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.plan is not None and answers_of(self.mechanism) != OneOf.kind:
            raise TypeError(
                f"Expected one vote per teacher for {type(self.mechanism).__name__}, got a plan by "
                f"{self.plan.variant}: budgets per person are for mechanisms that give one class. Leave out "
                "the plan."
            )
        if self.exhausted_leave and self.plan is not None and not self.plan.members:
            raise ValueError(
                f"Expected teachers of one group each for exhausted_leave=True, got a plan by "
                f"{self.plan.variant}, in which every teacher learned from all groups: whoever is silent, "
                "their data still speak. Train teachers anew without the exhausted groups, as "
                "personal.rounds.Rounds does."
            )

    def price(self, n_queries: int) -> RdpCurve:
        """Return the most that a batch can cost, which is what `ask` reserves.

        >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, noise
        >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
        >>> room = Room(None, GNMax(sigma=20.0), ledger, noise.secure())
        >>> room.price(20).epsilon(1e-5) > room.price(10).epsilon(1e-5) > 0
        True
        """
        if self.plan is not None:
            return RdpCurve.largest(self._present(self.absent).prices(n_queries, key="").values())
        public = self._public()
        wanted = (n_queries, *public.items())
        price = self._prices.get(wanted)
        if price is None:
            if len(self._prices) >= _MOST_PRICES:
                self._prices.clear()
            price = self._prices[wanted] = price_of(self.mechanism, Unit(), n_queries, **public)
        return price

    def ask(
        self, X: Any, *, key: str, student: ArrayLike | None = None, account: str | None = None
    ) -> Release:
        """Return the labels of a batch: price, reserve, vote, draw, settle.

        A key that was asked before returns what was recorded, without a vote and without a charge; with other
        rows, another mechanism or other probabilities of the student it is another question, and refused. If
        the teachers fail after the price was reserved, it stays charged: that they failed may be private too.
        A ledger with a vault is told the exact cost too, sealed. `student` are the student's probabilities,
        for a mechanism that listens to them. `account` names an account of the ledger that pays the same
        price from a budget of its own; either both pay or neither.

        >>> import numpy as np
        >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, Votes, noise
        >>> class Agreed:
        ...     def vote(self, X):
        ...         return Votes.from_ballots(np.tile(X, (250, 1)), n_classes=10)
        >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
        >>> room = Room(Agreed(), GNMax(sigma=20.0), ledger, noise.secure())
        >>> first = room.ask([7], key="q0")
        >>> spent = ledger.spent.epsilon(1e-5)
        >>> again = room.ask([7], key="q0")
        >>> bool(again.labels == first.labels), ledger.spent.epsilon(1e-5) == spent
        (True, True)
        """
        asked = self._question(X, key=key, student=student, account=account)
        held = self._find_or_reserve(key, asked.question, account)
        if isinstance(held, Release):
            return held
        ticket, plan = held
        release, used, seal = self._drawn(asked, plan)
        self._settle(ticket, release, used)
        self._sealed(seal)
        return release.record()

    def ask_all(self, asked: "Sequence[RoomQuestion]") -> list[Release | Exception]:
        """Return the labels of several questions, each with a key of its own, or why one has none.

        The ledger flushes twice for all of them together, where it can: one that has no `reserve_all`, or
        groups of people who may leave, are asked one by one. What is refused charges nothing and keeps no
        other from being answered.

        >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, Votes, noise
        >>> import numpy as np
        >>> class Agreed:
        ...     def vote(self, X):
        ...         return Votes.from_ballots(np.tile(X, (250, 1)), n_classes=10)
        >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
        >>> room = Room(Agreed(), GNMax(sigma=20.0), ledger, noise.secure())
        >>> asked = [RoomQuestion([3], key="a"), RoomQuestion([1], key="b")]
        >>> [int(found.labels[0]) for found in room.ask_all(asked)]
        [3, 1]
        """
        if self.plan is not None or not hasattr(self.ledger, "reserve_all"):
            return [
                _caught(self.ask, one.X, key=one.key, student=one.student, account=one.account)
                for one in asked
            ]
        found: list[Any] = [
            _caught(self._question, one.X, key=one.key, student=one.student, account=one.account)
            for one in asked
        ]
        priced: dict[int, Any] = {}
        for at, one in enumerate(found):
            price = one if isinstance(one, Exception) else _caught(self._priced, one)
            if isinstance(price, Exception):
                found[at] = price
            else:
                priced[at] = price
        settling: list[tuple[int, Any, tuple[Ticket, Release, None]]] = []
        before: list[int] = []
        for at, ticket in zip(priced, self.ledger.reserve_all(list(priced.values())), strict=True):
            one = found[at]
            if isinstance(ticket, Ticket):
                found[at] = drawn = _caught(self._drawn, one, None)
                if not isinstance(drawn, Exception):
                    settling.append((at, drawn[2], (ticket, drawn[0], None)))
            elif isinstance(ticket, LedgerConflict):  # asked before: it may be on record, or is soon
                before.append(at)
            else:
                found[at] = ticket
        for (at, seal, outcome), refusal in zip(
            settling, self._settled([outcome for _, _, outcome in settling]), strict=True
        ):
            found[at] = refusal or _caught(self._sealed, seal) or outcome[1].record()
        for at in before:
            one = asked[at]
            found[at] = _caught(self.ask, one.X, key=one.key, student=one.student, account=one.account)
        return found

    def _question(self, X: Any, *, key: str, student: ArrayLike | None, account: str | None) -> "_Question":
        n = _n_queries(X)
        context = self._context(student, n)
        require_fit(self.mechanism, self.ensemble, n_queries=n)
        self._require_ledger()
        question = {"n_queries": n, "queries": fingerprint(X)}
        if student is not None:
            question["student"] = fingerprint(student)
        return _Question(X, key, student, account, context, question)

    def _drawn(
        self, asked: "_Question", plan: "PersonalPlan | None"
    ) -> "tuple[Release, Mapping[str, RdpCurve] | None, _Sealing | None]":
        """Return what comes out, what accounts are charged for it where that differs, and what to seal."""
        key, context, n = asked.key, asked.context, int(asked.question["n_queries"])
        votes = self.ensemble.vote(asked.X)
        mechanism = self.mechanism
        n_teachers = self._public().get("n_teachers") if plan is None else plan.n_teachers
        require_votes(votes, mechanism, n_queries=n, key=key, n_teachers=n_teachers)
        if plan is not None:
            mechanism, votes = plan.mechanism, _seated(votes, plan, key=key)
        release = mechanism.release(votes, self.noise, **context)
        used = None
        if plan is not None:
            charges = plan.charges(release.answered, key=key)
            worst = RdpCurve.largest(charges.values())
            release = replace(release, cost=Cost(worst))
            used = {group_account(name): curve for name, curve in charges.items()}
            if asked.account is not None:
                used[asked.account] = worst
        vault = getattr(self.ledger, "vault", None)
        if vault is None or not _is_evaluated(mechanism, votes):
            return release, used, None
        return release, used, _Sealing(vault, key, mechanism, votes, context)

    def _sealed(self, seal: "_Sealing | None") -> None:
        """Put an exact cost into the operator's vault; what is recorded and returned has none."""
        if seal is not None:
            if self.later is None:
                seal()
            else:
                self.later(seal)

    def _settled(self, outcomes: "list[tuple[Ticket, Release, None]]") -> list[Exception | None]:
        found: list[Exception | None] = []
        # All at once, each time: one by one they would wait in a row for a ledger that is away.
        for attempt in range(_SETTLE_TRIES):
            try:
                found = self.ledger.settle_all(outcomes)  # type: ignore[attr-defined]
            except (TimeoutError, ConnectionError) as error:
                found = [error] * len(outcomes)
                continue
            for at, (ticket, *_) in enumerate(outcomes if attempt else ()):
                if isinstance(found[at], LedgerConflict):  # the try before may have gone through after all
                    known = _caught(self.ledger.find, ticket.key)
                    found[at] = None if isinstance(known, Release) else known or found[at]
            break
        return found

    def _settle(self, ticket: Ticket, release: Release, used: Mapping[str, RdpCurve] | None) -> None:
        groups = {} if used is None else {"used": used}
        # What was drawn is paid for: a ledger that is busy or away for a while must not lose it.
        for attempt in range(_SETTLE_TRIES):
            try:
                self.ledger.settle(ticket, release, **groups)
                return
            except (TimeoutError, ConnectionError):
                if attempt + 1 == _SETTLE_TRIES:
                    raise
            except LedgerConflict:
                # The try before may have gone through after all.
                if not attempt or self.ledger.find(ticket.key) is None:
                    raise
                return

    def _public(self) -> dict[str, int]:
        """Return how many teachers and classes there are, where the teachers say so: prices may go by it."""
        said = {name: getattr(self.ensemble, name, None) for name in ("n_teachers", "n_classes")}
        return {name: int(number) for name, number in said.items() if number is not None}

    def _require_ledger(self) -> None:
        """Refuse a ledger that a mechanism cannot pay from, where it is meant for one kind of ledger."""
        accountant = getattr(self.ledger, "accountant", None)
        if accountant is not None and hasattr(self.mechanism, "require_accountant"):
            self.mechanism.require_accountant(accountant)
        if self.plan is not None and is_by_batch(self.mechanism):
            raise TypeError(
                f"Expected a mechanism with a price per query for a plan of groups, got "
                f"{type(self.mechanism).__name__}, which is paid by the batch. Nothing was charged. Leave "
                "out the plan."
            )

    def _find_or_reserve(
        self, key: str, question: dict[str, Any], account: str | None
    ) -> "Release | tuple[Ticket, PersonalPlan | None]":
        recorded = self.ledger.find(key)
        if recorded is None:
            try:
                return self._reserve(key, question, account)
            except LedgerConflict:
                # Somebody with the same key may have been faster, and be done by now.
                recorded = self.ledger.find(key)
                if recorded is None:
                    self._require_same(key, question, self.ledger.asked(key) or {})
                    raise
        asked = self.ledger.asked(key) or {}
        self._require_same(key, question, {"n_queries": len(recorded), **asked})
        if asked.get("account") != account:
            # Who may read whose answers is not for a key to decide.
            raise KeyReused(
                f"Key {key!r} was asked before, on another account. Nothing was charged. "
                "Use a key of your own."
            )
        return recorded

    def _require_same(self, key: str, question: dict[str, Any], asked: dict[str, Any]) -> None:
        """Refuse a key whose event tells of another question; what an old event does not tell is not held."""
        before, now = asked.get("n_queries"), question["n_queries"]
        if before not in (None, now):
            other = f"{before} queries, and now with {now}"
        elif asked.get("queries", question["queries"]) != question["queries"]:
            other = "other queries"
        elif not self._is_same_mechanism(asked):
            other = f"another mechanism than {type(self.mechanism).__name__} as it is now"
        elif "student" in question and asked.get("student", question["student"]) != question["student"]:
            other = "other probabilities of the student"
        else:
            return
        raise KeyReused(
            f"Key {key!r} was asked before, with {other}. Nothing was charged. "
            "Use a new key for a new question."
        )

    def _is_same_mechanism(self, asked: Mapping[str, Any]) -> bool:
        mechanism, groups = self.mechanism, asked.get("groups")
        if self.plan is not None and groups is not None:
            if groups["variant"] != self.plan.variant:
                return False
            try:
                # Those who were absent then, whoever is absent now.
                mechanism = self._present(groups["absent"]).mechanism
            except (KeyError, ValueError):
                return False
        now = describe(mechanism, self.noise)
        return all(
            name not in asked or canonical(asked[name]) == canonical(now[name])
            for name in ("mechanism", "parameters")
        )

    def _priced(
        self, asked: "_Question"
    ) -> tuple[str, RdpCurve, dict[str, Any], Mapping[str, RdpCurve] | None]:
        """Return what is reserved for a question without groups: key, price, event, and accounts."""
        pays = {} if asked.account is None else {"account": asked.account}
        # What the price goes by, so that whoever reads the books can work it out again.
        event = {**describe(self.mechanism, self.noise), **asked.question, **pays, **self._public()}
        price = self.price(int(asked.question["n_queries"]))
        return asked.key, price, event, None if asked.account is None else {asked.account: price}

    def _reserve(
        self, key: str, question: dict[str, Any], account: str | None
    ) -> tuple[Ticket, "PersonalPlan | None"]:
        if self.plan is None:
            _, price, event, also = self._priced(_Question(None, key, None, account, {}, question))
            return self.ledger.reserve(key, price, event=event, also=also), None
        n, asked = int(question["n_queries"]), dict(question)
        if account is not None:
            asked["account"] = account
        absent = set(self.absent)
        while True:
            plan = self._present(absent)
            prices = plan.prices(n, key=key)
            event = {**describe(plan.mechanism, self.noise), **asked, "unit": "one person"}
            event["groups"] = {"variant": plan.variant, "absent": sorted(absent)}
            price = RdpCurve.largest(prices.values())
            also = {group_account(name): curve for name, curve in prices.items()}
            if account is not None:
                also[account] = price
            try:
                return self.ledger.reserve(key, price, event=event, also=also), plan
            except BudgetExhausted as refusal:
                # What a group was charged is public, and so is that it takes no further part. Whoever asks
                # may have an account of the same name as a group: that one is no group's.
                paid_by = {group_account(name): name for name in prices}
                name = paid_by.get(refusal.account or "", "")
                if not self.exhausted_leave or not name or len(prices) == 1:
                    raise
                absent.add(name)

    def _present(self, absent: Collection[str]) -> "PersonalPlan":
        assert self.plan is not None
        return (self.plan.without(absent) if absent else self.plan).using(self.mechanism)

    @cached_property
    def _listens(self) -> bool:
        return listens(self.mechanism)

    def _context(self, student: ArrayLike | None, n: int) -> dict[str, Any]:
        # Asked for before anything is charged: a forgotten argument must not cost a batch.
        listens, name = self._listens, type(self.mechanism).__name__
        if listens and student is None:
            raise TypeError(f"Expected student probabilities for {name}, got none. Nothing was charged.")
        if student is None:
            return {}
        if not listens:
            raise TypeError(f"Expected no student probabilities: {name} does not use any. Leave them out.")
        if _n_queries(student) != n:
            raise ValueError(
                f"Expected one row of student probabilities per query, {n} of them, got "
                f"{_n_queries(student)}. Nothing was charged."
            )
        return {"student": student}


@dataclass(frozen=True)
class RoomQuestion:
    """One of several questions: rows, a key, the student's probabilities, and the account that pays too."""

    X: Any
    key: str
    student: ArrayLike | None = None
    account: str | None = None


class _Question(NamedTuple):
    """A question that was looked at: its context for the mechanism, and what is recorded of it."""

    X: Any
    key: str
    student: ArrayLike | None
    account: str | None
    context: dict[str, Any]
    question: dict[str, Any]


def _caught(act: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Return what comes out, or the error."""
    try:
        return act(*given, **named)
    except Exception as error:
        return error


def _seated(votes: Votes, plan: "PersonalPlan", *, key: str) -> Votes:
    """Return the votes as the plan counts them."""
    weights = plan.weights(len(votes), key=key)
    if weights is not None:
        return votes.weighted(weights)
    return votes.replaced(unit=max(plan.units, key=lambda unit: unit.linf))


class _Sealing:
    """Works out an exact cost for the vault, by whoever is handed it; the votes stay in the room."""

    def __init__(self, vault: Vault, key: str, *priced: Any) -> None:
        keep(self, (vault, key, priced))

    def __call__(self) -> None:
        vault, key, (mechanism, votes, context) = kept(self)
        vault.put(key, exact_cost(mechanism, votes, **context).cost)


def _is_evaluated(mechanism: Mechanism, votes: Votes) -> bool:
    """Return whether the votes alone give an exact cost, without knowing whose data taught whom."""
    if not hasattr(mechanism, "outcomes") or not votes.unit.is_one_ballot:
        return False
    if votes.space.kind != SetOf.kind or votes.ballots is not None:
        return True
    # Sums alone say what label by label decisions cost, not what clipped ballots, sets or a gate do.
    rule = getattr(mechanism, "rule", None)
    return rule is not None and rule.is_free and not hasattr(mechanism, "gate")


def _n_queries(X: Any) -> int:
    # Sparse matrices have a shape and no length.
    shape = getattr(X, "shape", None)
    n = int(shape[0]) if shape else len(X)
    if n == 0:
        raise ValueError("Expected at least one query, got none.")
    return n
