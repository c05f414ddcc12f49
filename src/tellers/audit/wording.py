"""The finding of an audit in words that anybody can read."""

import math


def finding(epsilon: float, claim: float) -> str:
    """Return what was found and what is claimed; the one rounded down, the other up.

    >>> finding(1.79991, 2.5)
    'The audit found at least 1.799; the claim is 2.5'
    """
    down, up = math.floor(1000 * epsilon) / 1000, math.ceil(1000 * claim * (1 - 1e-12)) / 1000
    return f"The audit found at least {down:.6g}; the claim is {up:.6g}"
