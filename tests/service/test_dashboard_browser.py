"""The dashboard in a real browser, over a real server: people sign in, students ask, budgets and keys end.

Where TELLERS_ARTIFACTS names a folder, screenshots are left in it to be looked at.
"""

import json
import os
import re
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import uvicorn

from tellers import Budget
from tellers.runs import MechanismConfig
from tellers.runs.personal import Group, Upsampling, plan_as_dict
from tellers.service import PlanConfig, create_app
from tellers.service.dashboard import _figures as forecast

ARTIFACTS = os.environ.get("TELLERS_ARTIFACTS")
# Two of the five queries of the pool are silent at this threshold, but once in a billion.
CONFIDENT = MechanismConfig(name="confident", sigma=150.0, threshold=12_000.0, sigma_threshold=300.0)
SOON = 20_000
N_TEACHERS = 20_011  # of the made-up votes


class Town:
    """A service that listens, people with keys, and what went wrong in their browsers."""

    def __init__(self, place, browser):
        self.place, self.browser, self.problems, self.contexts = place, browser, [], []
        self.operator = place.key("otto", "operator")
        config = uvicorn.Config(
            create_app(place.settings, log_stream=place.log), host="127.0.0.1", port=0, log_config=None,
            ws="none", lifespan="on",
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        deadline = time.monotonic() + 60
        while not self.server.started:
            assert time.monotonic() < deadline, "the service did not start"
            time.sleep(0.02)
        port = self.server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    def visit(self, *, width=1200, scheme="light", script=True):
        context = self.browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._listen)
        return page

    def sign_in(self, page, key=None):
        page.goto(f"{self.url}/")
        page.get_by_label("API key").fill(key or self.operator)
        page.keyboard.press("Enter")
        page.wait_for_url("**/dashboard")
        return page

    def ask(self, headers, key, pool):
        body = {"idempotency_key": key, "pool": pool}
        return httpx.post(f"{self.url}/v1/labels", headers=headers, json=body, timeout=60)

    def keep(self, page, name):
        """Keep what was read for the scan of secrets, and a screenshot where somebody wants them."""
        if ARTIFACTS:
            page.screenshot(path=Path(ARTIFACTS) / "dashboard" / f"{name}.png", full_page=True)
        self.place.heard.append(page.content())

    def close(self):
        for context in self.contexts:
            context.close()
        self.server.should_exit = True
        self.thread.join(30)

    def _listen(self, request):
        if not request.url.startswith(f"{self.url}/"):
            self.problems.append(f"asked for {request.url}")


@contextmanager
def opened(place, browser, epsilon=2.0):
    ledger = replace(place.settings.ledger, epsilon=epsilon)
    place.settings = replace(place.settings, mechanism=CONFIDENT, ledger=ledger)
    profiles = [
        forecast.Profile(0.75, 0.55, 0.93),
        forecast.Profile(0.9, 0.81, 0.99),
        forecast.Profile(0.97, 0.92, 1.0),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecast, "make_profiles", lambda served: profiles)
        town = Town(place, browser)
        yield town
        town.close()
    # Not one complaint about the policy, a missing file or a script, and nothing from elsewhere.
    assert town.problems == []


@pytest.fixture
def open_town(place, browser):
    with ExitStack() as towns:
        yield lambda **terms: towns.enter_context(opened(place, browser, **terms))


@pytest.fixture(scope="module")
def shared_town(shared_place, browser):
    """A town where three students have asked; the last test of this module ends its server."""
    with opened(shared_place, browser) as town:
        town.alice = busy(town)
        yield town


@pytest.fixture
def town(shared_town):
    yield shared_town
    for context in shared_town.contexts:
        context.close()
    shared_town.contexts.clear()
    assert shared_town.problems == []


def busy(town):
    """Let three students ask, one of whom has no account of its own and one whose account is small."""
    place = town.place
    alice = place.bearer("alice", budget=Budget(epsilon=1.2, delta=1e-5))
    bob = place.bearer("bob.the-second@example.org", budget=Budget(epsilon=0.06, delta=1e-5))
    carol = place.bearer("carol")
    place.key("ada", "auditor")
    for number in range(8):
        assert town.ask(alice, f"2026-03-01/batch-{number}", [number % 5, 0, 1, 2] * 12).status_code == 200
    for number in range(20):
        if town.ask(bob, f"b{number}", [number % 5]).status_code == 402:
            break
    assert (
        town.ask(
            carol, "a-rather-long-idempotency-key/with/parts/and-more-of-them-0001", [4, 3] * 30
        ).status_code
        == 200
    )
    return alice


def test_numbers_change_while_the_page_is_open(town):
    page = town.sign_in(town.visit())
    asked = int(page.locator("#asked").inner_text().replace(",", ""))
    left = int(page.locator("#left").inner_text().replace(",", ""))
    page.evaluate("window.stayed = true")
    assert town.ask(town.alice, "while-open", [0, 1, 2, 3]).status_code == 200
    page.wait_for_function(
        "n => document.querySelector('#asked').innerText !== n", arg=f"{asked:,}", timeout=SOON
    )
    assert int(page.locator("#asked").inner_text().replace(",", "")) == asked + 4
    assert int(page.locator("#left").inner_text().replace(",", "")) < left
    assert page.get_by_text("while-open").is_visible()
    assert page.evaluate("window.stayed")  # and the page was not loaded again
    assert page.locator(".uplot").count() == 1
    assert page.locator("#stale").is_hidden()


