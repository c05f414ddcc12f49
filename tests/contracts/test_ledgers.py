"""Every ledger keeps its promises, and broken ones are found out."""

import contextlib
import dataclasses
import os
import time

import pytest

from tellers import Accountant, Budget, Cost, MemoryLedger, PostgresLedger, RdpCurve, Release, SqliteLedger
from tellers.errors import BudgetExhausted, LedgerConflict
from tellers.ledger import Charge, Ticket, open_ledger
from tellers.ledger._state import AccountSums
from tellers.privacy._price import itemised
from tellers.testing import check_ledger

from .plain_ledger import PlainLedger, in_ticks

# Newer Pythons warn that a process with threads forks, as a test runner's does.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


def in_memory(kind):
    return lambda name, accountant: kind(accountant)


def in_files(folder, kind=SqliteLedger):
    return lambda name, accountant: kind(folder / f"{name}.db", accountant)


def test_the_ledger_in_memory():
    check_ledger(in_memory(MemoryLedger), durable=False)


def test_a_plain_ledger():
    check_ledger(in_memory(PlainLedger), durable=False)


def test_the_ledger_in_a_file(tmp_path):
    check_ledger(in_files(tmp_path), n_kills=5)


class Generous(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        with contextlib.suppress(BudgetExhausted):
            return super().reserve(key, price, event=event, also=also)
        return super().reserve(key, 0 * price, event=event, also=also)


class Careless(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        return super().reserve(key, price, event={**event, "noise": "secure"})


class ChargesRefusals(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        try:
            return super().reserve(key, price, event=event, also=also)
        except BudgetExhausted:
            super().reserve("refused", 0.001 * price, event=event)
            raise


class ChargesLate(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        super().reserve(key, price, event=event, also=also)
        self._entries[key] = dataclasses.replace(self._entries[key], charged=0 * price)
        return Ticket(key, price, event)


class KeepsChange(PlainLedger):
    def settle(self, ticket, release, *, used=None):
        whole = Cost(self._entries[ticket.key].reserved) if ticket.key in self._entries else release.cost
        super().settle(ticket, Release(release.labels, whole, release.by_teachers))


class TrustsTickets(PlainLedger):
    def settle(self, ticket, release, *, used=None):
        entry = self._entries.get(ticket.key)
        if entry is not None and ticket.price.values[0] > entry.reserved.values[0]:
            self._entries[ticket.key] = dataclasses.replace(entry, reserved=ticket.price)
        super().settle(ticket, release, used=used)


class SettlesAgain(PlainLedger):
    def settle(self, ticket, release, *, used=None):
        with contextlib.suppress(KeyError):
            self._entries[ticket.key] = dataclasses.replace(self._entries[ticket.key], is_settled=False)
        super().settle(ticket, release, used=used)


class OneKeyManyQuestions(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        if key in self._entries and self._entries[key].is_settled:
            return Ticket(key, price, event)
        return super().reserve(key, price, event=event, also=also)


class SharesItsRecords(PlainLedger):
    def settle(self, ticket, release, *, used=None):
        super().settle(ticket, release, used=used)
        entry = self._entries[ticket.key]
        shared = Release(release.labels, release.cost.without_tight(), release.by_teachers)
        self._entries[ticket.key] = dataclasses.replace(entry, release=shared)


class KeepsSecrets(PlainLedger):
    def settle(self, ticket, release, *, used=None):
        super().settle(ticket, release, used=used)
        entry = self._entries[ticket.key]
        kept = dataclasses.replace(entry.release, cost=release.cost)
        self._entries[ticket.key] = dataclasses.replace(entry, release=kept)


class SharesItsEvents(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        ticket = super().reserve(key, price, event=event, also=also)
        self._entries[key] = dataclasses.replace(self._entries[key], event=event)
        return ticket


class Talkative(PlainLedger):
    def __repr__(self):
        return f"Talkative({list(self._entries)})"


class FoldsCase(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        return super().reserve(key.lower().strip(), price, event=event)


class NoLock:
    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        return None


class Unlocked(PlainLedger):
    def __init__(self, accountant):
        super().__init__(accountant)
        self._lock = NoLock()

    def reserve(self, key, price, *, event, also=None):
        spent = self.spent
        time.sleep(0.001)
        self.accountant.require(spent, price, key=key)
        ample = dataclasses.replace(self.accountant.budget, epsilon=1e9)
        accountant, self.accountant = self.accountant, type(self.accountant)(ample)
        try:
            return super().reserve(key, price, event=event, also=also)
        finally:
            self.accountant = accountant


class Reopens(PlainLedger):
    """Takes the newest budget of an account for the one that counts."""

    def open_account(self, name, budget):
        self._accountants[name] = Accountant(budget)


class OpensForAnyone(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        for name in also or {}:
            if name not in self._accountants:
                self.open_account(name, Budget(epsilon=1e6, delta=1e-5))
        return super().reserve(key, price, event=event, also=also)


class PaysOneAfterTheOther(PlainLedger):
    """Debits each account as it comes to it, and stops at the one that cannot pay."""

    def reserve(self, key, price, *, event, also=None):
        for name, curve in (also or {}).items():
            if name in self._accountants:
                super().reserve(f"{key} for {name}", 0 * price, event=event, also={name: curve})
        return super().reserve(key, price, event=event, also=also)


class KeepsTheNameToItself(PlainLedger):
    def reserve(self, key, price, *, event, also=None):
        try:
            return super().reserve(key, price, event=event, also=also)
        except BudgetExhausted:
            raise BudgetExhausted("No.") from None


class ForgetsTheOthers(PlainLedger):
    """Charges the main account alone."""

    def reserve(self, key, price, *, event, also=None):
        ticket = super().reserve(key, price, event=event, also=also)
        self._entries[key] = dataclasses.replace(self._entries[key], also={})
        return ticket


class RefundsTheMainAccountAlone(PlainLedger):
    def settle(self, ticket, release, *, used=None):
        before = self._entries[ticket.key].also if ticket.key in self._entries else {}
        super().settle(ticket, release, used=used)
        self._entries[ticket.key] = dataclasses.replace(self._entries[ticket.key], also=before)


class RefundsEverybodyAlike(PlainLedger):
    """Takes what the main account used for what every account used, whatever was reserved on it."""

    def settle(self, ticket, release, *, used=None):
        entry = self._entries.get(ticket.key)
        alike = dict.fromkeys(entry.also, release.cost.worst) if entry else {}
        super().settle(ticket, release, used=used or alike)


class IgnoresWhatWasUsed(PlainLedger):
    def settle(self, ticket, release, *, used=None):
        super().settle(ticket, release)


class ForgivesOverruns(PlainLedger):
    def settle(self, ticket, release, *, used=None):
        entry = self._entries.get(ticket.key)
        known = {n: c for n, c in (used or {}).items() if entry and n in entry.also}
        capped = {
            name: curve
            if (curve.values <= entry.also[name].reserved.values).all()
            else entry.also[name].reserved
            for name, curve in known.items()
        }
        super().settle(ticket, release, used={**(used or {}), **capped})


class SparesGroups(PlainLedger):
    """Lets anybody ask, whether or not the groups of people in the data pay for it."""

    def reserve(self, key, price, *, event, also=None):
        held, self._accountants = self._accountants, {}
        if also:
            self._accountants = {name: one for name, one in held.items() if name in also}
        try:
            return super().reserve(key, price, event=event, also=also)
        finally:
            self._accountants = held


class RacesOnAccounts(PlainLedger):
    """Checks the accounts, and lets go of the lock before it debits them."""

    def reserve(self, key, price, *, event, also=None):
        for name, curve in (also or {}).items():
            if name in self._accountants:
                state = self.accounts()[name]
                state.accountant.require(state.spent, curve, key=key, account=name)
        time.sleep(0.01)  # long enough that threads in step are rare, and five turns below are enough
        groups = {name: 0 * curve for name, curve in (also or {}).items() if name.startswith("group/")}
        ticket = super().reserve(key, price, event=event, also=groups)
        paid = {name: Charge(curve, curve) for name, curve in (also or {}).items()}
        if not paid.keys() <= self._accountants.keys():
            del self._entries[key]
            raise LedgerConflict("unknown")
        self._entries[key] = dataclasses.replace(self._entries[key], also=paid)
        return dataclasses.replace(ticket, also=also or {})


# --- On a clock; by Rényi divergence these are as sound as the next one. ---


class GivesBackWhateverComesOut(PlainLedger):
    """Takes every outcome for silence."""

    def _used(self, key, used, *, account, kept):
        if (debit := self._debits.get((key, account))) is None:
            return used
        back = debit.returned([(item, n, 0) for item, n, _, _ in debit.items])
        return in_ticks(used, debit.ticks - back, debit.events)


class GivesNothingBack(PlainLedger):
    def _used(self, key, used, *, account, kept):
        debit = self._debits.get((key, account))
        return used if debit is None else in_ticks(used, debit.ticks, debit.events)


class ChargesSilenceAtTheNewLevel(PlainLedger):
    """Prices an outcome where it came out, and not where it was paid for."""

    def _used(self, key, used, *, account, kept):
        if (key, account) not in self._debits:
            return used
        entry = self._entries.pop(key)
        try:
            spent = self.spent if account is None else self.accounts()[account].spent
        finally:
            self._entries[key] = entry
        self._turned(key, entry.reserved if account is None else entry.also[account].reserved,
                     account=account, spent=spent)  # fmt: skip
        return super()._used(key, used, account=account, kept=kept)


class ForgetsWhatIsInFlight(PlainLedger):
    def _turned(self, key, price, *, account, spent):
        paid = super()._turned(key, price, account=account, spent=spent)
        return paid if paid is price else in_ticks(price, 0, 1)


class DropsTheTicksOfAccounts(PlainLedger):
    def accounts(self):
        held = super().accounts()
        plain = {n: RdpCurve.zero() if state.clock else state.spent for n, state in held.items()}
        return {name: dataclasses.replace(state, spent=plain[name]) for name, state in held.items()}


class HoldsAccountsByRenyi(PlainLedger):
    def open_account(self, name, budget):
        super().open_account(name, budget)
        self._accountants[name] = Accountant(budget)


class PricedBefore(Accountant):
    """Reads prices at the level before the step."""

    def debit(self, spent, price):
        found = super().debit(spent, price)
        if found is None:
            return None
        left, ticks = self._left_on_clock(itemised(spent)), 0
        for n, item, _ in price.terms:
            for _ in range(n):
                ticks += self.table(item).dearest_at(left - ticks)
        return dataclasses.replace(found, ticks=ticks)


class CountsNoEvents(Accountant):
    def debit(self, spent, price):
        return super().debit(dataclasses.replace(itemised(spent), events=0), price)


class TakesAnyCurve(Accountant):
    """Takes what the clock has no table for as if it were free."""

    def debit(self, spent, price):
        if any(item.clock is None for _, item, _ in itemised(price).terms):
            price = 0 * price
        return super().debit(spent, price)


class TakesDeltas(Accountant):
    def debit(self, spent, price):
        return super().debit(spent, dataclasses.replace(itemised(price), delta=0.0))


def held_by(kind):
    """Return a plain ledger whose accountants, on a clock, are of another kind."""

    def replaced(accountant):
        return accountant if accountant.clock is None else kind(accountant.budget, clock=accountant.clock)

    @dataclasses.dataclass(eq=False)
    class HeldBy(PlainLedger):
        def __post_init__(self):
            self.accountant = replaced(self.accountant)

    HeldBy.__name__ = kind.__name__
    return HeldBy


BROKEN = [
    (GivesBackWhateverComesOut, "after an answer, which takes all that was reserved"),
    (GivesNothingBack, "after silence on a clock"),
    (ChargesSilenceAtTheNewLevel, "last come, first settled"),
    (ForgetsWhatIsInFlight, "between reserve and settle of a question on a clock"),
    (DropsTheTicksOfAccounts, "ticks to be left on account 'student/alice' between reserve and settle"),
    (HoldsAccountsByRenyi, "to be held by the rule of its ledger, on a clock"),
    (held_by(PricedBefore), "with two reservations in flight"),
    (held_by(CountsNoEvents), "more events than the clock sets a part of delta aside for"),
    (held_by(TakesAnyCurve), "a Rényi curve that the clock has no table for"),
    (held_by(TakesDeltas), "a price with a delta of its own on a clock"),
    (Generous, "BudgetExhausted for a price past the budget"),
    (Careless, "InsecureNoise for noise that is not secure"),
    (ChargesRefusals, "after refused queries"),
    (ChargesLate, "between reserve and settle"),
    (KeepsChange, "what was not used flows back"),
    (TrustsTickets, "a cost above the price on the books"),
    (SettlesAgain, "a second settlement"),
    (OneKeyManyQuestions, "a key that is settled"),
    (SharesItsRecords, "copy of what was released"),
    (KeepsSecrets, "sealed costs not to be kept"),
    (SharesItsEvents, "an event to stay what it was"),
    (Talkative, "a repr that shows no key"),
    (FoldsCase, "two keys"),
    (Reopens, "an account opened with another budget"),
    (OpensForAnyone, "an account that was never opened"),
    (PaysOneAfterTheOther, "after an unknown account was refused|nothing on record|a named account refused"),
    (KeepsTheNameToItself, "name the account that cannot pay"),
    (ForgetsTheOthers, "debited 2 prices between reserve and settle"),
    (RefundsTheMainAccountAlone, "back to the account with the same price"),
    (RefundsEverybodyAlike, "all kept of another"),
    (IgnoresWhatWasUsed, "what each account used"),
    (ForgivesOverruns, "used more than was reserved"),
    (SparesGroups, "a question that a group of people does not pay for"),
    (RacesOnAccounts, "racing threads on an account to (stay within|be granted)"),
    (Unlocked, "racing threads|one of 4 threads|threads to share a ledger"),
]


@pytest.mark.parametrize(("kind", "message"), BROKEN, ids=lambda v: getattr(v, "__name__", ""))
def test_broken_ledgers_are_found_out(kind, message):
    n_turns = 5 if kind is RacesOnAccounts else 1  # which thread comes between is chance
    with pytest.raises(AssertionError, match=message):  # noqa: PT012
        for _ in range(n_turns):
            check_ledger(in_memory(kind), durable=False)


def test_a_ledger_that_forgets_is_not_durable():
    with pytest.raises(AssertionError, match="opened again"):
        check_ledger(in_memory(MemoryLedger))


class WritesLate(SqliteLedger):
    """Hands out tickets for what is not on the disk yet."""

    def reserve(self, key, price, *, event, also=None):
        if "killed" in str(self.path):
            return Ticket(key, price, event)
        return super().reserve(key, price, event=event, also=also)


def test_a_ledger_that_writes_late_is_found_by_the_kill(tmp_path):
    with pytest.raises(AssertionError, match="after a kill between reserve and settle"):
        check_ledger(in_files(tmp_path, WritesLate))


class WritesTheOthersLate(SqliteLedger):
    """Debits the main account, and named ones only when the question is settled."""

    def reserve(self, key, price, *, event, also=None):
        if "killed with accounts" in str(self.path):
            also = None
        return super().reserve(key, price, event=event, also=also)


def test_a_ledger_that_charges_accounts_late_is_found_by_the_kill(tmp_path):
    with pytest.raises(AssertionError, match="which every account stays charged for"):
        check_ledger(in_files(tmp_path, WritesTheOthersLate), n_kills=0)


class ChecksAccountsOutsideTheLock(SqliteLedger):
    """Two writers may both find the account good for it."""

    def reserve(self, key, price, *, event, also=None):
        if self.path.name == "processes on an account.db":
            for name, curve in (also or {}).items():
                state = self.accounts()[name]
                state.accountant.require(state.spent, curve, key=key, account=name)
            time.sleep(0.002)
            debit = AccountSums.debit

            def unchecked(self, payment, *, key, account):
                return debit(self, payment, key=key, account=account) if account is None else (payment, 0)

            AccountSums.debit = unchecked
            try:
                return super().reserve(key, price, event=event, also=also)
            finally:
                AccountSums.debit = debit
        return super().reserve(key, price, event=event, also=also)


def test_a_ledger_that_checks_accounts_too_early_is_found_by_the_race(tmp_path):
    def race():
        for turn in range(20):
            (tmp_path / f"{turn}").mkdir()
            check_ledger(in_files(tmp_path / f"{turn}", ChecksAccountsOutsideTheLock), n_kills=0)

    with pytest.raises(AssertionError, match=r"racing processes on an account to (stay within|be granted)"):
        race()


class ChecksOutsideTheLock(SqliteLedger):
    """Two writers may both pass the check before either writes."""

    def reserve(self, key, price, *, event, also=None):
        if self.path.name == "processes.db":  # the races for an account and for a clock say it in other words
            self.accountant.require(self.spent, price, key=key)
            time.sleep(0.002)
            checked, Accountant.require = Accountant.require, lambda *a, **k: None
            try:
                return super().reserve(key, price, event=event, also=also)
            finally:
                Accountant.require = checked
        return super().reserve(key, price, event=event, also=also)


def test_a_ledger_that_checks_too_early_is_found_by_the_race(tmp_path):
    def race():
        # Which process writes between check and debit is chance; one of a few races shows it.
        for turn in range(20):
            (tmp_path / f"{turn}").mkdir()
            check_ledger(in_files(tmp_path / f"{turn}", ChecksOutsideTheLock), n_kills=0)

    with pytest.raises(AssertionError, match=r"racing processes to (stay within|be granted)"):
        race()


def test_a_ledger_that_opens_by_any_rule_is_found(tmp_path):
    def opened(name, accountant):
        path = tmp_path / f"{name}.db"
        if "clock reopening" in name and path.exists():
            return open_ledger(path)
        return SqliteLedger(path, accountant)

    with pytest.raises(AssertionError, match="books on a clock, opened by another rule"):
        check_ledger(opened, n_kills=0)


class FailsElsewhere(SqliteLedger):
    """Works in the process that made it and in no other."""

    def reserve(self, key, price, *, event, also=None):
        if "killed" in str(self.path):
            os._exit(1)
        return super().reserve(key, price, event=event, also=also)


def test_a_process_that_fails_is_said(tmp_path):
    with pytest.raises(AssertionError, match="another process to reserve; it failed or hangs"):
        check_ledger(in_files(tmp_path, FailsElsewhere))


def test_errors_of_a_ledger_are_its_own():
    class Refuses(MemoryLedger):
        def reserve(self, key, price, *, event, also=None):
            raise RuntimeError("no")

    with pytest.raises(AssertionError, match=r"Expected BudgetExhausted .* got RuntimeError"):
        check_ledger(in_memory(Refuses), durable=False)


def in_database(url, kind=PostgresLedger):
    return lambda name, accountant: kind(url, accountant, name=f"{kind.__name__} {name}")


def test_the_ledger_in_a_database(database):
    check_ledger(in_database(database), n_kills=3)


class ForgetsToLock(PostgresLedger):
    """Reads what was spent before it takes the lock, and not again."""

    def _caught_up(self, store):
        if "processes" in self.name and self._state is not None:
            return self._state
        return super()._caught_up(store)


def test_a_ledger_that_reads_before_it_locks_is_found_by_the_race(database):
    with pytest.raises(AssertionError, match=r"another process to finish its race|racing processes"):
        check_ledger(in_database(database, ForgetsToLock), n_kills=0)
