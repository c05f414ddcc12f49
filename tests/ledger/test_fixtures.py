"""Ledgers that earlier versions wrote are opened, verified and read by this one, and go on."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, RdpCurve, Release, SqliteLedger
from tellers.ledger._chain import READABLE

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
        np.testing.assert_array_equal(ledger.spent.values, state["spent"])
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
            np.testing.assert_array_equal(accounts[name].spent.values, said["spent"])


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
