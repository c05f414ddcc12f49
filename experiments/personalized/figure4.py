"""Figure 4: how the costs of two equally large groups relate when one is c times as exposed as the other."""

from typing import Any

import numpy as np
from cells import order_of
from costs import EXACT, PAPER
from ensembles import Data, Ensemble

from tellers import RdpCurve, noise
from tellers.runs.personal import Asked, Group, PersonalPlan, Upsampling, Vanishing, Weighting
from tellers.runs.personal.accounting import totals
from tellers.runs.personal.plan import ranges

RATIOS_OF_COSTS = range(2, 10)
N_VOTINGS = 4000
N_TOGETHER = 1000  # of persons with several teachers, exact costs take longer


def cost_ratios(data: Data, ensemble: Ensemble, c: int, seed: int) -> dict[str, Any]:
    """Return ratios of epsilons, high to low: of upsampling where there are copies, else of the others."""
    half, mechanism, n_teachers = data.sizes[0] // 2, data.mechanism, data.n_teachers
    groups = (Group("low", data.low, half), Group("high", c * data.low, half))
    members = ranges((n_teachers // 2, n_teachers - n_teachers // 2))
    plans: dict[str, PersonalPlan]
    if ensemble.teams is not None:
        plans = {"u": Upsampling(groups, mechanism, n_teachers, copies_of=(1, c))}
    else:
        often = (1 / c, 1.0)
        plans = {
            "w": Weighting(groups, mechanism, n_teachers, members, weight_of=(1, c)),
            "v": Vanishing(groups, mechanism, n_teachers, members, frequency_of=often, seed=seed),
        }
    order = order_of(ensemble, seed, 0)[:N_VOTINGS]
    ratios = {}
    for name, plan in plans.items():
        ratios[f"{name}/paper"] = _ratio(data, ensemble, plan, order, seed, **PAPER)
        asked = order if ensemble.teams is None else order[:N_TOGETHER]
        ratios[f"{name}/exact"] = _ratio(data, ensemble, plan, asked, seed, **EXACT)
    return {"ratios": ratios}


def _ratio(
    data: Data,
    ensemble: Ensemble,
    plan: PersonalPlan,
    order: np.ndarray,
    seed: int,
    *,
    accounting: Any,
    orders: np.ndarray,
    conversion: Any = "tight",
) -> float:
    votes = ensemble.votes[order]
    weights = plan.weights(len(votes), key="figure 4")
    if weights is not None:
        votes = votes.weighted(weights)
    mechanism: Any = plan.mechanism
    told = mechanism.release(votes, noise.seeded(seed)).answered
    teams = None
    if ensemble.teams is not None:
        teams = (np.arange(plan.n_teachers)[:, None], ensemble.teams)
    low, high = (
        RdpCurve(orders, spent.max(axis=(0, 1))).epsilon(data.delta, conversion=conversion)
        for spent in totals(Asked(plan, votes, told, teams=teams), accounting, orders=orders)
    )
    return high / low
