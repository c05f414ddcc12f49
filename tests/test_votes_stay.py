"""Votes stay in the room: what keeps books, learns, serves or prints is never handed one.

A profiler looks at what functions of those packages are called with, hold and return while commands run, and
follows attributes, containers, closures and bound methods. Names are checked too: a re-export would hide an
import that the linter forbids.
"""

import ast
import functools
import importlib
import inspect
import re
import sys
import threading
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tellers
from tellers import Sealed, Votes
from tellers.accounting import Consensus, LabelConsensus
from tellers.cli import main
from tellers.privacy.votes import LabelVotes
from tellers.teachers import save_votes
from tellers.teachers.store import HeldVotes

SOURCE = Path(tellers.__file__).parent
PACKAGES = ("ledger", "students", "cli", "service")
MODULES = sorted(path for package in PACKAGES for path in (SOURCE / package).rglob("*.py"))
VOTES = (Votes, LabelVotes)
# Calls of one function that are looked at: what comes later is of the same kind.
CALLS, DEPTH, WIDTH = 3, 8, 300
PLAIN = (str, bytes, int, float, complex, type, types.ModuleType, type(None), np.dtype, np.generic)


def parts(thing: Any) -> list[tuple[str, Any]]:
    """Return what can be reached from a thing by ordinary means, and how."""
    if isinstance(thing, dict):
        return [(f"[{key!r:.40}]", value) for key, value in list(thing.items())[:WIDTH]]
    if isinstance(thing, (list, tuple, set, frozenset)):
        return [("[...]", one) for one in list(thing)[:WIDTH]]
    if isinstance(thing, types.FunctionType):
        cells = [cell for cell in thing.__closure__ or () if cell != types.CellType()]
        return [(".__closure__", cell.cell_contents) for cell in cells]
    if isinstance(thing, types.MethodType):
        return [(".__self__", thing.__self__)]
    if isinstance(thing, functools.partial):
        return [(".func", thing.func), (".args", thing.args), (".keywords", thing.keywords)]
    if not type(thing).__module__.startswith("tellers"):
        return []
    slots = [name for kind in type(thing).__mro__ for name in vars(kind).get("__slots__", ())]
    mangled = [f"_{type(thing).__name__}{name}" if name.startswith("__") else name for name in slots]
    held = {name: object.__getattribute__(thing, name) for name in mangled if hasattr(thing, name)}
    return [(f".{name}", value) for name, value in {**held, **getattr(thing, "__dict__", {})}.items()]


@functools.cache
def property_of_votes(kind: type) -> str | None:
    """Return the name of a property that says it returns votes; it is not called."""
    if not kind.__module__.startswith("tellers"):
        return None
    for name, made in inspect.getmembers(kind, lambda one: isinstance(one, property)):
        said = str(inspect.signature(made.fget).return_annotation) if made.fget else ""
        if re.search(r"\b(Label)?Votes\b", said):
            return name
    return None


class Watch:
    """What was found where it should not be; `tallies` are arrays that would be votes under another name."""

    def __init__(self, tallies: list[Any]) -> None:
        self.tallies, self.found, self.calls = tallies, list[str](), Counter[Any]()

    def __call__(self, frame: types.FrameType, event: str, returned: Any) -> None:
        code, name = frame.f_code, str(frame.f_globals.get("__name__", ""))
        if event not in ("call", "return") or name.split(".")[:1] != ["tellers"]:
            return
        if name.split(".")[1:2] == [] or name.split(".")[1] not in PACKAGES:
            return
        self.calls[code, event] += 1
        if not code.co_flags & inspect.CO_OPTIMIZED or self.calls[code, event] > CALLS:
            return
        held = dict(frame.f_locals) | ({"return": returned} if event == "return" else {})
        for path in self.private_in(held):
            self.found.append(f"{name}.{code.co_qualname}: {path}")

    def private_in(self, held: dict[str, Any]) -> Iterator[str]:
        waiting, seen = [(name, value, 0) for name, value in held.items()], set[int]()
        while waiting:
            path, thing, depth = waiting.pop()
            if id(thing) in seen or isinstance(thing, PLAIN):
                continue
            seen.add(id(thing))
            if isinstance(thing, VOTES) or self.is_tally(thing):
                yield f"{path} is {type(thing).__name__}"
            elif (name := property_of_votes(type(thing))) is not None:
                yield f"{path}.{name} is a property with votes"
            elif depth < DEPTH:
                waiting += [(path + step, part, depth + 1) for step, part in parts(thing)]

    def is_tally(self, thing: Any) -> bool:
        if not isinstance(thing, np.ndarray):
            return False
        return any(np.array_equal(thing, one) or np.array_equal(thing.T, one) for one in self.tallies)


