"""Sphinx settings, the reference pages, and the step from our plain docstrings to reStructuredText."""

import pkgutil
import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))

from numpy.typing import ArrayLike  # noqa: E402
from sphinx.util.typing import stringify_annotation  # noqa: E402

import tellers  # noqa: E402

project = "tellers"
author = "The tellers authors"
copyright = author
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]["version"]
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
default_role = "code"

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "undoc-members": False,
    # scikit-learn writes these methods and their words, in a markup of its own.
    "exclude-members": "set_fit_request, set_score_request",
}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = f"tellers {release}"
html_static_path = []
html_copy_source = False

_LABELS = ("Guarantee:", "Assumes:", "Reference:")


def write_reference(_app: object) -> None:
    """Write one page per public module, so that a new module cannot be forgotten."""
    folder = HERE / "reference" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    names = [m.name for m in pkgutil.walk_packages(tellers.__path__, "tellers.")]
    names = [n for n in names if not any(part.startswith("_") for part in n.split("."))]
    for stale in folder.glob("*.md"):
        if stale.stem not in names:
            stale.unlink()
    for name in names:
        # A name is documented where it is written, not again where a package hands it on.
        text = f"# {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :ignore-module-all:\n```\n"
        page = folder / f"{name}.md"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def plain_to_rst(
    _app: object, _what: str, _name: str, _obj: object, _options: object, lines: list[str]
) -> None:
    """Turn a docstring of paragraphs, indented formulas, three labelled lines and examples into markup."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip("\n"))
    lines[:] = [*"\n\n".join(_paragraph(p) for p in paragraphs).splitlines(), ""]


def _paragraph(text: str) -> str:
    first = text.lstrip("\n").splitlines()[0] if text.strip() else ""
    if first.startswith(">>>"):
        return text
    if first.startswith(" "):
        return "::\n\n" + text
    if first.startswith(_LABELS):
        return _labelled(text)
    if first.startswith(("- ", "* ")):
        return "\n".join(
            line if line.startswith(" ") else line[:2] + _inline(line[2:]) for line in text.splitlines()
        )
    return _inline("\n".join(line.strip() for line in text.splitlines()))


def _labelled(text: str) -> str:
    """Make each of the lines Guarantee, Assumes and Reference, with what continues it, its own paragraph."""
    parts: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith(_LABELS) or not parts:
            parts.append([])
        parts[-1].append(line.strip())
    joined = (" ".join(part) for part in parts)
    return "\n\n".join(re.sub(r"^(\w+): *(.*)", lambda m: f"*{m[1]}:* {_inline(m[2])}", p) for p in joined)


def _inline(text: str) -> str:
    """Keep words between backticks as code; elsewhere no character has a second meaning."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"`{piece}`" if piece.startswith("`") else re.sub(r"([\\*|_])", r"\\\1", piece) for piece in pieces
    )


def shorten_types(
    _app: object,
    _what: str,
    _name: str,
    _obj: object,
    _options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    """Write ArrayLike and NDArray instead of what they stand for, which takes half a page."""
    return _shortened(signature), _shortened(returned)


def _shortened(text: str | None) -> str | None:
    if text is None:
        return None
    for mode in ("smart", "fully-qualified", "fully-qualified-except-typing"):
        text = text.replace(stringify_annotation(ArrayLike, mode), "ArrayLike")  # type: ignore[arg-type]
    text = re.sub(r"~?\b(?:numpy|typing)\.(?=ndarray|dtype|Any|float64|int64|bool)", "", text)
    return re.sub(r"ndarray\[(?:Any|~?tuple\[[^]]*\]), dtype\[([\w.]+)\]\]", r"NDArray[\1]", text)


def setup(app) -> None:
    """Hook the functions above into the build."""
    app.connect("autodoc-process-signature", shorten_types)
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", plain_to_rst)
