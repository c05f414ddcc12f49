"""What the steps of a run share: how they are called while they go on, and how long they took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

Show = Callable[[str, int, int], object]


@dataclass(eq=False)
class Steps:
    """The steps of a run as they go on; `show(step, done, total)` is told of each.

    >>> steps = Steps(lambda step, done, total: print(step, done, total))
    >>> with steps.step("labels"):
    ...     steps.progress("labels")(3, 10)
    labels 0 0
    labels 3 10
    >>> list(steps.seconds)
    ['labels']
    """

    show: Show
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Name a step while it goes on, and keep how long it took."""
        self.show(name, 0, 0)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)

    def progress(self, name: str) -> Callable[[int, int], object]:
        """Return what is told how far a step has come."""
        return lambda done, total: self.show(name, done, total)
