"""Who is asking: from a request's header to a key, at most a few times a minute the slow way."""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.requests import Request

from .keys import TOKEN, Key, KeyStore
from .problems import Problem
from .settings import LimitsConfig

_REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 10_000


@dataclass(eq=False)
class Door:
    """Checks keys and roles, and counts requests, those of a key together with all who share its store.

    A token that was verified is remembered for a minute under a keyed hash, so that argon2 is not paid for by
    every request. Whether its key was revoked is looked up each time.

    >>> import tempfile
    >>> store = KeyStore(tempfile.mkdtemp() + "/keys.db")
    >>> door = Door(store, LimitsConfig())
    >>> token, key = store.create("alice", "student")
    >>> door.verify(token) == key, door.verify(token) == key
    (True, True)
    >>> _ = store.revoke(key.id)
    >>> door.verify(token) is None
    True
    >>> door.admit(Request({"type": "http", "headers": [], "client": ("127.0.0.1", 1)}))
    Traceback (most recent call last):
        ...
    tellers.service.problems.Problem: 401: No key came with the request.
    """

    store: KeyStore
    limits: LimitsConfig
    clock: Callable[[], float] = time.monotonic
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _seen: dict[bytes, tuple[str, float]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    # In this process: a stranger makes nobody write to a database, and no address is kept.
    _failed: MovingWindowRateLimiter = field(
        default_factory=lambda: MovingWindowRateLimiter(MemoryStorage()), repr=False
    )

    def verify(self, token: str) -> Key | None:
        """Return the key of a token that opens something, or None."""
        if not TOKEN.fullmatch(token):
            return None
        mark = self._mark(token)
        with self._lock:
            number, until = self._seen.get(mark, ("", 0.0))
        key = self.store.find(number) if self.clock() < until else self.store.verify(token)
        if key is None or key.is_revoked:
            with self._lock:
                self._seen.pop(mark, None)
            return None
        if self.clock() >= until:
            self._remember(mark, key.id)
        return key

    def admit(self, request: Request) -> Key:
        """Return the key of a request, or refuse it: without a key that opens something, or too often."""
        words = request.headers.get("authorization", "").split(" ")
        token = words[1] if len(words) == 2 and words[0].lower() == "bearer" else ""
        key = self.check(token, request.client.host if request.client else "nobody")
        request.state.key_id = key.id
        self.count(key)
        return key

    def check(self, token: str, address: str) -> Key:
        """Return the key of a token that opens something, or refuse whoever sent it from an address.

        >>> import tempfile
        >>> Door(KeyStore(tempfile.mkdtemp() + "/keys.db"), LimitsConfig()).check("tlr_x", "127.0.0.1")
        Traceback (most recent call last):
            ...
        tellers.service.problems.Problem: 401: The key is not known, or was revoked.
        """
        failures = self.limits.failures_per_minute
        is_stranger = bool(token and failures) and not self._is_remembered(token)
        place = self._counted(token, address) if is_stranger else ()
        if is_stranger and not self._failed.test(RateLimitItemPerMinute(failures), *place):
            self._refuse_stranger(failures, *place)
        key = self.verify(token) if token else None
        if key is None:
            if token and failures:
                self._failed.hit(RateLimitItemPerMinute(failures), *(place or self._counted(token, address)))
            detail = "The key is not known, or was revoked." if token else "No key came with the request."
            raise Problem("no-key", detail, headers={"WWW-Authenticate": 'Bearer realm="tellers"'})
        return key

    def count(self, key: Key) -> None:
        """Count one more request of a key, or refuse it where there were too many in a minute.

        >>> import tempfile
        >>> door = Door(KeyStore(tempfile.mkdtemp() + "/keys.db"), LimitsConfig(requests_per_minute=1))
        >>> door.count(door.store.create("alice", "student")[1])
        """
        most = self.limits.requests_per_minute
        wait = self.store.hit(key.id, most=most) if most else 0
        if wait:
            detail = f"A key may send {most} requests in a minute."
            raise Problem("too-many", detail, headers={"Retry-After": str(wait)})

    def _counted(self, token: str, address: str) -> tuple[str, ...]:
        """Return where a wrong key counts: who guesses must not shut out others behind the same proxy.

        Ids are 60 random bits: who knows one is counted by it, and everybody else by the address.
        """
        parts = TOKEN.fullmatch(token)
        known = parts is not None and self.store.find(parts[1]) is not None
        return (address, parts[1]) if parts is not None and known else (address,)

    def _mark(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), hashlib.sha256)

    def _is_remembered(self, token: str) -> bool:
        with self._lock:
            return self._seen.get(self._mark(token), ("", 0.0))[1] > self.clock()

    def _refuse_stranger(self, most: int, *place: str) -> None:
        reset = self._failed.get_window_stats(RateLimitItemPerMinute(most), *place).reset_time
        wait = max(1, round(reset - time.time() + 0.5))
        detail = f"{most} wrong keys in a minute."
        raise Problem("too-many", detail, headers={"Retry-After": str(min(wait, 60))})

    def _remember(self, mark: bytes, number: str) -> None:
        now = self.clock()
        with self._lock:
            if len(self._seen) >= _MOST_REMEMBERED:
                self._seen = {mark: kept for mark, kept in self._seen.items() if kept[1] > now}
            if len(self._seen) < _MOST_REMEMBERED:
                self._seen[mark] = (number, now + _REMEMBERED_SECONDS)
