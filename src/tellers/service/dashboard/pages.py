"""The pages and their addresses: who may see what, and what a form does."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...errors import LedgerConflict
from ...release import describe
from ..access import Door
from ..desk import Desk
from ..logs import describe_error
from ..problems import KINDS, Problem
from ..settings import ServiceSettings
from .check import Check
from .figures import Watch
from .outlook import Outlook
from .rendering import HEADERS, HOME, Press
from .sessions import Sessions
from .visits import NotOurForm, NotSignedIn, Porter, Visit, read_form

_N_ON_A_PAGE = 25
_N_RECENT = 8
_MOST_PAGES = 10**9
_NOTES = {
    "ended": "Your session is over. Sign in again.",
    "revoked": "The key you were signed in with was revoked.",
    "out": "You are signed out.",
}
Form = dict[str, str]
Look = Callable[[Request, Visit], Response]
Act = Callable[[Request, Visit, Form], Response]


def is_page(path: str) -> bool:
    """Return whether a path is a page's, which has a sign-in of its own instead of a header.

    >>> is_page("/dashboard/keys"), is_page("/"), is_page("/v1/labels"), is_page("/dashboards")
    (True, True, False, False)
    """
    return path in ("/", HOME) or path.startswith(f"{HOME}/")


def add_dashboard(app: FastAPI, desk: Desk, door: Door, *, settings: ServiceSettings, log: Any) -> None:
    """Add the pages to a service.

    >>> from tellers.service.dashboard import add_dashboard  # create_app calls this, and shows how
    """
    server = settings.server
    # plain_http is for a proxy that speaks TLS: browsers see TLS there too.
    porter = Porter(door, Sessions(server.session_minutes), is_secure=server.is_tls or server.plain_http)
    pages = _Pages(desk, porter, Press(Path(settings.data.path).name), log)

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
    add(f"{HOME}/ledger/verify", pages.form(pages.verify), "POST")
    add(f"{HOME}/static/{{name:path}}", pages.static)
    add(f"{HOME}/{{rest:path}}", pages.look(pages.nowhere))


class _Pages:
    def __init__(self, desk: Desk, porter: Porter, press: Press, log: Any) -> None:
        self.desk, self.porter, self.press, self.log = desk, porter, press, log
        self.watch, self.outlook, self.check = Watch(desk), Outlook(desk.served), Check(desk.ledger)

    # --- The door ---

    def look(self, show: Look) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            return self._guarded(request, lambda: show(request, self.porter.let_in(request)))

        return answer

    def form(self, act: Any, *, signed_in: bool = True) -> Callable[..., Response]:
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
                    self.porter.require_visitor(request, form)
                    response: Response = act(request, form)
                    return response
                visit = self.porter.let_in(request)
                self.porter.require_form(visit, form)
                response = act(request, visit, form)
                return response

            return self._guarded(request, done)

        return answer

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
            return self.press.plain("refused.html", status=403, heading="This form is refused", words=words)
        except LedgerConflict:
            words = "Its chain of hashes does not hold, so no number of it is shown. See the page Ledger."
            return self.press.plain(
                "refused.html",
                status=503,
                heading="The ledger is broken",
                words=words,
                place=f"{HOME}/ledger",
            )
        except TimeoutError:
            words = "Others are writing to it. Load the page again in a moment."
            return self.press.plain("refused.html", status=503, heading="The ledger is busy", words=words)
        except OSError as error:
            self.log.error("page failed", **describe_error(error))
            words = "The books or the keys cannot be reached just now. Load the page again in a moment."
            return self.press.plain("refused.html", status=503, heading="Not now", words=words)
        except Problem as problem:
            _, heading, advice = KINDS[problem.kind]
            refused = self.press.plain(
                "refused.html",
                status=problem.status_code,
                heading=heading,
                words=f"{problem.detail} {advice}",
            )
            refused.headers.update(problem.headers or {})
            return refused

    # --- In and out ---

    def greet(self, request: Request) -> Response:
        note = _NOTES.get(request.query_params.get("why", ""), "")
        return self._sign_in_form(request, note=note)

    def sign_in(self, request: Request, form: Form) -> Response:
        address = request.client.host if request.client else "nobody"
        response = _go(HOME)
        try:
            key = self.porter.door.check(form.get("key", "").strip(), address)
            self.porter.sign_in(request, response, key)
        except Problem as problem:
            words = "Paste a key." if problem.kind == "no-key" and not form.get("key") else problem.detail
            refused = self._sign_in_form(request, error=words, status=problem.status_code)
            if "Retry-After" in (problem.headers or {}):
                refused.headers["Retry-After"] = (problem.headers or {})["Retry-After"]
            return refused
        request.state.key_id = key.id
        self.log.info("signed in", key=key.id)
        return response

    def sign_out(self, _request: Request, visit: Visit, _form: Form) -> Response:
        response = _go(f"{HOME}/sign-in?why=out")
        self.porter.sign_out(response, visit.session)
        self.log.info("signed out", key=visit.key.id)
        return response

    def _sign_in_form(
        self, request: Request, *, note: str = "", error: str = "", status: int = 200
    ) -> Response:
        # The form's token belongs to a cookie that comes with it, so that no other site can sign anyone in.
        visitor, token = self.porter.new_visitor()
        minutes = self.porter.sessions.minutes
        page = self.press.plain(
            "sign-in.html", status=status, note=note, error=error, form_token=token, minutes=minutes
        )
        self.porter.greet(page, visitor)
        return page

    # --- What there is to see ---

    def overview(self, request: Request, visit: Visit) -> Response:
        seen, served = self.watch.snapshot(), self.desk.served
        event = describe(self.desk.mechanism, self.desk.noise)
        return self.press.page(
            request, visit, "overview.html", seen=seen, recent=seen.questions(0, _N_RECENT),
            estimates=self.outlook.estimates(self.desk.accountant, seen.spent), verdict=self.check.last,
            relation=served.relation, mechanism=event.get("mechanism"),
            parameters=event.get("parameters", {}),
            price=self.desk.price.epsilon(served.budget.delta), n_pool=served.n_pool, listens=served.listens,
            plan=served.plan, leave=served.leave,
        )  # fmt: skip

    def account(self, request: Request, visit: Visit) -> Response:
        name, seen = request.query_params.get("name", ""), self.watch.snapshot()
        account = seen.accounts.get(name)
        if account is None:
            return self.nowhere(request, visit)
        recent = seen.questions(0, _N_ON_A_PAGE, account=name)
        return self.press.page(request, visit, "account.html", account=account, recent=recent)

    def releases(self, request: Request, visit: Visit) -> Response:
        said, seen = request.query_params.get("page", "1"), self.watch.snapshot()
        number = min(int(said), _MOST_PAGES) if said.isascii() and said.isdecimal() and len(said) < 12 else 1
        n_pages = max(1, -(-len(seen.entries) // _N_ON_A_PAGE))
        number = min(max(number, 1), n_pages)
        return self.press.page(
            request, visit, "releases.html", number=number, n_pages=n_pages, n_questions=len(seen.entries),
            questions=seen.questions(_N_ON_A_PAGE * (number - 1), _N_ON_A_PAGE),
        )  # fmt: skip

    def keys(self, request: Request, visit: Visit) -> Response:
        keys = sorted(self.porter.door.store.all(), key=lambda key: (key.is_revoked, key.role, key.name))
        rows = [
            (key, datetime.fromisoformat(key.created), key.revoked and datetime.fromisoformat(key.revoked))
            for key in keys
        ]
        return self.press.page(request, visit, "keys.html", rows=rows)

    def ledger(self, request: Request, visit: Visit) -> Response:
        entries, verdict = None, self.check.last
        try:
            entries = self.watch.snapshot().entries
        except LedgerConflict:
            # Books that cannot be read are told of here, whether or not anyone asked.
            if verdict is None or verdict.is_intact:
                verdict = self.check.verify()
        return self.press.page(
            request, visit, "ledger.html", verdict=verdict, is_possible=self.check.is_possible,
            n_entries=None if entries is None else len(entries),
            n_unsettled=sum(not entry.is_settled for entry in entries or ()),
        )  # fmt: skip

    def static(self, name: str) -> Response:
        return self.press.file(name) or self._nothing()

    def nowhere(self, _request: Request, _visit: Visit) -> Response:
        return self._nothing()

    def _nothing(self) -> Response:
        words = "The address leads nowhere. Perhaps what it named is gone."
        return self.press.plain("refused.html", status=404, heading="There is nothing here", words=words)

    # --- What can be done ---

    def revoke(self, _request: Request, visit: Visit, form: Form) -> Response:
        if not visit.may_revoke:
            raise Problem("wrong-role", "Expected a key of role operator to revoke keys, got another.")
        store, number = self.porter.door.store, form.get("id", "")
        if store.find(number) is None:
            return self._nothing()
        store.revoke(number)
        self.log.info("key revoked", key=visit.key.id, revoked=number)
        return _go(f"{HOME}/keys")

    def verify(self, _request: Request, visit: Visit, _form: Form) -> Response:
        verdict = self.check.verify()
        self.log.info("ledger verified", key=visit.key.id, intact=verdict.is_intact)
        return _go(f"{HOME}/ledger")


def _go(place: str) -> Response:
    return RedirectResponse(place, 303, headers=HEADERS)
