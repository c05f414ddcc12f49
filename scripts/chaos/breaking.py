"""Ledgers that break their promise, each in its own way: what a campaign does not find, it does not test."""

import dataclasses
import random
from typing import Any

from tellers import Accountant
from tellers.errors import Unsettled
from tellers.ledger import Ticket
from tellers.ledger._chain import ChainedLedger
from tellers.ledger.sql import postgres

_reserve, _settle, _find = ChainedLedger.reserve, ChainedLedger.settle, ChainedLedger.find


def _late() -> None:
    """Write a reservation down only when it is settled."""

    def reserve(self: Any, key: str, price: Any, *, event: Any, also: Any = None) -> Ticket:
        return Ticket(key, price, event, also or {})

    def settle(self: Any, ticket: Ticket, release: Any, *, used: Any = None) -> None:
        _settle(
            self,
            _reserve(self, ticket.key, ticket.price, event=ticket.event, also=ticket.also),
            release,
            used=used,
        )

    ChainedLedger.reserve, ChainedLedger.settle = reserve, settle  # type: ignore[method-assign]


def _lazy() -> None:
    """Settle a release, which was acknowledged, when the next one comes."""
    waiting: list[tuple[Any, ...]] = []

    def settle(self: Any, ticket: Ticket, release: Any, *, used: Any = None) -> None:
        for last in waiting:
            _settle(self, *last)
        waiting[:] = [(ticket, release)]

    ChainedLedger.settle = settle  # type: ignore[method-assign]


def _generous() -> None:
    """Grant what the budget does not pay for."""
    Accountant.require = lambda *_words, **_named: None  # type: ignore[method-assign]


def _again() -> None:
    """Let an interrupted question be drawn a second time on the same reservation."""

    def reserve(self: Any, key: str, price: Any, *, event: Any, also: Any = None) -> Ticket:
        try:
            return _reserve(self, key, price, event=event, also=also)
        except Unsettled:
            return Ticket(key, price, event, also or {})

    ChainedLedger.reserve = reserve  # type: ignore[method-assign]


def _fickle() -> None:
    """Remember releases a little differently each time."""

    def find(self: Any, key: str) -> Any:
        found = _find(self, key)
        if found is None or random.random() < 0.5:
            return found
        return dataclasses.replace(found, labels=(found.labels + 1) % 10)

    ChainedLedger.find = find  # type: ignore[method-assign]


def _unflushed() -> None:
    """Acknowledge commits that are not on the server's disk (PostgreSQL)."""
    import sqlalchemy as sa

    make_engine = postgres.make_engine

    def unflushed(*words: Any, **named: Any) -> Any:
        engine = make_engine(*words, **named)

        @sa.event.listens_for(engine, "connect")
        def relax(connection: Any, _record: Any) -> None:
            connection.execute("SET synchronous_commit = off")
            connection.commit()

        return engine

    postgres.make_engine = unflushed


def _nothing() -> None:
    """Break nothing here: the campaign itself drops the log (SQLite)."""


WAYS = {
    "late": _late,
    "lazy": _lazy,
    "generous": _generous,
    "again": _again,
    "fickle": _fickle,
    "unflushed": _unflushed,
    "no-log": _nothing,
}


def spoil(way: str) -> None:
    """Break the ledgers of this process, in one of the ways; the empty one leaves them whole."""
    if way:
        WAYS[way]()
