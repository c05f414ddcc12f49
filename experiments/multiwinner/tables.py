"""Tables with a number in every cell, or the reason for none: on the terminal, as Markdown, as measures."""

import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from common.measure import Section, measure
from rich.console import Console
from rich.table import Table as RichTable

Value = str | float | Sequence[float]
SHARES = ("ACC", "BAC", "AUC", "mAP", "average")


@dataclass(frozen=True)
class Row:
    """A row: its key, and what stands in each column; text is shown as it is, numbers as means over seeds."""

    key: str
    cells: dict[str, Value]


@dataclass(frozen=True)
class Table:
    """A table under a key; `measured` says which columns are compared with what is expected, all if None."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    measured: tuple[str, ...] | None = None

    def texts(self) -> list[list[str]]:
        """Return the cells as they are printed."""
        return [[_text(column, row.cells.get(column, "-")) for column in self.columns] for row in self.rows]

    def show(self) -> None:
        """Print the table."""
        console = Console(width=None if sys.stdout.isatty() else 200)
        table = RichTable(title=self.title, title_justify="left", title_style="bold")
        for at, column in enumerate(self.columns):
            table.add_column(column, justify="left" if at == 0 else "right")
        for texts in self.texts():
            table.add_row(*texts)
        console.print(table)
        for note in self.notes:
            console.print(f"  {note}", highlight=False)
        console.print()

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [f"**{self.title}**", "", f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]
        lines += [f"| {' | '.join(texts)} |" for texts in self.texts()]
        return "\n".join([*lines, "", *(f"- {note}" for note in self.notes), ""])

    def section(self) -> Section:
        """Return every number under a key of its own."""
        found = []
        for row in self.rows:
            for column, value in row.cells.items():
                if self.measured is not None and column not in self.measured:
                    continue
                if isinstance(value, str) or not np.isfinite(np.asarray(value, dtype=float)).all():
                    continue
                if column == "AUC" and value == row.cells.get("BAC"):
                    continue  # of yes and no they are the same number
                key = f"{self.key}/{row.key}/{_slug(column)}"
                found.append(measure(key, f"{row.key}: {column}", value, percent=_is_share(column)))
        return Section(self.title, tuple(found), self.notes)


def _is_share(column: str) -> bool:
    return column.split(",")[-1].split(":")[-1].strip() in SHARES


def _slug(column: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", column.lower()).strip("-")


def _text(column: str, value: Value) -> str:
    if isinstance(value, str):
        return value
    array = np.atleast_1d(np.asarray(value, dtype=float))
    if not np.isfinite(array).all():
        return "-"
    mean = float(array.mean())
    places = 3 if _is_share(column) else 0 if mean == int(mean) or abs(mean) >= 100 else 2
    text = f"{mean:.{places}f}"
    if array.size > 1:
        text += f" ± {float(np.std(array, ddof=1)) / math.sqrt(array.size):.{places}f}"
    return text
