"""What a batch of votes cost: the numbers anyone may know, and those that stay with the operator.

The public number is the smallest of several that hold whatever the votes were. The private ones, the
exact cost and the published data-dependent bound, look at the votes and come out sealed.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import bounds
from .errors import require_count, require_fraction
from .exact import Progress, exact_cost
from .gaussian_dp import (
    discrete_gaussian_pld_epsilon,
    gaussian_dp_epsilon,
    gaussian_dp_mu,
    has_pld,
    pure_dp_epsilon,
)
from .label_bounds import LabelMechanism, plain_cost, published_label_cost
from .label_votes import LabelVotes
from .mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax
from .mechanisms.interactive import student_probabilities
from .mechanisms.labels import AdaptiveGNThreshold, ConfidentGNThreshold, ConfidentTau, GNThreshold, Tau
from .publishable import independent_cost
from .rdp import Floats, RdpCurve, check_orders
from .sealed import Sealed
from .votes import Votes

Known = LNMax | GNMax | ConfidentGNMax | InteractiveGNMax | LabelMechanism
Method = Literal[
    "argmax-rdp", "histogram-rdp", "histogram-pld", "histogram-gdp", "pure-dp-rdp", "pure-dp-exact",
    "labels-rdp", "sums-rdp", "sums-gdp",
]  # fmt: skip
Kind = Literal["realised", "expected", "bound"]


@dataclass(frozen=True)
class PublicCost:
    """An epsilon that does not depend on the votes, how it was added up, and the Rényi order, if any.

    `holds` says whether it covers the noise that is drawn. Gaussian DP is for continuous noise: it is
    there to compare with.
    """

    method: Method
    epsilon: float
    order: float | None = None
    holds: bool = True


@dataclass(frozen=True)
class PrivateCost:
    """The data-dependent epsilons of a run. Private: for the operator's eyes, and sealed in an `Account`.

    `per` says whether the exact cost follows each teacher or adds up each query's worst ballot. `kind` says
    what the published number is: along the path that was taken, in expectation, or of a run without checks.

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


@dataclass(frozen=True, eq=False)
class Account:
    """The books of one run: `public` may be shown, `private` is sealed and absent unless asked for.

    `candidates` holds every data-independent epsilon that was computed, smallest first, `public` among
    them; `n_answered` is None where every query is charged an answer. Where a query has many labels,
    `n_labels` says how many, and `n_answered` counts labels.
    """

    n_queries: int
    n_teachers: int
    n_answered: int | None
    delta: float
    public: PublicCost
    candidates: tuple[PublicCost, ...]
    private: Sealed[PrivateCost] | None
    notes: tuple[str, ...] = ()
    n_labels: int | None = None


