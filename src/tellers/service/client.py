"""The client of a labelling service: retries reuse the idempotency key, so nothing is paid for twice."""

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import SplitResult, urlsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import BudgetExhausted, KeyReused, MissingExtra, TellersError, Unsettled, require_positive

if TYPE_CHECKING:
    import ssl

    import httpx


_AGAIN = (408, 429, 500, 502, 503, 504)
_LONGEST_WAIT = 30.0


class ServiceError(TellersError):
    """A service refused, or could not be reached; `status` is 0 where no answer came.

    `problem` is what the service said of it, as a dict.
    """

    def __init__(self, message: str, *, status: int = 0, problem: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status, self.problem = status, problem or {}


@dataclass(frozen=True)
class Left:
    """What an account still pays for; on a clock (`rule`) no epsilon is spent, and `share_left` says it."""

    epsilon: float
    delta: float
    epsilon_spent: float | None
    epsilon_left: float | None
    queries_left: int
    rule: str = "renyi"
    share_left: float | None = None
    stated: float | None = None


@dataclass(frozen=True, eq=False)
class LabelAnswer:
    """What a service answered: labels as in a release, what they cost, and what is left.

    Of many labels there is a row of them for each query, 1, 0 or -1 (silence); `names` are theirs, in order,
    where the service knows them.
    """

    key: str
    labels: NDArray[np.int64]
    by_teachers: NDArray[np.bool_]
    epsilon: float
    delta: float
    left: Left
    own: Left | None = None
    values: NDArray[np.int64] | None = None
    replayed: bool = False
    names: tuple[str, ...] = ()

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Return which labels the teachers gave."""
        return self.by_teachers

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(eq=False)
class Client:
    """A student's way to a service.

    Connections that break, 429 and 5xx are tried again, `retries` times, each time under the same
    idempotency key: a question that was answered is answered the same way, and charged once. `verify` is
    False, a path or an SSL context for certificates of one's own; `transport` is for tests.

    >>> client = Client("http://127.0.0.1:1", "tlr_abcdefghijkl_" + "s" * 43, retries=0, timeout=1.0)
    >>> client
    Client(url='http://127.0.0.1:1', timeout=1.0, retries=0)
    >>> client.ask(pool=[0])
    Traceback (most recent call last):
        ...
    tellers.service.client.ServiceError: No answer from http://127.0.0.1:1 (ConnectError). Is the ...
    >>> client.close()
    >>> import httpx
    >>> said = {"own": None, "releases": [], "next": None}
    >>> service = httpx.MockTransport(lambda request: httpx.Response(200, json=said))
    >>> client = Client("https://labels.example.org", "tlr_...", transport=service)
    >>> client.budget()["own"], client.releases()
    (None, [])
    >>> Client("http://labels.example.org", "tlr_...")
    Traceback (most recent call last):
        ...
    ValueError: Expected https:// for labels.example.org, got http://, where everyone may read the key. ...
    """

    url: str
    key: str = field(repr=False)
    verify: "bool | str | ssl.SSLContext" = field(default=True, repr=False, kw_only=True)
    timeout: float = field(default=60.0, kw_only=True)
    retries: int = field(default=4, kw_only=True)
    allow_plain: bool = field(default=False, repr=False, kw_only=True)
    transport: "httpx.BaseTransport | None" = field(default=None, repr=False, kw_only=True)
    sleep: Callable[[float], object] = field(default=time.sleep, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        try:
            import httpx
        except ModuleNotFoundError as error:
            raise MissingExtra("The client needs httpx: pip install 'tellers[service]'") from error
        require_positive(timeout=self.timeout)
        parts = _parts(self.url)
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme == "http" and not local and not self.allow_plain:
            raise ValueError(
                f"Expected https:// for {parts.hostname}, got http://, where everyone may read the key. Only "
                "with allow_plain=True."
            )
        if not self.key.isascii() or not self.key.isprintable() or " " in self.key or not self.key:
            raise ValueError("Expected a key as `tellers keys create` shows it, got something else.")
        self._http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=self.timeout,
            verify=self.verify, transport=self.transport, follow_redirects=False,
            # What is not encrypted goes there itself, and not by way of a proxy that reads the key.
            trust_env=parts.scheme == "https",
        )  # fmt: skip

    def ask(
        self,
        rows: ArrayLike | None = None,
        *,
        pool: Sequence[int] | NDArray[np.integer[Any]] | None = None,
        key: str | None = None,
        student: ArrayLike | None = None,
    ) -> LabelAnswer:
        """Ask for labels of rows, or of rows of the service's pool by their ids.

        `key` names the question: choose it yourself, and a program that died and is started again gets the
        answer it has paid for. Without one a random key is made for this call. `student` are the student's
        probabilities, where the service's mechanism listens to them.
        """
        if (rows is None) == (pool is None):
            raise TypeError("Expected either rows or pool.")
        name = secrets.token_hex(16) if key is None else key
        question: dict[str, Any] = {"idempotency_key": name}
        if rows is not None:
            question["rows"] = _table("rows", rows)
        else:
            question["pool"] = np.asarray(pool).tolist()
        if student is not None:
            question["student"] = _table("student", student)
        said = self._call("POST", "/v1/labels", json=question)
        try:
            answer = _answer(name, said)
        except (KeyError, TypeError, ValueError, OverflowError):
            answer = None
        n = len(question.get("rows", question.get("pool", ())))
        if answer is None or not len(answer.labels) == len(answer.by_teachers) == n:
            raise ServiceError(
                f"Expected labels for {n} queries, got something else. Is the address right? Asked again "
                f"under the same key, {name}, nothing is charged twice.",
                status=200,
            )
        return answer

    def budget(self) -> dict[str, Any]:
        """Return how the budgets stand, as the service says it."""
        return self._call("GET", "/v1/budget")

    def releases(self) -> list[dict[str, Any]]:
        """Return all questions on record that this key may see, oldest first."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self._call("GET", "/v1/releases", params={"after": after, "limit": 1000})
            found += page["releases"]
            after = page["next"]
        return found

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def _call(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        import httpx

        for attempt in range(self.retries + 1):
            is_last = attempt == self.retries
            try:
                response = self._http.request(method, path, **given)
            except httpx.RequestError as error:
                if (reason := _mistrust(error)) is not None:
                    raise ServiceError(
                        f"The certificate of {self.url} is not trusted ({reason}). No key was sent. Is it of "
                        "the operator's own making? Then get it from the operator, and name it: tellers ask "
                        "--ca FILE, or verify= in Python."
                    ) from error
                if is_last:
                    raise ServiceError(
                        f"No answer from {self.url} ({type(error).__name__}). Is the address right, and is "
                        "the service running? Asked again under the same key, nothing is charged twice."
                    ) from error
                self.sleep(_wait(attempt))
                continue
            said = _said(response)
            if response.status_code == 200 and said is not None:
                return said
            if response.status_code not in _AGAIN or is_last:
                raise _refusal(response.status_code, said)
            self.sleep(_wait(attempt, response.headers.get("Retry-After", "")))
        raise AssertionError("the last attempt returns or raises")


def _mistrust(error: BaseException | None) -> str | None:
    """Return why a certificate was not trusted, where that is what an error comes from."""
    import ssl

    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return None if error is None else error.verify_message.rstrip(".")


def _parts(url: str) -> SplitResult:
    with suppress(ValueError):
        parts = urlsplit(url)
        # A name and a password in the address would be sent in place of the key.
        is_web = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        if is_web and "@" not in parts.netloc:
            return parts
    raise ValueError("Expected an address such as https://labels.example.org, got something else.")


def _answer(name: str, said: dict[str, Any]) -> LabelAnswer:
    values, own = said.get("values"), said.get("own")
    return LabelAnswer(
        name, np.asarray(said["labels"], dtype=np.int64), np.asarray(said["by_teachers"], dtype=np.bool_),
        epsilon=said["charge"]["epsilon"], delta=said["charge"]["delta"], left=_left(said["left"]),
        own=None if own is None else _left(own), replayed=said["replayed"],
        values=None if values is None else np.asarray(values, dtype=np.int64),
        names=tuple(said.get("names") or ()),
    )  # fmt: skip


def _left(said: dict[str, Any]) -> Left:
    # A newer service may say more, an older one less: what was paid for must not be lost over it.
    return Left(**{field.name: said[field.name] for field in fields(Left) if field.name in said})


def _wait(attempt: int, asked: str = "") -> float:
    """Return how long to wait: what the service asks for, or twice as long each time, a little at random."""
    if asked.isdecimal():
        return min(float(asked), _LONGEST_WAIT)
    return float(min(0.2 * 2**attempt, _LONGEST_WAIT)) * (0.5 + secrets.randbelow(1000) / 1000)


def _said(response: "httpx.Response") -> dict[str, Any] | None:
    try:
        said: Any = response.json()
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _refusal(status: int, said: dict[str, Any] | None) -> Exception:
    if status == 200:
        words = "Expected an answer of a tellers service, got something else. Is the address right?"
        return ServiceError(words, status=status)
    problem = said or {}
    kind = str(problem.get("type", "")).rpartition(":")[2]
    detail = problem.get("detail", f"The service answered {status}.")
    advice = problem.get("advice")
    message = f"{detail} {advice}" if advice else str(detail)
    if kind == "budget-exhausted":
        refusal = BudgetExhausted(message)
        account = problem.get("account")
        refusal.account = None if account in (None, "data") else str(account)
        return refusal
    known = {"unsettled": Unsettled, "key-reused": KeyReused, "invalid": ValueError}
    if kind in known:
        return known[kind](message)
    return ServiceError(message, status=status, problem=problem)


def _table(name: str, values: ArrayLike) -> list[list[float]]:
    table = np.asarray(values)
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise ValueError(
            f"Expected a table of numbers for {name}, one row per query, got {table.dtype} of "
            f"shape {table.shape}."
        )
    if not np.isfinite(table).all():
        raise ValueError(f"Expected finite numbers in {name}, got others.")
    listed: list[list[float]] = table.astype(np.float64).tolist()
    return listed
