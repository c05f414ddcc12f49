"""Public programs: what two parties compute together, described so that both can check it is the same.

A program holds shapes and limits and nothing private. `digest` is the SHA-256 of its canonical description:
two parties whose digests differ do not start. All arithmetic is on integers modulo 2^64. Nothing is rounded
inside a program: inputs and models are rounded once, before it, so that its outcome can be computed again in
the clear, bit for bit.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from ..errors import require_count, require_positive
from ..privacy.release import SILENT
from ._ring import Integers, whole_table

Model = Literal["linear", "network", "forest"]
Task = Literal["single", "multi"]
Rule = Literal["argmax", "labels", "confident_labels"]

FORMAT: Final = 2  # A change of what a description means takes a new number.
ASKER: Final = 0  # The side that asks, and the only one that sees an outcome.
HELPER: Final = 1  # The side of the answerer, or of the guardian.

_LARGEST = {"batch": 4096, "n_features": 65536, "n_outputs": 1024, "n_trees": 64, "depth": 10}


@dataclass(frozen=True)
class Slot:
    """One private input of a program: its name, its shape and the side that supplies it."""

    name: str
    shape: tuple[int, ...]
    owner: int


@dataclass(frozen=True)
class VoteProgram:
    """An answerer's vote on the asker's inputs, less the answerer's mask; asker and answerer compute it.

    The asker supplies inputs, the answerer a model and a mask that is uniform on the integers modulo 2^64.
    The asker sees vote minus mask, which is uniform; the answerer sees nothing. A vote is one-hot over the
    classes (`single`) or says yes or no to every label (`multi`), at most `max_labels` times yes: of more,
    the first in the order of the labels stay, as for `few_labels` ballots. With `abstaining` a vote for one
    class is all zeros where no score reaches a limit that the answerer keeps to itself.
    """

    model: Model
    task: Task
    n_features: int
    n_outputs: int
    batch: int
    hidden: tuple[int, ...] = ()
    n_trees: int = 0
    depth: int = 0
    max_labels: int | None = None
    input_bits: int = 16
    input_bound: float = 1.0
    abstaining: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        object.__setattr__(self, "input_bound", float(self.input_bound))
        require_count(n_features=self.n_features, n_outputs=self.n_outputs, batch=self.batch)
        require_positive(input_bound=self.input_bound)
        _require_known(self, model=Model, task=Task)
        if self.task == "single" and self.n_outputs < 2:
            raise ValueError(f"Expected at least two classes, got n_outputs={self.n_outputs}.")
        if (self.model == "network") != bool(self.hidden) or len(self.hidden) > 3:
            raise ValueError(
                f"Expected one to three hidden layers for a network and none else, got {self.hidden}."
            )
        for width in self.hidden:
            require_count(hidden=width)
        is_forest = self.model == "forest"
        if is_forest != (self.n_trees > 0) or is_forest != (self.depth > 0):
            raise ValueError("Expected n_trees and depth for a forest, and only for a forest.")
        if self.max_labels is not None:
            require_count(max_labels=self.max_labels)
            if self.task == "single":
                raise ValueError("Expected max_labels for many labels only: one class has one label already.")
        if self.abstaining and self.task == "multi":
            raise ValueError(
                "Expected abstaining where a vote is for one class; of labels say which it knows."
            )
        if not 1 <= self.input_bits <= 24 or self.largest_input >= 2**40:
            raise ValueError(
                f"Expected 1 to 24 input_bits and inputs below 2^40 units, got input_bits={self.input_bits} "
                f"with input_bound={self.input_bound}."
            )

    @property
    def largest_input(self) -> int:
        """Return the largest absolute value of an encoded input."""
        return int(np.ceil(self.input_bound * 2**self.input_bits))

    @property
    def n_decisions(self) -> int:
        """Return the number of inner nodes of all trees."""
        return self.n_trees * ((1 << self.depth) - 1)

    @property
    def n_leaves(self) -> int:
        return self.n_trees * (1 << self.depth)

    @property
    def has_least(self) -> bool:
        """Return whether scores are held against a limit; one tree's leaves say which class, or none."""
        return self.abstaining and not (self.model == "forest" and self.n_trees == 1)

    @property
    def widths(self) -> tuple[int, ...]:
        """Return the widths of a network's layers, inputs and outputs included."""
        return (self.n_features, *self.hidden, self.n_outputs)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (self.batch, self.n_outputs)

    @property
    def model_slots(self) -> tuple[Slot, ...]:
        """Return the inputs that make up the answerer's model; they are the same for every batch."""
        if self.model == "forest":
            shapes = {
                "features": (self.n_features, self.n_decisions),
                "limits": (self.n_decisions,),
                "leaves": (self.n_leaves, self.n_outputs),
                "offsets": (self.n_outputs,),
            }
        else:
            shapes = {}
            for layer, (above, below) in enumerate(zip(self.widths, self.widths[1:])):
                shapes |= {f"weights{layer}": (above, below), f"offsets{layer}": (below,)}
        shapes |= {"least": (1,)} if self.has_least else {}
        return tuple(Slot(name, shape, HELPER) for name, shape in shapes.items())

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Return all private inputs, in the order in which the circuit takes them."""
        asked = (Slot("x", (self.batch, self.n_features), ASKER), Slot("mask", self.output_shape, HELPER))
        return asked + self.model_slots

    def encode(self, X: ArrayLike) -> Integers:
        """Return inputs in units of 2^-input_bits, clipped to the public bound; private to the asker."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise ValueError(f"Expected rows of {self.n_features} features, got shape {rows.shape}.")
        if not np.isfinite(rows).all():
            raise ValueError("Expected finite inputs, got NaN or infinity. Fill in what is missing first.")
        units = np.rint(np.clip(rows, -self.input_bound, self.input_bound) * (1 << self.input_bits))
        return np.asarray(units, dtype=np.int64)


