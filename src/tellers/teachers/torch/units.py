"""Units of work: the teachers that are trained, and kept on disk, together.

The batched engine trains a chunk of teachers at a time, the loop one. Which teachers share a unit depends on
their numbers alone, and a unit is trained as a whole or not at all: resumed or not, it is the same
arithmetic.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ...devices import find_device
from ...errors import MissingExtra, TeacherFailed
from ..fallback import NO_ROWS, unheard
from ..models import fingerprint, write_model
from ..training import end_with
from .batched import Tensors
from .batches import Recipe
from .classifier import TorchClassifier
from .descent import Lesson, train_alone, train_together
from .engines import Batched
from .networks import Shape, build_network

_ABOUT = "tellers"
_TROUBLES = "troubles"
LOST = "its loss was not a finite number"
SEEN = "classes seen"  # beside the weights; no name of a weight holds a blank


@dataclass(frozen=True, eq=False, repr=False)
class Unit:
    """All that some teachers are trained from; `parent` is the process that sent it to a worker, if any.

    >>> model, X, y = TorchClassifier("mlp"), np.zeros((2, 4)), np.array([0, 1])
    >>> Unit(range(3, 4), model, X, y, [2], [7], shape=(4,), n_classes=2, engine=None).file
    'teachers-00003-00003.safetensors'
    """

    numbers: range
    classifier: TorchClassifier
    X: NDArray[Any]
    y: NDArray[Any]
    sizes: Sequence[int]
    seeds: Sequence[int]
    shape: Shape
    n_classes: int
    engine: Batched | None
    folder: Path | None = None
    made_of: dict[str, Any] | None = None
    n_teachers: int = 0
    parent: int | None = None

    @property
    def file(self) -> str:
        """Return the name of the file that keeps these teachers."""
        return f"teachers-{self.numbers[0]:05d}-{self.numbers[-1]:05d}.safetensors"

    @property
    def answers(self) -> str:
        """Return what the outputs of the network are counted as: classes, or labels where y has many."""
        return "n_classes" if self.y.ndim == 1 else "n_labels"

    @property
    def about(self) -> dict[str, Any]:
        """Return what has to be known to use these teachers again; none of it comes from their rows."""
        made = self.classifier.get_params()
        # A function is not kept, and whoever loads them has devices of their own.
        named = made["network"] if isinstance(made["network"], str) else None
        return {
            "parameters": made | {"network": named, "device": "auto"}, "shape": list(self.shape),
            self.answers: self.n_classes, "n_teachers": self.n_teachers, "first": self.numbers[0],
            "engine": "loop" if self.engine is None else self.engine.name,
        }  # fmt: skip

    @property
    def recipe(self) -> Recipe:
        """Return how they are trained."""
        return self.classifier.recipe()


@dataclass(frozen=True, eq=False, repr=False)
class UnitOutcome:
    """The states (None where a worker put them on disk), or what ends the run.

    `troubles` says by number who could not learn, and why: such teachers have seen no class.
    """

    numbers: range
    states: Tensors | None = None
    troubles: dict[int, str] = field(default_factory=dict)
    stop: Exception | None = None


def describe_unit(unit: Unit, network: nn.Module, *, device: str, seed: int) -> dict[str, Any]:
    """Return what the manifest of some teachers says that they are made of.

    >>> model, X, y = TorchClassifier("mlp"), np.zeros((2, 4)), np.array([0, 1])
    >>> unit = Unit(range(1), model, X, y, [2], [7], shape=(4,), n_classes=2, engine=None)
    >>> describe_unit(unit, nn.Linear(4, 2), device="cpu", seed=7)["engine"]
    'loop'
    """
    described = TorchClassifier(**{**unit.classifier.get_params(), "device": device})
    # Who has which of the rows: the same rows may be dealt in another way.
    owners = np.repeat(unit.numbers, unit.sizes)
    versions = {"numpy": np.__version__, "torch": torch.__version__}
    shapes = {name: tuple(values.shape) for name, values in network.state_dict().items()}
    targets = np.stack([unit.y, owners]) if unit.y.ndim == 1 else np.column_stack([unit.y, owners])
    made = fingerprint(described, unit.X, targets, n_classes=unit.n_classes, seed=seed, versions=versions)
    made[unit.answers] = made.pop("n_classes")
    return {
        **made,
        # A function may make another network tomorrow under the same name.
        "network": hashlib.sha256(f"{network} {shapes}".encode()).hexdigest(),
        "engine": "loop" if unit.engine is None else unit.engine.name,
    }


def train_unit(unit: Unit) -> UnitOutcome:
    """Train some teachers and, where there is a folder, save them.

    Teachers of one unit share nothing but the arithmetic: one that cannot learn takes a row of zeros along,
    so that the others compute what they would beside any other rows, and is marked as having seen nothing.

    >>> X, y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    >>> unit = Unit(
    ...     range(2), TorchClassifier("mlp", epochs=1, batch_size=2, device="cpu"), X, y, sizes=[2, 2],
    ...     seeds=[7, 8], shape=(4,), n_classes=2, engine=Batched(),
    ... )
    >>> train_unit(unit).states[SEEN].tolist()
    [[True, True], [True, True]]
    """
    if unit.parent is not None:
        end_with(unit.parent)
    try:
        states, troubles = _learn(unit)
    except torch.OutOfMemoryError:
        what = "The device's memory is full. Take fewer teachers at a time: engine=Batched(chunk=...)."
        return UnitOutcome(unit.numbers, stop=MemoryError(what))
    except (MissingExtra, TeacherFailed) as error:
        return UnitOutcome(unit.numbers, stop=error)
    return _kept(unit, states, troubles)


def give_up_unit(unit: Unit, trouble: str) -> UnitOutcome:
    """Let the one teacher of a unit that could not be trained vote by the rule, and remember it.

    >>> model, X, y = TorchClassifier("mlp", device="cpu"), np.zeros((2, 4)), np.array([0, 1])
    >>> unit = Unit(range(3, 4), model, X, y, [2], [7], shape=(4,), n_classes=2, engine=None)
    >>> give_up_unit(unit, "its process died").troubles
    {3: 'its process died'}
    """
    return _kept(unit, _fresh(unit), {unit.numbers[0]: trouble})


def _kept(unit: Unit, states: Tensors, troubles: dict[int, str]) -> UnitOutcome:
    seen = _seen(unit)
    lost = [number - unit.numbers[0] for number in troubles]
    seen[lost] = False
    if lost:
        fresh = _fresh(unit)
        for name, values in states.items():
            values[lost] = fresh[name][lost].to(values)
    states = {**states, SEEN: seen.to(next(iter(states.values())).device)}
    if unit.folder is not None:
        try:
            content = pack_states(unit, states, troubles)
            write_model(unit.folder, unit.file, content=content, made_of=unit.made_of or {})
        except OSError as error:
            why = (
                f"Expected room to write teachers {unit.numbers[0]} to {unit.numbers[-1]} in {unit.folder}, "
                f"got: {error.strerror or error}. Finished teachers are kept. Make room and call again with "
                "the same arguments."
            )
            return UnitOutcome(unit.numbers, stop=OSError(error.errno or 0, why))
        if unit.parent is not None:
            return UnitOutcome(unit.numbers, troubles=troubles)
    return UnitOutcome(unit.numbers, states, troubles)


def _learn(unit: Unit) -> tuple[Tensors, dict[int, str]]:
    """Return the states of the teachers, and who of them could not learn."""
    device, first = find_device(unit.classifier.device), unit.numbers[0]
    lesson, troubles = _lesson(unit)
    networks = _networks(unit)
    with one_thread(device), unheard():
        if unit.engine is not None:
            try:
                learned = train_together(
                    networks, lesson, shape=unit.shape, device=device, options=unit.engine
                )
            except (torch.OutOfMemoryError, MissingExtra):
                raise
            except Exception as error:
                # Layers that are trained together do not look at values: no rows make them fail.
                raise TeacherFailed(
                    f"Expected networks that can be trained together, teachers {first} to "
                    f"{unit.numbers[-1]} could not be ({type(error).__name__}). Take engine='loop'."
                ) from None
        elif troubles:
            return _fresh(unit), troubles
        else:
            try:
                learned = train_alone(networks[0], lesson, device=device)
            except (torch.OutOfMemoryError, MissingExtra):
                raise
            except (Exception, SystemExit) as error:
                # What an error says may quote rows, so only its kind is passed on.
                return _fresh(unit), {first: type(error).__name__}
    return learned.states, dict.fromkeys((first + lost for lost in learned.lost), LOST) | troubles


def _lesson(unit: Unit) -> tuple[Lesson, dict[int, str]]:
    """Return what is to be learned, with a row of zeros for who has none, or none that can be used."""
    rows, targets, troubles, start = [], [], {}, 0
    for number, size in zip(unit.numbers, unit.sizes):
        part = slice(start, start + size)
        start += size
        try:
            if not size:
                raise ValueError(NO_ROWS)
            rows.append(unit.classifier.as_rows(unit.X[part], unit.shape))
            targets.append(unit.y[part])
        except ValueError as error:  # numbers that are too large for the network
            troubles[number] = NO_ROWS if not size else type(error).__name__
            rows.append(np.zeros((1, *unit.shape), dtype=np.float32))
            targets.append(np.zeros((1, *unit.y.shape[1:]), dtype=unit.y.dtype))
    sizes = [len(one) for one in rows]
    X, y = np.concatenate(rows), np.concatenate(targets)
    return Lesson(X, y, sizes, unit.seeds, unit.recipe), troubles


def _networks(unit: Unit) -> list[nn.Module]:
    return [
        build_network(unit.classifier.network, unit.shape, n_classes=unit.n_classes, seed=seed)
        for seed in unit.seeds
    ]


def _fresh(unit: Unit) -> Tensors:
    """Return the states of networks that learned nothing, stacked."""
    states = [network.state_dict() for network in _networks(unit)]
    return {name: torch.stack([one[name].detach() for one in states]) for name in states[0]}


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Compute on one thread of a CPU: sums change with the number of threads, and processes take the others.

    >>> with one_thread(torch.device("cpu")):
    ...     torch.get_num_threads()
    1
    """
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _seen(unit: Unit) -> torch.Tensor:
    """Return which classes each teacher has rows of: it votes for those. On labels it always votes."""
    if unit.y.ndim > 1:
        return torch.ones((len(unit.sizes), unit.n_classes), dtype=torch.bool)
    owners = np.repeat(np.arange(len(unit.sizes)), unit.sizes)
    seen = np.zeros((len(unit.sizes), unit.n_classes), dtype=np.bool_)
    seen[owners, unit.y] = True
    return torch.from_numpy(seen)


