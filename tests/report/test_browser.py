"""The report in a browser, with JavaScript off: nothing is asked for, everything fits and can be read."""

import pytest

from tellers.runs import write_report


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
def test_it_opens_fits_and_can_be_read(folder, make_ugly, visit, low_contrast, private, ugly):
    if ugly:
        make_ugly(folder)
    path = write_report(folder, private=private)
    for width, scheme in ((1100, "light"), (1100, "dark"), (360, "light"), (360, "dark")):
        page = visit(path, width=width, scheme=scheme)
        assert page.problems == []
        assert page.locator("h1").inner_text().endswith("a student taught in private")
        assert page.locator("script, img, iframe").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(low_contrast) == []
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


def test_paper_is_white_and_has_the_settings(folder, visit, low_contrast):
    page = visit(write_report(folder), scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(low_contrast) == []
    assert page.get_by_text("mechanism.sigma_threshold").is_visible()
    assert len(page.pdf(format="A4")) > 10_000
