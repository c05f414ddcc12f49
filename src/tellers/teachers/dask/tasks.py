"""What travels: a description of the teachers one way, whole numbers the other.

A task names shards by their addresses. Rows, models and errors stay with the worker: what it sends back is
ballots, the numbers of teachers, and kinds of errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from .shards import Shard
from .versions import Versions

if TYPE_CHECKING:
    from ..torch import Batched


@dataclass(frozen=True, eq=False, repr=False)
class Job:
    """What all teachers of a run have in common; none of it comes from their rows.

    `n_outputs` counts classes, or labels where `many`. `store` is a folder as the workers see it, for the
    teachers they finish. `engine` is how networks are trained: None is one after another.

    >>> job = Job(None, n_outputs=10, many=False, seed=7, store="/data/teachers", n_teachers=3, versions={})
    >>> job.made_for
    {'n_classes': 10}
    """

    model: Any
    n_outputs: int
    many: bool
    seed: int
    store: str
    n_teachers: int
    versions: Versions
    trusted: tuple[str, ...] = ()
    thresholds: float | tuple[float, ...] = 0.5
    resolution: int = 1
    on_mismatch: Literal["refuse", "retrain"] = "refuse"
    network: bool = False
    engine: "Batched | None" = None

    @property
    def made_for(self) -> dict[str, int]:
        """Return what the teachers answer, as their manifests say it."""
        return {"n_labels" if self.many else "n_classes": self.n_outputs}


@dataclass(frozen=True)
class Batch:
    """The teachers of one task, with the shard of each; those at different places never share a task.

    >>> Batch((3, 4), (Shard("a.npz"), Shard("b.npz"))).only([4])
    Batch(numbers=(4,), shards=(Shard(address='b.npz', at=''),))
    """

    numbers: tuple[int, ...]
    shards: tuple[Shard, ...]

    @property
    def at(self) -> str:
        """Return which resource its worker must have; "" is none."""
        return self.shards[0].at

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where the rows are."""
        return tuple(shard.address for shard in self.shards)

    def only(self, numbers: Sequence[int]) -> "Batch":
        """Return the same task with some of its teachers."""
        kept = [(number, shard) for number, shard in zip(self.numbers, self.shards) if number in set(numbers)]
        return replace(self, numbers=tuple(n for n, _ in kept), shards=tuple(s for _, s in kept))


def make_batches(shards: Sequence[Shard], size: int) -> tuple[Batch, ...]:
    """Return tasks of up to `size` teachers, in the order of their numbers, each at one place.

    >>> [batch.numbers for batch in make_batches([Shard("a"), Shard("b"), Shard("c", at="north")], 2)]
    [(0, 1), (2,)]
    """
    batches: list[Batch] = []
    for number, shard in enumerate(shards):
        if batches and len(batches[-1].numbers) < size and batches[-1].at == shard.at:
            last = batches.pop()
            batches.append(Batch((*last.numbers, number), (*last.shards, shard)))
        else:
            batches.append(Batch((number,), (shard,)))
    return tuple(batches)


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What a worker says of one task: ballots in whole numbers (None after training), and what failed.

    `failures` are those of files and machines, `unable` who could not learn from its rows, and `troubles` why
    teachers among the `numbers` vote by the rule. `stop` is a pair of a kind and words, for what would fail
    everywhere. `worker` is who answers.

    >>> Answer((0,), ballots=np.array([[1, 2]], dtype=np.uint8)).failures
    {}
    """

    numbers: tuple[int, ...]
    ballots: NDArray[Any] | None = None
    failures: dict[int, str] | None = None
    stop: tuple[str, str] | None = None
    worker: str = ""
    unable: dict[int, str] = field(default_factory=dict)
    troubles: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "failures", dict(self.failures or {}))
        if self.ballots is not None and np.asarray(self.ballots).dtype.kind not in "iu":
            raise TypeError("Expected ballots in whole numbers, got others.")
