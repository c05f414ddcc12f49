"""Places that hold files: a path, or the URL of an object store, read and written in one way.

An address is looked at where it is used. The path `/data/part.npz` on a worker is that worker's file.
"""

from contextlib import suppress
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from ..errors import MissingExtra
from ..privacy._files import write_whole

# A URL of a file is a path: it is written as carefully, whole and for its owner alone.
_FILES = ("file", "local")


def is_url(address: str) -> bool:
    """Say whether an address is the URL of an object store, rather than a path or the URL of a file."""
    scheme, found, _ = address.partition("://")
    return bool(found) and scheme not in _FILES


def path_of(address: str) -> Path:
    """Return the path of an address that is no URL of an object store."""
    scheme, _, path = address.partition("://")
    return Path(path if scheme in _FILES else address)


def inside(folder: str | PathLike[str], name: str) -> str:
    place = fspath(folder)
    return f"{place.rstrip('/')}/{name}" if "://" in place else str(Path(place) / name)


def read_bytes(address: str) -> bytes:
    """Return what a path or a URL holds, or raise FileNotFoundError."""
    if not is_url(address):
        return path_of(address).read_bytes()
    with _open(address, "rb") as file:
        content: bytes = file.read()
    return content


def write_bytes(address: str, content: bytes) -> None:
    """Write a file whole, by renaming or as object stores do it; its folder is made, for its owner alone."""
    if is_url(address):
        with _open(address, "wb") as file:
            file.write(content)
        return
    make_folder(str(path_of(address).parent))
    write_whole(path_of(address), content)


def make_folder(folder: str) -> None:
    """Make a folder for its owner alone, if it is not there; object stores have none."""
    if not is_url(folder):
        path_of(folder).mkdir(parents=True, exist_ok=True, mode=0o700)


def remove(address: str) -> None:
    if not is_url(address):
        path_of(address).unlink(missing_ok=True)
        return
    with suppress(FileNotFoundError):
        file = _open(address, "rb")
        file.fs.rm(file.path)


def _open(address: str, mode: str) -> Any:
    kind = address.partition("://")[0]
    try:
        import fsspec

        return fsspec.open(address, mode)
    except (ImportError, ValueError):  # the latter for a kind that it never heard of
        raise MissingExtra(
            f"Expected a library that opens {kind} addresses, found none: fsspec comes with pip install "
            f"'tellers[distributed]', and what it needs for {kind} is named in its documentation."
        ) from None
