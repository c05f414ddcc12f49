"""The same mechanism for more or fewer votes: noise and thresholds grow with the electorate."""

from dataclasses import fields, replace
from typing import Any, TypeVar

from ..errors import require_positive

M = TypeVar("M")

# Fields counted in votes. LNMax's gamma is the reciprocal of such a field.
_IN_VOTES = ("sigma", "threshold", "sigma_threshold")


def scaled(mechanism: M, factor: float) -> M:
    """Return the mechanism for votes that are `factor` times as many: its noise and thresholds times that.

    Multiplying every weight by a common denominator, or letting more or fewer teachers vote, changes the
    electorate; scaled with it, a mechanism answers as accurately as before. A factor of 1 changes nothing.

    >>> from tellers import ConfidentGNMax, LNMax
    >>> scaled(ConfidentGNMax(sigma=40.0, threshold=200, sigma_threshold=150.0), 1.5)
    ConfidentGNMax(sigma=60.0, threshold=300.0, sigma_threshold=225.0)
    >>> scaled(LNMax(gamma=0.05), 0.5)
    LNMax(gamma=0.1)
    """
    require_positive(factor=factor)
    if factor == 1:
        return mechanism
    names = {field.name for field in fields(mechanism)}  # type: ignore[arg-type]
    changed: dict[str, Any] = {n: _tidy(getattr(mechanism, n) * factor) for n in _IN_VOTES if n in names}
    if "gamma" in names:
        changed["gamma"] = _tidy(mechanism.gamma / factor)  # type: ignore[attr-defined]
    if not changed:
        raise TypeError(f"Expected a mechanism with sigma or gamma, got {type(mechanism).__name__}.")
    return replace(mechanism, **changed)  # type: ignore[type-var]


def _tidy(value: float) -> float:
    # What is drawn, priced and written down is this number: 57.5 reads better than 57.49999999999999.
    return float(f"{value:.12g}")
