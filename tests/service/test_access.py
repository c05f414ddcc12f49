"""Who may do what: every route with every role, wrong keys, revoked keys, and too many requests."""

import subprocess
import sys
import time

import pytest

from tellers.service import LimitsConfig
from tellers.service._keys import KeyStore
from tellers.service._middleware import Authenticator, Failures
from tellers.service._problems import HttpProblem
from tellers.service.dashboard._pages import is_page

QUESTION = {"idempotency_key": "k1", "pool": [0]}
ROUTES = {
    ("POST", "/v1/labels"): {"student"},
    ("GET", "/v1/budget"): {"student", "operator", "auditor"},
    ("GET", "/v1/releases"): {"student", "operator", "auditor"},
    ("GET", "/v1/ledger/verify"): {"operator", "auditor"},
    ("GET", "/v1/openapi.json"): {"student", "operator", "auditor"},
    ("GET", "/metrics"): {"operator"},
}


def send(client, method, path, headers=None):
    return client.request(method, path, headers=headers, json=QUESTION if method == "POST" else None)


def test_every_route_of_the_application_is_in_the_table_above(shared_client):
    routes = shared_client.app.routes
    there = {(m, r.path) for r in routes for m in getattr(r, "methods", ()) if m != "HEAD"}
    for router in routes:
        for route in getattr(getattr(router, "original_router", None), "routes", ()):
            there |= {(method, route.path) for method in route.methods if method != "HEAD"}
    # Pages have their own table, in test_dashboard.py.
    there = {(method, path) for method, path in there if not is_page(path)}
    assert there - {("GET", "/v1/health")} == set(ROUTES)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_without_a_key_nothing_opens(shared_place, shared_client, method, path):
    before = shared_place.spent()
    for headers in (
        None, {"Authorization": "Bearer"}, {"Authorization": "Basic YWxpY2U6"},
        {"Authorization": "Bearer tlr_x"}, {"Authorization": f"Bearer tlr_{'a' * 12}_{'b' * 43}"},
    ):  # fmt: skip
        refused = send(shared_client, method, path, headers)
        assert refused.status_code == 401
        assert refused.headers["WWW-Authenticate"].startswith("Bearer")
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["type"] == "urn:tellers:problem:no-key"
    assert shared_place.spent() == before


@pytest.mark.parametrize("role", ["student", "operator", "auditor"])
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_key_opens_what_its_role_may_do(shared_place, shared_client, role, method, path):
    headers, before = shared_place.bearer("somebody", role), shared_place.spent()
    answer = send(shared_client, method, path, headers)
    if role in ROUTES[(method, path)]:
        assert answer.status_code == 200
    else:
        assert answer.status_code == 403
        assert answer.json()["type"] == "urn:tellers:problem:wrong-role"
        assert shared_place.spent() == before


def test_health_needs_no_key_and_tells_nothing(shared_client):
    assert shared_client.get("/v1/health").json() == {"status": "ok"}


def test_a_path_that_is_not_there_is_a_problem_too(place, alice):
    with place.open() as client:
        assert client.get("/v1/nothing").status_code == 401
        missing = client.get("/v1/nothing", headers=alice)
        wrong = client.delete("/v1/labels", headers=alice)
    assert (missing.status_code, missing.json()["type"]) == (404, "urn:tellers:problem:not-found")
    assert (wrong.status_code, wrong.json()["type"]) == (405, "urn:tellers:problem:wrong-method")
    assert wrong.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    "path", ["/../ledger.db", "/v1/%2e%2e/keys.db", "/v1/..%2f..%2fledger.db", "/v1/budget/../../keys.db"]
)
def test_paths_lead_to_no_file(place, alice, path):
    with place.open() as client:
        answer = client.get(path, headers=alice)
    assert answer.status_code in (404, 400)


def test_a_revoked_key_opens_nothing_from_the_next_request_on(place):
    headers = place.bearer("alice")
    number = headers["Authorization"].split("_")[1]
    with place.open() as client:
        assert client.get("/v1/budget", headers=headers).status_code == 200
        store = place.store
        store.revoke(number)
        store.close()
        assert client.get("/v1/budget", headers=headers).status_code == 401


def test_a_revoked_key_asks_nothing_more_whatever_it_sends(place):
    headers = place.bearer("alice")
    with place.open() as client:
        said = {"headers": headers, "json": {"idempotency_key": "k", "pool": [0]}}
        assert client.post("/v1/labels", **said).status_code == 200
        store = place.store
        store.revoke(headers["Authorization"].split("_")[1])
        store.close()
        for sent in ({"json": {}}, {"content": b"{"}, {"content": b" " * 30_000}):
            refused = client.post("/v1/labels", headers=headers, **sent)
            assert (refused.status_code, refused.headers["connection"]) == (401, "close")


