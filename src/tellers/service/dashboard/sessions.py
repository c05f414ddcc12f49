"""Who is signed in: short sessions, known by a signed cookie, and the tokens of their forms.

All of it is kept in this process: a restart signs everybody out, and a session that was ended stays ended,
whoever kept a copy of its cookie.
"""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

_MOST_OF_ONE_KEY = 20


@dataclass(frozen=True)
class Session:
    """A sign-in: its number, the id of the key it was made with, and when it ends (seconds since 1970).

    >>> Session("a1", "abcdefghijkl", ends=1_800_000_000).key_id
    'abcdefghijkl'
    """

    number: str
    key_id: str
    ends: int


@dataclass(eq=False)
class Sessions:
    """Begins, finds and ends sessions. A session lasts as long as it was given, however busy it is.

    >>> sessions = Sessions(minutes=30)
    >>> cookie, session = sessions.begin("abcdefghijkl")
    >>> sessions.find(cookie) == session, sessions.find(cookie[:-1] + "!") is None
    (True, True)
    >>> token = sessions.form_token(session.number)
    >>> sessions.is_form_token(session.number, token), sessions.is_form_token("another", token)
    (True, False)
    >>> sessions.end(session)
    >>> sessions.find(cookie) is None
    True
    """

    minutes: int
    clock: Callable[[], float] = time.time
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _live: dict[str, Session] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self, key_id: str) -> tuple[str, Session]:
        """Begin a session for a key and return the cookie that carries it."""
        now = self.clock()
        session = Session(secrets.token_urlsafe(32), key_id, ends=int(now + 60 * self.minutes))
        with self._lock:
            self._live = {number: one for number, one in self._live.items() if one.ends > now}
            mine = [one for one in self._live.values() if one.key_id == key_id]
            for oldest in mine[: max(0, len(mine) - _MOST_OF_ONE_KEY + 1)]:
                del self._live[oldest.number]
            self._live[session.number] = session
        return f"{session.number}.{session.ends}.{self._sign('session', session)}", session

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie, or None where it is forged, over, or was ended."""
        number, _, rest = cookie.partition(".")
        with self._lock:
            session = self._live.get(number)
        if session is None or not _same(rest, f"{session.ends}.{self._sign('session', session)}"):
            return None
        return session if self.clock() < session.ends else None

    def end(self, session: Session) -> None:
        """End a session; its cookie opens nothing any more."""
        with self._lock:
            self._live.pop(session.number, None)

    def form_token(self, about: str) -> str:
        """Return what a form must carry, for one session or one visitor who is not signed in."""
        return hmac.new(self._secret, f"form {about}".encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, about: str, token: str) -> bool:
        """Return whether a form came from a page that was made for this session or visitor."""
        return _same(token, self.form_token(about))

    def _sign(self, kind: str, session: Session) -> str:
        said = f"{kind} {session.number} {session.key_id} {session.ends}"
        return hmac.new(self._secret, said.encode(), hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
