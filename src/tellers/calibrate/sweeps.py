"""One parameter at a time: the settings whose plans, side by side, show what it does."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..label_bounds import LabelMechanism
from ..mechanisms.labels import (
    Binary,
    ConfidentBinary,
    ConfidentPowerset,
    ConfidentTau,
    GNThreshold,
    Powerset,
    Tau,
)
from .label_profile import BallotTraits
from .multilabel import MOST_LABELS

_NOISES = (0.04, 0.07, 0.1, 0.14, 0.2, 0.28, 0.4)
_SIDES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Sweep:
    """A parameter, what it is, and for each family of mechanisms its values with the setting at each.

    >>> Sweep("sigma", "noise", {"Binary": ((5.0, Binary(5.0, 3)),)}).mechanisms
    [Binary(sigma=5.0, n_labels=3, resolution=1)]
    """

    parameter: str
    meaning: str
    series: dict[str, tuple[tuple[float, LabelMechanism], ...]]

    @property
    def mechanisms(self) -> list[LabelMechanism]:
        """Return all settings of the sweep."""
        return [mechanism for points in self.series.values() for _, mechanism in points]


def sweeps_of(traits: BallotTraits, sigma: float) -> list[Sweep]:
    """Return sweeps of the noise, of the clip and of the threshold; the last two with noise `sigma`.

    >>> from tellers.calibrate import LabelProfile, ballot_traits
    >>> votes, _ = LabelProfile().votes(50, 22, n_queries=20, seed=7)
    >>> [(one.parameter, len(one.mechanisms)) for one in sweeps_of(ballot_traits(votes), 7.0)]
    [('sigma', 35), ('max_norm', 12), ('T', 18)]
    """
    n, k = traits.n_teachers, traits.n_labels
    cap = min(traits.most_ones, k)
    clip = round(math.sqrt(cap), 3)
    noises = [round(share * n, 2) for share in _NOISES]
    heights = [round(side * n, 1) for side in _SIDES]
    clips = sorted({round(float(x), 3) for x in np.geomspace(0.7, max(1.0, math.sqrt(2 * cap)), 6)})
    check, small = round(0.2 * n, 2), cap if k > MOST_LABELS else 0
    return [
        Sweep(
            "sigma",
            "noise on the yes and the no count, in votes",
            {
                "Binary": _points(noises, lambda x: Binary(x, k)),
                f"tau l2, {clip:g}": _points(noises, lambda x: Tau(x, k, clip)),
                f"tau l1, {cap}": _points(noises, lambda x: Tau(x, k, float(cap), "l1")),
                "Powerset": _points(noises, lambda x: Powerset(x, k, small)),
                f"GNThreshold, {cap} labels": _points(
                    noises, lambda x: GNThreshold(x / math.sqrt(2), k, max_labels=cap)
                ),
            },
        ),
        Sweep(
            "max_norm",
            f"largest norm of a ballot, at sigma {sigma:g}",
            {
                "tau l2": _points(clips, lambda x: Tau(sigma, k, x)),
                "tau l1": _points([x**2 for x in clips], lambda x: Tau(sigma, k, round(x, 3), "l1")),
            },
        ),
        Sweep(
            "T",
            f"votes that a label or a set needs to be told, at sigma {sigma:g}",
            {
                "Confident Binary": _points(heights, lambda x: ConfidentBinary(sigma, k, x, check)),
                f"Confident tau l2, {clip:g}": _points(
                    heights, lambda x: ConfidentTau(sigma, k, clip, x, check)
                ),
                "Confident Powerset": _points(
                    heights, lambda x: ConfidentPowerset(sigma, k, x, check, small)
                ),
            },
        ),
    ]


def _points(
    values: list[float], make: Callable[[float], LabelMechanism]
) -> tuple[tuple[float, LabelMechanism], ...]:
    return tuple((value, make(value)) for value in values)
