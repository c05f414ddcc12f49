"""Sessions of the dashboard: signed cookies, form tokens, and who visits a page."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request
from starlette.responses import Response

from .._keys import Key, KeyStore
from .._middleware import Authenticator
from .._problems import HttpProblem

# --- Sessions ---
#
# They stand in the store of keys, which the processes of a service share, and are signed with a secret of
# this start: a restart signs everybody out, and one that was ended stays ended, whatever was kept of it.

_MOST_OF_ONE_KEY = 20


class Session(NamedTuple):
    """A sign-in: its number, the id of the key it was made with, and when it ends (seconds since 1970)."""

    number: str
    key_id: str
    ends: int


@dataclass(eq=False)
class Sessions:
    """Begins, finds and ends sessions. A session lasts as long as it was given, however busy it is."""

    store: KeyStore
    minutes: int
    clock: Callable[[], float] = time.time
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def begin(self, key_id: str) -> str:
        """Begin a session for a key and return the cookie that carries it."""
        now = self.clock()
        session = Session(secrets.token_urlsafe(32), key_id, ends=int(now + 60 * self.minutes))
        self.store.begin_session(session.number, key_id, ends=session.ends, now=now, most=_MOST_OF_ONE_KEY)
        return f"{session.number}.{session.ends}.{self._sign(session.number, session.ends)}"

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie, or None where it is forged, over, or was ended."""
        number, _, rest = cookie.partition(".")
        said, _, signature = rest.partition(".")
        if not (said.isascii() and said.isdecimal() and len(said) <= 12):
            return None
        ends = int(said)
        if not _same(signature, self._sign(number, ends)) or self.clock() >= ends:
            return None
        found = self.store.session(number)
        return None if found is None or found[1] != ends else Session(number, *found)

    def end(self, session: Session) -> None:
        self.store.end_session(session.number)

    def form_token(self, about: str) -> str:
        """Return what a form must carry, for one session or one visitor who is not signed in."""
        return hmac.new(self.secret, f"form {about}".encode(), hashlib.sha256).hexdigest()

    def require_form(self, about: str, form: Mapping[str, str]) -> None:
        """Refuse a form that did not come from a page that was made for this session or visitor."""
        if not _same(form.get("form", ""), self.form_token(about)):
            raise NotOurForm

    def _sign(self, number: str, ends: int) -> str:
        return hmac.new(self.secret, f"session {number} {ends}".encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


# --- Page visits ---

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
class PageVisit:
    """Somebody who is signed in: the session, the key as it is now, and what forms must carry."""

    session: Session
    key: Key
    form_token: str

    @property
    def may_revoke(self) -> bool:
        return self.key.role == "operator"


@dataclass(frozen=True, eq=False)
class SessionGate:
    """Lets visitors in by the cookie of their session, and forms by the token of their page.

    Cookies are HttpOnly and SameSite=Strict, and Secure where the service or a proxy in front of it speaks
    TLS; there they carry the prefix __Host-, which no other host can set.
    """

    authenticator: Authenticator
    sessions: Sessions
    is_secure: bool

    @property
    def session_cookie(self) -> str:
        return self._name("tellers_session")

    @property
    def visitor_cookie(self) -> str:
        """Return the name of the cookie that ties the sign-in form to a browser."""
        return self._name("tellers_visitor")

    def let_in(self, request: Request) -> PageVisit:
        """Return who is signed in, looking up each time whether the key still opens something."""
        cookie = request.cookies.get(self.session_cookie, "")
        if not cookie:
            raise NotSignedIn
        session = self.sessions.find(cookie)
        if session is None:
            raise NotSignedIn("ended")
        request.state.key_id = session.key_id
        key = self.authenticator.store.find(session.key_id)
        if key is None or key.is_revoked or key.role not in ROLES:
            self.sessions.end(session)
            raise NotSignedIn("revoked")
        self.authenticator.count(key)
        return PageVisit(session, key, self.sessions.form_token(session.number))

    def new_visitor(self) -> tuple[str, str]:
        """Return a number for a browser that is not signed in, and what its sign-in form must carry."""
        visitor = secrets.token_urlsafe(32)
        return visitor, self.sessions.form_token(f"visitor {visitor}")

    def greet(self, response: Response, visitor: str) -> None:
        response.set_cookie(self.visitor_cookie, visitor, **self._terms())

    def require_visitor(self, request: Request, form: dict[str, str]) -> None:
        """Refuse a sign-in form that this browser was not given."""
        visitor = request.cookies.get(self.visitor_cookie, "")
        if not visitor:
            raise NotOurForm
        self.sessions.require_form(f"visitor {visitor}", form)

    def sign_in(self, request: Request, response: Response, key: Key) -> None:
        """Begin a session for a key, in place of the browser's last one, and let the response carry it."""
        if key.role not in ROLES:
            raise HttpProblem(
                "wrong-role", f"The dashboard is for operators and auditors, not for {key.role}s."
            )
        last = self.sessions.find(request.cookies.get(self.session_cookie, ""))
        if last is not None:
            self.sessions.end(last)
        cookie = self.sessions.begin(key.id)
        response.set_cookie(self.session_cookie, cookie, 60 * self.sessions.minutes, **self._terms())
        response.delete_cookie(self.visitor_cookie, **self._terms())

    def sign_out(self, response: Response, session: Session) -> None:
        self.sessions.end(session)
        response.delete_cookie(self.session_cookie, **self._terms())

    def _name(self, name: str) -> str:
        return f"__Host-{name}" if self.is_secure else name

    def _terms(self) -> dict[str, Any]:
        return {"path": "/", "secure": self.is_secure, "httponly": True, "samesite": "strict"}


async def read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form that a page of ours sent; a field may come once."""
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
    """Refuse a form that a browser says was sent from another site; its token decides for good."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise NotOurForm
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host", ""):
        raise NotOurForm
