"""Functions of SciPy that are loaded when first called: what mechanisms declare is read without them."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


@cache
def _found(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _later(module: str, name: str) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        return _found(module, name)(*given, **named)

    return call


log_ndtr = _later("scipy.special", "log_ndtr")
ndtri = _later("scipy.special", "ndtri")
roots_legendre = _later("scipy.special", "roots_legendre")
softmax = _later("scipy.special", "softmax")
maximum_filter = _later("scipy.ndimage", "maximum_filter")
maximum_filter1d = _later("scipy.ndimage", "maximum_filter1d")
minimum_filter1d = _later("scipy.ndimage", "minimum_filter1d")
