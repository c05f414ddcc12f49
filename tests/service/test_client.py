"""The client: retries reuse the key, refusals become errors, and the key is never shown."""

import httpx
import numpy as np
import pytest

from tellers.errors import BudgetExhausted, LedgerConflict, TellersError, Unsettled
from tellers.service import Client
from tellers.service.client import ServiceError

URL = "http://127.0.0.1:8420"


class Flaky(httpx.BaseTransport):
    """Passes requests on to a service, and loses them on the way there or the answers on the way back."""

    def __init__(self, client, faults):
        self.client, self.faults, self.keys = client, list(faults), []

    def handle_request(self, request):
        import json

        if request.content:
            self.keys.append(json.loads(request.content)["idempotency_key"])
        fault = self.faults.pop(0) if self.faults else None
        if fault == "lost":
            raise httpx.ConnectError("nobody there", request=request)
        headers = {name: value for name, value in request.headers.items() if name != "host"}
        answer = self.client.request(
            request.method, request.url.raw_path.decode(), headers=headers, content=request.content
        )
        if fault == "cut":  # it was asked, answered and charged, and the answer never came
            raise httpx.ReadError("connection reset", request=request)
        if isinstance(fault, int):
            return httpx.Response(fault, headers={"Retry-After": "7"} if fault == 429 else {})
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def connect(place, service, name="alice", *, faults=(), retries=4):
    waits = []
    flaky = Flaky(service, faults)
    client = Client(URL, place.key(name), transport=flaky, retries=retries, sleep=waits.append)
    return client, flaky, waits


def test_labels_by_id(place):
    with place.open() as service:
        client, _, waits = connect(place, service)
        answer = client.ask(pool=np.array([0, 1, 4]), key="k1")
        again = client.ask(pool=[0, 1, 4], key="k1")
    assert answer.labels.tolist() == again.labels.tolist() == [0, 1, 2]
    assert answer.answered.all()
    assert (answer.replayed, again.replayed) == (False, True)
    assert answer.left.epsilon_spent == place.spent() == answer.epsilon
    assert waits == []


@pytest.mark.parametrize("faults", [["lost", "lost"], ["cut", "lost", 503], [500, "cut"], [429]])
def test_what_fails_is_tried_again_under_the_same_key_and_charged_once(place, faults):
    with place.open() as service:
        client, flaky, waits = connect(place, service, faults=faults)
        answer = client.ask(pool=[0, 3])
        spent = place.spent()
    assert len(set(flaky.keys)) == 1
    assert len(flaky.keys) == len(faults) + 1
    assert len(waits) == len(faults)
    assert spent == answer.epsilon  # once, whatever was lost on the way
    if faults == [429]:
        assert waits == [7.0]
    else:
        assert 0 < waits[0] < waits[-1] * 4


def test_two_calls_without_a_key_are_two_questions(place):
    with place.open() as service:
        client, flaky, _ = connect(place, service)
        client.ask(pool=[0])
        client.ask(pool=[0])
    assert len(set(flaky.keys)) == 2


def test_it_gives_up(place):
    with place.open() as service:
        client, flaky, waits = connect(place, service, faults=["lost"] * 9, retries=2)
        with pytest.raises(ServiceError, match="No answer") as caught:
            client.ask(pool=[0])
    assert caught.value.status == 0
    assert (len(flaky.keys), len(waits)) == (3, 2)


