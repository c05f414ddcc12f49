"""Publishing what a run cost each group, close to what it really cost, at a price to everybody.

A group's cost looks at the votes of all groups, so releasing it must protect every person of every group, and
everybody pays for every number. A person's ballots move a tally by their weight at most: distances between
votes are counted in such votes, and whoever moves less pays less. Proofs: docs/maths/personalised.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...accounting._publishable import Method
from ...accounting.costs import independent_cost
from ...accounting.smooth import (
    PublishedEpsilon,
    PublishPlan,
    published_epsilon,
    release_value,
    require_secure,
)
from ...errors import require_fraction
from ...ledger.base import Ledger, groups_on
from ...mechanisms.gap_bounds import Moves
from ...privacy.noise import Noise
from ...privacy.rdp import Floats, RdpCurve, check_orders
from ...privacy.release import Cost, Release
from .accounting import Asked

# A table in two numbers, margin and gap, has this many rows and columns at most: a minute of work.
_MOST_VOTES = 2000
# The heaviest ballot is at most about this many steps: finer steps are work, coarser ones a higher price.
_STEPS = 8


@dataclass(frozen=True)
class Distances:
    """How far apart votes are in which one person changed, for each group: in steps of so many votes.

    Public: it follows from the weights alone. `shares` are the steps of a person of each group as a share of
    `n_steps`, those of whoever moves most.
    """

    step: int
    n_steps: int
    moves: Moves
    shares: Mapping[str, float]


class GroupSum(NamedTuple):
    """What a run cost the worst member of a group, and how fast that moves with every step; private."""

    total: float
    local: Floats


def distances_of(asked: Asked) -> Distances:
    """Return how far one person of each group can move the votes, public."""
    own = [int(unit.linf) for unit in asked.plan.units]
    # Teachers of nobody's group have no weight; if they were given one, they move the tally all the same.
    given = [] if asked.votes.weights is None else np.unique(asked.votes.weights).tolist()
    weights = sorted({*own, *(int(weight) for weight in given if weight > 0)})
    step = max(1, weights[-1] // _STEPS)
    n_steps = -(-weights[-1] // step)
    share = {weight: -(-weight // step) / n_steps for weight in weights}
    names = [group.name for group in asked.plan.groups]
    return Distances(
        step,
        n_steps,
        tuple(share.items()),
        {name: share[weight] for name, weight in zip(names, own, strict=True)},
    )


def group_sums(asked: Asked, *, order: float, method: Method) -> dict[str, GroupSum]:
    """Return a bound on what the run cost each group, and its local sensitivities; private.

    Guarantee: `total` bounds the cost of every member of the group at this order: "envelope" in both
               directions, over all outcomes of every query; "gnss" in the forward one, along the path taken.
               `local` bounds how much it moves with anybody's data, see `Distances`.
    Assumes:   weights, schedules and copies are public, and were fixed before the votes, as the order was.
    Reference: docs/maths/personalised.md, "Publishing a group's cost".
    """
    if method not in ("envelope", "gnss"):
        raise ValueError(f"Expected envelope or gnss, got {method!r}: only these look at votes.")
    mechanism: Any = asked.plan.mechanism
    if method == "envelope":
        _require_envelope(asked)
    votes, far, sums = asked.votes, distances_of(asked), dict[str, GroupSum]()
    context = {} if asked.student is None else {"student": np.asarray(asked.student)}
    for at, (group, unit) in enumerate(zip(asked.plan.groups, asked.plan.units, strict=True)):
        present = np.unique(asked.present(at), axis=0)  # equal members once
        how = {"order": order, "weight": int(unit.linf), "moves": far.moves, "step": far.step, **context}
        if method == "gnss":
            sums[group.name] = _as_published(asked, present > 0, how)
            continue
        most, fewest = int(votes.n_votes.max()), int(votes.n_votes.min())
        there = None if present.all() else present
        cost = mechanism.envelope(votes, n_votes=most, n_fewest=fewest, present=there, **how)
        sums[group.name] = GroupSum(cost.total, cost.local)
    return sums


def independent_group_costs(asked: Asked, *, orders: ArrayLike | None = None) -> dict[str, RdpCurve]:
    """Return the public price of all answers to each group: to whoever of it takes part most often.

    Guarantee: bounds both directions, whatever the votes.
    Assumes:   as `publishable.independent_cost`.
    Reference: docs/maths/personalised.md.
    """
    costs = {}
    for at, (group, unit) in enumerate(zip(asked.plan.groups, asked.plan.units, strict=True)):
        n_queries = int(asked.present(at).sum(axis=1).max())
        costs[group.name] = independent_cost(asked.plan.mechanism, n_queries, orders=orders, unit=unit)
    return costs


def publication_prices(
    shares: Mapping[str, float], plan: PublishPlan, *, n_releases: int, orders: ArrayLike | None = None
) -> dict[str, RdpCurve]:
    """Return what so many releases under a plan cost each group, at every order; infinite where unbounded.

    `shares` are those of `Distances`.

    Guarantee: bounds what the released numbers tell about a person of the group, both directions, any votes.
    Assumes:   all of them are released by `release_value` under this plan.
    Reference: docs/maths/personalised.md, "Publishing a group's cost".
    """
    grid = check_orders(orders)
    at_share = {
        share: RdpCurve(grid, np.array([plan.price_to(share, order=order) for order in grid])) * n_releases
        for share in set(shares.values())
    }
    return {name: at_share[share] for name, share in shares.items()}


def publish_group_costs(
    asked: Asked,
    noise: Noise,
    *,
    groups: Iterable[str] | None = None,
    plan: PublishPlan,
    delta: float,
    ledger: Ledger | None = None,
    key: str | None = None,
    charged_before: Mapping[str, float] | None = None,
    allow_seeded: bool = False,
) -> dict[str, PublishedEpsilon]:
    """Release an epsilon for each group (or for those named): charge everybody, draw, return upper values.

    With a `ledger` the price of all releases is debited under `key` from every group's account before
    anything is drawn, and a group that cannot afford it refuses all of them. `charged_before` is what earlier
    publications of the same votes cost each group, at the plan's order.

    Guarantee: for each group, with probability at least plan.confidence over this noise, the joint release of
               labels and of all these numbers has a Rényi divergence of at most the published cost at
               plan.order between these votes and any in which one person of the group has other data.
    Assumes:   as `publish`; one plan of the groups for all queries; the list of queries, and what a student
               says of them, were fixed before.
    Reference: docs/maths/personalised.md, "Publishing a group's cost".

    >>> from tellers import GNMax, Votes, noise
    >>> from tellers.runs.personal import Group, Weighting
    >>> groups = (Group("low", 0.7, 50), Group("high", 1.4, 50))
    >>> seats = (np.arange(50), np.arange(50, 100))
    >>> weighting = Weighting(groups, GNMax(15.0), 100, seats, weight_of=(1, 2))
    >>> ballots = np.zeros((100, 40), dtype=int)
    >>> votes = Votes.from_ballots(ballots, n_classes=3).weighted(weighting.weights(40, key="q0"))
    >>> plan = PublishPlan("envelope", 12.0, 0.02, 30.0, confidence=0.95, expected_epsilon=1.0)
    >>> shown = publish_group_costs(Asked(weighting, votes), noise.secure(), plan=plan, delta=1e-5)
    >>> shown["low"].charged < shown["high"].charged, shown["low"].covers
    (True, 'both directions')
    """
    require_fraction(delta=delta)
    require_secure(noise, allow_seeded=allow_seeded)
    if (ledger is None) != (key is None):
        raise ValueError("Expected a key with a ledger, and only then: the publication is booked under it.")
    names = [group.name for group in asked.plan.groups]
    wanted = names if groups is None else list(dict.fromkeys(groups))
    if not set(wanted) <= set(names):
        raise ValueError(f"Expected names of groups among {', '.join(map(repr, names))}, got others.")
    if plan.method == "independent":
        costs, shown = independent_group_costs(asked), {}
        for name in wanted:
            epsilon, order = costs[name].epsilon_and_order(delta)
            shown[name] = PublishedEpsilon(epsilon, delta, 1.0, order, "independent", 0.0, "both directions")
        return shown
    shares = distances_of(asked).shares
    if ledger is not None:
        assert key is not None
        curves = publication_prices(shares, plan, n_releases=len(wanted))
        price = RdpCurve.largest(curves.values())
        also = {group.account: curves[group.name] for group in asked.plan.groups}
        event = group_event(asked, plan, noise_name=noise.name, n_releases=len(wanted), ledger=ledger)
        ticket = ledger.reserve(key, price, event=event, also=also)
        # Nothing of it flows back.
        ledger.settle(ticket, Release(np.empty(0, dtype=np.int64), Cost(price)), used=also)
    values = release_group_costs(asked, noise, plan=plan, groups=wanted)
    return {
        name: published_epsilon(
            values[name],
            plan=plan,
            delta=delta,
            charged=len(wanted) * plan.price_to(shares[name]),
            charged_before=(charged_before or {}).get(name, 0.0),
        )
        for name in wanted
    }


def release_group_costs(
    asked: Asked, noise: Noise, *, plan: PublishPlan, groups: Iterable[str]
) -> dict[str, float]:
    """Draw the noise and return an upper value of what the answers cost each group at the plan's order.

    Guarantee: as `publish_group_costs`, at the prices of `publication_prices` for as many releases.
    Assumes:   every account was charged those.
    Reference: docs/maths/personalised.md, "Publishing a group's cost".
    """
    n_steps = distances_of(asked).n_steps
    sums = group_sums(asked, order=plan.order, method=plan.method)
    public_at = independent_group_costs(asked, orders=[plan.order])
    return {
        # Post-processing: the public price bounds the labels' part too, whatever the noise did.
        name: min(
            release_value(*sums[name], noise, plan=plan, n_steps=n_steps),
            float(public_at[name].values[0]),
        )
        for name in groups
    }


def group_event(
    asked: Asked, plan: PublishPlan, *, noise_name: str, n_releases: int, ledger: Ledger
) -> dict[str, Any]:
    """Return the event under which so many releases are charged, or refuse votes that have no such bound."""
    if plan.method == "envelope":
        _require_envelope(asked)
    # Groups that had left before these queries have no part in their votes, nor in what is released of them.
    gone = set(groups_on(ledger)) - {group.name for group in asked.plan.groups}
    shares = dict(distances_of(asked).shares)
    return {
        "mechanism": "GroupPublication",
        "parameters": {**asdict(plan), "n_releases": n_releases, "shares": shares},
        "noise": noise_name,
        "unit": "one person",
        "n_queries": 0,
        "groups": {
            "variant": asked.plan.variant,
            "absent": sorted(gone) if asked.others_are_silent else [],
        },
    }


def _require_envelope(asked: Asked) -> None:
    mechanism: Any = asked.plan.mechanism  # an arg max with Gaussian noise, as `Asked` makes sure
    together = [unit for unit in asked.plan.units if not unit.is_one_ballot]
    if together and asked.votes.n_classes > 2:
        raise ValueError(
            "Expected two classes, or one ballot per person, for the envelope: there is none for several "
            "ballots that may go different ways. Publish by 'gnss' (forward direction) or 'independent'."
        )
    n_votes = int(asked.votes.n_votes.max())
    if mechanism.check_sigma is not None and n_votes > _MOST_VOTES:
        raise ValueError(
            f"Expected at most {_MOST_VOTES} votes in a query for the envelope of a check, got {n_votes}. "
            "Take weights with a smaller denominator, or publish by method 'gnss' or 'independent'."
        )


def _as_published(asked: Asked, members: NDArray[np.bool_], how: dict[str, Any]) -> GroupSum:
    """Return the papers' bound: summed over queries of equally many votes, the largest of any member."""
    mechanism: Any = asked.plan.mechanism
    n_votes, answered = asked.votes.n_votes, np.asarray(asked.answered)
    totals, locals_ = [], []
    for there in members:
        total, each = 0.0, [np.zeros(1)]
        for size in np.unique(n_votes[there]):
            rows = np.flatnonzero(there & (n_votes == size))
            if "student" in how:
                how = {**how, "student": np.asarray(asked.student)[rows]}
            cost, local = mechanism.published_sensitivities(
                asked.votes[rows], answered=answered[rows], n_votes=int(size), **how
            )
            total += cost
            each.append(local)
        totals.append(total)
        locals_.append(_as_long(each).sum(axis=0))
    return GroupSum(max(totals), _as_long(locals_).max(axis=0))


def _as_long(rows: list[Floats]) -> Floats:
    """Return rows as long as the longest: at its last entry a row has every vote in reach, and stays."""
    width = max(row.size for row in rows)
    return np.stack([np.pad(row, (0, width - row.size), mode="edge") for row in rows])
