"""How results look in a terminal: figures, tables, bars, and the frame around what is private."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.box import ROUNDED
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from ..accounting.exact import Progress


def console(*, stderr: bool = False) -> Console:
    """Return a console that writes on any terminal, also one that cannot show every letter."""
    stream = sys.stderr if stderr else sys.stdout
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="replace")
    return Console(stderr=stderr, highlight=False)


def figure(value: float) -> str:
    """Return an epsilon with three decimals, or three figures where it is small, rounded up."""
    if not math.isfinite(value) or value == 0:
        return "0" if value == 0 else "infinite"
    decimals: int = max(3, 2 - math.floor(math.log10(abs(value))))
    # The guard keeps 0.3 from becoming 0.301 because its binary form is a hair larger.
    up = math.ceil(value * 10.0**decimals * (1 - 1e-12)) / 10.0**decimals
    return f"{up:.{decimals}f}"


def standing(account: Any) -> str:
    """Return how an account of a service stands: what is spent of it, or what is left of its clock."""
    if account.epsilon_spent is None:
        from ..privacy.budget import clock_words

        return clock_words(account.epsilon, account.share_left)
    spent = figure(account.epsilon_spent)
    return f"epsilon {spent} of {account.epsilon:g} at delta {account.delta:g} is spent"


def exact_kind(bound_because: str) -> str:
    """Return what to call an exact cost: "upper bound" where there is a reason why it is only that."""
    return "upper bound" if bound_because else "exact"


def bar(value: float, largest: float, *, width: int = 10) -> str:
    """Return a bar whose length is the share of the largest value, in eighths of a cell."""
    if not largest > 0 or not math.isfinite(value):
        return ""
    whole, eighths = divmod(max(1, round(8 * width * min(value / largest, 1.0))), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[eighths].strip()


def table(*headings: str, numbers: Iterable[int] = ()) -> Table:
    """Return an empty table without lines; the columns in `numbers` are set to the right."""
    result = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim")
    right = set(numbers)
    for i, heading in enumerate(headings):
        result.add_column(heading, justify="right" if i in right else "left", no_wrap=i in right)
    return result


def indented(content: RenderableType) -> Padding:
    """Return the content two columns in, with a line of air below."""
    return Padding(content, (0, 0, 1, 2))


def private_panel(*content: RenderableType) -> Panel:
    """Return the frame that marks what must not leave the operator's screen."""
    title = Text("private: do not publish", style="bold white on red")
    return Panel(
        Group(*content), title=title, title_align="left", border_style="red", box=ROUNDED, padding=(1, 2)
    )


def headline(before: str, found: str, after: str) -> Text:
    """Return the sentence that a result begins with, and what was found in it bold."""
    return Text.assemble((before, "green"), (found, "bold green"), (after, "green"))


def note(text: str) -> Text:
    """Return a remark below the results."""
    return Text.assemble(("note: ", "yellow"), (text, ""))


def tell(told: dict[str, Any], for_people: Callable[[dict[str, Any]], None], *, as_json: bool) -> None:
    """Print what a command found: as JSON for programs, or in words and tables with its notes below."""
    if as_json:
        print(json.dumps(_without_infinity(told), indent=2, allow_nan=False))
        return
    for_people(told)
    for text in told.get("notes", ()):
        console().print(note(text))


def _without_infinity(told: Any) -> Any:
    """Return the same with null for what is infinite, which JSON cannot say."""
    if isinstance(told, dict):
        return {name: _without_infinity(value) for name, value in told.items()}
    if isinstance(told, (list, tuple)):
        return [_without_infinity(value) for value in told]
    return None if isinstance(told, float) and math.isinf(told) else told


@contextmanager
def progress_bar(total: int, what: str, *, wanted: bool) -> "Iterator[Progress | None]":
    """Show a bar on stderr while queries are worked through; nothing where nobody watches."""
    # Not rich's is_terminal, which FORCE_COLOR turns on where there is only a log.
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.advance(task, done)
