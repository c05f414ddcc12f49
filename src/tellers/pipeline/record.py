"""The private record of a run: what its operator may know, and nobody else.

Whether teachers could learn, how many public rows are copies of private ones and which clips are alike are
facts about private rows. A run neither prints nor returns them, and goes on whatever they are: they are
written to one file in its private folder, which is there after every run. So that it is there says nothing.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..sealed import Sealed
from .folder import RunFolder, write_json

FIRST = "first"
"""The name of the first round, which is that of all teachers where none are trained anew."""


def say_where(place: Path) -> str:
    """Return the line that tells the operator of the record, the same in every run.

    >>> print(say_where(Path("study/private/record.json")))
    Teachers that could not learn, and public rows that are copies of private ones, are written to ...
    """
    return (
        "Teachers that could not learn, and public rows that are copies of private ones, are written to "
        f"{place}, whether there are any or not. It is as private as the rows."
    )


def keep_record(folder: RunFolder, **found: Any) -> None:
    """Write parts of the record down, and leave its other parts as they are.

    >>> import tempfile
    >>> folder = RunFolder(Path(tempfile.mkdtemp()))
    >>> with folder.held():
    ...     keep_record(folder, copies={"pool": 0, "test": 0})
    >>> json.loads(folder.record.read_bytes())["copies"]
    {'pool': 0, 'test': 0}
    """
    there = json.loads(folder.record.read_bytes()) if folder.record.exists() else {}
    write_json(folder.record, {**there, **found}, public=False)


def keep_troubles(folder: RunFolder, troubles: Sealed[dict[int, str]]) -> None:
    """Write down which teachers of a round voted by the rule, and why.

    >>> import tempfile
    >>> folder = RunFolder(Path(tempfile.mkdtemp()))
    >>> with folder.held():
    ...     keep_troubles(folder, Sealed({3: "ValueError"}))
    >>> json.loads(folder.record.read_bytes())["teachers"]
    {'first': {'3': 'ValueError'}}
    """
    there: Mapping[str, Any] = {}
    if folder.record.exists():
        there = json.loads(folder.record.read_bytes()).get("teachers", {})
    now = {str(number): why for number, why in sorted(troubles.reveal().items())}
    keep_record(folder, teachers={**there, folder.round or FIRST: now})
