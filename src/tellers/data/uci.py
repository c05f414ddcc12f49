"""Two tables of the UCI repository: Adult and Diabetes 130-US hospitals, prepared as in the 2017 paper.

Words become integer codes. The codes are those of the published descriptions, never of the rows at hand.
"""

import csv
import io
from dataclasses import replace
from os import PathLike
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import require_count
from ._directory import PUBLISHED, read_file
from .dataset import Dataset
from .tables import encode

# The columns of Adult: no words for numbers, else the categories of adult.names.
_ADULT: dict[str, str] = PUBLISHED["adult"]
_INCOMES = ("<=50K", ">50K")

_DRUGS = PUBLISHED["diabetes130"]["drugs"].split()
_COUNTS = PUBLISHED["diabetes130"]["counts"].split()
_DOSES = "No Down Steady Up"
# The columns of Diabetes in which nothing is missing, less the two that name the visit and the patient; words
# in the order of their codes. Missing somewhere, hence left out: race, weight, payer_code, medical_specialty,
# diag_1, diag_2, diag_3.
_DIABETES: dict[str, str] = {
    "gender": "Female Male Unknown/Invalid",
    "age": " ".join(f"[{start}-{start + 10})" for start in range(0, 100, 10)),
    **dict.fromkeys(_COUNTS, ""),
    "max_glu_serum": "None Norm >200 >300",
    "A1Cresult": "None Norm >7 >8",
    **dict.fromkeys(_DRUGS, _DOSES),
    "change": "Ch No",
    "diabetesMed": "No Yes",
}
# Of the 101,766 published visits 11,357 were followed by another within 30 days.
_KEPT_OF_THE_REST = 11_357 / (101_766 - 11_357)


def adult(
    part: Literal["train", "test"] = "train",
    *,
    data_dir: str | PathLike[str] | None = None,
    missing: Literal["category", "drop"] = "category",
    verify: bool = True,
) -> Dataset:
    """Return UCI Adult, 32,561 or 16,281 persons of a census: is the income over 50,000 dollars?

    Categories become codes, in the order of their sorted names. A missing value, `?` in the file, is a
    category of its own, or its row is left out with `missing="drop"`. All 14 features are kept; the
    2017 paper counts 13 and does not say which.

    >>> adult("test", data_dir="nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a data directory at nowhere (data_dir), found none. Check the path.
    """
    if part not in ("train", "test"):
        raise ValueError(f"Expected part 'train' or 'test', got {part!r}.")
    if missing not in ("category", "drop"):
        raise ValueError(f"Expected missing='category' or 'drop', got {missing!r}.")
    name = f"adult/adult.{'data' if part == 'train' else 'test'}"
    text = read_file(name, data_dir=data_dir, verify=verify).decode("utf-8")
    # The test file opens with a comment and ends its labels with a full stop; both end in an empty line.
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("|")]
    rows = [[entry.strip() for entry in line.split(",")] for line in lines]
    _require_width(rows, len(_ADULT) + 1, name)
    if missing == "drop":
        rows = [row for row in rows if "?" not in row]
    *columns, incomes = zip(*rows)
    described = {column: sorted(["?", *words.split()]) if words else [] for column, words in _ADULT.items()}
    y = encode([income.rstrip(".") for income in incomes], _INCOMES, name="income")
    return Dataset(
        name=f"adult/{part}",
        X=_table(dict(zip(_ADULT, columns)), described),
        y=y,
        n_classes=2,
        class_names=_INCOMES,
        feature_names=tuple(_ADULT),
        notes=(_note("missing values"),) if missing == "drop" else (),
    )


def diabetes130(
    *,
    data_dir: str | PathLike[str] | None = None,
    balanced: bool = False,
    seed: int | np.random.Generator | None = None,
    verify: bool = True,
) -> Dataset:
    """Return UCI Diabetes 130-US hospitals, 101,766 visits: is the patient back within 30 days (class 0)?

    The 40 features are those without missing values. `persons` are the 71,518 patients: partition by them,
    or the guarantee covers one visit of a patient who may have forty.

    `balanced` keeps every visit of class 0 and each other one with the same public probability,
    11357 / 90409, by a coin of its own from `seed`; the classes come out about equal. Cutting one class to
    the exact size of the other would let a single visit decide whether somebody else's is kept.

    >>> diabetes130(data_dir="nowhere")
    Traceback (most recent call last):
        ...
    FileNotFoundError: Expected a data directory at nowhere (data_dir), found none. Check the path.
    """
    if balanced and seed is None:
        raise ValueError("Expected a seed for balanced=True, got none.")
    name = "diabetes130/diabetic_data.csv"
    text = read_file(name, data_dir=data_dir, verify=verify).decode("utf-8")
    header, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    wanted = [*_DIABETES, "patient_nbr", "readmitted"]
    absent = [column for column in wanted if column not in header]
    if absent:
        raise ValueError(f"Expected the columns of {name}, got none called {', '.join(absent)}.")
    _require_width(rows, len(header), name)
    columns = dict(zip(header, zip(*rows)))
    outcome = encode(columns["readmitted"], ("<30", ">30", "NO"), name="readmitted")
    data = Dataset(
        name="diabetes130",
        X=_table(columns, {column: words.split() for column, words in _DIABETES.items()}),
        y=np.minimum(outcome, 1),
        n_classes=2,
        class_names=("within 30 days", "later or never"),
        feature_names=tuple(_DIABETES),
        persons=np.array(columns["patient_nbr"]).astype(np.int64),
    )
    if not balanced:
        return data
    if not isinstance(seed, np.random.Generator):
        require_count(0, seed=seed if seed is not None else -1)
    coins = np.random.default_rng(seed).random(len(data))
    kept = data.take((data.y == 0) | (coins < _KEPT_OF_THE_REST))
    return replace(kept, notes=(_note("labels"),))


def _table(columns: dict[str, tuple[str, ...]], described: dict[str, list[str]]) -> NDArray[np.float64]:
    X = np.empty((len(next(iter(columns.values()))), len(described)))
    for j, (name, categories) in enumerate(described.items()):
        column = columns[name]
        try:
            X[:, j] = encode(column, categories, name=name) if categories else np.array(column, np.float64)
        except ValueError as error:
            if categories:
                raise
            raise ValueError(f"Expected numbers in {name!r}, got something else.") from error
    return X


def _note(what: str) -> str:
    # A row that comes or goes moves every later row up or down, and with it to another teacher.
    return (
        f"Rows were left out by their {what}: a partition of this table protects a row whose {what} stay as "
        "they are. Partition the whole table first, and leave rows out within each part, to protect more."
    )


def _require_width(rows: list[list[str]], n_columns: int, name: str) -> None:
    if not rows:
        raise ValueError(f"Expected rows in {name}, got none.")
    for number, row in enumerate(rows):
        if len(row) != n_columns:
            raise ValueError(
                f"Expected {n_columns} fields in every row of {name}, got {len(row)} in row {number}."
            )