def pack_states(unit: Unit, states: Tensors, troubles: dict[int, str]) -> bytes:
    """Return the bytes of the file of a unit: states, what they are, and who of them could not learn.

    >>> model, X, y = TorchClassifier("mlp"), np.zeros((2, 4)), np.array([0, 1])
    >>> unit = Unit(range(1), model, X, y, [2], [7], shape=(4,), n_classes=2, engine=None)
    >>> read_troubles(pack_states(unit, {"weight": torch.ones(1, 3)}, {0: "ValueError"}))
    {0: 'ValueError'}
    """
    return dump_states(states, about=unit.about | ({_TROUBLES: troubles} if troubles else {}))


def dump_states(states: Tensors, *, about: dict[str, Any] | None = None) -> bytes:
    """Return states as the bytes of a safetensors file, with words about them.

    >>> load_states(dump_states({"weight": torch.ones(2, 3)}))["weight"].shape
    torch.Size([2, 3])
    """
    from safetensors.torch import save

    said = {} if about is None else {_ABOUT: json.dumps(about, default=_plain, sort_keys=True)}
    content: bytes = save({name: values.cpu().contiguous() for name, values in states.items()}, said or None)
    return content


def read_about(content: bytes) -> dict[str, Any]:
    """Return the words that a safetensors file of teachers holds about them.

    >>> read_about(dump_states({"weight": torch.ones(2, 3)}, about={"n_classes": 3}))
    {'n_classes': 3}
    """
    try:
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        about: dict[str, Any] = json.loads(header["__metadata__"][_ABOUT])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            "Expected networks that say what they are, got others. They can be used where they were trained; "
            "train them again, into another folder, to load them elsewhere."
        ) from error
    return about


