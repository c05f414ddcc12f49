"""Readers of published annotations with many labels: Mulan (ARFF with XML) and Pascal VOC."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from ._directory import unpack
from .dataset import UNKNOWN, MultilabelDataset, Policy, require_images, require_policy, settle

# --- XML ---


_LINE = " line"  # no attribute of a file is called so


def read_markup(content: bytes, path: Path) -> Element:
    """Return the root of a file, tags without namespaces, the line of each element among its attributes.

    Entities of its own are refused: a few lines of them can fill a machine.
    """
    parser, tree = expat.ParserCreate(namespace_separator=" "), TreeBuilder()
    parser.buffer_text = True

    def start(tag: str, attributes: dict[str, str]) -> None:
        tree.start(tag.rpartition(" ")[2], {**attributes, _LINE: str(parser.CurrentLineNumber)})

    def end(tag: str) -> None:
        tree.end(tag.rpartition(" ")[2])

    def entity(*_given: Any) -> None:
        raise ValueError(f"{path.name}, line {parser.CurrentLineNumber}: expected no entities of its own.")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = tree.data, entity
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ValueError(f"{path.name}, line {error.lineno}: expected well-formed XML ({reason}).") from None
    return tree.close()


# --- Mulan: ARFF with XML ---

_NUMBERS = ("numeric", "real", "integer")
_WORD = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s,{}'"]+))""")
_CELL = re.compile(r"""(?:[^,'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")+""")


@dataclass(frozen=True)
class Attribute:
    """A column: its name, and its values where it is nominal; words are numbered in their order."""

    name: str
    values: tuple[str, ...] | None

    @property
    def codes(self) -> dict[str, float]:
        """Return the number of each value: itself, where all of them are numbers."""
        values = self.values or ()
        return dict(zip(values, _floats(values) or map(float, range(len(values)))))


def _floats(words: Sequence[str]) -> list[float] | None:
    """Return words as the numbers they are, or None where one is none."""
    try:
        return [float(word) for word in words]
    except ValueError:
        return None


def read_mulan(
    arff: str | PathLike[str], labels: str | PathLike[str], *, need_labels: bool = True
) -> MultilabelDataset:
    """Read a data set from its ARFF file (plain, .gz or .xz) and the XML file that names its labels.

    Without `need_labels` labels may be missing among the attributes, and nothing is known of them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder)
    ...     _ = (place / "a.xml").write_text("<labels><label name='sad'/></labels>")
    ...     _ = (place / "a.arff").write_text(
    ...         "@relation a\\n@attribute x numeric\\n@attribute sad {0,1}\\n@data\\n0.5,1\\n{0 2.5}\\n")
    ...     data = read_mulan(place / "a.arff", place / "a.xml")
    >>> data, data.X.tolist(), data.Y.tolist()
    (MultilabelDataset('a', n_rows=2, n_labels=1, n_features=1), [[0.5], [2.5]], [[1], [0]])
    """
    place, names = Path(arff), read_label_names(labels)
    attributes, table = read_arff(place)
    at = {attribute.name: i for i, attribute in enumerate(attributes)}
    for name in names:
        if name not in at:
            if not need_labels:
                continue
            raise ValueError(
                f"{place.name}: expected an attribute {name!r}, which {Path(labels).name} names."
            )
        if set(attributes[at[name]].values or ()) != {"0", "1"}:
            raise ValueError(f"{place.name}: expected the label {name!r} to be {{0, 1}}.")
    columns = [at[name] for name in names if name in at]
    rest = [i for i in range(len(attributes)) if i not in set(columns)]
    if not rest:
        raise ValueError(f"{place.name}: expected at least one attribute that is no label.")
    coded = [attributes[i].name for i in rest if _floats(attributes[i].values or ()) is None]
    Y = np.full((len(table), len(names)), UNKNOWN, dtype=np.int8)
    Y[:, [j for j, name in enumerate(names) if name in at]] = table[:, columns]
    return MultilabelDataset(
        name=place.name.split(".")[0],
        X=table[:, rest],
        Y=Y,
        label_names=names,
        feature_names=tuple(attributes[i].name for i in rest),
        notes=(f"Words became codes, in the declared order: {', '.join(coded)}.",) if coded else (),
    )


def read_arff(path: str | PathLike[str]) -> tuple[list[Attribute], NDArray[np.float64]]:
    """Return the columns of an ARFF file and its rows as numbers; missing values and strings are refused."""
    place, (attributes, lines, start) = Path(path), _begun(Path(path))
    names = [attribute.name for attribute in attributes]
    rows = [
        (number, line.strip())
        for number, line in enumerate(lines[start:], start=start + 1)
        if line.strip() and not line.lstrip().startswith("%")
    ]
    if not rows:
        raise ValueError(f"{place.name}: expected at least one row after @data, got none.")
    readers = [attribute.codes if attribute.values is not None else None for attribute in attributes]
    # What a sparse row leaves out is 0, or the first value of a nominal column.
    left_out = np.array([next(iter(codes.values())) if codes else 0.0 for codes in readers])
    table = np.tile(left_out, (len(rows), 1))
    for i, (number, line) in enumerate(rows):
        where = f"{place.name}, line {number}"
        if line.startswith("{"):
            for column, word in _sparse(line, len(names), where):
                table[i, column] = _number(word, readers[column], names[column], where)
        else:
            words = _words(line, where)
            if len(words) != len(names):
                raise ValueError(f"{where}: expected {len(names)} values, got {len(words)}.")
            for column, word in enumerate(words):
                table[i, column] = _number(word, readers[column], names[column], where)
    return attributes, table


