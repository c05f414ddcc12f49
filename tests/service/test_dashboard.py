"""The dashboard without a browser: who gets in, what forms are refused, and what pages say and do not say."""

import hashlib
import json
import re
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.routing import Route

from tellers import Accountant, Budget, InteractiveGNMax, NoisyHistogram, RdpCurve
from tellers.errors import LedgerConflict
from tellers.service import ServerConfig
from tellers.service._keys import KeyStore
from tellers.service._teachers import Served
from tellers.service.dashboard import _figures as figures
from tellers.service.dashboard import _figures as forecast
from tellers.service.dashboard._pages import is_page
from tellers.service.dashboard._sessions import Sessions

LOOKS = [
    "/dashboard", "/dashboard/account?name=student/alice", "/dashboard/releases", "/dashboard/keys",
    "/dashboard/ledger",
]  # fmt: skip
FORMS = ["/dashboard/sign-out", "/dashboard/keys/revoke", "/dashboard/ledger/verify"]
OPEN = ["/", "/dashboard/sign-in", "/dashboard/static/{name:path}", "/dashboard/{rest:path}"]


def token_of(page):
    return re.search(r'name="form" value="([0-9a-f]{64})"', page.text)[1]


def sign_in(client, key):
    form = token_of(client.get("/dashboard/sign-in"))
    return client.post("/dashboard/sign-in", data={"form": form, "key": key}, follow_redirects=False)


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """Make up no votes of twenty thousand teachers, except where they are looked at."""
    if "estimate" not in request.node.name:
        monkeypatch.setattr(forecast, "make_profiles", lambda served: [])


@pytest.fixture
def client(place):
    with place.open() as client:
        yield client


@pytest.fixture
def operator(place):
    return place.key("otto", "operator")


@pytest.fixture
def auditor(place):
    return place.key("ada", "auditor")


def ask(client, headers, key="k1", pool=(0, 1)):
    return client.post("/v1/labels", headers=headers, json={"idempotency_key": key, "pool": list(pool)})


def test_every_page_is_in_the_tables_above(shared_client):
    there = {
        route.path for route in shared_client.app.routes if isinstance(route, Route) and is_page(route.path)
    }
    assert there == {path.partition("?")[0] for path in [*LOOKS, *FORMS, *OPEN]}


# --- In and out ---


