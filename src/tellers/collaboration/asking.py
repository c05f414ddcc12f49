"""One asker's turn, in the clear: who answers, what it is charged, what is decided.

The labels are those of a confidential query with the same votes and the same noise: the tally is decided by
`tellers.parties.last_step`, after every answering party has written the price on its own books.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..label_votes import LabelVotes
from ..ledger import MemoryLedger
from ..mechanisms.labels import GNThreshold
from ..noise import Noise
from ..parties.books import charge_query, query_price
from ..parties.last_step import decide, draw
from ..students.active import least_confident
from ..votes import Votes
from .members import Integers, Member, member_votes, voters_of

ORDERS = ("random", "uncertain")


def answering(members: Sequence[Member], asker: Member) -> tuple[Member, ...]:
    """Return who answers an asker: everybody else, as nobody votes on its own questions.

    >>> two = [Member(name, np.zeros((1, 1)), np.zeros(1, dtype=np.int64), None) for name in ("ann", "bea")]
    >>> answering(two, two[0])
    (Member(name='bea', labels=None),)
    """
    others = tuple(member for member in members if member.name != asker.name)
    if not others:
        raise ValueError(f"Expected somebody besides {asker.name!r} to answer, got nobody.")
    return others


def tally(members: Sequence[Member], X: NDArray[Any], *, mechanism: Any, n_outputs: int) -> Integers:
    """Return the sum of the members' votes, queries x outputs, as the mechanism counts them; private.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from tellers import GNMax
    >>> from tellers.collaboration.members import deal_members
    >>> rows = np.random.default_rng(7).normal(size=(90, 2))
    >>> dealt = deal_members(rows, (rows[:, 0] > 0).astype(int), 3, estimator=LogisticRegression(), seed=7)
    >>> tally(dealt, np.array([[2.0, 0.0], [-2.0, 0.0]]), mechanism=GNMax(sigma=1.0), n_outputs=2)
    array([[0, 3],
           [3, 0]])
    """
    return counted(member_votes(members, X, n_outputs=n_outputs), mechanism)


def counted(votes: Votes | LabelVotes, mechanism: Any) -> Integers:
    """Return the tally of votes as the mechanism counts them, with its cap on labels; private.

    >>> from tellers.mechanisms.labels import GNThreshold
    >>> votes = LabelVotes.from_ballots([[[1, 1]], [[0, 1]]], n_labels=2)
    >>> counted(votes, GNThreshold(sigma=1.0, n_labels=2, max_labels=1))
    array([[1, 1]])
    """
    if isinstance(votes, LabelVotes):
        return np.asarray(mechanism.fitted_sums(votes), dtype=np.int64)
    return np.asarray(votes.counts, dtype=np.int64)


def ask_members(
    asker: Member,
    X: NDArray[Any],
    *,
    members: Sequence[Member],
    mechanism: Any,
    books: Mapping[str, MemoryLedger],
    noise: Noise,
    n_outputs: int,
    key: str,
) -> Integers:
    """Return what an asker is told about rows: charged to all who answer, then drawn, then decided.

    Guarantee: what is written on a party's books covers its records against everybody who sees any of the
               answers, whatever the votes; a party that cannot pay stops the question before anyone is
               charged.
    Assumes:   members' rows are disjoint, and so are people; each asks others with the model of its own rows.
    Reference: Choquette-Choo et al. 2021 (CaPC), steps 1 to 3; the price as in `parties.books`.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, noise
    >>> from tellers.collaboration.members import deal_members
    >>> rows = np.random.default_rng(7).normal(size=(90, 2))
    >>> dealt = deal_members(rows, (rows[:, 0] > 0).astype(int), 9, estimator=LogisticRegression(), seed=7)
    >>> books = {m.name: MemoryLedger(Accountant(Budget(epsilon=20.0, delta=1e-5))) for m in dealt}
    >>> how = {"mechanism": GNMax(sigma=1.0), "books": books, "n_outputs": 2, "key": "first"}
    >>> asked = np.array([[2.0, 0.0], [-2.0, 0.0]])
    >>> ask_members(dealt[0], asked, members=dealt, noise=noise.secure(), **how)
    array([1, 0])
    >>> [len(books[name].entries()) for name in ("party-01", "party-02", "party-09")]
    [0, 1, 1]
    """
    others = answering(members, asker)
    charge_members(asker, others, n_queries=len(X), mechanism=mechanism, books=books, noise=noise, key=key)
    counts = tally(others, X, mechanism=mechanism, n_outputs=n_outputs)
    return tell(counts, others, mechanism=mechanism, noise=noise)


def tell(counts: Integers, others: Sequence[Member], *, mechanism: Any, noise: Noise) -> Integers:
    """Return what is decided on a tally that was paid for: the mechanism's noise, then its last step.

    Guarantee: the law of `mechanism.release` on the same votes; only ties are broken by other draws.
    Assumes:   the price is on the books (`charge_members`), and the same votes are not told twice for it.
    Reference: `tellers.parties.last_step`, which the guardian and the asker of a confidential query compute.

    >>> from tellers import GNMax, noise
    >>> bea = Member("bea", np.zeros((1, 1)), np.zeros(1, dtype=np.int64), None)
    >>> tell(np.array([[0, 90, 10]]), [bea] * 100, mechanism=GNMax(sigma=2.0), noise=noise.secure())
    array([1])
    """
    # There is one room, and so there are no masks.
    masks = np.zeros(counts.shape, dtype=np.int64)
    step = draw(mechanism, masks, n_answering=len(others), noise=noise, voters=voters_of(others))
    return decide(step, counts)


def charge_members(
    asker: Member, others: Sequence[Member], *, n_queries: int, mechanism: Any,
    books: Mapping[str, MemoryLedger], noise: Noise, key: str,
) -> None:  # fmt: skip
    """Write a question on the books of everybody who answers it, or on nobody's.

    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, noise
    >>> two = [Member(name, np.zeros((1, 1)), np.zeros(1, dtype=np.int64), None) for name in ("ann", "bea")]
    >>> books = {"bea": MemoryLedger(Accountant(Budget(epsilon=1.0, delta=1e-5)))}
    >>> how = {"mechanism": GNMax(sigma=1.0), "books": books, "noise": noise.secure(), "key": "first"}
    >>> charge_members(two[0], two[1:], n_queries=500, **how)
    Traceback (most recent call last):
        ...
    tellers.errors.BudgetExhausted: Query 'first' would take epsilon to ..., past the budget of 1.0. ...
    """
    prices = {other.name: query_price(moved_by(mechanism, other), n_queries) for other in others}
    # All are asked first: one that cannot pay must not leave the others charged for nothing.
    for other in others:
        ledger = books[other.name]
        ledger.accountant.require(ledger.spent, prices[other.name], key=key)
    names = tuple(other.name for other in others)
    for other in others:
        charge_query(
            books[other.name], key, mechanism=mechanism, noise=noise, n_queries=n_queries, asker=asker.name,
            parties=names, price=prices[other.name],
        )  # fmt: skip


def moved_by(mechanism: Any, member: Member) -> Any:
    """Return the mechanism on the labels that a member knows: that is all of it that the member can move.

    Guarantee: the price of the mechanism that is returned covers the member's records.
    Assumes:   which labels a member knows is declared, so it is the same for neighbouring rows, and public;
               on the others it abstains.
    Reference: labels have noise of their own, so the divergence is that of the labels whose sums can differ.

    >>> from tellers import Binary
    >>> half = Member("ann", np.zeros((1, 1)), np.array([[0, 1, -1, -1]]), None, labels=(0, 1))
    >>> moved_by(Binary(sigma=9.0, n_labels=4), half)
    Binary(sigma=9.0, n_labels=2, resolution=1)
    """
    knows = member.knows
    if knows.all() or not knows.any():
        return mechanism
    changes: dict[str, Any] = {"n_labels": int(knows.sum())}
    if isinstance(mechanism, GNThreshold):
        changes["max_labels"] = min(mechanism.max_labels, changes["n_labels"])
        if isinstance(mechanism.share, tuple):
            changes["share"] = tuple(np.asarray(mechanism.share)[knows].tolist())
    return replace(mechanism, **changes)


def choose_rows(asker: Member, X_pool: NDArray[Any], n: int, *, order: str, seed: int) -> Integers:
    """Return which rows of its pool an asker asks about, in order: at random, or where it is least sure.

    Where it is least sure depends on the asker's own rows; in a confidential query nobody else sees it.

    >>> one = Member("ann", np.zeros((1, 1)), np.zeros(1, dtype=np.int64), None)
    >>> choose_rows(one, np.zeros((5, 1)), 3, order="random", seed=7).size
    3
    """
    if order not in ORDERS:
        raise ValueError(f"Expected order to be one of {', '.join(ORDERS)}, got {order!r}.")
    if order == "random" or not hasattr(asker.model, "predict_proba"):
        return np.random.default_rng(seed).permutation(len(X_pool))[:n]
    if asker.y.ndim == 1:
        return np.asarray(least_confident(asker.model, X_pool, n), dtype=np.int64)
    chances = asker.model.predict_proba(X_pool)
    return np.argsort(np.abs(chances - 0.5).mean(axis=1), kind="stable")[:n]
