"""Checks of the fields that label mechanisms share, and plain numbers to store them as."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...errors import require_positive
from .rules import NORMS


def store(record: Any, kind: type, *names: str) -> None:
    """Turn fields of a frozen record into plain numbers, so that they can be written down.

    >>> from tellers.mechanisms.labels import Binary
    >>> Binary(sigma=5, n_labels=3.0)
    Binary(sigma=5.0, n_labels=3, resolution=1)
    """
    for name in names:
        object.__setattr__(record, name, kind(getattr(record, name)))


def require_norm(max_norm: float, norm: str) -> None:
    """Refuse a clip that is no positive number, and names of norms that do not exist.

    >>> require_norm(0, "l2")
    Traceback (most recent call last):
        ...
    ValueError: Expected max_norm > 0 and finite, got max_norm=0.
    """
    require_positive(max_norm=max_norm)
    if norm not in NORMS:
        raise ValueError(f"Expected norm to be one of {', '.join(NORMS)}, got {norm!r}.")


def is_number(value: Any) -> bool:
    """Say whether something is one number, Python's or NumPy's.

    >>> is_number(0.3), is_number(np.float32(0.3)), is_number("0.3"), is_number(True)
    (True, True, False, False)
    """
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def listed(values: Any) -> tuple[Any, ...]:
    """Return what a list holds, and nothing of what is no list: then it has the wrong length.

    >>> listed([0.3, 0.5]), listed(None), listed("ab")
    ((0.3, 0.5), (), ())
    """
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, (str, bytes)) else ()


def shares(values: float | Sequence[float], n_labels: int, name: str) -> tuple[float, ...]:
    """Return one share of the teachers per label, from one number for all or one each.

    >>> shares(0.5, 3, "shares"), shares([0.2, 0.8], 2, "shares")
    ((0.5, 0.5, 0.5), (0.2, 0.8))
    """
    given: tuple[Any, ...] = (values,) * n_labels if is_number(values) else listed(values)
    if len(given) != n_labels or not all(is_number(v) and 0 < v < 1 for v in given):
        raise ValueError(
            f"Expected {name} strictly between 0 and 1, one for all labels or one for each of {n_labels}, "
            f"got {values!r}."
        )
    return tuple(float(v) for v in given)
