"""Ledgers that earlier versions wrote are opened, verified and read by this one, and go on."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    Cost,
    GNMax,
    RdpCurve,
    Release,
    SqliteLedger,
    Unit,
    open_ledger,
)
from tellers.errors import LedgerConflict
from tellers.ledger._lines import READABLE
from tellers.mechanisms.base import price_of
from tellers.privacy._clock import Clock
from tellers.privacy._price import Price, itemised

FIXTURES = Path(__file__).parent / "fixtures"
VERSIONS = sorted(path.stem for path in FIXTURES.glob("ledger-*.db"))
ONE = RdpCurve.zcdp(0.001)


@pytest.fixture(params=VERSIONS)
def kept(request, tmp_path):
    """Return a copy of an old ledger, which opening may change, and what it must say."""
    path = tmp_path / "old.db"
    shutil.copy(FIXTURES / f"{request.param}.db", path)
    return path, json.loads((FIXTURES / f"{request.param}.json").read_text())


def opened(path, state):
    return SqliteLedger(path, Accountant(Budget(state["epsilon"], state["delta"])))


def test_there_is_a_ledger_of_every_version():
    assert [f"ledger-{version}" for version in READABLE] == VERSIONS
    for version in READABLE:
        connection = sqlite3.connect(FIXTURES / f"ledger-{version}.db")
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)
        connection.close()


def test_an_old_ledger_is_verified(kept):
    path, state = kept
    with opened(path, state) as ledger:
        assert ledger.verify() == state["head"]
        assert ledger.accountant.held_at == state["held_at"]


def test_an_old_ledger_says_what_it_said(kept):
    path, state = kept
    with opened(path, state) as ledger:
        np.testing.assert_allclose(ledger.spent.values, state["spent"], rtol=1e-14)
        entries = ledger.entries()
        assert [entry.key for entry in entries] == [said["key"] for said in state["entries"]]
        for entry, said in zip(entries, state["entries"]):
            assert (entry.event, entry.is_settled) == (said["event"], said["is_settled"])
            assert ledger.asked(entry.key) == said["event"]
            assert entry.reserved.epsilon(state["delta"]) == pytest.approx(
                said["reserved_epsilon"], rel=1e-12
            )
            assert entry.charged.epsilon(state["delta"]) == pytest.approx(said["charged_epsilon"], rel=1e-12)
            paid = {n: [c.reserved.epsilon(1e-5), c.charged.epsilon(1e-5)] for n, c in entry.also.items()}
            assert paid == {n: pytest.approx(c, rel=1e-12) for n, c in said.get("also", {}).items()}
            release = ledger.find(entry.key)
            if said["labels"] is None:
                assert release is None
                continue
            assert release.labels.tolist() == said["labels"]
            assert release.answered.tolist() == said["answered"]
            assert (None if release.values is None else release.values.tolist()) == said["values"]


def test_an_old_ledger_has_the_accounts_it_had(kept):
    path, state = kept
    with opened(path, state) as ledger:
        accounts = ledger.accounts()
        assert accounts.keys() == state.get("accounts", {}).keys()
        for name, said in state.get("accounts", {}).items():
            assert accounts[name].budget == Budget(said["epsilon"], said["delta"])
            assert accounts[name].held_at == said["held_at"]
            np.testing.assert_allclose(accounts[name].spent.values, said["spent"], rtol=1e-14)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_holds_every_kind_of_outcome(version):
    entries = json.loads((FIXTURES / f"{version}.json").read_text())["entries"]
    assert {entry["is_settled"] for entry in entries} == {True, False}
    assert any(-1 in (entry["labels"] or []) for entry in entries)
    assert any(entry["values"] for entry in entries)


def test_an_old_ledger_goes_on_and_may_be_given_accounts(kept):
    path, state = kept
    with opened(path, state) as ledger:
        ledger.open_account("student/new", Budget(epsilon=1.0, delta=1e-5))
        groups = [name for name in ledger.accounts() if name.startswith("group/")]
        also = dict.fromkeys(["student/new", *groups], 2 * ONE)
        ticket = ledger.reserve("new", 2 * ONE, event={"noise": "secure"}, also=also)
        ledger.settle(ticket, Release(np.array([1]), Cost(ONE)))
    with opened(path, state) as ledger:
        assert ledger.verify(state["head"]) != state["head"]
        np.testing.assert_allclose(ledger.spent.values, np.array(state["spent"]) + ONE.values)
        np.testing.assert_array_equal(ledger.accounts()["student/new"].spent.values, ONE.values)


CHECKED = ConfidentGNMax(threshold=20.0, sigma_threshold=15.0, sigma=10.0)
PRICES = {
    "one answer": (lambda: price_of(GNMax(sigma=41.0), Unit(), n_teachers=30), None),
    "three answers": (lambda: price_of(GNMax(sigma=41.0), Unit(), 3, n_teachers=30), None),
    "silence": (lambda: price_of(CHECKED, Unit(), n_teachers=30, n_classes=3), 0),
    "an answer after a check": (lambda: price_of(CHECKED, Unit(), n_teachers=30, n_classes=3), 1),
}


@pytest.mark.parametrize("what", PRICES)
def test_an_old_ledger_is_continued_with_prices_of_today(kept, what):
    """What is written is what its version wrote, value by value, whatever a price knows by now."""
    path, state = kept
    make, kind = PRICES[what]
    price = make()
    ((n, item, _),) = price.terms
    cost = n * item.price(kind)
    assert isinstance(price, Price)
    with opened(path, state) as ledger:
        before = list(ledger.lines())
        schema = json.loads(before[0].body).get("schema", 2)
        # All that an older version has is paid by whoever is named.
        also = {name: price for name in ledger.accounts() if name.startswith("group/")}
        ticket = ledger.reserve("today", price, event={"noise": "secure"}, also=also)
        np.testing.assert_allclose(ledger.spent.values, np.array(state["spent"]) + price.values, rtol=1e-14)
        ledger.settle(ticket, Release(np.array([-1 if kind == 0 else 1]), Cost(cost)))
        new = [(line.kind, json.loads(line.body)) for line in list(ledger.lines())[len(before) :]]
    if schema < 3:
        # As a plain curve would be written: no line for the item, no bill, no ticks.
        assert [kind for kind, _ in new] == ["reserved", "settled"]
        (_, reserved), (_, settled) = new
        assert reserved.keys() - {"also"} == {"event", "mark", "price"}
        assert settled.keys() - {"also"} == {"release", "charged"}
        assert reserved["price"] == price.values.tolist()
        assert settled["charged"] == cost.values.tolist()
    else:
        event = ["event"] if schema >= 4 else []  # the part that repeats, in a line of its own
        assert [kind for kind, _ in new] == ["price", *event, "reserved", "settled"]
        (_, reserved), (_, settled) = new[-2:]
        assert reserved["price"].keys() == settled["charged"].keys() == {"bill"}
    with opened(path, state) as ledger:
        ledger.verify(state["head"])
        np.testing.assert_allclose(ledger.spent.values, np.array(state["spent"]) + cost.values, rtol=1e-14)
        assert type(ledger.spent) is Price
        assert (ledger.spent.ticks, ledger.spent.events) == (0, 0)


def test_an_old_ledger_is_not_opened_with_a_clock(kept):
    path, state = kept
    budget = Budget(state["epsilon"], state["delta"])
    with pytest.raises(LedgerConflict, match=r"the rule that .* was begun with, 'renyi', got 'clock'"):
        SqliteLedger(path, Accountant.by("clock", budget))
    with open_ledger(path) as ledger:
        assert (ledger.accountant.rule, ledger.verify()) == ("renyi", state["head"])


# --- A clock ledger, written by version 3 ---


@pytest.fixture
def clock(tmp_path):
    """Return a copy of a ledger on a clock, and what it must say."""
    path = tmp_path / "clock.db"
    shutil.copy(FIXTURES / "clock-3.db", path)
    return path, json.loads((FIXTURES / "clock-3.json").read_text())


def on_a_clock(said):
    return Accountant(
        Budget(said["epsilon"], said["delta"]), clock=Clock(said["kappa"], said["events"], said["tables"])
    )


def require_says(spent, accountant, said):
    paid = itemised(spent)
    assert accountant == on_a_clock(said)
    assert (paid.ticks, paid.events) == (said["ticks"], said["events_spent"])
    assert paid.values[:3].tolist() == said["spent"]
    assert accountant.left(spent) == 1 - said["ticks"] / said["start"]


def test_a_kept_clock_says_what_it_said(clock):
    path, state = clock
    with open_ledger(path) as ledger:
        assert ledger.verify() == state["head"]
        require_says(ledger.spent, ledger.accountant, state)
        accounts = ledger.accounts()
        assert list(accounts) == list(state["accounts"])
        for name, said in state["accounts"].items():
            require_says(accounts[name].spent, accounts[name].accountant, said)
        found = [
            {
                "key": entry.key,
                "event": entry.event,
                "is_settled": entry.is_settled,
                "ticks": itemised(entry.charged).ticks,
                "also": {name: itemised(paid.charged).ticks for name, paid in entry.also.items()},
                "labels": None if entry.release is None else entry.release.labels.tolist(),
            }
            for entry in ledger.entries()
        ]
        assert found == state["entries"]
        # Silence was charged less than an answer, and what is in flight all of its price.
        by_key = {entry["key"]: entry["ticks"] for entry in found}
        assert 0 < by_key["silent"] < by_key["in flight"]


def test_a_kept_clock_goes_on_by_the_tables_on_its_books(clock):
    path, state = clock
    with open_ledger(path) as ledger:
        asked = next(entry for entry in ledger.entries() if entry.key == "in flight")
        ((_, item, _),) = asked.reserved.terms
        n_lines = len(list(ledger.lines()))
        also = {"student/alice": item.price(), "group/low": item.price()}
        ticket = ledger.reserve("new", item.price(), event=asked.event, also=also)
        ledger.settle(ticket, Release(np.array([-1]), Cost(item.price(0))))
        # No line for an item that the books know.
        assert [line.kind for line in list(ledger.lines())[n_lines:]] == ["reserved", "settled"]
        spent, clock = ledger.spent, ledger.accounts()
        assert state["ticks"] < spent.ticks < state["ticks"] + asked.charged.ticks * 1.01
        assert clock["student/alice"].spent.ticks > state["accounts"]["student/alice"]["ticks"]
    with open_ledger(path) as ledger:
        assert ledger.verify(state["head"]) != state["head"]
        assert ledger.spent.ticks == spent.ticks
        in_flight = next(entry for entry in ledger.entries() if entry.key == "also in flight")
        with pytest.raises(LedgerConflict, match="not settled"):
            ledger.reserve(in_flight.key, in_flight.reserved, event=in_flight.event)
    for other in (
        Accountant(Budget(state["epsilon"], state["delta"])),
        Accountant(Budget(state["epsilon"], state["delta"]), clock=Clock(state["kappa"], 99)),
    ):
        with pytest.raises(LedgerConflict, match=r"the rule that|the clock that"):
            SqliteLedger(path, other)
