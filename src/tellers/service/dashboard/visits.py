"""Who visits a page: from a request's cookies to a session and its key, and from a body to a form."""

import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from ..access import Door
from ..keys import Key
from ..problems import Problem
from .sessions import Session, Sessions

ROLES = ("operator", "auditor")
_MOST_FIELDS = 10
_FORM = "application/x-www-form-urlencoded"


class NotSignedIn(Exception):
    """Nobody is signed in here, or not any more; `why` is a word that the sign-in page knows."""

    def __init__(self, why: str = "") -> None:
        self.why = why
        super().__init__(why)


class NotOurForm(Exception):
    """A form that did not come from a page of ours, or came too late."""


@dataclass(frozen=True)
class Visit:
    """Somebody who is signed in: the session, the key as it is now, and what forms must carry.

    >>> from tellers.service.keys import Key
    >>> key = Key("abcdefghijkl", "otto", "operator", "2026-01-01T00:00:00+00:00")
    >>> Visit(Session("a1", key.id, ends=0), key, form_token="f").may_revoke
    True
    """

    session: Session
    key: Key
    form_token: str

    @property
    def may_revoke(self) -> bool:
        """Return whether this visitor may revoke keys."""
        return self.key.role == "operator"


@dataclass(frozen=True, eq=False)
class Porter:
    """Lets visitors in by the cookie of their session, and forms by the token of their page.

    Cookies are HttpOnly and SameSite=Strict, and Secure where the service or a proxy in front of it speaks
    TLS; there they carry the prefix __Host-, which no other host can set.

    >>> import tempfile
    >>> from tellers.service.keys import KeyStore
    >>> from tellers.service.settings import LimitsConfig
    >>> door = Door(KeyStore(tempfile.mkdtemp() + "/keys.db"), LimitsConfig())
    >>> porter = Porter(door, Sessions(minutes=30), is_secure=False)
    >>> porter.session_cookie, Porter(door, Sessions(minutes=30), is_secure=True).session_cookie
    ('tellers_session', '__Host-tellers_session')
    >>> try:
    ...     porter.let_in(Request({"type": "http", "headers": []}))
    ... except NotSignedIn:
    ...     "nobody"
    'nobody'
    >>> response = Response()
    >>> visitor, form = porter.new_visitor()
    >>> porter.greet(response, visitor)
    >>> len(form), "HttpOnly" in response.headers["set-cookie"]
    (64, True)
    >>> porter.sign_out(response, Session("a1", "abcdefghijkl", ends=0))
    """

    door: Door
    sessions: Sessions
    is_secure: bool

    @property
    def session_cookie(self) -> str:
        """Return the name of the cookie that carries a session."""
        return self._name("tellers_session")

    @property
    def visitor_cookie(self) -> str:
        """Return the name of the cookie that ties the sign-in form to a browser."""
        return self._name("tellers_visitor")

    def let_in(self, request: Request) -> Visit:
        """Return who is signed in, looking up each time whether the key still opens something."""
        cookie = request.cookies.get(self.session_cookie, "")
        if not cookie:
            raise NotSignedIn
        session = self.sessions.find(cookie)
        if session is None:
            raise NotSignedIn("ended")
        request.state.key_id = session.key_id
        key = self.door.store.find(session.key_id)
        if key is None or key.is_revoked or key.role not in ROLES:
            self.sessions.end(session)
            raise NotSignedIn("revoked")
        self.door.count(key)
        return Visit(session, key, self.sessions.form_token(session.number))

    def new_visitor(self) -> tuple[str, str]:
        """Return a number for a browser that is not signed in, and what its sign-in form must carry."""
        visitor = secrets.token_urlsafe(32)
        return visitor, self.sessions.form_token(f"visitor {visitor}")

    def greet(self, response: Response, visitor: str) -> None:
        """Let a response carry the number of a visitor."""
        self._set(response, self.visitor_cookie, visitor)

    def require_visitor(self, request: Request, form: dict[str, str]) -> None:
        """Refuse a sign-in form that this browser was not given.

        >>> callable(Porter.require_visitor)
        True
        """
        visitor = request.cookies.get(self.visitor_cookie, "")
        if not visitor or not self.sessions.is_form_token(f"visitor {visitor}", form.get("form", "")):
            raise NotOurForm

    def require_form(self, visit: Visit, form: dict[str, str]) -> None:
        """Refuse a form that was not made for this session.

        >>> callable(Porter.require_form)
        True
        """
        if not self.sessions.is_form_token(visit.session.number, form.get("form", "")):
            raise NotOurForm

    def sign_in(self, request: Request, response: Response, key: Key) -> None:
        """Begin a session for a key, in place of the browser's last one, and let the response carry it.

        >>> callable(Porter.sign_in)
        True
        """
        if key.role not in ROLES:
            raise Problem("wrong-role", f"The dashboard is for operators and auditors, not for {key.role}s.")
        last = self.sessions.find(request.cookies.get(self.session_cookie, ""))
        if last is not None:
            self.sessions.end(last)
        cookie, _ = self.sessions.begin(key.id)
        self._set(response, self.session_cookie, cookie, seconds=60 * self.sessions.minutes)
        response.delete_cookie(self.visitor_cookie, **self._terms())

    def sign_out(self, response: Response, session: Session) -> None:
        """End a session, and have the browser forget it."""
        self.sessions.end(session)
        response.delete_cookie(self.session_cookie, **self._terms())

    def _name(self, name: str) -> str:
        return f"__Host-{name}" if self.is_secure else name

    def _terms(self) -> dict[str, Any]:
        return {"path": "/", "secure": self.is_secure, "httponly": True, "samesite": "strict"}

    def _set(self, response: Response, name: str, value: str, *, seconds: int | None = None) -> None:
        response.set_cookie(name, value, max_age=seconds, **self._terms())


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that a page of ours sent; a field may come once.

    >>> import asyncio
    >>> async def receive():
    ...     return {"type": "http.request", "body": b"form=f&key=tlr_x", "more_body": False}
    >>> kind = (b"content-type", b"application/x-www-form-urlencoded")
    >>> asyncio.run(read_form(Request({"type": "http", "headers": [kind]}, receive)))
    {'form': 'f', 'key': 'tlr_x'}
    """
    require_same_origin(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise NotOurForm
    body = await request.body()
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise NotOurForm from None
    form = dict(fields)
    if len(form) != len(fields):
        raise NotOurForm
    return form


def require_same_origin(request: Request) -> None:
    """Refuse a form that a browser says was sent from another site; the token of the form decides for good.

    >>> headers = [(b"host", b"here.example"), (b"origin", b"https://elsewhere.example")]
    >>> try:
    ...     require_same_origin(Request({"type": "http", "headers": headers}))
    ... except NotOurForm:
    ...     "refused"
    'refused'
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise NotOurForm
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise NotOurForm
