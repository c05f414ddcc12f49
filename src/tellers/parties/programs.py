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
from numpy.typing import ArrayLike, NDArray

from ..errors import require_count, require_positive
from ..privacy.release import SILENT
from ._ring import Integers, fresh_mask, whole_table

Model = Literal["linear", "network", "forest"]
Task = Literal["single", "multi"]
Rule = Literal["argmax", "confident", "labels", "confident_labels"]

FORMAT: Final = 3  # A change of what a description means takes a new number.
ASKER: Final = 0  # The side that asks, and the only one that sees an outcome.
HELPER: Final = 1  # The side of the answerer, or of the guardian.

_FARTHEST: Final = 2**40  # So far from 0 a number of a decision may be: sums of it never wrap around.
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
    its limit; `confident` and `confident_labels` are silent where a noisy check on the counts does not reach
    its bar, and the answer is then opened to nobody. Where parties know different labels, `voters` says how
    many of those who answered know each; a label that none of them knows is silent.

    Neither side can be held to its sum. So what is decided is void unless each count, with noise of its own,
    lies within `reach` of what so many parties can have voted. What is opened are codes that the asker put
    in.

    >>> program = DecisionProgram(rule="labels", n_outputs=3, batch=1, n_answerers=5, limits=(3, 3, 3))
    >>> [(slot.name, slot.owner) for slot in program.slots]
    [('shares', 0), ('codes', 0), ('range', 1), ('answer', 1)]
    """

    rule: Rule
    n_outputs: int
    batch: int
    n_answerers: int
    limits: tuple[int, ...] = ()
    bar: tuple[int, ...] = ()
    voters: tuple[int, ...] = ()
    reach: int = 0

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
        require_count(0, reach=self.reach)
        whole = (*self.limits, *self.bar, self.reach, self.n_answerers)
        if any(abs(limit) >= _FARTHEST for limit in whole):
            raise ValueError("Expected whole numbers below 2^40 in a decision, got a larger one.")
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
        return self.rule in ("confident", "confident_labels")

    @property
    def tally_shape(self) -> tuple[int, ...]:
        """Return the shape of the counts: queries x outputs."""
        return (self.batch, self.n_outputs)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Return the shape of the outcome: a code per query, or per query and label."""
        return (self.batch, self.n_outputs if self.is_multilabel else 1)

    @property
    def n_codes(self) -> int:
        """Return how many codes a row has: one per class or two per label, more where it may be silent."""
        if self.is_multilabel:
            return self.n_outputs * (3 if self.is_confident else 2)
        return self.n_outputs + self.is_confident

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Return all private inputs, in the order in which the circuit takes them."""
        shapes = {"range": self.tally_shape, "answer": self.tally_shape}
        shapes |= {"check": self.tally_shape} if self.is_confident else {}
        shapes |= {"check_against": self.tally_shape} if self.rule == "confident_labels" else {}
        return (
            Slot("shares", self.tally_shape, ASKER),
            Slot("codes", (self.batch, self.n_codes), ASKER),
            *(Slot(name, shape, HELPER) for name, shape in shapes.items()),
        )

    @property
    def totals(self) -> Integers:
        """Return how many parties vote on each output."""
        return np.array(self.voters or (self.n_answerers,) * self.n_outputs, dtype=np.int64)

    @property
    def tie_scale(self) -> int:
        """Return by how much sums are multiplied, so that ranks that break ties fit below one vote."""
        return 1 if self.is_multilabel else 2 ** int(np.ceil(np.log2(self.n_outputs)))

    def fresh_codes(self) -> Integers:
        """Return codes for one run, from the operating system: what is opened is made of them.

        Guarantee: whoever changes the other side's share of the outcome, and does not know the codes, makes
                   of it what `decode` takes with a chance of at most (n_outputs + 2) / 2^64 per number.
        Reference: a one-time code per outcome, as in the one-time MAC of Wegman and Carter.
        """
        return fresh_mask((self.batch, self.n_codes))

    def asker_inputs(self, shares: ArrayLike, codes: ArrayLike) -> dict[str, Integers]:
        """Return the asker's private inputs: the sum of what the vote programs gave it, and codes.

        >>> program = DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=5)
        >>> program.asker_inputs([[3, -4]], [[11, 12]])
        {'shares': array([[ 3, -4]]), 'codes': array([[11, 12]])}
        """
        return {
            "shares": whole_table(shares, self.tally_shape),
            "codes": whole_table(codes, (self.batch, self.n_codes)),
        }

    def guardian_inputs(
        self,
        masks: ArrayLike,
        *,
        answer_noise: ArrayLike,
        range_noise: ArrayLike,
        ranks: ArrayLike | None = None,
        check_noise: ArrayLike | None = None,
    ) -> dict[str, Integers]:
        """Return the guardian's private inputs: the sum of masks with noise, ties and bars folded in.

        Noise is queries x outputs, in votes; `range_noise` is that of the ranges. `ranks` holds for each
        query a uniformly random permutation of 0 .. n_outputs - 1: of classes with equal noisy counts the one
        of highest rank leads. `check_noise` has one number per query and label for `confident_labels`, and
        one per query, in a column, for `confident`.

        >>> program = DecisionProgram(rule="argmax", n_outputs=2, batch=1, n_answerers=5)
        >>> drawn = {"answer_noise": [[1, -2]], "range_noise": [[0, 9]], "ranks": [[0, 1]]}
        >>> program.guardian_inputs([[0, 7]], **drawn)
        {'range': array([[ 0, 16]]), 'answer': array([[ 2, 11]])}
        """
        shape = self.tally_shape
        held, noise = whole_table(masks, shape), whole_table(answer_noise, shape)
        with np.errstate(over="ignore"):
            ranges = {"range": held + whole_table(range_noise, shape)}
            answer, checks = held + noise, self._checks(held, check_noise)
            if self.is_multilabel:
                return {**ranges, "answer": answer, **checks}
            if ranks is None:
                raise ValueError("Expected ranks that break ties for an arg max, got none.")
            order = whole_table(ranks, shape)
            if not np.array_equal(np.sort(order, axis=1), np.tile(np.arange(shape[1]), (shape[0], 1))):
                raise ValueError("Expected each row of ranks to be a permutation of 0 .. n_outputs - 1.")
            return {**ranges, "answer": answer * self.tie_scale + order, **checks}

    def _checks(self, held: Integers, noise: ArrayLike | None) -> dict[str, Integers]:
        if not self.is_confident:
            if noise is not None:
                raise ValueError(f"Expected no check_noise for rule {self.rule!r}, got some.")
            return {}
        if noise is None:
            raise ValueError(f"Expected check_noise for rule {self.rule!r}, got none.")
        if self.rule == "confident":
            return {"check": held + whole_table(noise, (self.batch, 1))}
        drawn = whole_table(noise, self.tally_shape)
        return {"check": held + drawn, "check_against": self.totals - held + drawn}

    def decode(self, outcome: ArrayLike, codes: ArrayLike) -> tuple[Integers, NDArray[np.bool_]]:
        """Return labels from what was opened, and which are void; SILENT is -1, and what is void is silent.

        >>> program = DecisionProgram(rule="argmax", n_outputs=3, batch=2, n_answerers=5)
        >>> program.decode([[22], [0]], [[21, 22, 23], [31, 32, 33]])
        (array([ 1, -1]), array([False,  True]))
        """
        opened = whole_table(outcome, self.output_shape)
        keys = whole_table(codes, (self.batch, self.n_codes)).reshape(*self.output_shape, -1)
        with np.errstate(over="ignore"):
            # Of labels: no, yes; or silent, no, yes. Of classes each has a code, to which that of silence is
            # added where there is one.
            if self.is_multilabel:
                known = np.cumsum(keys, axis=2)
            elif self.is_confident:
                known = np.concatenate([keys[..., -1:], keys[..., :-1] + keys[..., -1:]], axis=2)
            else:
                known = keys
        told = opened[..., None] == known
        void = opened == 0
        if (told.sum(axis=2) + void != 1).any():
            raise ValueError(
                "Expected an outcome of this asker's codes, got others: the guardian's share was changed."
            )
        place = np.where(void, SILENT, told.argmax(axis=2) - self.is_confident)
        if not self.is_multilabel:
            return place[:, 0].astype(np.int64), void[:, 0]
        return np.where(self.totals > 0, place, SILENT).astype(np.int64), void & (self.totals > 0)


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
