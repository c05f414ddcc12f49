"""A student on disk: the model, its card in words and in JSON, and a manifest with the checksum of each.

A folder is written whole or not at all, and read without running code: skops files of known types, or
safetensors, which hold nothing but numbers. Checksums find damage; they do not prove who wrote the folder.
"""

import hashlib
import importlib
import json
import secrets
import shutil
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ...privacy._files import cap, read_bounded, sync_folder, write_whole
from ...teachers.models import dump_model, load_model, type_name
from .card import ModelCard

_FORMAT = 1
_CARDS = ("card.json", "card.md")
_MODELS = ("student.safetensors", "student.skops")
_MANIFEST = "manifest.json"
# How a model is fed, where that takes more than rows of numbers: a recording, say.
_BESIDE = ("hearing.json",)


@runtime_checkable
class Portable(Protocol):
    """A model that brings its own safetensors bytes and can be made from them again.

    Its class has `from_bytes(content)` too, which returns the model. Everything needed to predict is in the
    bytes: the numbers as tensors, the rest as text in the header.
    """

    def to_bytes(self) -> bytes:
        """Return the model as the content of a safetensors file."""
        ...


def export_student(
    student: Any,
    folder: str | PathLike[str],
    *,
    card: ModelCard,
    trusted: Sequence[str] = (),
    overwrite: bool = False,
    beside: Mapping[str, bytes] | None = None,
) -> Path:
    """Write a student and its card into a folder of their own, whole or not at all, and return the folder.

    Models are written by skops, `Portable` ones as safetensors. `trusted` names types that skops does not
    know. A folder that holds another student is replaced only with `overwrite`; one that holds anything else
    never is. `beside` are files that say how the model is fed; they are public as the student is.

    >>> import tempfile
    >>> from sklearn.linear_model import LogisticRegression
    >>> student = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    >>> card = ModelCard(
    ...     task="tell 2 classes apart", classes=("a", "b"), unit="one record", n_teachers=60,
    ...     mechanism="GNMax", parameters={"sigma": 12.0}, epsilon=2.0, delta=1e-5, is_guarantee=True,
    ...     n_queries=100, n_labels=100, student="logistic (supervised)", accuracy=None, not_guaranteed=(),
    ... )
    >>> with tempfile.TemporaryDirectory() as room:
    ...     place = export_student(student, Path(room) / "student", card=card)
    ...     sorted(file.name for file in place.iterdir()), load_student(place).predict([[0.9]])
    (['card.json', 'card.md', 'manifest.json', 'student.skops'], array([1]))
    """
    unknown = sorted(set(beside or {}) - {*_BESIDE})
    if unknown:
        raise ValueError(f"Expected files among {', '.join(_BESIDE)} beside a student, got {unknown[0]!r}.")
    place = Path(folder).absolute()
    _require_room(place, overwrite=overwrite)
    # Everything that can be wrong with the student is found before anything is written.
    files = {
        **_model_file(student, trusted),
        **(beside or {}),
        "card.json": _json(card.as_dict()),
        "card.md": card.markdown().encode(),
    }
    manifest = {
        "format": _FORMAT,
        "type": type_name(type(student)),
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())},
    }
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.parent / f".{place.name}.{secrets.token_hex(8)}.tmp"
    aside = fresh.with_suffix(".old")
    fresh.mkdir()
    try:
        for name, content in [*files.items(), (_MANIFEST, _json(manifest))]:
            write_whole(fresh / name, content, shared=True)
        # A folder cannot take the name of a full one. Killed between the two lines, there is no student
        # under the name, which is not half a student.
        if place.exists():
            place.rename(aside)
        fresh.rename(place)
    except BaseException:
        if aside.exists() and not place.exists():
            aside.rename(place)
        raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if place.exists():
            shutil.rmtree(aside, ignore_errors=True)
    sync_folder(place.parent)
    return place


def replace_card(folder: str | PathLike[str], *, card: ModelCard) -> Path:
    """Give an exported student another card and return its folder; the student itself is not touched.

    Killed on the way, the folder is refused as damaged until this is called again, which repairs it.
    """
    place = Path(folder)
    manifest = _manifest(place)
    cards = {"card.json": _json(card.as_dict()), "card.md": card.markdown().encode()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in cards.items()}
    for name, content in cards.items():
        write_whole(place / name, content, shared=True)
    files = dict(sorted({**manifest["files"], **sums}.items()))
    write_whole(place / _MANIFEST, _json({**manifest, "files": files}), shared=True)
    return place


