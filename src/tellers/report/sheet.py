"""A sheet: drawings and tables with the look of the report, about something that is no whole run."""

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from ..teachers.store import write_whole
from .drawing import Drawing
from .write import page_template

Cell = str | float


@dataclass(frozen=True, kw_only=True)
class SheetTable:
    """A table on a sheet; a cell that is a number is a share; in a table of two columns it has a bar.

    `colours` says which line of the drawings beside it a row is: a number from 1, or 0 for none.

    >>> SheetTable(caption="Tags.", head=("label", "score"), rows=(("siren", 0.93),)).mark
    ''
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    mark: str = ""
    colours: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SheetPart:
    """A part of a sheet: a heading, a paragraph, and drawings and tables side by side.

    >>> SheetPart(heading="Curves").drawings
    ()
    """

    heading: str
    words: str = ""
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[SheetTable, ...] = ()


def write_sheet(
    path: str | PathLike[str], title: str, *, parts: Sequence[SheetPart], words: str = ""
) -> Path:
    """Write a page of parts and return where it is; one with anything private is for its owner alone.

    `words` stand below the title: what is shown, and who may see it.

    Whatever names contain, they stay text. The page needs nothing else, no network and no JavaScript.

    >>> import tempfile
    >>> table = SheetTable(caption="Tags.", head=("label", "score"), rows=(("<b>", 0.93),))
    >>> place = Path(tempfile.mkdtemp()) / "tags.html"
    >>> text = write_sheet(place, "Tags", parts=[SheetPart(heading="A clip", tables=(table,))]).read_text()
    >>> "&lt;b&gt;" in text, "93.0 %" in text, "PRIVATE" in text
    (True, True, False)
    """
    marks = [one.mark for part in parts for one in part.drawings]
    marks += [one.mark for part in parts for one in part.tables]
    page = page_template("sheet.html").render(
        title=title, words=words, parts=parts, private="private" in marks
    )
    content = page.encode()
    place = Path(path)
    write_whole(place, content, shared="private" not in marks)
    return place
