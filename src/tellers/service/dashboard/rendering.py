"""From words and numbers to a page, and the files that pages load."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from ... import __version__
from .drawings import draw_bar, draw_burn, draw_spark
from .visits import Visit

HOME = "/dashboard"
# Nothing from elsewhere, nothing inline; forms go nowhere else, and no page can be framed.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# With no-referrer browsers would hide where a form comes from, also from ourselves.
HEADERS = {"Content-Security-Policy": _POLICY, "Referrer-Policy": "same-origin"}
_HERE = Path(__file__).parent
_KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Press:
    """Prints pages. What changes is printed by itself, so that a script can ask for it alone.

    >>> press = Press("study")
    >>> press.file("icon.svg").media_type, press.file("../pages.py") is None
    ('image/svg+xml', True)
    >>> page = press.plain("refused.html", status=404, heading="Nothing here", words="")
    >>> page.status_code, b"Nothing here" in page.body
    (404, True)
    """

    def __init__(self, title: str) -> None:
        self._files = _read_files(_HERE / "static")
        marks = {name: hashlib.sha256(body).hexdigest()[:12] for name, (body, _) in self._files.items()}
        self._words = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._words.globals.update(
            home=HOME, version=__version__, title=title, draw_burn=draw_burn, draw_spark=draw_spark,
            draw_bar=draw_bar, file=lambda name: f"{HOME}/static/{name}?v={marks[name]}",
        )  # fmt: skip
        self._words.filters.update(epsilon=_epsilon, count=_count, moment=_moment, said=_said, points=_points)

    def page(self, request: Request, visit: Visit, name: str, /, **words: Any) -> Response:
        """Return a page for who is signed in, or the part of it that changes, or 204 where nothing has.

        >>> callable(Press.page)
        True
        """
        live = self._words.get_template(name).render(visit=visit, **words)
        seen = hashlib.sha256(live.encode()).hexdigest()[:16]
        query = [pair for pair in request.query_params.multi_items() if pair[0] != "seen"]
        here = request.url.path
        shell: dict[str, Any] = {"live": live, "seen": seen, "here": here, "query": query, "visit": visit}
        if request.headers.get("hx-request") == "true":
            if request.query_params.get("seen") == seen:
                return Response(status_code=204, headers=HEADERS)
            return self.plain("live.html", **shell)
        return self.plain("page.html", name=name.removesuffix(".html"), **shell)

    def plain(self, template: str, /, *, status: int = 200, **words: Any) -> Response:
        """Return a page that nobody needs to be signed in for."""
        text = self._words.get_template(template).render(**words)
        return Response(text, status, headers=HEADERS, media_type="text/html; charset=utf-8")

    def file(self, name: str) -> Response | None:
        """Return a file that pages load, by its name; there are no others."""
        found = self._files.get(name)
        if found is None:
            return None
        # Its address has a mark of its content, so that a new version has another.
        body, kind = found
        return Response(body, headers={"Cache-Control": "max-age=86400, immutable"}, media_type=kind)


def _read_files(folder: Path) -> Mapping[str, tuple[bytes, str]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), _KINDS[path.suffix])
        for path in sorted(folder.rglob("*"))
        if path.suffix in _KINDS
    }


def _epsilon(value: float) -> str:
    return "0" if value == 0 else f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _count(value: int) -> str:
    return "a billion or more" if value >= 1_000_000_000 else f"{value:,}"


def _moment(value: datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S} UTC"


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _points(points: list[tuple[int, float]]) -> str:
    return json.dumps([[n for n, _ in points], [round(left, 4) for _, left in points]])
