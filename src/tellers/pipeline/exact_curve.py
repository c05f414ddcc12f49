"""The exact, private cost of the queries that were asked, as a curve of a few points."""

from typing import Any

import numpy as np

from ..config import RunConfig
from ..exact import exact_epsilons
from ..label_votes import LabelVotes
from ..votes import Votes


def exact_curve(config: RunConfig, asked: Votes | LabelVotes) -> list[dict[str, Any]] | None:
    """Return the exact epsilon after more and more of the queries, or None where it bounds nothing.

    Private, as it depends on the votes.

    >>> from tellers.calibrate import Consensus
    >>> made_up, _ = Consensus().votes(60, 10, n_queries=20, seed=7)
    >>> exact_curve(RunConfig(), made_up)[-1]["n_queries"]
    20
    """
    # With a student in the loop the sum along the path that was taken bounds nothing; we show none.
    if config.mechanism.name in ("interactive", "histogram") or len(asked) == 0:
        return None
    epsilons = exact_epsilons(config.build_mechanism(), asked, delta=config.budget.delta).reveal()
    at = np.unique(np.linspace(1, len(asked), min(len(asked), 200)).round().astype(int))
    return [{"n_queries": int(n), "epsilon": float(epsilons[n - 1])} for n in at]
