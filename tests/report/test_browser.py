"""The report in a browser, with JavaScript off: nothing is asked for, everything fits and can be read."""

import json

import pytest

from tellers.runs import write_report


@pytest.fixture
def visit(browser):
    """Return a function that opens a page with JavaScript off and keeps what went wrong in `problems`."""
    contexts = []

    def visit(path, *, scheme="light"):
        context = browser.new_context(
            viewport={"width": 1100, "height": 900}, color_scheme=scheme, java_script_enabled=False
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
def test_it_opens_fits_and_can_be_read(written, visit, low_contrast, private, ugly):
    page = visit(written(private, ugly))
    assert page.problems == []
    assert page.locator("h1").inner_text().endswith("a student taught in private")
    assert page.locator("script, img, iframe").count() == 0
    for width in (1100, 360):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(low_contrast) == [], scheme
        for drawing in page.locator("svg").all():
            box = drawing.bounding_box()
            assert box["width"] > 250
            assert 0.55 < box["height"] / box["width"] < 0.7


def test_light_and_dark_differ(written, visit):
    page, papers = visit(written()), []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        papers.append(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    assert papers[0] != papers[1]


def test_the_text_of_drawings_stays_inside(written, visit):
    page = visit(written(private=True))
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


def test_settings_open_with_the_keyboard(written, visit):
    page = visit(written())
    row = page.get_by_text("mechanism.sigma_threshold")
    assert not row.is_visible()
    for _ in range(page.locator("summary").count()):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Settings":
            break
    page.keyboard.press("Enter")
    assert row.is_visible()


def test_paper_is_white_and_has_the_settings(written, visit, low_contrast):
    page = visit(written(), scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(low_contrast) == []
    assert page.get_by_text("mechanism.sigma_threshold").is_visible()
    assert len(page.pdf(format="A4")) > 10_000


@pytest.mark.parametrize(("private", "n_groups"), [(False, 20), (True, 2)])
def test_groups_fit_and_can_be_read(
    grouped, a_group, a_publication, browser, low_contrast, private, n_groups
):
    groups = [a_group(at, epsilon=1.0 + at, waste=0.1 * (n_groups > 2)) for at in range(n_groups)]
    groups[0]["name"] = "a level with a rather long name, and on, and on"
    for group in groups:
        group["n_labels"] = 1234
    folder = grouped(groups)
    (folder / "publication.json").write_text(json.dumps(a_publication(groups)))
    path = write_report(folder, private=private)
    for width in (1100, 360):
        context = browser.new_context(viewport={"width": width, "height": 900}, java_script_enabled=False)
        page = context.new_page()
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for card in page.locator(".wide").all():
            assert card.evaluate("it => it.scrollWidth - it.clientWidth") == 0, "the table needs scrolling"
        page.get_by_text("Public cost of each group in numbers").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(low_contrast) == [], scheme
        context.close()
