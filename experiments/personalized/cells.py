"""One cell of a table: a variant, who has the higher budget, how much higher it is; several votings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from costs import EXACT, PAPER, PUBLIC, ExactWalk, Stop, stop_of
from ensembles import Data, Ensemble

from tellers import Votes, noise
from tellers.runs.personal import Asked, Consent, Group, PersonalPlan, Upsampling, make_plan, read_consent
from tellers.runs.personal.accounting import running_epsilons

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

    @property
    def upsampled(self) -> bool:
        """Say whether it needs teachers of its own, who learn from copies."""
        return self.variant in ("u", "c", "figu")


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
    teams = None
    if ensemble.teams is not None:
        # Nobody's data sits in one teacher alone where everybody has copies.
        alone = np.arange(plan.n_teachers)[:, None]
        teams = (alone, ensemble.teams)[-len(plan.groups) :]
    mechanism: Any = plan.mechanism
    records = []
    for voting in range(votings):
        order = order_of(ensemble, seed, voting)
        plain = ensemble.votes[order]
        weights = plan.weights(len(plain), key=f"voting {voting}")
        votes = plain if weights is None else plain.weighted(weights)
        release = mechanism.release(votes, noise.seeded(1000 * seed + voting))
        asked = Asked(plan, votes, release.answered, teams=teams)
        stops = {"paper": stop_of(asked, data.delta, **PAPER), "public": stop_of(asked, data.delta, **PUBLIC)}
        extra: dict[str, Any] = {}
        if voting < n_exact and isinstance(plan, Upsampling):
            stops["exact"] = stop_of(asked, data.delta, **EXACT)
        elif voting < n_exact:
            walk = ExactWalk(plan.n_teachers, data.delta)
            stops["exact"] = walk.go(plan, votes)
            n_labels = int(release.answered[: walk.start].sum())
            n_labels += _go_on(plan, plain, walk, stops["exact"], number=1000 * seed + voting)
            extra["combined"] = n_labels
        records.append(_record(ensemble, order, release, stops) | extra)
    return records


def _go_on(plan: PersonalPlan, plain: Votes, walk: ExactWalk, stop: Stop, *, number: int) -> int:
    """Let the groups that ran out vanish, one after another, and count the labels that come out after."""
    n_labels = 0
    while stop.group is not None and len(plan.groups) > 1:
        plan = plan.without([plan.groups[stop.group].name])
        mechanism: Any = plan.mechanism
        weights = plan.weights(len(plain), key=f"voting {number}, without")
        votes = plain if weights is None else plain.weighted(weights)
        start = walk.start
        told = mechanism.release(votes[np.arange(start, len(votes))], noise.seeded(number + 500)).answered
        stop = walk.go(plan, votes)
        n_labels += int(told[: stop.n_queries - start].sum())
    return n_labels


def measure_baselines(
    data: Data, ensemble: Ensemble, factors: Sequence[float], seed: int, *, votings: int, n_exact: int
) -> list[dict[str, Any]]:
    """Run plain PATE; how many labels for everybody's budget being each of these multiples of the lowest."""
    mechanism = data.mechanism
    everybody = (Group("everybody", data.low, data.sizes[0]),)
    plan = Upsampling(everybody, mechanism, data.n_teachers, copies_of=(1,))
    alone = (np.arange(data.n_teachers)[:, None],)
    records = []
    for voting in range(votings):
        order = order_of(ensemble, seed, voting)
        votes = ensemble.votes[order]
        release = mechanism.release(votes, noise.seeded(1000 * seed + voting))
        asked = Asked(plan, votes, release.answered, teams=alone)
        accountants: dict[str, dict[str, Any]] = {"paper": PAPER, "public": PUBLIC}
        if voting < n_exact:
            accountants["exact"] = EXACT
        stops = {}
        for name, accountant in accountants.items():
            found = running_epsilons(asked, delta=data.delta, **accountant).reveal()["everybody"]
            for factor in factors:
                n = int(np.searchsorted(found, factor * data.low, side="right"))
                stops[f"{name}/{factor:.6g}"] = Stop(n, None if n == len(found) else 0)
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