@contextmanager
def watched(*votes: Any) -> Iterator[None]:
    """Fail if a function of the packages is handed, holds or returns votes."""
    tallies = [one for v in votes for one in (v.totals, v.ballots)]
    watch = Watch([np.asarray(one) for one in tallies if one is not None])
    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    assert watch.calls, "nothing was looked at"
    assert not watch.found, "\n".join(sorted(set(watch.found)))


def tell(*words: Any) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert ended.value.code == 0, words


def test_the_watch_finds_votes_wherever_they_hide() -> None:
    watch = Watch([np.asarray(CAST.counts)])

    class Holder:
        __module__ = "tellers.cli.planted"

        def __init__(self) -> None:
            self.inside = {"a": [(CAST,)]}

    class Reader:
        __module__ = "tellers.cli.planted"

        @property
        def votes(self) -> Votes:
            raise AssertionError("nobody calls this")

    planted = {
        "attribute": Holder(),
        "property": Reader(),
        "slot": Sealed(CAST),
        "method": Holder().__init__,
        "partial": functools.partial(print, CAST),
        "closure": lambda: len(holder.inside),
        "counts": CAST.counts.T.copy(),
    }
    holder = planted["attribute"]
    assert {name for name, thing in planted.items() if list(watch.private_in({"x": thing}))} == set(planted)
    assert not list(watch.private_in({"x": [HeldVotes("classes", 1, 1, 2), {"n": 3}, np.zeros(3)]}))


