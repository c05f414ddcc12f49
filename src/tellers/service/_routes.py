"""The HTTP API, version 1: strict pydantic models of requests and answers, and the routes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body, Depends, Query, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model, model_validator
from starlette.types import Receive, Scope, Send

from ..errors import BudgetExhausted, KeyReused, Unsettled, Unwitnessed
from ..ledger._state import View
from ..ledger.base import Entry, Unusable
from ..privacy._price import epsilon_of
from ..privacy.release import Release, describe
from ._batches import Batches
from ._keys import Key, Role
from ._labels import LabelService, StudentQuestion, silent_queries
from ._ledger import AccountAnswer, account_name
from ._logs import Metrics
from ._middleware import Authenticator
from ._problems import KINDS, MEDIA_TYPE, HttpProblem
from ._teachers import NotAnswerable, Served

# --- Models ---

KEY_PATTERN = r"^[!-~]+$"
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


class LabelRequest(BaseModel):
    """A question. Which others of its fields there are depends on what is served."""

    model_config = _STRICT

    idempotency_key: Annotated[
        str,
        Field(
            min_length=1, max_length=200, pattern=KEY_PATTERN,
            description="Names this question. Asked again under the same key it is answered as before and "
            "costs nothing; keys of other students are other keys.",
            examples=["2026-03-01/batch-17"],
        ),
    ]  # fmt: skip

    def given(self, name: str) -> Any:
        """Return a field, or None where it was not given or does not exist here."""
        return getattr(self, name, None)


class _OneOf(LabelRequest):
    @model_validator(mode="after")
    def _one_of_both(self) -> "_OneOf":
        if (self.given("rows") is None) == (self.given("pool") is None):
            raise ValueError("Expected either rows or pool.")
        return self


def question_model(served: Served, *, max_batch: int) -> type[LabelRequest]:
    """Return the model of questions that can be asked here: its limits are in the API's description."""
    both = bool(served.n_pool and served.n_features)
    fields: dict[str, Any] = {}
    if served.n_features:
        limits = Field(min_length=served.n_features, max_length=served.n_features, fail_fast=True)
        row = Annotated[list[float], limits]
        known = " Rows of the pool only: teachers vote on no others." if served.ids is not None else ""
        fields["rows"] = _many(row, f"Rows of {served.n_features} numbers.{known}", max_batch, optional=both)
    if served.n_pool:
        number = Annotated[int, Field(ge=0, le=served.n_pool - 1)]
        words = f"Ids of rows of the pool, 0 to {served.n_pool - 1}."
        fields["pool"] = _many(number, words, max_batch, optional=both)
    if served.listens:
        chance = Annotated[float, Field(ge=0, le=1)]
        limits = Field(min_length=served.n_classes, max_length=served.n_classes, fail_fast=True)
        words = "What the student thinks: probabilities of the classes, one row per query, that sum to 1."
        fields["student"] = _many(Annotated[list[chance], limits], words, max_batch, optional=False)
    base = _OneOf if both else LabelRequest
    made: type[LabelRequest] = create_model("LabelsRequest", __base__=base, __doc__="A question.", **fields)
    if both:
        made.model_config["json_schema_extra"] = {"oneOf": [{"required": ["rows"]}, {"required": ["pool"]}]}
        made.model_rebuild(force=True)
    return made


def _many(kind: Any, words: str, most: int, *, optional: bool) -> Any:
    # A default that is no list of these: null itself is refused.
    hidden = {"json_schema_extra": lambda schema: schema.pop("default", None)} if optional else {}
    # The first mistake is enough: a million of them would take seconds, and a gigabyte, to be told.
    limits = Field(  # type: ignore[call-overload]
        min_length=1, max_length=most, fail_fast=True, description=words, **hidden
    )
    return (Annotated[list[kind], limits], None if optional else ...)


class ChargeAnswer(BaseModel):
    """What a question cost, by itself, at the data's delta."""

    epsilon: float = Field(description="Of the price that was charged; it holds whatever the votes were.")
    delta: float
    n_queries: int


