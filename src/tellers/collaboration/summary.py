"""Several collaborations in one table: means over askers and repetitions, with their standard errors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from .learning import Collaboration


@dataclass(frozen=True)
class Line:
    """A line of the table: before, or after with one budget counted in one way.

    `scores` are means with standard errors over repetitions, each the mean of its askers; `party` is the
    largest epsilon of any party, over all askers; `published`, which is private and not printed, the largest
    that the paper would state.
    """

    state: str
    counting: str
    epsilon: float
    n_queries: float
    labels_right: float
    published: float = field(repr=False)
    per_asker: float
    party: float
    scores: dict[str, tuple[float, float]]


def summary(repetitions: Sequence[Collaboration]) -> list[Line]:
    """Return the table of collaborations that differ in their seeds alone.

    >>> from sklearn.linear_model import LogisticRegression
    >>> from tellers import GNMax, noise
    >>> from tellers.collaboration.learning import Terms, collaborate
    >>> from tellers.collaboration.material import read_material
    >>> from tellers.collaboration.members import deal_members
    >>> material, model = read_material("digits", seed=7, n_private=200), LogisticRegression()
    >>> members = deal_members(material.X, material.y, 10, estimator=model, seed=7)
    >>> terms = Terms(mechanism=GNMax(sigma=2.0), n_askers=1, countings=("sound", "published"))
    >>> held = collaborate(material, members, terms, estimator=model, noise=noise.seeded(7), seed=7)
    >>> [(line.state, line.counting) for line in summary([held])]
    [('before', ''), ('after', 'sound'), ('after', 'published')]
    """
    first = repetitions[0]
    nothing = (math.nan,) * 2
    lines = [
        Line(
            "before",
            "",
            0.0,
            0.0,
            *nothing,
            *nothing,
            _spread([one.mean_before() for one in repetitions]),
        )
    ]
    for epsilon in first.terms.epsilons:
        for counting in first.terms.countings:
            turns = [turn for one in repetitions for turn in one.turns_of(counting, epsilon)]
            right = [turn.labels_right for turn in turns if not math.isnan(turn.labels_right)]
            lines.append(
                Line(
                    "after", counting, epsilon, float(np.mean([turn.n_queries for turn in turns])),
                    float(np.mean(right)) if right else math.nan,
                    max(turn.published for turn in turns), max(turn.per_asker for turn in turns),
                    max(turn.party for turn in turns),
                    _spread([one.mean_after(counting, epsilon) for one in repetitions]),
                )
            )  # fmt: skip
    return lines


def _spread(means: Sequence[dict[str, float]]) -> dict[str, tuple[float, float]]:
    found = {}
    for name in means[0]:
        values = np.array([one[name] for one in means])
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
        found[name] = (float(values.mean()), error)
    return found
