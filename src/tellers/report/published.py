"""What the page says of published costs: a table with a line for everyone, or for each group, and words."""

from typing import Any

from ..card.card import shown_epsilon
from ..card.published import PublishedCosts
from .canvas import N_COLOURS
from .groups import shown_budget


def describe_published(published: PublishedCosts | None) -> dict[str, Any] | None:
    """Return what was published as rows of a table and sentences, or None where nothing was.

    >>> from tellers.card.published import PublishedCost
    >>> from tellers.smooth import PublishPlan
    >>> plan = PublishPlan("envelope", 12.0, 0.02, 30.0, confidence=0.95, expected_epsilon=1.3)
    >>> line = PublishedCost(
    ...     name="everyone", budget=5.0, public=2.8, epsilon_upper=2.1, charged=0.05, after=2.9,
    ...     budget_left=0.6,
    ... )
    >>> told = describe_published(
    ...     PublishedCosts(plan=plan, delta=1e-5, covers="both directions", n_queries=9, groups=(line,))
    ... )
    >>> told["rows"][0]["upper"], told["confidence"]
    ('2.10', '95 %')
    """
    if published is None:
        return None
    return {
        "confidence": published.confidence,
        "delta": f"{published.delta:g}",
        "upper": shown_epsilon(published.epsilon_upper),
        "by_group": published.kind == "groups",
        "meaning": published.meaning,
        "rows": [
            {
                "number": at + 1, "colour": at % N_COLOURS + 1, "name": group.name,
                "budget": shown_budget(group.budget), "public": shown_epsilon(group.public),
                "upper": shown_epsilon(group.epsilon_upper),
                "gained": group.epsilon_upper < group.public, "after": shown_epsilon(group.after),
            }
            for at, group in enumerate(published.groups)
        ],
    }  # fmt: skip
