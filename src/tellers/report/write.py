"""Writing the report: read the folder, fill in the template, put the page where it belongs."""

from functools import cache
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any

from ..card.published import read_published
from ..teachers.store import write_whole
from .folder import read_private, read_result
from .page import describe_run


def write_report(folder: str | PathLike[str], *, private: bool = False) -> Path:
    """Write the report of a run into its folder and return where it is.

    The public report is `report.html`; nothing under `private/` is opened for it. With `private` the page
    holds private numbers too, in red frames: it becomes `private/report.private.html`, which only its owner
    may read. Written again from the same files, the page has the same bytes.

    >>> write_report("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of a run, found none at nowhere. Give the folder that `tellers run` wrote.
    """
    place = Path(folder)
    run = read_result(place)
    numbers = read_private(place) if private else None
    # Earlier versions told of it in a file of its own alone.
    published = run.published or read_published(place)
    content = page_template("page.html").render(describe_run(run, numbers, published)).encode()
    if private:
        page = place / "private" / "report.private.html"
        write_whole(page, content)
    else:
        page = place / "report.html"
        write_whole(page, content, shared=True)
    return page


@cache
def page_template(name: str) -> Any:
    """Return one of the pages to fill in; all that is printed on it is escaped.

    >>> page_template("page.html").name
    'page.html'
    """
    from jinja2 import DictLoader, Environment, StrictUndefined

    room = files(__package__)
    parts = (name, "head.html", "labels.html", "parts.html", "style.css")
    sources = {part: (room / part).read_text(encoding="utf-8") for part in parts}
    # Names of classes and columns are anybody's: all that is printed is escaped unless the template says not.
    environment = Environment(
        loader=DictLoader(sources),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
