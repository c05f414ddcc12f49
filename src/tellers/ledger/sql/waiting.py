"""A server that is not there yet: after a restart of the machine, a service may be up before its database."""

import time
from collections.abc import Callable

from .plain import Lost, plain_words, shown
from .tables import make_engine, parse_url

_PAUSE = 0.5


def wait_until_there(url: str, seconds: float, *, say: Callable[[str, float], object] | None = None) -> None:
    """Return when the server of a database answers, or raise ConnectionError when it did not in time.

    `say` is told what is waited for, and for how many more seconds, before each pause. A server that answers
    and keeps us out, for a wrong password or a database that is not there, is not waited for.

    >>> wait_until_there("postgresql://team@127.0.0.1:1/privacy", 0)
    Traceback (most recent call last):
        ...
    ConnectionError: Expected a PostgreSQL server for privacy on 127.0.0.1:1 within 0 seconds: ...
    """
    parsed, end = parse_url(url), time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        try:
            with (
                plain_words(parsed, 2.0),
                make_engine(parsed, timeout=max(1.0, min(left, 10.0))).connect(),
            ):
                return
        except Lost as lost:
            left = end - time.monotonic()
            if _is_kept_out(str(lost)):
                raise ConnectionError(
                    f"Expected to be let in by the PostgreSQL server for {shown(parsed)}: {lost}. Nothing "
                    "was written. See whether user, password and database are right."
                ) from lost
            if left <= 0:
                raise ConnectionError(
                    f"Expected a PostgreSQL server for {shown(parsed)} within {seconds:g} seconds: {lost}. "
                    "Nothing was written. Start it, or wait for longer (--wait)."
                ) from lost
        if say is not None:
            say(shown(parsed), left)
        time.sleep(min(_PAUSE, left))


def _is_kept_out(words: str) -> bool:
    # A server that speaks is there; one that says how it fares is on its way up or down.
    return "FATAL" in words and "the database system is" not in words
