"""The FastAPI application: routes, middleware, ledger and keys of one service."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TextIO

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from .. import __version__
from ..errors import LedgerConflict
from ..privacy import noise
from . import _verifying
from ._keys import KeyStore
from ._labels import LabelService
from ._ledger import (
    open_anchors,
    open_groups,
    open_service_ledger,
    open_vault,
    require_no_rollback,
    wait_for_databases,
)
from ._logs import Metrics, describe_error, make_log
from ._middleware import Authenticator, BodyLimitMiddleware, KeyMiddleware, LogMiddleware
from ._problems import HttpProblem, as_problem
from ._routes import make_router
from ._teachers import open_served
from ._verifying import LedgerBroken, Verdict
from .dashboard._pages import add_dashboard, is_page
from .settings import ServiceSettings

_WORDS = """\
Labels for those who hold a key. Teachers vote in secret, only a noisy outcome leaves the room, and what it
cost is on the books before it is drawn. Silence (-1) is an outcome too, and is charged.

Errors are problem details (RFC 9457): `type` names the problem for good, `advice` says what to do."""
OPEN = ("/v1/health",)
_MOST_MISTAKES = 10
_SAID_EVERY = 5.0
_LONGEST_PLACE = 100


@dataclass(frozen=True, eq=False)
class Service:
    """What an application holds: `app.state.service`, for pages that are added to it."""

    settings: ServiceSettings
    labels: LabelService
    authenticator: Authenticator
    metrics: Metrics
    log: Any


def create_app(
    settings: ServiceSettings,
    *,
    log_stream: TextIO | None = None,
    wait: float = 0.0,
    waiting: Callable[[str, float], object] | None = None,
    trust_ledger: bool = False,
    secret: bytes = b"",
) -> FastAPI:
    """Return the service as an ASGI application; its ledger and its keys are opened now.

    Databases that do not answer are waited for, up to `wait` seconds each; `waiting`, or the log, is told.
    A ledger that does not hold what its witness saw is refused, unless it is trusted for this once. `secret`
    signs the sessions of the dashboard where several processes share them.

    Guarantee: no label leaves before its price is on the books, whoever asks at the same time.
    Assumes:   `settings` name teachers of one partition, and rows that are asked are public.
    Reference: Feldman and Zrnic 2021 (Rényi filters), by way of the ledger.

    >>> import tempfile
    >>> from tellers.accounting import Consensus
    >>> from tellers.runs import MechanismConfig
    >>> from tellers.service import LedgerConfig, ServedConfig
    >>> from tellers.teachers import save_votes
    >>> folder = tempfile.mkdtemp()
    >>> save_votes(f"{folder}/votes.npz", Consensus().votes(60, 10, n_queries=5, seed=7)[0])
    >>> app = create_app(ServiceSettings(
    ...     data=ServedConfig(source="votes", path="votes.npz", n_classes=10), folder=folder,
    ...     ledger=LedgerConfig(url="ledger.db", epsilon=1.0, delta=1e-5),
    ...     mechanism=MechanismConfig(name="gnmax", sigma=20.0),
    ... ))
    >>> app.state.service.labels.budget_status().epsilon
    1.0
    """
    log = make_log(settings.server.log_level, stream=log_stream)
    served = open_served(settings)
    if wait:
        wait_for_databases(settings, served.ledger, wait, say=waiting or _waiting(log))
    store = KeyStore(settings.place(settings.keys.store))
    terms = settings.ledger
    ledger = open_service_ledger(
        served.ledger, served.accountant, name=terms.name, timeout=float(terms.timeout_seconds),
        vault=open_vault(settings),
    )  # fmt: skip
    try:
        anchors = open_anchors(settings, store, ledger, served.ledger)
        require_no_rollback(anchors, store, is_trusted=trust_ledger)
        open_groups(settings, ledger, served.plan, delta=served.budget.delta)
    except BaseException:
        store.close()
        ledger.close()
        raise
    # Of an error its kind and place: its words may quote a cost.
    labels = LabelService(
        served, ledger, noise.secure(), lambda error: log.error("not in the vault", **describe_error(error)),
        _verified(log),
    )  # fmt: skip
    service = Service(settings, labels, Authenticator(store, settings.limits), Metrics(), log)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        left = labels.budget_status()
        log.info(
            "serving", source=settings.data.source, n_pool=served.n_pool, n_features=served.n_features,
            epsilon=left.epsilon, queries_left=left.queries_left,
            **({"rule": "clock", "share_left": left.share_left} if left.epsilon_spent is None
               else {"epsilon_spent": left.epsilon_spent}),
            n_groups=len(labels.groups()),
        )  # fmt: skip
        if ledger.newest.head.number >= _verifying.FEW:
            labels.check.start(persists=True)
        yield
        for anchor in anchors:
            with suppress(OSError, LedgerConflict):  # what is away now is looked at when the next one starts
                anchor.stop()
        store.close()
        labels.close()
        log.info("stopped")

    app = FastAPI(
        title="tellers", version=__version__, description=_WORDS, lifespan=lifespan, docs_url=None,
        redoc_url=None, openapi_url=None, redirect_slashes=False,
    )  # fmt: skip
    app.state.service = service
    app.include_router(
        make_router(labels, service.authenticator, service.metrics, max_batch=settings.limits.max_batch)
    )
    app.add_api_route("/v1/openapi.json", _describe, include_in_schema=False)
    add_dashboard(app, labels, service.authenticator, settings=settings, log=log, secret=secret)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(LedgerBroken, _broken)
    app.add_exception_handler(RequestValidationError, _invalid)
    # The last one added is the outermost.
    app.add_middleware(BodyLimitMiddleware, limits=settings.limits, is_form=is_page)
    app.add_middleware(
        KeyMiddleware, authenticator=service.authenticator, is_open=_is_open, is_admitted_later=_is_question
    )
    app.add_middleware(LogMiddleware, log=log, metrics=service.metrics, is_tls=settings.server.is_tls)
    return app


def _waiting(log: Any) -> Callable[[str, float], object]:
    last: dict[str, float] = {}

    def say(database: str, left: float) -> None:
        if last.get(database, left + _SAID_EVERY) - left >= _SAID_EVERY:
            last[database] = left
            log.warning("waiting for a database", database=database, seconds_left=round(left, 1))

    return say


def _is_question(request: Request) -> bool:
    return request.method == "POST" and request.url.path == "/v1/labels"


def _verified(log: Any) -> Callable[[Verdict], object]:
    def say(verdict: Verdict) -> None:
        if verdict.is_intact:
            log.info("ledger verified", intact=True, lines=verdict.n_lines)
        else:
            log.error("the ledger is broken: no labels are given", intact=False)

    return say


def _is_open(path: str) -> bool:
    # Pages have a sign-in of their own.
    return path in OPEN or is_page(path)


async def _describe(request: Request) -> JSONResponse:
    app: FastAPI = request.app
    return JSONResponse(describe_api(app))


def describe_api(app: FastAPI) -> dict[str, Any]:
    """Return the description of the API, in the words of OpenAPI."""
    if not app.openapi_schema:
        schema = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        for path in schema.get("paths", {}).values():
            for operation in path.values():
                # What FastAPI adds by itself is not what we answer with.
                for answer in operation["responses"].values():
                    content = answer.get("content", {})
                    if "application/problem+json" in content:
                        content.pop("application/json", None)
                told = operation["responses"].get("422")
                if told is not None and "application/problem+json" not in told.get("content", {}):
                    del operation["responses"]["422"]
        app.openapi_schema = schema
    return app.openapi_schema


async def _broken(request: Request, _error: Exception) -> Response:
    words = (
        "The ledger does not hold together: lines were changed or are missing. Nothing was charged. Only the "
        "operator can help, who restores it from a backup."
    )
    return HttpProblem("unavailable", words).response(request.state.request_id)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return as_problem(error).response(request.state.request_id)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    mistakes = error.errors()
    if any(mistake["type"] == "json_invalid" for mistake in mistakes):
        return HttpProblem("bad-request", "Expected JSON, got something else.").response(
            request.state.request_id
        )
    # Where and what, never what came: it may be large, or somebody's data.
    told = [
        {"where": ".".join(map(str, mistake["loc"][1:]))[:_LONGEST_PLACE] or "body", "what": mistake["msg"]}
        for mistake in mistakes[:_MOST_MISTAKES]
    ]
    detail = f"{len(mistakes)} things are wrong with it, the first: {told[0]['where']}: {told[0]['what']}."
    if len(mistakes) == 1:
        detail = f"{told[0]['where']}: {told[0]['what']}."
    return HttpProblem("invalid", detail, mistakes=told).response(request.state.request_id)