def read_attributes(path: str | PathLike[str]) -> list[Attribute]:
    """Return the columns that an ARFF file declares, without its rows."""
    return _begun(Path(path))[0]


def _begun(place: Path) -> tuple[list[Attribute], list[str], int]:
    """Return the columns, all lines, and how many of those come before the rows."""
    if not place.is_file():
        raise ValueError(f"Expected an ARFF file, found none at {place}. Check the path.")
    try:
        lines = unpack(place).decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{place.name}: expected text in UTF-8.") from None
    attributes: list[Attribute] = []
    start = len(lines)
    for number, line in enumerate(lines, start=1):
        word = line.strip().lower()
        if word.startswith("@attribute"):
            attributes.append(_attribute(line.strip(), f"{place.name}, line {number}"))
        elif word == "@data":
            start = number
            break
        elif word and not word.startswith(("%", "@relation")):
            raise ValueError(f"{place.name}, line {number}: expected @attribute or @data.")
    names = [attribute.name for attribute in attributes]
    if start == len(lines) or not names:
        raise ValueError(f"{place.name}: expected attributes and, after @data, at least one row.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{place.name}: expected every attribute once, got {twice!r} twice.")
    return attributes, lines, start


def _attribute(line: str, where: str) -> Attribute:
    named = _WORD.match(line, len("@attribute"))
    if named is None:
        raise ValueError(f"{where}: expected '@attribute name type'.")
    kind = line[named.end() :].strip()
    name = _unquoted(named)
    if kind.lower() in _NUMBERS:
        return Attribute(name, None)
    if kind.startswith("{") and kind.endswith("}"):
        values = tuple(_words(kind[1:-1], where))
        if all(values) and len(set(values)) == len(values):
            return Attribute(name, values)
    raise ValueError(f"{where}: expected numeric, real, integer or {{a, b, ...}} as the type of {name!r}.")


def _words(text: str, where: str) -> list[str]:
    return [_word(cell, where) for cell in _cells(text, where)]


def _cells(text: str, where: str) -> list[str]:
    """Return what stands between commas that are not inside quotes."""
    if "'" not in text and '"' not in text:
        return text.split(",")
    cells = _CELL.findall(text)
    if ",".join(cells) != text:
        raise ValueError(f"{where}: expected values between commas, and quotes that end.")
    return list(cells)


def _word(cell: str, where: str) -> str:
    if "'" not in cell and '"' not in cell:
        return cell.strip()
    match = _WORD.fullmatch(cell.rstrip())
    if match is None:
        raise ValueError(f"{where}: expected a value, or one in quotes.")
    return _unquoted(match)


def _sparse(line: str, n_columns: int, where: str) -> list[tuple[int, str]]:
    if not line.endswith("}"):
        raise ValueError(f"{where}: expected a sparse row {{column value, ...}} to end with a brace.")
    inside, found = line[1:-1].strip(), []
    for cell in _cells(inside, where) if inside else []:
        column, _, word = cell.strip().partition(" ")
        if not column.isdecimal() or int(column) >= n_columns or not word.strip():
            raise ValueError(f"{where}: expected 'column value' with a column in 0..{n_columns - 1}.")
        found.append((int(column), _word(word, where)))
    if len({column for column, _ in found}) < len(found):
        raise ValueError(f"{where}: expected every column once.")
    return found


def _number(word: str, codes: dict[str, float] | None, name: str, where: str) -> float:
    if word == "?":
        raise ValueError(
            f"{where}: expected a number for {name!r}, got a missing value (?). Fill it in or drop the row."
        )
    try:
        value = float(word) if codes is None else codes[word]
    except (KeyError, ValueError):
        kind = "a number" if codes is None else "one of the declared values"
        raise ValueError(f"{where}: expected {kind} for {name!r}.") from None
    if not -float("inf") < value < float("inf"):
        raise ValueError(f"{where}: expected a finite number for {name!r}.")
    return value


def _unquoted(match: re.Match[str]) -> str:
    quoted = match.group(1) if match.group(1) is not None else match.group(2)
    return match.group(3) if quoted is None else re.sub(r"\\(.)", r"\1", quoted)


def read_label_names(file: str | PathLike[str]) -> tuple[str, ...]:
    """Return the labels that an XML file of Mulan's names."""
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"Expected an XML file of labels, found none at {path}. Check the path.")
    root = read_markup(unpack(path), path)
    found = []
    for element in root.iterfind(".//label"):
        if not element.get("name"):
            raise ValueError(f"{path.name}, line {element.get(_LINE)}: expected a name in <label>.")
        found.append(element.attrib["name"])
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{path.name}: expected at least one <label name=...>, and none twice.")
    return tuple(found)


# --- Pascal VOC ---

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
        raise ValueError(f"{path.name}, line {root.get(_LINE)}: expected <annotation>, got <{root.tag}>.")
    certain: set[str] = set()
    doubtful: set[str] = set()
    for thing in root.findall("object"):
        where = f"{path.name}, line {thing.get(_LINE)}"
        kind = thing.findtext("name", "").strip()
        if not kind:
            raise ValueError(f"{where}: expected a <name> in <object>.")
        if kind not in names:
            raise ValueError(
                f"{where}: expected one of {len(names)} classes, got {kind!r}. Declare others by "
                "classes=[...]."
            )
        mark = thing.find("difficult")
        marked = "0" if mark is None else (mark.text or "").strip()
        if mark is not None and marked not in ("0", "1"):
            raise ValueError(f"{path.name}, line {mark.get(_LINE)}: expected 0 or 1 in <difficult>.")
        (doubtful if marked == "1" else certain).add(kind)
    unsure = settle(UNKNOWN, policy=difficult)
    return [1 if name in certain else unsure if name in doubtful else 0 for name in names]