def load_student(folder: str | PathLike[str], *, trusted: Sequence[str] = (), **needed: Any) -> Any:
    """Return the student of a folder that `export_student` wrote, after checking that nothing was damaged.

    Nothing is unpickled. Types that neither skops nor this package knows are loaded only if `trusted` names
    them. What a `Portable` model cannot keep in its bytes is `needed` again, such as the function `network`
    of a torch student. See `export_student` for an example.

    >>> load_student("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of an exported student, found none at nowhere. Check the path.
    """
    place = Path(folder)
    manifest = _manifest(place)
    contents = {}
    for name, expected in manifest["files"].items():
        try:
            contents[name] = read_bounded(place / name, most=cap())
        except OSError as error:
            raise ValueError(
                f"Expected {name} in {place}, got: {error.strerror or error}. Export the student again."
            ) from error
        if hashlib.sha256(contents[name]).hexdigest() != expected:
            raise ValueError(
                f"Expected {name} as it was exported, but {place / name} was damaged or changed since. "
                "Nothing was loaded. Export the student again."
            )
    if "student.skops" in contents:
        if needed:
            raise TypeError(f"Expected nothing else for a model saved by skops, got {', '.join(needed)}.")
        return load_model(contents["student.skops"], trusted=trusted)
    return _from_tensors(contents["student.safetensors"], manifest["type"], trusted, needed)


def _require_room(place: Path, *, overwrite: bool) -> None:
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise FileExistsError(f"Expected a new folder for the student, {place} is a file or a link.")
    found = {file.name for file in place.iterdir()} if place.is_dir() else set()
    if not found:
        return
    if _MANIFEST not in found or found - {*_CARDS, *_MODELS, *_BESIDE, _MANIFEST}:
        raise FileExistsError(
            f"Expected a new folder for the student, {place} holds other files. Name a folder of its own."
        )
    if not overwrite:
        raise FileExistsError(
            f"Expected a new folder, {place} holds a student already. "
            "Name another folder, or replace that student with overwrite=True."
        )


def _model_file(student: Any, trusted: Sequence[str]) -> dict[str, bytes]:
    if not isinstance(student, Portable):
        return {"student.skops": dump_model(student, trusted=trusted)}
    content: Any = student.to_bytes()
    if not isinstance(content, bytes) or not hasattr(type(student), "from_bytes"):
        raise TypeError(
            f"Expected a model with to_bytes and from_bytes, got {type(student).__name__}, which has one of "
            "them alone or gives no bytes."
        )
    return {"student.safetensors": content}


def _from_tensors(content: bytes, name: Any, trusted: Sequence[str], needed: dict[str, Any]) -> Any:
    module, _, kind = str(name).rpartition(".")
    if not (module.startswith("tellers.") or name in trusted):
        raise ValueError(
            f"Expected a student of a known type, got {name}. It was not loaded. If you know where it comes "
            f"from: trusted=[{name!r}]."
        )
    try:
        make = getattr(importlib.import_module(module), kind).from_bytes
    except (ImportError, AttributeError) as error:
        if isinstance(error, ImportError) and not isinstance(error, ModuleNotFoundError):
            raise  # it says which library is missing
        raise ValueError(
            f"Expected a class {name} with from_bytes, found none. Install the version of the package that "
            "the card names."
        ) from error
    return make(content, **needed)


def _manifest(place: Path) -> dict[str, Any]:
    if not place.is_dir():
        raise ValueError(
            f"Expected the folder of an exported student, found none at {place}. Check the path."
        )
    try:
        manifest = json.loads((place / _MANIFEST).read_bytes())
        files = manifest["files"]
        # Names from a fixed list: a manifest cannot lead out of its folder.
        sound = set(files) - {*_BESIDE} in ({*_CARDS, model} for model in _MODELS)
    except FileNotFoundError:
        raise ValueError(
            f"Expected {_MANIFEST} in {place}, found none: no student was exported there, or not by tellers."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"Expected a readable {_MANIFEST} in {place}. Export the student again.") from error
    if manifest.get("format") != _FORMAT or not sound:
        raise ValueError(
            f"Expected a student of format {_FORMAT} in {place}, got another. "
            "Read it with the version of tellers that wrote it."
        )
    return dict(manifest)


def _json(table: dict[str, Any]) -> bytes:
    return (json.dumps(table, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()
