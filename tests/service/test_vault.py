"""A service with a vault: exact costs go into it, encrypted, and nowhere else; without one there are none."""

import json
import os
import re
import threading
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers import GNMax, Votes
from tellers.accounting import exact_cost
from tellers.errors import ConfigError
from tellers.ledger import Vault
from tellers.ledger.vault import write_key
from tellers.service import VaultConfig, create_app, parse_settings
from tellers.service._ledger import open_vault

ASKED = {"a": [0], "b": [1, 4, 3], "c": [2] * 7}


@pytest.fixture
def sealed(place, tmp_path):
    write_key(tmp_path / "vault.key")
    chosen = VaultConfig(path="costs.sealed", key_file="vault.key")
    return replace(place, settings=replace(place.settings, vault=chosen))


def ask_all(client, headers):
    return [
        client.post("/v1/labels", headers=headers, json={"idempotency_key": key, "pool": pool}).status_code
        for key, pool in ASKED.items()
    ]


def test_exact_costs_are_in_the_vault_and_in_nothing_else(sealed, tmp_path, digits):
    alice, operator = sealed.bearer("alice"), sealed.bearer("otto", "operator")
    auditor = sealed.bearer("ada", "auditor")
    with sealed.open() as client:
        assert ask_all(client, alice) == [200] * 3
        ask_all(client, alice)  # on record: nothing is sealed twice
        for who in (alice, operator, auditor):
            for path in ("/v1/budget", "/v1/releases", "/v1/ledger/verify", "/metrics", "/v1/openapi.json"):
                client.get(path, headers=who)
        client.post("/dashboard/login", data={"key": operator["Authorization"].split(" ")[1]})
        client.get("/dashboard")
    # The end of the service waits for the vault.
    assert len((tmp_path / "costs.sealed").read_bytes().splitlines()) == 3
    key = (tmp_path / "vault.key").read_text().strip()
    costs = Vault(tmp_path / "costs.sealed", key).read().reveal()
    assert sorted(costs) == ["student/alice/a", "student/alice/b", "student/alice/c"]
    with np.load(tmp_path / "votes.npz") as file:
        votes = Votes.from_counts(file["counts"], n_teachers=20_011)
    for name, pool in ASKED.items():
        expected = exact_cost(GNMax(sigma=150.0), votes[np.array(pool)]).cost.reveal()
        np.testing.assert_allclose(costs[f"student/alice/{name}"].values, expected.values)
    total = sum(costs.values(), start=0 * next(iter(costs.values())))
    numbers = {v for cost in (*costs.values(), total) for v in (cost.epsilon(1e-5), *cost.values) if v > 0}
    words = [digits(value) for value in numbers]
    assert len(words) > 50
    said = "\n".join(sealed.heard) + sealed.log.getvalue()
    said += "".join(
        file.read_bytes().decode("latin-1") for file in tmp_path.iterdir() if file.name.endswith(".db")
    )
    assert not [word for word in words if re.search(word, said)]
    assert key not in said
    # The scan can fail: all of them would be found where they are.
    plain = json.dumps([cost.values.tolist() for cost in (*costs.values(), total)])
    assert sum(bool(re.search(word, plain)) for word in words) >= len(words) - 4


def test_without_a_vault_nothing_is_computed_or_kept(place, alice, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tellers.runs.room.exact_cost", lambda *_, **__: pytest.fail("an exact cost was computed")
    )
    with place.open() as client:
        assert ask_all(client, alice) == [200] * 3
    assert not list(tmp_path.glob("*.sealed"))


def test_no_answer_waits_for_its_exact_cost(sealed, monkeypatch):
    """How long that takes depends on the votes."""
    alice, go = sealed.bearer("alice"), threading.Event()

    def slow(*given, **named):
        assert go.wait(60)
        return exact_cost(*given, **named)

    monkeypatch.setattr("tellers.runs.room.exact_cost", slow)
    with sealed.open() as client:
        assert ask_all(client, alice) == [200] * 3
        assert open_vault(sealed.settings).read().reveal() == {}
        go.set()
    assert len(open_vault(sealed.settings).read().reveal()) == 3


def test_a_vault_that_fails_later_is_logged_without_words_and_answers_go_on(sealed, monkeypatch):
    alice = sealed.bearer("alice")
    monkeypatch.setattr(
        "tellers.ledger.vault.Vault.put", lambda *_: (_ for _ in ()).throw(OSError("17393 is full"))
    )
    with sealed.open() as client:
        assert ask_all(client, alice) == [200] * 3
    lines = [json.loads(line) for line in sealed.log.getvalue().splitlines()]
    assert [line["error"] for line in lines if line["event"] == "not in the vault"] == ["OSError"] * 3


def test_the_key_may_come_from_the_environment(place, monkeypatch, tmp_path):
    key = Vault.new_key()
    settings = replace(place.settings, vault=VaultConfig(path="costs.sealed", key_env="MY_VAULT_KEY"))
    with pytest.raises(ConfigError, match="MY_VAULT_KEY, got none"):
        open_vault(settings)
    monkeypatch.setenv("MY_VAULT_KEY", key)
    assert open_vault(settings).key == key
    assert os.stat(tmp_path / "costs.sealed").st_mode & 0o077 == 0


def test_a_service_does_not_begin_with_a_vault_it_cannot_use(sealed, tmp_path):
    open_vault(sealed.settings).put(
        "q0", exact_cost(GNMax(3.0), Votes.from_counts([[2, 1]], n_teachers=3)).cost
    )
    (tmp_path / "vault.key").unlink()
    with pytest.raises(ConfigError, match="could not read it"):
        create_app(sealed.settings)
    write_key(tmp_path / "vault.key")
    with pytest.raises(ConfigError, match="Use the key it was written with"):
        create_app(sealed.settings)
    (tmp_path / "vault.key").chmod(0o640)
    with pytest.raises(ConfigError, match=r"mode 0640.*chmod 600"):
        create_app(sealed.settings)
    (tmp_path / "vault.key").chmod(0o600)
    (tmp_path / "vault.key").write_text("not a key")
    with pytest.raises(ConfigError, match="44 letters") as caught:
        create_app(sealed.settings)
    assert "not a key" not in str(caught.value)
    nowhere = replace(sealed.settings, vault=VaultConfig(path="no/such/folder/x", key_file="vault.key"))
    (tmp_path / "vault.key").write_text(Vault.new_key())
    with pytest.raises(ConfigError, match="Expected a vault at"):
        create_app(nowhere)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('path = "costs.sealed"', "got none"),
        ('path = "costs.sealed"\nkey_file = "k"\nkey_env = "K"', "got both"),
        ('key_file = "k"', "the file of the vault beside its key"),
        ('path = "x"\nkey = "y"', "Unknown option"),
    ],
)
def test_settings_that_do_not_go_together(lines, words):
    with pytest.raises(ConfigError) as caught:
        parse_settings(f"[vault]\n{lines}\n")
    assert words in str(caught.value)


def test_a_key_in_the_settings_is_refused_and_not_repeated():
    key = Vault.new_key()
    with pytest.raises(ConfigError, match="no place for it") as caught:
        parse_settings(f'[vault]\npath = "costs.sealed"\nkey_env = "{key}"\n')
    assert key[:10] not in str(caught.value)
