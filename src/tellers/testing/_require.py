"""The assertion that all checks use."""

from typing import Any


def require(holds: Any, message: str) -> None:
    """Raise AssertionError with a message unless something holds."""
    # Not an assert statement: this must also speak under python -O.
    if not holds:
        raise AssertionError(message)
