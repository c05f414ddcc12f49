"""The page of sound beside the report of a run on prepared clips, as a student of `ears` has it too."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..config import RunConfig
from ..config.sections import CLIPS
from ..pipeline.data import read_tables
from ..pipeline.label_data import read_label_tables
from .hearing import load_hearing
from .sheets import SOUND_PAGE, write_sound


def write_run_sound(folder: str | PathLike[str], config: RunConfig) -> Path | None:
    """Write what the student of a finished run hears in its test clips, and return the page.

    Test clips are public: the page needs no guarantee and costs nothing. None where the rows of a run are no
    clips, or where none were set apart to test on.

    >>> from tellers.config import default_config
    >>> write_run_sound("study", default_config("digits")) is None
    True
    """
    if config.data.name != CLIPS:
        return None
    found = _test_clips(config)
    if found is None:
        return None
    hearing = load_hearing(folder)
    X, truth = found
    pictures = X.reshape(len(X), *hearing.features.shape)
    return write_sound(Path(folder) / SOUND_PAGE, hearing, pictures, truth=truth)


def _test_clips(config: RunConfig) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """Return the pictures that a run set apart to test on, flat, and which labels each has."""
    if config.labels.names:
        labelled = read_label_tables(config).test
        return None if labelled is None else (np.asarray(labelled.X), np.asarray(labelled.y))
    # By the very settings of the run: with others these would be private clips.
    tables = read_tables(config.data, seed=config.seed, by=config.protects, personal=config.personal)
    if tables.test is None:
        return None
    return np.asarray(tables.test.X), np.eye(tables.test.n_classes, dtype=np.int64)[tables.test.y]
