"""What every response carries, what the log holds, and that neither says anything private."""

import json
import re


def test_every_response_has_its_headers(place, alice):
    with place.open() as client:
        for answer in (
            client.get("/v1/health"), client.get("/v1/budget", headers=alice), client.get("/v1/budget"),
            client.get("/nothing", headers=alice), client.post("/v1/labels", headers=alice, content=b"{"),
        ):  # fmt: skip
            headers = answer.headers
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["X-Frame-Options"] == "DENY"
            assert headers["Content-Security-Policy"].startswith("default-src 'none'")
            assert headers["Referrer-Policy"] == "no-referrer"
            assert headers["Cache-Control"] == "no-store"
            assert re.fullmatch("[0-9a-f]{16}", headers["X-Request-ID"])
            assert "server" not in headers
            assert "Strict-Transport-Security" not in headers  # this one speaks no TLS
            assert not [name for name in headers if name.startswith("access-control")]


def test_other_origins_are_told_nothing(place, alice):
    with place.open() as client:
        asked = client.options(
            "/v1/labels",
            headers={"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"},
        )
        got = client.get("/v1/budget", headers={**alice, "Origin": "https://elsewhere.example"})
    assert asked.status_code == 401
    assert "access-control-allow-origin" not in got.headers


def test_the_log_says_who_and_what_but_not_the_content(place, alice):
    with place.open() as client:
        client.post("/v1/labels", headers=alice, json={"idempotency_key": "my-own-name", "pool": [0, 3]})
        client.get("/v1/releases?limit=17", headers=alice)
        client.get("/v1/nothing/17393", headers=alice)
        client.get("/v1/budget", headers={"Authorization": "Bearer not-a-key-at-all"})
    lines = [json.loads(line) for line in place.log.getvalue().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    number = alice["Authorization"].split("_")[1]
    assert [(r["method"], r["path"], r["status"], r["key"]) for r in requests] == [
        ("POST", "/v1/labels", 200, number), ("GET", "/v1/releases", 200, number),
        ("GET", "unknown", 404, number), ("GET", "unknown", 401, None),
    ]  # fmt: skip
    known = {"event", "level", "timestamp", "method", "path", "status", "key", "request_id", "milliseconds"}
    assert all(set(request) == known for request in requests)
    log = place.log.getvalue()
    for word in ("my-own-name", "not-a-key-at-all", "Bearer", "limit", 'labels":', "alice"):
        assert word not in log


def test_the_scan_would_find_a_leak(find_leaks):
    # Each test of this folder ends with it; it must be able to fail.
    assert find_leaks('{"count": 17393}')
    assert find_leaks("gap 15922 votes")
    assert not find_leaks('{"epsilon": 0.0017393, "request_id": "a17393f"}')


def test_metrics_count_what_is_public(place, alice):
    operator = place.bearer("otto", "operator")
    with place.open() as client:
        client.post("/v1/labels", headers=alice, json={"idempotency_key": "k1", "pool": [0, 1]})
        client.post("/v1/labels", headers=alice, json={"idempotency_key": "k1", "pool": [0, 1]})
        text = client.get("/metrics", headers=operator).text
    assert 'tellers_labels_total{outcome="answered"} 2.0' in text
    assert 'tellers_requests_total{method="POST",route="/v1/labels",status="200"} 2.0' in text
    assert f"tellers_epsilon_spent {place.spent()}" in text
