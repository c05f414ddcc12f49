"""The pages of the dashboard: addresses, rights, forms and rendering."""

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ... import __version__
from ...errors import LedgerConflict
from ...ledger.base import Unusable
from ...privacy.release import describe
from .._labels import LabelService
from .._logs import describe_error
from .._middleware import Authenticator
from .._problems import KINDS, HttpProblem
from ..settings import ServiceSettings
from ._figures import Forecast, SnapshotCache, placed, step_path, ticks
from ._sessions import NotOurForm, NotSignedIn, PageVisit, SessionGate, Sessions, read_form
from ._sums import N_RECENT

# --- Rendering ---

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


class Renderer:
    """Prints pages. What changes is printed by itself, so that a script can ask for it alone."""

    def __init__(self, title: str) -> None:
        self._files = _read_files(_HERE / "static")
        marks = {name: hashlib.sha256(body).hexdigest()[:12] for name, (body, _) in self._files.items()}
        self._words = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        self._words.globals.update(
            home=HOME, version=__version__, title=title, placed=placed, step_path=step_path, ticks=ticks,
            file=lambda name: f"{HOME}/static/{name}?v={marks[name]}",
        )  # fmt: skip
        self._words.filters.update(epsilon=_epsilon, count=_count, moment=_moment, said=_said, points=_points)

    def page(self, request: Request, visit: PageVisit, name: str, /, **words: Any) -> Response:
        """Return a page for who is signed in, or the part of it that changes, or 204 where nothing has."""
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


# --- Pages ---

_N_ON_A_PAGE = N_RECENT
_N_RECENT = 8
_MOST_PAGES = 10**9
_SECONDS_TO_END = 3.0
_NOTES = {
    "ended": "Your session is over. Sign in again.",
    "revoked": "The key you were signed in with was revoked.",
    "out": "You are signed out.",
}
Form = dict[str, str]
Look = Callable[[Request, PageVisit], Response]


def is_page(path: str) -> bool:
    """Return whether a path is a page's, which has a sign-in of its own instead of a header."""
    return path in ("/", HOME) or path.startswith(f"{HOME}/")


def add_dashboard(
    app: FastAPI,
    service: LabelService,
    authenticator: Authenticator,
    *,
    settings: ServiceSettings,
    log: Any,
    secret: bytes = b"",
) -> None:
    server = settings.server
    # plain_http is for a proxy that speaks TLS: browsers see TLS there too.
    sessions = Sessions(authenticator.store, server.session_minutes)
    sessions.secret = secret or sessions.secret
    gate = SessionGate(authenticator, sessions, is_secure=server.is_tls or server.plain_http)
    pages = _Pages(service, gate, Renderer(Path(settings.data.path).name), log)

    def add(path: str, answer: Callable[..., Any], method: str = "GET") -> None:
        app.add_api_route(path, answer, methods=[method], include_in_schema=False, response_model=None)

    add("/", lambda: _go(HOME))
    add(f"{HOME}/sign-in", pages.greet)
    add(f"{HOME}/sign-in", pages.form(pages.sign_in, signed_in=False), "POST")
    add(f"{HOME}/sign-out", pages.form(pages.sign_out), "POST")
    add(HOME, pages.look(pages.overview))
    add(f"{HOME}/account", pages.look(pages.account))
    add(f"{HOME}/releases", pages.look(pages.releases))
    add(f"{HOME}/keys", pages.look(pages.keys))
    add(f"{HOME}/keys/revoke", pages.form(pages.revoke), "POST")
    add(f"{HOME}/ledger", pages.look(pages.ledger))
    add(f"{HOME}/ledger/verify", pages.form(pages.verify, waits=True), "POST")
    add(f"{HOME}/static/{{name:path}}", pages.static)
    add(f"{HOME}/{{rest:path}}", pages.look(pages.nowhere))


