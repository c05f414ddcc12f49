"""The checks of named accounts: all of them pay or none, each is refunded, and nobody overdraws one."""

import contextlib
import multiprocessing
import os
import threading

import numpy as np

from ..budget import Accountant, Budget
from ..errors import BudgetExhausted, LedgerConflict
from ..ledger import Ledger
from ..ledger.groups import group_account
from ..rdp import RdpCurve
from ._books import (
    EVENT,
    ONE,
    MakeLedger,
    fork,
    outcome,
    receive,
    require_refused,
    require_spent,
    reserve_and_die,
)
from ._promise import require

_AMPLE = Accountant(Budget(epsilon=50.0, delta=1e-5))
_SMALL = Budget(epsilon=0.5, delta=1e-5)
_ALICE, _GROUP = "student/alice", "cohort/low"


def check_accounts(make_ledger: MakeLedger) -> None:
    """Go through everything about named accounts that needs no second process."""
    for check in (
        _check_opening, _check_all_or_nothing, _check_groups, _check_refunds, _check_overruns, _check_threads,
    ):  # fmt: skip
        check(make_ledger)


def check_accounts_survive(make_ledger: MakeLedger) -> None:
    """Open books with named accounts again, race processes for one, and kill a writer that holds several."""
    _check_reopening(make_ledger)
    if hasattr(os, "fork"):
        _check_killed(make_ledger)
        _check_processes(make_ledger)


def _opened(make_ledger: MakeLedger, name: str, accountant: Accountant = _AMPLE) -> Ledger:
    ledger = make_ledger(name, accountant)
    ledger.open_account(_ALICE, _SMALL)
    ledger.open_account(_GROUP, Budget(epsilon=1.0, delta=1e-6))
    return ledger


def _require_paid(ledger: Ledger, when: str, *, main: float, alice: float, group: float = 0.0) -> None:
    require_spent(ledger, main * ONE, when)
    accounts = ledger.accounts()
    for name, times in ((_ALICE, alice), (_GROUP, group)):
        paid = accounts[name].spent
        same = np.allclose(paid.values, (times * ONE).values, rtol=1e-9, atol=0)
        got = float(paid.values[0] / ONE.values[0])
        require(same, f"Expected account {name!r} to be debited {times:g} prices {when}, got {got:.6g}.")


def _check_opening(make_ledger: MakeLedger) -> None:
    with make_ledger("opening accounts", _AMPLE) as ledger:
        require(ledger.accounts() == {}, "Expected new books to have no named accounts.")
        ledger.open_account(_ALICE, _SMALL)
        ledger.open_account(_ALICE, _SMALL)  # once more, the same: nothing happens
        for other in (Budget(epsilon=0.6, delta=1e-5), Budget(epsilon=0.5, delta=1e-6)):
            require_refused(
                LedgerConflict, "an account opened with another budget", ledger.open_account, _ALICE, other
            )
        accounts = ledger.accounts()
        require(list(accounts) == [_ALICE], f"Expected one account, got {list(accounts)}.")
        require(
            accounts[_ALICE].budget == _SMALL, "Expected an account to keep the budget it was opened with."
        )
        order = Accountant(_SMALL).held_at
        require(
            accounts[_ALICE].held_at == order, "Expected an account to be held at its own budget's order."
        )
        require_refused(
            LedgerConflict, "an account that was never opened",
            ledger.reserve, "q0", ONE, event=EVENT, also={_ALICE: ONE, "student/bob": ONE},
        )  # fmt: skip
        require_spent(ledger, 0 * ONE, "after an unknown account was refused")
        require(ledger.entries() == [], "Expected nothing on record of a question on an unknown account.")


