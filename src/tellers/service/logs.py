"""The log of a service: one JSON object per line, of facts about requests and never of what is in them.

What may be logged is a short list: method, path template, status, key id, request id, duration. An
exception is logged by its kind and its place, since its words may quote rows or votes.
"""

import logging
import sys
import traceback
from typing import Any, TextIO

import structlog

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# What the web server and libraries say for themselves; everything below goes through one handler.
_OTHERS = ("uvicorn", "uvicorn.error", "uvicorn.asgi", "asyncio", "sqlalchemy", "fastapi")


def make_log(level: str = "info", *, stream: TextIO | None = None) -> Any:
    """Return a log that writes one JSON object per line, to stderr unless told otherwise.

    >>> import io
    >>> out = io.StringIO()
    >>> make_log(stream=out).info("request", status=200)
    >>> '"event": "request"' in out.getvalue() and '"status": 200' in out.getvalue()
    True
    """
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
    """Return what may be logged of an exception: its kind and where it was raised, not its words.

    >>> try:
    ...     raise ValueError("row 3 was 0.25")
    ... except ValueError as error:
    ...     described = describe_error(error)
    >>> described["error"], "0.25" in str(described)
    ('ValueError', False)
    """
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    kind = type(error)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return {"error": name, "where": [f"{frame.name}:{frame.lineno}" for frame in frames]}


class Forward(logging.Handler):
    """Passes what libraries log through `logging` on to the service's own log.

    >>> import io
    >>> out = io.StringIO()
    >>> handler = Forward(make_log(stream=out))
    >>> handler.emit(logging.makeLogRecord({"msg": "Started", "levelname": "INFO", "name": "uvicorn.error"}))
    >>> '"event": "Started"' in out.getvalue()
    True
    """

    def __init__(self, log: Any) -> None:
        super().__init__()
        self.log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record: its words and its logger, and of an exception what may be logged."""
        more = describe_error(record.exc_info[1]) if record.exc_info and record.exc_info[1] else {}
        say = getattr(self.log, record.levelname.lower(), self.log.info)
        say(record.getMessage(), logger=record.name, **more)


def forward_others(log: Any, level: str = "info") -> None:
    """Let the web server and libraries write to this log, and to no other.

    >>> import io
    >>> out = io.StringIO()
    >>> forward_others(make_log(stream=out))
    >>> logging.getLogger("uvicorn.error").warning("Shutting down")
    >>> "Shutting down" in out.getvalue()
    True
    """
    handler = Forward(log)
    for name in _OTHERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        # SQL statements carry what is stored: never below warnings.
        logger.setLevel(max(_LEVELS[level], logging.WARNING) if name == "sqlalchemy" else _LEVELS[level])
    # Whoever has a name of its own hands up to its parent, which has the handler.
    logging.getLogger("uvicorn.error").propagate = False
