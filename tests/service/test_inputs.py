"""What is sent: too large, too deep, not JSON, not finite, not what was asked for. None of it is charged."""

import json
import time
from dataclasses import replace

import pytest

from tellers.service import LimitsConfig

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"", 422, "invalid"),
        (b"{", 400, "bad-request"),
        (b"\xff\xfe{}", 400, "bad-request"),
        (b"null", 422, "invalid"),
        (b"[]", 422, "invalid"),
        (b'"text"', 422, "invalid"),
        (b"{}", 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [0], "more": 1}', 422, "invalid"),
        (b'{"idempotency_key": "k"}', 422, "invalid"),
        (b'{"idempotency_key": "", "pool": [0]}', 422, "invalid"),
        (b'{"idempotency_key": "a b", "pool": [0]}', 422, "invalid"),
        (b'{"idempotency_key": "a\\r\\nSet-Cookie: x", "pool": [0]}', 422, "invalid"),
        (b'{"idempotency_key": "\\ud800", "pool": [0]}', 422, "invalid"),
        (b'{"idempotency_key": 7, "pool": [0]}', 422, "invalid"),
        (b'{"idempotency_key": "%s", "pool": [0]}' % (b"k" * 201), 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": []}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": null}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [5]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [-1]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [0.5]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": ["0"]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [true]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [NaN]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [Infinity]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [1e999]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [%s]}' % (b"9" * 6000), 400, "bad-request"),
        (b'{"idempotency_key": "k", "pool": [[0]]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [%s]}' % b",".join([b"0"] * 201), 422, "invalid"),
        (b'{"idempotency_key": "k", "rows": [[0.5]]}', 422, "invalid"),
        (b'{"idempotency_key": "k", "pool": [0], "student": [[1.0, 0.0, 0.0]]}', 422, "invalid"),
        (b"[" * 15_000, 400, "bad-request"),
        (b'{"a":' * 3_000 + b"1" + b"}" * 3_000, 400, "bad-request"),
        (b"[" + b"[]," * 6_000 + b"[]]", 400, "bad-request"),
        (b'"' + b"\\" * 19_000, 400, "bad-request"),
        (b" " * 20_001, 413, "too-large"),
    ],
)  # fmt: skip
def test_bad_bodies_are_refused_and_cost_nothing(shared_place, shared_client, anna, body, status, kind):
    refused = shared_client.post("/v1/labels", headers={**anna, **JSON}, content=body)
    assert refused.status_code == status
    assert refused.headers["content-type"] == "application/problem+json"
    said = refused.json()
    assert said["type"] == f"urn:tellers:problem:{kind}"
    assert {"title", "detail", "advice", "request_id"} <= set(said)
    assert said["status"] == status
    assert shared_place.spent() == 0


def test_a_body_without_a_length_is_counted_as_it_comes(place, alice):
    sent = []

    def endless():
        for _ in range(1000):
            sent.append(1)
            yield b" " * 1000

    with place.open() as client:
        refused = client.post("/v1/labels", headers={**alice, **JSON}, content=endless())
    assert refused.status_code == 413
    assert refused.headers["Connection"] == "close"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
def test_another_content_type_is_refused(place, alice, kind):
    body = json.dumps({"idempotency_key": "k", "pool": [0]})
    with place.open() as client:
        refused = client.post("/v1/labels", headers={**alice, "Content-Type": kind}, content=body)
        fine = client.post(
            "/v1/labels", headers={**alice, "Content-Type": "application/json; charset=utf-8"}, content=body
        )
    assert refused.status_code == 415
    assert fine.status_code == 200


def test_what_was_sent_is_not_sent_back(shared_place, shared_client, anna):
    secret = 0.7312845
    body = {"idempotency_key": "k", "pool": [secret], "feature": secret}
    refused = shared_client.post("/v1/labels", headers=anna, json=body)
    assert refused.status_code == 422
    assert str(secret) not in refused.text + shared_place.log.getvalue()