CAST, _ = Consensus().votes(40, 4, n_queries=12, seed=7)
PROXY, TRUTH = Consensus().votes(40, 4, n_queries=20, seed=8)
TAGS = LabelConsensus().votes(30, 3, n_queries=10, seed=7)
PUBLIC_TAGS = LabelConsensus().votes(30, 3, n_queries=10, seed=8)
BUDGET = ["--delta", "1e-5"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    save_votes(tmp_path / "votes.npz", CAST)
    save_votes(tmp_path / "proxy.npz", PROXY, truth=TRUTH)
    save_votes(tmp_path / "tags.npz", TAGS)
    save_votes(tmp_path / "public.npz", PUBLIC_TAGS)
    return tmp_path


GNMAX = ["--mechanism", "gnmax", "--sigma", "6"]
BINARY = ["--mechanism", "binary", "--sigma", "6"]
COMMANDS = {
    "account": ["account", "{}/votes.npz", "--classes", "4", *GNMAX, *BUDGET, "--show-private"],
    "account labels": ["account", "{}/tags.npz", *BINARY, *BUDGET, "--show-private", "--json"],
    "publish": ["publish", "{}/votes.npz", "--classes", "4", *GNMAX, *BUDGET, "--yes"],
    "publish proxy": [
        *["publish", "{}/votes.npz", "--classes", "4", *GNMAX, *BUDGET],
        *["--proxy", "{}/proxy.npz", "--yes", "--json"],
    ],
    "publish labels": ["publish", "{}/tags.npz", *BINARY, *BUDGET, "--proxy", "{}/public.npz", "--yes"],
    "plan": ["plan", "--teachers", "40", "--classes", "4", "--epsilon", "2", *BUDGET, *GNMAX],
    "plan proxy": ["plan", "--proxy", "{}/proxy.npz", "--epsilon", "2", *BUDGET, "--labels", "5", "--json"],
    "plan labels": ["plan", "--multilabel", "--proxy", "{}/public.npz", "--epsilon", "8", *BUDGET, *BINARY],
    "audit": ["audit", *GNMAX, "--delta", "0.01", "--samples", "200", "--teachers", "20", "--classes", "3"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_on_a_file_is_handed_votes(name: str, place: Path) -> None:
    words = [word.format(place) for word in COMMANDS[name]]
    with watched(CAST, PROXY, TAGS, PUBLIC_TAGS):
        tell(*words)


SETTINGS = """
seed = 7
[data]
name = "breast_cancer"
n_public = 60
n_test = 60
[partition]
n_teachers = 10
[teachers]
model = "naive_bayes"
[mechanism]
name = "gnmax"
sigma = 3.0
[queries]
n_queries = 12
[student]
model = "naive_bayes"
[budget]
epsilon = 30.0
delta = 1e-4
[report]
private = true
"""


def test_no_command_on_a_run_is_handed_votes(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(SETTINGS)
    study = tmp_path / "study"
    with watched():
        tell("run", tmp_path / "run.toml", "--out", study)
        tell("report", study, "--private")
        tell("sweep", study, "--show-private")
        tell("account", study, "--show-private")
        tell("publish", study, "--method", "envelope", "--yes")
        tell("ledger", "status", study / "ledger.db")
        tell("student", study, "--out", tmp_path / "other", "--set", "queries.n_queries=20")
        tell("audit", study, "--shadows", "8", "--canaries", "2")


def test_no_service_is_handed_votes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("cryptography")
    from starlette.testclient import TestClient

    from tellers.ledger.vault import write_key
    from tellers.runs import MechanismConfig
    from tellers.service import LedgerConfig, ServedConfig, ServiceSettings, VaultConfig, client, create_app

    write_key(place / "vault.key")
    settings = ServiceSettings(
        data=ServedConfig(source="votes", path="votes.npz", n_classes=4),
        mechanism=MechanismConfig(name="gnmax", sigma=6.0),
        ledger=LedgerConfig(url="ledger.db", epsilon=20.0, delta=1e-5),
        vault=VaultConfig(path="costs.sealed", key_file="vault.key"),
        folder=str(place),
    )  # fmt: skip
    from tellers.service._keys import KeyStore

    store = KeyStore(settings.place(settings.keys.store))
    keys = {role: store.create("ada", role)[0] for role in ("student", "operator")}
    store.close()
    monkeypatch.setenv("TELLERS_KEY", keys["student"])
    with watched(CAST):
        app = create_app(settings)
        with TestClient(app) as served:
            asker = functools.partial(client.Client, transport=served._transport)
            monkeypatch.setattr(client, "Client", asker)
            tell("ask", "--url", "http://localhost", "--pool", "0-5", "--json")
            served.post("/dashboard/login", data={"key": keys["operator"]})
            assert served.get("/dashboard").status_code == 200


# --- Names. ---


def imported(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Yield what a file imports anywhere in it, also for types alone: line, name, object."""
    package = ".".join(["tellers", *path.relative_to(SOURCE).parent.parts])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom):
            continue
        base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        if base.split(".")[0] != "tellers":
            continue
        module = importlib.import_module(base)
        for alias in node.names:
            yield node.lineno, f"{base}.{alias.name}", getattr(module, alias.name, None)


def test_no_name_for_votes_is_imported_under_any_name() -> None:
    found = []
    for path in MODULES:
        where = path.relative_to(SOURCE)
        for line, name, thing in imported(path):
            if (
                any(thing is one for one in VOTES)
                or getattr(thing, "__name__", "") == "tellers.privacy.votes"
            ):
                found.append(f"{where}:{line}: {name}")
    assert not found, "\n".join(found)
