"""How large a file from outside may be: what it declares is read and judged before its content is.

A few kilobytes can declare gigabytes: a zip or gzip of zeros, an array whose header has a large shape. Every
reader of such files asks here first, and takes no more than was declared.

    arrays and tables       2 GiB unpacked
    text (CSV, JSON)        512 MiB unpacked
    settings (TOML)         1 MiB

The environment variable TELLERS_MAX_BYTES, a whole number, stands in for the first two.
"""

import gzip
import io
import lzma
import math
import os
import secrets
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

ENVIRONMENT: Final = "TELLERS_MAX_BYTES"
MOST_BYTES: Final = 2 * 2**30
"""How much a file may unpack to: arrays, packed files, models."""
MOST_TEXT: Final = 512 * 2**20
"""How much text may be parsed at once; as Python objects it takes many times that."""
MOST_SETTINGS: Final = 2**20
"""How long a settings file may be."""
_CHUNK = 2**20
# What a decoder of xz may set aside for itself; the largest preset needs 65 MiB.
_MOST_DICTIONARY = 256 * 2**20

_FORMAT: Any = np.lib.format  # which has no types

Arrays = dict[str, NDArray[Any]]


class TooLarge(ValueError):
    """A file declares, or unpacks to, more than may be read, or nobody can tell how much that is."""


def cap(most: int = MOST_BYTES) -> int:
    """Return how many bytes may be read: what the environment says, or else `most`."""
    said = os.environ.get(ENVIRONMENT, "").strip()
    if not said:
        return most
    if not said.isdecimal() or int(said) < 1:
        raise TooLarge(f"Expected a whole number of bytes in {ENVIRONMENT}, got {said!r}.")
    return int(said)


def require_size(n_bytes: int, name: str, *, most: int, advice: str = "") -> None:
    """Refuse a size that was declared, before anything is set aside for it."""
    if n_bytes > most:
        raise TooLarge(
            f"Expected at most {_plain(most)} in {name}, got {_plain(n_bytes)} or more. Nothing was loaded. "
            + (advice or f"If it is right and there is memory for it, set {ENVIRONMENT}={n_bytes} or more.")
        )


def read_bounded(path: Path, *, most: int, advice: str = "") -> bytes:
    """Return the content of a file that is not larger than `most` bytes, also if it grows or has no end."""
    with path.open("rb") as file:
        require_size(os.fstat(file.fileno()).st_size, path.name, most=most, advice=advice)
        return _gather(iter(lambda: file.read(_CHUNK), b""), path.name, most, advice)


def unpack_bounded(path: Path, *, most: int) -> bytes:
    """Return a file's content, unpacked if it begins as .gz or .xz does, as long as that is not too much."""
    with path.open("rb") as file:
        start = file.read(6)
    if start[:2] == b"\x1f\x8b":
        with gzip.open(path) as unpacked:
            return _gather(iter(lambda: unpacked.read(_CHUNK), b""), path.name, most)
    if start == b"\xfd7zXZ\x00":
        return _gather(_unxz(path), path.name, most)
    return read_bounded(path, most=most)


def load_npz(
    source: Path | bytes, keys: Collection[str] | None = None, *, name: str
) -> tuple[Arrays, list[str]]:
    """Return arrays of an npz, all or those in `keys`, and the names of all there are.

    The zip's directory and the header of every wanted array are read first: what they declare must agree, and
    be no more than the cap together. Python objects are refused. Whatever is broken is a ValueError, or what
    `zipfile` and `zlib` raise.
    """
    limit = cap()
    with zipfile.ZipFile(io.BytesIO(source) if isinstance(source, bytes) else source) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        names = sorted(members)
        wanted = [one for one in names if keys is None or one in keys]
        total = 0
        for one in wanted:
            total += max(members[one].file_size, 0)
            require_size(total, name, most=limit)
            _require_declared(archive, members[one], name, most=limit)
        arrays = {}
        for one in wanted:
            with archive.open(members[one]) as file:
                arrays[one] = np.asarray(_FORMAT.read_array(file, allow_pickle=False))
        return arrays, names


def load_npy(path: Path) -> NDArray[Any]:
    """Return the array of an npy file, whose header must agree with the size of the file."""
    with path.open("rb") as file:
        there = os.fstat(file.fileno()).st_size
        n_bytes, begins = _declared(file, path.name, most=cap())
        if n_bytes > there - begins:
            raise ValueError(f"Expected the {n_bytes} bytes that {path.name} declares, it is cut short.")
        file.seek(0)
        return np.asarray(_FORMAT.read_array(file, allow_pickle=False))