def test_it_fits_and_can_be_read(town, low_contrast):
    for width, scheme, other in ((1200, "light", "dark"), (360, "dark", "light")):
        page = town.visit(width=width, scheme=scheme)
        page.goto(f"{town.url}/dashboard")
        assert page.evaluate(low_contrast) == []
        town.keep(page, f"sign-in-{width}-{scheme}")
        town.sign_in(page)
        page.get_by_text("≈").first.wait_for(timeout=SOON)
        for path in ("", "/account?name=student/alice", "/releases", "/keys", "/ledger"):
            page.goto(f"{town.url}/dashboard{path}")
            name = path.strip("/").partition("?")[0] or "overview"
            town.keep(page, f"{name}-{width}-{scheme}")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            for colours in (other, scheme):
                page.emulate_media(color_scheme=colours)
                assert page.evaluate(low_contrast) == [], (path, colours)


def test_tables_need_no_script(town):
    page = town.sign_in(town.visit(script=False))
    assert page.locator("svg.burn").is_visible()
    assert page.get_by_role("cell", name="a-rather-long-idempotency-key/with/parts").is_visible()
    assert page.locator("noscript meta, meta[http-equiv=refresh]").count() == 1
    town.keep(page, "overview-without-script")
    page.get_by_role("link", name="Keys").click()
    page.get_by_role("rowheader", name="carol").wait_for(timeout=SOON)
    page.get_by_role("link", name="Ledger").click()
    page.get_by_role("button", name="Verify now").click()
    page.get_by_role("heading", name="Intact").wait_for(timeout=SOON)
    town.keep(page, "ledger-verified")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("You are signed out.").wait_for(timeout=SOON)


def test_groups_of_people_have_a_burn_down_each(open_town, place, low_contrast):
    groups = (Group("careful", 1.0, 70_000), Group("generous, by a form of some length", 2.0, 30_000))
    # Counts alone are known of these votes: copies ask for no more.
    plan = Upsampling(groups, CONFIDENT.build(), N_TEACHERS, copies_of=(1, 2), grow="shares")
    (Path(place.settings.folder) / "plan.json").write_text(json.dumps(plan_as_dict(plan)))
    place.settings = replace(place.settings, personal=PlanConfig(plan="plan.json"))
    town = open_town()
    carol = place.bearer("carol")
    for number in range(4):
        assert town.ask(carol, f"b{number}", [number, 0, 1, 2] * 10).status_code == 200
    for width, script in ((1200, True), (360, True), (1200, False)):
        page = town.sign_in(town.visit(width=width, script=script))
        table = page.get_by_role("region", name="Groups of people")
        for group in groups:
            assert table.get_by_role("rowheader", name=group.name).is_visible()
        assert table.locator("svg.spark").count() == 2
        assert page.locator("svg.burn").count() == 3
        if script:
            assert page.locator(".uplot").count() == 3
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert page.evaluate(low_contrast) == []
        town.keep(page, f"groups-{width}{'' if script else '-without-script'}")
    page.get_by_role("link", name="careful").first.click()
    page.get_by_role("heading", name="group/careful").wait_for(timeout=SOON)
    assert page.locator("svg.burn").is_visible()


def test_an_exhausted_budget_is_shown(open_town):
    town = open_town(epsilon=0.08)
    alice = town.place.bearer("alice")
    page = town.sign_in(town.visit())
    assert page.get_by_text("The budget pays for").is_visible()
    for number in range(200):
        if town.ask(alice, f"k{number}", [0]).status_code == 402:
            break
    page.get_by_text("The budget is exhausted.").wait_for(timeout=SOON)
    town.keep(page, "exhausted")


def test_a_key_that_is_revoked_opens_nothing(open_town):
    town = open_town()
    alice = town.place.bearer("alice")
    page = town.sign_in(town.visit())
    page.get_by_role("link", name="Keys").click()
    row = page.get_by_role("row").filter(has_text="alice")
    row.locator("summary").focus()
    page.keyboard.press("Enter")
    town.keep(page, "revoking")
    row.get_by_role("button", name="Yes, revoke it").click()
    page.get_by_text(re.compile("revoked 20")).wait_for()
    assert town.ask(alice, "k1", [0]).status_code == 401
    # And whoever is signed in with a key that is revoked is out, without doing anything.
    store = town.place.store
    store.revoke(town.operator.split("_")[1])
    store.close()
    page.wait_for_url("**/sign-in?why=revoked", timeout=SOON)
    assert page.get_by_text("was revoked").is_visible()
    # The browser says that it was refused once; nothing else is wrong.
    assert all("401" in problem for problem in town.problems), town.problems
    town.problems.clear()


def test_a_wrong_key_is_told(open_town):
    town = open_town()
    page = town.visit()
    page.goto(f"{town.url}/dashboard")
    page.get_by_label("API key").fill("tlr_nothing")
    page.keyboard.press("Enter")
    assert page.get_by_role("alert").inner_text() == "The key is not known, or was revoked."
    town.keep(page, "wrong-key")
    town.problems.clear()  # the browser reports the 401


def test_it_can_be_used_by_keyboard(town):
    page = town.sign_in(town.visit())
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the numbers"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.goto(f"{town.url}/dashboard/ledger")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == "Verify now":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Intact").wait_for(timeout=SOON)


def test_a_server_that_is_gone_is_told(town):
    page = town.sign_in(town.visit())
    town.server.should_exit = True
    town.thread.join(30)
    page.locator("#stale").wait_for(state="visible", timeout=SOON)
    town.problems.clear()  # the browser reports the connection
