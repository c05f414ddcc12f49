"""What checks of mechanisms have in common: the description, and what draws prove."""

import dataclasses
import json
from typing import Any

import numpy as np
from scipy.stats import beta

from .. import noise
from ..rdp import Floats
from ..release import describe
from ..votes import Integers
from ._promise import require


def check_description(mechanism: Any) -> str:
    """Require a frozen dataclass of public fields that can be stored; return its description."""
    name = type(mechanism).__name__
    frozen = getattr(getattr(mechanism, "__dataclass_params__", None), "frozen", False)
    require(frozen, f"Expected a frozen dataclass, got {name}. Decorate it with @dataclass(frozen=True).")
    hidden = [field.name for field in dataclasses.fields(mechanism) if field.name.startswith("_")]
    require(not hidden, f"Expected public fields only, got {hidden}: what is private comes as an argument.")
    missing = [w for w in ("price", "release") if not callable(getattr(mechanism, w, None))]
    require(not missing, f"Expected {name} to have methods `price` and `release`, missing {missing}.")
    try:
        return json.dumps(describe(mechanism, noise.seeded(0))) + repr(mechanism)
    except TypeError as error:
        raise AssertionError(f"Expected fields that can be stored in an event: {error}.") from error


def clopper_pearson(times: Integers, n: int, error: float) -> Floats:
    """Return lower and upper limits of the probabilities, each wrong with probability at most `error`."""
    low = np.where(times > 0, beta.ppf(error, np.maximum(times, 1), n - times + 1), 0.0)
    high = np.where(times < n, beta.isf(error, times + 1, np.maximum(n - times, 1)), 1.0)
    return np.stack([low, high])


def coin(p: Floats, q: Floats, orders: Floats) -> Floats:
    """Return, per order, the largest divergence D(p || q) that the limits of the coins prove."""
    # The pair of heads probabilities nearest to each other; the same one where the intervals meet.
    above, below = p[0] > q[1], p[1] < q[0]
    heads = [np.select([above, below], pair, 0.5) for pair in ([p[0], p[1]], [q[1], q[0]])]
    with np.errstate(divide="ignore"):
        sides = [orders * np.log(a)[:, None] + (1 - orders) * np.log(b)[:, None]
                 for a, b in (heads, [1 - heads[0], 1 - heads[1]])]  # fmt: skip
    return np.asarray((np.logaddexp(*sides) / (orders - 1)).max(axis=0))