def test_a_key_that_is_revoked_before_its_question_ends_the_connection(place):
    headers = place.bearer("alice")
    with place.open() as client:
        said = {"headers": headers, "json": {"idempotency_key": "k", "pool": [0]}}
        assert client.post("/v1/labels", **said).status_code == 200
        store = place.store
        store.revoke(headers["Authorization"].split("_")[1])
        store.close()
        refused = client.post("/v1/labels", **said)
    assert (refused.status_code, refused.headers["connection"]) == (401, "close")


def test_a_forged_key_is_refused(place):
    token = place.key("alice")
    other = place.key("bob")
    start, _, _ = token.rpartition("_")
    head = "_".join(token.split("_")[:2])
    forged = [
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        f"{head}_{other.split('_', 2)[2]}",
        token.upper(), token + "=", token[:-1], f"{start}_",
    ]  # fmt: skip
    with place.open() as client:
        for word in forged:
            assert client.get("/v1/budget", headers={"Authorization": f"Bearer {word}"}).status_code == 401


def test_students_see_their_own_releases_and_operators_all(place, alice):
    bob, operator = place.bearer("bob"), place.bearer("otto", "operator")
    auditor = place.bearer("ada", "auditor")
    with place.open() as client:
        for headers, key, pool in ((alice, "a1", [0]), (bob, "b1", [1, 4]), (alice, "a2", [4])):
            client.post("/v1/labels", headers=headers, json={"idempotency_key": key, "pool": pool})
        mine = client.get("/v1/releases", headers=alice).json()
        every = client.get("/v1/releases", headers=operator).json()
        page = client.get("/v1/releases?limit=1&after=1", headers=auditor).json()
        verified = client.get("/v1/ledger/verify", headers=auditor).json()
        stands = client.get("/v1/budget", headers=operator).json()
    assert [r["idempotency_key"] for r in mine["releases"]] == ["a1", "a2"]
    assert [r["labels"] for r in mine["releases"]] == [[0], [2]]
    assert [(r["student"], r["n_queries"], r["labels"]) for r in every["releases"]] == [
        ("alice", 1, None), ("bob", 2, None), ("alice", 1, None),
    ]  # fmt: skip
    assert (page["total"], page["next"], page["releases"][0]["student"]) == (3, 2, "bob")
    assert (verified["intact"], verified["n_entries"]) == (True, 3)
    assert stands["accounts"] == {}
    assert stands["own"] is None


def test_a_changed_ledger_is_found(place):
    import sqlite3

    operator, alice = place.bearer("otto", "operator"), place.bearer("alice")
    with place.open() as client:
        client.post("/v1/labels", headers=alice, json=QUESTION)
    with sqlite3.connect(place.settings.place("ledger.db")) as file:
        file.execute("DROP TRIGGER never_changed")
        file.execute("UPDATE lines SET body = replace(body, 'GNMax', 'LNMax') WHERE kind = 'reserved'")
    with pytest.raises(Exception, match="chang"), place.open():
        pass
    assert operator


def test_too_many_requests_of_a_key(place):
    few = place.limited(requests_per_minute=3)
    alice, bob = few.bearer("alice"), few.bearer("bob")
    with few.open() as client:
        start = time.monotonic()
        codes = [client.get("/v1/budget", headers=alice).status_code for _ in range(4)]
        refused = client.get("/v1/budget", headers=alice)
        took = time.monotonic() - start
        other = client.get("/v1/budget", headers=bob)
    assert codes == [200, 200, 200, 429]
    assert refused.json()["type"] == "urn:tellers:problem:too-many"
    assert 59 - took <= int(refused.headers["Retry-After"]) <= 61  # a minute after the first
    assert other.status_code == 200


@pytest.mark.parametrize("sent", [{"json": {}}, {"content": b"{"}, {"content": b" " * 9_000_000}])
def test_what_is_no_question_counts_too(place, sent):
    few = place.limited(requests_per_minute=3)
    alice = few.bearer("alice")
    with few.open() as client:
        asked = client.post("/v1/labels", headers=alice, json={"idempotency_key": "k", "pool": [0]})
        codes = [client.post("/v1/labels", headers=alice, **sent).status_code for _ in range(4)]
    assert asked.status_code == 200
    assert 429 not in codes[:2]
    assert codes[2:] == [429, 429]


def test_too_many_wrong_keys_from_an_address(place):
    few = place.limited(failures_per_minute=2)
    alice, bob = few.bearer("alice"), few.bearer("bob")
    wrong = {"Authorization": f"Bearer tlr_{'a' * 12}_{'b' * 43}"}
    with few.open() as client:
        client.get("/v1/budget", headers=bob)
        codes = [client.get("/v1/budget", headers=wrong).status_code for _ in range(3)]
        known = client.get("/v1/budget", headers=bob)
        never_seen = client.get("/v1/budget", headers=alice)
    assert codes == [401, 401, 429]
    # Behind a proxy all have one address: a neighbour who guesses shuts out nobody who has a key.
    assert known.status_code == never_seen.status_code == 200


