"""What is public is documented, and what the documentation shows works."""

import contextlib
import doctest
import functools
import importlib
import inspect
import io
import pkgutil
import re
import shlex
import shutil
import tomllib
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import tellers

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)]
PAGES = [p for p in PAGES if "generated" not in p.parts]
SHELL = {"bash", "console", "sh", "shell"}


# --- What is public: the names that packages export. They are documented, typed, and shown in an example. ---


def packages() -> list[str]:
    """Return the packages that export names."""
    found = [m.name for m in pkgutil.walk_packages(tellers.__path__, "tellers.") if m.ispkg]
    return ["tellers", *(n for n in found if hasattr(importlib.import_module(n), "__all__"))]


@dataclass(frozen=True)
class Public:
    """One public thing, with the class it belongs to."""

    name: str
    thing: typing.Any
    owner: type | None = None


@functools.cache
def public_things() -> list[Public]:
    found: dict[tuple[str, str], Public] = {}
    for package in packages():
        for name in importlib.import_module(package).__all__:
            thing = getattr(importlib.import_module(package), name)
            home = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
            if not (inspect.isclass(thing) or callable(thing)) or home in found or None in home:
                continue
            found[home] = Public(f"{package}.{name}", thing)
            for attribute, raw in vars(thing).items() if inspect.isclass(thing) else ():
                function = getattr(raw, "__func__", raw)
                if not attribute.startswith("_") and isinstance(
                    function, (type(lambda: 0), property, functools.cached_property)
                ):
                    found[*home, attribute] = Public(f"{package}.{name}.{attribute}", function, owner=thing)
    return list(found.values())


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


def lacking(public: Public) -> str | None:
    """Return what a public thing lacks: words, a summary of one sentence, types."""
    words = documentation(public.thing)
    summary = words.split("\n\n")[0]
    if not words:
        return "no docstring"
    if "\n" in summary or not summary.endswith((".", ":", "?")):
        return f"the summary is not one sentence on one line: {summary!r}"
    if isinstance(public.thing, (property, functools.cached_property)):
        getter = public.thing.fget if isinstance(public.thing, property) else public.thing.func
        missing = untyped(getter)
    elif not inspect.isclass(public.thing):
        missing = untyped(public.thing)
    elif "__init__" in vars(public.thing) and not is_protocol(public.thing):
        missing = [n for n in untyped(public.thing.__init__) if n != "return"]
    else:
        missing = []
    return f"no types for {missing}" if missing else None


def test_public_things_are_documented_and_typed():
    found = {public.name: lacking(public) for public in public_things()}
    assert len(found) > 300
    offenders = [f"{name}: {what}" for name, what in found.items() if what]
    assert not offenders, "\n".join(offenders)


def shown(public: Public, made: str) -> bool:
    """Say whether an example shows a thing: its own, its class's, or that of a function that makes it."""
    thing, owner = public.thing, public.owner
    if isinstance(thing, (property, functools.cached_property)) or is_protocol(thing) or is_protocol(owner):
        return True
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return True
    if ">>>" in documentation(thing):
        return True
    if owner is not None:
        lines = [line for line in documentation(owner).splitlines() if line.startswith((">>>", "..."))]
        return any(re.search(rf"\.{public.name.rpartition('.')[2]}\b", line) for line in lines)
    return hasattr(thing, "__dataclass_fields__") and bool(re.search(rf"\b{thing.__name__}\b", made))


def test_public_things_have_an_example():
    """Exceptions are raised, protocols implemented, properties read: they need none."""
    returned = [
        getattr(p.thing, "__annotations__", {}).get("return")
        for p in public_things()
        if ">>>" in documentation(p.thing)
    ]
    made = " ".join(r if isinstance(r, str) else getattr(r, "__name__", str(r)) for r in returned)
    offenders = [public.name for public in public_things() if not shown(public, made)]
    assert not offenders, "\n".join(offenders)


def test_modules_that_define_nothing_public_begin_with_an_underscore():
    """Nothing else tells a reader what may change any day; packages that export nothing need no mark."""
    homes = {getattr(p.thing, "__module__", None) for p in public_things() if p.owner is None}
    homes |= {"tellers.privacy.noise"}  # a public module
    # Stored models name their classes by module.
    homes |= {"tellers.data.label_models", "tellers.teachers.models", "tellers.teachers.ballots"}
    offenders = []
    for package in packages()[1:]:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            if not module.ispkg and (module.name in homes) == module.name.rpartition(".")[2].startswith("_"):
                offenders.append(module.name)
    assert not offenders, "\n".join(offenders)


