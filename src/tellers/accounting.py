"""What a batch of votes cost: the number anyone may know, and those that stay with the operator.

The public number is what a ledger charges: the price of every query, added up at each Rényi order. Other ways
to add up stand beside it under names of their own; no ledger goes by them. The private numbers, the exact
cost and the published data-dependent bound, look at the votes and come out sealed.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import bounds
from .exact import Progress, exact_cost
from .label_bounds import LabelMechanism, published_label_cost
from .label_votes import LabelVotes
from .mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Mechanism
from .mechanisms.interactive import student_probabilities
from .mechanisms.labels import AdaptiveGNThreshold, ConfidentGNThreshold, ConfidentTau, GNThreshold, Tau
from .public_costs import (
    Afforded,
    ComparedCost,
    PublicCost,
    budget_for,
    compared_costs,
    first_answers,
    public_cost,
    stated_cost,
)
from .rdp import Floats, RdpCurve, check_orders
from .sealed import Sealed
from .votes import Votes

Kind = Literal["realised", "expected", "bound"]


@dataclass(frozen=True)
class PrivateCost:
    """The data-dependent epsilons of a run. Private: for the operator's eyes, and sealed in an `Account`.

    `per` says whether the exact cost follows each teacher or adds up each query's worst ballot, and
    `bound_because` why it is an upper bound, where it is one. `kind` says what the published number is: along
    the path that was taken, in expectation, or of a run without checks.

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    >>> costs = account(GNMax(sigma=40.0), votes, delta=1e-5).private.reveal()
    >>> costs.exact_epsilon <= costs.published_epsilon <= costs.published_classic, costs.per, costs.kind
    (True, 'query', 'bound')
    """

    exact_epsilon: float
    exact_order: float
    per: Literal["teacher", "query"]
    published_epsilon: float
    published_order: float
    published_classic: float
    kind: Kind
    bound_because: str = ""


@dataclass(frozen=True, eq=False)
class Account:
    """The books of one run: all may be shown but `private`, which is sealed and absent unless asked for.

    `public` is what a run that asks these queries states: with a budget, within it. `charged` is what its
    ledger has on the books if the answers are those of `answered`, and no guarantee by itself; `one_price`
    says that silence is no cheaper. `budget_needed` is the smallest budget whose ledger pays for all queries,
    whatever comes out. `compared` are other ways to add up, smallest first. `n_answered` is None
    where every query is charged an answer. Where a query has many labels, `n_labels` says how many, and
    `n_answered` counts labels.
    """

    n_queries: int
    n_teachers: int
    n_answered: int | None
    delta: float
    public: PublicCost
    charged: PublicCost | None
    compared: tuple[ComparedCost, ...]
    private: Sealed[PrivateCost] | None
    notes: tuple[str, ...] = ()
    n_labels: int | None = None
    afforded: Afforded | None = None
    one_price: bool = False
    budget_needed: float = 0.0


def account(
    mechanism: Mechanism | LabelMechanism,
    votes: Votes | LabelVotes,
    *,
    delta: float,
    budget: float | None = None,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    answered: ArrayLike | None = None,
    private: bool = True,
    progress: Progress | None = None,
) -> Account:
    """Return what releasing these votes through this mechanism costs.

    `answered` has one True or False per query, and per label where there are many. With a `budget` (epsilon)
    the public number is that of a ledger which holds it. `orders` are for the private numbers: the public
    one is at the orders of a ledger.

    Guarantee: `public` holds for any votes. The exact cost covers the whole outcome space, answers and
               silence, whatever `answered` says.
    Assumes:   the number of queries, or the budget, was fixed before the run; the list of queries was fixed
               too, as far as the private costs are concerned.
    Reference: see `public_cost`, `exact.exact_cost` and `bounds`.

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_counts([[240, 10], [130, 120]], n_teachers=250)
    >>> books = account(GNMax(sigma=40.0), votes, delta=1e-5)
    >>> books.public.method, round(books.public.epsilon, 2), books.private
    ('argmax-rdp', 0.15, Sealed(<private>))
    """
    grid = check_orders(orders)
    _require_fitting(mechanism, votes)
    notes: list[str] = []
    beliefs = _student(mechanism, votes, student, notes)
    mask = _answered(mechanism, votes, answered, notes)
    told = None if mask is None else mask if mask.ndim == 1 else mask.sum(axis=1)
    public, afforded = stated_cost(mechanism, len(votes), delta=delta, budget=budget, told=told)
    n_asked = len(votes) if afforded is None else afforded.n_queries
    charged = None
    if told is not None:
        charged = public_cost(mechanism, n_asked, delta=delta, n_answered=first_answers(told, n_asked))
    compared = compared_costs(mechanism, n_asked, delta=delta)
    sealed = None
    notes += _label_notes(mechanism)
    if private and not hasattr(mechanism, "outcomes"):
        notes.append(f"All votes cost the same under {type(mechanism).__name__}: there is no private number.")
    elif private:
        if isinstance(mechanism, InteractiveGNMax):
            notes.append(
                "An interactive check depends on earlier answers through the student, so the private costs "
                "are sums along the path that was taken, not bounds over all paths. The public number has no "
                "such caveat."
            )
        any_kind: Any = mechanism
        exact = exact_cost(any_kind, votes, orders=grid, student=beliefs, progress=progress)
        if exact.bound_because:
            notes.append(f"The exact cost is an upper bound here: {exact.bound_because}.")
        exact_epsilon, exact_order = exact.cost.reveal().epsilon_and_order(delta)
        bound = published_cost(mechanism, votes, orders=grid, student=beliefs, answered=mask)
        published = RdpCurve(grid, bound)
        published_epsilon, published_order = published.epsilon_and_order(delta)
        sealed = Sealed(
            PrivateCost(
                exact_epsilon=exact_epsilon,
                exact_order=exact_order,
                per=exact.per,
                published_epsilon=published_epsilon,
                published_order=published_order,
                published_classic=published.epsilon(delta, conversion="classic"),
                kind=_kind(mechanism, mask),
                bound_because=exact.bound_because,
            )
        )
    return Account(
        n_queries=len(votes),
        n_teachers=votes.n_teachers,
        n_answered=None if told is None else int(told.sum()),
        delta=delta,
        public=public,
        charged=charged,
        compared=compared,
        private=sealed,
        notes=tuple(notes),
        n_labels=votes.n_labels if isinstance(votes, LabelVotes) else None,
        afforded=afforded,
        one_price=bool(getattr(mechanism, "one_price", False)),
        budget_needed=budget_for(mechanism, len(votes), delta=delta),
    )


def published_cost(
    mechanism: object,
    votes: Votes | LabelVotes,
    *,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    answered: ArrayLike | None = None,
) -> Floats:
    """Return the papers' data-dependent bound of a run, one Rényi value per order: private.

    With `answered` the checks of all queries and the answers that were given, along the path that was taken;
    without it answers are weighted by their probability, an expectation.

    Guarantee: as `bounds`, for the forward direction and for the continuous noise of the papers.
    Assumes:   as `bounds`.
    Reference: Papernot et al. 2017, Theorem 3; Papernot et al. 2018, Theorem 6.

    >>> from tellers import GNMax, Votes
    >>> votes = Votes.from_counts([[250, 0], [130, 120]], n_teachers=250)
    >>> published_cost(GNMax(sigma=40.0), votes, orders=[8]).round(6)
    array([0.005003])
    """
    if isinstance(votes, LabelVotes):
        labels: Any = mechanism
        return published_label_cost(labels, votes, orders=orders, answered=answered, total=True)
    if isinstance(mechanism, LNMax):
        return bounds.published_lnmax(votes, mechanism.gamma, orders=orders, total=True)
    if isinstance(mechanism, GNMax):
        return bounds.published_gnmax(votes, mechanism.sigma, orders=orders, total=True)
    if isinstance(mechanism, (ConfidentGNMax, InteractiveGNMax)):
        return bounds.published_confident(
            votes,
            mechanism.sigma,
            threshold=mechanism.threshold,
            sigma_threshold=mechanism.sigma_threshold,
            student=student,
            answered=answered,
            orders=orders,
            total=True,
        )
    raise _unknown(mechanism)


def _label_notes(mechanism: object) -> list[str]:
    notes = []
    if isinstance(mechanism, (Tau, ConfidentTau)):
        notes.append(
            "The multi-winner paper charges tau voting max_norm^2 order / sigma^2 per query. Two ballots "
            "without a common label are twice as far apart, so that does not hold and is not used here."
        )
    if isinstance(mechanism, (GNThreshold, ConfidentGNThreshold, AdaptiveGNThreshold)):
        notes.append(
            "The thesis behind this mechanism charges only the labels that a training sample has. A changed "
            "sample can move every label, or as many as max_labels lets a ballot have: these are charged."
        )
    return notes


def _require_fitting(mechanism: object, votes: object) -> None:
    wanted, other = ("LabelVotes", Votes) if isinstance(mechanism, LabelMechanism) else ("Votes", LabelVotes)
    if isinstance(votes, other):
        raise TypeError(f"Expected {wanted} for {type(mechanism).__name__}, got {other.__name__}.")


def _kind(mechanism: object, mask: NDArray[np.bool_] | None) -> Kind:
    if getattr(mechanism, "one_price", False):
        return "bound"
    return "expected" if mask is None else "realised"


def _student(
    mechanism: object, votes: Votes | LabelVotes, student: ArrayLike | None, notes: list[str]
) -> NDArray[np.float64] | None:
    if isinstance(mechanism, InteractiveGNMax):
        if student is None:
            raise ValueError(
                "Expected the student's probabilities (queries x classes) for the interactive check, got "
                "none. Save them in the vote file as 'student'."
            )
        any_votes: Any = votes
        return student_probabilities(student, any_votes)
    if student is not None:
        name = type(mechanism).__name__
        notes.append(f"The student's probabilities were not used: {name} does not look at them.")
    return None


def _answered(
    mechanism: object, votes: Votes | LabelVotes, answered: ArrayLike | None, notes: list[str]
) -> NDArray[np.bool_] | None:
    if answered is None:
        return None
    if getattr(mechanism, "one_price", False):
        notes.append(f"The mask 'answered' was not used: {type(mechanism).__name__} answers every query.")
        return None
    mask = np.asarray(answered)
    shape = votes.sums.shape if isinstance(votes, LabelVotes) else (len(votes),)
    if mask.dtype != np.bool_ or mask.shape != shape:
        each = f"{len(votes)} queries" + (f" and {shape[1]} labels" if len(shape) > 1 else "")
        raise ValueError(
            f"Expected answered with one True or False for each of {each}, "
            f"got shape {mask.shape} of {mask.dtype}."
        )
    notes.append(
        f"{int(mask.sum())} answers are charged, as the mask 'answered' says. How many there are is itself "
        "an outcome: what may be stated is the public epsilon, in which every query is answered, or the "
        "budget of the ledger, if one was fixed before the run and is smaller."
    )
    return mask


def _unknown(mechanism: object) -> TypeError:
    return TypeError(
        "Expected LNMax, GNMax, ConfidentGNMax, InteractiveGNMax or a mechanism of many labels, "
        f"got {type(mechanism).__name__}. Other mechanisms are charged mechanism.price(unit) per query."
    )
