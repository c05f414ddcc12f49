"""Teachers on disk: a model and a manifest each, written whole or not at all, read without running code.

Models are skops files: what is not on our list of types, or was not named by the caller, is not loaded,
whatever the file says of itself. The manifest comes last and holds the checksum of the model, so a teacher
without a fitting manifest was never finished. It also holds a fingerprint of everything the teacher was
trained from. The folder is as private as the data: some models keep rows, and fingerprints are made of them.
"""

import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..privacy._files import TooLarge, require_archive
from ._places import inside, read_bytes, write_bytes

# Types of scikit-learn that skops does not trust by itself and that hold nothing but numbers.
TRUSTED = (
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "tellers.nn.tagger.AudioClassifier",
    "tellers.nn.tagger.AudioTagger",
    "tellers.data.label_models.OneEach",
    "tellers.students.sums.SumStudent",
    "tellers.teachers.ballots.FallbackTeacher",
    "tellers.teachers.models.ConstantLabels",
    "tellers.teachers.models.ConstantTeacher",
    # As stored before version 0.2.
    "tellers.audio.classifier.AudioClassifier",
    "tellers.audio.tagger.AudioTagger",
    "tellers.label_models.OneEach",
    "tellers.teachers.fallback.FallbackTeacher",
)
# Types that moved are described by the names they had when teachers were first stored.
_FIRST_NAMES = {
    "tellers.data.label_models.OneEach": "tellers.label_models.OneEach",
    "tellers.nn.classifier.TorchClassifier": "tellers.teachers.torch.classifier.TorchClassifier",
    "tellers.nn.classifier.TorchLabelClassifier": (
        "tellers.teachers.torch.label_classifier.TorchLabelClassifier"
    ),
    "tellers.nn.tagger.AudioClassifier": "tellers.audio.classifier.AudioClassifier",
    "tellers.nn.tagger.AudioTagger": "tellers.audio.tagger.AudioTagger",
}
_FORMAT = 1
# The mark of our own estimators on stored teachers: the version since which they learn the same from the same
# rows. Raised when their training changes, so that a new release alone does not disown trained teachers.
_OWN_ESTIMATORS = "0.1.0"


@dataclass(frozen=True)
class ConstantTeacher:
    """A teacher whose part holds one class only: it votes for that class, whatever is asked.

    Most estimators refuse to be fitted on one class; what they could have learned is this.
    """

    label: int

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.full(len(X), self.label, dtype=np.int64)


@dataclass(frozen=True)
class ConstantLabels:
    """A teacher whose rows all have the same labels: it says those, whatever is asked."""

    labels: tuple[int, ...]

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.tile(np.array(self.labels, dtype=np.int64), (len(X), 1))


