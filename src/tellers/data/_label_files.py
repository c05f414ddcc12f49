"""Readers of rows with many labels, one for each layout of files that settings can name.

All of them take the path of that file and the labels that are wanted, and return rows of numbers; images are
decoded. Without `need_labels` labels may be missing: those of a public pool often are.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from .annotations import VOC_CLASSES, read_attributes, read_mulan, read_voc
from .dataset import MultilabelDataset, Policy
from .images import read_chexpert, read_image_table

FilePath = str | PathLike[str]
_PACKINGS = (".gz", ".xz")


def voc_list(
    path: FilePath,
    label_names: Sequence[str],
    *,
    difficult: Policy = "ones",
    objects: Sequence[str] = VOC_CLASSES,
    size: Sequence[int] = (32, 32),
    grey: bool = False,
    need_labels: bool = True,
) -> MultilabelDataset:
    """Read the images of a list of Pascal VOC, such as `VOC2012/ImageSets/Main/train.txt`.

    `objects` are all classes that annotations name, the challenge's unless you say others; the labels are
    some of them.
    """
    place = Path(path)
    if place.suffix != ".txt" or [part.name for part in place.parents[:2]] != ["Main", "ImageSets"]:
        raise ValueError(
            f"Expected a list of images such as VOC2012/ImageSets/Main/train.txt, got {place.as_posix()}."
        )
    for name in label_names:
        if name not in objects:
            raise ValueError(
                f"Expected labels among {', '.join(objects)}, got {name!r}. Declare others by objects = "
                "[...]."
            )
    fitted = _size(size, grey)
    data = read_voc(
        place.parents[2], place.stem, difficult=difficult, classes=objects, check_images=False,
        need_labels=need_labels,
    )  # fmt: skip
    return data.choose(label_names).decoded(size=fitted, grey=grey)


def chexpert_table(
    path: FilePath,
    label_names: Sequence[str],
    *,
    uncertain: Policy,
    blank: Policy = "zeros",
    view: Any = "all",
    size: Sequence[int] = (32, 32),
    grey: bool = True,
    need_labels: bool = True,
) -> MultilabelDataset:
    """Read the images of a table of CheXpert, such as CheXpert-v1.0-small/train.csv; patients are persons."""
    place, fitted = _unpacked(path), _size(size, grey)
    if place.suffix != ".csv":
        raise ValueError(
            f"Expected a table such as CheXpert-v1.0-small/train.csv, got {Path(path).as_posix()}."
        )
    part: Any = place.stem
    data = read_chexpert(
        place.parent, part, uncertain=uncertain, blank=blank, findings=label_names, view=view,
        check_images=False, need_labels=need_labels,
    )  # fmt: skip
    return data.decoded(size=fitted, grey=grey)


def image_table(
    path: FilePath,
    label_names: Sequence[str],
    *,
    image: str,
    folder: str = "",
    person: str | None = None,
    uncertain: Policy = "ignore",
    size: Sequence[int] = (32, 32),
    grey: bool = False,
    need_labels: bool = True,
) -> MultilabelDataset:
    """Read images by a CSV of one's own: the column `image` says the file, and each label has a column.

    `folder`, from where the table is, holds the images; without it they lie beside the table.
    """
    place, fitted = _unpacked(path), _size(size, grey)
    data = read_image_table(
        place.parent / folder, place, image=image, labels=label_names, person=person, uncertain=uncertain,
        check_images=False, need_labels=need_labels,
    )  # fmt: skip
    return data.decoded(size=fitted, grey=grey)


def mulan_file(
    path: FilePath,
    label_names: Sequence[str],
    *,
    xml: str = "",
    need_labels: bool = True,
) -> MultilabelDataset:
    """Read an ARFF file of Mulan's; `xml`, from where that is, names its labels.

    Without `xml` it is the file of the same name beside it, with or without -train or -test. Labels of that
    file that are not wanted are left out; they become no features.
    """
    return read_mulan(path, labels_file(path, xml), need_labels=need_labels).choose(label_names)


def labels_file(path: FilePath, xml: str = "") -> Path:
    """Return where the XML file is that names the labels of an ARFF file."""
    place = Path(path)
    if xml:
        return place.parent / xml
    plain = _unpacked(place).with_suffix(".xml")
    # Published data sets come in two files, yeast-train.arff and yeast-test.arff, with one yeast.xml.
    stems = dict.fromkeys((plain.stem, plain.stem.removesuffix("-train").removesuffix("-test")))
    tried = [plain.with_name(f"{stem}.xml{packing}") for stem in stems for packing in ("", *_PACKINGS)]
    return next((file for file in tried if file.is_file()), plain)


def require_same_attributes(path: FilePath, like: FilePath, *, labels: Sequence[str]) -> None:
    """Refuse an ARFF file whose features are not those of another: words there would get other codes."""
    ours, theirs = (
        [each for each in read_attributes(file) if each.name not in set(labels)] for file in (path, like)
    )
    if ours != theirs:
        there = [a.name for a, b in zip(ours, theirs) if a != b]
        where = f"others from {there[0]!r} on" if there else f"{len(ours)} for {len(theirs)}"
        raise ValueError(
            f"{Path(path).name}: expected the attributes of {Path(like).name} but for labels, got {where}."
        )


def _unpacked(path: FilePath) -> Path:
    place = Path(path)
    return place.with_suffix("") if place.suffix in _PACKINGS else place


def _size(size: Any, grey: Any) -> tuple[int, int]:
    """Return height and width, which may come from a file of settings."""
    if (
        not isinstance(size, Sequence) or isinstance(size, str) or len(size) != 2
        or not all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in size)
    ):  # fmt: skip
        raise ValueError(f"Expected size = [height, width], two whole numbers above 0, got {size!r}.")
    if not isinstance(grey, bool):
        raise ValueError(f"Expected grey to be true or false, got {grey!r}.")
    return int(size[0]), int(size[1])