@pytest.mark.parametrize("path", LOOKS)
def test_strangers_are_sent_to_the_sign_in(shared_client, path):
    answer = shared_client.get(path, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/dashboard/sign-in"
    live = shared_client.get(path, headers={"HX-Request": "true"}, follow_redirects=False)
    assert (live.status_code, live.headers["hx-redirect"], live.text) == (401, "/dashboard/sign-in", "")


@pytest.mark.parametrize("path", FORMS)
def test_forms_of_strangers_do_nothing(shared_client, path):
    answer = shared_client.post(path, data={"form": "0" * 64}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard/sign-in")


def test_a_key_in_a_header_opens_no_page(place, client, operator):
    answer = client.get("/dashboard", headers={"Authorization": f"Bearer {operator}"}, follow_redirects=False)
    assert answer.status_code == 303


def test_a_session_opens_no_api(client, operator):
    sign_in(client, operator)
    assert client.get("/dashboard").status_code == 200
    assert client.get("/v1/budget").status_code == 401


def test_signing_in_and_out(client, operator):
    answer = sign_in(client, operator)
    assert (answer.status_code, answer.headers["location"]) == (303, "/dashboard")
    cookie = next(c for c in answer.headers.get_list("set-cookie") if c.startswith("tellers_session="))
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Max-Age=1800" in cookie
    assert "Secure" not in cookie  # this one speaks no TLS
    page = client.get("/dashboard")
    kept = client.cookies["tellers_session"]
    gone = client.post("/dashboard/sign-out", data={"form": token_of(page)}, follow_redirects=False)
    assert gone.headers["location"] == "/dashboard/sign-in?why=out"
    # A copy of the cookie opens nothing any more.
    client.cookies.set("tellers_session", kept)
    again = client.get("/dashboard", follow_redirects=False)
    assert (again.status_code, again.headers["location"]) == (303, "/dashboard/sign-in?why=ended")


def test_signing_in_again_ends_the_last_session(client, operator, auditor):
    sign_in(client, operator)
    first = client.cookies["tellers_session"]
    sign_in(client, auditor)
    assert "ada · auditor" in client.get("/dashboard").text
    client.cookies.clear()
    client.cookies.set("tellers_session", first)
    assert client.get("/dashboard", follow_redirects=False).status_code == 303


def test_students_are_not_let_in(place, client):
    answer = sign_in(client, place.key("alice"))
    assert answer.status_code == 403
    assert "operators and auditors" in answer.text
    assert not any(c.startswith("tellers_session") for c in answer.headers.get_list("set-cookie"))


@pytest.mark.parametrize(
    "key", ["", "nothing", f"tlr_{'a' * 12}_{'b' * 43}", "tlr_<script>alert(1)</script>"]
)
def test_wrong_keys_are_refused_and_not_repeated(shared_client, key):
    answer = sign_in(shared_client, key)
    assert answer.status_code == 401
    assert not key or key not in answer.text
    assert "tellers_session" not in shared_client.cookies


def test_guessing_is_slowed_down(place):
    with place.limited(failures_per_minute=3).open() as client:
        assert [sign_in(client, f"tlr_{'a' * 12}_{'b' * 43}").status_code for _ in range(5)] == [
            401, 401, 401, 429, 429,
        ]  # fmt: skip


def test_tls_makes_cookies_secure(place, operator):
    server = ServerConfig(host="0.0.0.0", plain_http=True)
    behind = replace(place, settings=replace(place.settings, server=server))
    with behind.open() as client:
        page = client.get("/dashboard/sign-in")
        visitor = re.search(r"__Host-tellers_visitor=([\w-]+)", page.headers["set-cookie"])[1]
        answer = client.post(
            "/dashboard/sign-in", data={"form": token_of(page), "key": operator}, follow_redirects=False,
            headers={"Cookie": f"__Host-tellers_visitor={visitor}"},
        )  # fmt: skip
    cookie = next(c for c in answer.headers.get_list("set-cookie") if "session" in c)
    assert cookie.startswith("__Host-tellers_session=")
    assert "Secure" in cookie
    assert "Path=/" in cookie


# --- Sessions ---


def test_sessions_end(place, operator, monkeypatch):
    now = [1_800_000_000.0]
    monkeypatch.setattr(Sessions, "__init__", with_clock(Sessions.__init__, lambda: now[0]))
    with place.open() as client:
        sign_in(client, operator)
        now[0] += 29 * 60
        assert client.get("/dashboard").status_code == 200  # and looking does not make it longer
        now[0] += 61
        ended = client.get("/dashboard", follow_redirects=False)
        assert ended.headers["location"] == "/dashboard/sign-in?why=ended"
        assert "Your session is over" in client.get("/dashboard/sign-in?why=ended").text


def with_clock(make, clock):
    return lambda self, store, minutes: make(self, store, minutes, clock)


def test_forged_cookies_open_nothing(client, operator):
    sign_in(client, operator)
    number, ends, signature = client.cookies["tellers_session"].split(".")
    later = str(int(ends) + 3600)
    for forged in (
        f"{number}.{later}.{signature}", f"{number}.{ends}.{'0' * 64}", number, f"{number}.{ends}.", "é" * 10,
        f"{'x' * 43}.{ends}.{signature}", "." * 50, "x" * 5000,
    ):  # fmt: skip
        headers = {"Cookie": f"tellers_session={forged}".encode()}
        client.cookies.clear()
        assert client.get("/dashboard", headers=headers, follow_redirects=False).status_code == 303


def test_a_session_of_another_server_opens_nothing(place, operator):
    with place.open() as client:
        sign_in(client, operator)
        cookie = client.cookies["tellers_session"]
    with place.open() as client:
        client.cookies.set("tellers_session", cookie)
        assert client.get("/dashboard", follow_redirects=False).status_code == 303


def test_one_key_has_few_sessions(tmp_path):
    now = [1_800_000_000.0]
    sessions = Sessions(KeyStore(str(tmp_path / "keys.db")), 30, clock=lambda: now[0])
    cookies = []
    for _ in range(25):
        cookies.append(sessions.begin("abcdefghijkl"))
        now[0] += 1
    assert [sessions.find(cookie) is not None for cookie in cookies] == [False] * 5 + [True] * 20


def test_a_revoked_key_ends_its_sessions(place, client, operator):
    sign_in(client, operator)
    assert client.get("/dashboard").status_code == 200
    store = place.store
    store.revoke(operator.split("_")[1])
    store.close()
    answer = client.get("/dashboard", follow_redirects=False)
    assert answer.headers["location"] == "/dashboard/sign-in?why=revoked"
    assert sign_in(client, operator).status_code == 401


def test_pages_count_as_requests_of_the_key(place, operator):
    with place.limited(requests_per_minute=3).open() as client:
        sign_in(client, operator)
        assert [client.get("/dashboard/ledger").status_code for _ in range(4)] == [200, 200, 200, 429]


# --- Forms ---


@pytest.mark.parametrize("path", FORMS)
def test_forms_without_their_token_are_refused(place, client, operator, path):
    sign_in(client, operator)
    alice = place.key("alice").split("_")[1]
    visitors = token_of(client.get("/dashboard/sign-in"))
    for form in ({}, {"form": ""}, {"form": "f" * 64}, {"form": visitors}):
        assert client.post(path, data={"id": alice, **form}, follow_redirects=False).status_code == 403
    assert client.get("/dashboard").status_code == 200
    assert not place.store.find(alice).is_revoked


def test_a_token_is_good_for_its_own_session_alone(place, client, operator, auditor):
    sign_in(client, auditor)
    theirs = token_of(client.get("/dashboard"))
    client.cookies.clear()
    sign_in(client, operator)
    answer = client.post("/dashboard/ledger/verify", data={"form": theirs}, follow_redirects=False)
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://elsewhere.example"}, {"Origin": "null"}, {"Content-Type": "text/plain"},
        {"Content-Type": "multipart/form-data; boundary=x"},
    ],
)  # fmt: skip
def test_forms_from_elsewhere_are_refused(client, operator, headers):
    sign_in(client, operator)
    form = token_of(client.get("/dashboard/ledger"))
    sent = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    answer = client.post(
        "/dashboard/ledger/verify", content=f"form={form}", headers=sent, follow_redirects=False
    )
    assert answer.status_code == 403
    assert "refused" in answer.text


