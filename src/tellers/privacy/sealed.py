"""Private numbers: values that depend on the votes and must not leave by accident.

A number computed from private data is as private as the data. `Sealed` holds such a value so that
printing, formatting, comparing, pickling or serialising it raises instead of leaking; the one way
to the value is the word `reveal()`, which is easy to find in a review.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, NoReturn, TypeVar, final

import numpy as np

from ..errors import SealedValue

T = TypeVar("T")

_ADVICE = (
    "This value is data-dependent and cannot be published. "
    "Use smooth.publish(...) or the public cost; reveal() is for the operator's eyes only."
)


def _sealed(*_args: object, **_kwargs: object) -> NoReturn:
    raise SealedValue(_ADVICE)


@final
class Sealed(Generic[T]):
    """A private value that does not print, format, convert, compare or serialise.

    Guarantee: the value reaches text or bytes only through an explicit `reveal()`.
    Assumes:   callers do not dig for the private attribute.
    Reference: Papernot et al. 2018, section 3.2: data-dependent costs are themselves private.

    >>> secret = Sealed(0.67)
    >>> secret
    Sealed(<private>)
    >>> f"epsilon is {secret}"
    Traceback (most recent call last):
        ...
    tellers.errors.SealedValue: This value is data-dependent and cannot be published. ...
    >>> secret.reveal()
    0.67
    """

    # Not a dataclass and without __dict__: asdict(), vars() and serialisers would take it apart.
    __slots__ = ("__value",)

    def __init__(self, value: T) -> None:
        object.__setattr__(self, "_Sealed__value", value)

    def reveal(self) -> T:
        """Return the private value; whoever calls this takes charge of it."""
        value: T = object.__getattribute__(self, "_Sealed__value")
        return value

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("A sealed value does not change. Seal the new value instead.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("A sealed value does not change.")

    def __repr__(self) -> str:
        # Debuggers and test runners call repr on everything, so this one must not raise.
        return "Sealed(<private>)"

    __str__ = __format__ = __float__ = __int__ = __index__ = __bool__ = __complex__ = _sealed
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _sealed
    __reduce_ex__ = __reduce__ = __getstate__ = __array__ = __iter__ = __len__ = _sealed
    __hash__ = None  # type: ignore[assignment]


@contextmanager
def unheard() -> Iterator[None]:
    """Keep to itself what a model warns of: it may speak of its rows, and would come from some rows alone."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
