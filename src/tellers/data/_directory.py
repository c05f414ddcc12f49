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
import zlib
from os import PathLike
from pathlib import Path

from ..privacy._files import cap, unpack_bounded

ENVIRONMENT = "TELLERS_DATA"

# SHA-256 of the unpacked files, by folder.
_PUBLISHED = {
    "adult": {
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    },
    "diabetes130": {
        "diabetic_data.csv": "0689e7ec031237dc63031b938805c48377748761a3b26acab621567afa24df97",
    },
    "fashion-mnist": {
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    },
    "mnist": {
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    },
}
CHECKSUMS = {
    f"{folder}/{name}": known for folder, files in _PUBLISHED.items() for name, known in files.items()
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