@pytest.mark.parametrize("body", ["form=a&form=a", "&".join(f"a{i}=1" for i in range(50)), "form=\xff"])
def test_odd_forms_are_refused(client, operator, body):
    sign_in(client, operator)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = client.post("/dashboard/ledger/verify", content=body.encode("latin-1"), headers=headers)
    assert answer.status_code == 403


def test_the_sign_in_form_belongs_to_a_browser(client, operator):
    form = token_of(client.get("/dashboard/sign-in"))
    client.cookies.clear()
    answer = client.post("/dashboard/sign-in", data={"form": form, "key": operator}, follow_redirects=False)
    assert answer.status_code == 403
    assert "tellers_session" not in client.cookies


def test_large_forms_are_not_read(client, operator):
    answer = client.post("/dashboard/sign-in", data={"form": "x" * 30_000}, follow_redirects=False)
    assert answer.status_code == 413


# --- What roles may do ---


def test_operators_revoke_and_auditors_do_not(place, client, operator, auditor, alice):
    number = alice["Authorization"].split("_")[1]
    sign_in(client, auditor)
    page = client.get("/dashboard/keys")
    assert "Yes, revoke it" not in page.text
    refused = client.post("/dashboard/keys/revoke", data={"form": token_of(page), "id": number})
    assert refused.status_code == 403
    assert ask(client, alice).status_code == 200
    client.cookies.clear()
    sign_in(client, operator)
    page = client.get("/dashboard/keys")
    form = {"form": token_of(page), "id": number}
    done = client.post("/dashboard/keys/revoke", data=form)
    assert done.status_code == 200
    assert "revoked 20" in done.text
    assert ask(client, alice, "k2").status_code == 401
    lines = [json.loads(line) for line in place.log.getvalue().splitlines()]
    said = next(line for line in lines if line["event"] == "key revoked")
    assert (said["key"], said["revoked"]) == (operator.split("_")[1], number)
    assert client.post("/dashboard/keys/revoke", data={**form, "id": "nobody"}).status_code == 404