def _check_all_or_nothing(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "all or nothing") as ledger:
        over = 100 * ONE
        # Whichever comes first in the list: no account may have paid when the other refuses.
        for also in ({_GROUP: ONE, _ALICE: over}, {_ALICE: over, _GROUP: ONE}):
            try:
                ledger.reserve("q0", ONE, event=EVENT, also=also)
            except BudgetExhausted as refusal:
                named = _ALICE in str(refusal) and refusal.account == _ALICE
                require(named, f"Expected the refusal to name the account that cannot pay, got: {refusal}")
            else:
                raise AssertionError("Expected BudgetExhausted for a named account past its budget.")
            _require_paid(ledger, "after a named account refused", main=0, alice=0)
        beyond = 100_000 * ONE
        require_refused(
            BudgetExhausted, "a price past the main budget",
            ledger.reserve, "q0", beyond, event=EVENT, also={_ALICE: ONE},
        )  # fmt: skip
        _require_paid(ledger, "after the main account refused", main=0, alice=0)
        require(ledger.entries() == [], "Expected nothing on record of questions that an account refused.")
        ticket = ledger.reserve("q0", ONE, event=EVENT, also={_ALICE: 2 * ONE, _GROUP: ONE})
        _require_paid(ledger, "between reserve and settle", main=1, alice=2, group=1)
        require(dict(ticket.also).keys() == {_ALICE, _GROUP}, "Expected a ticket to say which accounts pay.")


def _check_groups(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "groups of people") as ledger:
        ledger.reserve("before", ONE, event=EVENT)
        low, high = group_account("low"), group_account("high")
        for name in (low, high):
            ledger.open_account(name, _SMALL)
        some: tuple[dict[str, RdpCurve], ...] = ({}, {_ALICE: ONE}, {low: ONE, _ALICE: ONE})
        for also in some:
            require_refused(
                LedgerConflict, "a question that a group of people does not pay for",
                ledger.reserve, "q0", ONE, event=EVENT, also=also,
            )  # fmt: skip
        _require_paid(ledger, "after a group that would not have paid", main=1, alice=0)
        ledger.reserve("q0", ONE, event=EVENT, also={low: ONE, high: 2 * ONE})
        ledger.reserve("q1", ONE, event={**EVENT, "groups": {"absent": ["low"]}}, also={high: ONE})
        spent = [float(ledger.accounts()[name].spent.values[0] / ONE.values[0]) for name in (low, high)]
        require(np.allclose(spent, [1, 3]), f"Expected groups to pay 1 and 3 prices, got {spent}.")


def _check_refunds(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "refunds") as ledger:
        ticket = ledger.reserve("q0", 4 * ONE, event=EVENT, also={_ALICE: 4 * ONE, _GROUP: 3 * ONE})
        ledger.settle(ticket, outcome())
        _require_paid(
            ledger,
            "after settling for less: back to the account with the same price, all kept of another",
            main=1,
            alice=1,
            group=3,
        )
        ticket = ledger.reserve("q1", 4 * ONE, event=EVENT, also={_ALICE: 4 * ONE, _GROUP: 3 * ONE})
        ledger.settle(ticket, outcome(), used={_ALICE: 2 * ONE, _GROUP: 0 * ONE})
        _require_paid(ledger, "after settling with what each account used", main=2, alice=3, group=3)
        require_refused(LedgerConflict, "a second settlement", ledger.settle, ticket, outcome(0 * ONE, 4))
        _require_paid(ledger, "after a second settlement was refused", main=2, alice=3, group=3)
        first, second = ledger.entries()
        shown = [
            (name, [float(c.values[0] / ONE.values[0]) for c in (paid.reserved, paid.charged)])
            for entry in (first, second)
            for name, paid in sorted(entry.also.items())
        ]
        expected = [(_GROUP, [3, 3]), (_ALICE, [4, 1]), (_GROUP, [3, 0]), (_ALICE, [4, 2])]
        same = [n for n, _ in shown] == [n for n, _ in expected] and np.allclose(
            [v for _, v in shown], [v for _, v in expected]
        )
        require(same, f"Expected entries to say what every account was reserved and charged, got {shown}.")


def _check_overruns(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "overruns") as ledger:
        ticket = ledger.reserve("q0", ONE, event=EVENT, also={_ALICE: ONE})
        require_refused(
            LedgerConflict, "a charge to an account that was not reserved",
            ledger.settle, ticket, outcome(), used={_GROUP: ONE},
        )  # fmt: skip
        shifted = RdpCurve(ONE.orders + 0.001, 0.5 * ONE.values)
        require_refused(
            LedgerConflict, "what an account used on other orders",
            ledger.settle, ticket, outcome(), used={_ALICE: shifted},
        )  # fmt: skip
        _require_paid(ledger, "after charges that make no sense were refused", main=1, alice=1)
        require_refused(
            LedgerConflict, "an account that used more than was reserved on it",
            ledger.settle, ticket, outcome(), used={_ALICE: 3 * ONE},
        )  # fmt: skip
        _require_paid(
            ledger, "after an account used more than was reserved, charged in full", main=1, alice=3
        )
        require(ledger.find("q0") is None, "Expected no record of a release that cost an account too much.")