class LabelsAnswer(BaseModel):
    """Labels, and what they cost."""

    idempotency_key: str
    labels: list[int] = Field(
        description="A class for each query, -1 where it was not answered.", examples=[[3, -1]]
    )
    silent: list[bool] = Field(description="Which queries were not answered. Silence is charged too.")
    by_teachers: list[bool] = Field(description="Which labels the teachers gave, and not the student.")
    values: list[list[int]] | None = Field(
        default=None, description="Noisy counts, where those are released."
    )
    replayed: bool = Field(description="Whether this was on record, and cost nothing this time.")
    charge: ChargeAnswer
    left: AccountAnswer = Field(description="What is left of the data's budget.")
    own: AccountAnswer | None = Field(
        default=None, description="What is left of your own budget, where you have one."
    )


def answer_model(served: Served) -> type[LabelsAnswer]:
    """Return the model of answers that are given here: a class for each query, or a row of labels."""
    if not served.n_labels:
        return LabelsAnswer
    words = f"For each query {served.n_labels} numbers, one per label: 1 yes, 0 no, -1 where it was not told."
    fields: dict[str, Any] = {
        "labels": (list[list[int]], Field(description=words, examples=[[[1, 0, -1]]])),
        "silent": (list[list[bool]], Field(description="Which were not told. Silence is charged too.")),
        "by_teachers": (list[list[bool]], Field(description="Which labels the teachers gave.")),
        "names": (list[str], Field(description="The labels by name, where they are known.")),
    }
    made: type[LabelsAnswer] = create_model(
        "LabelsAnswer", __base__=LabelsAnswer, __doc__="Rows of labels, and what they cost.", **fields
    )
    return made


class GroupAnswer(AccountAnswer):
    """How the account of a group of people stands; budgets and numbers of people are public by design."""

    n_persons: int = Field(description="How many people agreed to this budget.", examples=[120])


class BudgetAnswer(BaseModel):
    """How the budgets stand."""

    data: AccountAnswer = Field(description="The budget of the data: all that may ever be learned from it.")
    own: AccountAnswer | None = Field(default=None, description="Your own budget, where you have one.")
    accounts: dict[str, AccountAnswer] | None = Field(
        default=None, description="All named accounts, for operators."
    )
    groups: dict[str, GroupAnswer] | None = Field(
        default=None,
        description="Groups of people with budgets of their own, by name, for operators and auditors.",
    )
    mechanism: dict[str, Any] = Field(
        description="The present setting.", examples=[{"name": "GNMax", "sigma": 40.0}]
    )
    price: float = Field(default=0.0, description="The epsilon of one query by itself, at the data's delta.")
    relation: dict[str, Any] | None = Field(
        default=None,
        description="Whom the budget protects: what one unit is, how it may change, what is public too. "
        "Null where votes or teachers are served without the run they come from: then it is one ballot.",
        examples=[{"unit": "person", "change": "add or remove"}],
    )


class ReleaseRecord(BaseModel):
    """One question on the books."""

    number: int = Field(description="Its place among those this key may see, from 0.")
    student: str | None = Field(
        default=None, description="Who asked; none for what a run of the operator's asked."
    )
    idempotency_key: str
    n_queries: int
    n_answered: int
    n_silent: int
    settled: bool = Field(description="False: charged without an answer, in progress or interrupted.")
    epsilon: float = Field(description="What it is charged by itself, at the data's delta.")
    mechanism: dict[str, Any]
    labels: list[int] | list[list[int]] | None = Field(default=None, description="Your own labels.")


class ReleasesAnswer(BaseModel):
    """Some of the questions on the books, oldest first."""

    releases: list[ReleaseRecord]
    total: int = Field(description="How many there are, of those this key may see.")
    next: int | None = Field(description="What to send as `after` for those that follow; null at the end.")


