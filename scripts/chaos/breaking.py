"""Ledgers that break their promise, each in its own way: what a campaign does not find, it does not test."""

import contextlib
import dataclasses
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import tellers.ledger._state as state
import tellers.ledger.sqlite as sqlite
from tellers import ConfidentGNMax, RdpCurve
from tellers.errors import BudgetExhausted, Unsettled
from tellers.ledger import Ticket
from tellers.ledger._chain import ChainedLedger
from tellers.ledger._lines import Line
from tellers.ledger._state import AccountSums, LedgerState
from tellers.ledger.base import Head
from tellers.service import _keys

_reserve, _settle, _find = ChainedLedger.reserve, ChainedLedger.settle, ChainedLedger.find


def _late() -> None:
    """Write a reservation down only when it is settled."""

    def reserve(self: Any, key: str, price: Any, *, event: Any, also: Any = None) -> Ticket:
        return Ticket(key, price, event, also or {})

    def settle(self: Any, ticket: Ticket, release: Any, *, used: Any = None) -> None:
        made = _reserve(self, ticket.key, ticket.price, event=ticket.event, also=ticket.also)
        _settle(self, made, release, used=used)

    ChainedLedger.reserve, ChainedLedger.settle = reserve, settle  # type: ignore[method-assign]


def _lazy() -> None:
    """Settle a release, which was acknowledged, when the next one comes."""
    waiting: list[tuple[Any, ...]] = []

    def settle(self: Any, ticket: Ticket, release: Any, *, used: Any = None) -> None:
        last, waiting[:] = list(waiting), [(ticket, release, used)]
        for ticket, release, used in last:
            _settle(self, ticket, release, used=used)

    ChainedLedger.settle = settle  # type: ignore[method-assign]


def _early() -> None:
    """Acknowledge answers before the commit of the turn that writes them."""
    write = ChainedLedger._write_all

    def written(self: Any, writes: Any) -> None:
        # A question is reserved in earnest: what is early is the answer.
        if not any("_settling" in repr(one.next_lines) for one in writes):
            write(self, writes)
            return

        def soon() -> None:
            time.sleep(0.1)
            write(self, writes)

        threading.Thread(target=soon, daemon=True).start()

    ChainedLedger._write_all = written  # type: ignore[method-assign]


def _debit(may: Callable[[], bool]) -> None:
    """Look at the budget only where one may."""
    debit = AccountSums.debit

    def debited(self: Any, payment: Any, *, key: str, account: Any) -> Any:
        return debit(self, payment, key=key, account=account) if may() else (payment, 0)

    AccountSums.debit = debited  # type: ignore[method-assign]


def _generous() -> None:
    """Grant what the budget does not pay for."""
    _debit(lambda: False)


def _first_only() -> None:
    """Look at the budget for the first task of a turn alone."""
    seen = threading.local()
    turn, reserve = ChainedLedger._turn, LedgerState.write_reserved

    def turned(self: Any, *words: Any) -> None:
        seen.n = 0
        turn(self, *words)

    def reserved(self: Any, *words: Any, **named: Any) -> Any:
        seen.n = getattr(seen, "n", 0) + 1
        return reserve(self, *words, **named)

    ChainedLedger._turn, LedgerState.write_reserved = turned, reserved  # type: ignore[method-assign]
    _debit(lambda: getattr(seen, "n", 0) < 2)


def _stingy() -> None:
    """Refuse now and then what the budget pays for."""
    reserve = LedgerState.write_reserved

    def reserved(self: Any, key: str, *words: Any, **named: Any) -> Any:
        if random.random() < 0.05:
            raise BudgetExhausted(f"Query {key!r} does not fit.")
        return reserve(self, key, *words, **named)

    LedgerState.write_reserved = reserved  # type: ignore[method-assign]


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


def _stranger() -> None:
    """Find the answer to another question."""

    def find(self: Any, key: str) -> Any:
        found = _find(self, key)
        begins, _, n = key.rpartition("/")
        other = _find(self, f"{begins}/{int(n) + 1}") if found is not None else None
        return found if other is None else other

    ChainedLedger.find = find  # type: ignore[method-assign]


def _unheard() -> None:
    """Record other labels than were released."""
    write = state.write_release
    state.write_release = lambda release: {  # type: ignore[assignment]
        **write(release), "labels": [(label + 1) % 10 for label in release.labels.tolist()]
    }  # fmt: skip


