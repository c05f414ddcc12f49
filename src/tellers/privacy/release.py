"""What leaves the room: an outcome and what it cost."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .rdp import RdpCurve
from .sealed import Sealed

if TYPE_CHECKING:
    from .noise import Noise


SILENT = -1
"""The label of a query that was not answered. Silence is an outcome, and it is charged."""


@dataclass(frozen=True, eq=False)
class Cost:
    """What a release cost: a publishable curve, and a sealed tighter one where it was computed.

    >>> Cost(worst=RdpCurve.zcdp(0.01)).tight is None
    True
    """

    worst: RdpCurve
    tight: Sealed[RdpCurve] | None = None

    def without_tight(self) -> "Cost":
        """Return the part of the cost that may leave.

        >>> Cost(RdpCurve.zero(), Sealed(RdpCurve.zero())).without_tight().tight is None
        True
        """
        return Cost(self.worst)


@dataclass(frozen=True)
class NoiseLevel:
    """How much noise released values carry: public, and what a student makes use of.

    `sigma` is the standard deviation in steps, and `steps` are a ballot's norm. The noise is independent in
    every entry, or, with `n_directions`, in that many public directions of the pool for each column, from
    which the values were brought back. `n_teachers` is how many ballots were added up.

    >>> level = NoiseLevel(sigma=8000.0, steps=1024, n_teachers=4303, n_directions=50)
    >>> level == NoiseLevel.from_dict(level.as_dict())
    True
    """

    sigma: float
    steps: int
    n_teachers: int
    n_directions: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values, as a ledger keeps it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> "NoiseLevel":
        """Return what `as_dict` wrote down."""
        n = said["n_directions"]
        return cls(
            float(said["sigma"]), int(said["steps"]), int(said["n_teachers"]), None if n is None else int(n)
        )


@dataclass(frozen=True, eq=False)
class Release:
    """The outcome of a batch of queries.

    `labels` holds a class or SILENT per query. An interactive mechanism may hand the student its own
    label back; `by_teachers` then says which labels the teachers gave. Where a noisy histogram is what is
    released, `values` holds its counts, queries x classes, and `labels` their leaders. Noisy sums of scores
    are `values` too, queries x columns, and `noise_level` says how much noise they carry.

    >>> release = Release(labels=np.array([3, SILENT]), cost=Cost(RdpCurve.zero()))
    >>> release.answered
    array([ True, False])
    """

    labels: NDArray[np.int64]
    cost: Cost
    by_teachers: NDArray[np.bool_] | None = None
    values: NDArray[np.int64] | None = None
    noise_level: NoiseLevel | None = None

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Return which labels the teachers gave."""
        return self.labels != SILENT if self.by_teachers is None else self.by_teachers

    def record(self) -> "Release":
        """Return a copy to keep: without the sealed cost, and nobody can write to it.

        >>> Release(np.array([3]), Cost(RdpCurve.zero())).record().labels.flags.writeable
        False
        """
        values = None if self.values is None else _frozen(self.values)
        return Release(
            _frozen(self.labels), self.cost.without_tight(), _frozen(self.answered), values, self.noise_level
        )

    def __len__(self) -> int:
        return len(self.labels)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = array.copy()
    array.flags.writeable = False
    return array


def describe(mechanism: Any, noise: "Noise") -> dict[str, Any]:
    """Return the permanent description of a release: which mechanism, with what, by which noise.

    The words of an event never change their meaning, so that an old ledger can be priced again.

    >>> from tellers import GNMax, noise
    >>> describe(GNMax(sigma=40.0), noise.seeded(7))
    {'mechanism': 'GNMax', 'parameters': {'sigma': 40.0}, 'noise': 'seeded', 'unit': 'one ballot'}
    """
    if not dataclasses.is_dataclass(mechanism) or isinstance(mechanism, type):
        raise TypeError(f"Expected a mechanism that is a dataclass instance, got {type(mechanism).__name__}.")
    given = {f.name: (getattr(mechanism, f.name), f.default) for f in dataclasses.fields(mechanism)}
    # What may be left out and was is not written: events of before there was such a parameter say the same.
    parameters = {n: _plain(value) for n, (value, usual) in given.items() if not (value is None is usual)}
    return {
        "mechanism": type(mechanism).__name__,
        "parameters": parameters,
        "noise": noise.name,
        "unit": "one ballot",
    }


def _plain(value: Any) -> Any:
    # Books are written as JSON, which has no tuples: an event must equal what is read back.
    return [_plain(part) for part in value] if isinstance(value, tuple) else value
