"""What labels cost: exact (private), publishable, and data-independent, computed anew from kept ballots."""

from functools import lru_cache
from typing import Any, cast

import numpy as np
from asking import class_votes, votes_for
from kept import Kept
from plan import DELTA, Lesson, Task

from tellers import GNMax, Unit, exact_cost
from tellers.accounting import Consensus, LabelProfile, public_cost, publish
from tellers.accounting.smooth import PublishPlan
from tellers.runs import plan_publication

# Assumed, to plan publications with; nobody looked at votes for it.
AGREEMENT, TRUE_SHARE = 0.9, 0.2


class Median:
    """A source of noise that always draws the median: what is published is as often more as less."""

    name, is_secure = "median", False

    def gaussian(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return zeros."""
        return np.zeros(shape)


@lru_cache
def _plan(mechanism: Any, n_teachers: int, n_labels: int, n_queries: int, delta: float) -> PublishPlan:
    if isinstance(mechanism, GNMax):
        proxy, _ = Consensus(agreement=AGREEMENT).votes(n_teachers, n_labels, n_queries=400, seed=1)
    else:
        made = LabelProfile(yes_rate=TRUE_SHARE, agreement=AGREEMENT)
        proxy, _ = made.votes(n_teachers, n_labels, n_queries=400, seed=1)
    return plan_publication(mechanism, proxy, n_queries=n_queries, delta=delta, method="envelope")[0]


def lesson_costs(kept: Kept, task: Task, fold: int, network: str, lesson: Lesson) -> dict[str, float]:
    """Return the epsilons of a lesson's labels in one fold; infinite where nothing is promised."""
    if lesson.noiseless or lesson.name == "truth":
        return {"exact": float("inf"), "told": float("inf"), "public": float("inf")}
    delta = DELTA[task]
    said = kept.said(task, fold, network, lesson.n_teachers)[:, : lesson.n_queries]
    if lesson.setting is None:
        votes: Any = class_votes(said)
        mechanism: Any = GNMax(lesson.sigma * len(said))
        public = float((mechanism.price(Unit()) * len(votes)).epsilon(delta))
    else:
        votes = votes_for(said, lesson.setting, whole=task == "city")
        mechanism = lesson.setting.mechanism(
            n_teachers=votes.n_teachers, n_labels=votes.n_labels, resolution=votes.resolution
        )
        public = public_cost(mechanism, len(votes), delta=delta).epsilon
    exact = exact_cost(mechanism, votes).cost.reveal().epsilon(delta)
    told = float("inf")
    if lesson.setting is None or lesson.setting.kind == "binary":
        plan = _plan(mechanism, len(said), said.shape[2], len(votes), delta)
        source = cast(Any, Median())
        told = publish(mechanism, votes, source, plan=plan, delta=delta, allow_seeded=True).epsilon_upper
    return {"exact": float(exact), "told": float(told), "public": float(public)}
