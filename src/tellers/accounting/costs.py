"""What a batch of votes cost: the number anyone may know, and those that stay with the operator.

The public number is what a ledger charges: the price of every query, added up at each Rényi order. Other ways
to add up stand beside it under names of their own; no ledger goes by them. The private numbers, the exact
cost and the published data-dependent bound, look at the votes and come out sealed.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..mechanisms._check import student_probabilities
from ..mechanisms.base import Mechanism, listens
from ..mechanisms.labels._published import published_label_cost
from ..mechanisms.registry import answers_of
from ..privacy.rdp import Floats, RdpCurve, check_orders
from ..privacy.sealed import Sealed
from ..privacy.votes import LabelVotes, Votes, require_votes_on
from .exact import Progress, exact_cost
from .public import (
    Afforded,
    ComparedCost,
    PublicCost,
    budget_for,
    compared_costs,
    first_answers,
    public_cost,
    stated_cost,
)

Kind = Literal["realised", "expected", "bound"]


@dataclass(frozen=True)
class PrivateCost:
    """The data-dependent epsilons of a run. Private: for the operator's eyes, and sealed in an `Account`.

    A published number is None where no paper has one for the mechanism.

    `per` says whether the exact cost follows each teacher or adds up each query's worst ballot, and
    `bound_because` why it is an upper bound, where it is one. `kind` says what the published number is: along
    the path that was taken, in expectation, or of a run without checks.
    """

    exact_epsilon: float
    exact_order: float
    per: Literal["teacher", "query"]
    published_epsilon: float | None
    published_order: float | None
    published_classic: float | None
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
    mechanism: Mechanism,
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
    notes += [mechanism.note] if hasattr(mechanism, "note") else []
    sealed = None
    if private and not hasattr(mechanism, "outcomes"):
        notes.append(_why_no_private_number(mechanism))
    elif private:
        if beliefs is not None:
            notes.append(
                "An interactive check depends on earlier answers through the student, so the private costs "
                "are sums along the path that was taken, not bounds over all paths. The public number has no "
                "such caveat."
            )
        exact = exact_cost(mechanism, votes, orders=grid, student=beliefs, progress=progress)
        if exact.bound_because:
            notes.append(f"The exact cost is an upper bound here: {exact.bound_because}.")
        exact_epsilon, exact_order = exact.cost.reveal().epsilon_and_order(delta)
        published = None
        if _has_published(mechanism):
            bound = published_cost(mechanism, votes, orders=grid, student=beliefs, answered=mask)
            published = RdpCurve(grid, bound)
        else:
            notes.append(f"There is no published bound for {type(mechanism).__name__}.")
        epsilon = order = classic = None
        if published is not None:
            epsilon, order = published.epsilon_and_order(delta)
            classic = published.epsilon(delta, conversion="classic")
        sealed = Sealed(
            PrivateCost(
                exact_epsilon=exact_epsilon,
                exact_order=exact_order,
                per=exact.per,
                published_epsilon=epsilon,
                published_order=order,
                published_classic=classic,
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
    """
    if not _has_published(mechanism):
        raise TypeError(
            f"Expected a mechanism with a bound that a paper printed, got {type(mechanism).__name__}. Other "
            "mechanisms are charged mechanism.price(unit) per query."
        )
    asked: Any = mechanism
    if isinstance(votes, LabelVotes):
        return published_label_cost(asked, votes, orders=orders, answered=answered, total=True)
    context = {"student": student} if listens(mechanism) else {}
    return np.asarray(asked.published(votes, orders=orders, answered=answered, **context))


def _has_published(mechanism: object) -> bool:
    return hasattr(mechanism, "published") or hasattr(mechanism, "published_rows")


def _why_no_private_number(mechanism: object) -> str:
    name = type(mechanism).__name__
    if getattr(mechanism, "releases_counts", False):
        return f"All votes cost the same under {name}: there is no private number."
    return f"{name} does not say how likely its outcomes are: there is no exact cost, and no private number."


def _require_fitting(mechanism: object, votes: object) -> None:
    if isinstance(votes, Votes):
        require_votes_on(answers_of(mechanism), votes, type(mechanism).__name__)


def _kind(mechanism: object, mask: NDArray[np.bool_] | None) -> Kind:
    if getattr(mechanism, "one_price", False):
        return "bound"
    return "expected" if mask is None else "realised"


def _student(
    mechanism: object, votes: Votes | LabelVotes, student: ArrayLike | None, notes: list[str]
) -> NDArray[np.float64] | None:
    if listens(mechanism):
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
