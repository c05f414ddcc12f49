"""Settings that every test shares, and a PostgreSQL server or a browser for those that want one."""

import importlib.util
import itertools
import os
import shutil
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import HealthCheck, settings

from . import forked

# One failing example must fail for everyone: the default profile draws the same examples every time.
# HYPOTHESIS_PROFILE=explore looks further, with fresh examples and many more of them.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    max_examples=50,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", parent=settings.get_profile("steady"), derandomize=False, max_examples=2000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Examples are in `src`: looking for them here would import every file of tests a second time."""
    found = yield
    return [one for one in found if not isinstance(one, DoctestModule)]


@pytest.fixture(scope="session", autouse=True)
def _unflushed():
    """Files are written as ever and not flushed: that guards against a power cut, and no test cuts it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _handle: None)
        yield


# Whole runs whose pages nobody looks at: plots are half of their time, and tests/report draws them. A module
# that looks at drawings says so: DRAWN = True.
_WITHOUT_PLOTS = {"audio", "golden", "journeys", "neighbours", "personal", "pipeline", "teachers"}
_ALSO_WITHOUT = {"test_student.py", "test_sweep.py", "test_votes_stay.py"}


@pytest.fixture(scope="module", autouse=True)
def _plots_in_words(request):
    folders = {folder.name for folder in request.path.parents if folder.parent == Path(__file__).parent}
    in_words = not _WITHOUT_PLOTS.isdisjoint(folders) or request.path.name in _ALSO_WITHOUT
    if getattr(request.module, "DRAWN", False) or not in_words:
        yield
        return
    from tellers.runs.report import _plots

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_plots, "draw_svg", lambda draw, *, title, **_: f"<p>{title}</p>")
        patch.setattr(forked.Popen, "plots", False)
        yield


def _postgres():
    spec = importlib.util.spec_from_file_location(
        "tellers_tests_postgres", Path(__file__).parent / "postgres.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def postgres():
    """A server of our own; without one, tests are skipped loudly, or fail with TELLERS_REQUIRE_POSTGRES=1."""
    module = _postgres()
    try:
        cluster = module.Cluster()
    except module.NoPostgres as missing:
        words = f"LEDGERS IN POSTGRESQL WERE NOT TRIED: {missing}"
        if os.environ.get("TELLERS_REQUIRE_POSTGRES", "0") not in ("", "0"):
            pytest.fail(words)
        pytest.skip(words)
    yield cluster
    cluster.remove()


@pytest.fixture(scope="session")
def database(postgres):
    """A database with the tables of ledgers, shared by tests that take names of their own: its URL."""
    return _prepared(postgres, "shared")


@pytest.fixture
def own_database(postgres):
    """A database for a test that spoils it."""
    return _prepared(postgres, f"own_{next(_numbers)}")


_numbers = itertools.count()


def _prepared(postgres, name):
    from tellers.ledger.sql import migrate

    postgres.sql(f"CREATE DATABASE {name}")
    migrate(postgres.url(name))
    return postgres.url(name)


CHROMIUM = os.environ.get("TELLERS_CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)

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


@pytest.fixture(scope="module")
def browser():
    """Chromium; without one, tests are skipped loudly, or fail with TELLERS_REQUIRE_BROWSER=1."""
    if CHROMIUM is None:
        _no_browser("there is no Chromium (set TELLERS_CHROMIUM where it has another name)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _no_browser("playwright is not installed")
    with sync_playwright() as play:
        # Without the sandbox, which needs rights that containers rarely give; the pages are our own.
        chromium = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()


def _no_browser(reason):
    words = f"PAGES WERE NOT OPENED IN A BROWSER: {reason}. `sh scripts/system.sh browser` installs Chromium."
    if os.environ.get("TELLERS_REQUIRE_BROWSER") == "1":
        pytest.fail(words)
    pytest.skip(words)


@pytest.fixture
def low_contrast():
    """A script that returns every piece of text that is hard to read."""
    return CONTRAST
