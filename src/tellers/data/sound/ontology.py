"""The ontology of labels of AudioSet and FSD50K: what lies below a label, and what it implies.

A label can have several parents, so the tree is none in the strict sense; what is asked of it (below, above)
is meant along every path. The file is a list of records with `id`, `name` and `child_ids`.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any


@dataclass(frozen=True, repr=False)
class Ontology:
    """Names of labels by their id, and the ids right below each.

    >>> names = {"/h": "Human", "/m": "Music", "/c": "Choir", "/s": "Speech"}
    >>> tree = Ontology(names=names, children={"/h": ("/s", "/c"), "/m": ("/c",)})
    >>> tree, tree.roots, tree.find("choir")
    (Ontology(n_labels=4), ('/h', '/m'), '/c')
    >>> tree.below("Human"), tree.above("/c"), sorted(tree.imply({"/s"}))
    (('/h', '/s', '/c'), ('/h', '/m'), ['/h', '/s'])
    >>> tree.select(["Human"], remove=["Music"])
    ('/h', '/s')
    """

    names: dict[str, str]
    children: dict[str, tuple[str, ...]]
    parents: dict[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        parents: dict[str, list[str]] = {label: [] for label in self.names}
        for parent, below in self.children.items():
            for child in below:
                if child not in self.names or parent not in self.names:
                    raise ValueError(
                        f"Expected every child in the ontology to be in it, got {child!r} below {parent!r}."
                    )
                parents[child].append(parent)
        object.__setattr__(self, "parents", {label: tuple(found) for label, found in parents.items()})

    @property
    def roots(self) -> tuple[str, ...]:
        """Return the ids that lie below no other."""
        return tuple(label for label, above in self.parents.items() if not above)

    def find(self, label: str) -> str:
        """Return the id of a label, given as id or as name."""
        if label in self.names:
            return label
        found = [known for known, name in self.names.items() if name.casefold() == label.casefold()]
        if len(found) != 1:
            what = "none" if not found else f"{len(found)} of them"
            raise ValueError(
                f"Expected the id or the name of one label of the ontology, {label!r} is {what}."
            )
        return found[0]

    def below(self, label: str) -> tuple[str, ...]:
        """Return a label and all below it, each once, those nearest first."""
        return self._reach(self.find(label), self.children, itself=True)

    def above(self, label: str) -> tuple[str, ...]:
        """Return all labels above a label, each once, those nearest first."""
        return self._reach(self.find(label), self.parents, itself=False)

    def select(self, keep: Iterable[str] | None = None, *, remove: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the ids below the labels to keep (all labels by default) and not below those to remove.

        A label below both is removed: who takes music out wants no choir back because it is human, too.
        """
        kept = set(self.names) if keep is None else {x for label in keep for x in self.below(label)}
        kept -= {x for label in remove for x in self.below(label)}
        return tuple(label for label in self.names if label in kept)

    def imply(self, labels: Iterable[str]) -> set[str]:
        """Return labels with all that lie above them; a label that is not in the ontology stays as it is."""
        found = set(labels)
        for label in tuple(found):
            if label in self.names:
                found.update(self.above(label))
        return found

    def _reach(self, start: str, step: dict[str, tuple[str, ...]], *, itself: bool) -> tuple[str, ...]:
        seen, queue = {start: None}, [start]
        for label in queue:  # grows while it is walked
            for beyond in step.get(label, ()):
                if beyond not in seen:  # several ways lead to a label, and a circle would lead on for ever
                    seen[beyond] = None
                    queue.append(beyond)
        return tuple(seen) if itself else tuple(seen)[1:]

    def __repr__(self) -> str:
        return f"Ontology(n_labels={len(self.names)})"


def read_ontology(path: str | PathLike[str]) -> Ontology:
    """Read an ontology from its json file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "ontology.json"
    >>> vehicle = '{"id": "/v", "name": "Vehicle", "child_ids": ["/b"]}'
    >>> _ = file.write_text(f'[{vehicle}, {{"id": "/b", "name": "Bus", "child_ids": []}}]')
    >>> read_ontology(file).below("Vehicle")
    ('/v', '/b')
    """
    try:
        records: Any = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        names = {str(record["id"]): str(record["name"]) for record in records}
        children = {str(record["id"]): tuple(map(str, record.get("child_ids", ()))) for record in records}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"Expected a json list of labels with id, name and child_ids in {Path(path).name}, "
            f"got something else ({type(error).__name__}). Take the ontology.json of the data set."
        ) from None
    return Ontology(names=names, children=children)
