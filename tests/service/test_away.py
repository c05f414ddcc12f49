"""What is answered while the books or the keys cannot be reached, and that it ends when they are back."""

import os
import re
import shutil
import time
from dataclasses import replace

import pytest

from tellers import open_ledger
from tellers.service import KeysConfig, LedgerConfig
from tellers.service._keys import KeyStore
from tellers.service._labels import StudentQuestion


def in_database(place, url):
    ledger = LedgerConfig(url=url, epsilon=2.0, delta=1e-5, timeout_seconds=1)
    return replace(place, settings=replace(place.settings, ledger=ledger, keys=KeysConfig(store=url)))


def require_unavailable(answer):
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:tellers:problem:unavailable"
    assert int(answer.headers["retry-after"]) > 0


def sign_in(client, token):
    form = re.search(r'name="form" value="(\w+)"', client.get("/dashboard/sign-in").text)
    return client.post("/dashboard/sign-in", data={"form": form[1], "key": token}, follow_redirects=False)


@pytest.mark.parametrize("error", [ConnectionError, TimeoutError, OSError])
@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("POST", "/v1/labels", "student"), ("GET", "/v1/budget", "student"),
        ("GET", "/v1/releases", "student"),
        ("GET", "/v1/ledger/verify", "auditor"), ("GET", "/metrics", "operator"),
    ],
)  # fmt: skip
def test_books_that_cannot_be_reached_are_said_to_be_away(
    shared_place, shared_client, monkeypatch, error, method, path, role
):
    who, ask = shared_place.bearer("somebody", role), shared_client.request
    ledger = shared_client.app.state.service.labels.ledger

    def away(*_words):
        raise error("postgresql://team:secret@db.example is away")

    for way in ("_look", "_commit", "_reading"):
        monkeypatch.setattr(ledger, way, away)
    given = {"json": {"idempotency_key": error.__name__, "pool": [0]}} if method == "POST" else {}
    answer = ask(method, path, headers=who, **given)
    require_unavailable(answer)
    assert "db.example" not in answer.text + shared_place.log.getvalue()
    monkeypatch.undo()
    assert ask(method, path, headers=who, **given).status_code == 200


def test_pages_say_it_too(place, monkeypatch):
    token = place.key("otto", "operator")
    with place.open() as client:
        assert sign_in(client, token).status_code == 303
        store = client.app.state.service.authenticator.store

        def away(_number):
            raise ConnectionError("db.example is away")

        monkeypatch.setattr(store, "_row", away)
        page = client.get("/dashboard", follow_redirects=False)
        assert page.status_code == 503
        assert page.headers["content-type"].startswith("text/html")
        assert "db.example" not in page.text
        monkeypatch.undo()
        assert client.get("/dashboard", follow_redirects=False).status_code == 200


def test_keys_that_are_gone_let_nobody_in(place, alice, tmp_path):
    with place.open() as client:
        assert client.get("/v1/budget", headers=alice).status_code == 200
        (tmp_path / "keys.db").rename(tmp_path / "away")
        require_unavailable(client.get("/v1/budget", headers=alice))
        assert not (tmp_path / "keys.db").exists()  # an empty one would hide that they are gone
        (tmp_path / "away").rename(tmp_path / "keys.db")
        assert client.get("/v1/budget", headers=alice).status_code == 200


def test_keys_put_in_place_of_others_are_those_that_count(place, alice, tmp_path):
    place.store.close()
    with place.open() as client:
        assert client.get("/v1/budget", headers=alice).status_code == 200
        shutil.copy(tmp_path / "keys.db", tmp_path / "restored.db")
        for log in ("-wal", "-shm"):
            if (tmp_path / f"keys.db{log}").exists():
                shutil.copy(tmp_path / f"keys.db{log}", tmp_path / f"restored.db{log}")
        other = KeyStore(str(tmp_path / "restored.db"))
        other.revoke(other.all()[0].id)
        other.close()
        for log in ("-wal", "-shm"):
            (tmp_path / f"keys.db{log}").unlink(missing_ok=True)
        os.replace(tmp_path / "restored.db", tmp_path / "keys.db")
        assert client.get("/v1/budget", headers=alice).status_code == 401


def once_back(ask):
    """Return the first answer that is not 503: a server that comes back may take more than its second."""
    until = time.monotonic() + 60
    while (answer := ask()).status_code == 503 and time.monotonic() < until:
        time.sleep(0.2)
    return answer


@pytest.mark.campaign
def test_a_database_that_freezes_ends_in_503_and_comes_back(place, postgres, own_database):
    there = in_database(place, own_database)
    alice = there.bearer("alice")

    def ask(key):
        return client.post("/v1/labels", headers=alice, json={"idempotency_key": key, "pool": [0]})

    with there.open() as client:
        service = client.app.state.service
        service.authenticator.store.close()  # which opens again, and waits no longer than a second:
        service.authenticator.store = KeyStore(own_database, timeout=1.0)
        assert ask("k1").status_code == 200
        frozen = postgres.freeze()
        try:
            start = time.monotonic()
            require_unavailable(client.get("/v1/budget", headers=alice))
            require_unavailable(ask("k2"))
            assert time.monotonic() - start < 30
        finally:
            postgres.thaw(frozen)
        assert once_back(lambda: ask("k1")).json()["replayed"]
        assert once_back(lambda: ask("k2")).status_code == 200
    assert own_database not in there.log.getvalue()


def test_a_database_that_stops_ends_in_503_and_comes_back(place, postgres, own_database):
    there = in_database(place, own_database)
    alice = there.bearer("alice")
    with there.open() as client:
        assert client.get("/v1/budget", headers=alice).status_code == 200
        postgres.stop()
        try:
            require_unavailable(client.get("/v1/budget", headers=alice))
        finally:
            postgres.start()
        assert once_back(lambda: client.get("/v1/budget", headers=alice)).status_code == 200


@pytest.mark.parametrize("opened", [KeyStore, open_ledger])
@pytest.mark.parametrize("url", ["mysql://team:secret@db/x", "sqlite:///x.db?p=secret", "http://u:secret@h"])
def test_other_databases_are_refused_without_their_password(opened, url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="postgresql://") as caught:
        opened(url)
    assert "secret" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_of_many_that_ask_again_only_one_waits_for_a_ledger_that_is_away(place, monkeypatch):
    """Those who are answered together would else wait one after the other, and be told after an hour."""
    alice, waited = place.bearer("alice"), []

    def away(key):
        waited.append(key)
        raise TimeoutError("Others hold it.")

    with place.open() as client:
        for key in ("k1", "k2", "k3"):
            asked = {"idempotency_key": key, "pool": [0]}
            assert client.post("/v1/labels", headers=alice, json=asked).status_code == 200
        labels = client.app.state.service.labels
        monkeypatch.setattr(labels.ledger, "asked", away)
        again = [StudentQuestion("alice", key, pool=[0]) for key in ("k1", "k2", "k3")]
        assert [type(found) for found in labels.ask_all(again)] == [TimeoutError] * 3
    assert waited == ["student/alice/k1"]
