"""What is public is documented, and what the documentation shows works."""

import contextlib
import doctest
import functools
import importlib
import inspect
import io
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

import tellers

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]
PAGES = [p for p in PAGES if "generated" not in p.parts]
SHELL = {"bash", "console", "sh", "shell"}


# --- Every public function, class and method: a summary, types, an example. ---


def public_modules() -> list[str]:
    names = [m.name for m in pkgutil.walk_packages(tellers.__path__, "tellers.")]
    return ["tellers", *(n for n in names if not any(part.startswith("_") for part in n.split(".")))]


@dataclass(frozen=True)
class Public:
    """One public thing, with the class it belongs to."""

    name: str
    thing: typing.Any
    owner: type | None = None


def public_things() -> Iterator[Public]:
    for module_name in public_modules():
        # Commands are documented by their help, which tests of the command line read.
        if module_name == "tellers.cli" or module_name.startswith("tellers.cli."):
            continue
        try:
            module = importlib.import_module(module_name)
        except Exception:  # test_modules_are_described shows which one and why
            continue
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != module_name:
                continue
            if inspect.isfunction(thing) or isinstance(thing, functools._lru_cache_wrapper):
                yield Public(f"{module_name}.{name}", thing)
            elif inspect.isclass(thing):
                yield Public(f"{module_name}.{name}", thing)
                for attribute, raw in vars(thing).items():
                    function = getattr(raw, "__func__", raw)
                    if not attribute.startswith("_") and isinstance(
                        function, (type(lambda: 0), property, functools.cached_property)
                    ):
                        yield Public(f"{module_name}.{name}.{attribute}", function, owner=thing)


THINGS = sorted(public_things(), key=lambda p: p.name)


def documentation(thing: object) -> str:
    # Not inspect.getdoc, which would lend a method its ancestor's words.
    text = getattr(thing, "__doc__", None) or ""
    generated = inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")
    return "" if generated else inspect.cleandoc(text)


def untyped(function: typing.Any) -> list[str]:
    signature = inspect.signature(function)
    missing = [
        p.name
        for p in signature.parameters.values()
        if p.annotation is inspect.Parameter.empty and p.name not in ("self", "cls")
    ]
    return missing + (["return"] if signature.return_annotation is inspect.Signature.empty else [])


def is_protocol(thing: object) -> bool:
    return bool(getattr(thing, "_is_protocol", False))


@pytest.mark.parametrize("public", THINGS, ids=lambda p: p.name)
def test_is_documented_and_typed(public):
    words = documentation(public.thing)
    assert words, f"{public.name} has no docstring"
    summary = words.split("\n\n")[0]
    assert "\n" not in summary, f"{public.name}: the summary takes more than one line"
    assert summary.endswith((".", ":", "?")), f"{public.name}: the summary is not a sentence: {summary!r}"
    if isinstance(public.thing, (property, functools.cached_property)):
        getter = public.thing.fget if isinstance(public.thing, property) else public.thing.func
        assert not untyped(getter), f"{public.name} does not say what it returns"
    elif not inspect.isclass(public.thing):
        assert not untyped(public.thing), f"{public.name} lacks types for {untyped(public.thing)}"
    elif "__init__" in vars(public.thing) and not is_protocol(public.thing):
        missing = [n for n in untyped(public.thing.__init__) if n != "return"]
        assert not missing, f"{public.name}() lacks types for {missing}"


def needs_example(public: Public) -> bool:
    """Say whether a thing is called: exceptions are raised, protocols implemented, properties read."""
    thing, owner = public.thing, public.owner
    if isinstance(thing, (property, functools.cached_property)):
        return False
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return False
    return not (is_protocol(thing) or is_protocol(owner))


def made_by_an_example(record: type) -> bool:
    """Say whether some function that returns the record has an example of its own."""
    for public in THINGS:
        returned = getattr(public.thing, "__annotations__", {}).get("return")
        named = returned if isinstance(returned, str) else getattr(returned, "__name__", str(returned))
        if re.search(rf"\b{record.__name__}\b", named) and ">>>" in documentation(public.thing):
            return True
    return False


@pytest.mark.parametrize("public", [p for p in THINGS if needs_example(p)], ids=lambda p: p.name)
def test_has_an_example(public):
    words = documentation(public.thing)
    if ">>>" in words:
        return
    if public.owner is not None:
        # A method may be shown where its class is.
        method = public.name.rpartition(".")[2]
        shown = [line for line in documentation(public.owner).splitlines() if line.startswith((">>>", "..."))]
        assert any(re.search(rf"\.{method}\b", line) for line in shown), f"{public.name} has no example"
    else:
        # A record that users receive may be shown where it is made.
        assert hasattr(public.thing, "__dataclass_fields__"), f"{public.name} has no example"
        assert made_by_an_example(public.thing), f"{public.name} has no example"


def test_every_public_name_is_in_the_documentation():
    words = "\n".join(p.read_text(encoding="utf-8") for p in PAGES if p.is_relative_to(ROOT / "docs"))
    missing = [name for name in tellers.__all__ if not re.search(rf"\b{re.escape(name)}\b", words)]
    assert not missing, f"public, but on no page under docs/: {missing}"


