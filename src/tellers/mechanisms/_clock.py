"""What mechanisms cost on a Gaussian clock: families of pairs of laws, and their tables of prices.

A ledger that holds its budget on a clock reads what a query costs from a table. Here is what makes the
tables: a small frozen value per kind of question, which names every pair of laws that the question may have
on neighbouring votes. A table takes a second or two and is kept on disk, for it depends on public settings
alone: in `$TELLERS_CACHE`, `$XDG_CACHE_HOME/tellers` or `~/.cache/tellers`, whichever is set first.
"""

import hashlib
import json
import logging
import math
import os
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np

from ..errors import require_count, require_positive
from ..privacy._clock import TABLE_VERSION, TICKS, ClockFamily, ClockTable
from ._clock_joint import Joint, joint_table
from ._clock_pairs import (
    checks,
    gaussian_races,
    laplace_races,
    price_all,
    shifts,
    table_of,
    two_points,
)

# Margins are looked at a fiftieth of the noise apart; what is left is the grid of k.
_ALL = 1 + 3e-4
# Leads and thresholds are a lattice as well, a tenth of the noise apart.
_LATTICE = 1 + 1e-3


class KeptTables(ABC):
    """A family of pairs of laws, which is the same as another that says the same of itself.

    Its table is worked out once and kept.
    """

    family: ClassVar[str]

    def identity(self) -> dict[str, Any]:
        """Return plain values that tell this family from every other: its name and its fields."""
        found: dict[str, Any] = {"family": self.family}
        for one in fields(cast(Any, self)):
            value = getattr(self, one.name)
            # Numbers of NumPy become plain ones.
            found[one.name] = cast(Any, one.type)(value) if one.type in (int, float) else value
        return found

    def table(self, kappa: float) -> ClockTable:
        """Return the table at this kappa, from memory or disk where it is there."""
        return kept(self, kappa)

    @abstractmethod
    def work_out(self, kappa: float) -> ClockTable:
        """Return the table, worked out anew."""


@dataclass(frozen=True)
class ArgmaxClock(KeptTables):
    """The arg max of counts with discrete Gaussian noise, for one moved ballot of `weight` votes.

    Guarantee: prices hold for every histogram, any number of classes, both directions, on the noise that is
               drawn, ties at random.
    Assumes:   one ballot leaves a class and enters another, or leaves or enters one alone. Leads and
               thresholds are looked at a tenth of sigma apart (all of them where sigma is below 15), out to
               where less than kappa lies; the margin of a part in a thousand covers what is between.
    Reference: "The clock"; the family of "The price of an arg max".
    """

    family: ClassVar[str] = "argmax"
    sigma: float
    weight: int = 1

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_count(weight=self.weight)

    def work_out(self, kappa: float) -> ClockTable:
        return price_all(gaussian_races(self.sigma, self.weight, kappa), kappa, margin=_LATTICE)


@dataclass(frozen=True)
class LaplaceArgmaxClock(KeptTables):
    """The arg max of counts with discrete Laplace noise of scale 1/gamma, for one moved ballot.

    Guarantee: as `ArgmaxClock`.
    Assumes:   as `ArgmaxClock`; the lattice is finer near the kinks of the density, coarser far from them.
    Reference: "The clock".
    """

    family: ClassVar[str] = "laplace-argmax"
    gamma: float
    weight: int = 1

    def __post_init__(self) -> None:
        require_positive(gamma=self.gamma)
        require_count(weight=self.weight)

    def work_out(self, kappa: float) -> ClockTable:
        return price_all(laplace_races(self.gamma, self.weight, kappa), kappa, margin=_LATTICE)


@dataclass(frozen=True)
class CheckClock(KeptTables):
    """A noisy check, or a label's yes or no: a whole margin that moves by at most `weight`, Gaussian noise.

    Guarantee: prices hold for every margin, both directions, and every move up to the weight: the law after a
               smaller move is a mixture of those after none and after the whole one, and the left side of the
               clock's condition is convex in it.
    Assumes:   whole margins, discrete Gaussian noise; every margin that noise can decide is looked at.
    Reference: "The clock"; the family of `check_supremum`.
    """

    family: ClassVar[str] = "check"
    sigma: float
    weight: int = 1

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_count(weight=self.weight)

    def work_out(self, kappa: float) -> ClockTable:
        return price_all(checks(self.sigma, self.weight, kappa), kappa, margin=_ALL)