class _Pages:
    def __init__(self, service: LabelService, gate: SessionGate, renderer: Renderer, log: Any) -> None:
        self.service, self.gate, self.renderer, self.log = service, gate, renderer, log
        self.snapshots, self.forecast = SnapshotCache(service), Forecast(service.served)
        self.check = service.check

    # --- Rights ---

    def look(self, show: Look) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            return self._guarded(request, lambda: show(request, self.gate.let_in(request)))

        return answer

    def form(
        self, act: Callable[..., Response], *, signed_in: bool = True, waits: bool = False
    ) -> Callable[..., Any]:
        async def fields(request: Request) -> Form | None:
            try:
                return await read_form(request)
            except NotOurForm:
                return None

        def answer(request: Request, form: Annotated[Any, Depends(fields)]) -> Response:
            def done() -> Response:
                if form is None:
                    raise NotOurForm
                if not signed_in:
                    self.gate.require_visitor(request, form)
                    return act(request, form)
                visit = self.gate.let_in(request)
                self.gate.sessions.require_form(visit.session.number, form)
                return act(request, visit, form)

            return self._guarded(request, done)

        async def waited(request: Request, form: Annotated[Any, Depends(fields)]) -> Response:
            response = await run_in_threadpool(answer, request, form)
            # What takes seconds is on the page that comes next.
            await self.check.ended(_SECONDS_TO_END)
            return response

        return waited if waits else answer

    def _guarded(self, request: Request, answer: Callable[[], Response]) -> Response:
        try:
            return answer()
        except NotSignedIn as error:
            place = f"{HOME}/sign-in?why={error.why}" if error.why else f"{HOME}/sign-in"
            if request.headers.get("hx-request") == "true":
                # A script that asks for numbers is told to leave the page, not given another one.
                return Response(status_code=401, headers={**HEADERS, "HX-Redirect": place})
            return _go(place)
        except NotOurForm:
            words = (
                "It was not sent from a page of this dashboard, or the page was too old. Nothing was done."
            )
            return self._refused(403, "This form is refused", words)
        except Unusable as error:
            return self._refused(503, "Not now", str(error))
        except LedgerConflict:
            words = "Its chain of hashes does not hold, so no number of it is shown. See the page Ledger."
            return self._refused(503, "The ledger is broken", words, place=f"{HOME}/ledger")
        except TimeoutError:
            words = "Others are writing to it. Load the page again in a moment."
            return self._refused(503, "The ledger is busy", words)
        except OSError as error:
            self.log.error("page failed", **describe_error(error))
            words = "The books or the keys cannot be reached just now. Load the page again in a moment."
            return self._refused(503, "Not now", words)
        except HttpProblem as problem:
            _, heading, advice = KINDS[problem.kind]
            refused = self._refused(problem.status_code, heading, f"{problem.detail} {advice}")
            refused.headers.update(problem.headers or {})
            return refused

    def _refused(self, status: int, heading: str, words: str, **more: str) -> Response:
        return self.renderer.plain("refused.html", status=status, heading=heading, words=words, **more)

    # --- Signing in and out ---

    def greet(self, request: Request) -> Response:
        note = _NOTES.get(request.query_params.get("why", ""), "")
        return self._sign_in_form(request, note=note)

    def sign_in(self, request: Request, form: Form) -> Response:
        address = request.client.host if request.client else "nobody"
        response = _go(HOME)
        try:
            key = self.gate.authenticator.check(form.get("key", "").strip(), address)
            self.gate.sign_in(request, response, key)
        except HttpProblem as problem:
            words = "Paste a key." if problem.kind == "no-key" and not form.get("key") else problem.detail
            refused = self._sign_in_form(request, error=words, status=problem.status_code)
            if "Retry-After" in (problem.headers or {}):
                refused.headers["Retry-After"] = (problem.headers or {})["Retry-After"]
            return refused
        request.state.key_id = key.id
        self.log.info("signed in", key=key.id)
        return response

    def sign_out(self, _request: Request, visit: PageVisit, _form: Form) -> Response:
        response = _go(f"{HOME}/sign-in?why=out")
        self.gate.sign_out(response, visit.session)
        self.log.info("signed out", key=visit.key.id)
        return response

    def _sign_in_form(
        self, request: Request, *, note: str = "", error: str = "", status: int = 200
    ) -> Response:
        # The form's token belongs to a cookie that comes with it, so that no other site can sign anyone in.
        visitor, token = self.gate.new_visitor()
        minutes = self.gate.sessions.minutes
        page = self.renderer.plain(
            "sign-in.html", status=status, note=note, error=error, form_token=token, minutes=minutes
        )
        self.gate.greet(page, visitor)
        return page

    # --- Pages ---

    def overview(self, request: Request, visit: PageVisit) -> Response:
        seen, served = self.snapshots.snapshot(), self.service.served
        event = describe(self.service.mechanism, self.service.noise)
        return self.renderer.page(
            request, visit, "overview.html", seen=seen, recent=seen.questions(0, _N_RECENT),
            estimates=self.forecast.estimates(self.service.accountant, seen.spent), verdict=self.check.last,
            progress=self.check.progress,
            relation=served.relation, mechanism=event.get("mechanism"),
            parameters=event.get("parameters", {}),
            price=self.service.price.epsilon(served.budget.delta), n_pool=served.n_pool,
            listens=served.listens, plan=served.plan, leave=served.leave,
        )  # fmt: skip

    def account(self, request: Request, visit: PageVisit) -> Response:
        name, seen = request.query_params.get("name", ""), self.snapshots.snapshot()
        account = seen.accounts.get(name)
        if account is None:
            return self.nowhere(request, visit)
        recent = seen.paid_by(name)
        return self.renderer.page(request, visit, "account.html", seen=seen, account=account, recent=recent)

    def releases(self, request: Request, visit: PageVisit) -> Response:
        said, seen = request.query_params.get("page", "1"), self.snapshots.snapshot()
        number = min(int(said), _MOST_PAGES) if said.isascii() and said.isdecimal() and len(said) < 12 else 1
        n_pages = max(1, -(-seen.n_questions // _N_ON_A_PAGE))
        number = min(max(number, 1), n_pages)
        return self.renderer.page(
            request, visit, "releases.html", number=number, n_pages=n_pages, n_questions=seen.n_questions,
            questions=seen.questions(_N_ON_A_PAGE * (number - 1), _N_ON_A_PAGE),
        )  # fmt: skip

    def keys(self, request: Request, visit: PageVisit) -> Response:
        keys = sorted(
            self.gate.authenticator.store.all(), key=lambda key: (key.is_revoked, key.role, key.name)
        )
        rows = [
            (key, datetime.fromisoformat(key.created), key.revoked and datetime.fromisoformat(key.revoked))
            for key in keys
        ]
        return self.renderer.page(request, visit, "keys.html", rows=rows)

    def ledger(self, request: Request, visit: PageVisit) -> Response:
        seen, verdict = None, self.check.last
        try:
            seen = self.snapshots.snapshot()
        except Unusable:
            raise
        except LedgerConflict:
            # Books that cannot be read are told of here, whether or not anyone asked.
            if verdict is None or verdict.is_intact:
                verdict = self.check.refuse()
        return self.renderer.page(
            request, visit, "ledger.html", verdict=verdict, seen=seen, progress=self.check.progress
        )

    def static(self, name: str) -> Response:
        return self.renderer.file(name) or self._nothing()

    def nowhere(self, _request: Request, _visit: PageVisit) -> Response:
        return self._nothing()

    def _nothing(self) -> Response:
        words = "The address leads nowhere. Perhaps what it named is gone."
        return self._refused(404, "There is nothing here", words)

    # --- Actions ---

    def revoke(self, _request: Request, visit: PageVisit, form: Form) -> Response:
        if not visit.may_revoke:
            raise HttpProblem("wrong-role", "Expected a key of role operator to revoke keys, got another.")
        store, number = self.gate.authenticator.store, form.get("id", "")
        if store.find(number) is None:
            return self._nothing()
        store.revoke(number)
        self.log.info("key revoked", key=visit.key.id, revoked=number)
        return _go(f"{HOME}/keys")

    def verify(self, _request: Request, visit: PageVisit, _form: Form) -> Response:
        self.check.start()
        self.log.info("verification asked for", key=visit.key.id)
        return _go(f"{HOME}/ledger")


def _go(place: str) -> Response:
    return RedirectResponse(place, 303, headers=HEADERS)