def _without_also(is_spared: Callable[[str], bool]) -> None:
    """Charge a question to the data, and not to all accounts that were to pay too."""

    def reserve(self: Any, key: str, price: Any, *, event: Any, also: Any = None) -> Ticket:
        rest = {name: curve for name, curve in (also or {}).items() if not is_spared(name)}
        return _reserve(self, key, price, event=event, also=rest)

    def settle(self: Any, ticket: Ticket, release: Any, *, used: Any = None) -> None:
        rest = None if used is None else {name: curve for name, curve in used.items() if not is_spared(name)}
        _settle(self, ticket, release, used=rest)

    state.require_groups_pay = lambda *_words, **_named: None
    ChainedLedger.reserve, ChainedLedger.settle = reserve, settle  # type: ignore[method-assign]


def _refunds_twice() -> None:
    """Give back what was not used twice."""
    settle = LedgerState._settle

    def settled(self: Any, key: str, asked: Any, charged: Any) -> None:
        for account, payment in asked.paid.items():
            self._sums(account).add(payment, times=-1)
            self._sums(account).add(charged[account])
        settle(self, key, asked, charged)

    LedgerState._settle = settled  # type: ignore[method-assign]


def _gives_all_back() -> None:
    """Charge nothing for an answer when it is settled."""
    settle = LedgerState.write_settled

    def settled(self: Any, key: str, release: Any, used: Any, **named: Any) -> Any:
        nothing = RdpCurve.zero(release.cost.worst.orders)
        free = dataclasses.replace(release, cost=type(release.cost)(nothing))
        return settle(self, key, free, used and dict.fromkeys(used, nothing), **named)

    LedgerState.write_settled = settled  # type: ignore[method-assign]


def _cheap() -> None:
    """Price a query at half of what it costs."""
    item, price = ConfidentGNMax.item, ConfidentGNMax.price

    def halved(self: Any, *words: Any, **named: Any) -> Any:
        whole = item(self, *words, **named)
        return dataclasses.replace(whole, curves=tuple(0.5 * curve for curve in whole.curves))

    ConfidentGNMax.item = halved  # type: ignore[method-assign]
    ConfidentGNMax.price = lambda self, *words, **named: halved(self, *words, **named).price()  # type: ignore[method-assign]
    assert price is not ConfidentGNMax.price


def _wrong_sums() -> None:
    """Write checkpoints that leave something out."""
    to_json = AccountSums.to_json

    def said(self: Any) -> dict[str, Any]:
        whole = to_json(self)
        return {**whole, "paid": whole["paid"][1:]} if "paid" in whole else whole

    AccountSums.to_json = said  # type: ignore[method-assign]


def _unchained() -> None:
    """Take lines as they come, whatever their hashes are."""
    Line.require_follows = lambda *_words: None  # type: ignore[method-assign]
    Line.is_intact = property(lambda _self: True)  # type: ignore[assignment]


def _stale_head() -> None:
    """Show the last line but three as the last one."""
    view = ChainedLedger.view

    def head(self: Any) -> Head:
        last = view(self).head.number
        (line,) = self._look(lambda store: store.numbered([max(0, last - 3)]))
        return Head(line.number, line.hash)

    ChainedLedger.head = property(head)  # type: ignore[assignment, method-assign]


def _no_lock() -> None:
    """Decide before the file is held, and write afterwards (SQLite)."""

    def commit(self: Any, next_lines: Any, _deadline: float) -> None:
        connection = self._open("writing")
        store = sqlite.SqliteStore(connection, self._title())
        lines = next_lines(store)
        time.sleep(0.002)
        with sqlite.plain_words(self._path, self.timeout):
            connection.execute("BEGIN IMMEDIATE")
            try:
                store.append(lines)
                connection.execute("COMMIT")
            except BaseException:
                self._end("writing", "ROLLBACK")
                raise

    sqlite.SqliteLedger._commit = commit  # type: ignore[method-assign]


def _unsynced() -> None:
    """Acknowledge commits that are not on the disk (SQLite)."""
    connect = sqlite.connect

    def connected(*words: Any, **named: Any) -> Any:
        connection = connect(*words, **named)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    sqlite.connect = connected


def _unflushed_log() -> None:
    """Show what somebody wrote who was killed before the flush, and leave it unflushed (SQLite)."""
    sqlite.flush_log = lambda _file: None


