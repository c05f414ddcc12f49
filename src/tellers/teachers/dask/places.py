"""Places that hold files: a path, or the URL of an object store, read and written in one way.

An address is looked at where it is used. The path `/data/part.npz` on a worker is that worker's file.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from ...errors import MissingExtra
from ..models import find_model, make_manifest, read_manifest, write_model
from ..store import write_whole

# A URL of a file is a path: it is written as carefully, whole and for its owner alone.
_FILES = ("file", "local")


def is_url(address: str) -> bool:
    """Say whether an address is the URL of an object store, rather than a path or the URL of a file.

    >>> is_url("s3://bucket/part.npz"), is_url("/data/part.npz"), is_url("local:///data/part.npz")
    (True, False, False)
    """
    scheme, found, _ = address.partition("://")
    return bool(found) and scheme not in _FILES


def path_of(address: str) -> Path:
    """Return the path of an address that is no URL of an object store.

    >>> path_of("local:///data/part.npz").as_posix()
    '/data/part.npz'
    """
    scheme, _, path = address.partition("://")
    return Path(path if scheme in _FILES else address)


def inside(folder: str, name: str) -> str:
    """Return the address of a file in a folder.

    >>> inside("s3://bucket/parts/", "part.npz")
    's3://bucket/parts/part.npz'
    """
    return f"{folder.rstrip('/')}/{name}" if "://" in folder else str(Path(folder) / name)


def read_bytes(address: str) -> bytes:
    """Return what a path or a URL holds, or raise FileNotFoundError.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(inside(folder, "note"), b"all of it")
    ...     read_bytes(inside(folder, "note"))
    b'all of it'
    """
    if not is_url(address):
        return path_of(address).read_bytes()
    with _open(address, "rb") as file:
        content: bytes = file.read()
    return content


def write_bytes(address: str, content: bytes) -> None:
    """Write a file whole: under its path by renaming, under its URL as object stores do it.

    A folder that is not there is made, for its owner alone. See `read_bytes`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_bytes(inside(folder, "note"), b"all of it")
    """
    if is_url(address):
        with _open(address, "wb") as file:
            file.write(content)
        return
    make_folder(str(path_of(address).parent))
    write_whole(path_of(address), content)


def make_folder(folder: str) -> None:
    """Make a folder for its owner alone, if it is not there; object stores have none.

    >>> make_folder("s3://bucket/parts")
    """
    if not is_url(folder):
        path_of(folder).mkdir(parents=True, exist_ok=True, mode=0o700)


def remove(address: str) -> None:
    """Remove a file, if it is there.

    >>> remove("nowhere/part.npz")
    """
    if not is_url(address):
        path_of(address).unlink(missing_ok=True)
        return
    with suppress(FileNotFoundError):
        file = _open(address, "rb")
        file.fs.rm(file.path)


def find_kept(folder: str, name: str) -> tuple[bytes, dict[str, Any]] | None:
    """Return a model that was finished and what it is made of, or None where there is none.

    >>> find_kept("nowhere", "teacher-00000.skops")
    """
    if not is_url(folder):
        return find_model(path_of(folder), name)
    try:
        manifest = read_bytes(inside(folder, _manifest(name)))
        content = read_bytes(inside(folder, name))
    except FileNotFoundError:
        return None
    made_of = read_manifest(manifest, content)
    return None if made_of is None else (content, made_of)


def keep(folder: str, name: str, *, content: bytes, made_of: dict[str, Any]) -> None:
    """Write a finished model, and then the manifest that makes it count.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keep(folder, "some.skops", content=b"weights", made_of={"seed": 7})
    ...     find_kept(folder, "some.skops")
    (b'weights', {'seed': 7})
    """
    if not is_url(folder):
        make_folder(folder)
        write_model(path_of(folder), name, content=content, made_of=made_of)
        return
    write_bytes(inside(folder, name), content)
    write_bytes(inside(folder, _manifest(name)), make_manifest(content, made_of))


def _manifest(name: str) -> str:
    return f"{name.rpartition('.')[0]}.json"


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
