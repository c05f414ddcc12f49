"""Sphinx settings, the reference pages, and the step from our plain docstrings to reStructuredText."""

import importlib
import inspect
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
    """Write one page per package that exports names, so that a public name cannot be forgotten."""
    folder = HERE / "reference" / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    found = [m.name for m in pkgutil.walk_packages(tellers.__path__, "tellers.") if m.ispkg]
    packages = [n for n in found if hasattr(importlib.import_module(n), "__all__")]
    for stale in folder.glob("*.md"):
        if stale.stem not in packages:
            stale.unlink()
    written: set[int] = set()
    for name in sorted(packages, key=lambda n: -n.count(".")):
        # A name is documented once, in the innermost package that exports it.
        package = importlib.import_module(name)
        things = [(n, getattr(package, n)) for n in package.__all__]
        new = [(n, thing) for n, thing in things if id(thing) not in written]
        written |= {id(thing) for _, thing in new}
        text = f"# {name}\n\n{(package.__doc__ or '').strip()}\n\n```{{eval-rst}}\n"
        shown = [(n, _directive(thing)) for n, thing in new]
        text += "\n".join(f".. {how}:: {name}.{n}" for n, how in shown if how) + "\n```\n"
        constants = [f"`{n}`" for n, how in shown if not how]
        text += f"\nConstants: {', '.join(constants)}.\n" if constants else ""
        page = folder / f"{name}.md"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def _directive(thing: object) -> str | None:
    if inspect.ismodule(thing):
        return "automodule"
    if inspect.isclass(thing):
        return "autoexception" if issubclass(thing, BaseException) else "autoclass"
    return "autofunction" if callable(thing) else None


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


def forget_signature(_app: object, thing: object, _bound: bool) -> None:
    """Drop what Sphinx noted of a class method when it documented it under another name."""
    if inspect.ismethod(thing):
        vars(thing.__func__).pop("__signature__", None)


def setup(app) -> None:
    """Hook the functions above into the build."""
    app.connect("autodoc-before-process-signature", forget_signature, priority=100)
    app.connect("autodoc-process-signature", shorten_types)
    app.connect("builder-inited", write_reference)
    app.connect("autodoc-process-docstring", plain_to_rst)
