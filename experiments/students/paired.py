"""Students of the same labels compared seed by seed: the mean difference, and how sure its sign is."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t


@dataclass(frozen=True)
class Difference:
    """One student minus another, over the seeds that both have: mean and 95 % t interval."""

    better: str
    worse: str
    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean difference."""
        return float(np.mean(self.values))

    @property
    def half_width(self) -> float:
        """Return half the width of the interval; infinite for a single seed."""
        n = len(self.values)
        if n < 2:
            return math.inf
        return float(t.ppf(0.975, n - 1) * np.std(self.values, ddof=1) / math.sqrt(n))

    @property
    def is_sure(self) -> bool:
        """Say whether the interval leaves 0 out."""
        return abs(self.mean) > self.half_width

    def __str__(self) -> str:
        low, high = (100 * (self.mean + sign * self.half_width) for sign in (-1, 1))
        said = "0 is not in it" if self.is_sure else "0 is in it"
        return (
            f"{self.better} - {self.worse}: {100 * self.mean:+.2f} points, 95 % interval {low:+.2f} to "
            f"{high:+.2f} ({len(self.values)} seeds; {said})"
        )


def by_student(rows: Iterable[dict[str, Any]], score: str = "accuracy") -> dict[str, dict[int, float]]:
    """Return each student's score by seed, the best student first."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        found.setdefault(row["student"], {})[row["seed"]] = row[score]
    return dict(sorted(found.items(), key=lambda item: -float(np.mean(list(item[1].values())))))


def difference(scores: dict[str, dict[int, float]], better: str, worse: str) -> Difference:
    """Return the difference of two students over the seeds they share."""
    shared = sorted(set(scores[better]) & set(scores[worse]))
    return Difference(better, worse, tuple(scores[better][seed] - scores[worse][seed] for seed in shared))


def differences(
    scores: dict[str, dict[int, float]], pairs: Sequence[tuple[str, str]] = ()
) -> list[Difference]:
    """Return the best student against every other, and then the pairs that were named."""
    best, *others = scores
    made = [difference(scores, best, other) for other in others]
    named = [difference(scores, a, b) for a, b in pairs if a in scores and b in scores and a != best]
    return made + named