def test_wrong_keys_are_forgotten_with_their_minute():
    now = 0.0
    failures = Failures(2, clock=lambda: now)
    for n in range(1000):
        failures.add(f"192.0.2.{n}")
    failures.add("192.0.2.0")
    assert (len(failures), failures.wait("192.0.2.0"), failures.wait("192.0.2.1")) == (1000, 60, 0)
    now = 59.5
    assert failures.wait("192.0.2.0") == 1
    now = 60.0
    assert failures.wait("192.0.2.0") == 0
    failures.add("198.51.100.1")
    assert len(failures) == 1


def test_all_of_one_line_by_ipv6_is_one_address(place):
    store = place.store
    authenticator = Authenticator(store, LimitsConfig(failures_per_minute=2))
    codes = []
    for n in range(3):
        with pytest.raises(HttpProblem) as refused:
            authenticator.check("guess", f"2001:db8::{n}")
        codes.append(refused.value.status_code)
    store.close()
    assert codes == [401, 401, 429]


def test_too_many_wrong_secrets_of_one_key(place):
    few = place.limited(failures_per_minute=2)
    alice, bob = few.bearer("alice"), few.bearer("bob")
    number = alice["Authorization"].split("_")[1]
    wrong = {"Authorization": f"Bearer tlr_{number}_{'b' * 43}"}
    with few.open() as client:
        codes = [client.get("/v1/budget", headers=wrong).status_code for _ in range(4)]
        other = client.get("/v1/budget", headers=bob)
    assert codes == [401, 401, 429, 429]
    assert other.status_code == 200


def test_a_verified_key_is_not_hashed_again_for_a_minute(tmp_path, monkeypatch):
    store = KeyStore(str(tmp_path / "keys.db"))
    token, key = store.create("alice", "student")
    now, calls = [0.0], []
    verify = store.verify
    monkeypatch.setattr(store, "verify", lambda word: calls.append(word) or verify(word))
    authenticator = Authenticator(store, LimitsConfig(), clock=lambda: now[0])
    assert authenticator.verify(token) == authenticator.verify(token) == key
    assert len(calls) == 1
    now[0] = 61.0
    assert authenticator.verify(token) == key
    assert len(calls) == 2
    assert all(token.encode() not in mark for mark in authenticator._seen)
    store.revoke(key.id)
    assert authenticator.verify(token) is None
    store.close()


def test_a_minute_that_ends_while_a_question_waits_refuses_nobody(place, alice, monkeypatch):
    admit_all = Authenticator.admit_all

    def later(self, keys):
        monkeypatch.setattr(self, "clock", lambda: time.monotonic() + 61)
        return admit_all(self, keys)

    with place.open() as client:
        assert send(client, "POST", "/v1/labels", alice).status_code == 200
        monkeypatch.setattr(Authenticator, "admit_all", later)
        assert send(client, "POST", "/v1/labels", alice).status_code == 200


@pytest.mark.usefixtures("hashed_as_ever")
def test_an_unknown_id_takes_as_long_as_a_wrong_secret(tmp_path):
    # Medians of 7 of about 20 ms of a core each, whatever else the machine does; they would differ by a
    # factor of a hundred if one were not hashed.
    store = KeyStore(str(tmp_path / "keys.db"))
    token, _ = store.create("alice", "student")
    wrong, unknown = token[:-4] + "AAAA", f"tlr_{'a' * 12}_{'b' * 43}"
    store.verify(unknown)

    def median(word):
        times = []
        for _ in range(7):
            start = time.process_time()
            assert store.verify(word) is None
            times.append(time.process_time() - start)
        return sorted(times)[3]

    ratio = median(unknown) / median(wrong)
    assert 0.25 < ratio < 4
    store.close()


def test_only_hashes_of_keys_are_on_the_disk(tmp_path):
    store = KeyStore(str(tmp_path / "keys.db"))
    token, _ = store.create("alice", "student")
    store.close()
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"$argon2id$" in kept
    assert token.split("_", 2)[2].encode() not in kept
    assert (tmp_path / "keys.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "a/b", "alice\n", "ä", "x" * 65, "../x", "a b"])
def test_names_that_would_confuse_the_books_are_refused(tmp_path, name):
    store = KeyStore(str(tmp_path / "keys.db"))
    with pytest.raises(ValueError, match="name"):
        store.create(name, "student")
    store.close()


def test_a_second_store_of_a_process_leaves_the_locks_of_the_first(tmp_path):
    # Closing a file takes the locks of a process on it: another program then removes the log that is in use.
    place = str(tmp_path / "keys.db")
    words = (
        f"import sqlite3; c = sqlite3.connect({place!r}); "
        "print(c.execute('SELECT revoked FROM tellers_keys').fetchall()); c.close()"
    )

    def seen_by_another_program():
        return subprocess.run(
            [sys.executable, "-c", words], check=True, capture_output=True, text=True
        ).stdout

    first = KeyStore(place)
    _, key = first.create("alice", "student")
    second = KeyStore(place)
    assert seen_by_another_program() == "[(None,)]\n"
    revoked = first.revoke(key.id).revoked
    assert seen_by_another_program() == f"[({revoked!r},)]\n"
    first.close()
    second.close()