@dataclass(frozen=True)
class RangeClock(KeptTables):
    """A release whose losses lie in a range of width `epsilon`, or, with `pure`, in [-epsilon, epsilon].

    Guarantee: the left side of the clock's condition is convex in the likelihood ratio, so among laws with
               ratios in [l, u] the one on {l, u} alone is worst; both directions, every place of the range.
    Assumes:   bounded range (the exponential mechanism), or (epsilon, 0)-differential privacy.
    Reference: Dong, Durfee, Rogers 2020 (bounded range); "The clock".
    """

    family: ClassVar[str] = "range"
    epsilon: float
    pure: bool = False

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)

    def work_out(self, kappa: float) -> ClockTable:
        if self.pure:
            return price_all(two_points(2 * self.epsilon, np.array([self.epsilon])), kappa, margin=_ALL)
        places = self.epsilon * np.linspace(0, 1, 2002)[1:-1]
        return price_all(two_points(self.epsilon, places), kappa, margin=_ALL)


@dataclass(frozen=True)
class GaussianClock(KeptTables):
    """A whole number with discrete Gaussian noise of standard deviation `sigma`, moved by `by` steps.

    It costs its squared distance (by / sigma)^2, as in the filter for Gaussian noise, but for the end of the
    budget, where the grid of the noise is seen: there it costs c^2 times that, with c the factor of one step,
    2 sigma Phi^-1(1/2 + P[X = 0] / 2) = 1 + 1 / (24 sigma^2) + 7 / (1920 sigma^4) + ...; c^2 is a little more
    than 1 + 1 / (12 sigma^2). Prices are worked out from the laws and not from this series.

    Guarantee: the price of the one pair of laws, both orders; smaller moves cost no more.
    Assumes:   discrete Gaussian noise on whole numbers.
    Reference: Smith and Thakurta 2022 (continuous noise); "The clock".
    """

    family: ClassVar[str] = "gaussian"
    sigma: float
    by: int = 1

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_count(by=self.by)

    def work_out(self, kappa: float) -> ClockTable:
        return price_all(shifts(self.sigma, self.by, kappa), kappa, margin=_ALL)


@dataclass(frozen=True)
class GaussianSumClock(KeptTables):
    """Many whole numbers, each with discrete Gaussian noise, of which a unit moves several: a histogram, say.

    `squared` is the largest sum of squared moves, and `most` the largest move of one number.

    Guarantee: every number that moves is an event of its own (`GaussianClock`); each costs, in proportion to
               its squared move, no more than the dearest single move does, and no more than `squared` move.
    Assumes:   whole numbers and moves; independent noise.
    Reference: "The clock".
    """

    family: ClassVar[str] = "gaussian-sum"
    sigma: float
    squared: int
    most: int

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_count(squared=self.squared, most=self.most)

    def work_out(self, kappa: float) -> ClockTable:
        """Return the table, from the tables of single moves."""
        tables = [GaussianClock(self.sigma, by).table(kappa) for by in range(1, self.most + 1)]
        levels = sorted({level for table in tables for level in table.levels})
        shares = [max(price_at(t, at) / by**2 for by, t in enumerate(tables, 1)) for at in levels]
        rows = [[self.squared * share * (1 + 1e-12) / TICKS] for share in shares]
        return table_of([at / TICKS for at in levels], rows, kappa, events=self.squared)


@dataclass(frozen=True)
class SumClock(KeptTables):
    """Several questions that are paid as one item: parts, and how many of each a kind of outcome has seen.

    A check and the answer behind it are `SumClock((check, answer), ((1, 0), (1, 1)))`.

    Guarantee: every part is an event of its own, priced where at least as much is left as is read for it:
               prices at a level hold above it, so their sum at the level after the last part holds.
    Assumes:   which part is asked next depends on earlier outcomes alone; the parts seen are public.
    Reference: "The clock".
    """

    family: ClassVar[str] = "sum"
    parts: tuple[ClockFamily, ...]
    kinds: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.kinds or any(len(kind) != len(self.parts) or min(kind) < 0 for kind in self.kinds):
            raise ValueError("Expected, for every kind of outcome, how many of each part it has seen.")

    def identity(self) -> dict[str, Any]:
        """Return what tells this family from every other."""
        return {
            "family": self.family,
            "parts": [part.identity() for part in self.parts],
            "kinds": [list(kind) for kind in self.kinds],
        }

    def work_out(self, kappa: float) -> ClockTable:
        """Return the table, the sums of the parts' tables."""
        tables = [part.table(kappa) for part in self.parts]
        levels = sorted({level for table in tables for level in table.levels})
        rows = [
            [
                sum(n * price_at(table, level) for n, table in zip(kind, tables, strict=True)) / TICKS
                for kind in self.kinds
            ]
            for level in levels
        ]
        events = max(sum(n * t.events for n, t in zip(k, tables, strict=True)) for k in self.kinds)
        return table_of([level / TICKS for level in levels], rows, kappa, events=events)