class VerifyAnswer(BaseModel):
    """Whether the chain of hashes of the ledger holds together."""

    intact: bool | None = Field(
        description="Null while it is being verified, which takes minutes where it is long: ask again."
    )
    head: str | None = Field(description="The last hash: note it elsewhere, and compare.")
    n_entries: int = Field(description="How many questions were verified.")
    n_checked: int = Field(default=0, description="How many lines are checked.")
    n_lines: int = Field(default=0, description="Of how many.")
    since: datetime | None = Field(
        default=None, description="When the reading of all lines began; what is newer was read after it."
    )
    detail: str | None = Field(default=None, description="What is wrong, or what is missing yet.")


class HealthAnswer(BaseModel):
    """That the service is there."""

    status: str = Field(examples=["ok"])


class ProblemAnswer(BaseModel):
    """What is wrong and what to do (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:tellers:problem:budget-exhausted"])
    title: str
    status: int
    detail: str
    advice: str = Field(description="What to do.")
    request_id: str | None = None


# --- Routes ---

_BEARER = HTTPBearer(auto_error=False, description="A key made by `tellers keys create`: tlr_...")
_MOST_RELEASES = 1000
_VERIFY_SECONDS = 5.0


def make_router(
    service: LabelService, authenticator: Authenticator, metrics: Metrics, *, max_batch: int
) -> APIRouter:
    router = APIRouter()
    add_label_route(router, service, authenticator, metrics, max_batch=max_batch)
    add_ledger_routes(router, service)
    add_monitoring_routes(router, service, metrics)
    return router


def role(*roles: Role) -> Callable[..., Awaitable[Key]]:
    """Return a dependency that gives the key of a request, if it has one of these roles."""

    async def allowed(request: Request, _scheme: Annotated[Any, Security(_BEARER)] = None) -> Key:
        key: Key = request.state.key
        if key.role not in roles:
            raise wrong_role(key, *roles)
        return key

    return allowed


def wrong_role(key: Key, *roles: Role) -> HttpProblem:
    wanted = " or ".join(roles)
    return HttpProblem("wrong-role", f"Expected a key of role {wanted}, got one of role {key.role}.")


def problems(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return what the API's description says of the problems that a route may answer with."""
    told: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        status, title, _ = KINDS[kind]
        words = f"{told[status]['description']}; {title}" if status in told else title
        schema = {"$ref": "#/components/schemas/ProblemAnswer"}
        told[status] = {"description": words, "content": {MEDIA_TYPE: {"schema": schema}}}
    # One of them names the model, so that it is among the components.
    if 401 in told:
        told[401]["model"] = ProblemAnswer
    return told


_PLAIN = {"content": {"text/plain": {"schema": {"type": "string"}}}}
_WHERE_BUDGET_IS_SPENT = (
    "budget-exhausted", "too-slow", "key-reused", "unsettled", "too-large", "not-json", "invalid"
)  # fmt: skip
_EVERYWHERE = ("bad-request", "no-key", "wrong-role", "too-many", "internal", "unavailable")


