"""Options of a training: where teachers are kept, who trains them, and what happens when one fails."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

from numpy.typing import ArrayLike

from ..errors import require_count, require_positive
from ..privacy._rows import numeric_rows

Progress = Callable[[int, int], object]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How teachers are trained, whatever they are and whatever they answer.

    With `folder`, finished teachers are kept there and reused by the next call; those made of something else
    (other rows, parameters, seed, versions) are refused, or trained anew with `on_mismatch="retrain"`.
    `trusted` names types beyond scikit-learn's that their files may hold. `n_jobs=None` starts processes
    where a loop would take long. `progress` is called with the number of finished teachers and of all.

    `public` rows are what a model is tried on before it meets private ones. A teacher that raises, takes more
    than `timeout` seconds or kills its process is tried again `retries` times; networks are neither stopped
    nor tried again. `engine` is theirs: "auto" takes what is faster here, measured on made-up rows; "batched"
    or `Batched(...)` trains chunks of networks at once, "loop" one at a time.

    >>> TrainingOptions(n_jobs=4, on_mismatch="hope")
    Traceback (most recent call last):
        ...
    ValueError: Expected on_mismatch='refuse' or 'retrain', got 'hope'.
    """

    folder: str | PathLike[str] | None = None
    n_jobs: int | None = None
    progress: Progress | None = None
    timeout: float | None = None
    retries: int = 1
    on_mismatch: Literal["refuse", "retrain"] = "refuse"
    trusted: Sequence[str] = ()
    public: ArrayLike | None = None
    engine: Any = "auto"

    def __post_init__(self) -> None:
        require_count(0, retries=self.retries)
        if self.timeout is not None:
            require_positive(timeout=self.timeout)
        if self.n_jobs is not None:
            require_count(n_jobs=self.n_jobs)
        if self.on_mismatch not in ("refuse", "retrain"):
            raise ValueError(f"Expected on_mismatch='refuse' or 'retrain', got {self.on_mismatch!r}.")
        if self.public is not None:
            object.__setattr__(self, "public", numeric_rows(self.public))
