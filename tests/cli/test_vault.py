"""`tellers ledger vault` and `vault-key`: for the operator, and loudly private."""

import json
import os

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers import (
    Accountant,
    Budget,
    DependentBinary,
    GNMax,
    LabelVotes,
    NoisyHistogram,
    Room,
    SqliteLedger,
    Votes,
    noise,
)
from tellers.accounting import exact_cost
from tellers.cli import main
from tellers.ledger import Vault
from tellers.ledger.vault import read_key

VOTES = Votes.from_counts([[240, 6, 4], [130, 118, 2], [250, 0, 0]], n_teachers=250)
BUDGET = Budget(epsilon=9.0, delta=1e-5)


class Pool:
    def vote(self, ids):
        return VOTES[np.asarray(ids)]


@pytest.fixture
def tellers(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("TELLERS_VAULT_KEY", raising=False)

    def run(*words):
        with pytest.raises(SystemExit) as done:
            main(["ledger", *(str(word) for word in words)])
        said = capsys.readouterr()
        return done.value.code, said.out, said.err

    return run


@pytest.fixture
def filled(tellers, tmp_path):
    """A ledger of three questions, two of which are in the vault: a histogram has no exact cost."""
    assert tellers("vault-key", "vault.key")[0] == 0
    vault = Vault(tmp_path / "costs.sealed", read_key(file="vault.key"))
    with SqliteLedger(tmp_path / "spend.db", Accountant(BUDGET), vault=vault) as ledger:
        for key, mechanism in (("a", GNMax(20.0)), ("b", GNMax(20.0)), ("c", NoisyHistogram(40.0))):
            Room(Pool(), mechanism, ledger, noise.secure()).ask([0, 1], key=key)
        return ledger.spent.epsilon(1e-5), NoisyHistogram(40.0)


def test_an_upper_bound_is_not_called_exact(tellers, tmp_path):
    class Tagged:
        n_labels = 2

        def vote(self, X):
            return LabelVotes.from_ballots(np.zeros((20, len(X), 2), dtype=int), n_labels=2)

    assert tellers("vault-key", "vault.key")[0] == 0
    vault = Vault(tmp_path / "costs.sealed", read_key(file="vault.key"))
    with SqliteLedger(tmp_path / "spend.db", Accountant(BUDGET), vault=vault) as ledger:
        follows = DependentBinary(20.0, 2, negative=((0, 1),))
        Room(Tagged(), follows, ledger, noise.secure()).ask([0, 1], key="a")
    words = ("vault", "spend.db", "--vault", "costs.sealed", "--key-file", "vault.key")
    told = json.loads(tellers(*words, "--json")[1])
    assert (told["n_in_vault"], told["exact_kind"]) == (1, "upper bound")
    shown = " ".join(tellers(*words)[1].split())
    assert "upper bound, at these very votes" in shown
    assert "exact, at these" not in shown


def test_a_key_is_for_its_owner_alone_and_never_written_over(tellers, tmp_path):
    before = os.umask(0)
    try:
        code, out, _ = tellers("vault-key", "vault.key", "--json")
    finally:
        os.umask(before)
    assert (code, json.loads(out)) == (0, {"file": "vault.key"})
    assert (tmp_path / "vault.key").stat().st_mode & 0o777 == 0o600
    key = (tmp_path / "vault.key").read_text()
    code, out, err = tellers("vault-key", "vault.key")
    assert (code, out) == (2, "")
    assert "can never be read" in err
    assert (tmp_path / "vault.key").read_text() == key
    one, other = (tellers("vault-key")[1].strip() for _ in range(2))
    assert len(one) == len(other) == 44
    assert one != other


def test_the_exact_cost_is_shown_loudly_as_private(tellers, filled):
    charged, _ = filled
    code, out, _ = tellers(
        "vault", "spend.db", "--vault", "costs.sealed", "--key-file", "vault.key", "--json"
    )
    told = json.loads(out)
    assert code == 0
    assert (told["private"], told["n_questions"], told["n_in_vault"]) == (True, 3, 2)
    assert "PRIVATE" in told["warning"]
    assert told["is_guarantee"] is False
    exact = 2 * exact_cost(GNMax(20.0), VOTES[np.array([0, 1])]).cost.reveal()
    from tellers import Unit

    expected = (exact + 2 * NoisyHistogram(40.0).price(Unit())).epsilon(1e-5)
    assert told["exact_epsilon"] == pytest.approx(expected, rel=1e-9)
    assert told["charged_epsilon"] == charged > told["exact_epsilon"]
    assert told["exact_kind"] == "exact"
    code, out, _ = tellers("vault", "spend.db", "--vault", "costs.sealed", "--key-file", "vault.key")
    assert code == 0
    assert "private: do not publish" in out
    assert "PRIVATE: these numbers look at the votes" in out
    assert "2 of 3 questions" in out
    assert "what may be stated is the public one" in " ".join(out.replace("│", " ").split())


def test_the_key_from_the_environment_and_wrong_ones(tellers, filled, monkeypatch, tmp_path):
    words = ("vault", "spend.db", "--vault", "costs.sealed")
    code, _, err = tellers(*words)
    assert code == 2
    assert "TELLERS_VAULT_KEY, got none" in err
    monkeypatch.setenv("TELLERS_VAULT_KEY", read_key(file="vault.key"))
    assert tellers(*words, "--json")[0] == 0
    monkeypatch.setenv("TELLERS_VAULT_KEY", Vault.new_key())
    code, out, err = tellers(*words)
    assert (code, out) == (2, "")
    assert "Use the key it was written with" in err
    assert os.environ["TELLERS_VAULT_KEY"] not in err
    (tmp_path / "vault.key").chmod(0o644)
    code, _, err = tellers(*words, "--key-file", "vault.key")
    assert code == 2
    assert "mode 0644" in err


def test_a_vault_that_is_not_there_or_belongs_elsewhere(tellers, filled, tmp_path):
    code, _, err = tellers("vault", "spend.db", "--vault", "nowhere", "--key-file", "vault.key")
    assert code == 2
    assert "found none" in err
    with SqliteLedger(tmp_path / "other.db", Accountant(BUDGET)) as ledger:
        Room(Pool(), GNMax(20.0), ledger, noise.secure()).ask([0], key="z")
    code, _, err = tellers("vault", "other.db", "--vault", "costs.sealed", "--key-file", "vault.key")
    assert code == 2
    assert "knows none of its questions" in err


def test_no_other_command_shows_what_is_in_the_vault(tellers, filled):
    exact = 2 * exact_cost(GNMax(20.0), VOTES[np.array([0, 1])]).cost.reveal()
    said = "".join(tellers(*words, "--json")[1] for words in (("status", "spend.db"), ("list", "spend.db")))
    assert exact.epsilon(1e-5) > 0
    assert str(exact.epsilon(1e-5))[:9] not in said
