"""The data directory: where published data sets lie, and whether a file is the one that was published.

    DIR/mnist/train-images-idx3-ubyte.gz        and the three other files
    DIR/fashion-mnist/train-images-idx3-ubyte.gz
    DIR/svhn/train_32x32.mat
    DIR/adult/adult.data
    DIR/diabetes130/diabetic_data.csv

A file may be plain, `.gz` or `.xz`. The checksum is that of the unpacked content, so packing it again, as
mirrors do, changes nothing.
"""

import gzip
import hashlib
import lzma
import os
import tomllib
import zlib
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Any, Final

from ..privacy._files import cap, unpack_bounded

ENVIRONMENT = "TELLERS_DATA"

_TEXT = (files(__package__) / "published.toml").read_text("utf-8")
PUBLISHED: Final[dict[str, Any]] = tomllib.loads(_TEXT)
"""What was published with the data sets: columns with their categories, and checksums."""
CHECKSUMS = {
    f"{folder}/{name}": known
    for folder, known_files in PUBLISHED["checksums"].items()
    for name, known in known_files.items()
}

_PACKINGS = ("", ".gz", ".xz")


def data_directory(data_dir: str | PathLike[str] | None = None) -> Path:
    """Return the data directory: the argument, or else the environment variable TELLERS_DATA."""
    chosen = data_dir if data_dir is not None else os.environ.get(ENVIRONMENT)
    if not chosen:
        raise FileNotFoundError(
            f"Expected a data directory, got none. Pass data_dir=... or set {ENVIRONMENT} to the folder "
            "that holds mnist/, adult/ and the like."
        )
    place = Path(chosen).expanduser()
    if not place.is_dir():
        origin = "data_dir" if data_dir is not None else ENVIRONMENT
        raise FileNotFoundError(
            f"Expected a data directory at {place} ({origin}), found none. Check the path."
        )
    return place


def find_file(name: str, *, data_dir: str | PathLike[str] | None = None) -> Path:
    """Return where a file lies in the data directory, plain or packed."""
    place = data_directory(data_dir)
    for packing in _PACKINGS:
        path = place / (name + packing)
        if path.is_file():
            return path
    folder = (place / name).parent
    raise FileNotFoundError(
        f"Expected {name} (plain, .gz or .xz), found none in {place}. "
        f"Put it into {folder}, or name another data directory (data_dir=..., {ENVIRONMENT})."
    )


def read_file(name: str, *, data_dir: str | PathLike[str] | None = None, verify: bool = True) -> bytes:
    """Return the unpacked content of a file in the data directory, after comparing its checksum."""
    path = find_file(name, data_dir=data_dir)
    content = unpack(path)
    known = CHECKSUMS.get(name)
    if verify and known is not None and hashlib.sha256(content).hexdigest() != known:
        raise ValueError(
            f"Expected the published {name} (SHA-256 {known[:12]}...), the content of {path} differs. "
            "Fetch the file again, or pass verify=False if the change is meant."
        )
    return content


def unpack(path: Path, *, most: int | None = None) -> bytes:
    """Return a file's content, unpacked by what it starts with rather than by how it is called.

    No more than `most` bytes, or what `privacy._files.cap` allows: what unpacks to more is refused.
    """
    try:
        return unpack_bounded(path, most=cap() if most is None else most)
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"Expected a whole packed file, {path} is damaged. Fetch it again.") from error
