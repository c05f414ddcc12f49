"""Private costs are kept nowhere, or apart and encrypted."""

import builtins
import os
import pickle
import stat
import threading

import numpy as np
import pytest

from tellers import Accountant, Budget, Cost, RdpCurve, Release, Sealed, SqliteLedger
from tellers.errors import MissingExtra
from tellers.ledger import Vault

SECURE = {"noise": "secure"}
ONE = RdpCurve.zcdp(0.001)
TIGHT = RdpCurve.zcdp(0.000123456789)


@pytest.fixture
def vault(tmp_path):
    return Vault(tmp_path / "costs.sealed", Vault.new_key())


def test_a_ledger_puts_private_costs_into_its_vault_and_nowhere_else(tmp_path, vault):
    accountant = Accountant(Budget(epsilon=1.0, delta=1e-5))
    with SqliteLedger(tmp_path / "spend.db", accountant, vault=vault) as ledger:
        ticket = ledger.reserve("q0", ONE, event=SECURE)
        ledger.settle(ticket, Release(np.array([3]), Cost(ONE, Sealed(TIGHT))))
        ledger.settle(ledger.reserve("q1", ONE, event=SECURE), Release(np.array([3]), Cost(ONE)))
        assert ledger.find("q0").cost.tight is None
        content = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"123456" not in content
    costs = vault.read().reveal()
    assert list(costs) == ["q0"]
    np.testing.assert_array_equal(costs["q0"].values, TIGHT.values)
    assert pickle.loads(pickle.dumps(ledger)).vault == vault


def test_a_cost_that_cannot_be_sealed_keeps_no_other_from_being_told(tmp_path, vault, monkeypatch):
    with SqliteLedger(tmp_path / "spend.db", Accountant(Budget(1.0, 1e-5)), vault=vault) as ledger:
        tickets = [ledger.reserve(key, ONE, event=SECURE) for key in "abc"]
        put = Vault.put

        def full(self, key, cost):
            if key == "a":
                raise OSError("No space left.")
            put(self, key, cost)

        monkeypatch.setattr(Vault, "put", full)
        outcome = Release(np.array([3]), Cost(ONE, Sealed(TIGHT)))
        told = ledger.settle_all([(ticket, outcome, None) for ticket in tickets])
        assert [type(error) for error in told] == [OSError, type(None), type(None)]
        assert [ledger.find(key) is None for key in "abc"] == [False] * 3
    assert sorted(vault.read().reveal()) == ["b", "c"]


def test_only_its_owner_may_read_it_and_its_repr_keeps_the_key(vault):
    vault.put("q0", Sealed(ONE))
    assert stat.S_IMODE(vault.path.stat().st_mode) == 0o600
    assert vault.key not in repr(vault)


def test_without_the_key_it_cannot_be_read(vault):
    vault.put("q0", Sealed(ONE))
    with pytest.raises(ValueError, match=r"line 1 of costs\.sealed"):
        Vault(vault.path, Vault.new_key()).read()
    with pytest.raises(ValueError, match="44 letters") as refusal:
        Vault(vault.path, vault.key[:-3])
    assert vault.key[:10] not in str(refusal.value)


def test_a_changed_line_is_found(vault):
    vault.put("q0", Sealed(ONE))
    vault.put("q1", Sealed(ONE))
    lines = vault.path.read_bytes().splitlines()
    middle = len(lines[1]) // 2
    lines[1] = (
        lines[1][:middle] + (b"A" if lines[1][middle : middle + 1] != b"A" else b"B") + lines[1][middle + 1 :]
    )
    vault.path.write_bytes(b"\n".join(lines))
    with pytest.raises(ValueError, match="line 2"):
        vault.read()


def test_a_full_disk_is_said(vault, monkeypatch):
    write = os.write
    monkeypatch.setattr("tellers.ledger.vault.os.write", lambda file, token: write(file, token[:50]))
    with pytest.raises(OSError, match="cut short"):
        vault.put("q0", Sealed(ONE))


def test_several_writers_do_not_mix_their_lines(vault):
    def put(worker):
        for n in range(20):
            vault.put(f"{worker}-{n}", Sealed(ONE))

    threads = [threading.Thread(target=put, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(vault.read().reveal()) == 80


def test_a_missing_library_names_its_extra(monkeypatch, tmp_path):
    real = builtins.__import__

    def absent(name, *given, **named):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingExtra, match=r"tellers\[sealed\]"):
        Vault(tmp_path / "costs.sealed", "x")
