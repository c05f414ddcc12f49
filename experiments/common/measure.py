"""A measured number beside the published one: how it is kept, printed, and compared with what is expected."""

import json
import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

Published = float | str | None
TRAINED = ("adult", "digits", "diabetes", "ask", "interactive", "many", "student", "distil")


@dataclass(frozen=True)
class Measure:
    """One number of ours: mean and standard error over seeds, beside the published one and its place."""

    key: str
    what: str
    mean: float
    error: float
    n: int
    published: Published = None
    where: str = ""
    percent: bool = False

    @property
    def ours(self) -> str:
        """Return the number as it is printed."""
        places = 2
        scale = 100 if self.percent else 1
        if not self.percent and abs(self.mean) >= 100:
            places = 0
        text = f"{scale * self.mean:.{places}f}"
        if self.n > 1:
            text += f" ± {scale * self.error:.{places}f}"
        return text + (" %" if self.percent else "")

    @property
    def theirs(self) -> str:
        """Return the published number as it is printed."""
        if self.published is None:
            return "-"
        if isinstance(self.published, str):
            return self.published
        return f"{self.published:g}" + (" %" if self.percent else "")


@dataclass(frozen=True)
class Section:
    """A table: its title, what must be said about it, and its measures."""

    title: str
    measures: tuple[Measure, ...]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass
class Report:
    """The sections of one run, and the command that made them."""

    name: str
    command: str
    sections: list[Section] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.process_time)

    def skip(self, why: str) -> None:
        """Leave a part out, loudly."""
        self.skipped.append(why)
        print(f"SKIPPED: {why}", file=sys.stderr)

    def add(self, section: Section) -> None:
        """Keep a section and print it at once."""
        self.sections.append(section)
        console = Console(width=None if sys.stdout.isatty() else 150)
        table = Table(title=section.title, title_justify="left", title_style="bold")
        for heading, justify in (("what", "left"), ("published", "right"), ("ours", "right"), ("n", "right")):
            table.add_column(heading, justify=justify)  # type: ignore[arg-type]
        table.add_column("published where")
        for measure in section.measures:
            table.add_row(measure.what, measure.theirs, measure.ours, str(measure.n), measure.where)
        console.print(table)
        for note in section.notes:
            console.print(f"  {note}", highlight=False)
        console.print()

    @property
    def footer(self) -> str:
        """Return the command, the hardware and the time."""
        seconds = time.process_time() - self.started + _children_seconds()
        return f"`{self.command}`; {hardware()}; {seconds:.0f} CPU s."

    def markdown(self) -> str:
        """Return the tables as Markdown."""
        lines: list[str] = []
        for section in self.sections:
            lines += [f"**{section.title}**", "", "| what | published | ours | n | published where |"]
            lines.append("|---|---|---|---|---|")
            lines += [f"| {m.what} | {m.theirs} | {m.ours} | {m.n} | {m.where} |" for m in section.measures]
            lines += ["", *(f"- {note}" for note in section.notes), ""]
        lines += [f"Left out: {why}" for why in self.skipped]
        return "\n".join([*lines, self.footer, ""])

    def numbers(self) -> dict[str, Measure]:
        """Return every measure by its key."""
        return {measure.key: measure for section in self.sections for measure in section.measures}

    def as_dict(self) -> dict[str, Any]:
        """Return what is written as JSON."""
        return {
            "experiment": self.name,
            "command": self.command,
            "hardware": hardware(),
            "skipped": self.skipped,
            "measures": {
                key: {"mean": _round(m.mean), "error": _round(m.error), "n": m.n, "published": m.published}
                for key, m in self.numbers().items()
            },
        }


def measure(
    key: str,
    what: str,
    values: Sequence[float] | np.ndarray | float,
    *,
    published: Published = None,
    where: str = "",
    percent: bool = False,
) -> Measure:
    """Return the mean of some values with its standard error."""
    array = np.atleast_1d(np.asarray(values, dtype=np.float64))
    error = float(np.std(array, ddof=1) / math.sqrt(array.size)) if array.size > 1 else 0.0
    return Measure(
        key, what, float(array.mean()), error, array.size, published=published, where=where, percent=percent
    )


def compare(report: Report, path: Path, mode: str) -> list[str]:
    """Return where a run differs from what is expected of it, by more than the tolerance."""
    expected = json.loads(path.read_text())[mode]
    different = []
    for key, measured in report.numbers().items():
        if key not in expected:
            different.append(f"{key}: measured {measured.mean:.4g}, and nothing is expected")
            continue
        value, tolerance = expected[key]["value"], expected[key]["tolerance"]
        if not abs(measured.mean - value) <= tolerance:
            different.append(f"{key}: expected {value:.4g} ± {tolerance:.2g}, got {measured.mean:.4g}")
    return different


def expect(report: Report, path: Path, mode: str) -> None:
    """Write what was measured as what is expected from now on; other parts and modes stay.

    Seeds fix the noise and the order of the queries, so numbers that come from recorded ballots alone move by
    rounding. Where models are trained, other versions of the libraries train others: there the tolerance is
    wide, three points of accuracy or a tenth of any other number.
    """
    content = json.loads(path.read_text()) if path.exists() else {}
    part = content.setdefault(mode, {})
    for key, m in report.numbers().items():
        trained = key.startswith(TRAINED) or key.endswith(("/svc", "/cnn", "/logistic"))
        share, points = (0.1, 0.03) if trained else (0.02, 0.003)
        part[key] = {
            "value": _round(m.mean),
            "tolerance": _round(points if m.percent else share * abs(m.mean)),
        }
    content[mode] = dict(sorted(part.items()))
    content[f"{mode}_command"] = report.command
    content["hardware"] = hardware()
    path.write_text(json.dumps(dict(sorted(content.items())), indent=1) + "\n")


def hardware() -> str:
    """Return the machine in words."""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"NumPy {np.__version__}"
    )


def _children_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _round(value: float) -> float:
    return float(f"{value:.5g}")