def skops_io() -> Any:
    """Return `skops.io`, without the array libraries that importing it would load besides.

    To list the estimators of scikit-learn it imports every package in it, and with these torch, dask and
    pytest: seconds, for nothing.
    """
    hidden = [f"sklearn.externals.array_api_compat.{name}" for name in ("cupy", "dask", "torch")] + ["pytest"]
    hidden = [name for name in hidden if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        from skops import io

        return io
    finally:
        for name in hidden:
            del sys.modules[name]


def dump_model(model: Any, *, trusted: Sequence[str] = ()) -> bytes:
    """Return a model as the bytes of a skops file, or refuse one that could not be read again."""
    io = skops_io()

    content: bytes = io.dumps(model)
    strange = sorted(set(io.get_untrusted_types(data=content)) - {*TRUSTED, *trusted})
    if strange:
        raise TypeError(
            f"Expected a model made of known types, got {', '.join(strange)}. If you trust them, name them: "
            f"trusted={strange!r}. Without a folder nothing is saved and any type will do."
        )
    return content


def load_model(content: bytes, *, trusted: Sequence[str] = ()) -> Any:
    """Return the model of a skops file made of our types, skops' own and those named in `trusted`."""
    io = skops_io()

    try:
        require_archive(content, name="the model")
        return io.loads(content, trusted=[*TRUSTED, *trusted])
    except TooLarge:
        raise
    except Exception as error:  # whatever is wrong with a file, it is one kind of error
        raise ValueError(
            "Expected a model saved with skops, of trusted types alone, got something else. "
            "It was not loaded. Delete it, or name the types in trusted=... if you know where it comes from."
        ) from error


def fingerprint(
    estimator: Any,
    X: NDArray[Any],
    y: NDArray[Any],
    *,
    seed: int,
    versions: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return what a teacher is made of, so that one made of something else is not taken for it.

    The estimator is its class and its parameters, without random states, which come from the seed. `versions`
    are those of NumPy, scikit-learn and the estimator's own package, unless they are given.
    """
    return {
        "estimator": hashlib.sha256(describe_estimator(estimator).encode()).hexdigest(),
        "rows": _digest(X, y),
        "seed": int(seed),
        "versions": dict(_versions(estimator) if versions is None else versions),
        "format": _FORMAT,
    }


def _versions(estimator: Any) -> dict[str, str]:
    from sklearn import __version__ as sklearn

    package = type(estimator).__module__.partition(".")[0]
    versions = {"numpy": np.__version__, "scikit-learn": sklearn}
    if package == "tellers":
        versions[package] = _OWN_ESTIMATORS
    elif package not in ("sklearn", "__main__"):
        with suppress(PackageNotFoundError):  # a module of the user's own has no version
            versions[package] = version(package)
    return versions


def describe_estimator(estimator: Any) -> str:
    """Return the class and the parameters of an estimator as text that is the same in every process.

    Parameters that it names in `not_made_of`, a device say, are left out.
    """
    if hasattr(estimator, "get_params"):
        parameters = estimator.get_params(deep=True)
    else:
        parameters = getattr(estimator, "__dict__", {})
    others = getattr(estimator, "not_made_of", ())
    shown = [
        f"{name}={_stable(value)}"
        for name, value in sorted(parameters.items())
        if not name.endswith("random_state") and name not in others
    ]
    name = type_name(type(estimator))
    return f"{_FIRST_NAMES.get(name, name)}({', '.join(shown)})"


def type_name(kind: type) -> str:
    """Return the name by which a type is trusted."""
    return f"{kind.__module__}.{kind.__name__}"


def save_teacher(
    folder: Path, number: int, *, model: Any, made_of: Mapping[str, Any], trusted: Sequence[str] = ()
) -> None:
    """Write a finished teacher and then its manifest; killed at any moment, it is finished or it is not."""
    write_model(folder, teacher_file(number), content=dump_model(model, trusted=trusted), made_of=made_of)


def write_model(
    folder: str | PathLike[str], name: str, *, content: bytes, made_of: Mapping[str, Any]
) -> None:
    """Write the file of a model, and then the manifest that makes it count."""
    record = {"sha256": hashlib.sha256(content).hexdigest(), "made_of": dict(made_of)}
    write_bytes(inside(folder, name), content)
    write_bytes(_manifest(folder, name), json.dumps(record, indent=1, sort_keys=True).encode())


def find_model(folder: str | PathLike[str], name: str) -> tuple[bytes, dict[str, Any]] | None:
    """Return the bytes of a finished model and what it is made of, or None where there is none.

    Without a manifest, with a damaged one, or with a model that is not the one it speaks of, a model was
    not finished. See `write_model`.
    """
    try:
        record = json.loads(read_bytes(_manifest(folder, name)))
        content = read_bytes(inside(folder, name))
        whole = hashlib.sha256(content).hexdigest() == record["sha256"]
        made_of = record["made_of"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return (content, made_of) if whole and isinstance(made_of, dict) else None


def _manifest(folder: str | PathLike[str], name: str) -> str:
    return inside(folder, f"{name.rpartition('.')[0]}.json")


def teacher_file(number: int) -> str:
    return f"teacher-{number:05d}.skops"


def _digest(*tables: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for table in tables:
        digest.update(f"{table.dtype.str} {table.shape};".encode())
        digest.update(np.ascontiguousarray(table).data if table.size else b"")
    return digest.hexdigest()


def _stable(value: Any) -> str:
    """Show a parameter without addresses, which differ from process to process, and without abbreviation."""
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        return _digest(value)
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(_stable(entry) for entry in value)})"
    if isinstance(value, dict):
        return f"dict({', '.join(sorted(f'{_stable(k)}: {_stable(v)}' for k, v in value.items()))})"
    if hasattr(value, "get_params") and not isinstance(value, type):
        return describe_estimator(value)
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
