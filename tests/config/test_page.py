"""The reference page has every option with its default and its words, as the records have them.

`python tests/config/test_page.py` writes its tables anew.
"""

import re
import sys
from pathlib import Path

import pytest

from tellers.runs import RunConfig
from tellers.runs.settings._fields import options_of
from tellers.runs.settings.files import default_words
from tellers.runs.settings.sections import SECTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "config.md"
KINDS = {"seed": RunConfig, **SECTIONS}


def table(title: str) -> str:
    """Return a section's heading and table, as the page should have them."""
    rows = ["| option | default | what it says |", "|---|---|---|"]
    for option in options_of(KINDS[title]):
        usual = default_words(option)
        shown = usual if "shown" in option.metadata else f"`{usual}`" if usual else ""
        rows.append(f"| `{option.name}` | {shown} | {option.metadata['words']} |")
    heading = "seed" if title == "seed" else f"[{title}]"
    return "\n".join([f"### {heading}", "", *rows, ""])


@pytest.mark.parametrize("title", list(KINDS))
def test_the_page_has_every_option(title):
    assert table(title) in PAGE.read_text(encoding="utf-8"), f"run: python {Path(__file__).name}"


def test_the_page_has_no_other_section():
    found = re.findall(r"^### \[?(\w+)\]?$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found == list(KINDS)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- options -->\n")
    after = rest.partition("<!-- end of options -->\n")[2]
    tables = "\n".join(table(title) for title in KINDS)
    PAGE.write_text(
        f"{before}<!-- options -->\n\n{tables}\n<!-- end of options -->\n{after}", encoding="utf-8"
    )
    sys.exit(0)