# --- Every block of code on a page runs, every command exists, every link leads somewhere. ---


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, where it starts, and why it is not run, if so."""

    language: str
    text: str
    line: int
    not_run: str | None


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page; `<!-- not run: reason -->` before a fence exempts the block."""
    found, fence, language, start, reason, body = [], "", "", 0, None, []
    previous = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        opening = re.match(r"(`{3,})\s*\{?([\w-]*)", line)
        if fence:
            if line.strip() == fence:
                found.append(Block(language, "\n".join(body) + "\n", start, reason))
                fence = ""
            else:
                body.append(line)
        elif opening:
            fence, language, start, body = opening.group(1), opening.group(2), number + 1, []
            exempt = re.fullmatch(r"<!-- not run: (.+) -->", previous.strip())
            reason = exempt.group(1) if exempt else None
        if line.strip():
            previous = line
    assert not fence, f"{page.name}: the block at line {start} never ends"
    return found


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(b.language == "python" for b in blocks(p))], ids=page_name
)
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    """All blocks of a page share one namespace, as they do for a reader who pastes them in order."""
    if (ROOT / "examples").is_dir():
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__page__"}
    for block in blocks(page):
        if block.language != "python" or block.not_run:
            continue
        if block.text.lstrip().startswith(">>>"):
            run_doctest(block, namespace, page)
            continue
        # Blank lines in front make a traceback point at the line of the page.
        code = compile("\n" * (block.line - 1) + block.text, page_name(page), "exec")
        with contextlib.redirect_stdout(io.StringIO()):
            exec(code, namespace)


def run_doctest(block: Block, namespace: dict[str, object], page: Path) -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(
        block.text, namespace, page_name(page), page_name(page), block.line - 1
    )
    # The test works on a copy; what it defines must be there for the next block.
    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=flags)
    failed, _ = runner.run(test, out=report.write, clear_globs=False)
    namespace.update(test.globs)
    assert not failed, report.getvalue()


def shell_lines(page: Path) -> Iterator[tuple[int, list[str]]]:
    for block in blocks(page):
        if block.language not in SHELL or block.not_run:
            continue
        logical = re.sub(r"\\\n\s*", " ", block.text)
        for line in logical.splitlines():
            command = line.removeprefix("$ ").strip()
            if block.language == "console" and not line.startswith("$ "):
                continue  # output
            if command and not command.startswith("#"):
                yield block.line, shlex.split(command, comments=True)


def commands(program: str) -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for line, words in shell_lines(page):
            if program in (w.rpartition("/")[2] for w in words[:1]):
                found.append((f"{page_name(page)}:{line}", words[1:]))
    return found


@functools.cache
def help_of(*verbs: str) -> str:
    words = [*verbs, "--help"]
    wide = {"COLUMNS": "240", "TERMINAL_WIDTH": "240", "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", "from tellers.cli import main; main()", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **wide},
    )
    assert done.returncode == 0, f"tellers {' '.join(words)} fails:\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.parametrize(
    ("place", "words"), commands("tellers"), ids=lambda v: v if isinstance(v, str) else None
)
def test_commands_on_the_page_exist(place, words):
    from tellers.cli import GROUPS

    verbs = [w for w in words if not w.startswith("-")][: 2 if words[:1] and words[0] in GROUPS else 1]
    verb = " ".join(verbs)
    known = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", help_of(*verbs)))
    for n, word in enumerate(verbs):
        assert re.search(rf"\b{re.escape(word)}\b", help_of(*verbs[:n])), f"{place}: no verb {word!r}"
    flags = {w.split("=")[0] for w in words if re.match(r"--?[A-Za-z]", w)}
    assert flags <= known, f"{place}: `tellers {verb}` does not know {sorted(flags - known)}"


@pytest.mark.parametrize(
    ("place", "words"), commands("make"), ids=lambda v: v if isinstance(v, str) else None
)
def test_make_targets_on_the_page_exist(place, words):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {w for w in words if "=" not in w and not w.startswith("-")}
    assert wanted <= targets, f"{place}: the Makefile has no {sorted(wanted - targets)}"


def links(page: Path) -> list[str]:
    text = re.sub(r"(`{3,})[^\n]*\n.*?\n\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`|\$[^$\n]*\$", "", text)
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_on_the_page_lead_somewhere(page):
    for target in links(page):
        if re.match(r"https?://|mailto:|#", target):
            continue
        assert (page.parent / target.split("#")[0]).exists(), f"{page_name(page)} links to {target}"


def test_every_module_has_its_place_in_the_architecture():
    words = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = [m.name for m in pkgutil.iter_modules(tellers.__path__) if f"`{m.name}`" not in words]
    assert not missing, f"not in docs/architecture.md: {missing}"


def test_modules_are_described():
    for name in public_modules():
        module: ModuleType = importlib.import_module(name)
        assert (module.__doc__ or "").strip(), f"{name} does not say what it is for"
