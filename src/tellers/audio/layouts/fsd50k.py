"""FSD50K: clips of many lengths with labels from the ontology of AudioSet, parents written out.

FOLDER/FSD50K.ground_truth/dev.csv          fname, labels, mids, split
FOLDER/FSD50K.ground_truth/eval.csv         fname, labels, mids
FOLDER/FSD50K.ground_truth/vocabulary.csv   number, label, mid (no heading)
FOLDER/FSD50K.dev_audio/64760.wav           FOLDER/FSD50K.eval_audio/...
FOLDER/FSD50K.metadata/dev_clips_info_FSD50K.json    who uploaded each, where it is there
"""

import csv
import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path

import numpy as np

from ..clips import Clips, label_matrix
from ..ontology import Ontology
from .labels import Choice, choose
from .tables import read_rows, recordings_by_stem

_PARTS = ("dev", "eval")
_NOBODY = "who uploaded which clip is not known: FSD50K.metadata is not there, or not whole"


def read_fsd50k(
    folder: str | PathLike[str], *, ontology: Ontology | None = None, keep: Iterable[str] | None = None,
    remove: Iterable[str] = (), most: int | None = None, parents: bool = False,
) -> Clips:  # fmt: skip
    """Read FSD50K: many labels for each clip, folds "train", "val" and "eval", uploaders as sources.

    With an `ontology`, `keep` and `remove` name labels that stand for all below them and `parents` adds what
    labels imply; without, they are labels of the vocabulary. Clips with more than `most` labels are left out.
    Sources are not known where the files of FSD50K.metadata are not there; a clip without an uploader in
    these is a source by itself.

    >>> read_fsd50k("nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a table at nowhere/FSD50K.ground_truth/dev.csv, there is none. ...
    """
    root = Path(folder)
    truth = root / "FSD50K.ground_truth"
    paths: list[Path] = []
    labels: list[set[str]] = []
    folds: list[str] = []
    sources: list[str] = []
    names: dict[str, str] = _vocabulary(truth / "vocabulary.csv")
    n_there, known = 0, True
    for part in _PARTS:
        rows = read_rows(truth / f"{part}.csv", ["fname", "labels", "mids"])
        place = root / f"FSD50K.{part}_audio"
        there = recordings_by_stem(place) if place.is_dir() else {}
        about = root / "FSD50K.metadata" / f"{part}_clips_info_FSD50K.json"
        uploaders, known = _uploaders(about), known and about.is_file()
        for row in rows:
            mids = [mid.strip() for mid in row["mids"].split(",") if mid.strip()]
            names.update(zip(mids, (label.strip() for label in row["labels"].split(","))))
            n_there += row["fname"] in there
            paths.append(there.get(row["fname"], place / f"{row['fname']}.wav"))  # if absent, in its place
            labels.append(set(mids))
            folds.append(row.get("split") or part)
            sources.append(uploaders.get(row["fname"], f"clip {row['fname']}"))
    if not n_there:
        raise ValueError("Expected the recordings of dev.csv and eval.csv in FSD50K.*_audio, got none.")
    choice = Choice(ontology=ontology, keep=keep, remove=remove, most=most, parents=parents)
    left_out, sets, chosen, notes = choose(labels, names, choice)
    return Clips(
        name="FSD50K",
        paths=tuple(paths),
        Y=label_matrix(sets, chosen),
        label_names=tuple(names[mid] for mid in chosen),
        sources=np.array(sources) if known else None,
        folds=np.array(folds),
        notes=notes + (() if known else (_NOBODY,)),
        left_out=np.array(left_out),
    )


def _vocabulary(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row[2].strip(): row[1].strip() for row in csv.reader(file) if len(row) >= 3}


def _uploaders(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    about = json.loads(path.read_text(encoding="utf-8-sig"))
    names = {str(clip): str(one.get("uploader", "")).strip() for clip, one in about.items()}
    return {clip: f"uploader {name}" for clip, name in names.items() if name}
