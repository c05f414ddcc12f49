"""Public rows that are copies of private ones: counted before anything is trained, and kept, or refused."""

import warnings
from collections.abc import Callable

from ..config import RunConfig
from ..copies import count_copies
from .data import Tables
from .folder import RunFolder
from .label_data import LabelTables
from .record import keep_record

Warn = Callable[[str], object]


def check_overlap(config: RunConfig, tables: Tables | LabelTables, folder: RunFolder) -> None:
    """Count pool and test rows that are exact copies of private rows, for the record, or refuse them.

    What protects a private row does not protect its copy in a public table. The number looks at private rows:
    it is written to the private record of the run, beside what is known of alike clips, and told to nobody.
    A refusal, which the operator has to ask for, tells that there are some: one bit, and no number.

    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from tellers.pipeline.data import read_tables
    >>> folder = RunFolder(Path(tempfile.mkdtemp()))
    >>> with folder.held():
    ...     check_overlap(RunConfig(), read_tables(RunConfig().data, seed=7), folder)
    >>> json.loads(folder.record.read_bytes())
    {'copies': {'pool': 0, 'test': 0}, 'notes': []}
    """
    private = tables.private.X
    copies = {
        "pool": count_copies(tables.pool, private).reveal(),
        "test": 0 if tables.test is None else count_copies(tables.test.X, private).reveal(),
    }
    keep_record(folder, copies=copies, notes=list(tables.withheld))
    if config.data.overlap == "refuse" and any(copies.values()):
        raise ValueError(
            f"{config.where('data', 'overlap')}: Expected public rows that are none of the private ones, but "
            f"some of the pool or the test are copies of them; {folder.record} says how many. What is public "
            "is not protected, and labels of such rows say what the private ones were. Take them out of one "
            "of the two tables, unless rows with so few features are bound to meet. Or take overlap = "
            '"warn". That there are some is a fact about private rows: keep it to yourself.'
        )


def tell_units(tables: Tables | LabelTables, warn: Warn | None = None) -> None:
    """Warn where clips of one source were told to be dealt one by one; the card says the same.

    >>> from tellers.pipeline.data import read_tables
    >>> tell_units(read_tables(RunConfig().data, seed=7))
    """
    for note in () if tables.private.places is None else tables.private.places.notes:
        if warn is None:
            warnings.warn(note, UserWarning, stacklevel=3)
        else:
            warn(note)
