"""What every request passes: a request id and headers, a key, limits on what is read, and the log.

In that order from the outside in: strangers are refused before a byte of what they send is read.
"""

import asyncio
import json
import re
import secrets
import time
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import Door
from .logs import describe_error
from .metrics import Metrics
from .problems import Problem, as_problem
from .settings import LimitsConfig

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_TEXT = re.compile(rb'("(?:[^"\\]++|\\.)*+")(\s*+:)?', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_BODY_SECONDS = 30.0
# A question has a few names and one text; a form, which strangers may send too, a key and a token.
_MOST_TEXTS = 64
_MOST_FORM_BYTES = 16_384


class Record:
    """Gives every request an id and every response its headers; logs one line; lets no exception out.

    >>> record = Record(None, log=None, metrics=Metrics(), is_tls=True)
    >>> record.headers["Strict-Transport-Security"]
    'max-age=31536000'
    """

    def __init__(self, app: ASGIApp, *, log: Any, metrics: Metrics, is_tls: bool) -> None:
        self.app, self.log, self.metrics = app, log, metrics
        self.headers = dict(HEADERS)
        if is_tls:
            self.headers["Strict-Transport-Security"] = "max-age=31536000"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
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


class Admit:
    """Lets nobody in without a key, except to the few paths that are open to everyone.

    >>> Admit(None, door=None, is_open=lambda path: path == "/v1/health").is_open("/v1/labels")
    False
    """

    def __init__(self, app: ASGIApp, *, door: Door, is_open: Callable[[str], bool]) -> None:
        self.app, self.door, self.is_open = app, door, is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and not self.is_open(scope["path"]):
            request = Request(scope)
            try:
                # The store is a database, and a first check of a key is slow on purpose.
                request.state.key = await run_in_threadpool(self.door.admit, request)
            except Problem as problem:
                await problem.response(scope["state"]["request_id"])(scope, receive, send)
                return
        await self.app(scope, receive, send)


class Limit:
    """Reads a body only as far as it may be read, and looks at its shape before anything parses it.

    >>> Limit(None, limits=LimitsConfig(max_batch=10), is_form=bool).limits.max_batch
    10
    """

    def __init__(self, app: ASGIApp, *, limits: LimitsConfig, is_form: Callable[[str], bool]) -> None:
        self.app, self.limits, self.is_form = app, limits, is_form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with all of its body, or refuse it."""
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                body = await self._read(scope, receive)
            if not self.is_form(scope["path"]):
                kind = Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()
                if body and kind != "application/json":
                    raise Problem("not-json", "Expected application/json, got another content type.")
                require_shallow(body, depth=self.limits.max_depth, n_lists=2 * self.limits.max_batch + 16)
        except TimeoutError:
            await self._refuse(Problem("too-slow", "The body was not there in time."), scope, receive, send)
            return
        except Problem as problem:
            await self._refuse(problem, scope, receive, send)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        response = problem.response(scope["state"]["request_id"])
        response.headers["Connection"] = "close"  # what was not read is not read any more
        await response(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        most = self.limits.max_body_bytes
        if self.is_form(scope["path"]):
            most = min(most, _MOST_FORM_BYTES)
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > most:
            raise Problem("too-large", f"Expected at most {most} bytes.")
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Problem("bad-request", "The connection was closed before all of the request came.")
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise Problem("too-large", f"Expected at most {most} bytes.")
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def require_shallow(body: bytes, *, depth: int, n_lists: int) -> None:
    """Refuse JSON with brackets nested deeper than anything here needs, or far more of them.

    >>> require_shallow(b'{"rows": [[1, 2]], "note": "[[[["}', depth=3, n_lists=10)
    >>> require_shallow(b"[" * 100, depth=8, n_lists=1000)
    Traceback (most recent call last):
        ...
    tellers.service.problems.Problem: 400: Expected brackets nested at most 8 deep.
    """
    if b"\0" in body:
        raise Problem("bad-request", "Expected JSON in UTF-8, got another encoding.")
    require_distinct(body)
    deep = seen = 0
    for mark in _BRACKET.finditer(_TEXT.sub(b"", body)):
        if mark[0] in b"[{":
            deep, seen = deep + 1, seen + 1
            if deep > depth:
                raise Problem("bad-request", f"Expected brackets nested at most {depth} deep.")
            if seen > n_lists:
                raise Problem("bad-request", f"Expected at most {n_lists} lists.")
        else:
            deep -= 1


def require_distinct(body: bytes) -> None:
    """Refuse JSON that says one name twice, where readers differ on which counts, or far too many of them.

    >>> require_distinct(b'{"pool": [0], "p\\\\u006fol": [1]}')
    Traceback (most recent call last):
        ...
    tellers.service.problems.Problem: 400: Expected every name once, got one twice.
    """
    names: list[str] = []
    for seen, text in enumerate(_TEXT.finditer(body), start=1):
        if seen > _MOST_TEXTS:
            raise Problem("bad-request", f"Expected at most {_MOST_TEXTS} texts.")
        if text[2] is not None:
            try:
                names.append(json.loads(text[1]))
            except ValueError:
                raise Problem("bad-request", "Expected JSON, got something else.") from None
    if len(set(names)) < len(names):
        raise Problem("bad-request", "Expected every name once, got one twice.")


def _failed(raised: Exception) -> Problem:
    if isinstance(raised, HTTPException):
        return as_problem(raised)
    if isinstance(raised, OSError):
        # A database that is away, frozen or busy, a disk that is full: it may be there again in a moment.
        words = "The books or the keys cannot be reached just now. What was charged stays charged."
        return Problem("unavailable", words, headers={"Retry-After": "5"})
    return Problem("internal", "The server could not answer. What was charged stays charged.")
