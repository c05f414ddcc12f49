"""The same service with its ledger and its keys in PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tellers import Budget, RdpCurve
from tellers.service import KeysConfig, LedgerConfig
from tellers.service._keys import KeyStore


def test_books_and_keys_in_one_database(place, own_database):
    ledger = LedgerConfig(url=own_database, name="labels", epsilon=2.0, delta=1e-5)
    there = replace(
        place, settings=replace(place.settings, ledger=ledger, keys=KeysConfig(store=own_database))
    )
    headers = {name: there.bearer(name) for name in ("alice", "bob", "carol", "dave")}
    erin = there.bearer("erin", budget=Budget(epsilon=0.3, delta=1e-5))
    auditor = there.bearer("ada", "auditor")

    def ask(client, who, key, pool):
        return client.post("/v1/labels", headers=who, json={"idempotency_key": key, "pool": pool})

    with there.open() as client, there.open() as second:  # two servers over one ledger
        first = ask(client, headers["alice"], "k1", [0, 1, 4]).json()
        assert first["labels"] == [0, 1, 2]
        assert ask(second, headers["alice"], "k1", [0, 1, 4]).json()["replayed"]
        own = client.get("/v1/budget", headers=erin).json()["own"]["queries_left"]
        assert ask(second, erin, "k1", [0] * (own + 1)).status_code == 402

        def work(name):
            clients = (client, second)
            return [ask(clients[i % 2], headers[name], f"w{i}", [0] * 150).status_code for i in range(6)]

        with ThreadPoolExecutor(4) as pool:
            codes = [code for done in pool.map(work, headers) for code in done]
        assert set(codes) <= {200, 402}
        left = client.get("/v1/budget", headers=auditor).json()["data"]
        assert left["epsilon_spent"] <= 2.0
        assert codes.count(200) >= 1
        assert client.get("/v1/ledger/verify", headers=auditor).json()["intact"]
        number = headers["bob"]["Authorization"].split("_")[1]
        store = there.store
        store.revoke(number)
        store.close()
        assert second.get("/v1/budget", headers=headers["bob"]).status_code == 401
    assert own_database not in there.log.getvalue()


def test_a_database_that_is_not_there_is_said_without_its_password():
    with pytest.raises(OSError, match="Is it there") as caught:
        KeyStore("postgresql://team:very-secret@127.0.0.1:1/labels")
    assert "very-secret" not in str(caught.value)


def test_a_key_of_half_a_character_is_shown_all_the_same(place, own_database):
    ledger = LedgerConfig(url=own_database, epsilon=2.0, delta=1e-5)
    there = replace(place, settings=replace(place.settings, ledger=ledger))
    operator = there.bearer("otto", "operator")
    with there.ledger() as books:
        books.reserve("run/\udcff", RdpCurve.zcdp(1e-6), event={"noise": "secure", "n_queries": 1})
    with there.open() as client:
        said = client.get("/v1/releases", headers=operator)
    assert said.json()["releases"][0]["idempotency_key"] == "run/\\udcff"
