"""What golden tests share: call the command line, mask what changes from day to day, compare, unpack.

Only the command line, files and documented names are used, so modules may move without a change here.
"""

import base64
import contextlib
import enum
import hashlib
import inspect
import io
import json
import math
import multiprocessing.process  # noqa: F401  (its first import draws a key)
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import tomllib
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

HERE = Path(__file__).resolve().parent
INPUTS = HERE / "inputs"
OLD = HERE / "old"
# Opens the kept vault, which holds made-up votes: no secret, and written so that nobody takes it for one.
VAULT_KEY = base64.urlsafe_b64encode(b"a key that is kept for everybody").decode()

# What differs from day to day, from machine to machine or from draw to draw, and what stands for it.
MASKS = (
    (r"\b[0-9a-f]{64}\b", "<hash>"),
    (r"\b[0-9a-f]{32}\b", "<hash>"),
    (r"\b[0-9a-f]{16}\b", "<mark>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?", "<time>"),
    (r"\btlr_[A-Za-z0-9_-]+", "<key>"),
)
# Keys whose values say when, how long or by which version.
MASKED = {"versions", "started", "seconds", "created", "expires", "pin", "mask_key"}


def words_of(text: str) -> str:
    """Return text on one line."""
    return " ".join(text.split())


def masked(value: Any, folder: Path | None = None, *, hashes: bool = True) -> Any:
    """Return a value in which a word stands for what is never the same twice."""
    if isinstance(value, dict):
        return {
            masked(key, folder, hashes=hashes): (
                "<masked>" if _is_masked(key, one) else masked(one, folder, hashes=hashes)
            )
            for key, one in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(one, folder, hashes=hashes) for one in value]
    if not isinstance(value, str):
        return value
    if folder is not None:
        for name in sorted({str(folder), str(folder.resolve())}, key=len, reverse=True):
            value = value.replace(name, "<folder>")
    for pattern, word in MASKS:
        if hashes or word not in ("<hash>", "<mark>"):
            value = re.sub(pattern, word, value)
    return value


def _is_masked(key: str, value: Any) -> bool:
    drawn = key == "id" and isinstance(value, str) and re.fullmatch("[a-z0-9]{12}", value)
    return value is not None and (key in MASKED or bool(drawn))


def differences(found: Any, kept: Any, *, at: str = "", rel: float = 1e-9) -> list[str]:
    """Return where something that was kept is lost or changed; what was added is no difference."""
    if isinstance(kept, dict) and isinstance(found, dict):
        lost = [f"{at}.{key}: lost" for key in kept if key not in found]
        pairs = [(f"{at}.{key}", found[key], one) for key, one in kept.items() if key in found]
    elif isinstance(kept, list) and isinstance(found, list):
        lost = [f"{at}: {len(found)} entries, {len(kept)} were kept"] if len(found) != len(kept) else []
        pairs = [(f"{at}[{i}]", a, b) for i, (a, b) in enumerate(zip(found, kept))]
    elif isinstance(kept, bool) or isinstance(found, bool) or kept is None or found is None:
        return [] if found is kept else [f"{at}: {found!r}, {kept!r} was kept"]
    elif isinstance(kept, (int, float)) and isinstance(found, (int, float)):
        same = math.isclose(found, kept, rel_tol=rel, abs_tol=1e-12) or (
            math.isnan(found) and math.isnan(kept)
        )
        return [] if same else [f"{at}: {found!r}, {kept!r} was kept"]
    else:
        return [] if found == kept else [f"{at}: {found!r}, {kept!r} was kept"]
    return lost + [line for where, a, b in pairs for line in differences(a, b, at=where, rel=rel)]


class _Steady:
    """The same bytes every time, in place of the operating system's."""

    def __init__(self, seed: int = 7) -> None:
        self._seed, self._n = seed, 0

    def __call__(self, n: int) -> bytes:
        self._n += 1
        return hashlib.shake_256(f"{self._seed}/{self._n}".encode()).digest(n)


