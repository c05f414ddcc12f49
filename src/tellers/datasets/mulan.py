"""Mulan's data sets with many labels: an ARFF file, dense or sparse, and an XML file that names labels."""

import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .directory import unpack
from .markup import read_markup
from .multilabel import UNKNOWN, MultilabelDataset

_NUMBERS = ("numeric", "real", "integer")
_WORD = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s,{}'"]+))""")
_CELL = re.compile(r"""(?:[^,'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")+""")


@dataclass(frozen=True)
class Attribute:
    """A column: its name, and its values where it is nominal; words are numbered in their order.

    >>> _attribute("@attribute 'top speed' numeric", "x.arff, line 1")
    Attribute(name='top speed', values=None)
    >>> _attribute("@attribute colour {red, green}", "x.arff, line 1").codes
    {'red': 0.0, 'green': 1.0}
    """

    name: str
    values: tuple[str, ...] | None

    @property
    def codes(self) -> dict[str, float]:
        """Return the number of each value: itself, where all of them are numbers."""
        values = self.values or ()
        try:
            return {value: float(value) for value in values}
        except ValueError:
            return {value: float(i) for i, value in enumerate(values)}


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
    coded = [attributes[i].name for i in rest if attributes[i].values and not _are_numbers(attributes[i])]
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
    """Return the columns of an ARFF file and its rows as numbers; missing values and strings are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder) / "a.arff"
    ...     _ = place.write_text("@relation a\\n@attribute x numeric\\n@data\\n?\\n")
    ...     read_arff(place)
    Traceback (most recent call last):
        ...
    ValueError: a.arff, line 4: expected a number for 'x', got a missing value (?). ...
    """
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
    """Return the columns that an ARFF file declares, without its rows.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder) / "a.arff"
    ...     _ = place.write_text("@relation a\\n@attribute x numeric\\n@data\\n1\\n")
    ...     read_attributes(place)
    [Attribute(name='x', values=None)]
    """
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


def _are_numbers(attribute: Attribute) -> bool:
    return all(_is_number(value) for value in attribute.values or ())


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def read_label_names(file: str | PathLike[str]) -> tuple[str, ...]:
    """Return the labels that an XML file of Mulan's names.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder) / "a.xml"
    ...     _ = place.write_text("<labels><label name='sad'/><label name='calm'/></labels>")
    ...     read_label_names(place)
    ('sad', 'calm')
    """
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"Expected an XML file of labels, found none at {path}. Check the path.")
    root = read_markup(unpack(path), path)
    found = []
    for element in root.walk("label"):
        if not element.attributes.get("name"):
            raise ValueError(f"{path.name}, line {element.line}: expected a name in <label>.")
        found.append(element.attributes["name"])
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{path.name}: expected at least one <label name=...>, and none twice.")
    return tuple(found)
