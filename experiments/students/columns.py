"""Adult as columns a linear model can read; whatever scales them is public."""

import numpy as np

NAMES = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
NUMBERS = ("age", "education-num", "capital-gain", "capital-loss", "hours-per-week")
# How many codes each has, one of them for a missing value: public, from the description of the data.
CODES = {"workclass": 9, "marital-status": 8, "occupation": 15, "relationship": 7, "race": 6, "sex": 3}
UNITED_STATES = 39


def column(X: np.ndarray, name: str) -> np.ndarray:
    """Return one of the 14 columns."""
    return X[:, NAMES.index(name)]


def columns_of(X: np.ndarray, public: np.ndarray, *, without: tuple[str, ...] = ()) -> np.ndarray:
    """Return numbers scaled by the mean and spread of public rows, and a column for every code.

    The census weight and the second form of the education are left out, and so is what `without` names.
    """
    columns = []
    for name in NUMBERS:
        if name in without:
            continue
        value, known = (
            np.log1p(column(rows, name)) if name.startswith("capital") else column(rows, name)
            for rows in (X, public)
        )
        scaled = (value - known.mean()) / known.std()
        columns.append(scaled)
        if name == "age":  # incomes rise and fall with it
            columns.append((scaled**2 - 1) / 1.5)
    for name, n_codes in CODES.items():
        if name not in without:
            columns += [(column(X, name) == code).astype(np.float64) for code in range(n_codes)]
    columns.append((column(X, "native-country") == UNITED_STATES).astype(np.float64))
    return np.column_stack(columns)