def add_label_route(
    router: APIRouter,
    service: LabelService,
    authenticator: Authenticator,
    metrics: Metrics,
    *,
    max_batch: int,
) -> None:
    model: Any = question_model(service.served, max_batch=max_batch)
    shape = answer_model(service.served)

    delta, names = service.served.budget.delta, list(service.served.label_names)
    named = {"names": names} if service.served.n_labels else {}

    class LabelRoute(APIRoute):
        """Answers without what FastAPI works out for each request anew: it is most of what one costs."""

        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["method"] not in (self.methods or ()):
                await super().handle(scope, receive, send)
                return
            request = Request(scope, receive)
            is_uncounted = scope["state"].get("is_uncounted", False)
            key = scope["state"]["key_id"] if is_uncounted else await asker(request)
            question = _question(model, await request.body())
            scope["state"].pop("is_uncounted", None)  # it is admitted with the question
            try:
                response = await ask(question, key)
            except HttpProblem as problem:
                if problem.kind == "no-key":  # it was revoked since it was last looked at
                    scope["state"].pop("key_id", None)
                raise
            await response(scope, receive, send)

    asker = role("student")
    router.route_class = LabelRoute

    @router.post(
        "/v1/labels",
        operation_id="ask",
        summary="Ask for labels",
        response_model=shape,
        responses=problems(*_EVERYWHERE, *_WHERE_BUDGET_IS_SPENT),
    )
    async def ask(
        question: Annotated[model, Body(openapi_examples=_examples(service))],
        key: Annotated[Key, Depends(asker)],
    ) -> Response:
        """Ask the teachers for labels of a batch.

        The price is on the books before the teachers are asked. Asked again under the same idempotency key,
        the same question is answered as before and costs nothing, so it is always safe to try again.
        """
        return Response(await asking(question, key), media_type="application/json")

    router.route_class = APIRoute

    # Where teachers take their time, each question has a thread; votes are looked up, all that wait together.
    batches: Batches[tuple[Any, Key | str], bytes] = Batches(lambda asked: answered(asked))
    service.closing.append(batches.close)

    async def asking(question: Any, key: Key | str) -> bytes:
        if service.served.is_quick:
            return await batches.wait_for((question, key))
        return await in_thread(lambda: _the_one(answered([(question, key)])))

    def answered(asked: Sequence[tuple[Any, Key | str]]) -> list[bytes | Exception]:
        found: list[bytes | Exception] = []
        able: list[tuple[int, str]] = []
        questions: list[StudentQuestion] = []
        for (question, _), key in zip(asked, authenticator.admit_all([key for _, key in asked]), strict=True):
            if isinstance(key, Key) and key.role == "student":
                able.append((len(found), key.name))
                given = [question.given(name) for name in ("rows", "pool", "student")]
                questions.append(StudentQuestion(key.name, question.idempotency_key, *given))
            found.append(wrong_role(key, "student") if isinstance(key, Key) else key)
        outcomes = service.ask_all(questions)
        # What was written just now is in what this program saw last.
        is_new = not any(isinstance(one, Exception) or one[1] for one in outcomes)
        view = service.ledger.newest if is_new else service.ledger.view()
        left = service.budget_status(view)
        for (at, student), outcome in zip(able, outcomes, strict=True):
            key = asked[at][0].idempotency_key
            if isinstance(outcome, Exception):
                found[at] = _as_told(service, metrics, student, key, outcome)
            else:
                found[at] = answer(key, student, *outcome, view=view, left=left)
        return found

    def answer(
        key: str, student: str, release: Release, is_replay: bool, *, view: View, left: AccountAnswer
    ) -> bytes:
        if not is_replay:
            n_silent = int((release.labels < 0).sum())
            metrics.count_labels(n_answered=release.labels.size - n_silent, n_silent=n_silent)
        told = shape(
            idempotency_key=key,
            labels=release.labels.tolist(),
            silent=(release.labels < 0).tolist(),
            by_teachers=np.asarray(release.answered).tolist(),
            values=None if release.values is None else release.values.tolist(),
            replayed=is_replay,
            charge=ChargeAnswer(
                epsilon=epsilon_of(release.cost.worst, delta), delta=delta, n_queries=len(release)
            ),
            left=left,
            own=service.own(student, view),
            **named,
        )
        return told.model_dump_json().encode()


def _as_told(service: LabelService, metrics: Metrics, student: str, key: str, error: Exception) -> Exception:
    """Return what a student is told of a question that was not answered; other errors are the operator's."""
    soon = {"Retry-After": "2"}
    match error:
        case BudgetExhausted():
            metrics.count_refused()
            return _exhausted(service, student, error)
        case NotAnswerable():
            return HttpProblem("invalid", str(error))
        case Unsettled():
            detail = f"Idempotency key {key} was charged and has no answer."
            return HttpProblem("unsettled", detail, headers=soon)
        case KeyReused():  # any other conflict is with the books, and the operator's business
            detail = f"Idempotency key {key} was used for another question before."
            return HttpProblem("key-reused", detail)
        case Unwitnessed():
            detail = (
                "The witness of the ledger does not answer. What is on the books is told once it knows of "
                "it, under the same idempotency key; nothing else is charged meanwhile."
            )
            return HttpProblem("unavailable", detail, headers=soon)
        case TimeoutError():
            detail = "The ledger is busy. Nothing was charged for a question that was not on the books."
            return HttpProblem("unavailable", detail, headers=soon)
    return error