def _unflushed() -> None:
    """Acknowledge commits that are not on the server's disk (PostgreSQL)."""
    import sqlalchemy as sa

    from tellers.ledger.sql import postgres

    make_engine = postgres.make_engine

    def unflushed(*words: Any, **named: Any) -> Any:
        engine = make_engine(*words, **named)

        @sa.event.listens_for(engine, "connect")
        def relax(connection: Any, _record: Any) -> None:
            connection.execute("SET synchronous_commit = off")
            connection.commit()

        return engine

    postgres.make_engine = unflushed


def _keys_unsynced() -> None:
    """Hand out keys that are not on the disk (SQLite)."""
    use_log = _keys._use_log
    _keys._use_log = lambda connection, _synchronous: use_log(connection, "OFF")


def _keys_unrevoked() -> None:
    """Revoke a key when the next one is revoked."""
    waiting: list[str] = []
    revoke = _keys.KeyStore.revoke

    def revoked(self: Any, number: str) -> Any:
        for last in waiting:
            revoke(self, last)
        waiting[:] = [number]
        return self.find(number)

    _keys.KeyStore.revoke = revoked  # type: ignore[method-assign]


def _unlimited() -> None:
    """Let every request through."""
    _keys.Rates.hit = lambda *_words, **_named: 0  # type: ignore[method-assign]


def _deaf() -> None:
    """Add up nothing of what other programs write."""
    read = LedgerState._read

    def heard(self: Any, line: Line, body: Any) -> None:
        if line.kind == "checkpoint":
            self._note_checkpoint(line)
            return
        self._own.clear()
        before = dict(self.sums)
        read(self, line, body)
        if line.kind in ("reserved", "settled"):
            self.sums = before
            self._own.clear()

    LedgerState._read = heard  # type: ignore[method-assign]


def _main_only() -> None:
    """Look at the budget of the data, and at no account's."""
    debit = AccountSums.debit

    def debited(self: Any, payment: Any, *, key: str, account: Any) -> Any:
        return (payment, 0) if account else debit(self, payment, key=key, account=account)

    AccountSums.debit = debited  # type: ignore[method-assign]


def _pays_again() -> None:
    """Charge a question that is asked again once more, under another key."""

    def find(self: Any, key: str) -> Any:
        found = _find(self, key)
        if found is not None:
            asked = next(one for one in self.entries(begins=key) if one.key == key)
            also = {name: paid.reserved for name, paid in asked.also.items()}
            with contextlib.suppress(BudgetExhausted):
                again = f"{key}-{random.getrandbits(64)}"
                _reserve(self, again, asked.reserved, event=asked.event, also=also)
        return found

    ChainedLedger.find = find  # type: ignore[method-assign]


def _half_event() -> None:
    """Leave out of an event how much noise there was."""
    split = state.Events.split

    def halved(self: Any, event: Any) -> Any:
        return split(self, {name: said for name, said in event.items() if name != "parameters"})

    state.Events.split = halved  # type: ignore[method-assign]


def _nothing() -> None:
    """Break nothing here: the campaign itself drops the log (SQLite)."""


WAYS = {
    "late": _late,
    "lazy": _lazy,
    "early": _early,
    "generous": _generous,
    "first-only": _first_only,
    "stingy": _stingy,
    "again": _again,
    "fickle": _fickle,
    "stranger": _stranger,
    "unheard": _unheard,
    "no-also": lambda: _without_also(lambda name: not name.startswith("group/")),
    "no-groups": lambda: _without_also(lambda name: name.startswith("group/")),
    "refunds-twice": _refunds_twice,
    "all-back": _gives_all_back,
    "cheap": _cheap,
    "wrong-sums": _wrong_sums,
    "unchained": _unchained,
    "stale-head": _stale_head,
    "no-lock": _no_lock,
    "unsynced": _unsynced,
    "unflushed-log": _unflushed_log,
    "unflushed": _unflushed,
    "keys-unsynced": _keys_unsynced,
    "keys-unrevoked": _keys_unrevoked,
    "unlimited": _unlimited,
    "no-log": _nothing,
    "deaf": _deaf,
    "main-only": _main_only,
    "pays-again": _pays_again,
    "half-event": _half_event,
}


def spoil(way: str) -> None:
    """Break the ledgers of this process, in one of the ways; the empty one leaves them whole."""
    _often()
    if way:
        WAYS[way]()


def _often() -> None:
    """Write checkpoints so often that a round has some: whoever was killed begins at one."""
    checkpoint = LedgerState.write_checkpoint

    def written(self: Any) -> list[Line]:
        self.spacing = 50
        return checkpoint(self)

    LedgerState.write_checkpoint = written  # type: ignore[method-assign]
