"""The report in a browser, with JavaScript off: nothing is asked for, everything fits and can be read."""

import os
import shutil

import pytest

from tellers.report import write_report

CHROMIUM = os.environ.get("TELLERS_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
REQUIRED = os.environ.get("TELLERS_REQUIRE_BROWSER") == "1"

# Every piece of text with too little contrast to what lies behind it (WCAG 2, AA: 4.5, large text 3).
CONTRAST = """() => {
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parse = c => (c.match(/[\\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = e => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walk.nextNode()); ) {
    const e = node.parentElement, style = getComputedStyle(e);
    if (!node.data.trim() || e.closest('title') || !e.getClientRects().length) continue;
    const ink = parse(e.closest('svg') ? style.fill : style.color);
    const [a, b] = [luminance(ink), luminance(behind(e))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24;
    if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5))
      bad.push(node.data.trim() + ' ' + ink + ' on ' + behind(e));
  }
  return bad;
}"""


def missing(reason):
    words = f"THE REPORT WAS NOT OPENED IN A BROWSER: {reason}. `sh scripts/browser.sh` installs Chromium."
    if REQUIRED:
        pytest.fail(words)
    pytest.skip(words)


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        missing("there is no Chromium (set TELLERS_CHROMIUM where it has another name)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    with sync_playwright() as play:
        # Without the sandbox, which needs rights that containers rarely give; the pages are our own.
        chromium = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Return a function that opens a page with JavaScript off and keeps what went wrong in `problems`."""
    contexts = []

    def visit(path, *, width=1100, scheme="light"):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=False
        )
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("request", lambda r: page.problems.append(r.url) if r.url != path.as_uri() else None)
        page.on("console", lambda message: page.problems.append(message.text))
        page.on("dialog", lambda dialog: page.problems.append(dialog.message))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.goto(path.as_uri())
        return page

    yield visit
    for context in contexts:
        context.close()


@pytest.mark.parametrize("ugly", [False, True], ids=["usual", "ugly"])
@pytest.mark.parametrize("private", [False, True], ids=["public", "private"])
def test_it_opens_fits_and_can_be_read(folder, make_ugly, visit, private, ugly):
    if ugly:
        make_ugly(folder)
    path = write_report(folder, private=private)
    for width, scheme in ((1100, "light"), (1100, "dark"), (360, "light"), (360, "dark")):
        page = visit(path, width=width, scheme=scheme)
        assert page.problems == []
        assert page.locator("h1").inner_text().endswith("a student taught in private")
        assert page.locator("script, img, iframe").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CONTRAST) == []
        for drawing in page.locator("svg").all():
            box = drawing.bounding_box()
            assert box["width"] > 250
            assert 0.55 < box["height"] / box["width"] < 0.7


def test_light_and_dark_differ(folder, visit):
    path = write_report(folder)
    papers = [
        visit(path, scheme=scheme).evaluate("getComputedStyle(document.documentElement).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert papers[0] != papers[1]


def test_the_text_of_drawings_stays_inside(folder, visit):
    page = visit(write_report(folder, private=True))
    outside = page.evaluate(
        """() => [...document.querySelectorAll('svg')].flatMap(svg => {
          const frame = svg.getBoundingClientRect();
          return [...svg.querySelectorAll('text')].filter(text => {
            const box = text.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1
                || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
          }).map(text => text.textContent);
        })"""
    )
    assert outside == []


def test_settings_open_with_the_keyboard(folder, visit):
    page = visit(write_report(folder))
    row = page.get_by_text("mechanism.sigma_threshold")
    assert not row.is_visible()
    for _ in range(page.locator("summary").count()):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Settings":
            break
    page.keyboard.press("Enter")
    assert row.is_visible()


def test_paper_is_white_and_has_the_settings(folder, visit):
    page = visit(write_report(folder), scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRAST) == []
    assert page.get_by_text("mechanism.sigma_threshold").is_visible()
    assert len(page.pdf(format="A4")) > 10_000
