"""The API, version 1."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body, Depends, Query, Request, Response, Security
from fastapi.security import HTTPBearer

from ..errors import BudgetExhausted, KeyReused, LedgerConflict, Unsettled
from ..ledger import Entry
from ..release import describe
from .books import account_name
from .desk import Answered, Desk
from .keys import Key, Role
from .metrics import Metrics
from .models import (
    AccountAnswer,
    BudgetAnswer,
    ChargeAnswer,
    GroupAnswer,
    HealthAnswer,
    LabelsAnswer,
    ProblemAnswer,
    Question,
    ReleaseRecord,
    ReleasesAnswer,
    VerifyAnswer,
    question_model,
)
from .problems import KINDS, MEDIA_TYPE, Problem
from .teachers import NotAnswerable

_BEARER = HTTPBearer(auto_error=False, description="A key made by `tellers keys create`: tlr_...")
_MOST_RELEASES = 1000


def make_router(desk: Desk, metrics: Metrics, *, max_batch: int) -> APIRouter:
    """Return all routes of the API for one desk.

    >>> from tellers import Accountant, Budget, GNMax, MemoryLedger, noise
    >>> from tellers.service.teachers import Served
    >>> served = Served(None, GNMax(sigma=20.0), Budget(epsilon=1.0, delta=1e-5), "", 2, 250, n_pool=3)
    >>> desk = Desk(served, MemoryLedger(Accountant(served.budget)), noise.secure())
    >>> sorted(route.path for route in make_router(desk, Metrics(), max_batch=10).routes)[:3]
    ['/metrics', '/v1/budget', '/v1/health']
    """
    router = APIRouter()
    add_labels(router, desk, metrics, max_batch=max_batch)
    add_books(router, desk)
    add_watching(router, desk, metrics)
    return router


def role(*roles: Role) -> Callable[..., Key]:
    """Return a dependency that gives the key of a request, if it has one of these roles.

    >>> callable(role("student"))
    True
    """

    def allowed(request: Request, _scheme: Annotated[Any, Security(_BEARER)] = None) -> Key:
        key: Key = request.state.key
        if key.role not in roles:
            wanted = " or ".join(roles)
            raise Problem("wrong-role", f"Expected a key of role {wanted}, got one of role {key.role}.")
        return key

    return allowed


def problems(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return what the API's description says of the problems that a route may answer with.

    >>> sorted(problems("no-key", "key-reused", "unsettled"))
    [401, 409]
    """
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
_EVERYWHERE = ("bad-request", "no-key", "wrong-role", "too-many", "internal", "unavailable")


def add_labels(router: APIRouter, desk: Desk, metrics: Metrics, *, max_batch: int) -> None:
    """Add the one route that spends.

    >>> from tellers.service.routes import make_router  # which calls this, and shows how
    """
    model: Any = question_model(desk.served, max_batch=max_batch)

    @router.post(
        "/v1/labels",
        operation_id="ask",
        summary="Ask for labels",
        response_model=LabelsAnswer,
        responses=problems(
            *_EVERYWHERE,
            "budget-exhausted",
            "too-slow",
            "key-reused",
            "unsettled",
            "too-large",
            "not-json",
            "invalid",
        ),
    )
    def ask(
        question: Annotated[model, Body(openapi_examples=_examples(desk))],
        key: Annotated[Key, Depends(role("student"))],
    ) -> LabelsAnswer:
        """Ask the teachers for labels of a batch.

        The price is on the books before the teachers are asked. Asked again under the same idempotency key,
        the same question is answered as before and costs nothing, so it is always safe to try again.
        """
        try:
            answered = desk.ask(
                key.name, question.idempotency_key, rows=question.given("rows"), pool=question.given("pool"),
                belief=question.given("student"),
            )  # fmt: skip
        except BudgetExhausted as error:
            metrics.count_refused()
            raise _exhausted(desk, key.name, error) from None
        except NotAnswerable as error:
            raise Problem("invalid", str(error)) from None
        except Unsettled:
            detail = f"Idempotency key {question.idempotency_key} was charged and has no answer."
            raise Problem("unsettled", detail, headers={"Retry-After": "2"}) from None
        except KeyReused:  # any other conflict is with the books, and the operator's business
            detail = f"Idempotency key {question.idempotency_key} was used for another question before."
            raise Problem("key-reused", detail) from None
        except TimeoutError:
            detail = "The ledger is busy. Nothing was charged for a question that was not on the books."
            raise Problem("unavailable", detail, headers={"Retry-After": "2"}) from None
        return _labels(desk, question, answered, metrics)


