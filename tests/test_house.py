"""Rules of the repository that a linter does not know: public names, size, fragments, stray words."""

import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tellers

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src" / "tellers").rglob("*.py"))
TEXT = {
    ".cfg",
    ".css",
    ".html",
    ".ini",
    ".js",
    ".json",
    ".md",
    ".py",
    ".sh",
    ".svg",
    ".toml",
    ".txt",
    ".yaml",
    ".yml",
}
SKIPPED = {".git", ".venv", "_build", "build", "dist", "generated", "__pycache__"}

# Written in pieces, so that this file does not contain what it looks for.
STRAY = {
    "a path of somebody's machine": r"/(?:wo" + r"rk|ro" + r"ot|opt|tmp/env|home/\w+)/",
    "a local package index": r"file:" + r"//|--extra-index" + r"-url|--find-" + r"links",
    "a package registry's address": r"https?://(?:files\.)?(?:py" + r"pi\.org|pythonhosted\.org)",
    "a tracker's number": r"\b[Ii]ss" + r"ue #?\d",
    "a note to come back": r"\bFIX" + r"ME\b|\bX" + r"XX\b|\bTO" + r"DO\b",
    "a merge that was not finished": r"^(?:<{7}|>{7}) ",
}


def repository_files() -> list[Path]:
    """Return the repository's text files: those git knows or would add, or all outside build folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout.splitlines()  # fmt: skip
        paths = [ROOT / line for line in listed]
    except (OSError, subprocess.CalledProcessError):
        paths = [p for p in ROOT.rglob("*") if not SKIPPED & set(p.relative_to(ROOT).parts)]
    bare = {"Makefile", "LICENSE", "run", ".gitignore"}
    return sorted(p for p in paths if p.is_file() and (p.suffix in TEXT or p.name in bare))


def run_python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT / "src",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_public_names_are_sorted_and_there():
    assert list(tellers.__all__) == sorted(tellers.__all__)
    assert len(set(tellers.__all__)) == len(tellers.__all__)
    for name in tellers.__all__:
        assert getattr(tellers, name) is not None
    assert set(tellers.__all__) <= set(dir(tellers))


def test_public_names_are_complete():
    nouns = {"Accountant", "Budget", "Cost", "RdpCurve", "Release", "Sealed", "Unit", "Votes"}
    mechanisms = {"ConfidentGNMax", "GNMax", "InteractiveGNMax", "LNMax", "NoisyHistogram"}
    verbs = {"MemoryLedger", "SILENT", "describe", "noise"}
    assert nouns | mechanisms | verbs <= set(tellers.__all__)


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NoSuchName"):
        tellers.NoSuchName  # noqa: B018


def test_importing_tellers_loads_no_library():
    heavy = ["numpy", "scipy", "sklearn", "typer", "rich", "pydantic", "sqlalchemy"]
    code = f"import sys, tellers; print([m for m in {heavy} if m in sys.modules])"
    assert run_python(code) == "[]"


def test_the_version_is_said_once():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    version = getattr(tellers, "__version__", declared)
    assert version == declared


def test_no_stray_words():
    found = []
    for path in repository_files():
        text = path.read_text(encoding="utf-8")
        for what, words in STRAY.items():
            for match in re.finditer(words, text, re.MULTILINE):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(ROOT)}:{line}: {match.group()!r}, {what}")
    assert not found, "\n".join(found)


def test_code_that_pages_name_is_there():
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for path in re.findall(r"\b(?:src/tellers|tests)/[\w/]+\.py", page.read_text(encoding="utf-8")):
            if not (ROOT / path).exists():
                found.append(f"{page.relative_to(ROOT)}: {path}")
    assert not found, "\n".join(found)


def test_the_house_is_small():
    """A new room or storey is a decision (docs/architecture.md), not an accident."""
    names = [m.name for m in pkgutil.iter_modules(tellers.__path__)]
    assert len(names) <= 15, names
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    storeys = next(c["layers"] for c in contracts if c["type"] == "layers")
    assert len(storeys) <= 7, storeys
    assert len(SOURCES) <= 320
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in SOURCES) <= 81_500


def test_every_constraint_is_a_name_and_a_version():
    lines = (ROOT / "constraints" / "ci.txt").read_text().splitlines()
    bad = [
        line for line in lines if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][0-9A-Za-z.]*", line)
    ]
    assert not bad, bad
    names = [re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines]
    assert len(names) == len(set(names)), "a package is constrained twice"
    # A local version such as +cpu would be unsatisfiable elsewhere; ==2.13.0 admits it where it exists.
    assert "torch==2.13.0" in lines


def test_published_metadata_has_no_caps():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [r for rs in project["optional-dependencies"].values() for r in rs]
    capped = [r for r in wanted if re.search(r"<|==|~=", r.split(";")[0])]
    assert not capped, capped


def test_base_dependencies_are_constrained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints" / "ci.txt").read_text().splitlines()
    known = {re.sub(r"[-_.]+", "-", line.split("==")[0]).lower() for line in lines}
    wanted = project["dependencies"] + [r for rs in project["optional-dependencies"].values() for r in rs]
    names = {re.match(r"[A-Za-z0-9_.-]+", r).group().lower() for r in wanted}  # type: ignore[union-attr]
    # limits and opentelemetry's parts are pinned too, so one file makes one environment.
    assert not names - known, sorted(names - known)


def test_no_class_name_is_defined_twice():
    places = {}
    for path in SOURCES:
        for name in re.findall(r"^\s*class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_changelog_fragments_are_named_for_what_they_say():
    fragments = [p for p in (ROOT / "changelog.d").iterdir() if p.name != "README.md"]
    for path in fragments:
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*\.(?:added|changed|fixed|privacy)\.md", path.name), path.name
        assert path.read_text(encoding="utf-8").strip(), f"{path.name} is empty"


def test_the_forge_runs_the_lines_of_our_own_script():
    ours = re.findall(r"^make .+$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    forge = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert ours
    assert [line for line in ours if line not in forge] == []


def test_the_citation_has_the_version_and_vendored_parts_their_licences():
    assert f"version: {tellers.__version__}" in (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {path for pattern in project["license-files"] for path in ROOT.glob(pattern)}
    vendored = {p for p in (ROOT / "src").rglob("vendor/*") if p.suffix == ".LICENSE" or p.stem == "NOTICE"}
    assert vendored
    assert vendored <= named