@dataclass(frozen=True)
class ConfidentClock(KeptTables):
    """A check and the answer behind it, priced together: silent (0) or answered (1).

    `of` says what is checked and answered: "classes", the top count and the class that leads; "margin", by
    how much any count is above a threshold of its own, none of them below `threshold`; "label", the larger
    side of a label and whether a strict majority gives it, `sigma` being the noise on its sum.

    `silent` is the share of silence that is expected, from public numbers: the two prices are the best pair
    for it. 0 gives one price for both; None gives silence what a check alone costs, and an answer the least
    that goes with that, at most what both cost as two events.

    Guarantee: the clock's condition with these prices by kind, for every histogram of at most `n_teachers`
               votes, fewer where teachers abstain, every moved, given or kept ballot (of a label: every
               ballot that turns), both directions.
    Assumes:   ballots of one vote; `n_teachers` public, and not fewer than vote; a whole `threshold`. The
               lattices of leads, thresholds and top counts are covered by a margin of 3e-3.
    Reference: "The clock", section on checks and answers.
    """

    family: ClassVar[str] = "confident"
    n_teachers: int
    n_classes: int
    sigma: float
    threshold: int
    sigma_threshold: float
    silent: float | None = 0.0
    of: Literal["classes", "margin", "label"] = "classes"

    def __post_init__(self) -> None:
        require_count(n_teachers=self.n_teachers)
        require_count(2, n_classes=self.n_classes)
        require_positive(sigma=self.sigma, sigma_threshold=self.sigma_threshold)
        if int(self.threshold) != self.threshold:
            raise ValueError(f"Expected a whole threshold, got {self.threshold}.")
        if self.silent is not None and not 0 <= self.silent <= 1:
            raise ValueError(f"Expected a share of silence in [0, 1], or None, got {self.silent}.")

    def work_out(self, kappa: float) -> ClockTable:
        joint = Joint(
            self.of, self.n_teachers, self.n_classes, self.sigma, self.threshold, self.sigma_threshold
        )
        answer = CheckClock(self.sigma) if self.of == "label" else ArgmaxClock(self.sigma)
        apart = SumClock((CheckClock(self.sigma_threshold), answer), ((1, 0), (1, 1)))
        return joint_table(joint, self.silent, apart.table(kappa), kappa)


def squared_moves(sigma: float, l2: float, linf: float) -> GaussianSumClock | None:
    """Return the family of numbers that a unit moves by whole steps so long, or None for long moves."""
    squared = math.floor(l2 * l2 * (1 + 1e-12))
    most = math.floor(min(l2, linf) * (1 + 1e-12))
    # There is a table per length of a move, and an event per number that moves.
    return GaussianSumClock(float(sigma), squared, most) if 1 <= most <= 16 and squared <= 1000 else None


def price_at(table: ClockTable, level: int, kind: int | None = None) -> int:
    """Return the ticks that a table asks for where so many are left afterwards."""
    row = table.dearest if kind is None else table.prices[kind]
    at = int(np.searchsorted(table.levels, level, side="right")) - 1
    return row[at]


# --- Tables are kept: in memory, and on disk under a name that says all they depend on. ---


_LOG = logging.getLogger(__name__)


@lru_cache(maxsize=512)
def kept(family: KeptTables, kappa: float) -> ClockTable:
    """Return the table of a family: from memory, from disk, or worked out and written there.

    A file that cannot be read, or is not the table it should be, is worked out again, and so is one that
    another user wrote or may write: a table that asks for too little would let too much through. A folder
    that cannot be written is none.
    """
    said = {"version": TABLE_VERSION, "kappa": float(kappa), **family.identity()}
    path = cache_folder() / f"clock-{_digest(said)[:32]}.json"
    try:
        stored = json.loads(_own(path))
        if stored["of"] == said and stored["digest"] == _digest(stored["table"]):
            return ClockTable.from_json(stored["table"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    _LOG.info("Working out clock prices (%s), once, for %s ...", said["family"], path.parent)
    table = family.work_out(kappa)
    found = table.to_json()
    _write(path, json.dumps({"of": said, "table": found, "digest": _digest(found)}))
    return table


def _own(path: Path) -> str:
    """Return the text of a file that nobody but this user, or the system's own, may have written."""
    with path.open(encoding="ascii") as file:
        if os.name == "posix":
            said = os.fstat(file.fileno())
            if said.st_uid not in (os.geteuid(), 0) or said.st_mode & 0o022:
                raise PermissionError(f"Expected a table of one's own, got one that others write: {path}.")
        return file.read()


def _digest(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode("ascii")).hexdigest()


def cache_folder() -> Path:
    """Return the folder in which tables are kept."""
    if os.environ.get("TELLERS_CACHE"):
        return Path(os.environ["TELLERS_CACHE"]).absolute()
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"]).absolute() / "tellers"
    try:
        return Path.home() / ".cache" / "tellers"
    except RuntimeError:
        return Path(tempfile.gettempdir()).absolute() / "tellers"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="ascii") as file:
            file.write(text)
    except OSError:
        return
    try:
        os.replace(file.name, path)
    except OSError:
        Path(file.name).unlink(missing_ok=True)
