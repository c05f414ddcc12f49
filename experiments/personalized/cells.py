"""One cell of a table: a variant, who has the higher budget, how much higher it is; several votings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from costs import (
    DEFAULT_ORDERS,
    FEW,
    ORDERS,
    ExactWalk,
    Stop,
    allowed,
    exact_teams,
    paper_costs,
    price_costs,
    walk_costs,
)
from ensembles import Data, Ensemble

from tellers import Votes, noise
from tellers.personal import Consent, PersonalPlan, Upsampling, make_plan, read_consent

VARIANTS = {"u": "upsampling", "c": "upsampling", "v": "vanishing", "v4": "vanishing", "w": "weighting"}
# How often the stricter vote: the ratio of budgets to this power. The paper says that its runs took 4; its
# numbers of labels are those of 2, which its appendix describes.
POWERS = {"v": 2.0, "v4": 4.0}


@dataclass(frozen=True)
class Cell:
    """What is measured: `variant` is u, v, v4, w, c (upsampling by class), or base (no personalisation)."""

    variant: str
    ratio: int = 0
    factor: int = 1

    @property
    def key(self) -> str:
        """Return the name under which its results are kept."""
        return "base" if self.variant == "base" else f"{self.variant}-{self.ratio}-{self.factor}"


def budgets_consent(data: Data, share: float, factor: float) -> Consent:
    """Return a consent of as many persons as there are private rows, a share of them with more."""
    n = data.sizes[0]
    n_high = round(n * share)
    return read_consent(np.repeat([data.low, factor * data.low], [n - n_high, n_high]), delta=data.delta)


def plan_of(data: Data, cell: Cell, seed: int, *, share: float) -> PersonalPlan:
    """Return the plan of a cell."""
    consent = budgets_consent(data, share, cell.factor)
    variant = VARIANTS[cell.variant]
    options: dict[str, Any] = {"power": POWERS[cell.variant]} if variant == "vanishing" else {}
    return make_plan(variant, consent, data.mechanism, n_teachers=data.n_teachers, seed=seed, **options)  # type: ignore[arg-type]


def order_of(ensemble: Ensemble, seed: int, voting: int) -> np.ndarray:
    """Return the order in which the public rows are asked."""
    return np.random.default_rng([seed, voting, 1]).permutation(len(ensemble.votes))


def limits_of(plan: PersonalPlan, data: Data, orders: np.ndarray, **options: str) -> list[np.ndarray]:
    """Return what each group may spend."""
    return [allowed(group.epsilon, data.delta, orders, **options) for group in plan.groups]


def measure_cell(
    data: Data,
    ensemble: Ensemble,
    cell: Cell,
    seed: int,
    *,
    votings: int,
    n_exact: int,
    share: float | None = None,
) -> list[dict[str, Any]]:
    """Run the votings of a personalised cell; the first `n_exact` of them are accounted exactly too."""
    plan = plan_of(data, cell, seed, share=cell.ratio / 100 if share is None else share)
    if isinstance(plan, Upsampling) and ensemble.votes.n_teachers != plan.n_teachers:
        raise ValueError(
            f"Expected {plan.n_teachers} teachers for {cell.key}, got {ensemble.votes.n_teachers}."
        )
    mechanism: Any = plan.mechanism
    records = []
    for voting in range(votings):
        order = order_of(ensemble, seed, voting)
        plain = ensemble.votes[order]
        weights = plan.weights(len(plain), key=f"voting {voting}")
        votes = plain if weights is None else plain.weighted(weights)
        release = mechanism.release(votes, noise.seeded(1000 * seed + voting))
        present = weights if weights is not None and weights.ndim == 2 else None
        vanishes = plan.variant == "vanishing"
        sensitivities = [1.0 if vanishes else unit.linf for unit in plan.units]
        walked = {"members": plan.members, "present": present} if vanishes else {}
        stops = {
            "paper": walk_costs(
                [paper_costs(mechanism, votes, release.answered, sensitivity=s) for s in sensitivities],
                limits_of(plan, data, FEW, conversion="classic"), **walked,
            ),
            "public": walk_costs(
                [price_costs(mechanism, release.answered, unit=unit) for unit in plan.units],
                limits_of(plan, data, DEFAULT_ORDERS), **walked,
            ),
        }  # fmt: skip
        extra: dict[str, Any] = {}
        if voting < n_exact and isinstance(plan, Upsampling):
            assert ensemble.teams is not None
            everybody = np.arange(plan.n_teachers)[:, None]
            teams = [everybody, ensemble.teams][-len(plan.groups) :]
            stops["exact"] = exact_teams(mechanism, votes, teams=teams, limits=limits_of(plan, data, ORDERS))
        elif voting < n_exact:
            walk = ExactWalk(plan.n_teachers)
            stops["exact"] = walk.go(
                mechanism, votes, members=plan.members, limits=limits_of(plan, data, ORDERS)
            )
            n_labels = int(release.answered[: walk.start].sum())
            n_labels += _go_on(data, plan, plain, walk, stops["exact"], number=1000 * seed + voting)
            extra["combined"] = n_labels
        records.append(_record(ensemble, order, release, stops) | extra)
    return records


def _go_on(data: Data, plan: PersonalPlan, plain: Votes, walk: ExactWalk, stop: Stop, *, number: int) -> int:
    """Let the groups that ran out vanish, one after another, and count the labels that come out after."""
    n_labels = 0
    while stop.group is not None and len(plan.groups) > 1:
        plan = plan.without([plan.groups[stop.group].name])
        mechanism: Any = plan.mechanism
        weights = plan.weights(len(plain), key=f"voting {number}, without")
        votes = plain if weights is None else plain.weighted(weights)
        start = walk.start
        told = mechanism.release(votes[np.arange(start, len(votes))], noise.seeded(number + 500)).answered
        stop = walk.go(mechanism, votes, members=plan.members, limits=limits_of(plan, data, ORDERS))
        n_labels += int(told[: stop.n_queries - start].sum())
    return n_labels


def measure_baselines(
    data: Data, ensemble: Ensemble, factors: Sequence[float], seed: int, *, votings: int, n_exact: int
) -> list[dict[str, Any]]:
    """Run plain PATE; how many labels for everybody's budget being each of these multiples of the lowest."""
    mechanism, everybody = data.mechanism, [np.arange(data.n_teachers)]
    records = []
    for voting in range(votings):
        order = order_of(ensemble, seed, voting)
        votes = ensemble.votes[order]
        release = mechanism.release(votes, noise.seeded(1000 * seed + voting))
        paper = paper_costs(mechanism, votes, release.answered, sensitivity=1.0)
        public = price_costs(mechanism, release.answered, unit=votes.unit)
        walk = ExactWalk(data.n_teachers)
        stops = {}
        for factor in sorted(factors):
            epsilon, name = factor * data.low, f"{factor:.6g}"
            limit = allowed(epsilon, data.delta, FEW, conversion="classic")
            stops[f"paper/{name}"] = walk_costs([paper], [limit])
            stops[f"public/{name}"] = walk_costs([public], [allowed(epsilon, data.delta, DEFAULT_ORDERS)])
            if voting < n_exact:
                limit = allowed(epsilon, data.delta, ORDERS)
                stops[f"exact/{name}"] = walk.go(mechanism, votes, members=everybody, limits=[limit])
        records.append(_record(ensemble, order, release, stops))
    return records


def _record(ensemble: Ensemble, order: np.ndarray, release: Any, stops: dict[str, Stop]) -> dict[str, Any]:
    """Return what is kept of a voting: numbers of labels, and the labels themselves for the students."""
    told = np.flatnonzero(release.answered)
    right = float(np.mean(release.labels[told] == ensemble.truth[order[told]]))
    longest = max(stop.n_queries for stop in stops.values())
    told = told[told < longest]
    return {
        "labels": {name: int(release.answered[: stop.n_queries].sum()) for name, stop in stops.items()},
        "queries": {name: stop.n_queries for name, stop in stops.items()},
        "group": {name: stop.group for name, stop in stops.items()},
        "right": right,
        "rows": ensemble.public[order[told]].astype(np.int32),
        "said": release.labels[told].astype(np.uint8),
    }