def add_books(router: APIRouter, desk: Desk) -> None:
    """Add the routes that read the books.

    >>> from tellers.service.routes import make_router  # which calls this, and shows how
    """
    anyone = role("student", "operator", "auditor")

    @router.get("/v1/budget", operation_id="budget", summary="What is left", responses=problems(*_EVERYWHERE))
    def budget(key: Annotated[Key, Depends(anyone)]) -> BudgetAnswer:
        """Say how the budget of the data stands, and your own; operators and auditors see every account."""
        is_student, states = key.role == "student", desk.accounts()
        accounts = groups = None
        if not is_student:
            paying = desk.groups()
            accounts = {
                name: AccountAnswer.of(paying.get(name) or desk.stands(state))
                for name, state in states.items()
            }
            plan = desk.served.plan
            if plan is not None:
                groups = {
                    group.name: GroupAnswer(**asdict(paying[group.account]), n_persons=group.n_persons)
                    for group in plan.groups
                }
        own = desk.own(key.name) if is_student else None
        return BudgetAnswer(
            data=AccountAnswer.of(desk.standing()),
            own=None if own is None else AccountAnswer.of(own),
            accounts=accounts,
            groups=groups,
            mechanism=_mechanism(describe(desk.mechanism, desk.noise)),
            price=desk.price.epsilon(desk.served.budget.delta),
            relation=None if desk.served.relation is None else desk.served.relation.as_dict(),
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
        found = desk.releases(mine)
        end = after + limit
        return ReleasesAnswer(
            releases=[_record(desk, *one, own=mine is not None) for one in found[after:end]],
            total=len(found),
            next=end if end < len(found) else None,
        )

    @router.get(
        "/v1/ledger/verify", operation_id="verify", summary="Verify the ledger",
        responses=problems(*_EVERYWHERE),
    )  # fmt: skip
    def verify(_key: Annotated[Key, Depends(role("operator", "auditor"))]) -> VerifyAnswer:
        """Read the whole ledger again and check every hash."""
        check = getattr(desk.ledger, "verify", None)
        try:
            head = check() if check is not None else None
            return VerifyAnswer(intact=True, head=head, n_entries=len(desk.ledger.entries()))
        except LedgerConflict:
            words = "The chain of hashes is broken, or the file was changed. Restore it from a backup."
            return VerifyAnswer(intact=False, head=None, n_entries=0, detail=words)


def add_watching(router: APIRouter, desk: Desk, metrics: Metrics) -> None:
    """Add the routes for those who watch.

    >>> from tellers.service.routes import make_router  # which calls this, and shows how
    """

    @router.get("/v1/health", operation_id="health", summary="Is it there?")
    async def health() -> HealthAnswer:
        """Say that the service is there. It needs no key and says nothing else."""
        return HealthAnswer(status="ok")

    @router.get(
        "/metrics",
        operation_id="metrics",
        summary="Numbers for Prometheus",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
            **problems(*_EVERYWHERE),
        },
    )
    def numbers(_key: Annotated[Key, Depends(role("operator"))]) -> Response:
        """Return public numbers alone: requests, released outcomes, and how the budget stands."""
        text = metrics.text(desk.standing(), desk.groups())
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _labels(desk: Desk, question: Question, answered: Answered, metrics: Metrics) -> LabelsAnswer:
    release = answered.release
    silent = release.labels < 0
    if not answered.is_replay:
        metrics.count_labels(n_answered=int((~silent).sum()), n_silent=int(silent.sum()))
    return LabelsAnswer(
        idempotency_key=question.idempotency_key,
        labels=release.labels.tolist(),
        silent=silent.tolist(),
        by_teachers=np.asarray(release.answered).tolist(),
        values=None if release.values is None else release.values.tolist(),
        replayed=answered.is_replay,
        charge=ChargeAnswer(epsilon=answered.epsilon, delta=desk.served.budget.delta, n_queries=len(release)),
        left=AccountAnswer.of(answered.left),
        own=None if answered.own is None else AccountAnswer.of(answered.own),
    )


def _record(desk: Desk, number: int, student: str, key: str, entry: Entry, *, own: bool) -> ReleaseRecord:
    n_queries = int(entry.event.get("n_queries", 0))
    release = entry.release
    n_silent = 0 if release is None else int((release.labels < 0).sum())
    return ReleaseRecord(
        number=number,
        student=student or None,
        idempotency_key=key,
        n_queries=n_queries,
        n_answered=0 if release is None else len(release) - n_silent,
        n_silent=n_silent,
        settled=entry.is_settled,
        epsilon=entry.charged.epsilon(desk.served.budget.delta),
        mechanism=_mechanism(entry.event),
        labels=release.labels.tolist() if own and release is not None else None,
    )


def _mechanism(event: dict[str, Any]) -> dict[str, Any]:
    return {"name": event.get("mechanism"), **event.get("parameters", {})}


def _exhausted(desk: Desk, student: str, error: BudgetExhausted) -> Problem:
    """Say whose budget it is and what it would still pay for."""
    account = getattr(error, "account", None)
    own = desk.own(student) if account == account_name(student) else None
    left = own if own is not None else desk.standing()
    whose = "The budget of the data" if own is None else "Your own budget"
    # Which group it is, is for operators and auditors.
    why = ": a group of people in it has no more to give" if account and own is None else ""
    return Problem(
        "budget-exhausted",
        f"{whose} pays for {left.queries_left} more queries at this setting, not for these{why}.",
        account="data" if own is None else account,
        queries_left=left.queries_left,
        epsilon_left=left.epsilon_left,
    )


def _examples(desk: Desk) -> dict[str, Any]:
    served, key = desk.served, {"idempotency_key": "2026-03-01/batch-17"}
    told: dict[str, Any] = {}
    belief = {"student": [[1.0] + [0.0] * (served.n_classes - 1)]} if served.listens else {}
    if served.n_pool:
        told["pool"] = {"summary": "By id of the pool", "value": {**key, "pool": [0], **belief}}
    if served.n_features and served.ids is None and served.n_features <= 32:
        row = [0.5] * served.n_features
        told["rows"] = {"summary": "By the numbers of a row", "value": {**key, "rows": [row], **belief}}
    return told
