"""What a run leaves behind: private numbers where they were asked for, the student, the public numbers."""

import shutil
from collections.abc import Mapping
from typing import Any

from ..card import ModelCard, export_student
from ..report import write_report
from .folder import RunFolder, write_json


def write_outcome(
    folder: RunFolder,
    *,
    result: dict[str, Any],
    student: Any,
    numbers: dict[str, Any] | None,
    beside: Mapping[str, bytes] | None = None,
) -> None:
    """Write down what came of a run; the public numbers last but for the pages, as they say it is done.

    >>> import tempfile
    >>> from pathlib import Path
    >>> place = RunFolder(Path(tempfile.mkdtemp()))
    >>> write_outcome(place, result={"format": 1}, student=None, numbers=None)
    Traceback (most recent call last):
        ...
    ValueError: Expected a table at mechanism, got nothing.
    """
    if numbers is not None:
        write_json(folder.summary, numbers, public=False)
    card = ModelCard.from_result(result)
    export_student(student, folder.student, card=card, overwrite=True, beside=beside)
    shutil.rmtree(folder.training, ignore_errors=True)  # it is taught
    write_json(folder.result, result, public=True)
    write_report(folder.path)
    if numbers is not None:
        write_report(folder.path, private=True)
