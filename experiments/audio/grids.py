"""Tables of means over folds: printed, written as Markdown, and compared with what is expected."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from common.measure import Measure, Report, Section, measure
from rich.console import Console
from rich.table import Table

Cell = str | float | Sequence[float]


@dataclass(frozen=True, eq=False)
class Grid:
    """Rows of cells, each a word, a number, or one number for each fold; `digits` after the point."""

    key: str
    title: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, Cell]]
    notes: tuple[str, ...] = ()
    digits: int = 3
    first: str = ""

    def measures(self) -> tuple[Measure, ...]:
        """Return every number under its own key."""
        found = []
        for name, cells in self.rows.items():
            for column, cell in cells.items():
                if not isinstance(cell, str) and _finite(cell):
                    found.append(measure(f"{self.key}/{name}/{column}", f"{name}: {column}", cell))
        return tuple(found)

    def lines(self) -> list[list[str]]:
        """Return the cells as they are printed."""
        return [
            [name, *(shown(cells.get(column, ""), self.digits) for column in self.columns)]
            for name, cells in self.rows.items()
        ]

    def markdown(self) -> str:
        """Return the table as Markdown."""
        head = [f"**{self.title}**", "", f"| {self.first} | {' | '.join(self.columns)} |"]
        head.append("|---|" + "---|" * len(self.columns))
        body = [f"| {' | '.join(line)} |" for line in self.lines()]
        return "\n".join([*head, *body, "", *(f"- {note}" for note in self.notes), ""])


def shown(cell: Cell, digits: int) -> str:
    """Return a cell as it is printed: the mean over folds, with its standard error."""
    if isinstance(cell, str):
        return cell
    if not _finite(cell):
        return "none"
    made = measure("", "", cell)
    places = digits if abs(made.mean) < 10 else 1 if abs(made.mean) < 2000 else 0
    text = f"{made.mean:.{places}f}"
    return text + (f" ± {made.error:.{places}f}" if made.n > 1 else "")


def show(report: Report, grid: Grid) -> None:
    """Print a grid, and keep its numbers."""
    report.sections.append(Section(grid.title, grid.measures(), grid.notes))
    table = Table(title=grid.title, title_justify="left", title_style="bold")
    table.add_column(grid.first)
    for column in grid.columns:
        table.add_column(column, justify="right")
    for line in grid.lines():
        table.add_row(*line)
    console = Console(width=170)
    console.print(table)
    for note in grid.notes:
        console.print(f"  {note}", highlight=False)
    console.print()


def _finite(cell: float | Sequence[float]) -> bool:
    values = [cell] if isinstance(cell, (int, float)) else list(cell)
    return bool(values) and all(math.isfinite(value) for value in values)
