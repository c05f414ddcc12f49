"""Public rows that are copies of private ones: counted before anything is trained, told or refused."""

import warnings
from collections.abc import Callable

from ..config import RunConfig
from ..copies import count_copies
from .data import Tables
from .label_data import LabelTables

Warn = Callable[[str], object]


def check_overlap(config: RunConfig, tables: Tables | LabelTables, warn: Warn | None = None) -> None:
    """Warn of pool and test rows that are exact copies of private rows, or refuse them.

    What protects a private row does not protect its copy in a public table. The number looks at private rows:
    it is told to whoever runs it, by `warn` or as a Python warning, and written nowhere.

    >>> from tellers.pipeline.data import read_tables
    >>> check_overlap(RunConfig(), read_tables(RunConfig().data, seed=7))
    """
    private = tables.private.X
    n_pool = count_copies(tables.pool, private).reveal()
    n_test = 0 if tables.test is None else count_copies(tables.test.X, private).reveal()
    if not n_pool + n_test:
        return
    parts = [
        (n_pool, len(tables.pool), "pool"),
        (n_test, 0 if tables.test is None else len(tables.test), "test"),
    ]
    words = " and ".join(f"{n:,} of {total:,} rows of the {what}" for n, total, what in parts if n)
    found = f"{words} {'is a copy' if n_pool + n_test == 1 else 'are copies'} of private rows"
    advice = (
        "What is public is not protected, and labels of such rows say what the private ones were. Take them "
        "out of one of the two tables, unless rows with so few features are bound to meet."
    )
    if config.data.overlap == "refuse":
        raise ValueError(
            f"{config.where('data', 'overlap')}: Expected public rows that are none of the private ones, but "
            f'{found}. {advice} Or take overlap = "warn".'
        )
    message = f"{found}, feature by feature. {advice} This number looks at private rows: keep it to yourself."
    _tell(message, warn)


def tell_units(tables: Tables | LabelTables, warn: Warn | None = None) -> None:
    """Warn where clips of one source were told to be dealt one by one; the card says the same.

    >>> from tellers.pipeline.data import read_tables
    >>> tell_units(read_tables(RunConfig().data, seed=7))
    """
    for note in () if tables.private.places is None else tables.private.places.notes:
        _tell(note, warn)


def _tell(message: str, warn: Warn | None) -> None:
    if warn is None:
        warnings.warn(message, UserWarning, stacklevel=4)
    else:
        warn(message)
