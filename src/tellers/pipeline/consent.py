"""Who agreed to which budget: from a column, a file, or dealt at random, as the settings say."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..config import RunConfig
from ..datasets import Dataset
from ..datasets.tables import MISSING, read_columns
from ..personal import Consent, read_consent
from ..teachers.assignment import assignment_key, identities, positions


def budgets_from_file(path: Path, persons: ArrayLike, *, levels: bool) -> NDArray[Any]:
    """Return the budget, or with `levels` the level, of each row's person, by a CSV file of persons.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "consent.csv"
    ...     _ = path.write_text("person,level\\nann,low\\nbo,high\\n")
    ...     budgets_from_file(path, ["bo", "ann", "bo"], levels=True).tolist()
    ['high', 'low', 'high']
    """
    wanted, one = ("level", "a level") if levels else ("epsilon", "an epsilon")
    columns = read_columns(path)
    if "person" not in columns or wanted not in columns:
        why = "levels are declared" if levels else "no levels are declared"
        raise ValueError(
            f"{path.name}: Expected the columns person and {wanted}, as {why}, got {', '.join(columns)}."
        )
    agreed: dict[str, str] = {}
    for row, (person, said) in enumerate(zip(*(_words(columns[name]) for name in ("person", wanted)))):
        if person in MISSING or said in MISSING:
            raise ValueError(f"{path.name}: Expected a person and {one} in every row, none in row {row}.")
        if person in agreed:
            raise ValueError(f"{path.name}: Expected one row per person, got a second one in row {row}.")
        agreed[person] = said
    names = _words(np.asarray(persons))
    missing = [row for row, name in enumerate(names) if name not in agreed]
    if missing:
        raise ValueError(
            f"{path.name}: Expected {one} for every person, got none for the person of row "
            f"{missing[0]} of the data. Ask them, or leave their rows out."
        )
    entries = [agreed[name] for name in names]
    if levels:
        return np.array(entries)
    try:
        return np.array(entries, dtype=np.float64)
    except ValueError:
        raise ValueError(
            f"{path.name}: Expected numbers in epsilon, got words. Names need levels in [personal]."
        ) from None


def deal_levels(shares: dict[str, float], n_persons: int, *, seed: int) -> list[str]:
    """Return a level for each person, at random, each level as often as its share says, give or take one.

    >>> levels = deal_levels({"low": 0.25, "high": 0.75}, 8, seed=7)
    >>> levels.count("low"), levels.count("high")
    (2, 6)
    """
    ends = np.rint(np.cumsum(list(shares.values())) * n_persons).astype(int)
    counts = np.diff(ends, prepend=0)
    counts[-1] += n_persons - ends[-1]
    dealt = np.repeat(np.array(list(shares)), counts)
    # Another stream than that of the partition, which has the same seed.
    levels: list[str] = np.random.default_rng([int(seed), 1]).permutation(dealt).tolist()
    return levels


def read_agreed(config: RunConfig, data: Dataset) -> Consent:
    """Return who agreed to what among the private rows; persons are those of the partition.

    >>> from tellers.config import PersonalConfig
    >>> from tellers.datasets import digits
    >>> levels, shares = {"low": 0.7, "high": 1.4}, {"low": 0.5, "high": 0.5}
    >>> config = RunConfig(personal=PersonalConfig(variant="weighting", levels=levels, shares=shares))
    >>> read_agreed(config, digits())
    Consent(n_persons=1797, groups=('low', 'high'), delta=0.0001)
    """
    chosen = config.personal
    persons = data.persons if config.protects == "person" else None
    budgets: Any = data.budgets
    if chosen.shares:
        if persons is None:
            budgets = deal_levels(dict(chosen.shares), len(data), seed=config.seed)
        else:
            names = identities(persons, name="persons")
            drawn = positions(names, key=assignment_key(config.seed), purpose="level")
            ends = np.cumsum(list(chosen.shares.values()))[:-1]
            levels_of = list(chosen.shares)
            budgets = [levels_of[at] for at in np.searchsorted(ends, drawn, side="right")]
    if budgets is None:
        raise ValueError(f"Expected budgets in {data.name!r}, got none.")
    levels = dict(chosen.levels) or None
    if levels is not None:
        budgets = _words(np.asarray(budgets))
    try:
        return read_consent(
            budgets, delta=config.budget.delta, levels=levels, persons=persons, max_groups=chosen.max_groups
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config.where('personal', chosen.source)}: {error}") from error


def _words(column: NDArray[Any]) -> list[str]:
    """Return entries as text, 3.0 as 3: a file may have stored a name as a number."""
    entries = column.tolist()
    return [str(int(e)) if isinstance(e, float) and e.is_integer() else str(e) for e in entries]