def require_archive(content: bytes, *, name: str, most: int | None = None) -> None:
    """Refuse a zip (a skops model, say) that declares too much, or whose arrays say more than it."""
    limit = cap() if most is None else most
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        require_size(sum(info.file_size for info in archive.infolist()), name, most=limit)
        for info in archive.infolist():
            if info.filename.endswith(".npy"):
                _require_declared(archive, info, name, most=limit)
            elif info.filename.endswith(".npz"):  # a sparse matrix
                _require_packing(info, name)
                require_archive(archive.read(info), name=name, most=limit)
            else:
                _require_packing(info, name)


def _require_declared(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, *, most: int) -> None:
    """Refuse an array whose header says another size than the zip's directory."""
    _require_packing(info, name)
    with archive.open(info) as file:
        n_bytes, begins = _declared(file, name, most=most)
    if n_bytes + begins != info.file_size:
        raise ValueError(f"Expected {info.filename} of {name} as large as the archive says, it is not.")


def _require_packing(info: zipfile.ZipInfo, name: str) -> None:
    # Other packings are unpacked a block at a time, however much a block becomes.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
        raise ValueError(f"Expected members of {name} stored or deflated, as numpy writes them, got others.")


def _declared(file: Any, name: str, *, most: int) -> tuple[int, int]:
    """Return how many bytes an array takes, by its header, and where they begin."""
    version = _FORMAT.read_magic(file)
    readers = {
        (1, 0): _FORMAT.read_array_header_1_0,
        (2, 0): _FORMAT.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"Expected arrays of plain numbers in {name}, got another kind.")
    shape, _, dtype = readers[version](file)
    if dtype.hasobject:
        raise ValueError(f"Expected plain numbers in {name}, got objects, which pickle would load.")
    if min(shape, default=0) < 0:
        raise ValueError(f"Expected a shape in {name}, got negative numbers.")
    n_entries = math.prod(shape)
    # Entries of no size are counted too: whoever turns them into a list sets aside something for each.
    require_size(max(n_entries, n_entries * dtype.itemsize), name, most=most)
    return n_entries * dtype.itemsize, int(file.tell())


def _gather(chunks: Iterator[bytes], name: str, most: int, advice: str = "") -> bytes:
    content = io.BytesIO()
    for chunk in chunks:
        require_size(content.tell() + len(chunk), name, most=most, advice=advice)
        content.write(chunk)
    return content.getvalue()


def _unxz(path: Path) -> Iterator[bytes]:
    """Unpack one stream after another, never more than a chunk at a time."""
    with path.open("rb") as file:
        rest = file.read(_CHUNK)
        while rest.strip(b"\0"):
            stream = lzma.LZMADecompressor(memlimit=_MOST_DICTIONARY)
            while not stream.eof:
                if stream.needs_input and not rest:
                    rest = file.read(_CHUNK)
                    if not rest:
                        raise EOFError("the file ends before the packed content does")
                yield stream.decompress(rest, max_length=_CHUNK)
                rest = b""
            rest = stream.unused_data or file.read(_CHUNK)


def _plain(n_bytes: int) -> str:
    units, at, size = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB"), 0, float(n_bytes)
    while size >= 1024 and at < len(units) - 1:
        size, at = size / 1024, at + 1
    return f"{size:.3g} {units[at]}" if size < 1000 else f"{size:.0f} {units[at]}"


DAMAGE: Final = (
    ValueError, EOFError, OSError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile,
    zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What reading a broken file, or a broken member of an archive, may raise."""


def write_whole(path: str | PathLike[str], content: bytes, *, shared: bool = False) -> None:
    """Write a file so that its name leads to all of the content, or to what was there before."""
    with whole_file(path, shared=shared) as file:
        file.write(content)


@contextmanager
def whole_file(path: str | PathLike[str], *, shared: bool = False) -> Iterator[IO[bytes]]:
    """Hand out a file whose name leads to what was there before, until all of it is written.

    The content goes to a temporary file in the same folder, is flushed to the disk, and then takes the name.
    Only the owner may read it; with `shared`, whoever may read the owner's other new files.
    """
    place = Path(path)
    name = place.parent / f".{place.name}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    handle = os.open(name, flags, 0o666 if shared else 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, place)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder durable; Windows cannot open a folder, there the renaming has to do."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
