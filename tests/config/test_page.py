"""The pages of settings have every option with its default and its meaning, as the schema has them.

`python tests/config/test_page.py` writes their tables anew.
"""

import re
from pathlib import Path

import pytest

from tellers.runs import PartySettings, RunConfig
from tellers.runs.settings.schema import default_words
from tellers.service import ServiceSettings

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = {"config.md": RunConfig, "service.md": ServiceSettings, "confidential.md": PartySettings}
BEGIN, END = "<!-- options -->\n", "<!-- end of options -->\n"


def tables(kind):
    """Return the heading and table of every section, as the page should have them."""
    for title, section in {**({"seed": kind} if kind.declared() else {}), **kind.sections()}.items():
        rows = ["| option | default | what it says |", "|---|---|---|"]
        for name, option in section.declared().items():
            usual = default_words(option)
            shown = f"`{usual}`" if usual and not option.json_schema_extra else usual
            rows.append(f"| `{name}` | {shown} | {option.description} |")
        heading = title if title == "seed" else f"[[{title}]]" if title == "peer" else f"[{title}]"
        yield "\n".join([f"### {heading}", "", *rows, ""])


@pytest.mark.parametrize("page", PAGES)
def test_the_page_has_every_option_and_no_other(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    told = text.partition(BEGIN)[2].partition(END)[0]
    assert told == "\n" + "\n".join(tables(PAGES[page])) + "\n", f"run: python {Path(__file__).name}"


@pytest.mark.parametrize("page", PAGES)
def test_no_section_stands_elsewhere_on_the_page(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.findall(r"^### \[+(\w+)\]+$", text, re.MULTILINE)
    assert found == list(PAGES[page].sections())


if __name__ == "__main__":
    for name, settings in PAGES.items():
        page = (DOCS / name).read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        told = "\n" + "\n".join(tables(settings)) + "\n"
        (DOCS / name).write_text(f"{before}{BEGIN}{told}{END}{rest.partition(END)[2]}", encoding="utf-8")
