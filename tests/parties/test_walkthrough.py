"""The page about three hospitals, done as it says: its own commands, files and code, a folder per party."""

import csv
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from tellers.testing._ports import free_ports

from .. import forked
from .process_network import SOURCE

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "confidential-hospitals.md"
HOSPITALS = ("north", "south", "east")
ROLES = dict.fromkeys(HOSPITALS, "answerer") | {"guard": "guardian", "ann": "asker"}
PATIENCE = 200.0


def blocks():
    """Return the fenced blocks of the page in order, as (language, text), by the reader of all pages."""
    spec = importlib.util.spec_from_file_location("pages", ROOT / "tests" / "test_docs.py")
    pages = importlib.util.module_from_spec(spec)
    sys.modules["pages"] = pages
    spec.loader.exec_module(pages)
    return [(block.language, block.text) for block in pages.blocks(PAGE)]


def as_tellers(text):
    """Return a command of the page as what installing would put on the path."""
    first, *words = shlex.split(text)
    assert first == "tellers"
    return [sys.executable, "-m", "tellers", *words]


class Reader:
    """Somebody who follows the page for all parties on one machine."""

    def __init__(self, folder):
        self.folder, self.serving = folder, {}
        self.ports = dict(zip(ROLES, free_ports(len(ROLES))))
        self.environment = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}

    def shell(self, text, where=""):
        """Do what a block says; `tellers` is forked and not started anew, into a file if it says so."""
        how = {"cwd": self.folder / where, "env": self.environment, "text": True, "timeout": PATIENCE}
        said = ""
        lines = text.splitlines() if "tellers " in text else [text]
        for line in lines:
            words, _, place = line.partition(" > ")
            if words.startswith("tellers "):
                done = forked.run(as_tellers(words), capture_output=True, **how)
                if place:
                    (self.folder / where / place).write_text(done.stdout)
            else:
                done = subprocess.run(["bash", "-euc", line], capture_output=True, check=False, **how)
            assert done.returncode == 0, (where, line, done.stderr)
            said += done.stdout
        return said

    def serve(self, name, text):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.serving[name] = forked.Popen(
                as_tellers(text), cwd=self.folder / name, env=self.environment, stdout=log, stderr=log
            )

    def as_said_for(self, text, name):
        """Put a party in North's place, on this machine's addresses."""
        text = re.sub(r"(north\.example|0\.0\.0\.0):7400", f"127.0.0.1:{self.ports[name]}", text)
        if name in HOSPITALS:
            swap = {name: "north", "north": name}
            text = re.sub(rf"\b({name}|north)\b", lambda found: swap[found[0]], text)
        else:
            text = text.replace("answerer:north", f"{ROLES[name]}:{name}")
        return text

    def close(self):
        for process in self.serving.values():
            process.terminate()
        for process in self.serving.values():
            process.wait(timeout=PATIENCE)


@pytest.fixture
def reader(tmp_path, engine):
    one = Reader(tmp_path)
    yield one
    one.close()


@pytest.mark.campaign
def test_the_page_leads_to_labels_and_books(reader):
    page = blocks()
    shell = [text for language, text in page if language == "bash"]
    session, hospital, guard, ann = [text for language, text in page if language == "toml"][:4]
    train = next(text for language, text in page if language == "python")
    made, keys, address, send, together, price, serve_guard, serve_hospital, ask, listing = shell[:10]
    reader.shell(made)
    for name in ROLES:
        reader.shell(reader.as_said_for(keys, name), name)
        if name != "ann":
            reader.shell(reader.as_said_for(address, name), name)
    reader.shell(send)
    for name in ROLES:
        own = {"guard": guard, "ann": ann}.get(name, hospital)
        (reader.folder / name / "own.toml").write_text(reader.as_said_for(own, name))
        (reader.folder / name / "session.toml").write_text(session)
        reader.shell(together, name)
        told = reader.shell(price, name)
        assert "What remains" in " ".join(told.split())
        assert ("pays for" in told) == (name != "ann")
    for name in HOSPITALS:
        done = forked.run(
            [sys.executable, "-c", train], cwd=reader.folder / name, env=reader.environment, check=False
        )
        assert done.returncode == 0
    reader.serve("guard", serve_guard)
    for name in HOSPITALS:
        reader.serve(name, serve_hospital)
    log, until = reader.folder / "guard.log", time.monotonic() + PATIENCE
    while not all(f"{name} is connected." in log.read_text() for name in HOSPITALS):
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.2)
    told = reader.shell(ask, "ann")
    assert "Wrote 3 of 3 rows" in " ".join(told.split())
    with open(reader.folder / "ann" / "labels.csv", newline="") as file:
        labels = [int(line["label"]) for line in csv.DictReader(file)]
    assert len(labels) == 3
    assert set(labels) <= {0, 1, 2}
    for name in ("guard", *HOSPITALS):
        told = " ".join(reader.shell(listing, name).split())
        assert "GNMax" in told or "gnmax" in told, told
