"""Pascal VOC: images with the objects in them, in the folders of the challenge."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from .markup import Element, read_markup
from .multilabel import UNKNOWN, MultilabelDataset, Policy, require_images, require_policy, settle

VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip


def read_voc(
    folder: str | PathLike[str],
    part: str = "trainval",
    *,
    difficult: Policy = "ones",
    classes: Sequence[str] = VOC_CLASSES,
    check_images: bool = True,
    need_labels: bool = True,
) -> MultilabelDataset:
    """Read a folder such as VOC2012: which of the classes are in each image of `ImageSets/Main/<part>.txt`.

    Objects come from `Annotations/<image>.xml`, images are `JPEGImages/<image>.jpg` and are not opened.
    `difficult` says what a class counts as of which an image has only objects marked as difficult. Without
    `need_labels` images may lack an annotation, and nothing is known of them.

    >>> read_voc("nowhere")
    Traceback (most recent call last):
        ...
    ValueError: Expected a list of images at nowhere/ImageSets/Main/trainval.txt, found none. ...
    """
    require_policy(difficult=difficult)
    place, names = Path(folder), tuple(classes)
    listing = place / "ImageSets" / "Main" / f"{part}.txt"
    if not listing.is_file():
        raise ValueError(
            f"Expected a list of images at {listing}, found none. Give the folder that holds Annotations, "
            "ImageSets and JPEGImages, such as VOCdevkit/VOC2012, and a part such as train, val or trainval."
        )
    images = _images(listing)
    notes = [place / "Annotations" / f"{image}.xml" for image in images]
    rows = [
        _labels(note, names, difficult) if need_labels or note.is_file() else [UNKNOWN] * len(names)
        for note in notes
    ]
    paths = tuple(place / "JPEGImages" / f"{image}.jpg" for image in images)
    if check_images:
        require_images(paths)
    said = (f"Classes with difficult objects alone: {difficult}.",)
    return MultilabelDataset(
        name=f"{place.name or 'voc'}/{part}", Y=np.array(rows), label_names=names, paths=paths, notes=said
    )


def _images(listing: Path) -> list[str]:
    found = []
    for number, line in enumerate(listing.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        # Lists of one class have a second word, 1, 0 or -1: annotations know more.
        if len(words) > 2 or words[0] in (".", "..") or not set(words[0]).isdisjoint("/\\"):
            raise ValueError(f"{listing.name}, line {number}: expected the name of one image.")
        found.append(words[0])
    if not found:
        raise ValueError(f"{listing.name}: expected the name of at least one image, got none.")
    if len(set(found)) < len(found):
        raise ValueError(f"{listing.name}: expected every image once, got one twice.")
    return found


def _labels(path: Path, names: tuple[str, ...], difficult: Policy) -> list[int]:
    if not path.is_file():
        raise ValueError(f"Expected the annotation {path}, found none. Every image of the list needs one.")
    root = read_markup(path.read_bytes(), path)
    if root.tag != "annotation":
        raise ValueError(f"{path.name}, line {root.line}: expected <annotation>, got <{root.tag}>.")
    certain: set[str] = set()
    doubtful: set[str] = set()
    for thing in root.children:
        if thing.tag == "object":
            kind = _word(thing, "name", path)
            if kind not in names:
                raise ValueError(
                    f"{path.name}, line {thing.line}: expected one of {len(names)} classes, got {kind!r}. "
                    "Declare others by classes=[...]."
                )
            (doubtful if _is_difficult(thing, path) else certain).add(kind)
    unsure = settle(UNKNOWN, policy=difficult)
    return [1 if name in certain else unsure if name in doubtful else 0 for name in names]


def _is_difficult(thing: Element, path: Path) -> bool:
    marked = thing.find("difficult")
    if marked is None:
        return False
    if marked.text.strip() not in ("0", "1"):
        raise ValueError(f"{path.name}, line {marked.line}: expected 0 or 1 in <difficult>.")
    return marked.text.strip() == "1"


def _word(thing: Element, tag: str, path: Path) -> str:
    child = thing.find(tag)
    if child is None or not child.text.strip():
        raise ValueError(f"{path.name}, line {thing.line}: expected a <{tag}> in <{thing.tag}>.")
    return child.text.strip()
