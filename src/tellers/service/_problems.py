"""Error responses: problem details (RFC 9457) that say what to do, and no more.

A detail is written here, for whoever asked. What an exception says inside may quote rows or votes and never
leaves.
"""

import json
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"

# A short name each, its status, a title, and what to do. The names are permanent, titles may be reworded.
KINDS: dict[str, tuple[int, str, str]] = {
    "bad-request": (400, "The request cannot be read", "Send the JSON that /v1/openapi.json describes."),
    "no-key": (401, "A valid key is needed", "Send the header Authorization: Bearer tlr_..., with your key."),
    "budget-exhausted": (
        402, "The budget does not pay for this",
        "Nothing was charged. Ask for fewer labels, or speak to the operator.",
    ),
    "wrong-role": (403, "This key may not do that", "Use a key of another role."),
    "not-found": (404, "There is nothing here", "See /v1/openapi.json for what there is."),
    "wrong-method": (405, "This cannot be done here", "See /v1/openapi.json for what can be done."),
    "too-slow": (408, "The request did not come in time", "Send it again, in smaller batches."),
    "key-reused": (
        409, "The idempotency key was used for another question",
        "Nothing was charged. Take a new idempotency key for a new question.",
    ),
    "unsettled": (
        409, "The question was charged and has no answer",
        "It is being answered now, or the server was stopped while it was. Try the same key again in a "
        "moment; if this stays, its answer is lost and its charge stands: a new key is a new question.",
    ),
    "too-large": (413, "The request is too large", "Ask in smaller batches."),
    "not-json": (415, "The request is not JSON", "Send the header Content-Type: application/json."),
    "invalid": (422, "The request says what cannot be", "Nothing was charged. Correct it, and ask again."),
    "too-many": (429, "Too many requests", "Wait as long as Retry-After says."),
    "internal": (
        500, "Something went wrong here",
        "Try again with the same idempotency key; tell the operator the request id if it stays.",
    ),
    "unavailable": (503, "Not now", "Try again with the same idempotency key."),
}  # fmt: skip
_BY_STATUS = {400: "bad-request", 404: "not-found", 405: "wrong-method"}


class HttpProblem(HTTPException):
    """An answer that says what is wrong: one of the kinds above, with a detail of its own."""

    def __init__(
        self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        self.kind, self.more = kind, more
        super().__init__(KINDS[kind][0], detail, headers=dict(headers or {}))

    def response(self, request_id: str = "") -> Response:
        status, title, advice = KINDS[self.kind]
        body = {
            "type": f"urn:tellers:problem:{self.kind}", "title": title, "status": status,
            "detail": self.detail, "advice": advice, **self.more,
        }  # fmt: skip
        if request_id:
            body["request_id"] = request_id
        return Response(json.dumps(body), status, headers=self.headers, media_type=MEDIA_TYPE)


def as_problem(error: HTTPException) -> HttpProblem:
    """Return the problem that an error of the framework stands for; its own words stay inside."""
    if isinstance(error, HttpProblem):
        return error
    kind = _BY_STATUS.get(error.status_code, "bad-request" if error.status_code < 500 else "internal")
    return HttpProblem(kind, KINDS[kind][1] + ".", headers=error.headers)