def test_both_may_verify_and_tampering_is_told(place, client, auditor, alice, monkeypatch):
    monkeypatch.setattr(figures, "_AGE_SECONDS", 0.0)
    monkeypatch.setattr(figures, "_PATIENCE", 0.0)
    ask(client, alice)
    sign_in(client, auditor)
    page = client.get("/dashboard/ledger")
    assert "Not verified yet" in page.text
    form = {"form": token_of(page)}
    told = client.post("/dashboard/ledger/verify", data=form)
    with place.ledger() as ledger:
        head = ledger.verify()
    assert "Intact" in told.text
    assert head in told.text
    tamper(place)
    told = client.post("/dashboard/ledger/verify", data=form)
    assert "Broken" in told.text
    answer = client.get("/dashboard")
    assert answer.status_code in (200, 503)
    assert "The ledger is broken" in answer.text


def test_books_that_cannot_be_read_are_told_of(place, client, auditor, monkeypatch):
    def broken(**_page):
        raise LedgerConflict("Line 3 of ledger.db was changed.")

    sign_in(client, auditor)
    service = client.app.state.service
    monkeypatch.setattr(service.labels.ledger, "entries", broken)
    for path in ("/dashboard", "/dashboard/releases"):
        answer = client.get(path)
        assert answer.status_code == 503
        assert "The ledger is broken" in answer.text
        assert "Line 3" not in answer.text
    assert "Broken" in client.get("/dashboard/ledger").text


def tamper(place):
    with sqlite3.connect(place.settings.place("ledger.db")) as connection:
        tables = connection.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall()
        for name, _ in tables:
            connection.execute(f"drop trigger {name}")
        table = connection.execute("select name from sqlite_master where type = 'table'").fetchone()[0]
        connection.execute(f"update {table} set body = replace(body, 'secure', 'sekure')")
        for _, words in tables:
            connection.execute(words)
    connection.close()


# --- What pages say ---


def test_pages_follow_the_books(place, client, operator):
    alice, bob = place.bearer("alice", budget=Budget(epsilon=0.5, delta=1e-5)), place.bearer("bob")
    ask(client, alice, "batch-<1>", (0, 1, 2))
    ask(client, bob, "k1", (3,))
    sign_in(client, operator)
    page = client.get("/dashboard").text
    left = client.get("/v1/budget", headers=bob).json()["data"]
    assert f'<strong id="left">{left["queries_left"]:,}</strong>' in page
    assert f"{left['epsilon_spent']:.3f} spent of 2.000" in page
    assert '<dd id="asked">4</dd>' in page
    assert "batch-&lt;1&gt;" in page
    assert "batch-<1>" not in page
    assert "GNMax" in page
    own = client.get("/dashboard/account?name=student/alice").text
    assert "What became of 3 queries" in own
    assert "k1" not in own.partition("<h2>Releases</h2>")[2]
    assert client.get("/dashboard/account?name=student/nobody").status_code == 404
    assert "2 questions" in client.get("/dashboard/releases?page=99999999999999999999").text


def test_an_estimate_is_marked_and_comes_by_itself(place, client, operator):
    sign_in(client, operator)
    client.get("/dashboard")
    for thread in threading.enumerate():
        if thread.name == "forecast":
            thread.join(60)
    page = client.get("/dashboard").text
    assert '<p class="stamp">estimate</p>' in page
    assert "≈ " in page.partition("On an assumed agreement")[2]


