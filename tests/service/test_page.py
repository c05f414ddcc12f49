"""The page about the service has every option with its default and its words, as the records have them.

`python tests/service/test_page.py` writes its tables anew.
"""

import re
from pathlib import Path

import pytest

from tellers.runs.settings._fields import options_of
from tellers.runs.settings.files import default_words
from tellers.service.settings import SECTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "service.md"


def table(title: str) -> str:
    """Return a section's heading and table, as the page should have them."""
    rows = ["| option | default | what it says |", "|---|---|---|"]
    for option in options_of(SECTIONS[title]):
        if option.metadata.get("for_labels"):
            continue  # here one class per row is handed out
        usual = default_words(option)
        rows.append(f"| `{option.name}` | {f'`{usual}`' if usual else ''} | {option.metadata['words']} |")
    return "\n".join([f"### [{title}]", "", *rows, ""])


@pytest.mark.parametrize("title", list(SECTIONS))
def test_the_page_has_every_option(title):
    assert table(title) in PAGE.read_text(encoding="utf-8"), f"run: python {Path(__file__).name}"


def test_the_page_has_no_other_section():
    found = re.findall(r"^### \[(\w+)\]$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found == list(SECTIONS)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- options -->\n")
    after = rest.partition("<!-- end of options -->\n")[2]
    tables = "\n".join(table(title) for title in SECTIONS)
    PAGE.write_text(
        f"{before}<!-- options -->\n\n{tables}\n<!-- end of options -->\n{after}", encoding="utf-8"
    )
