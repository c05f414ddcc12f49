"""AudioSet: ten seconds of a video each, with labels from an ontology, in the files that the publisher gives.

    balanced_train_segments.csv     # comments, then: YTID, start_seconds, end_seconds, "/m/09x0r,/t/dd00088"
    ontology.json                   a list of labels with id, name and child_ids
    a folder of clips               <YTID>.wav, Y<YTID>.wav, <YTID>_<start>.wav or <YTID>_<start>_<end>.wav

The clips themselves are not published; this reads those that you have. Starts and ends in file names may be
seconds, with or without a decimal, or thousandths.
"""

import csv
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from ..clips import Clips, label_matrix
from ..ontology import Ontology, read_ontology
from .labels import Choice, choose
from .tables import recordings_by_stem


def read_audioset(
    segments: str | PathLike[str] | Sequence[str | PathLike[str]],
    ontology: str | PathLike[str] | Ontology,
    *,
    audio: str | PathLike[str],
    keep: Iterable[str] | None = None,
    remove: Iterable[str] = (),
    most: int | None = None,
    parents: bool = False,
) -> Clips:
    """Read AudioSet: many labels for each clip, the segment files as folds, the videos as sources.

    `keep` and `remove` name labels, by id or by name, that stand for all labels below them; a label below
    both is removed. With `parents`, a clip carries the labels above its own, too. Clips with more than `most`
    labels, counted after that, and those with none are left out. A segment whose clip is not there keeps its
    place. Where two segments of a video are listed, a file that says no times is taken for neither.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "abc.wav").touch()
    >>> _ = (folder / "eval.csv").write_text('# YTID, start, end, labels\\nabc, 30.000, 40.000, "/b"\\n')
    >>> tree = Ontology(names={"/v": "Vehicle", "/b": "Bus"}, children={"/v": ("/b",)})
    >>> clips = read_audioset(folder / "eval.csv", tree, audio=folder, parents=True)
    >>> clips, clips.labels_of(0), clips.folds.tolist()
    (Clips('AudioSet', n_clips=1, n_labels=2), ('Vehicle', 'Bus'), ['eval'])
    """
    files = [segments] if isinstance(segments, (str, PathLike)) else list(segments)
    tree = ontology if isinstance(ontology, Ontology) else read_ontology(ontology)
    there = recordings_by_stem(Path(audio))
    paths: list[Path] = []
    labels: list[set[str]] = []
    folds: list[str] = []
    videos: list[str] = []
    n_there = 0
    listed = [(file, segment) for file in files for segment in _segments(Path(file))]
    times: dict[str, set[tuple[float, float]]] = {}
    for _, (video, start, end, _) in listed:
        times.setdefault(video, set()).add((start, end))
    for file, (video, start, end, carried) in listed:
        names = _names(video, start, end, alone=len(times[video]) == 1)
        path = next((there[name] for name in names if name in there), None)
        n_there += path is not None
        paths.append(path or Path(audio) / f"{names[0]}.wav")
        labels.append(carried)
        folds.append(Path(file).stem)
        videos.append(video)
    if not n_there:
        raise ValueError("Expected clips of the segments in the audio folder, got none. Compare the names.")
    choice = Choice(ontology=tree, keep=keep, remove=remove, most=most, parents=parents)
    left_out, sets, chosen, notes = choose(labels, dict(tree.names), choice)
    return Clips(
        name="AudioSet",
        paths=tuple(paths),
        Y=label_matrix(sets, chosen),
        label_names=_different(chosen, tree),
        sources=np.array(videos),
        folds=np.array(folds),
        notes=notes,
        left_out=np.array(left_out),
    )


def _segments(path: Path) -> list[tuple[str, float, float, set[str]]]:
    if not path.is_file():
        raise FileNotFoundError(f"Expected a file of segments at {path}, there is none.")
    found = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.reader(file, skipinitialspace=True), start=1):
            if not row or row[0].startswith("#"):
                continue
            try:
                video, start, end, labels = row
                found.append((video, float(start), float(end), {one.strip() for one in labels.split(",")}))
            except ValueError:
                raise ValueError(
                    f"Expected YTID, start, end and labels in line {number} of {path.name}, got others."
                ) from None
    return found


def _names(video: str, start: float, end: float, *, alone: bool) -> list[str]:
    """Return the file names under which tools store a segment, the most particular first."""
    found = []
    for form in ("{:.3f}", "{:.1f}", "{:.0f}"):
        found += [f"{form.format(start)}_{form.format(end)}", form.format(start)]
    found += [f"{start * 1000:.0f}_{end * 1000:.0f}", f"{start * 1000:.0f}"]
    named = [f"{video}_{times}" for times in found]
    # The video's name alone does not say which of two segments it is.
    return [*named, *(f"Y{name}" for name in named), *((video, f"Y{video}") if alone else ())]


def _different(chosen: Sequence[str], tree: Ontology) -> tuple[str, ...]:
    """Return the names of labels; where two are called alike, with their ids."""
    names = [tree.names[label] for label in chosen]
    return tuple(
        name if names.count(name) == 1 else f"{name} ({label})" for name, label in zip(names, chosen)
    )
