"""What answers cost, counted twice: as the paper counts, and so that it holds.

The paper has a budget for each asker, and a cost that depends on the votes, which in a confidential query
nobody sees. What holds: the price that holds for any votes, added up over all askers, for each answering
party. One asker that keeps its labels and its model to itself learns no more of a party than that asker's own
price; several that compare what they have, or publish their models, learn what all of their prices add up to.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ..bounds import published_gnmax
from ..budget import Accountant, Budget
from ..errors import require_count
from ..label_bounds import as_published_tau, plain_rates, published_label_cost
from ..label_votes import LabelVotes
from ..mechanisms.labels import Binary, GNThreshold
from ..parties.prices import affordable_queries
from ..rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..votes import Votes


def queries_within(budget: Budget, mechanism: Any, *, n_askers: int = 1) -> int:
    """Return how many queries each asker can be answered if a party's budget covers all askers together.

    Guarantee: so many queries for each of so many askers cost a party that answers all of them at most its
               budget, whatever the votes and whoever compares what they were told.
    Assumes:   one record of a party changes its own ballots alone.
    Reference: Feldman and Zrnic 2021, as in `Accountant`; the price of the mechanism.

    >>> from tellers import GNMax
    >>> budget = Budget(epsilon=10.0, delta=1e-5)
    >>> [queries_within(budget, GNMax(sigma=8.0), n_askers=n) for n in (1, 3)]
    [177, 59]
    """
    require_count(n_askers=n_askers)
    return affordable_queries(mechanism, budget) // n_askers


def published_curves(mechanism: Any, votes: Votes | LabelVotes) -> Floats:
    """Return what the paper charges queries, (queries, orders): it depends on the votes, and is private.

    Confident forms are charged what they cost on average over their checks, as nothing was drawn yet.

    >>> from tellers import GNMax
    >>> votes = Votes.from_counts([[50, 0], [26, 24]], n_teachers=50)
    >>> published_curves(GNMax(sigma=8.0), votes)[:, 3].round(3)
    array([0.   , 0.031])
    """
    if isinstance(votes, LabelVotes):
        return _label_curves(mechanism, votes)
    return published_gnmax(votes, mechanism.sigma, orders=DEFAULT_ORDERS)


def _label_curves(mechanism: Any, votes: LabelVotes) -> Floats:
    """The paper goes label by label: labels that equally many know are taken together."""
    voting = mechanism
    if isinstance(mechanism, GNThreshold):
        if np.any(np.asarray(mechanism.share) != 0.5):
            # No election of two sides; the paper has no cost for it but that of all noisy sums.
            return np.tile(plain_rates(mechanism)[1] * DEFAULT_ORDERS, (len(votes), 1))
        # The noise of the paper's two counts is on their difference here.
        voting = Binary(math.sqrt(2) * mechanism.sigma, mechanism.n_labels)
    sums, voters = mechanism.fitted_sums(votes), votes.n_voters
    costs = np.zeros((len(votes), DEFAULT_ORDERS.size))
    for n in np.unique(voters[voters > 0]):
        alike = voters == n
        part = LabelVotes.from_sums(sums[:, alike], n_teachers=int(n))
        costs += published_label_cost(replace(voting, n_labels=int(alike.sum())), part, orders=DEFAULT_ORDERS)
    if not getattr(mechanism, "max_labels", 0):
        return costs
    # Ballots of so many ones have this norm; that two of them may be twice as far apart is not counted.
    norm = math.sqrt(mechanism.max_labels)
    cap = as_published_tau(math.sqrt(2) * mechanism.sigma, norm, orders=DEFAULT_ORDERS)
    return np.minimum(costs, cap.values)


def published_epsilon(curves: Floats, *, delta: float) -> float:
    """Return the epsilon that the paper states for an asker's queries; private, and no guarantee for anyone.

    >>> published_epsilon(np.zeros((3, DEFAULT_ORDERS.size)), delta=1e-5)
    0.0
    """
    return RdpCurve(DEFAULT_ORDERS, curves.sum(axis=0)).epsilon(delta)


def published_queries(curves: Floats, budget: Budget) -> int:
    """Return how many of an asker's queries fit a budget as the paper counts; private.

    >>> published_queries(np.full((500, DEFAULT_ORDERS.size), 0.1), Budget(epsilon=10.0, delta=1e-5)) > 50
    True
    """
    running = np.cumsum(curves, axis=0)
    low, high = 0, len(curves)
    while low < high:
        middle = (low + high + 1) // 2
        if RdpCurve(DEFAULT_ORDERS, running[middle - 1]).epsilon(budget.delta) <= budget.epsilon:
            low = middle
        else:
            high = middle - 1
    return low


def budget_for(price: RdpCurve, *, delta: float) -> Budget:
    """Return a budget that just covers a price: for books that must hold what the paper's count lets through.

    >>> from tellers import GNMax, Unit
    >>> price = GNMax(sigma=8.0).price(Unit()) * 500
    >>> covers = budget_for(price, delta=1e-5)
    >>> Accountant(covers).affords(RdpCurve.zero(), price), covers.epsilon < 1.02 * price.epsilon(1e-5)
    (True, True)
    """
    epsilon, nothing = max(price.epsilon(delta), 1e-3), RdpCurve.zero()
    while not Accountant(Budget(epsilon, delta)).affords(nothing, price):
        epsilon *= 1.002
    return Budget(epsilon * (1 + 1e-6), delta)  # the same price added up in parts may round upwards