def _the_one(found: Sequence[bytes | Exception]) -> bytes:
    (one,) = found
    if isinstance(one, Exception):
        raise one
    return one


def _question(model: type[LabelRequest], body: bytes) -> LabelRequest:
    if not body:
        raise RequestValidationError([{"type": "missing", "loc": ("body",), "msg": "Field required"}])
    try:
        try:
            return model.model_validate_json(body)
        except ValidationError as error:
            if error.errors()[0]["type"] != "json_invalid":
                raise
            # Half a character, say, is JSON to others, and then no key.
            try:
                value = json.loads(body)
            except (ValueError, RecursionError):
                raise error from None
            return model.model_validate(value)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_context=False, include_input=False)
        raise RequestValidationError(
            [{**mistake, "loc": ("body", *mistake["loc"])} for mistake in mistakes]
        ) from None


_ASKING = ThreadPoolExecutor(64, thread_name_prefix="asking")


async def in_thread(act: Callable[..., bytes], *given: Any) -> bytes:
    """Wait for something in a thread for questions alone, which no other request holds up."""
    return await asyncio.get_running_loop().run_in_executor(_ASKING, act, *given)


def add_ledger_routes(router: APIRouter, service: LabelService) -> None:
    anyone = role("student", "operator", "auditor")

    @router.get("/v1/budget", operation_id="budget", summary="What is left", responses=problems(*_EVERYWHERE))
    def budget(key: Annotated[Key, Depends(anyone)]) -> BudgetAnswer:
        """Say how the budget of the data stands, and your own; operators and auditors see every account."""
        is_student, view = key.role == "student", service.ledger.view()
        accounts = groups = None
        if not is_student:
            paying = service.groups(view)
            accounts = {
                name: paying.get(name) or service.account_status(sums.state)
                for name, sums in view.sums.items()
                if name is not None
            }
            plan = service.served.plan
            if plan is not None:
                groups = {
                    group.name: GroupAnswer(**dict(paying[group.account]), n_persons=group.n_persons)
                    for group in plan.groups
                }
        return BudgetAnswer(
            data=service.budget_status(view),
            own=service.own(key.name, view) if is_student else None,
            accounts=accounts,
            groups=groups,
            mechanism=_mechanism(describe(service.mechanism, service.noise)),
            price=service.price.epsilon(service.served.budget.delta),
            relation=None if service.served.relation is None else service.served.relation.as_dict(),
        )

    @router.get(
        "/v1/releases", operation_id="releases", summary="What was asked",
        responses=problems(*_EVERYWHERE, "invalid"),
    )  # fmt: skip
    def releases(
        key: Annotated[Key, Depends(anyone)],
        limit: Annotated[int, Query(ge=1, le=_MOST_RELEASES, description="At most so many.")] = 100,
        after: Annotated[int, Query(ge=0, le=2**53, description="Leave out so many at the beginning.")] = 0,
    ) -> ReleasesAnswer:
        """List questions, oldest first: your own, with labels; operators and auditors see all, without."""
        mine = key.name if key.role == "student" else None
        found, total = service.releases(mine, after=after, limit=limit)
        end = after + len(found)
        return ReleasesAnswer(
            releases=[_record(service, *one, own=mine is not None) for one in found],
            total=total,
            next=end if found and end < total else None,
        )

    @router.get(
        "/v1/ledger/verify", operation_id="verify", summary="Verify the ledger",
        responses=problems(*_EVERYWHERE),
    )  # fmt: skip
    async def verify(_key: Annotated[Key, Depends(role("operator", "auditor"))]) -> VerifyAnswer:
        """Read the whole ledger and check every hash, beside those who ask for labels.

        What takes longer than some seconds goes on by itself, and the next request tells more. Of a long
        ledger all lines are read once an hour at most, and else those that are new.
        """
        try:
            found = await service.check.wait(_VERIFY_SECONDS)
        except Unusable as error:
            raise HttpProblem("unavailable", str(error)) from error
        if found is None:
            checked, lines = service.check.progress or (0, 0)
            words = f"{checked} of {lines} lines are checked so far. It goes on: ask again."
            return VerifyAnswer(
                intact=None, head=None, n_entries=0, n_checked=checked, n_lines=lines, detail=words
            )
        if not found.is_intact:
            words = "The chain of hashes is broken, or the file was changed. Restore it from a backup."
            return VerifyAnswer(intact=False, head=None, n_entries=0, detail=words)
        return VerifyAnswer(
            intact=True, head=found.head, n_entries=found.n_entries, n_checked=found.n_lines,
            n_lines=found.n_lines, since=found.since,
        )  # fmt: skip