def account(
    mechanism: Known,
    votes: Votes | LabelVotes,
    *,
    delta: float,
    orders: ArrayLike | None = None,
    student: ArrayLike | None = None,
    answered: ArrayLike | None = None,
    private: bool = True,
    progress: Progress | None = None,
) -> Account:
    """Return what releasing these votes through this mechanism costs.

    `answered` has one True or False per query, and per label where there are many.

    Guarantee: `public` holds for any votes. The exact cost covers the whole outcome space, answers and
               silence, whatever `answered` says.
    Assumes:   with `answered`, that a cap on the answers, or a budget, was fixed before the run; the list
               of queries was fixed too, as far as the private costs are concerned.
    Reference: see `public_costs`, `exact.exact_cost` and `bounds`.

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
    told = None if mask is None else mask.sum(axis=-1)
    n_answered = None if told is None else int(told.sum())
    costs = public_costs(mechanism, len(votes), delta=delta, orders=grid, n_answered=told)
    best = smallest(costs)
    notes += _missed(costs, best)
    sealed = None
    if private and isinstance(mechanism, InteractiveGNMax):
        notes.append(
            "An interactive check depends on earlier answers through the student, so the private costs are "
            "sums along the path that was taken, not bounds over all paths. The public number has no such "
            "caveat."
        )
    notes += _label_notes(mechanism, private=private)
    if private:
        any_kind: Any = mechanism
        exact = exact_cost(any_kind, votes, orders=grid, student=beliefs, progress=progress)
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
            )
        )
    n_labels = votes.n_labels if isinstance(votes, LabelVotes) else None
    return Account(
        len(votes), votes.n_teachers, n_answered, delta, best, costs, sealed, tuple(notes), n_labels
    )


def public_costs(
    mechanism: Known,
    n_queries: int,
    *,
    delta: float,
    orders: ArrayLike | None = None,
    n_answered: ArrayLike | None = None,
) -> tuple[PublicCost, ...]:
    """Return every data-independent epsilon of a run, smallest first.

    Every query is charged its check, where there is one, and an answer; with `n_answered` only so many
    answers, or, one number per query, so many of its labels.

    Guarantee: each one that `holds` is an epsilon at this delta for any votes, also for adaptive queries.
    Assumes:   one ballot changes per unit; `n_answered` is a cap fixed before the run.
    Reference: arg max and check: see "The price of an arg max"; histogram and pure privacy: `gaussian_dp`.

    >>> from tellers import GNMax
    >>> costs = public_costs(GNMax(sigma=40.0), 461, delta=1e-5)
    >>> [(c.method, round(c.epsilon, 2)) for c in costs if c.method != "histogram-pld"]
    [('argmax-rdp', 2.69), ('histogram-gdp', 3.19), ('histogram-rdp', 3.46)]
    """
    require_count(0, n_queries=n_queries)
    require_fraction(delta=delta)
    grid = check_orders(orders)
    if isinstance(mechanism, LNMax):
        costs = _laplace_costs(mechanism, n_queries, delta, grid)
    elif isinstance(mechanism, LabelMechanism):
        costs = _label_costs(mechanism, n_queries, n_answered, delta, grid)
    elif isinstance(mechanism, (GNMax, ConfidentGNMax, InteractiveGNMax)):
        answers = n_queries if n_answered is None else int(np.asarray(n_answered))
        require_count(0, n_answered=answers)
        costs = _gaussian_costs(mechanism, n_queries, answers, delta, grid)
    else:
        raise _unknown(mechanism)
    return tuple(sorted(costs, key=lambda cost: cost.epsilon))


def smallest(costs: tuple[PublicCost, ...]) -> PublicCost:
    """Return the smallest epsilon that holds for the noise that is drawn.

    >>> smallest((PublicCost("histogram-gdp", 1.0, holds=False), PublicCost("argmax-rdp", 1.1, 8.0))).method
    'argmax-rdp'
    """
    return min((cost for cost in costs if cost.holds), key=lambda cost: cost.epsilon)


def published_cost(
    mechanism: Known,
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


def _laplace_costs(mechanism: LNMax, n_queries: int, delta: float, grid: Floats) -> list[PublicCost]:
    rdp = independent_cost(mechanism, n_queries, orders=grid)
    # A ballot moves two counts by one, each with Laplace noise of its own: two gamma-private releases.
    exact = pure_dp_epsilon(mechanism.gamma, 2 * n_queries, delta=delta)
    return [PublicCost("pure-dp-exact", exact), PublicCost("pure-dp-rdp", *rdp.epsilon_and_order(delta))]


def _gaussian_costs(
    mechanism: GNMax | ConfidentGNMax | InteractiveGNMax,
    n_queries: int,
    n_answers: int,
    delta: float,
    grid: Floats,
) -> list[PublicCost]:
    sigma, sigma_threshold, n_checks = mechanism.sigma, 1.0, 0
    argmax = independent_cost(mechanism, n_queries, n_answers=n_answers, orders=grid)
    histogram = RdpCurve.zcdp(1 / sigma**2, grid) * n_answers
    if not isinstance(mechanism, GNMax):
        sigma_threshold, n_checks = mechanism.sigma_threshold, n_queries
        histogram = histogram + RdpCurve.zcdp(1 / (2 * sigma_threshold**2), grid) * n_checks
    mu = gaussian_dp_mu(sigma, n_answers, sigma_threshold=sigma_threshold, n_checks=n_checks)
    costs = [
        PublicCost("argmax-rdp", *argmax.epsilon_and_order(delta)),
        PublicCost("histogram-rdp", *histogram.epsilon_and_order(delta)),
        PublicCost("histogram-gdp", gaussian_dp_epsilon(mu, delta), holds=False),
    ]
    if has_pld():
        epsilon = discrete_gaussian_pld_epsilon(
            sigma, n_answers, delta=delta, sigma_threshold=sigma_threshold, n_checks=n_checks
        )
        if np.isfinite(epsilon):
            costs.append(PublicCost("histogram-pld", epsilon))
    return costs


def _label_costs(
    mechanism: LabelMechanism, n_queries: int, n_answered: ArrayLike | None, delta: float, grid: Floats
) -> list[PublicCost]:
    """The price of the outcomes alone, that of all noisy sums, and what continuous noise would give."""
    any_kind: Any = mechanism
    labels = independent_cost(any_kind, n_queries, n_answers=n_answered, orders=grid)
    rate = plain_cost(mechanism, n_queries, n_answers=n_answered)
    costs = [
        PublicCost("labels-rdp", *labels.epsilon_and_order(delta)),
        PublicCost("sums-rdp", *RdpCurve.zcdp(rate, grid).epsilon_and_order(delta)),
    ]
    if not isinstance(mechanism, AdaptiveGNThreshold):  # whose choice is not Gaussian
        epsilon = gaussian_dp_epsilon(math.sqrt(2 * rate), delta)
        costs.append(PublicCost("sums-gdp", epsilon, holds=False))
    return costs


def _label_notes(mechanism: Known, *, private: bool) -> list[str]:
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
    if private and isinstance(mechanism, (ConfidentGNThreshold, AdaptiveGNThreshold)):
        what = "the gate" if isinstance(mechanism, ConfidentGNThreshold) else "the choice of a share"
        notes.append(f"The exact cost is an upper bound here: {what} and the labels are bounded apart.")
    return notes


def _missed(costs: tuple[PublicCost, ...], best: PublicCost) -> list[str]:
    """Say when the optional library is absent and could have given a smaller number."""
    hinted = [cost.epsilon for cost in costs if cost.method == "histogram-gdp"]
    if has_pld() or not hinted or hinted[0] >= best.epsilon:
        return []
    return [
        f"Exact composition of the discrete noise could give about {hinted[0]:.4g} instead of "
        f"{best.epsilon:.4g}. It needs the library dp-accounting: pip install 'tellers[accounting]'."
    ]


def _require_fitting(mechanism: object, votes: object) -> None:
    wanted, other = ("LabelVotes", Votes) if isinstance(mechanism, LabelMechanism) else ("Votes", LabelVotes)
    if isinstance(votes, other):
        raise TypeError(f"Expected {wanted} for {type(mechanism).__name__}, got {other.__name__}.")


def _kind(mechanism: Known, mask: NDArray[np.bool_] | None) -> Kind:
    if getattr(mechanism, "one_price", False):
        return "bound"
    return "expected" if mask is None else "realised"


def _student(
    mechanism: Known, votes: Votes | LabelVotes, student: ArrayLike | None, notes: list[str]
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
    mechanism: Known, votes: Votes | LabelVotes, answered: ArrayLike | None, notes: list[str]
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
        f"{int(mask.sum())} answers are charged, as the mask 'answered' says. The public epsilon is then a "
        "guarantee only if a cap on the answers, or a budget, was fixed before the run. Without one, price "
        "the votes without the mask."
    )
    return mask


def _unknown(mechanism: object) -> TypeError:
    return TypeError(
        "Expected LNMax, GNMax, ConfidentGNMax, InteractiveGNMax or a mechanism of many labels, "
        f"got {type(mechanism).__name__}. Other mechanisms are charged mechanism.price(unit) per query."
    )
