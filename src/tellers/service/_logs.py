"""The JSON log and the Prometheus metrics of a service: public numbers alone."""

import logging
import math
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any, TextIO

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from ._ledger import AccountAnswer

# What may be logged is a short list: method, path template, status, key id, request id, duration. An
# exception is logged by its kind and its place, since its words may quote rows or votes.

WORKERS_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names where the processes of a service keep their counts, where it has several."""

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# What the web server and libraries say for themselves; everything below goes through one handler.
_OTHERS = ("uvicorn", "uvicorn.error", "uvicorn.asgi", "asyncio", "sqlalchemy", "fastapi")


def make_log(level: str = "info", *, stream: TextIO | None = None) -> Any:
    """Return a log that writes one JSON object per line, to stderr unless told otherwise."""
    return structlog.wrap_logger(
        structlog.WriteLogger(stream or sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        cache_logger_on_first_use=True,
    )


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return what may be logged of an exception: its kind and where it was raised, not its words."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return {"error": name, "where": [f"{frame.name}:{frame.lineno}" for frame in frames]}


class Forward(logging.Handler):
    """Passes what libraries log through `logging` on to the service's own log."""

    def __init__(self, log: Any) -> None:
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record: its words and its logger, and of an exception what may be logged."""
        more = describe_error(record.exc_info[1]) if record.exc_info and record.exc_info[1] else {}
        say = getattr(self.log, record.levelname.lower(), self.log.info)
        say(record.getMessage(), logger=record.name, **more)


def forward_others(log: Any, level: str = "info") -> None:
    """Let the web server and libraries write to this log, and to no other."""
    handler = Forward(log)
    for name in _OTHERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        # SQL statements carry what is stored: never below warnings.
        logger.setLevel(max(_LEVELS[level], logging.WARNING) if name == "sqlalchemy" else _LEVELS[level])
    # Whoever has a name of its own hands up to its parent, which has the handler.
    logging.getLogger("uvicorn.error").propagate = False


class Metrics:
    """What a service counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tellers_requests_total",
            "Requests, by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tellers_request_seconds", "How long requests took.", ["route"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10), registry=self.registry,
        )  # fmt: skip
        self._labels = Counter(
            "tellers_labels_total", "Labels released, and silences.", ["outcome"], registry=self.registry
        )
        self._refused = Counter(
            "tellers_refused_total", "Questions refused for want of budget.", registry=self.registry
        )
        self._gauges = {
            name: Gauge(f"tellers_{name}", words, registry=self.registry, multiprocess_mode="mostrecent")
            for name, words in {
                "epsilon": "The budget of the data.",
                "epsilon_spent": "What was spent of it, reservations included; not of a clock.",
                "share_left": "What is left of it, as a share of the budget by its rule.",
                "queries_left": "Queries that are still paid for at the present setting.",
            }.items()
        }
        self._groups = {
            name: Gauge(
                f"tellers_group_{name}",
                words,
                ["group"],
                registry=self.registry,
                multiprocess_mode="mostrecent",
            )
            for name, words in {
                "epsilon": "The budget of a group of people.",
                "epsilon_spent": "What was spent of it, reservations included.",
                "queries_left": "Queries that it still pays for at the present setting.",
            }.items()
        }

    def count_request(self, method: str, route: str, status: int, *, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_labels(self, *, n_answered: int, n_silent: int) -> None:
        self._labels.labels("answered").inc(n_answered)
        self._labels.labels("silent").inc(n_silent)

    def count_refused(self) -> None:
        self._refused.inc()

    def text(self, status: AccountAnswer, groups: Mapping[str, AccountAnswer] | None = None) -> bytes:
        """Return everything in the format of Prometheus, with the present status of the budgets."""
        for name, gauge in self._gauges.items():
            told = getattr(status, name)
            gauge.set(math.nan if told is None else told)
        for account, group in (groups or {}).items():
            for name, gauge in self._groups.items():
                gauge.labels(account.removeprefix("group/")).set(getattr(group, name))
        if WORKERS_FOLDER not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