def read_troubles(content: bytes) -> dict[int, str]:
    """Return who of the teachers of a file could not learn, and why; of an earlier version's, nobody.

    >>> read_troubles(dump_states({"weight": torch.ones(2, 3)}, about={"troubles": {4: "ValueError"}}))
    {4: 'ValueError'}
    """
    try:
        return {int(number): str(why) for number, why in read_about(content).get(_TROUBLES, {}).items()}
    except ValueError:
        return {}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def load_states(content: bytes, *, like: Tensors | None = None, n_teachers: int | None = None) -> Tensors:
    """Return the states of a safetensors file, refusing those of another network.

    >>> load_states(b"something else")
    Traceback (most recent call last):
        ...
    ValueError: Expected teachers saved as safetensors, got something else. Delete the file ...
    """
    from safetensors.torch import load

    try:
        states: Tensors = load(content)
    except Exception as error:
        raise ValueError(
            "Expected teachers saved as safetensors, got something else. Delete the file to train them again."
        ) from error
    if like is not None:
        wanted = {name: (n_teachers, *values.shape) for name, values in like.items()}
        if {name: tuple(values.shape) for name, values in states.items()} != wanted:
            raise ValueError(
                "Expected teachers of this network, got those of another. Delete the file to train again."
            )
    return states


def in_processes(units: Sequence[Unit], n_workers: int, *, parent: int) -> Iterator[UnitOutcome]:
    """Train units in worker processes, one thread each, and yield what comes of them as it comes.

    >>> list(in_processes([], 2, parent=0))
    []
    """
    import joblib

    tasks = (joblib.delayed(train_unit)(replace(unit, parent=parent)) for unit in units)
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        yield from joblib.Parallel(
            n_jobs=max(2, n_workers), return_as="generator_unordered", batch_size=1, max_nbytes=None
        )(tasks)