def add_monitoring_routes(router: APIRouter, service: LabelService, metrics: Metrics) -> None:
    @router.get("/v1/health", operation_id="health", summary="Is it there?")
    async def health() -> HealthAnswer:
        """Say that the service is there. It needs no key and says nothing else."""
        return HealthAnswer(status="ok")

    @router.get(
        "/metrics",
        operation_id="metrics",
        summary="Numbers for Prometheus",
        response_class=Response,
        responses={200: _PLAIN, **problems(*_EVERYWHERE)},
    )
    def numbers(_key: Annotated[Key, Depends(role("operator"))]) -> Response:
        """Return public numbers alone: requests, released outcomes, and how the budget stands."""
        text = metrics.text(service.budget_status(), service.groups())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _record(
    service: LabelService, number: int, student: str, key: str, entry: Entry, *, own: bool
) -> ReleaseRecord:
    n_queries = int(entry.event.get("n_queries", 0))
    release = entry.release
    n_silent = 0 if release is None else int(silent_queries(release).sum())
    return ReleaseRecord(
        number=number,
        student=student or None,
        idempotency_key=key,
        n_queries=n_queries,
        n_answered=0 if release is None else len(release) - n_silent,
        n_silent=n_silent,
        settled=entry.is_settled,
        epsilon=epsilon_of(entry.charged, service.served.budget.delta),
        mechanism=_mechanism(entry.event),
        labels=release.labels.tolist() if own and release is not None else None,
    )


def _mechanism(event: dict[str, Any]) -> dict[str, Any]:
    return {"name": event.get("mechanism"), **event.get("parameters", {})}


def _exhausted(service: LabelService, student: str, error: BudgetExhausted) -> HttpProblem:
    """Say whose budget it is and what it would still pay for."""
    account = getattr(error, "account", None)
    own = service.own(student) if account == account_name(student) else None
    left = own if own is not None else service.budget_status()
    whose = "The budget of the data" if own is None else "Your own budget"
    # Which group it is, is for operators and auditors.
    why = ": a group of people in it has no more to give" if account and own is None else ""
    return HttpProblem(
        "budget-exhausted",
        f"{whose} pays for {left.queries_left} more queries at this setting, not for these{why}.",
        account="data" if own is None else account,
        queries_left=left.queries_left,
        epsilon_left=left.epsilon_left,
    )


def _examples(service: LabelService) -> dict[str, Any]:
    served, key = service.served, {"idempotency_key": "2026-03-01/batch-17"}
    told: dict[str, Any] = {}
    belief = {"student": [[1.0] + [0.0] * (served.n_classes - 1)]} if served.listens else {}
    if served.n_pool:
        told["pool"] = {"summary": "By id of the pool", "value": {**key, "pool": [0], **belief}}
    if served.n_features and served.ids is None and served.n_features <= 32:
        row = [0.5] * served.n_features
        told["rows"] = {"summary": "By the numbers of a row", "value": {**key, "rows": [row], **belief}}
    return told
