"""Figure 4: how the costs of two equally large groups relate when one is c times as exposed as the other."""

from typing import Any

import numpy as np
from cells import order_of
from costs import FEW, ORDERS, paper_costs, teacher_epsilons
from ensembles import Data, Ensemble

from tellers import Votes, noise
from tellers.exact import teacher_costs
from tellers.personal import Group, Upsampling, Vanishing, Weighting
from tellers.personal.plan import ranges
from tellers.personal.together import team_costs

RATIOS_OF_COSTS = range(2, 10)
N_VOTINGS = 4000
N_TOGETHER = 1000  # persons with several teachers: exact costs of fewer queries


def cost_ratios(data: Data, ensemble: Ensemble, c: int, seed: int) -> dict[str, Any]:
    """Return the ratio of epsilons of weighting and vanishing, by the paper's bound and exactly."""
    half = data.n_teachers // 2
    groups = (Group("low", data.low, half), Group("high", c * data.low, half))
    made: dict[str, Any] = {"members": ranges((half, data.n_teachers - half))}
    ratios = {}
    votes = ensemble.votes[order_of(ensemble, seed, 0)[:N_VOTINGS]]
    plans: dict[str, Any] = {
        "w": Weighting(groups, data.mechanism, data.n_teachers, weight_of=(1, c), **made),
        "v": Vanishing(groups, data.mechanism, data.n_teachers, frequency_of=(1 / c, 1.0), seed=seed, **made),
    }
    for name, plan in plans.items():
        weights = plan.weights(len(votes), key="figure 4")
        weighted = votes.weighted(weights)
        told = plan.mechanism.release(weighted, noise.seeded(seed)).answered
        if name == "w":
            costs = [
                paper_costs(plan.mechanism, weighted, told, sensitivity=weight).sum(axis=0)
                for weight in plan.weight_of
            ]
        else:
            per_query = paper_costs(plan.mechanism, weighted, told, sensitivity=1.0)
            costs = [(weights[own] @ per_query).max(axis=0) for own in plan.members]
        low, high = (_classic(cost, data.delta) for cost in costs)
        spent = teacher_costs(plan.mechanism, weighted, orders=ORDERS).reveal()
        exact_low, exact_high = teacher_epsilons(spent, plan.members, data.delta)
        ratios |= {f"{name}/paper": high / low, f"{name}/exact": exact_high / exact_low}
    if ensemble.teams is not None:
        raise ValueError("Expected an ensemble without copies.")
    return {"ratios": ratios}


def copies_ratio(data: Data, ensemble: Ensemble, c: int, seed: int) -> dict[str, Any]:
    """Return the same for upsampling, of an ensemble in which half of the persons have c copies."""
    assert ensemble.teams is not None
    half = data.sizes[0] // 2
    groups = (Group("low", data.low, half), Group("high", c * data.low, half))
    plan: Any = Upsampling(groups, data.mechanism, data.n_teachers, copies_of=(1, c))
    votes: Votes = ensemble.votes[order_of(ensemble, seed, 0)[:N_VOTINGS]]
    told = plan.mechanism.release(votes, noise.seeded(seed)).answered
    low, high = (
        _classic(paper_costs(plan.mechanism, votes, told, sensitivity=s).sum(axis=0), data.delta)
        for s in plan.copies_of
    )
    few = votes[np.arange(N_TOGETHER)]
    everybody = np.arange(votes.n_teachers)
    exact_low, exact_high = (
        teacher_epsilons(
            team_costs(plan.mechanism, few, teams, orders=ORDERS).reveal(),
            [np.arange(len(teams))],
            data.delta,
        )[0]
        for teams in (everybody[:, None], ensemble.teams)
    )
    return {"ratios": {"u/paper": high / low, "u/exact": exact_high / exact_low}}


def _classic(cost: np.ndarray, delta: float) -> float:
    return float(np.min(cost - np.log(delta) / (FEW - 1)))