@contextlib.contextmanager
def _steadily() -> Iterator[None]:
    """Draw the same noise every time, and as when the files were made: by coins, not off a table."""
    from tellers import noise

    def kept(method: Callable[..., Any]) -> Callable[..., Any]:
        coins = noise.Noise(lambda n: os.urandom(n))
        return lambda self, *law: method(coins if self.is_secure else self, *law)

    laws = {name: kept(getattr(noise.Noise, name)) for name in ("discrete_gaussian", "discrete_laplace")}
    with mock.patch("os.urandom", _Steady()), mock.patch.multiple(noise.Noise, **laws):
        yield


@contextlib.contextmanager
def _inside(folder: Path, more: dict[str, str]) -> Iterator[None]:
    """Work in a folder, with an environment that says nothing of this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TELLERS")}
    usual = {"COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, {**kept, **usual, **more}, clear=True):
            yield
    finally:
        os.chdir(before)


def call(
    words: Sequence[Any], folder: Path, *, steady: bool = False, environment: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Run one command in a folder; return its exit code and what it printed.

    `steady` makes what is drawn for privacy the same every time.
    """
    from tellers.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    draws = _steadily() if steady else contextlib.nullcontext()
    with (
        _inside(folder, environment or {}), draws, warnings.catch_warnings(),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        try:
            main([str(word) for word in words])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, out.getvalue(), err.getvalue()


def outcome(done: tuple[int, str, str], folder: Path, *, hashes: bool = True) -> dict[str, Any]:
    """Return what came of a command: its code, its JSON if it printed any, and what it said on stderr."""
    code, out, err = done
    told: dict[str, Any] = {"code": code}
    with contextlib.suppress(ValueError):  # words for people, which may be put better
        told["out"] = _shortened(masked(json.loads(out), folder, hashes=hashes))
    lines = [words_of(masked(line, folder, hashes=hashes)) for line in err.splitlines() if line.strip()]
    return {**told, "err": lines} if lines else told


def _shortened(told: Any) -> Any:
    """Return what a plan says with its best lines alone: there are hundreds of them."""
    if isinstance(told, dict) and len(told.get("plans") or ()) > 4:
        return {**told, "plans": told["plans"][:4], "n_plans": len(told["plans"])}
    return told


def read_words(line: str) -> list[str]:
    """Return the words of a command line; a semicolon is a letter like any other."""
    return shlex.split(line)


def documented(module: str, name: str) -> Any:
    """Return a name that the pages import, whether or not its module warns that it moved."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(import_module(module), name)


def read(name: str) -> Any:
    """Return a golden file, with what stands in it once for many places put back."""
    value = json.loads((HERE / name).read_text(encoding="utf-8"))
    if set(value) != {"kept", "shared"}:
        return value
    shared = value["shared"]

    def put_back(one: Any) -> Any:
        if isinstance(one, dict):
            return (
                put_back(shared[one["="]]) if set(one) == {"="} else {k: put_back(v) for k, v in one.items()}
            )
        return [put_back(inner) for inner in one] if isinstance(one, list) else one

    return put_back(value["kept"])


def write(name: str, value: Any, *, share: bool = False) -> None:
    """Write a golden file: what lies two levels deep has a line of its own.

    With `share`, what is the same in many places stands once, under a number: {"=": "7"} is number 7.
    """
    text = _laid_out(_shared(value), 3) if share else _laid_out(value, 2)
    (HERE / name).write_text(text + "\n", encoding="utf-8")


def _shared(value: Any) -> dict[str, Any]:
    """Return a value in which large parts that come again are numbered, with the list of them."""
    seen: dict[str, int] = {}

    def count(one: Any) -> None:
        text = json.dumps(one)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 1 and isinstance(one, (dict, list)):
            for inner in one.values() if isinstance(one, dict) else one:
                count(inner)

    count(value)
    numbers: dict[str, str] = {}
    shared: dict[str, Any] = {}

    def put_in(one: Any) -> Any:
        text = json.dumps(one)
        if len(text) > 60 and seen[text] > 1:
            if text not in numbers:
                numbers[text] = str(len(numbers))
                shared[numbers[text]] = inside(one)
            return {"=": numbers[text]}
        return inside(one)

    def inside(one: Any) -> Any:
        if isinstance(one, dict):
            return {key: put_in(inner) for key, inner in one.items()}
        return [put_in(inner) for inner in one] if isinstance(one, list) else one

    return {"kept": inside(value), "shared": shared}


def _laid_out(value: Any, depth: int) -> str:
    if depth and isinstance(value, dict) and value:
        inner = (f"{json.dumps(k, ensure_ascii=False)}: {_laid_out(v, depth - 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(inner) + "\n}"
    if depth and isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return "[\n" + ",\n".join(_laid_out(v, depth - 1) for v in value) + "\n]"
    return json.dumps(value, ensure_ascii=False)


def inputs(folder: Path) -> Path:
    """Copy the inputs of commands to a folder, and return it."""
    shutil.copytree(INPUTS, folder, dirs_exist_ok=True)
    return folder


def pack(folder: Path, name: str) -> None:
    """Keep a folder as an archive in which nothing tells of this machine."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = 0
        return None if member.name.endswith((".lock", "-wal", "-shm")) else member

    OLD.mkdir(exist_ok=True)
    with tarfile.open(OLD / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(folder, arcname=name, filter=plain)


def unpack(name: str, to: Path) -> Path:
    """Unpack a kept folder, and return it."""
    with tarfile.open(OLD / f"{name}.tar.xz") as archive:
        archive.extractall(to, filter="data")
    return to / name


def layout(folder: Path) -> dict[str, str]:
    """Return the files of a folder, in order; numbers of teachers and drawn names are masked."""
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    shown = {
        re.sub(r"-(?:\d{5}|[0-9a-f]{16})\b", "-<n>", name) for name in names if not name.endswith(".lock")
    }
    return dict.fromkeys(sorted(shown), "")


def finished_run(folder: Path, name: str) -> dict[str, Any]:
    """Run the settings `run-NAME.toml` of a folder with inputs, and return all that is kept of it."""
    done = call(["run", f"run-{name}.toml", "--out", "out", "--json"], folder, steady=True)
    if done[0]:
        return outcome(done, folder)
    told = outcome(done, folder)
    printed, left = told.pop("out"), left_by(folder / "out", folder)
    assert printed == {**left["result.json"], "folder": "out"}, "what is printed is not what is kept"
    left["result.json"]["settings"] = dict.fromkeys(left["result.json"]["settings"], "<masked>")
    return {**told, **left}


def left_by(out: Path, folder: Path) -> dict[str, Any]:
    """Return what the folder of a finished run holds, as plain values."""
    told: dict[str, Any] = {"files": layout(out)}
    for file in (
        "result.json",
        "student/card.json",
        "plan.json",
        "private/record.json",
        "private/summary.json",
    ):
        if (out / file).is_file():
            told[file] = masked(json.loads((out / file).read_text(encoding="utf-8")), folder)
    card = (out / "student" / "card.md").read_text(encoding="utf-8")
    told["card.md"] = [line for line in card.splitlines() if line.startswith("#")]
    told["manifest.json"] = sorted(json.loads((out / "student" / "manifest.json").read_text())["files"])
    with np.load(out / "labels.npz") as arrays:
        told["labels.npz"] = {
            # Noisy counts are drawn; that they are there, and of which shape, is not.
            key: list(arrays[key].shape) if key == "values" else arrays[key].tolist()
            for key in sorted(arrays.files)
        }
    if (out / "labels.csv").is_file():
        told["labels.csv"] = (out / "labels.csv").read_text().splitlines()
    report = (out / "report.html").read_text(encoding="utf-8") if (out / "report.html").is_file() else ""
    told["report.html"] = [
        words_of(text) for text in re.findall(r"<h[12][^>]*>(.*?)</h[12]>", report, re.DOTALL)
    ]
    for verb in ("status", "list", "reprice"):
        told[f"ledger {verb}"] = outcome(call(["ledger", verb, out / "ledger.db", "--json"], folder), folder)[
            "out"
        ]
    lines = call(["ledger", "export", out / "ledger.db"], folder)[1].splitlines()
    # Keys of what is exported: those of every line, and of the events inside.
    told["ledger export"] = {key: "" for line in lines for key in sorted(_keys(json.loads(line)))}
    told["account"] = outcome(call(["account", out, "--json"], folder), folder)
    return told


def parameters_of(thing: Any) -> dict[str, Any]:
    """Return the parameters of a function, or of a class and its public methods; of a module, its names."""
    if inspect.ismodule(thing):
        public = [name for name in dir(thing) if not name.startswith("_")]
        own = [n for n in public if getattr(getattr(thing, n), "__module__", "") == thing.__name__]
        return {"kind": "module", "members": {name: parameters_of(getattr(thing, name)) for name in own}}
    if inspect.isclass(thing):
        told: dict[str, Any] = {"kind": "class", "parameters": _parameters(thing), "members": {}}
        for name, one in inspect.getmembers(thing):
            if not name.startswith("_") and not isinstance(one, type):
                told["members"][name] = _parameters(one) if callable(one) else []
        return told
    if callable(thing):
        return {"kind": "function", "parameters": _parameters(thing)}
    return {"kind": "value", "value": repr(thing)}


def _parameters(thing: Any) -> list[str]:
    """Return parameters: `name`, or `name=` where there is a default; `*` stands before those by name."""
    try:
        given = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    told = []
    for one in given:
        if one.kind == one.KEYWORD_ONLY and "*" not in told:
            told.append("*")
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        told.append(f"{stars}{one.name}" + ("=" if one.default is not one.empty else ""))
    return told


def command_tree() -> dict[str, Any]:
    """Return every command with its options and arguments, as the command line itself declares them."""
    import typer

    from tellers.cli import main

    seen = []

    def look(self: Any, *_: Any, **__: Any) -> None:
        seen.append(self)

    def built(*words: str) -> Any:
        with mock.patch.object(typer.Typer, "__call__", look), contextlib.suppress(SystemExit):
            main([*words, "--help"])
        return typer.main.get_command(seen[-1])

    # Some options are looked up for the verb that is asked for alone.
    found: dict[str, Any] = {}
    for verb in built().commands:  # type: ignore[attr-defined]
        found |= _commands(built(verb).commands[verb], f"tellers {verb}")
    return found


def _commands(command: Any, path: str) -> dict[str, Any]:
    inner = getattr(command, "commands", {})
    found: dict[str, Any] = {} if inner else {path: [_option(one) for one in command.params]}
    for name in inner:
        found |= _commands(inner[name], f"{path} {name}")
    return found


def _option(one: Any) -> dict[str, Any]:
    default = one.default() if callable(one.default) else one.default
    told = {"names": [*one.opts, *one.secondary_opts], "required": bool(one.required)}
    if not isinstance(default, (str, int, float, bool, list, type(None))):
        default = getattr(default, "value", None) or str(default)
    if choices := _choices(one):
        told["choices"] = choices
    many = bool(getattr(one, "multiple", False)) or one.nargs != 1
    return {**told, "argument": one.param_type_name == "argument", "default": default, "many": many}


def _choices(one: Any) -> list[str]:
    """Return the words that an option takes, where it takes no others; versions of typer keep them apart."""
    given = getattr(getattr(one, "type", None), "choices", None)
    if given is None:
        hint = getattr(getattr(one, "type_descriptor", None), "annotation", None)
        kinds = [hint, *typing.get_args(hint)]
        given = [
            word for kind in kinds if isinstance(kind, type) and issubclass(kind, enum.Enum) for word in kind
        ]
    return [str(getattr(word, "value", word)) for word in given]


def settings_read(folder: Path, around: Path) -> dict[str, Any]:
    """Return how every settings file of a folder is read: all values, with defaults, or what they cost."""
    parse = documented("tellers.config", "parse_config")
    written = documented("tellers.config", "write_config")
    told: dict[str, Any] = {}
    for path in sorted((folder / "run").glob("*.toml")):
        told[f"run/{path.name}"] = tomllib.loads(written(parse(path.read_text(encoding="utf-8"))))
    # Short ones: what is left out has its default.
    short = {name: (INPUTS / f"run-{name}.toml").read_text() for name in ("gnmax", "binary", "upsampling")}
    for name, text in {"nothing": "", **short}.items():
        told[f"short/{name}"] = tomllib.loads(written(parse(text)))
    shutil.copy(INPUTS / "plain.npz", folder / "service" / "plain.npz")
    commands = [
        "serve --config service/service.toml --check --json",
        "keys list --config service/service.toml --json",
        "serve --config service/votes.toml --check --json", "ledger status service/service.db --json",
        *(
            f"party price --config party-{kind}/{name}/party.toml --epsilon 2 --delta 1e-6 --queries 7 --json"
            for kind in ("classes", "labels") for name in ("ann", "guard", "north", "south")
        ),
    ]  # fmt: skip
    for command in commands:
        told[command] = outcome(call(read_words(command), folder), folder)
    return told


def wrong_settings(wrong: dict[str, str], folder: Path) -> dict[str, Any]:
    """Return what is said of settings that are wrong."""
    (folder / "wrong.toml").write_text(wrong["text"], encoding="utf-8")
    return outcome(call(read_words(wrong["command"]), folder), folder)


def old_books(folder: Path) -> dict[str, Any]:
    """Return what ledgers, a vault, keys and a publication of before say, hashes included."""
    for version in (1, 2):
        shutil.copy(
            HERE.parent / "ledger" / "fixtures" / f"ledger-{version}.db", folder / f"version-{version}.db"
        )
    told: dict[str, Any] = {}
    commands = [
        f"ledger {verb} {name}.db --json"
        for name in ("spend", "version-1", "version-2") for verb in ("status", "list", "verify", "reprice")
    ]  # fmt: skip
    commands += [
        "ledger list spend.db --account student/alice --json",
        "ledger import spend.jsonl copy.db --json",
        "ledger verify copy.db --json",
        "ledger vault spend.db --vault costs.sealed --json",
        "keys list --config service.toml --json",
        "serve --config service.toml --check --json",
        "publish plain.npz --mechanism gnmax --sigma 4 --classes 3 --delta 1e-5 --yes --json",
        "publish plain.npz --mechanism gnmax --sigma 5 --classes 3 --delta 1e-5 --yes --json",
    ]
    for command in commands:
        done = call(read_words(command), folder, steady=True, environment={"TELLERS_VAULT_KEY": VAULT_KEY})
        told[command] = outcome(done, folder, hashes=False)
    for name in ("spend", "version-1", "version-2"):
        call(["ledger", "export", f"{name}.db", f"{name}.again.jsonl"], folder)
        lines = (folder / f"{name}.again.jsonl").read_text(encoding="utf-8").splitlines()
        told[f"export {name}"] = {
            "hash": hashlib.sha256("\n".join(lines).encode()).hexdigest(),
            "keys": sorted({key for line in lines for key in _keys(json.loads(line))}),
        }
    return told


def _keys(value: Any, at: str = "") -> list[str]:
    """Return the keys of a line of an export, and those inside of them."""
    if isinstance(value, str) and value.startswith("{"):
        value = json.loads(value)
    if not isinstance(value, dict):
        return []
    return [name for key, one in value.items() for name in (f"{at}{key}", *_keys(one, f"{at}{key}."))]


def old_teachers(folder: Path) -> dict[str, Any]:
    """Return how teachers of before vote, kind by kind."""
    load, load_labels = (documented("tellers.teachers", n) for n in ("load_ensemble", "load_label_ensemble"))
    rows, sounds, told = np.load(folder / "rows.npy"), np.load(folder / "sounds.npy"), {}
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        X = sounds if "sounds" in place.name else rows
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if place.name.startswith("labels"):
                votes = load_labels(place, n_labels=3).vote(X)
                ballots = np.asarray(votes.block()) if votes.is_sparse else np.asarray(votes.ballots)
            else:
                votes = load(place, n_classes=3).vote(X)
                ballots = np.asarray(votes.ballots)
        told[place.name] = {
            "n_teachers": votes.n_teachers,
            "ballots": ["".join(map(str, ballot.ravel().tolist())) for ballot in ballots.astype(int)],
        }
    return told


def old_students(folder: Path) -> dict[str, Any]:
    """Return what students of before answer."""
    load, rows, told = documented("tellers.card", "load_student"), np.load(folder / "rows.npy"), {}
    for name in ("estimator", "labels_estimator"):
        told[name] = {
            "answers": np.asarray(load(folder / name).predict(rows)).tolist(),
            "card": masked(json.loads((folder / name / "card.json").read_text(encoding="utf-8"))),
        }
    told["hearing"] = outcome(
        call(["audio", "tag", "city.wav", "--student", "hearing", "--json"], folder), folder
    )
    return told


def old_run(folder: Path) -> dict[str, Any]:
    """Return what is told of a finished run of before, and that going on with it changes nothing."""
    around, name = folder.parent, folder.name
    before = _hashes(folder)
    told: dict[str, Any] = {"account": outcome(call(["account", name, "--json"], around), around)}
    told["private"] = outcome(call(["account", name, "--show-private", "--json"], around), around)
    told["verify"] = outcome(
        call(["ledger", "verify", f"{name}/ledger.db", "--json"], around), around, hashes=False
    )
    told["report"] = outcome(call(["report", name, "--json"], around), around)
    (around / "service.toml").write_text(f'[data]\nsource = "run"\npath = "{name}"\n', encoding="utf-8")
    told["served"] = outcome(call(["serve", "--config", "service.toml", "--check", "--json"], around), around)
    if (folder / "publication.json").is_file():
        told["published"] = outcome(call(["publish", name, "--yes", "--json"], around), around)
    n_features = json.loads((folder / "result.json").read_text())["data"]["n_features"]
    rows = np.random.default_rng(7).uniform(-0.5, 1.5, (16, n_features)).round(2)
    rows[8:] *= 400
    student = documented("tellers.card", "load_student")(folder / "student")
    told["student"] = np.asarray(student.predict(rows)).tolist()
    # Votes are cast again, by the teachers that are there.
    for path in folder.glob("private/*votes.npz"):
        path.unlink()
    told["resumed"] = outcome(
        call(["run", f"{name}/config.toml", "--out", name, "--resume", "--json"], around), around
    )
    after = _hashes(folder)
    told["changed"] = sorted(
        path for path in before if after.get(path) != before[path] and not path.startswith("student/card")
    )
    return told


def _hashes(folder: Path) -> dict[str, str]:
    """Return hashes of the files that going on must not change: arrays by value, others by byte."""
    told = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".npz":
            with np.load(path) as arrays:
                content = b"".join(arrays[key].tobytes() for key in sorted(arrays.files))
        elif name == "result.json" or path.suffix in (".html", ".lock") or not path.is_file():
            continue
        else:
            content = path.read_bytes()
        told[name] = hashlib.sha256(content).hexdigest()
    return told


def shape_of(value: Any) -> Any:
    """Return keys and kinds of values: what stays where numbers are learned or drawn."""
    if isinstance(value, dict):
        return {key: shape_of(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    return (
        "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__
    )


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def served(folder: Path, *, start: Any = subprocess.Popen) -> dict[str, Any]:
    """Start a service over equal votes in a folder with inputs, ask it in every way, and stop it."""
    import httpx

    port, url = free_port(), ""
    settings = folder / "sure-service.toml"
    settings.write_text(settings.read_text().replace("port = 0", f"port = {port}"), encoding="utf-8")
    url, keys = f"http://127.0.0.1:{port}", {}
    for name, more in (
        ("alice", ["--epsilon", 23]), ("otto", ["--role", "operator"]), ("ada", ["--role", "auditor"]),
    ):  # fmt: skip
        words = ["keys", "create", "--config", settings.name, "--name", name, *more, "--json"]
        keys[name] = json.loads(call(words, folder)[1])["key"]
    around = {name: value for name, value in os.environ.items() if not name.startswith("TELLERS")}
    around["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "tellers", "serve", "--config", settings.name]
    with (folder / "log").open("wb") as log:
        process = start(command, cwd=folder, env=around, stdout=log, stderr=log)
    try:
        _wait_for(process, url, folder / "log")
        with httpx.Client(base_url=url, timeout=30) as client:
            told = _asked(client, {name: {"Authorization": f"Bearer {key}"} for name, key in keys.items()})
        for name, command in {
            "ask": "--pool 0-2 --name again --out labels.npz", "ask again": "--pool 0-2 --name again",
            "ask of others": "--pool 3 --name again", "ask nothing there": "--pool 90-91",
            "ask for too much": "--pool 0-5 --batch 2 --name much --out part.npz",
        }.items():  # fmt: skip
            done = call(
                ["ask", "--url", url, *read_words(command), "--json"], folder,
                environment={"TELLERS_KEY": keys["alice"]},
            )  # fmt: skip
            told[name] = _unported(outcome(done, folder), port)
        done = call(
            ["ask", "--url", url, "--pool", 0, "--json"], folder, environment={"TELLERS_KEY": "wrong"}
        )
        told["ask with a wrong key"] = _unported(outcome(done, folder), port)
    finally:
        process.terminate()
        told_end = process.wait(timeout=60)
    with np.load(folder / "labels.npz") as arrays:
        told["labels.npz"] = {name: arrays[name].tolist() for name in sorted(arrays.files)}
    told["ledger"] = outcome(call(["ledger", "list", "service.db", "--json"], folder), folder)
    return {**told, "ended": told_end}


def _unported(told: Any, port: int) -> Any:
    return json.loads(json.dumps(told).replace(str(port), "<port>"))


def _wait_for(process: Any, url: str, log: Path) -> None:
    import httpx

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{url}/v1/health", timeout=1).status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _asked(client: Any, headers: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return what every route answers: to whom, with which status, and what."""
    alice, told = headers["alice"], {}
    question = {"idempotency_key": "first", "pool": [0, 1, 2, 3]}
    asked = {
        "health": ("GET", "/v1/health", {}, None), "labels": ("POST", "/v1/labels", alice, question),
        "labels again": ("POST", "/v1/labels", alice, question),
        "labels of others": ("POST", "/v1/labels", alice, {**question, "pool": [4]}),
        "labels that are not there": ("POST", "/v1/labels", alice, {**question, "pool": [99]}),
        "labels for an operator": ("POST", "/v1/labels", headers["otto"], question),
        "labels for nobody": ("POST", "/v1/labels", {}, question),
        "budget": ("GET", "/v1/budget", alice, None), "budgets": ("GET", "/v1/budget", headers["otto"], None),
        "releases": ("GET", "/v1/releases", alice, None),
        "verify": ("GET", "/v1/ledger/verify", headers["ada"], None),
        "verify for a student": ("GET", "/v1/ledger/verify", alice, None),
        "nowhere": ("GET", "/v1/nowhere", alice, None),
    }  # fmt: skip
    for name, (method, path, who, body) in asked.items():
        response = client.request(method, path, headers=who, json=body)
        told[name] = {"status": response.status_code, "body": masked(response.json())}
    pages = ("", "/sign-in", "/account", "/releases", "/keys", "/ledger", "/nowhere")
    told["pages"] = {
        path: client.get(path).status_code for path in ("/", *(f"/dashboard{one}" for one in pages))
    }
    forms = (
        "/dashboard/sign-in",
        "/dashboard/sign-out",
        "/dashboard/keys/revoke",
        "/dashboard/ledger/verify",
    )
    told["forms"] = {path: client.post(path, data={}).status_code for path in forms}
    metrics = client.get("/metrics", headers=headers["otto"])
    told["metrics"] = dict.fromkeys(sorted(set(re.findall(r"# TYPE (tellers\S+ \S+)", metrics.text))), "")
    told["described"] = _described(client.get("/v1/openapi.json", headers=alice).json())
    return told


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """Return routes, their answers and the fields of every model, without words."""
    routes = {
        f"{method.upper()} {path}": {
            "id": one["operationId"], "answers": dict.fromkeys(one["responses"], ""),
            "parameters": {it["name"]: it.get("required", False) for it in one.get("parameters", [])},
        }
        for path, methods in schema["paths"].items() for method, one in methods.items()
    }  # fmt: skip
    models = {
        name: {
            "fields": dict.fromkeys(one.get("properties", {}), ""),
            "required": one.get("required", []),
        }
        for name, one in schema["components"]["schemas"].items()
    }
    return {"routes": routes, "models": models}