@dataclass(frozen=True)
class DecisionProgram:
    """The outcome of a query from the sums that asker and guardian hold; only the asker sees it.

    The asker's sum of masked votes and the guardian's sum of masks add up to the counts; the guardian adds
    its noise to its own. `argmax` tells the class that leads, `labels` every label whose noisy sum reaches
    its limit; `confident_labels` is silent where a noisy check on the counts does not reach its bar, and the
    answer is then opened to nobody. Where parties know different labels, `voters` says how many of those
    who answered know each; a label that none of them knows is silent.

    >>> program = DecisionProgram(rule="labels", n_outputs=3, batch=1, n_answerers=5, limits=(3, 3, 3))
    >>> [(slot.name, slot.owner) for slot in program.slots]
    [('shares', 0), ('answer', 1)]
    """

    rule: Rule
    n_outputs: int
    batch: int
    n_answerers: int
    limits: tuple[int, ...] = ()
    bar: tuple[int, ...] = ()
    voters: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("limits", "bar", "voters"):
            object.__setattr__(self, name, tuple(int(limit) for limit in getattr(self, name)))
        require_count(n_outputs=self.n_outputs, batch=self.batch, n_answerers=self.n_answerers)
        _require_known(self, rule=Rule)
        for name, wanted in (("limits", self.is_multilabel), ("bar", self.is_confident)):
            given = getattr(self, name)
            if len(given) != (self.n_outputs if wanted else 0):
                raise ValueError(
                    f"Expected {self.n_outputs if wanted else 0} numbers in {name} for rule {self.rule!r}, "
                    f"got {len(given)}."
                )
            if any(abs(limit) >= 2**40 for limit in given):
                raise ValueError(f"Expected whole numbers below 2^40 in {name}, got a larger one.")
        voters = self.voters
        if voters and (not self.is_multilabel or len(voters) != self.n_outputs):
            raise ValueError("Expected voters for each label of many labels, and for nothing else.")
        if any(not 0 <= n <= self.n_answerers for n in voters):
            raise ValueError(f"Expected from 0 to {self.n_answerers} voters of a label, got another number.")

    @property
    def is_multilabel(self) -> bool:
        """Return whether every label is decided by itself."""
        return self.rule in ("labels", "confident_labels")

    @property
    def is_confident(self) -> bool:
        """Return whether a check comes before the answer."""
        return self.rule == "confident_labels"

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Return the shape of the outcome: queries x outputs."""
        return (self.batch, self.n_outputs)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Return all private inputs, in the order in which the circuit takes them."""
        names = ["answer", *(["check", "check_against"] if self.is_confident else [])]
        return (
            Slot("shares", self.output_shape, ASKER),
            *(Slot(name, self.output_shape, HELPER) for name in names),
        )

    @property
    def totals(self) -> Integers:
        """Return how many parties vote on each output."""
        return np.array(self.voters or (self.n_answerers,) * self.n_outputs, dtype=np.int64)

    @property
    def tie_scale(self) -> int:
        """Return by how much sums are multiplied, so that ranks that break ties fit below one vote."""
        return 1 if self.is_multilabel else 2 ** int(np.ceil(np.log2(self.n_outputs)))

    def asker_inputs(self, shares: ArrayLike) -> dict[str, Integers]:
        """Return the asker's private input: the sum, modulo 2^64, of what the vote programs gave it.

        >>> program = DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=5)
        >>> program.asker_inputs([[3, -4]])
        {'shares': array([[ 3, -4]])}
        """
        return {"shares": whole_table(shares, self.output_shape)}

    def guardian_inputs(
        self,
        masks: ArrayLike,
        *,
        answer_noise: ArrayLike,
        ranks: ArrayLike | None = None,
        check_noise: ArrayLike | None = None,
    ) -> dict[str, Integers]:
        """Return the guardian's private inputs: the sum of masks with noise, ties and bars folded in.

        `answer_noise` is queries x outputs, in votes. `ranks` holds for each query a uniformly random
        permutation of 0 .. n_outputs - 1: of classes with equal noisy counts the one of highest rank leads.
        `check_noise` has one number per query and label, for `confident_labels`.

        >>> program = DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=5)
        >>> program.guardian_inputs([[0, 7]], answer_noise=[[1, -2]], ranks=[[0, 1]])
        {'answer': array([[ 2, 11]])}
        """
        shape = self.output_shape
        held, noise = whole_table(masks, shape), whole_table(answer_noise, shape)
        with np.errstate(over="ignore"):
            answer = held + noise
            if self.is_multilabel:
                return {"answer": answer} | self._checks(held, check_noise)
            if ranks is None:
                raise ValueError("Expected ranks that break ties for an arg max, got none.")
            order = whole_table(ranks, shape)
            if not np.array_equal(np.sort(order, axis=1), np.tile(np.arange(shape[1]), (shape[0], 1))):
                raise ValueError("Expected each row of ranks to be a permutation of 0 .. n_outputs - 1.")
            return {"answer": answer * self.tie_scale + order} | self._checks(held, check_noise)

    def _checks(self, held: Integers, noise: ArrayLike | None) -> dict[str, Integers]:
        if not self.is_confident:
            if noise is not None:
                raise ValueError(f"Expected no check_noise for rule {self.rule!r}, got some.")
            return {}
        if noise is None:
            raise ValueError(f"Expected check_noise for rule {self.rule!r}, got none.")
        drawn = whole_table(noise, self.output_shape)
        return {"check": held + drawn, "check_against": self.totals - held + drawn}

    def decode(self, outcome: ArrayLike) -> Integers:
        """Return labels from what was opened: a class per query, or yes and no per label; SILENT is -1.

        >>> program = DecisionProgram(rule="argmax", n_outputs=3, batch=2, n_answerers=5)
        >>> program.decode([[0, 1, 0], [0, 0, 1]])
        array([1, 2])
        """
        opened = whole_table(outcome, self.output_shape)
        if opened.min(initial=0) < 0 or opened.max(initial=0) > (2 if self.is_confident else 1):
            raise ValueError(
                "Expected an outcome of small numbers, got others: the shares do not fit together."
            )
        if self.is_multilabel:
            told = opened if self.rule == "labels" else opened - 1  # 0 silent, 1 no, 2 yes
            return np.where(self.totals > 0, told, SILENT)
        if (opened.sum(axis=1) > 1).any():
            raise ValueError(
                "Expected at most one class per query, got more: the shares do not fit together."
            )
        return np.where(opened.any(axis=1), opened.argmax(axis=1), SILENT).astype(np.int64)


