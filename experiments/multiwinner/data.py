"""Data sets with many labels: tables in ARFF with their labels named in XML, and a generated stand-in.

The published files are read as they are: `NAME-train.arff.xz`, `NAME-test.arff.xz` and `NAME.xml` in the
folder `multilabel` of the data directory; CAL500 comes in one part and is split here.
"""

import lzma
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import make_multilabel_classification

from tellers.data._directory import data_directory

ATTRIBUTE = re.compile(r"""@attribute\s+(?:'((?:[^'\\]|\\.)*)'|"([^"]*)"|(\S+))\s""", re.IGNORECASE)


@dataclass(frozen=True)
class Setting:
    """What is declared for a data set: how it is split, and the settings that are tried on it.

    `typical` is about how many labels an example has. `squares` are the squares of the l2 norms and
    the l1 norms: a ballot of that many ones passes both unclipped.
    """

    name: str
    n_teachers: int
    n_public: int
    typical: float
    squares: tuple[float, ...]
    sigmas: tuple[float, ...]


MANY = (3.0, 5.0, 7.0, 10.0, 14.0, 20.0)
FEW = (1.0, 1.5, 2.0, 3.0, 5.0)
SETTINGS = {
    one.name: one
    for one in (
        Setting("tmc2007-500", 50, 3_000, 2.2, (2.0, 3.24, 6.0), MANY),
        Setting("bibtex", 10, 1_200, 2.4, (3.24,), FEW),
        Setting("yeast", 50, 450, 4.2, (3.24, 6.0), MANY),
        Setting("scene", 50, 600, 1.1, (1.0, 2.0), MANY),
        Setting("emotions", 10, 100, 1.9, (2.0, 3.24), FEW),
        Setting("cal500", 10, 100, 26.0, (36.0,), FEW),
        Setting("made", 20, 600, 2.5, (2.0, 4.0), (2.0, 4.0, 7.0)),
    )
}


@dataclass(frozen=True, eq=False)
class Data:
    """A data set in three: private rows for the teachers, public ones to ask about, and held-out ones."""

    setting: Setting
    labels: tuple[str, ...]
    X: Any
    y: np.ndarray
    X_public: Any
    y_public: np.ndarray
    X_test: Any
    y_test: np.ndarray

    @property
    def name(self) -> str:
        """Return the name of the data set."""
        return self.setting.name

    @property
    def n_labels(self) -> int:
        """Return how many labels there are."""
        return len(self.labels)


def load(name: str, data_dir: Path | None) -> Data:
    """Return a data set: train and test as given, public and held-out rows from the test part, seed 0."""
    if name not in SETTINGS:
        raise ValueError(f"Expected a data set of {', '.join(SETTINGS)}, got {name!r}.")
    setting = SETTINGS[name]
    if name == "made":
        return _divide(setting, tuple(f"label {i}" for i in range(10)), *_made())
    folder = data_directory(data_dir) / "multilabel"
    labels = label_names(folder / f"{name}.xml")
    if name == "cal500":
        X, y = read_arff(folder / f"{name}.arff.xz", labels)
        order = np.random.default_rng(0).permutation(len(y))
        train, test = order[:300], order[300:]
        return _divide(setting, labels, X[train], y[train], X[test], y[test])
    train, test = (read_arff(folder / f"{name}-{part}.arff.xz", labels) for part in ("train", "test"))
    return _divide(setting, labels, *train, *test)


def _divide(setting: Setting, labels: tuple[str, ...], X: Any, y: Any, X_rest: Any, y_rest: Any) -> Data:
    if not isinstance(X, csr_array):
        # Features of sound and genes have scales of their own. The private rows' means would be private: the
        # public part's are as good.
        mean, scale = X_rest.mean(axis=0), X_rest.std(axis=0) + 1e-9
        X, X_rest = (X - mean) / scale, (X_rest - mean) / scale
    order = np.random.default_rng(0).permutation(len(y_rest))
    public, held = order[: setting.n_public], order[setting.n_public :]
    return Data(setting, labels, X, y, X_rest[public], y_rest[public], X_rest[held], y_rest[held])


def _made() -> tuple[Any, np.ndarray, Any, np.ndarray]:
    X, y = make_multilabel_classification(
        n_samples=3_000, n_features=40, n_classes=10, n_labels=2, length=60, random_state=7
    )
    return X[:2_000], y[:2_000].astype(np.uint8), X[2_000:], y[2_000:].astype(np.uint8)


def label_names(path: Path) -> tuple[str, ...]:
    """Return the names of the labels, in the order of the file."""
    root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    return tuple(element.attrib["name"] for element in root.iter() if element.tag.endswith("label"))


def read_arff(path: Path, labels: tuple[str, ...]) -> tuple[Any, np.ndarray]:
    """Return features (dense, or sparse where the file is) and labels as 0 and 1; numbers and {0,1} only."""
    names: list[str] = []
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            if line.lower().startswith("@data"):
                break
            if line.lower().startswith("@attribute"):
                found = ATTRIBUTE.match(line)
                if found is None:
                    raise ValueError(f"Expected '@attribute name type' in {path.name}, got {line[:60]!r}.")
                names.append(next(group for group in found.groups() if group is not None).replace("\\", ""))
        rows = [line.strip() for line in file if line.strip() and not line.startswith("%")]
    at = {name: column for column, name in enumerate(names)}
    missing = [name for name in labels if name.replace("\\", "") not in at]
    if missing or not rows:
        raise ValueError(
            f"Expected rows and every label of the XML file in {path.name}, missing {missing[:3]}."
        )
    chosen = [at[name.replace("\\", "")] for name in labels]
    others = np.setdiff1d(np.arange(len(names)), chosen)
    if rows[0].startswith("{"):
        table = _sparse(rows, len(names))
        return csr_array(table[:, others]), table[:, chosen].toarray().astype(np.uint8)
    table = np.array([row.split(",") for row in rows], dtype=np.float64)
    return table[:, others], table[:, chosen].astype(np.uint8)


def _sparse(rows: list[str], width: int) -> csr_array:
    def entries() -> Iterator[tuple[int, int, float]]:
        for at, row in enumerate(rows):
            for entry in row.strip("{} ").split(","):
                if entry:
                    column, value = entry.split()
                    yield at, int(column), float(value)

    at, column, value = zip(*entries(), strict=True)
    return csr_array((value, (at, column)), shape=(len(rows), width))
