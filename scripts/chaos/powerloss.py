"""What stands between programs and their files: a small library that notes, denies, and moves the clock.

It notes every write and every flush of a watched file. When everybody was killed, `lose_power` takes back
what was never flushed, and puts some of it on again, sector by sector, as a disk may after a power cut.
"""

import contextlib
import mmap
import os
import random
import shutil
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SOURCE = Path(__file__).with_name("powerloss.c")
_NOTE = struct.Struct("<QIIQqqqq")  # struct note of powerloss.c
_MAGIC = 0x6C6C65742E736B64
_WRITTEN, _FLUSHED, _CUT, _GONE = 1, 2, 3, 4
WATCHED = "/watched/"
"""What is in the path of every file that a power cut may reach."""


class NoShim(RuntimeError):
    """The library cannot be built here."""


@dataclass(frozen=True)
class Shim:
    """The library, built, and the files by which it is told what to do."""

    folder: Path

    @classmethod
    def build(cls, folder: Path) -> "Shim":
        """Build it in a folder that everybody may enter: a database server is another user."""
        compiler = shutil.which(os.environ.get("CC", "gcc")) or shutil.which("cc")
        if compiler is None:
            raise NoShim("there is no C compiler: install gcc")
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
        shim = cls(folder)
        words = [compiler, "-shared", "-fPIC", "-O2", "-o", str(shim.library), str(_SOURCE), "-ldl"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoShim(f"{compiler} does not build powerloss.c: {done.stderr[-500:]}")
        for path, text in ((shim.control, bytes(16)), (shim.notes, b"")):
            path.write_bytes(text)
            path.chmod(0o666)
        return shim

    @property
    def library(self) -> Path:
        return self.folder / "powerloss.so"

    @property
    def control(self) -> Path:
        return self.folder / "control"

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def environment(self, watched: str = WATCHED) -> dict[str, str]:
        """Return what a program's environment needs, so that it runs on the library."""
        return {
            "LD_PRELOAD": str(self.library), "CHAOS_CONTROL": str(self.control),
            "CHAOS_LOG": str(self.notes), "CHAOS_WATCH": watched,
        }  # fmt: skip

    def tell(self, *, clock: float = 0.0, deny: int = 0, fatal: bool = False) -> None:
        """Say by how many seconds the wall clock is wrong, with which error writes are refused, and whether
        whoever flushes is killed instead."""
        with self.control.open("r+b") as file, mmap.mmap(file.fileno(), 16) as seen:
            seen[:] = struct.pack("<qii", int(clock * 1e9), deny, fatal)

    def clear(self) -> None:
        """Forget what was noted; nobody writes meanwhile."""
        os.truncate(self.notes, 0)


@dataclass
class _Note:
    kind: int
    file: int
    offset: int
    size: int
    old: bytes
    new: bytes


def _read_notes(path: Path) -> Iterator[tuple[int, _Note]]:
    """Yield all whole notes with their places; one that a kill cut in two tells of a write that never was."""
    at, mark = 0, struct.pack("<Q", _MAGIC)
    whole = path.read_bytes()
    while at + _NOTE.size <= len(whole):
        magic, kind, zeros, file, offset, size, n_old, n_new = _NOTE.unpack_from(whole, at)
        stored = 0 if zeros else n_new
        end = at + _NOTE.size + n_old + stored
        is_whole = magic == _MAGIC and (end == len(whole) or whole[end : end + 8] == mark)
        if not is_whole:
            at = whole.find(mark, at + 1)
            if at < 0:
                break
            continue
        begins = at + _NOTE.size
        old = whole[begins : begins + n_old]
        new = bytes(n_new) if zeros else whole[begins + n_old : end]
        yield at, _Note(kind, file, offset, size, old, new)
        at = end


def _unflushed(notes: Path) -> dict[int, list[_Note]]:
    """Return by file what was written and never flushed, in order."""
    waiting: dict[int, list[tuple[int, _Note]]] = defaultdict(list)
    for place, note in _read_notes(notes):
        if note.kind in (_WRITTEN, _CUT):
            waiting[note.file].append((place, note))
        elif note.kind == _FLUSHED:
            waiting[note.file] = [one for one in waiting[note.file] if one[0] >= note.offset]
        else:
            waiting.pop(note.file, None)
    return {file: [note for _, note in some] for file, some in waiting.items() if some}


def lose_power(shim: Shim, folder: Path, chance: random.Random) -> dict[str, int]:
    """Leave the files below a folder as a power cut may: all that was flushed, and some of the rest.

    Everybody who wrote was killed. Names, and what was made or removed, are taken as durable at once.
    """
    how = chance.choice(("none", "some", "most", "first", "all but one"))
    sector = chance.choice((512, 4096))
    files = {path.stat().st_ino: path for path in folder.rglob("*") if path.is_file()}
    done = {"files": 0, "writes": 0, "kept": 0}
    for number, notes in _unflushed(shim.notes).items():
        path = files.get(number)
        if path is None:
            continue
        kept = _keep(notes, how, sector, chance)
        with path.open("r+b") as file:
            grown = os.fstat(file.fileno()).st_size
            for note in reversed(notes):
                _take_back(file.fileno(), note)
            for note, (start, end) in kept:
                os.pwrite(file.fileno(), note.new[start:end], note.offset + start)
            # A file may have grown before what it grew by was there.
            if chance.random() < 0.3 and os.fstat(file.fileno()).st_size < grown:
                os.ftruncate(file.fileno(), grown)
        done["files"] += 1
        done["writes"] += len(notes)
        done["kept"] += len(kept)
    for path in folder.rglob("*-shm"):  # shared memory of SQLite, which no disk has
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    shim.clear()
    return done


def shorten_notes(shim: Shim) -> None:
    """Keep only the notes of what was never flushed; everybody who wrote was killed."""
    with shim.notes.with_suffix(".new").open("wb") as file:
        for notes in _unflushed(shim.notes).values():
            for note in notes:
                zeros = note.kind == _CUT or (bool(note.new) and not any(note.new))
                head = (
                    _MAGIC,
                    note.kind,
                    zeros,
                    note.file,
                    note.offset,
                    note.size,
                    len(note.old),
                    len(note.new),
                )
                file.write(_NOTE.pack(*head) + note.old + (b"" if zeros else note.new))
    # The same file, since whoever is alive has it open.
    shim.notes.write_bytes(shim.notes.with_suffix(".new").read_bytes())


def _take_back(file: int, note: _Note) -> None:
    if note.kind == _CUT:
        os.ftruncate(file, note.size)
        os.pwrite(file, note.old, note.offset)
        return
    if note.offset + len(note.new) > note.size:
        os.ftruncate(file, note.size)
    if note.old:
        os.pwrite(file, note.old, note.offset)


def _keep(
    notes: list[_Note], how: str, sector: int, chance: random.Random
) -> list[tuple[_Note, tuple[int, int]]]:
    """Return which sectors of which writes reached the disk all the same, in order."""
    pieces = []
    for note in notes:
        start = 0
        while start < len(note.new):
            end = min(len(note.new), start + sector - (note.offset + start) % sector)
            pieces.append((note, (start, end)))
            start = end
    if how == "none" or not pieces:
        return []
    if how == "first":
        return pieces[: chance.randrange(len(pieces) + 1)]
    if how == "all but one":
        lost = chance.randrange(len(pieces))
        return pieces[:lost] + pieces[lost + 1 :]
    share = 0.9 if how == "most" else chance.random()
    return [piece for piece in pieces if chance.random() < share]
