"""The exception tree and the checks that raise it.

    TellersError
      BudgetExhausted    a query was refused before any noise was drawn
      SealedValue        a private number was about to become public
      InsecureNoise      seeded noise where only secure noise may be used
      LedgerConflict     a key was used for two different questions, or the books are not what they were
        KeyReused        a key was asked before, with another question
        Unsettled        a key was reserved and never settled: somebody is at it, or was interrupted
      Unwitnessed        an answer is on the books, and the witness that must know of it does not answer
      ClipsRefused       recordings that cannot be used, where that was to stop the run
      ConfigError        a settings file, or settings made in Python, that cannot be run
      MissingExtra       an optional library is needed and not installed
      TeacherFailed      files or machines of teachers failed, whatever their rows
      ClusterFailed      a cluster cannot be reached, was lost, or does not fit this program
      FolderInUse        another process is at work in the same folder
      LinkFailed         the other party of a secret computation is gone, late, or not who it should be
      PeerRefused        another party showed a wrong certificate, or sent what does not belong
      RoundAborted       a confidential query ended without an answer
        OutcomeChanged   its outcome was changed on the way: charged, and ask on as if it were not

Bad arguments stay ValueError and TypeError. A message says what was expected, what came and
what to do; it never carries a tally.
"""

import math
from collections.abc import Iterable
from typing import Any, NoReturn


class TellersError(Exception):
    """Root of every error that is about privacy rather than about an argument."""


class BudgetExhausted(TellersError):
    """A query would have passed a budget; nothing was charged and no noise was drawn.

    `account` names the account that cannot pay, or is None for the budget of the data itself.
    """

    account: str | None = None


class SealedValue(TellersError, TypeError):
    """A private number was printed, formatted, compared or stored as if it were public."""


class InsecureNoise(TellersError):
    """Reproducible noise was offered where a guarantee depends on its secrecy."""


class LedgerConflict(TellersError):
    """A key was used for two questions or settled twice, or the books are other ones, or were changed."""


class KeyReused(LedgerConflict):
    """A key was asked before, with another question or on another account; nothing was charged now."""


class Unsettled(LedgerConflict):
    """A key is on the books without an outcome; its price stays charged and no label came of it."""


class Unwitnessed(TellersError, OSError):
    """An answer is on the books and was not told: the ledger's witness does not answer. Ask again."""


class TeacherFailed(TellersError, RuntimeError):
    """Files or machines of teachers failed, whatever their rows; rows that teach nothing raise nothing."""


class FolderInUse(TellersError):
    """Another process is at work in the same folder."""


class ClusterFailed(TellersError, RuntimeError):
    """A cluster cannot be reached, was lost for too long, or runs other versions than this program."""


class LinkFailed(TellersError, RuntimeError):
    """A secret computation with another party could not start, or did not come to its end."""


class LinkUnreached(LinkFailed):
    """A secret computation did not start: no connection, or none on which the other party proved itself.

    Anybody on the way may be the cause. What fails later is a plain LinkFailed.
    """


class PeerRefused(TellersError, ConnectionError):
    """Another party showed a wrong certificate or sent what does not belong; its connection was closed."""


class RoundAborted(TellersError, RuntimeError):
    """A confidential query ended without an answer; the message says why, and whether it was charged."""


class OutcomeChanged(RoundAborted):
    """An outcome that was changed on its way; nothing that the guardian sees may depend on that."""


class ClipsRefused(TellersError, ValueError):
    """Recordings that cannot be used, where that was to stop the run; `findings` has one entry for each."""

    def __init__(self, message: str, findings: Iterable[Any] = ()) -> None:
        self.findings = tuple(findings)
        super().__init__(message)

    def __reduce__(self) -> tuple[type, tuple[str, tuple[Any, ...]]]:
        return type(self), (str(self), self.findings)


class ConfigError(TellersError, ValueError):
    """Settings that cannot be run; `problems` holds one line for each thing that is wrong with them."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = (problems,) if isinstance(problems, str) else tuple(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type, tuple[tuple[str, ...]]]:
        return type(self), (self.problems,)


class MissingExtra(TellersError, ImportError):
    """An optional library is needed; the message names the extra that brings it."""


def require_positive(**values: float) -> None:
    """Refuse numbers that are not finite and positive, naming the argument."""
    for name, value in values.items():
        if not _is_finite_number(value) or not value > 0:
            _refuse(f"{name} > 0 and finite", name, value)


def require_finite(**values: float) -> None:
    """Refuse NaN, infinities and things that are not numbers, naming the argument."""
    for name, value in values.items():
        if not _is_finite_number(value):
            _refuse(f"a finite number for {name}", name, value)


def require_fraction(**values: float) -> None:
    """Refuse numbers outside the open interval (0, 1), naming the argument."""
    for name, value in values.items():
        if not _is_finite_number(value) or not 0 < value < 1:
            _refuse(f"0 < {name} < 1", name, value)


def require_count(minimum: int = 1, /, **values: int) -> None:
    """Refuse anything but whole numbers of at least `minimum`, naming the argument."""
    for name, value in values.items():
        whole = _is_finite_number(value) and float(value).is_integer()
        if not whole or value < minimum:
            _refuse(f"a whole number {name} >= {minimum}", name, value)


def require_present(**columns: Iterable[object]) -> None:
    """Refuse columns with a missing entry (None, NaN, an empty string), naming the column and the row."""
    for name, values in columns.items():
        for row, value in enumerate(values):
            if _is_missing(value):
                raise ValueError(
                    f"Expected a value in every row of {name}, got none in row {row}. "
                    "Fill it in or drop the row."
                )


def _is_missing(value: object) -> bool:
    if value is None or (isinstance(value, str) and not value.strip()):
        return True
    try:
        return bool(value != value)  # NaN and NaT differ from themselves
    except TypeError:  # a missing value that refuses even to be compared, as pandas has one
        return True


def _is_finite_number(value: object) -> bool:
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return False
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


def _refuse(expected: str, name: str, value: object) -> NoReturn:
    shown = float(value) if isinstance(value, float) else value
    raise ValueError(f"Expected {expected}, got {name}={shown!r}.")