def test_refusals_are_the_errors_of_the_library(place):
    with place.open() as service:
        client, _, waits = connect(place, service)
        client.ask(pool=[0], key="k1")
        with pytest.raises(LedgerConflict, match="another question"):
            client.ask(pool=[1], key="k1")
        with pytest.raises(ValueError, match=r"pool\.0"):
            client.ask(pool=[99])
        left = client.budget()["data"]["queries_left"]
        for number in range(left // 200):
            client.ask(pool=[0] * 200, key=f"many-{number}")
        with pytest.raises(BudgetExhausted, match="pays for") as caught:
            client.ask(pool=[0] * 200, key="one-too-many")
        assert caught.value.account is None
        with place.ledger() as ledger:
            price = service.app.state.service.labels.price
            ledger.reserve("student/alice/lost", price, event={"noise": "secure", "n_queries": 1})
        with pytest.raises(Unsettled, match="charge stands"):
            client.ask(pool=[0], key="lost")
        operator, _, _ = connect(place, service, "bob")
        operator._http.headers["Authorization"] = f"Bearer {place.key('otto', 'operator')}"
        with pytest.raises(ServiceError, match="role student") as refused:
            operator.ask(pool=[0])
    assert refused.value.status == 403
    assert waits == []  # none of these gets better by trying again


def test_releases_are_read_page_by_page(place, monkeypatch):
    with place.open() as service:
        client, _, _ = connect(place, service)
        for number in range(3):
            client.ask(pool=[number], key=f"k{number}")
        call = client._call
        monkeypatch.setattr(
            client, "_call", lambda method, path, params: call(method, path, params={**params, "limit": 2})
        )
        found = client.releases()
    assert [one["idempotency_key"] for one in found] == ["k0", "k1", "k2"]


def test_something_else_at_the_address_is_said_so():
    strange = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>hello</html>"))
    with pytest.raises(ServiceError, match="something else"):
        Client(URL, "tlr_x", transport=strange).ask(pool=[0])
    moved = httpx.MockTransport(
        lambda request: httpx.Response(302, headers={"Location": "http://evil.example"})
    )
    with pytest.raises(ServiceError, match="302"):
        Client(URL, "tlr_x", transport=moved).ask(pool=[0])


def test_the_key_is_not_shown():
    client = Client(URL, "tlr_abcdefghijkl_verysecret", retries=0, timeout=0.2)
    assert "verysecret" not in repr(client)
    with pytest.raises(TellersError) as caught:
        Client("http://127.0.0.1:1", "tlr_abcdefghijkl_verysecret", retries=0, timeout=0.2).budget()
    assert "verysecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "key", "words"),
    [
        ("ftp://x", "tlr_x", "address"),
        ("labels.example.org", "tlr_x", "address"),
        ("http://labels.example.org", "tlr_x", "https"),
        (URL, "", "key"),
        (URL, "tlr_x\r\nHost: evil", "key"),
        (URL, "tlr_é", "key"),
    ],
)
def test_what_cannot_be_is_refused_at_once(url, key, words):
    with pytest.raises(ValueError, match=words):
        Client(url, key)


@pytest.mark.parametrize("rows", [[1.0, 2.0], [["a"]], [[float("nan")]], np.zeros((1, 1), dtype=complex)])
def test_rows_that_cannot_be_sent_are_refused_here(rows):
    with pytest.raises(ValueError, match="rows"):
        Client(URL, "tlr_x").ask(rows)


GOOD = {
    "labels": [1], "by_teachers": [True], "replayed": False, "charge": {"epsilon": 0.1, "delta": 1e-5},
    "left": {"epsilon": 1, "delta": 1e-5, "epsilon_spent": 0, "epsilon_left": 1, "queries_left": 3},
}  # fmt: skip


def answered(**options):
    transport = httpx.MockTransport(lambda _request: httpx.Response(200, **options))
    client = Client("http://127.0.0.1:1", "tlr_x", transport=transport, sleep=lambda _: None)
    return client.ask(pool=[0], key="k1")


@pytest.mark.parametrize(
    "options",
    [
        {"json": {"labels": [1]}},
        {"json": {**GOOD, "labels": ["x"]}},
        {"json": {**GOOD, "labels": [1, 2], "by_teachers": [True, True]}},
        {"json": {**GOOD, "by_teachers": []}},
        {"json": {**GOOD, "left": {}}},
        {"headers": {"Content-Encoding": "gzip"}, "content": b"junk"},
    ],
)
def test_an_answer_to_something_else_is_said_so(options):
    with pytest.raises(ServiceError, match="the same key"):
        answered(**options)


def test_a_newer_service_may_say_more():
    said = {**GOOD, "left": {**GOOD["left"], "more": 1}, "own": {**GOOD["left"], "more": 1}, "more": 1}
    assert answered(json=said).own.queries_left == 3


@pytest.mark.parametrize(
    "url",
    [
        "https://team:secret@labels.example.org",
        "https://[::1",
        "http://127.0.0.1:x",
        "http://127.0.0.1:99999",
    ],
)
def test_addresses_that_cannot_be_are_refused_without_being_quoted(url):
    with pytest.raises(ValueError, match="Expected an address") as caught:
        Client(url, "tlr_x")
    assert "secret" not in str(caught.value)


def test_a_key_that_is_not_encrypted_goes_by_way_of_no_proxy(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    assert not Client("http://127.0.0.1:1", "tlr_x")._http._mounts
    assert Client("https://labels.example.org", "tlr_x")._http._mounts  # a tunnel, which reads nothing
