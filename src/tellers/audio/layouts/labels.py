"""Which labels of a large vocabulary are taken, and which clips then remain."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import require_count
from ..clips import READ_OFF
from ..ontology import Ontology
from .tables import left_out


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is wanted of labels: below which, not below which, how many at most, and with what they imply.

    >>> Choice(most=0)
    Traceback (most recent call last):
        ...
    ValueError: Expected a whole number most >= 1, got most=0.
    >>> Choice(parents=True)
    Traceback (most recent call last):
        ...
    ValueError: Expected an ontology where parents are to be added, got none.
    """

    ontology: Ontology | None = None
    keep: Iterable[str] | None = None
    remove: Iterable[str] = ()
    most: int | None = None
    parents: bool = False

    def __post_init__(self) -> None:
        if self.most is not None:
            require_count(most=self.most)
        if self.parents and self.ontology is None:
            raise ValueError("Expected an ontology where parents are to be added, got none.")
        object.__setattr__(self, "remove", tuple(self.remove))
        object.__setattr__(self, "keep", None if self.keep is None else tuple(self.keep))


def choose(
    labels: Sequence[set[str]], names: dict[str, str], choice: Choice
) -> tuple[list[bool], list[set[str]], tuple[str, ...], tuple[Any, ...]]:
    """Return which clips are left out, the labels of all, those of the task by id, and notes on the first.

    A clip is of the task if a label of the task remains to it; another one keeps its place, without labels.
    How many labels are too many is counted after labels were removed and, where asked for, parents added. A
    label that no clip carries stays in the task if it was asked for by `keep`, so that classes are what was
    declared; without `keep` the task is made of the labels that occur.

    >>> choose([{"/b"}, {"/m"}, {"/b", "/m"}], {"/b": "Bus", "/m": "Music"}, Choice(remove=["Music"]))
    ([False, True, False], [{'/b'}, set(), {'/b'}], ('/b',), ('1 clip left out: none of the labels', ...))
    """
    allowed = _allowed(names, choice)
    sets, n_none, n_many = list[set[str]](), 0, 0
    for carried in labels:
        found = carried if choice.ontology is None or not choice.parents else choice.ontology.imply(carried)
        found = found & allowed.keys()
        if not found:
            n_none += 1
        elif choice.most is not None and len(found) > choice.most:
            n_many, found = n_many + 1, set()
        sets.append(found)
    if not any(sets):
        raise ValueError("Expected clips that carry one of the labels, got none. Keep more labels.")
    occurring = set().union(*sets)
    chosen = tuple(label for label in allowed if choice.keep is not None or label in occurring)
    notes = left_out(n_none, "none of the labels") + left_out(n_many, f"more than {choice.most} labels")
    read_off = (READ_OFF,) if choice.keep is None else ()
    return [not found for found in sets], sets, chosen, notes + read_off


def _allowed(names: dict[str, str], choice: Choice) -> dict[str, None]:
    """Return the ids of the task in a fixed order, as a set that remembers it."""
    if choice.ontology is not None:
        chosen = choice.ontology.select(choice.keep, remove=choice.remove)
        # Implied parents may not be in the vocabulary; their names come from the ontology.
        for label in chosen:
            names.setdefault(label, choice.ontology.names[label])
        return dict.fromkeys(chosen)
    by_name = {name: label for label, name in names.items()}
    unknown = sorted(
        one for one in (*(choice.keep or ()), *choice.remove) if one not in names and one not in by_name
    )
    if unknown:
        raise ValueError(
            f"Expected labels of the data set, got {', '.join(unknown)}. For higher ones give an ontology."
        )
    kept = dict.fromkeys(
        by_name.get(one, one) for one in (sorted(names) if choice.keep is None else choice.keep)
    )
    for one in choice.remove:
        kept.pop(by_name.get(one, one), None)
    return kept