def _require_known(program: Any, **words: Any) -> None:
    """Refuse words that are not among those of their type, and sizes that no program has."""
    for name, kind in words.items():
        value, allowed = getattr(program, name), get_args(kind)
        if value not in allowed:
            raise ValueError(f"Expected {name} to be one of {', '.join(allowed)}, got {value!r}.")
    for name, largest in _LARGEST.items():
        size = getattr(program, name, 0)
        if size > largest:
            raise ValueError(f"Expected {name} of at most {largest}, got {name}={size}.")


Program = VoteProgram | DecisionProgram
_KINDS: dict[str, Callable[..., Program]] = {"vote": VoteProgram, "decision": DecisionProgram}


def describe_program(program: Program) -> dict[str, Any]:
    """Return a program as plain values, the form in which parties send and store it."""
    kind = "vote" if isinstance(program, VoteProgram) else "decision"
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(program).items()}
    return {"kind": kind, "format": FORMAT, **plain}


def read_program(description: Mapping[str, Any]) -> Program:
    """Return the program of a description, which may come from another party: everything is checked."""
    given = dict(description)
    kind, version = given.pop("kind", None), given.pop("format", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"Expected a program of kind {' or '.join(_KINDS)}, got another one.")
    if version != FORMAT:
        raise ValueError(
            f"Expected a program of format {FORMAT}, got another one. Use one version on all sides."
        )
    known = {f.name: f for f in fields(VoteProgram if kind == "vote" else DecisionProgram)}
    if set(given) != set(known):
        raise ValueError(f"Expected the fields {', '.join(sorted(known))} in a {kind} program, got others.")
    for name, value in given.items():
        _require_plain(name, value, like=known[name].type)
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return _KINDS[kind](**values)


def program_digest(program: Program) -> str:
    """Return the SHA-256 of a program's canonical description, in hexadecimal.

    >>> program = DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=5)
    >>> program_digest(program)[:8] == program_digest(read_program(describe_program(program)))[:8]
    True
    """
    text = json.dumps(describe_program(program), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(b"tellers program\0" + text.encode()).hexdigest()


def _require_plain(name: str, value: Any, *, like: Any) -> None:
    kind = str(like)
    if "tuple" in kind:
        fits = isinstance(value, list) and len(value) <= 1024 and all(type(v) is int for v in value)
    elif "float" in kind:
        fits = type(value) in (int, float)
    elif "int" in kind:
        fits = type(value) is int or (value is None and "None" in kind)
    else:
        fits = type(value) is bool if "bool" in kind else isinstance(value, str)
    if not fits:
        raise ValueError(f"Expected another kind of value for {name} in a program's description.")
