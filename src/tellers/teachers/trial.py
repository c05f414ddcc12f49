"""A model tried out before it meets private rows: on public rows, or made-up ones, with made-up labels.

A teacher that cannot learn from its rows is a secret (see `fallback`). A model that cannot learn from any
rows is a wrong setting, and has to be told. So each model is first fitted to stand-in rows, which are
nobody's, and asked about them: what it says then may be quoted.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtra
from ..rows import numeric_rows
from .ballots import ask_class, ask_labels
from .fallback import unheard
from .training import TooLong, can_interrupt, copy_estimator, deadline

Rows = NDArray[Any]
Learn = Callable[[Rows, Rows], None]

_FEW, MANY = 48, 1000
_STEPS = ("epochs", "iterations")
"""Parameters of our networks that say how long they train: one round will do here."""


def try_model(
    model: Any,
    shape: tuple[int, ...],
    made_for: Mapping[str, int],
    *,
    public: NDArray[Any] | None = None,
    timeout: float | None = None,
) -> None:
    """Refuse a model that cannot learn stand-in rows of a shape, or that answers something else than asked.

    `public` rows are taken where there are some, else rows are made up: numbers around 0, or counts for those
    that want none below. A model that does not take a few dozen rows is tried on many. No private row is
    touched.

    >>> from sklearn.linear_model import LogisticRegression
    >>> try_model(LogisticRegression(), (4,), {"n_classes": 3})
    >>> try_model(LogisticRegression(C=-1.0), (4,), {"n_classes": 3})
    Traceback (most recent call last):
        ...
    ValueError: Expected a model that can learn 3 classes from rows of shape (4,), got LogisticRegression, ...
    """

    def learn(rows: NDArray[Any], targets: NDArray[Any]) -> None:
        _fit_and_ask(model, rows, targets, timeout=timeout, made_for=made_for)

    try_learning(learn, shape, made_for, public=public, name=type(model).__name__)


def try_learning(
    learn: Learn, shape: tuple[int, ...], made_for: Mapping[str, int], *, public: Rows | None, name: str
) -> None:
    """Refuse what cannot learn stand-in rows: `learn(rows, targets)` raises. See `try_model`.

    >>> try_learning(lambda rows, targets: None, (4,), {"n_labels": 2}, public=None, name="Model")
    """
    first: tuple[str, BaseException] | None = None
    for what, rows in _stand_ins(shape, max(made_for.values()), public):
        try:
            learn(rows, _made_up(len(rows), made_for))
            return
        except MissingExtra:
            raise
        except (Exception, SystemExit, TooLong) as error:
            if isinstance(error, ImportError):
                raise
            first = first or (what, error)
    assert first is not None  # there is at least one table
    what, failure = first
    late = isinstance(failure, TooLong)
    said = "is not finished in time" if late else f"{type(failure).__name__}: {failure}"
    answers = " and ".join(f"{n} {kind.removeprefix('n_')}" for kind, n in made_for.items())
    raise ValueError(
        f"Expected a model that can learn {answers} from rows of shape {shape}, got "
        f"{name}, which fails on {what} with made-up labels ({said}). Change its settings, "
        "or take another model. No private row was touched."
    ) from failure


def _made_up(n_rows: int, made_for: Mapping[str, int]) -> NDArray[np.int64]:
    if "n_classes" in made_for:
        return np.arange(n_rows) % made_for["n_classes"]
    # Yes and no to every label, in many combinations.
    targets = np.random.default_rng(7).integers(0, 2, size=(n_rows, made_for["n_labels"]))
    targets[0], targets[1] = 0, 1
    return targets


def _fit_and_ask(
    model: Any, rows: Rows, targets: Rows, *, timeout: float | None, made_for: Mapping[str, int]
) -> None:
    from threadpoolctl import threadpool_limits

    copy = _light(copy_estimator(model, 0, 0))
    limit = timeout if can_interrupt() else None
    with threadpool_limits(limits=1), deadline(limit, alone=False), unheard():
        copy.fit(rows, targets)
        if "n_labels" in made_for:
            ask_labels(copy, rows, n_labels=made_for["n_labels"])
        else:
            ask_class(copy, rows, n_classes=made_for["n_classes"])


def _light(model: Any) -> Any:
    """Return a model whose training is short, where its parameters allow it, and is logged nowhere."""
    if not (hasattr(model, "get_params") and hasattr(model, "set_params")):
        return model
    changed: dict[str, Any] = {}
    for name, value in model.get_params(deep=True).items():
        last = name.rpartition("__")[2]
        if last in _STEPS and isinstance(value, int) and value > 1:
            changed[name] = 1
        elif last == "log_folder" and value is not None:
            changed[name] = None
    return model.set_params(**changed) if changed else model


def _stand_ins(
    shape: tuple[int, ...], n_answers: int, public: NDArray[Any] | None
) -> Iterator[tuple[str, NDArray[Any]]]:
    for n in (max(_FEW, 2 * n_answers), max(MANY, 10 * n_answers)):
        if public is not None and len(public):
            rows = numeric_rows(public[:n])
            yield "public rows", rows[np.arange(n) % len(rows)]
            continue
        made = np.random.default_rng(7).normal(size=(n, *shape))
        yield "made-up rows", made
        yield "made-up rows", np.floor(np.abs(made) * 3)
