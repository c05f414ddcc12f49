"""Sheets: whatever names contain stays text, and what is private is its owner's alone."""

import numpy as np
import pytest

from tellers.data.metrics import label_curves
from tellers.runs.report._plots import Drawing, plot_label_curves, plot_log_mel
from tellers.runs.report.write import SheetPart, SheetTable, write_sheet

HOSTILE = "<script>alert(1)</script>"


def test_names_stay_text(tmp_path):
    table = SheetTable(caption=HOSTILE, head=(HOSTILE, "score"), rows=((HOSTILE, 0.5), ("b", "–")))
    page = write_sheet(
        tmp_path / "a.html", HOSTILE, parts=[SheetPart(heading=HOSTILE, words=HOSTILE, tables=(table,))]
    )
    text = page.read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 7
    assert "50.0 %" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")


@pytest.mark.parametrize("mark", ["", "private"])
def test_what_is_private_is_marked_and_kept_to_its_owner(tmp_path, mark):
    drawing = Drawing(svg="<svg></svg>", heading="Votes", caption="How clear.", mark=mark)
    page = write_sheet(tmp_path / "a.html", "Votes", parts=[SheetPart(heading="x", drawings=(drawing,))])
    assert ("Private: do not publish" in page.read_text()) == bool(mark)
    assert bool(page.stat().st_mode & 0o044) != bool(mark)


def test_a_page_is_the_same_bytes_again(tmp_path):
    picture = np.random.default_rng(7).normal(-40, 10, (1500, 16))
    svg = [plot_log_mel("A clip", picture, seconds=30.0) for _ in range(2)]
    assert svg[0] == svg[1]
    # A long picture is thinned, so that a page stays small.
    assert len(svg[0]) < 60_000


@pytest.mark.parametrize("n_labels", [1, 3, 9])
def test_curves_of_few_labels_have_colours(n_labels):
    generator = np.random.default_rng(7)
    truth = np.arange(20)[:, None] % 2 * np.ones((1, n_labels), dtype=int)
    curves = label_curves(truth, generator.random((20, n_labels)))
    drawn = plot_label_curves("Curves", curves, kind="precision")
    assert (f"var(--group-{min(n_labels, 6)})" in drawn) == (n_labels <= 6)
    assert ("var(--group-1)" in drawn) == (n_labels <= 6)


def test_rows_have_the_colours_of_their_lines(tmp_path):
    table = SheetTable(
        caption="c", head=("label", "a", "b"), rows=(("x", 0.5, 0.1), ("y", 0.5, 0.1)), colours=(0, 2)
    )
    page = write_sheet(
        tmp_path / "a.html", "t", words="Who may see it.", parts=[SheetPart(heading="h", tables=(table,))]
    )
    text = page.read_text()
    assert text.count("border-left-color: var(--group-2)") == 1
    assert text.count("border-left-color") == 1
    assert "<p>Who may see it.</p>" in text
    assert "runs no script" in text


def test_pitch_is_told_in_hertz_where_filters_are_known():
    picture = np.zeros((20, 4))
    drawn = plot_log_mel("t", picture, seconds=1.0, pitches=[200.0, np.nan, 1100.0, 3000.0])
    assert "pitch, Hz" in drawn
    assert [f">{word}<" in drawn for word in ("250", "500", "1k", "2k", "4k")] == [True] * 4 + [False]
    assert "Mel filter" in plot_log_mel("t", picture, seconds=1.0)
    plot_log_mel("t", picture, seconds=1.0, pitches=[np.nan] * 4)
