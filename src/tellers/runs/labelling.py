"""From a public pool to released labels: which rows are asked, in which order, and when to stop.

Everything here looks at public rows, released labels and public prices alone, so it costs nothing beyond the
releases themselves. A run that was cut short goes on where it was: each batch has a key made of its place in
the order, and a key on the books is read from the books.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..data.label_models import count_rows, take_rows
from ..errors import BudgetExhausted, KeyReused, Unsettled, require_count
from ..ledger.base import Ledger, canonical
from ..mechanisms._admission import is_multilabel
from ..mechanisms.base import Mechanism, has_one_price, is_one_batch, price_of
from ..mechanisms.registry import EVENTS, answers_of, listens
from ..privacy.budget import Accountant
from ..privacy.rdp import RdpCurve
from ..privacy.release import SILENT, Release
from ..privacy.votes import Unit
from ..students.fitting import fit_supervised, spread_columns
from ..students.order import least_confident, same_spread, typical_first
from .room import Room

Indices = NDArray[np.int64]
Progress = Callable[[int, int], object]
NextRoom = Callable[[Room], Room | None]
Order = Literal["given", "shuffled", "typical", "active"]
ORDERS = ("given", "shuffled", "typical", "active")
AfterFail = Literal["stop", "full price"]
AFTER_FAIL = ("stop", "full price")
StoppedBy = Literal[
    "the budget", "the number of queries", "the number of labels", "the end of the pool", "a failed test"
]


@dataclass(frozen=True, eq=False)
class Labels:
    """What came of asking: the rows of the pool that were asked, in that order, and their labels.

    `labels`, one per row or rows x labels, are SILENT where no label came; `by_teachers` says which the
    teachers gave, the others an interactive mechanism handed back to the student, or were inferred. `values`
    are noisy counts where those were released. `n_lost` counts rows whose price was paid and whose outcome
    was lost with a process that died; they are not among `rows` and are never asked again. `passed` says
    whether the one batch of a mechanism that tests it passed; None where nothing was tested. What was asked
    again at the full price after a test failed is among `rows` once, with its answer.
    """

    rows: Indices
    labels: Indices
    by_teachers: NDArray[np.bool_]
    values: NDArray[np.int64] | None = None
    n_lost: int = 0
    stopped_by: StoppedBy = "the end of the pool"
    passed: bool | None = None

    @property
    def n_answered(self) -> int:
        """Return how many rows the teachers answered; of many labels one that was told is enough."""
        return _n_answered(self.by_teachers)

    @property
    def is_void(self) -> bool:
        """Return whether a batch failed its test and not one label came of it, afterwards neither."""
        return self.passed is False and not self.n_answered

    @property
    def n_told(self) -> int:
        """Return how many labels the teachers told, over all rows."""
        return int(self.by_teachers.sum())

    def __len__(self) -> int:
        return len(self.rows)


def label_pool(
    room: Room,
    X_pool: Any,
    *,
    seed: int,
    order: Order = "shuffled",
    n_queries: int | None = None,
    n_labels: int | None = None,
    batch: int = 10,
    student: Any | None = None,
    first: int | None = None,
    per_round: int | None = None,
    warm_up: Mechanism | None = None,
    queries: Any | None = None,
    key: str = "pool",
    next_room: NextRoom | None = None,
    progress: Progress | None = None,
    after_fail: AfterFail = "stop",
) -> Labels:
    """Ask for labels of a public pool until the budget, a number of queries or of labels, or the pool ends.

    Rows are asked in the order given, shuffled, typical ones first (`typical_first`), or actively: `first` of
    them at random, then `per_round` at a time those that `student`, taught anew before each round, is least
    sure of. A mechanism that listens to a
    student (`InteractiveGNMax`) needs one too: `first` rows are answered by the mechanism `warm_up`, and the
    student then speaks before each round. `batch` queries share one entry in the ledger; when the budget does
    not pay for a batch, smaller ones are tried. Where a row has many labels it counts towards `n_labels` if
    one of them was told. `queries` are what the room is asked with, where that is not the rows of `X_pool`.
    Where a room cannot pay for one query, `next_room` may hand over another.
    A mechanism that tests one batch (`TestedGNMax`) gets all of its queries at once, in any order but the
    active one. Where the test fails the run stops, or, with `after_fail="full price"`, asks the same rows
    under new keys without a test, by plain GNMax, as far as the budget goes.
    A run that goes on must ask what it asked: a key on the books with other rows, another mechanism or
    another belief of the student is a `KeyReused`.

    Guarantee: no row is asked twice, also when a run goes on after it was cut short. The order and the moment
               of stopping cost nothing: they depend on public rows, released labels and public prices.
    Assumes:   pool and `next_room` are public, and one run at a time uses a `key` of the ledger.
    Reference: Papernot et al. 2017, section 2.3 and appendix B.2; Papernot et al. 2018, section 2.

    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, Room, Votes, noise
    >>> class Agreed:
    ...     def vote(self, X):
    ...         return Votes.from_ballots(np.tile(X[:, 0].astype(int), (250, 1)), n_classes=10)
    >>> ledger = MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))
    >>> room = Room(Agreed(), GNMax(sigma=40.0), ledger, noise.secure())
    >>> labels = label_pool(room, np.arange(10.0)[:, None], seed=7, n_queries=4, batch=3)
    >>> bool((labels.labels == labels.rows).all()), labels.stopped_by
    (True, 'the number of queries')
    """
    n_pool = count_rows(X_pool)
    check_asking(order, n_pool=n_pool, batch=batch, n_queries=n_queries, n_labels=n_labels)
    if answers_of(room.mechanism) == "scores":
        raise TypeError(
            f"Expected a mechanism that answers query by query, got {type(room.mechanism).__name__}, which "
            "releases the scores of a whole pool at once. Ask the room itself: room.ask(X_pool, key=...)."
        )
    tested: Any = room.mechanism if is_one_batch(room.mechanism) else None
    after_batch = batch
    if tested is not None:
        require_one_batch(tested, order, n_pool=n_pool, n_queries=n_queries, n_labels=n_labels)
        batch = n_queries = int(tested.n_queries)
    if after_fail not in AFTER_FAIL:
        raise ValueError(f"Expected after_fail to be one of {', '.join(AFTER_FAIL)}, got {after_fail!r}.")
    hears = listens(room.mechanism)
    teaches = order == "active" or hears
    if teaches:
        _require_student(room.mechanism, student, order=order, warm_up=warm_up)
        first = max(1, n_pool // 10) if first is None else first
        per_round = first if per_round is None else per_round
        require_count(first=first, per_round=per_round)
    elif (first, per_round, warm_up) != (None, None, None):
        raise ValueError(
            "Expected first, per_round and warm_up only where a student takes part (order='active', or "
            f"InteractiveGNMax), got them with order={order!r} and {type(room.mechanism).__name__}. "
            "Leave them out."
        )
    asked = count_rows(queries) if queries is not None else n_pool
    if asked != n_pool:
        raise ValueError(f"Expected one query per row of the pool, {n_pool} of them, got {asked}.")
    most = n_pool if n_queries is None else min(n_pool, int(n_queries))
    run = _Run(
        room, queries if queries is not None else X_pool, key=key, most=most, n_labels=n_labels, batch=batch,
        next_room=next_room,
    )  # fmt: skip

    left, taught, number = pool_order(X_pool, order, seed=seed), None, 0
    while not run.stopped_by:
        size = (per_round if number else first) or n_pool
        if order == "active" and taught is not None:
            chosen = least_confident(taught, take_rows(X_pool, left), size)
        else:
            chosen = np.arange(min(size, left.size))
        now, left = left[chosen], np.delete(left, chosen)
        mechanism, belief = room.mechanism, None
        if hears:
            if taught is None and warm_up is not None:
                mechanism = warm_up
            else:
                belief = _belief(taught, take_rows(X_pool, now), room)
        run.ask(now, mechanism, belief, progress=progress)
        number += 1
        if teaches and not run.stopped_by:
            drawn = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
            taught = run.teach(student, X_pool, seed=drawn)
    labels = run.labels()
    if tested is None or not len(labels):
        return labels
    if labels.n_answered:
        return replace(labels, passed=True)
    if after_fail == "stop":
        return replace(labels, passed=False, stopped_by="a failed test")
    plain = replace(room, mechanism=tested.without_test())
    again = _Run(
        plain,
        run.queries,
        key=after_fail_key(key),
        most=most,
        n_labels=None,
        batch=after_batch,
        may_stop=True,
    )
    again.ask(labels.rows, plain.mechanism, None, progress=progress)
    if not (again.releases or again.n_lost):
        return replace(labels, passed=False, stopped_by="the budget")  # which pays for no row again
    return replace(again.labels(), n_lost=run.n_lost + again.n_lost, passed=False)


def after_fail_key(key: str) -> str:
    """Return what the keys of rows begin with that are asked again after a test failed.

    >>> after_fail_key("pool")
    'pool/full'
    """
    return f"{key}/full"


def require_one_batch(
    mechanism: Any, order: str, *, n_pool: int | None, n_queries: int | None, n_labels: int | None
) -> None:
    """Refuse what would ask before all votes of the one batch are in, or another number of queries."""
    name, size = type(mechanism).__name__, int(mechanism.n_queries)
    if order == "active":
        raise ValueError(
            f"Expected an order that is known beforehand for {name}, got order='active': a label that is "
            "released before the test voids it. Take given, shuffled or typical."
        )
    if n_labels is not None:
        raise ValueError(
            f"Expected no number of labels to stop at for {name}, got {n_labels}: all of its queries are "
            "asked at once. Leave it out."
        )
    if n_queries not in (None, size):
        raise ValueError(
            f"Expected {size} queries, the batch that {name} was planned for, got n_queries={n_queries}. "
            "Leave it out, or plan for that number."
        )
    if n_pool is not None and n_pool < size:
        raise ValueError(
            f"Expected a pool of at least {size} rows, the batch that {name} was planned for, got {n_pool}. "
            "Plan for fewer queries."
        )


def check_asking(order: str, **counts: int | None) -> None:
    """Refuse an order that is none, and numbers that count nothing; None sets no limit."""
    if order not in ORDERS:
        raise ValueError(f"Expected order to be one of {', '.join(ORDERS)}, got {order!r}.")
    require_count(**{name: n for name, n in counts.items() if n is not None})


def pool_order(X_pool: Any, order: Order, *, seed: int) -> Indices:
    """Return the rows of a pool in the order in which `label_pool` takes them, students aside.

    What is typical is decided on features of the same spread.
    """
    n_pool = count_rows(X_pool)
    if order == "given":
        return np.arange(n_pool, dtype=np.int64)
    if order == "typical":
        return typical_first(same_spread(X_pool), seed=seed)
    return np.random.default_rng(seed).permutation(n_pool).astype(np.int64)


def most_expected(
    n_queries: int, *mechanisms: Mechanism | None, after_fail: AfterFail = "stop", **counts: int
) -> RdpCurve:
    """Return the price of so many queries, of whichever mechanism is dearer at each order.

    Known before the first question is asked, it may be stated whatever comes out. `counts` are the numbers of
    teachers and classes that a price may go by. Where a batch is asked again at the full price after it
    failed its test, that path is one of those that count.

    Guarantee: no path costs more, at any order: the batch passes, or its test and the full price are paid.
    Assumes:   after a test that failed no row is asked more than once again.
    Reference: Feldman and Zrnic 2021: at each order charges that add up to at most a fixed value; see
               "A tested release".
    """
    used = [mechanism for mechanism in mechanisms if mechanism is not None]
    prices = [price_of(mechanism, Unit(), n_queries, **counts) for mechanism in used]
    if after_fail == "full price":
        prices += [price_after_fail(one, n_queries, **counts) for one in used if is_one_batch(one)]
    # A curve alone: what prices add to delta is set aside, and no part of an epsilon.
    return RdpCurve.largest(prices)


def price_after_fail(tested: Any, n_queries: int, **counts: int) -> RdpCurve:
    """Return what a test that failed costs together with all of its queries at the full price.

    >>> from tellers.mechanisms import TestedGNMax
    >>> tested = TestedGNMax(
    ...     40.0, clear_cost=0.5, test_sigma=5.0, held_at=13.0, test_delta=2e-6, n_queries=461)
    >>> plain = price_of(tested.without_test(), Unit(), 461)
    >>> bool((price_after_fail(tested, 461).values > plain.values).all())
    True
    """
    failed: RdpCurve = tested.fail_price(Unit(), n_queries)
    return failed + price_of(tested.without_test(), Unit(), n_queries, **counts)


def guaranteed_epsilon(
    ledger: Ledger,
    accountant: Accountant,
    *,
    most: RdpCurve | None,
    account: str | None = None,
    besides: str | None = None,
) -> float:
    """Return the epsilon that may be stated for all releases on a ledger, or for an account's part in them.

    `most` is the price of everything that could be asked, if that was fixed before the first release and
    covers all of the ledger; None where others use it too, or settings were chosen after a look at earlier
    answers. Then the statement is the budget. Otherwise, where every query cost the same, it is the epsilon
    of what was spent; where a cost depends on the outcome (silence is cheaper than an answer), what was spent
    is itself an outcome, and `most` or the budget stands. Entries whose key begins with `besides` are left
    out of it: what publishing a cost took is told apart.

    Guarantee: all releases on the ledger together are (epsilon, budget.delta)-differentially private.
    Assumes:   `most` is what it is said to be.
    Reference: Feldman and Zrnic 2021: what a filter states is its budget; see "Composition, filters".
    """
    if most is None:
        return accountant.budget.epsilon
    counted = [e for e in ledger.entries() if besides is None or not e.key.startswith(besides)]
    kinds = {canonical({name: entry.event.get(name) for name in _PRICED_BY}) for entry in counted}
    one_price = len(kinds) < 2 and all(map(_has_one_price, map(json.loads, kinds)))
    told_apart = len(counted) < len(ledger.entries())
    spent = sum((e.charged for e in counted), start=RdpCurve.zero()) if told_apart else ledger.spent
    if account is not None:
        spent = ledger.accounts()[account].spent
    return accountant.guarantee(spent, most=most, one_price=one_price)


# What the price of a question goes by, as its event has it.
_PRICED_BY = ("mechanism", "parameters", "n_teachers", "n_classes")


def _has_one_price(event: Mapping[str, Any]) -> bool:
    """Say whether every query of an event costs the same, whatever comes out."""
    kind = EVENTS.get(str(event["mechanism"]))
    if kind is None or getattr(kind, "one_price", False):
        return kind is not None  # what a stranger's mechanism costs is not known from its name
    known = {name: event[name] for name in ("n_teachers", "n_classes") if event[name] is not None}
    try:
        return has_one_price(kind(**(event["parameters"] or {})), Unit(), **known)
    except (TypeError, ValueError):
        return False  # its parameters are not those of this version


def _require_student(
    mechanism: Mechanism, student: Any | None, *, order: str, warm_up: Mechanism | None
) -> None:
    """Refuse a student that cannot take part in the asking, or one that would begin without answers."""
    hears, name = listens(mechanism), type(mechanism).__name__
    if student is None:
        why = "the active order" if order == "active" else name
        raise TypeError(f"Expected a student, an estimator to teach between rounds, for {why}, got none.")
    if hears != (warm_up is not None):
        wanted = "a mechanism for the first queries (warm_up)" if hears else "no warm_up"
        raise TypeError(
            f"Expected {wanted} with {name}, got {type(warm_up).__name__}. A student that was taught "
            "nothing yet cannot speak; ConfidentGNMax with the same noise is the usual choice."
        )
    if hears and not hasattr(student, "predict_proba"):
        raise TypeError(
            f"Expected a student with predict_proba for {name}, got {type(student).__name__}. "
            "An interactive mechanism asks how sure the student is of each class."
        )
    if not any(hasattr(student, how) for how in ("predict_proba", "decision_function")):
        raise TypeError(
            "Expected a student with predict_proba or decision_function for the active order, got "
            f"{type(student).__name__}. Take one that can say how sure it is, or another order."
        )


@dataclass
class _Run:
    """One pass over the pool, as far as it has come."""

    room: Room
    queries: Any
    key: str
    most: int
    n_labels: int | None
    batch: int
    next_room: NextRoom | None = None
    may_stop: bool = False
    affordable: int = 0
    n_asked: int = 0
    n_lost: int = 0
    stopped_by: StoppedBy | None = None
    rows: list[Indices] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)

    @property
    def n_answered(self) -> int:
        return sum(_n_answered(release.answered) for release in self.releases)

    def ask(
        self, rows: Indices, mechanism: Mechanism, belief: NDArray[Any] | None, *, progress: Progress | None
    ) -> None:
        """Ask for some rows, batch by batch, until they are through or something ends the run."""
        room, done = replace(self.room, mechanism=mechanism), 0
        while done < len(rows) and not self.stopped_by:
            key = f"{self.key}/{self.n_asked}"
            # What is on the books has the size it was asked with, whatever would be affordable now.
            known = room.ledger.asked(key)
            size = int(known["n_queries"]) if known else self._size(len(rows) - done)
            now = rows[done : done + size]
            try:
                student = None if belief is None else belief[done : done + size]
                release = room.ask(take_rows(self.queries, now), key=key, student=student)
            except BudgetExhausted:
                if is_one_batch(mechanism):
                    raise  # all of it or nothing
                self.affordable = max(1, size // 2)
                if size > 1:
                    continue
                after = None if self.next_room is None else self.next_room(room)
                if after is not None:
                    self.room, room, self.affordable = after, after, self.batch
                elif not self.n_asked and not self.may_stop:
                    raise  # not one query: there is nothing to go on with
                else:
                    self.stopped_by = "the budget"
                continue
            except KeyReused as error:
                raise KeyReused(
                    f"{error} What goes on under a key is the same run: the same pool, seed, order, "
                    "mechanism and student, which must learn again bit for bit what it learned (same "
                    "versions, same threads). Go on as it began, or begin under another key."
                ) from None
            except Unsettled:
                self.n_lost += len(now)
            else:
                self.rows.append(now)
                self.releases.append(release)
            done += size
            self.n_asked += size
            if progress is not None:
                progress(self.n_asked, self.most)
            if self.n_labels is not None and self.n_answered >= self.n_labels:
                self.stopped_by = "the number of labels"
            elif self.n_asked >= self.most:
                at_end = self.most == count_rows(self.queries)
                self.stopped_by = "the end of the pool" if at_end else "the number of queries"

    def _size(self, n_left: int) -> int:
        size = min(self.affordable or self.batch, n_left, self.most - self.n_asked)
        # A query is answered once at most, so this never overshoots.
        return size if self.n_labels is None else min(size, self.n_labels - self.n_answered)

    def teach(self, estimator: Any, X_pool: Any, *, seed: np.random.Generator) -> Any | None:
        """Return a student of all answers so far, or None while they do not hold two classes."""
        answers = self.labels()
        n_least = 1 if is_multilabel(self.room.mechanism) else 2
        if np.unique(answers.labels[answers.labels != SILENT]).size < n_least:
            return None
        return fit_supervised(estimator, take_rows(X_pool, answers.rows), answers.labels, seed=seed)

    def labels(self) -> Labels:
        """Return everything that came out so far."""
        none: Indices = np.empty(0, dtype=np.int64)
        mechanism = self.room.mechanism
        shape = (0, getattr(mechanism, "n_labels", 0)) if is_multilabel(mechanism) else (0,)
        blank: Indices = np.empty(shape, dtype=np.int64)
        values = [release.values for release in self.releases if release.values is not None]
        return Labels(
            rows=np.concatenate([none, *self.rows]),
            labels=np.concatenate([blank, *(release.labels for release in self.releases)]),
            by_teachers=np.concatenate(
                [blank.astype(np.bool_), *(release.answered for release in self.releases)]
            ),
            values=np.concatenate(values) if values else None,
            n_lost=self.n_lost,
            stopped_by=self.stopped_by or "the end of the pool",
        )


def _n_answered(told: NDArray[np.bool_]) -> int:
    return int((told if told.ndim == 1 else told.any(axis=1)).sum())


def _belief(student: Any, X: Any, room: Room) -> NDArray[np.float64]:
    """Return the student's probabilities with a column for every class, also those it was never taught."""
    n_classes = getattr(room.ensemble, "n_classes", None)
    if n_classes is None:
        raise TypeError(
            f"Expected an ensemble with n_classes for {type(room.mechanism).__name__}, "
            f"{type(room.ensemble).__name__} has none. The student speaks of every class."
        )
    belief = spread_columns(student.predict_proba(X), student, n_classes=int(n_classes), never_met=0.0)
    return np.asarray(belief / belief.sum(axis=1, keepdims=True))
