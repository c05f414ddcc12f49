"""The folder of a run: its public result, and its private numbers only for who asks for them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..card.entries import COUNTS, NUMBER, SHARE, SHARES, TABLE, TABLES, Entries
from ..card.groups import Curve, read_curves
from ..card.result import RunResult, read_cost


@dataclass(frozen=True, kw_only=True, repr=False)
class PrivateNumbers:
    """What only the operator may see; every part may be missing.

    >>> PrivateNumbers.from_dict({"plurality_accuracy": 0.97}).plurality_accuracy
    0.97
    >>> PrivateNumbers.from_dict({})
    PrivateNumbers(<private>)
    """

    teacher_accuracies: tuple[float, ...]
    plurality_accuracy: float | None
    open_model_accuracy: float | None
    gaps: tuple[int, ...]
    accuracy_against_noise: tuple[tuple[float, float], ...]
    exact_cost: tuple[tuple[int, float], ...]
    exact_by_group: Mapping[str, Curve] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, table: dict[str, Any]) -> "PrivateNumbers":
        """Read the content of a `summary.json`, or say which entry is not what it should be."""
        read = Entries(table)
        personal: dict[str, Any] = read.at("personal", TABLE, {})
        points = read.at("accuracy_against_noise", TABLES, ())
        return cls(
            teacher_accuracies=read.at("teacher_accuracies", SHARES, ()),
            plurality_accuracy=read.at("plurality_accuracy", SHARE, None),
            open_model_accuracy=read.at("open_model_accuracy", SHARE, None),
            gaps=read.at("gaps", COUNTS, ()),
            accuracy_against_noise=tuple(
                (Entries(point).at("sigma", NUMBER), Entries(point).at("accuracy", SHARE)) for point in points
            ),
            exact_cost=read_cost(table, "exact_cost"),
            exact_by_group=read_curves(personal, "exact_cost"),
        )

    def __repr__(self) -> str:
        return "PrivateNumbers(<private>)"


def read_result(folder: Path) -> RunResult:
    """Return the public result of a run; nothing else in its folder is opened.

    >>> read_result(Path("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "none"
        raise ValueError(
            f"Expected the folder of a run, found {what} at {folder}. "
            "Give the folder that `tellers run` wrote."
        )
    if not (folder / "result.json").exists():
        if not (folder / "config.toml").exists():
            raise ValueError(
                f"Expected the folder of a run, {folder} has neither result.json nor config.toml. "
                "Give the folder that `tellers run` wrote."
            )
        raise ValueError(f"Expected result.json in {folder}: the run is not finished. {_resume(folder)}")
    table = _read(folder / "result.json", f"Move it away. {_resume(folder)}")
    try:
        return RunResult.from_dict(table)
    except ValueError as error:
        if "format" in str(error):
            raise
        raise ValueError(
            f"{folder / 'result.json'}: {error} The file was changed or damaged. Move it away. "
            f"{_resume(folder)}"
        ) from error


def read_private(folder: Path) -> PrivateNumbers:
    """Return the private numbers of a run, for the operator's eyes.

    >>> read_private(Path("nowhere"))
    Traceback (most recent call last):
        ...
    ValueError: Expected private numbers in nowhere/private/summary.json, found none: ...
    """
    place = folder / "private" / "summary.json"
    if not place.exists():
        raise ValueError(
            f"Expected private numbers in {place}, found none: they are computed where the settings say "
            f"`private = true` under [report]. Write the public report, or set that. {_resume(folder)}"
        )
    table = _read(place, f"Move it away. {_resume(folder)}")
    try:
        return PrivateNumbers.from_dict(table)
    except ValueError as error:
        raise ValueError(f"{place}: {error} The file was changed or damaged.") from error


def _read(place: Path, advice: str) -> dict[str, Any]:
    try:
        table = json.loads(place.read_bytes())
    except OSError as error:
        raise ValueError(f"Expected a readable file at {place}, got: {error.strerror or error}.") from error
    except (ValueError, RecursionError):
        # Without the cause, which would quote from a file that may be private.
        raise ValueError(f"Expected JSON in {place}, got something else. {advice}") from None
    if not isinstance(table, dict):
        raise ValueError(f"Expected a table in {place}, got a {type(table).__name__}. {advice}")
    return table


def _resume(folder: Path) -> str:
    return f"Go on with: tellers run {folder / 'config.toml'} --out {folder} --resume"
