"""Middleware: request ids, security headers, logging, authentication, and limits on the body."""

import asyncio
import hashlib
import hmac
import json
import math
import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ._connections import network_of
from ._keys import TOKEN, WINDOW, Key, KeyStore
from ._logs import Metrics, describe_error
from ._problems import HttpProblem, as_problem
from .settings import LimitsConfig

# In that order from the outside in: strangers are refused before a byte of what they send is read.

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
# A text without an end goes to the end of all: looked for again at each quote in it, it would take hours.
_TEXT = re.compile(rb'("(?:[^"\\]++|\\.)*+"?+)(\s*+:)?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_BODY_SECONDS = 30.0
# A question has a few names and one text; a form, which strangers may send too, a key and a token.
_MOST_TEXTS = 64
_MOST_FORM_BYTES = 16_384


class LogMiddleware:
    """Gives every request an id and every response its headers; logs one line; lets no exception out."""

    def __init__(self, app: ASGIApp, *, log: Any, metrics: Metrics, is_tls: bool) -> None:
        self.app, self.log, self.metrics = app, log, metrics
        self.headers = dict(HEADERS)
        if is_tls:
            self.headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, request_id = time.perf_counter(), secrets.token_hex(8)
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in self.headers.items():
                    headers.setdefault(name, value)
            await send(message)

        error: dict[str, Any] = {}
        try:
            await self.app(scope, receive, answer)
        except Exception as raised:
            error = describe_error(raised)
            if not status:
                await _failed(raised).response(request_id)(scope, receive, answer)
        finally:
            seconds = time.perf_counter() - start
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = getattr(scope.get("route"), "path", "unknown")
            self.metrics.count_request(method, route, status, seconds=seconds)
            say = self.log.error if error or status >= 500 else self.log.info
            say(
                "request", method=method, path=route, status=status, key=state.get("key_id"),
                request_id=request_id, milliseconds=round(1000 * seconds, 2), **error,
            )  # fmt: skip


class KeyMiddleware:
    """Lets nobody in without a key, except to the few paths that are open to everyone."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        authenticator: "Authenticator",
        is_open: Callable[[str], bool],
        is_admitted_later: Callable[[Request], bool] = lambda _request: False,
    ) -> None:
        self.app, self.authenticator, self.is_open = app, authenticator, is_open
        self.is_admitted_later = is_admitted_later
        self._first_checks = CapacityLimiter(2 * _MOST_GUESSES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self.is_open(scope["path"]):
            request = Request(scope)
            try:
                request.state.key = await self._admit(request)
            except HttpProblem as problem:
                await self._refuse(problem, scope, receive, send)
                return
            if request.state.key is None:
                send = self._looking_again(request, receive, send)
        await self.app(scope, receive, send)

    async def _refuse(self, problem: HttpProblem, scope: Scope, receive: Receive, send: Send) -> None:
        response = problem.response(scope["state"]["request_id"])
        if problem.kind == "no-key":
            scope["state"].pop("key_id", None)
        if "key_id" not in scope["state"]:
            response.headers["Connection"] = "close"  # nothing more is read of a stranger
        await response(scope, receive, send)

    def _looking_again(self, request: Request, receive: Receive, send: Send) -> Send:
        """Admit a request that became no question, and was not counted with one, before it is answered."""
        state, is_refused = request.scope["state"], False

        async def answer(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start":
                if state.pop("is_uncounted", False):
                    try:
                        await run_sync(self.authenticator.admit, request)
                    except HttpProblem as problem:
                        is_refused = True
                        await self._refuse(problem, request.scope, receive, send)
                elif "key_id" not in state:
                    MutableHeaders(scope=message)["Connection"] = "close"
            if not is_refused:
                await send(message)

        return answer

    async def _admit(self, request: Request) -> Key | None:
        """Return the key of a request; None where it is known, and whoever answers admits it."""
        token = token_of(request)
        if not TOKEN.fullmatch(token):
            return self.authenticator.admit(request)  # refuses, and asks nobody
        number = self.authenticator.remembered(token)
        if number and self.is_admitted_later(request):
            request.state.is_uncounted, request.state.key_id = True, number
            return None
        # The store is a database, and a first check of a key is slow on purpose: it waits for a place of its
        # own, so that wrong keys take none from those whose key is known.
        limiter = None if number else self._first_checks
        return await run_sync(self.authenticator.admit, request, limiter=limiter)


class BodyLimitMiddleware:
    """Reads a body only as far as it may be read, and looks at its shape before anything parses it."""

    def __init__(self, app: ASGIApp, *, limits: LimitsConfig, is_form: Callable[[str], bool]) -> None:
        self.app, self.limits, self.is_form = app, limits, is_form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await self._read(scope, receive)
            if not self.is_form(scope["path"]):
                kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
                if body and kind != "application/json":
                    raise HttpProblem("not-json", "Expected application/json, got another content type.")
                require_shallow(body, depth=self.limits.max_depth, n_lists=2 * self.limits.max_batch + 16)
        except (TimeoutError, HttpProblem) as error:
            slow = HttpProblem("too-slow", "The body was not there in time.")
            problem = error if isinstance(error, HttpProblem) else slow
            response = problem.response(scope["state"]["request_id"])
            response.headers["Connection"] = "close"  # what was not read is not read any more
            await response(scope, receive, send)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        most = self.limits.max_body_bytes
        if self.is_form(scope["path"]) or "key_id" not in scope["state"]:
            most = min(most, _MOST_FORM_BYTES)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > most:
            raise HttpProblem("too-large", f"Expected at most {most} bytes.")
        body = bytearray()
        try:
            async for part in Request(scope, receive).stream():
                body += part
                if len(body) > most:
                    raise HttpProblem("too-large", f"Expected at most {most} bytes.")
        except ClientDisconnect:
            words = "The connection was closed before all of the request came."
            raise HttpProblem("bad-request", words) from None
        return bytes(body)


def require_shallow(body: bytes, *, depth: int, n_lists: int) -> None:
    """Refuse JSON with brackets nested deeper than anything here needs, or far more of them."""
    if b"\0" in body:
        raise HttpProblem("bad-request", "Expected JSON in UTF-8, got another encoding.")
    require_distinct(body)
    deep = seen = 0
    for mark in _BRACKET.finditer(_TEXT.sub(b"", body)):
        if mark[0] in b"[{":
            deep, seen = deep + 1, seen + 1
            if deep > depth:
                raise HttpProblem("bad-request", f"Expected brackets nested at most {depth} deep.")
            if seen > n_lists:
                raise HttpProblem("bad-request", f"Expected at most {n_lists} lists.")
        else:
            deep -= 1


def require_distinct(body: bytes) -> None:
    """Refuse JSON that says one name twice, where readers differ on which counts, or far too many of them."""
    names: list[str] = []
    for seen, text in enumerate(_TEXT.finditer(body), start=1):
        if seen > _MOST_TEXTS:
            raise HttpProblem("bad-request", f"Expected at most {_MOST_TEXTS} texts.")
        if text[2] is not None:
            try:
                names.append(json.loads(text[1]))
            except ValueError:
                raise HttpProblem("bad-request", "Expected JSON, got something else.") from None
    if len(set(names)) < len(names):
        raise HttpProblem("bad-request", "Expected every name once, got one twice.")


def _failed(raised: Exception) -> HttpProblem:
    if isinstance(raised, HTTPException):
        return as_problem(raised)
    if isinstance(raised, OSError):
        # A database that is away, frozen or busy, a disk that is full: it may be there again in a moment.
        words = "The books or the keys cannot be reached just now. What was charged stays charged."
        return HttpProblem("unavailable", words, headers={"Retry-After": "5"})
    return HttpProblem("internal", "The server could not answer. What was charged stays charged.")


# --- Authentication ---

_REMEMBERED_SECONDS = 60.0
_MOST_REMEMBERED = 10_000
_MOST_GUESSES = 8


def _no_key(detail: str) -> HttpProblem:
    return HttpProblem("no-key", detail, headers={"WWW-Authenticate": 'Bearer realm="tellers"'})


def token_of(request: Request) -> str:
    """Return what a request carries as its key, or nothing."""
    words = request.headers.get("authorization", "").split(" ")
    return words[1] if len(words) == 2 and words[0].lower() == "bearer" else ""


class Failures:
    """Counts wrong keys by place in any minute, in this process, and forgets places that are quiet.

    A stranger makes nobody write to a database, and no address is kept. A clock that is set does not matter.
    """

    def __init__(self, most: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock, self._lock = most, clock, threading.Lock()
        self._at: OrderedDict[tuple[str, ...], deque[float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._at)

    def wait(self, *place: str) -> int:
        """Return after how many seconds one more is looked at."""
        with self._lock:
            seen = self._at.get(place)
            if seen is None or len(seen) < self._most:
                return 0
            return max(0, math.ceil(seen[0] + WINDOW - self._clock()))

    def add(self, *place: str) -> None:
        if not self._most:
            return
        with self._lock:
            now = self._clock()
            self._at.setdefault(place, deque(maxlen=self._most)).append(now)
            self._at.move_to_end(place)
            while (quiet := next(iter(self._at.items())))[1][-1] <= now - WINDOW:
                del self._at[quiet[0]]


@dataclass(eq=False)
class Authenticator:
    """Checks keys and roles, and counts requests, those of a key together with all who share its store.

    A token that was verified is remembered for a minute under a keyed hash, so that argon2 is not paid for by
    every request. Whether its key was revoked is looked up each time.
    """

    store: KeyStore
    limits: LimitsConfig
    clock: Callable[[], float] = time.monotonic
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _seen: dict[bytes, tuple[str, float]] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    # Of unknown ids, so that the threads that check keys are never all taken by guesses.
    _guesses: threading.BoundedSemaphore = field(
        default_factory=lambda: threading.BoundedSemaphore(_MOST_GUESSES), repr=False
    )
    _failures: Failures = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._failures = Failures(self.limits.failures_per_minute)

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
        key = self.check(token_of(request), request.client.host if request.client else "nobody")
        request.state.key_id = key.id
        self.count(key)
        return key

    def check(self, token: str, address: str) -> Key:
        """Return the key of a token that opens something, or refuse whoever sent it from an address."""
        is_stranger = bool(token) and not self.remembered(token)
        place = self._counted(token, address) if is_stranger else ()
        wait = self._failures.wait(*place)
        if wait:
            detail = f"{self.limits.failures_per_minute} wrong keys in a minute."
            raise HttpProblem("too-many", detail, headers={"Retry-After": str(wait)})
        is_guess = is_stranger and len(place) == 1
        if is_guess and not self._guesses.acquire(blocking=False):
            raise HttpProblem("too-many", "Many unknown keys are checked now.", headers={"Retry-After": "1"})
        try:
            key = self.verify(token) if token else None
        finally:
            if is_guess:
                self._guesses.release()
        if key is None:
            if token:
                self._failures.add(*(place or self._counted(token, address)))
            raise _no_key(
                "The key is not known, or was revoked." if token else "No key came with the request."
            )
        return key

    def count(self, key: Key) -> None:
        """Count one more request of a key, or refuse it where there were too many in a minute."""
        most = self.limits.requests_per_minute
        wait = self.store.hit(key.id, most=most) if most else 0
        if wait:
            raise self._too_many(wait)

    def _too_many(self, wait: int) -> HttpProblem:
        detail = f"A key may send {self.limits.requests_per_minute} requests in a minute."
        return HttpProblem("too-many", detail, headers={"Retry-After": str(wait)})

    def _counted(self, token: str, address: str) -> tuple[str, ...]:
        """Return where a wrong key counts: who guesses must not shut out others behind the same proxy.

        Ids are 60 random bits: who knows one is counted by it, and everybody else by the address.
        """
        address = network_of(address)
        parts = TOKEN.fullmatch(token)
        known = parts is not None and self.store.find(parts[1]) is not None
        return (address, parts[1]) if parts is not None and known else (address,)

    def _mark(self, token: str) -> bytes:
        return hmac.digest(self._secret, token.encode(), hashlib.sha256)

    def remembered(self, token: str) -> str:
        """Return the id of the key of a token that was found valid within the last minute, or nothing."""
        with self._lock:
            number, until = self._seen.get(self._mark(token), ("", 0.0))
        return number if until > self.clock() else ""

    def admit_all(self, keys: "Sequence[Key | str]") -> list[Key | HttpProblem]:
        """Return the keys of these ids, whose secret was shown a moment ago, or why one is refused now.

        What is a key already was admitted before.
        """
        waiting = {at: number for at, number in enumerate(keys) if isinstance(number, str)}
        found: list[Any] = list(keys)
        known = self.store.admit_all(list(waiting.values()), most=self.limits.requests_per_minute)
        for (at, number), (key, wait) in zip(waiting.items(), known, strict=True):
            if key is None or key.is_revoked:
                with self._lock:
                    self._seen = {mark: kept for mark, kept in self._seen.items() if kept[0] != number}
                found[at] = _no_key("The key is not known, or was revoked.")
            elif wait:
                found[at] = self._too_many(wait)
            else:
                found[at] = key
        return found

    def _remember(self, mark: bytes, number: str) -> None:
        now = self.clock()
        with self._lock:
            if len(self._seen) >= _MOST_REMEMBERED:
                self._seen = {mark: kept for mark, kept in self._seen.items() if kept[1] > now}
            if len(self._seen) < _MOST_REMEMBERED:
                self._seen[mark] = (number, now + _REMEMBERED_SECONDS)