def _share() -> RdpCurve:
    """Return a price of which exactly 20 fit into the small account."""
    accountant, n = Accountant(_SMALL), 0
    while accountant.affords(n * ONE, 0.1 * ONE):
        n += 1
    whole = float(n - 1)
    while accountant.affords(RdpCurve.zero(), (whole + 0.1) * ONE):
        whole += 0.1
    return whole * ONE * (1 / 20)


def _race(ledger: Ledger, worker: str, share: RdpCurve) -> int:
    n_granted = 0
    with contextlib.suppress(BudgetExhausted):
        for n in range(100):
            ticket = ledger.reserve(f"{worker}-{n}", share, event=EVENT, also={_ALICE: share})
            n_granted += 1
            ledger.settle(ticket, outcome(share))
    return n_granted


def _require_race(ledger: Ledger, n_granted: int, who: str) -> None:
    state = ledger.accounts()[_ALICE]
    within = state.accountant.affords(state.spent, RdpCurve.zero())
    require(within, f"Expected racing {who} to stay within an account's budget; they overdrew it.")
    require(
        n_granted == 20, f"Expected racing {who} to be granted what an account affords, 20, got {n_granted}."
    )
    require_spent(ledger, state.spent, f"when {who} raced for one account, as much as that account")


def _check_threads(make_ledger: MakeLedger) -> None:
    share, n_threads = _share(), 3
    with _opened(make_ledger, "threads on an account") as ledger:
        granted: list[int] = []
        errors: list[BaseException] = []
        start = threading.Barrier(n_threads)

        def ask(worker: int) -> None:
            start.wait()
            try:
                granted.append(_race(ledger, f"{worker}", share))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=ask, args=(worker,)) for worker in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        require(not errors, f"Expected threads to share a ledger, got {errors[:1]!r}.")
        _require_race(ledger, sum(granted), "threads")


def _check_reopening(make_ledger: MakeLedger) -> None:
    with _opened(make_ledger, "accounts again") as ledger:
        ticket = ledger.reserve("q0", 3 * ONE, event=EVENT, also={_ALICE: 3 * ONE})
        ledger.settle(ticket, outcome())
        with make_ledger("accounts again", _AMPLE) as second:
            second.reserve("q1", ONE, event=EVENT, also={_ALICE: ONE, _GROUP: 2 * ONE})
        _require_paid(ledger, "after somebody else reserved on the same accounts", main=2, alice=2, group=2)
    with make_ledger("accounts again", _AMPLE) as ledger:
        _require_paid(ledger, "on accounts that were closed and opened again", main=2, alice=2, group=2)
        require(ledger.accounts()[_ALICE].budget == _SMALL, "Expected an account's budget after reopening.")
        other = Budget(epsilon=9.0, delta=1e-5)
        require_refused(LedgerConflict, "another budget after reopening", ledger.open_account, _ALICE, other)


def _check_killed(make_ledger: MakeLedger) -> None:
    reserve_and_die(lambda: _opened(make_ledger, "killed with accounts"), also={_ALICE: ONE, _GROUP: 2 * ONE})
    with make_ledger("killed with accounts", _AMPLE) as ledger:
        when = "after a kill between reserve and settle, which every account stays charged for"
        _require_paid(ledger, when, main=1, alice=1, group=2)


def _check_processes(make_ledger: MakeLedger) -> None:
    context = multiprocessing.get_context("fork")
    share, n_workers = _share(), 2
    start, (ours, theirs) = context.Barrier(n_workers), context.Pipe()
    speaking = context.Lock()

    def ask(worker: int) -> None:
        start.wait(60)
        with _opened(make_ledger, "processes on an account") as ledger:
            n_granted = _race(ledger, f"{worker}", share)
        with speaking:
            theirs.send(n_granted)

    processes = [fork(ask, worker) for worker in range(n_workers)]
    theirs.close()
    n_granted = sum(receive(ours, "finish its race for an account") for _ in processes)
    for process in processes:
        process.join()
    with make_ledger("processes on an account", _AMPLE) as ledger:
        _require_race(ledger, n_granted, "processes")