def test_only_what_changed_is_sent(client, operator, alice):
    sign_in(client, operator)
    page = client.get("/dashboard/releases").text
    asked = re.search(r'hx-get="([^"]+)"', page)[1].replace("&amp;", "&")
    live = {"HX-Request": "true"}
    assert client.get(asked, headers=live).status_code == 204
    ask(client, alice)
    time.sleep(1.5)  # the books are read at most once a second
    changed = client.get(asked, headers=live)
    assert changed.status_code == 200
    assert changed.text.startswith('<div id="live"')
    assert "alice" in changed.text


def test_old_questions_are_on_later_pages(client, operator, alice):
    for number in range(27):
        ask(client, alice, f"k{number}", (0,))
    sign_in(client, operator)
    first, second = client.get("/dashboard/releases").text, client.get("/dashboard/releases?page=2").text
    assert "page 1 of 2" in first
    assert "<code>k26</code>" in first
    assert "<code>k1</code>" not in first
    assert "<code>k1</code>" in second
    assert "<code>k0</code>" in second


def test_an_exhausted_budget_is_said(place, operator):
    small = replace(place.settings, ledger=replace(place.settings.ledger, epsilon=0.05))
    poor = replace(place, settings=small)
    with poor.open() as client:
        alice = poor.bearer("alice")
        number = 0
        while ask(client, alice, f"k{number}", (0,)).status_code == 200:
            number += 1
        sign_in(client, operator)
        assert "The budget is exhausted" in client.get("/dashboard").text


def test_nothing_private_is_on_any_page(place, client, operator, alice):
    # The fixture looks through every response for tallies, gaps and exact costs; here is all there is to see.
    for query in range(5):
        assert ask(client, alice, f"k{query}", (query,) * 20).status_code == 200
    sign_in(client, operator)
    for path in [*LOOKS, "/dashboard/nothing", "/dashboard/sign-in", "/dashboard/account?name=17393"]:
        assert client.get(path).status_code in (200, 404)
    assert len(place.heard) > 10


def test_pages_load_nothing_from_elsewhere_and_nothing_inline(client, operator):
    sign_in(client, operator)
    for path in [*LOOKS[:1], *LOOKS[2:], "/dashboard/sign-in"]:
        page = client.get(path)
        policy = page.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert page.headers["Cache-Control"] == "no-store"
        assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=|https?://", page.text)
        for place in re.findall(r'(?:src|href)="(/dashboard/static/[^"]+)"', page.text):
            got = client.get(place)
            assert got.status_code == 200
            assert "max-age" in got.headers["Cache-Control"]


@pytest.mark.parametrize(
    "name",
    ["../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "/etc/passwd", "vendor/../../pages.py", "vendor"],
)
def test_no_other_files_are_served(shared_client, name):
    answer = shared_client.get(f"/dashboard/static/{name}")
    assert answer.status_code in (200, 404)
    assert "import" not in answer.text
    assert "root:" not in answer.text


def test_what_others_wrote_is_as_they_published_it():
    vendor = Path(forecast.__file__).parent / "static" / "vendor"
    noted = set(re.findall(r"sha256 ([0-9a-f]{64})", (vendor / "NOTICE.txt").read_text()))
    files = [path for path in vendor.iterdir() if path.suffix in (".js", ".css")]
    assert len(files) == 3
    assert {hashlib.sha256(path.read_bytes()).hexdigest() for path in files} == noted
    assert {path.name for path in vendor.glob("*.LICENSE")} == {"htmx.LICENSE", "uPlot.LICENSE"}


@pytest.mark.parametrize(
    ("mechanism", "n_estimates"),
    [
        (NoisyHistogram(sigma=20.0), None),
        (object(), 0),
        (InteractiveGNMax(20.0, 60.0, 20.0, student_confidence=0.9), 0),
    ],
)
def test_no_estimate_is_made_where_nobody_can_know(mechanism, n_estimates):
    served = Served(None, mechanism, Budget(epsilon=4.0, delta=1e-5), "", 3, 60, n_pool=3)
    made = forecast.Forecast(served)
    made.start().join(60)
    found = made.estimates(Accountant(served.budget), RdpCurve.zero())
    assert found is not None
    assert n_estimates is None or len(found) == n_estimates