def test_mistakes_say_where_they_are(shared_client, anna):
    body = {"idempotency_key": "k", "pool": [0, 9]}
    said = shared_client.post("/v1/labels", headers=anna, json=body).json()
    assert said["mistakes"] == [{"where": "pool.1", "what": "Input should be less than or equal to 4"}]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "after=-1", "after=1e3", f"after={'9' * 40}"]
)
def test_bad_queries_are_refused(shared_client, anna, query):
    assert shared_client.get(f"/v1/releases?{query}", headers=anna).status_code == 422


def test_requests_of_strangers_are_not_read(shared_client):
    refused = shared_client.post("/v1/labels", headers=JSON, content=b" " * 1_000_000)
    assert refused.status_code == 401


def test_a_thousand_mistakes_are_told_as_one(place, alice, monkeypatch):
    monkeypatch.setattr(place, "settings", replace(place.settings, limits=LimitsConfig(max_batch=100_000)))
    body = json.dumps({"idempotency_key": "k", "pool": [None] * 100_000})
    took = []
    with place.open() as client:
        for _ in range(3):  # the quickest, as whatever else runs or is cleaned up is not its doing
            start = time.process_time()
            refused = client.post("/v1/labels", headers={**alice, **JSON}, content=body)
            took.append(time.process_time() - start)
    assert refused.status_code == 422
    assert len(refused.json()["mistakes"]) == 1
    assert min(took) < 0.3  # and not half a second, of everybody's


@pytest.mark.parametrize(
    "body",
    [
        '{"idempotency_key": "a", "idempotency_key": "b", "pool": [0]}',
        '{"idempotency_key": "a", "pool": [0], "p\\u006fol": [1]}',
        '{"idempotency_key": "a", "pool": [0], ' + ", ".join(f'"k{n}": 1' for n in range(1000)) + "}",
        '{"idempotency_key": "a", "pool": [0]}'.encode("utf-16"),
        '{"idempotency_key": "a", "pool": [0]}'.encode("utf-32-le"),
        '{"idempotency_key": "a", "pool": [0], "\\x": 1}',
    ],
    ids=["a name twice", "a name twice in other letters", "many names", "UTF-16", "UTF-32", "no escape"],
)
def test_what_readers_may_differ_on_is_refused(shared_place, shared_client, anna, body):
    refused = shared_client.post("/v1/labels", headers={**anna, **JSON}, content=body)
    assert refused.status_code == 400
    assert shared_place.spent() == 0.0


def test_a_long_name_is_not_sent_back(shared_client, anna):
    body = {"idempotency_key": "k", "pool": [0], "x" * 10_000: 1}
    refused = shared_client.post("/v1/labels", headers=anna, json=body)
    assert refused.status_code == 422
    assert len(refused.text) < 2000


def test_strangers_send_no_more_than_a_form_needs(place):
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    settings = replace(place.settings, limits=LimitsConfig())
    with replace(place, settings=settings).open() as client:
        for path in ("/dashboard/sign-in", "/dashboard/keys/revoke", "/dashboard/nowhere"):
            refused = client.post(path, headers=form, content=b"key=" + b"x" * 100_000)
            assert refused.status_code == 413
        for path in ("/v1/health", "/v1/health/"):
            refused = client.post(path, headers=JSON, content=b" " * 100_000)
            assert refused.status_code in (401, 413)


@pytest.mark.parametrize("end", [b"", b"\\", b'"', b'": 0}'])
def test_a_text_of_quotes_takes_nobodys_time(shared_place, shared_client, anna, end):
    body = b'"' + b'\\"' * 9_000 + end
    start = time.process_time()
    refused = shared_client.post("/v1/labels", headers={**anna, **JSON}, content=body)
    assert time.process_time() - start < 0.3
    assert refused.status_code in (400, 422)
    assert shared_place.spent() == 0.0
