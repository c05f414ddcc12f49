"""Made-up votes for the plots of a public report: what such voting looks like, and no vote of the run."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..calibrate.consensus import Consensus
from ..mechanisms import ConfidentGNMax, GNMax, LNMax, Mechanism

_N_QUERIES = 400
_N_EVALUATED = 100  # Of these the chance of every outcome is evaluated, which takes longer than to count.
_AROUND = 2.0 ** np.arange(-3, 3.5, 0.5)


@dataclass(frozen=True)
class Simulated:
    """Leads of the winning class, and how right released labels are as the noise grows; all made up.

    Noise is told by its scale: the standard deviation of Gaussian noise, or 1/gamma of Laplace noise.
    """

    consensus: Consensus
    n_queries: int
    gaps: tuple[int, ...]
    accuracy_against_noise: tuple[tuple[float, float], ...]


def simulate(
    mechanism: str,
    parameters: Mapping[str, float],
    *,
    n_teachers: int,
    n_classes: int,
    consensus: Consensus | None = None,
) -> Simulated:
    """Return what teachers of an assumed consensus would do under a mechanism and around its noise.

    The assumption is public and fixed, and nothing of the run but its public settings enters.

    >>> made_up = simulate("GNMax", {"sigma": 8.0}, n_teachers=60, n_classes=10)
    >>> [accuracy > 0.5 for noise, accuracy in made_up.accuracy_against_noise if noise in (1.0, 64.0)]
    [True, False]
    """
    assumed = Consensus() if consensus is None else consensus
    votes, truth = assumed.votes(n_teachers, n_classes, n_queries=_N_QUERIES, seed=7)
    some, right_ones = votes[:_N_EVALUATED], 1 + truth[:_N_EVALUATED]
    ordered = np.sort(votes.counts, axis=1)
    scale = noise_scale(parameters)
    curve = []
    for noise in [] if scale is None else (scale * _AROUND).tolist():
        chances: NDArray[np.float64] = np.exp(_at(mechanism, parameters, noise).outcomes(some).log_labels)
        answered = float(1 - chances[:, 0].mean())
        right = float(chances[np.arange(len(chances)), right_ones].mean())
        if answered > 1e-6:
            curve.append((noise, min(right / answered, 1.0)))
    gaps = (ordered[:, -1] - ordered[:, -2]).tolist()
    return Simulated(assumed, _N_QUERIES, tuple(gaps), tuple(curve))


def noise_scale(parameters: Mapping[str, float]) -> float | None:
    """Return the scale of the noise on every count, in votes, or None for a mechanism that names none.

    >>> noise_scale({"gamma": 0.05}), noise_scale({"sigma": 40.0, "threshold": 200.0}), noise_scale({})
    (20.0, 40.0, None)
    """
    if "sigma" in parameters:
        return parameters["sigma"]
    return 1 / parameters["gamma"] if parameters.get("gamma") else None


def _at(name: str, parameters: Mapping[str, float], noise: float) -> Mechanism:
    """Return the mechanism with other noise; what a student's word changes is left out."""
    if name == "LNMax":
        return LNMax(gamma=1 / noise)
    if name == "ConfidentGNMax" and {"threshold", "sigma_threshold"} <= set(parameters):
        check = {key: parameters[key] for key in ("threshold", "sigma_threshold")}
        return ConfidentGNMax(sigma=noise, **check)
    return GNMax(sigma=noise)
