"""The page: whole, harmless, the same every time, and without a private number unless asked for."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from tellers.runs import write_report

ROOT = Path(__file__).resolve().parents[2]
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Reads a page: its elements with their attributes and ancestors, and its text in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {[tag for tag, _ in self.open]}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), tuple(self.open)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1][0] == tag, f"</{tag}> closes <{self.open[-1][0]}>"
        self.open.pop()

    def handle_data(self, data):
        self.texts.append((data, tuple(self.open)))

    def all(self, tag):
        return [(attrs, ancestors) for name, attrs, ancestors in self.elements if name == tag]

    @property
    def words(self):
        told = (text for text, where in self.texts if not any(tag == "style" for tag, _ in where))
        return re.sub(r"\s+", " ", " ".join(told))


def read(path):
    return Page(path.read_text(encoding="utf-8"))


def is_secret(ancestors):
    return any({"secret", "alarm"} & set((attrs.get("class") or "").split()) for _, attrs in ancestors)


# --- What it says ---


def test_the_public_report_tells_the_run(written):
    path = written()
    assert path.name == "report.html"
    words = read(path).words
    for told in (
        "60 teachers, each taught on its own part",
        "epsilon = 7.86 at delta = 0.0001, for one record",
        "99.97 %",  # (e^7.857 + 1e-4) / (e^7.857 + 1), rounded up
        "90.6 % of the test rows",
        "138 label",
        "The budget was epsilon = 8.00 at delta = 0.0001",
        "180 of 500 public rows were asked, in random order; what ended the asking was the budget",
        "42 23.3 %",
        "ConfidentGNMax : sigma = 9, threshold = 38, sigma_threshold = 13",
        "simulated",
        "No vote of this run is shown",
        "A person in several rows is not covered",
        "Seed: 7; the privacy noise has none",
        "Times (11.5 s)",
        "scikit-learn 1.7.2",
        "mechanism.sigma_threshold 13",
        "Teachers have 15 to 16 rows each",
        "2026-11-15 10:42 UTC",
    ):
        assert told in words, told
    assert "rivate: do not publish" not in words


def test_every_class_has_its_row(written):
    path = written()
    table = next(text for text in path_tables(path) if text.startswith("Precision and recall of the student"))
    for score in json.loads((path.parent / "result.json").read_text())["student"]["per_class"]:
        precision, recall = (f"{100 * score[name]:.1f} %" for name in ("precision", "recall"))
        assert f"{score['name']} {precision} {recall} {score['n_test']}" in table


def path_tables(path):
    found = re.findall(r"<table.*?</table>", path.read_text(encoding="utf-8"), re.DOTALL)
    return [Page(table).words.strip() for table in found]


@pytest.mark.parametrize(
    "mechanism",
    [
        {"name": "LNMax", "gamma": 0.05},
        {"name": "GNMax", "sigma": 0.5},
        {
            "name": "InteractiveGNMax",
            "sigma": 9,
            "threshold": 10,
            "sigma_threshold": 9,
            "student_confidence": 0.9,
        },
        {"name": "SomebodysOwn", "scale": 3.0},
        {"name": "ConfidentGNMax", "sigma": 9.0},
    ],
    ids=lambda m: m["name"],
)
def test_every_mechanism_can_be_reported(folder, change, mechanism):
    change(folder / "result.json", mechanism=mechanism)
    page = read(write_report(folder))
    assert mechanism["name"] in page.words
    n_drawings = 2 if mechanism["name"] == "SomebodysOwn" else 3
    assert len(page.all("svg")) == n_drawings


def test_an_epsilon_that_is_no_guarantee_says_so(folder, change):
    change(folder / "result.json", spent__is_guarantee=False, spent__why="Seeded noise was used.")
    words = read(write_report(folder)).words
    assert "but this is not a guarantee" in words
    assert "Seeded noise was used." in words
    assert "picks the right one" not in words


def test_a_single_batch_is_drawn_as_a_point(folder, change):
    change(folder / "result.json", cost=[{"n_queries": 10, "epsilon": 0.5}])
    assert "Public epsilon over questions asked: 0.50 after 10." in read(write_report(folder)).words


# --- What it must not do ---


def test_the_page_asks_for_nothing_and_runs_nothing(written):
    for path in (written(), written(private=True), written(ugly=True)):
        text = path.read_text(encoding="utf-8")
        page = Page(text)
        assert "default-src 'none'" in text
        assert not {tag for tag, _, _ in page.elements} & {
            "script",
            "img",
            "link",
            "iframe",
            "object",
            "embed",
            "a",
        }
        for tag, attrs, _ in page.elements:
            assert not [name for name in attrs if name.startswith("on")], f"{tag} {attrs}"
            for name in ("src", "href", "xlink:href", "action", "data"):
                assert attrs.get(name, "#").startswith("#"), f"{tag} {attrs}"
        assert re.findall(r"url\((?!#)|@import", text) == []


def test_names_of_users_stay_text(written):
    path = written(ugly=True)
    page = read(path)
    # Eleven places take a name or a note of a user's; each shows it as it was written.
    assert page.words.count("<script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}") >= 11
    assert "49" not in [word for text, _ in page.texts for word in text.split()]
    assert "<script" not in path.read_text(encoding="utf-8")


def test_settings_do_not_tell_where_files_lay(written):
    words = read(written(ugly=True)).words
    assert "…/patients.csv" in words
    assert "/somewhere/of/mine" not in words


# --- Private numbers ---

PLANTED = {
    "teacher_accuracies": [0.31313, 0.31313, 0.42424],
    "plurality_accuracy": 0.81818,
    "open_model_accuracy": 0.97979,
    "gaps": [7] * 30,
    "n_teachers": 60,
    "accuracy_against_noise": [{"sigma": 3, "accuracy": 0.61}, {"sigma": 30, "accuracy": 0.21}],
    "exact_cost": [{"n_queries": 10, "epsilon": 0.6161}, {"n_queries": 180, "epsilon": 3.7373}],
}
SHOWN = ("31.3 %", "42.4 %", "81.8 %", "98.0 %", "3.74")


def test_the_public_report_does_not_know_the_private_folder(folder, written):
    shutil.rmtree(folder / "private")
    expected = write_report(folder).read_bytes()
    assert written().read_bytes() == expected
    (folder / "private").mkdir()
    for content in (json.dumps(PLANTED).encode(), b"not even JSON"):
        (folder / "private" / "summary.json").write_bytes(content)
        assert write_report(folder).read_bytes() == expected
    # Coordinates of drawings may hold any digits; what is told is told in words.
    words = read(folder / "report.html").words
    assert not any(shown in words for shown in SHOWN)


def test_what_does_not_belong_into_the_result_is_not_shown(folder, written, change):
    expected = written().read_bytes()
    change(folder / "result.json", teacher_accuracies=[0.31313], private=PLANTED, student__gaps=[7, 7])
    assert write_report(folder).read_bytes() == expected


def test_the_private_report_is_marked_and_kept_apart(folder):
    (folder / "private" / "summary.json").write_text(json.dumps(PLANTED))
    path = write_report(folder, private=True)
    assert path == folder / "private" / "report.private.html"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not (folder / "report.html").exists()
    page = read(path)
    assert "PRIVATE: digits: a student taught in private" in page.words
    assert page.words.index("Private: do not publish.") < page.words.index("In short")
    assert page.words.count("private: do not publish") == 5  # comparison, teachers, cost, leads, noise
    for shown in SHOWN:
        places = [where for text, where in page.texts if shown in text]
        assert places, shown
        assert all(is_secret(where) for where in places), f"{shown} outside of a red frame"


def test_the_private_report_does_with_what_there_is(folder):
    (folder / "private" / "summary.json").write_text('{"plurality_accuracy": null, "gaps": []}')
    page = read(write_report(folder, private=True))
    assert "Private: do not publish." in page.words
    assert "private: do not publish" not in page.words
    assert page.words.count("No vote of this run is shown") == 2


# --- The same bytes, whole ---


def test_the_same_run_gives_the_same_bytes(folder, written, tmp_path):
    expected = written().read_bytes()
    # Another process, other hashes, a user's own taste in plots.
    (tmp_path / "matplotlibrc").write_text("font.size: 22\nlines.linewidth: 9\nsvg.hashsalt: other\n")
    code = "import sys; from tellers.runs import write_report; write_report(sys.argv[1])"
    environment = {
        **os.environ, "PYTHONHASHSEED": "1", "MPLCONFIGDIR": str(tmp_path), "PYTHONPATH": str(ROOT / "src"),
    }  # fmt: skip
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, env=environment, timeout=120)
    assert (folder / "report.html").read_bytes() == expected


def test_a_failure_leaves_the_old_report(folder, change, monkeypatch):
    expected = b"<p>the old report</p>"
    (folder / "report.html").write_bytes(expected)
    change(folder / "result.json", seed=8)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_report(folder)
    assert (folder / "report.html").read_bytes() == expected
    assert {file.name for file in folder.iterdir()} == {
        "config.toml",
        "private",
        "report.html",
        "result.json",
    }


def test_without_matplotlib_the_page_has_its_words_and_no_plots(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    page = write_report(folder).read_text()
    assert "pip install" in page
    assert "tellers[report]" in page
    assert "<svg" not in page


def test_the_templates_travel_with_the_package():
    room = files("tellers.runs.report")
    assert {"page.html", "parts.html", "style.css"} <= {file.name for file in room.iterdir()}


# --- For everybody ---


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("ugly", [False, True])
def test_the_page_is_accessible(written, private, ugly):
    path = written(private, ugly)
    page = read(path)
    assert page.all("html")[0][0]["lang"] == "en"
    ids = [attrs["id"] for _, attrs, _ in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs, _ in page.elements:
        for name in (attrs.get("aria-labelledby") or "").split():
            assert name in ids, f"{tag} is named by {name}, which is not there"
    for attrs, _ in page.all("svg"):
        assert attrs["role"] == "img"
        assert attrs["aria-labelledby"]
    for reference in re.findall(r"(?:url\(#|href=\"#)([\w.-]+)", path.read_text()):
        assert reference in ids
    n_titles = sum(1 for _, ancestors in page.all("title") if any(tag == "svg" for tag, _ in ancestors))
    assert n_titles == len(page.all("svg")) >= 2
    assert len(page.all("caption")) == len(page.all("table"))
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(page.all("summary")) == len(page.all("details")) >= 2
