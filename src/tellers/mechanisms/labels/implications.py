"""Implications between labels: what one label says of another, so that fewer of them have to be asked.

Two kinds, both public. Positive: where `cause` is present, so is `effect`. Negative: where `cause` is absent,
so is `effect` ("no A, hence no B"). Causes are asked before their effects; what follows is not asked.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import require_count
from ...release import SILENT

Integers = NDArray[np.int64]
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Implications:
    """Which label follows from which: pairs (cause, effect), of presence and of absence.

    A label may have several causes and several effects, and effects may be causes in turn, but no label may
    follow from itself: then nobody could say which to ask first. `names` are for messages and tables.

    >>> names = ("opacity", "consolidation", "pneumonia")
    >>> Implications(3, positive=((2, 1), (1, 0)), names=names).levels
    ((2,), (1,), (0,))
    >>> Implications(2, positive=((0, 1),), negative=((1, 0),), names=("opacity", "pneumonia"))
    Traceback (most recent call last):
        ...
    ValueError: Expected implications without a cycle, got: opacity -> pneumonia -> opacity. Leave out one ...
    """

    n_labels: int
    positive: Pairs = ()
    negative: Pairs = ()
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_count(n_labels=self.n_labels)
        if self.names and len(self.names) != self.n_labels:
            raise ValueError(f"Expected {self.n_labels} names of labels, got {len(self.names)}.")
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        for kind in ("positive", "negative"):
            object.__setattr__(self, kind, self._pairs(getattr(self, kind), kind))
        cycle = find_cycle(self.n_labels, (*self.positive, *self.negative))
        if cycle:
            shown = " -> ".join(self.name(label) for label in cycle)
            raise ValueError(
                f"Expected implications without a cycle, got: {shown}. Leave out one of these: causes are "
                "asked before their effects."
            )

    def _pairs(self, pairs: Any, kind: str) -> Pairs:
        found = []
        if not isinstance(pairs, Iterable):
            raise ValueError(
                f"Expected {kind} implications as a list of pairs (cause, effect), got {pairs!r}."
            )
        for pair in pairs:
            two = tuple(pair) if isinstance(pair, Iterable) else ()
            if len(two) != 2 or not all(self._is_label(label) for label in two) or two[0] == two[1]:
                raise ValueError(
                    f"Expected {kind} implications as pairs (cause, effect) of two labels in "
                    f"0..{self.n_labels - 1}, got {pair!r}."
                )
            found.append((int(two[0]), int(two[1])))
        return tuple(dict.fromkeys(found))

    def _is_label(self, label: Any) -> bool:
        whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
        return whole and 0 <= label < self.n_labels

    def name(self, label: int) -> str:
        """Return what a label is called.

        >>> Implications(2, names=("cat", "dog")).name(1), Implications(2).name(1)
        ('dog', 'label 1')
        """
        return self.names[label] if self.names else f"label {label}"

    @property
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Return the labels in the order of asking: first those that follow from none, then the next."""
        depth = [0] * self.n_labels
        for _ in range(self.n_labels):
            for cause, effect in (*self.positive, *self.negative):
                depth[effect] = max(depth[effect], depth[cause] + 1)
        return tuple(
            tuple(label for label in range(self.n_labels) if depth[label] == level)
            for level in range(max(depth) + 1)
        )

    def infer(self, labels: Integers, effects: Sequence[int]) -> Integers:
        """Return what follows for some labels from the others, (queries, effects); SILENT where nothing does.

        Where causes contradict each other the first declared one counts, positive ones before negative ones.

        >>> Implications(2, negative=((0, 1),)).infer(np.array([[0, -1], [1, -1]]), [1])
        array([[ 0],
               [-1]])
        """
        found = np.full((len(labels), len(effects)), SILENT, dtype=np.int64)
        for pairs, value in ((self.positive, 1), (self.negative, 0)):
            for cause, effect in pairs:
                if effect in effects:
                    column = found[:, list(effects).index(effect)]
                    column[(labels[:, cause] == value) & (column == SILENT)] = value
        return found


def find_cycle(n_labels: int, pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the labels of one cycle, its first one again at the end, or nothing where there is none.

    >>> find_cycle(3, [(0, 1), (1, 2), (2, 0)]), find_cycle(3, [(0, 1), (0, 2), (1, 2)])
    ((0, 1, 2, 0), ())
    """
    follows: dict[int, list[int]] = {label: [] for label in range(n_labels)}
    for cause, effect in pairs:
        follows[cause].append(effect)
    done: set[int] = set()
    for start in range(n_labels):
        path: list[int] = []
        ahead = [(start, iter(follows[start]))] if start not in done else []
        path += [start] if ahead else []
        while ahead:
            label, effects = ahead[-1]
            following = next(effects, None)
            if following is None:
                done.add(label)
                ahead.pop()
                path.pop()
            elif following in path:
                return (*path[path.index(following) :], following)
            elif following not in done:
                ahead.append((following, iter(follows[following])))
                path.append(following)
    return ()