def test_no_public_name_is_that_of_a_module_beside_it():
    """Python would hand out the module once something has imported it."""
    offenders = []
    for package in packages()[1:]:
        module = importlib.import_module(package)
        beside = {m.name for m in pkgutil.iter_modules(module.__path__)}
        offenders += [f"{package}.{name}" for name in module.__all__ if name in beside and name != "noise"]
    assert not offenders, offenders


def test_every_public_name_is_in_the_documentation():
    words = "\n".join(p.read_text(encoding="utf-8") for p in PAGES if p.is_relative_to(ROOT / "docs"))
    missing = [name for name in tellers.__all__ if not re.search(rf"\b{re.escape(name)}\b", words)]
    assert not missing, f"public, but on no page under docs/: {missing}"


def test_modules_say_what_they_are_for():
    names = [
        m.name for m in pkgutil.walk_packages(tellers.__path__, "tellers.") if "migrations" not in m.name
    ]
    silent = [
        n for n in names if n != "tellers.__main__" and not (importlib.import_module(n).__doc__ or "").strip()
    ]
    assert not silent, silent


def test_every_room_has_its_place_in_the_architecture():
    words = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    missing = [m.name for m in pkgutil.iter_modules(tellers.__path__) if f"`{m.name}" not in words]
    assert not [m for m in missing if m != "__main__"], f"not in docs/architecture.md: {missing}"


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
    from typer.testing import CliRunner

    from tellers.cli import build

    wide = {"COLUMNS": "240", "TERMINAL_WIDTH": "240", "NO_COLOR": "1"}
    done = CliRunner().invoke(build(verbs), [*verbs, "--help"], env=wide)
    assert done.exit_code == 0, f"tellers {' '.join(verbs)} --help fails:\n{done.output}"
    return done.output


def unknown_words(words: list[str]) -> list[str]:
    """Return the verbs and options of a command that its help does not know."""
    from tellers.cli import GROUPS

    verbs = [w for w in words if not w.startswith("-")][: 2 if words[:1] and words[0] in GROUPS else 1]
    wrong = [w for n, w in enumerate(verbs) if not re.search(rf"\b{re.escape(w)}\b", help_of(*verbs[:n]))]
    if wrong:
        return wrong
    known = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", help_of(*verbs)))
    return sorted({w.split("=")[0] for w in words if re.match(r"--?[A-Za-z]", w)} - known)


def test_commands_on_pages_exist():
    found = commands("tellers")
    assert len(found) > 50
    offenders = [f"{place}: {wrong}" for place, words in found if (wrong := unknown_words(words))]
    assert not offenders, "\n".join(offenders)


def test_make_targets_on_pages_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = {
        (w, place) for place, words in commands("make") for w in words if re.fullmatch(r"[a-z][a-z-]*", w)
    }
    offenders = sorted(f"{place}: {word}" for word, place in wanted if word not in targets)
    assert not offenders, "\n".join(offenders)


def links(page: Path) -> list[str]:
    text = re.sub(r"(`{3,})[^\n]*\n.*?\n\1", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`|\$[^$\n]*\$", "", text)
    return re.findall(r"\]\(([^)\s]+)\)", text)


def broken_links(page: Path) -> list[str]:
    home = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Source"]
    raw = home.replace("github.com", "raw.githubusercontent.com")
    ours = re.compile(rf"(?:{re.escape(home)}/(?:blob|tree)|{re.escape(raw)})/main/")
    broken = []
    for target in links(page):
        own = ours.match(target)
        if not own and re.match(r"https?://|mailto:|#", target):
            continue
        # A package index shows the README by itself: there a relative link leads nowhere.
        relative = not own and page.name == "README.md"
        path = ROOT / target[own.end() :] if own else page.parent / target
        if relative or not Path(str(path).split("#")[0]).exists():
            broken.append(f"{page_name(page)}: {target}")
    return broken


def test_links_on_pages_lead_somewhere():
    offenders = [link for page in PAGES for link in broken_links(page)]
    assert not offenders, "\n".join(offenders)
