"""A student of sounds on disk: the model, how recordings become spectrograms, and what its labels mean."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.label_models import label_probabilities
from ...data.sound.decoding import Finding, decode, silence
from ...data.sound.logmel import log_mel
from ...data.sound.prepare import Features, features_from_dict
from ...errors import require_count
from ..card import load_student

FILE = "hearing.json"
_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Tagged:
    """What was heard in one recording: a score for each label, its picture, or why there is none.

    >>> one = Tagged("a.wav", ("bell", "siren"), np.array([0.2, 0.9]))
    >>> one.top(1), one.labels(0.5), one.as_dict()["tags"][0]
    ([('siren', 0.9)], ('siren',), {'label': 'siren', 'score': 0.9})
    """

    path: str
    label_names: tuple[str, ...]
    scores: NDArray[np.float64] | None = None
    picture: NDArray[np.floating[Any]] | None = None
    finding: Finding | None = None

    def top(self, n_labels: int = 5) -> list[tuple[str, float]]:
        """Return the likeliest labels with their scores, the likeliest first."""
        require_count(n_labels=n_labels)
        if self.scores is None:
            return []
        order = np.argsort(-self.scores, kind="stable")[:n_labels]
        return [(self.label_names[j], float(self.scores[j])) for j in order]

    def labels(self, threshold: float = 0.5) -> tuple[str, ...]:
        """Return the labels whose score is at least so high."""
        return tuple(name for name, score in self.top(len(self.label_names)) if score >= threshold)

    def as_dict(self, n_labels: int = 5) -> dict[str, Any]:
        """Return it as plain values for JSON."""
        said: dict[str, Any] = {"file": self.path}
        if self.finding is not None:
            said["finding"] = {"kind": str(self.finding.kind), "detail": self.finding.detail}
        tags = [{"label": name, "score": round(score, 6)} for name, score in self.top(n_labels)]
        return {**said, "tags": tags}


@dataclass(frozen=True, eq=False, repr=False)
class Hearing:
    """A model of log-Mel pictures with all that it takes to hand it a recording.

    >>> class Deaf:
    ...     def predict_proba(self, X):
    ...         return np.full((len(X), 2), 0.5)
    >>> hearing = Hearing(Deaf(), Features(), ("bell", "siren"))
    >>> hearing, hearing.tag(["gone.wav"])[0].finding.kind
    (Hearing(n_labels=2), <Kind.MISSING: 'missing'>)
    >>> hearing.scores(np.zeros((1, 1001, 64)))
    array([[0.5, 0.5]])
    """

    model: Any
    features: Features
    label_names: tuple[str, ...]

    def scores(self, pictures: NDArray[Any]) -> NDArray[np.float64]:
        """Return the score of every label, (clips, labels), for pictures (clips, frames, filters)."""
        rows = np.asarray(pictures, dtype=np.float32).reshape(len(pictures), -1)
        said = _scores(self.model, rows, n_labels=len(self.label_names))
        if said.shape != (len(rows), len(self.label_names)):
            raise ValueError(
                f"Expected a score for each of {len(self.label_names)} labels, the model gives "
                f"{said.shape[1:]}. Is it the student of these labels?"
            )
        return said

    def tag(self, paths: Sequence[str | PathLike[str]]) -> list[Tagged]:
        """Return what is heard in each recording, in order; one that cannot be used has a finding.

        A silent recording is tagged all the same, and its finding says that it is silent.
        """
        found: list[Tagged] = []
        for start in range(0, len(paths), _AT_ONCE):
            names = [str(path) for path in paths[start : start + _AT_ONCE]]
            heard = [self._heard(name) for name in names]
            pictures = [picture for picture, _ in heard if picture is not None]
            scores = iter(self.scores(np.stack(pictures)) if pictures else ())
            found += [
                Tagged(name, self.label_names, None if picture is None else next(scores), picture, finding)
                for name, (picture, finding) in zip(names, heard)
            ]
        return found

    def _heard(self, path: str) -> tuple[NDArray[Any] | None, Finding | None]:
        """Return the picture of a recording, and what is wrong with it."""
        samples = decode(path, self.features.decoding)
        if isinstance(samples, Finding):
            return None, samples
        finding = silence(path, samples, self.features.decoding)
        return log_mel(samples, self.features.logmel).astype(self.features.dtype), finding

    def __repr__(self) -> str:
        return f"Hearing(n_labels={len(self.label_names)})"


def _scores(model: Any, rows: NDArray[Any], *, n_labels: int) -> NDArray[np.float64]:
    """Return what any kind of student says, in the order of the labels."""
    said, classes = label_probabilities(model, rows), np.asarray(getattr(model, "classes_", ()), dtype=object)
    if said.ndim == 1:  # the class of each row, by a student that does not say how sure it is
        return np.asarray(np.eye(n_labels)[said.astype(np.int64)])
    if classes.ndim == 1 and said.shape[1] == len(classes) < n_labels:
        # Classes that were never told have no column.
        every = np.zeros((len(said), n_labels))
        every[:, classes.astype(np.int64)] = said
        return every
    return said


def load_hearing(folder: str | PathLike[str]) -> Hearing:
    """Return a student that hears, from the folder it was exported to, or from that of its run.

    >>> load_hearing("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected the folder of an exported student, found none at nowhere. Check the path, ...
    """
    place = Path(folder)
    if (place / "student" / FILE).exists():
        place = place / "student"
    if not (place / "manifest.json").exists():
        raise ValueError(
            f"Expected the folder of an exported student, found none at {place}. Check the path, or teach "
            "one: tellers audio student EARS --out study"
        )
    model = load_student(place)
    try:
        said = json.loads((place / FILE).read_bytes())
        features, names = features_from_dict(said["features"]), tuple(map(str, said["label_names"]))
    except FileNotFoundError:
        raise ValueError(
            f"Expected a student of sounds, found no {FILE} in {place}. Teach one: tellers audio student"
        ) from None
    except (KeyError, TypeError) as error:
        raise ValueError(f"Expected a whole {FILE} in {place}, got another.") from error
    return Hearing(model, features, names)
