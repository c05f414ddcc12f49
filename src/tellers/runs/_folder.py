"""The folder of a run: its files, one run at a time, settings and data that stay, ledger and record."""

import hashlib
import json
import math
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..data.dataset import count_copies
from ..errors import BudgetExhausted, LedgerConflict
from ..ledger._chain import ChainedLedger
from ..ledger.base import require_no_groups
from ..ledger.memory import MemoryLedger
from ..ledger.opening import is_url, open_as_begun
from ..mechanisms.base import accountant_for, is_by_batch, price_of
from ..privacy._files import write_whole
from ..privacy._price import delta_of
from ..privacy._rows import KeptRows
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve
from ..privacy.sealed import Sealed
from ..privacy.votes import Unit
from ..students.fitting import STUDENT_KINDS
from ..teachers.ensemble import is_network
from ..teachers.partitions import RULE, assignment_key
from ..teachers.store import hold
from ._catalogue import make_model
from ._tables import Tables, digest, save_partition
from .personal.assignment import Assignment, plan_as_dict
from .result import PUBLICATION, write_json
from .settings.files import config_as_dict, read_config, with_absolute_paths, write_config
from .settings.mechanism import AUTO
from .settings.sections import RunConfig


class Place:
    """A file or a folder in that of a run; `{round}` stands for a round of teachers trained anew."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def __get__(self, folder: "RunFolder", _kind: type | None = None) -> Path:
        return folder.path.joinpath(*(name.format(round=folder.round) for name in self.names))


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it makes. Everything under `private` is as private as the data."""

    path: Path
    round: str = ""

    config = Place("config.toml")
    labels = Place("labels.npz")
    student = Place("student")  # the model and its card
    result = Place("result.json")
    plan = Place("plan.json")  # how groups take part, where people have budgets of their own
    publication = Place(PUBLICATION)  # what was published of the cost
    private = Place("private")
    identity = Place("private", "made_of.json")  # fingerprints of the data and the partition
    summary = Place("private", "summary.json")  # the private numbers
    record = Place("private", "record.json")  # what the operator alone may know
    training = Place("private", "training")  # students that are still being taught
    partition = Place("private", "{round}", "partition.npz")
    teachers = Place("private", "{round}", "teachers")
    votes = Place("private", "{round}", "votes.npz")
    test_votes = Place("private", "{round}", "test_votes.npz")

    def of_round(self, name: str) -> "RunFolder":
        """Return the folder as a round of teachers trained anew has it: teachers and votes of its own."""
        return replace(self, round=name)

    def lesson(self, settings: object) -> Path:
        """Return the folder of a student that is being taught by some settings; others have another."""
        return self.training / hashlib.sha256(repr(settings).encode()).hexdigest()[:16]

    @property
    def key(self) -> str:
        """Return the name of this run on its ledger, drawn once and kept: no two runs share a question."""
        place = self.path / "key.txt"
        if not place.exists():
            write_whole(place, secrets.token_hex(8).encode(), shared=True)
        return place.read_text()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make the folder and keep other runs out of it; the hold ends with the process, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        self.private.mkdir(exist_ok=True, mode=0o700)
        with hold(self.private / ".lock", place=self.path, who="another run"):
            yield


def publications_of(key: str) -> str:
    """Return what the keys begin with under which publications of a run are charged."""
    return f"{key}:publication/"


# Settings and data: those of the run that is there, or the first

# Settings of a run that was begun may become others where they decide nothing before.
_MAY_CHANGE = (
    "report.", "cluster.", "teachers.n_jobs", "teachers.timeout", "teachers.retries", "data.overlap",
)  # fmt: skip


def begin(folder: RunFolder, config: RunConfig, *, resume: bool) -> None:
    """Write the settings down, or see that they are the ones of the run that is there."""
    _books_at(config, folder)  # refused before anything is written down
    if not folder.config.exists():
        # A run that was killed at once left the private folder with its lock, and nothing in it.
        found = [*folder.path.iterdir(), *folder.private.iterdir()]
        others = sorted(e.name for e in found if e != folder.private and not e.name.startswith("."))
        if others:
            raise ValueError(
                f"Expected a new or empty folder at {folder.path}, got one that holds {others[0]}. "
                "Take another one (--out)."
            )
        require_one_question(config)
        write_whole(folder.config, write_config(with_absolute_paths(config)).encode(), shared=True)
        return
    if not resume:
        raise ValueError(
            f"Expected a new or empty folder at {folder.path}, got one that holds a run. "
            "Go on with it (--resume), or take another one (--out)."
        )
    given = with_absolute_paths(config)
    changed = unlike(read_config(folder.config), given)
    # A student that takes part decides what is asked, and how; one that only learns may be another one.
    free = _MAY_CHANGE if takes_part(config) else (*_MAY_CHANGE, "student.")
    if config.queries.after_fail == "full price":
        # Whether a batch failed is public, and what goes on after it is paid for.
        free = (*free, "queries.after_fail")
    fixed = [key for key in changed if not key.startswith(free)]
    if fixed:
        raise ValueError(
            f"Expected the settings that the run in {folder.path} was begun with, got others for "
            f"{', '.join(fixed)}. Put them back, or take another folder (--out)."
        )
    _sweep(folder)
    if changed:
        write_whole(folder.config, write_config(given).encode(), shared=True)


def require_one_question(config: RunConfig) -> None:
    """Refuse a budget that does not pay for the first question of all; groups have budgets of their own."""
    if config.personal.variant:
        return
    if config.mechanism.is_sum:
        _require_sum(config, public_counts(config)["n_teachers"], MemoryLedger(config.accountant()))
        return
    if knows_less(config):
        return  # `open_books` looks again, with the data at hand and before a teacher is trained
    first = config.first_mechanism()
    delta, rule, price = config.budget.delta, config.budget.rule, first_price(config, **public_counts(config))
    if can_pay(config, price):
        return
    # A budget is held at one order, so a little more than the price at its best order may be needed.
    needed = max(price.epsilon(delta - delta_of(price)), config.budget.epsilon)
    nothing = RdpCurve.zero()
    while math.isfinite(needed) and not accountant_for(
        first, Budget(needed, delta), rule, price=price
    ).affords(nothing, price):
        needed *= 1.01
    what = "One batch" if is_by_batch(first) else "One question"
    raise BudgetExhausted(
        f"{what} alone would go past the budget of epsilon {config.budget.epsilon:g}: it needs "
        f"{needed:.3g} at delta {delta:g}. Raise the budget, or the noise (sigma); more teachers bear more "
        "noise. Nothing was asked."
    )


def _require_sum(config: RunConfig, n_teachers: int, books: Any, *, key: str = "run") -> None:
    """Refuse a sum that a ledger does not pay for with its prior, but for what the run under `key` has."""
    from .sums import planned

    held, chosen = books.accountant, config.sum.asked()
    planned(held, books, planner=held, chosen=chosen, key=key, n_teachers=n_teachers)


def public_counts(config: RunConfig, tables: Tables | None = None) -> dict[str, int]:
    """Return how many teachers and classes there are, which prices may go by, as far as that is known."""
    known = {"n_teachers": config.partition.n_teachers or len(config.partition.sites)}
    if not config.labels.names:
        known["n_classes"] = len(config.data.classes) if tables is None else tables.n_outputs
    return {name: n for name, n in known.items() if n}


def first_price(config: RunConfig, **known: int) -> RdpCurve:
    """Return the price of the first question, the one that its room reserves: of a query, or of a batch."""
    first = config.first_mechanism()
    return price_of(first, Unit(), getattr(first, "n_queries", 1), **known)


def knows_less(config: RunConfig) -> bool:
    """Say whether the first price goes by a number of classes that the settings do not say."""
    first: Any = config.first_mechanism()
    asked = signature(first.batch_price if is_by_batch(first) else first.price).parameters
    return "n_classes" in asked and not (config.labels.names or config.data.classes)


def can_pay(config: RunConfig, price: RdpCurve) -> bool:
    """Say whether the budget pays for a price, or refuse one that its rule has no price of."""
    try:
        return config.accountant(price).affords(RdpCurve.zero(), price)
    except ValueError as error:
        name = type(config.build_mechanism()).__name__
        raise ValueError(
            f"{config.where('budget', 'rule')}: Expected a mechanism with a clock price for rule = "
            f'"{config.budget.rule}", got {name}. {error}'
        ) from error


def _sweep(folder: RunFolder) -> None:
    """Remove what a killed run was writing; nobody else is at work here, since the folder is held."""
    private = (*folder.private.glob(".*.tmp"), *folder.private.glob("without_*/.*.tmp"))
    for leftover in (*folder.path.glob(".*.tmp"), *private):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def unlike(one: RunConfig, other: RunConfig, *, but: tuple[str, ...] = ()) -> list[str]:
    """Return the names of settings that differ, but for those that begin with one of some words."""
    there, here = _flat(one), _flat(other)
    changed = sorted(key for key in {*there, *here} if there.get(key) != here.get(key))
    return [key for key in changed if not key.startswith(but)]


def _flat(config: RunConfig) -> dict[str, Any]:
    sections = {name: value for name, value in config_as_dict(config).items() if name != "seed"}
    flat = {f"{title}.{name}": value for title, one in sections.items() for name, value in one.items()}
    # What "auto" stands for may have been written out.
    return {**flat, "seed": config.seed, "partition.by": config.protects}


def require_same(folder: RunFolder, tables: Tables, assignment: Assignment, *, seed: int) -> None:
    """Write down what the run is made of, or refuse to go on with other rows or other budgets.

    The key by which units were seated is kept with it: it is derived from the seed of the settings.
    """
    if assignment.plan is not None:
        require_plan(folder, plan_as_dict(assignment.plan))
    parts = assignment.partition
    rows: Any = tables.private.X
    made_of = {
        "private": digest(rows.hashes if isinstance(rows, KeptRows) else rows, tables.private.y),
        "public": digest(tables.pool),
        "partition": digest(*parts),
    }
    seated = {"rule": RULE, "key": assignment_key(seed).hex(), "relation": parts.relation.as_dict()}
    if folder.identity.exists():
        there = json.loads(folder.identity.read_bytes())
        if "assignment" not in there and parts.unit not in ("one record", "one clip"):
            raise ValueError(
                f"Expected a run whose {parts.unit.removeprefix('one ')}s were seated by a keyed hash, got "
                f"an older one in {folder.path}. There one of them could move the others, and what it states "
                "is too small. It can be read but not gone on with: take another folder (--out)."
            )
        changed = [name for name in made_of if there.get(name) != made_of[name]]
        if changed:
            raise ValueError(
                f"Expected the data that the run in {folder.path} was begun with, got another "
                f"{' and another '.join(changed)} table. Teachers and releases belong to the data they were "
                "made of: take another folder (--out)."
            )
        return
    save_partition(folder.partition, assignment)
    write_json(folder.identity, {**made_of, "assignment": seated}, public=False)


def require_plan(folder: RunFolder, plan: dict[str, Any]) -> None:
    """Keep the plan of a run beside its settings, or see that it is the one of the run that is there."""
    record = json.loads(json.dumps(plan))
    if folder.plan.exists():
        if json.loads(folder.plan.read_bytes()) != record:
            raise ValueError(
                f"Expected the budgets that the run in {folder.path} was begun with, got others. People who "
                "agreed to something else since are another run: take another folder (--out)."
            )
        return
    write_json(folder.plan, record, public=True)


# Models: seen before teachers are trained and labels are paid for


def make_teacher(config: RunConfig, tables: Tables) -> Any:
    """Return one of the teachers before it is taught, or None where a sum has its own."""
    if config.teachers.model == AUTO:
        return None
    return make_model(config.teachers.model, config.teachers.parameters, **_shape(tables))


def make_student(config: RunConfig, tables: Tables) -> Any:
    """Return the student before it is taught, or None where a sum has its own.

    A network has an output for each of many labels.
    """
    if config.student.model == AUTO:
        return None
    model = make_model(config.student.model, config.student.parameters, **_shape(tables))
    if not (tables.many_labels and is_network(model)):
        return model
    from ..nn.classifier import TorchLabelClassifier

    return TorchLabelClassifier(model)


def require_able(config: RunConfig, tables: Tables) -> None:
    """Refuse a model that would fail only after teachers were trained and labels were paid for."""
    teacher = make_teacher(config, tables)
    if config.teachers.timeout and is_network(teacher):
        raise ValueError(
            f"{config.where('teachers', 'timeout')}: Expected no time limit for networks, which are trained "
            f"together, got {config.teachers.timeout:g} seconds. Leave it out."
        )
    model, name = make_student(config, tables), config.student.model
    if config.mechanism.is_sum:
        from .sums import require_models

        require_models(teacher, model, one_class=not tables.many_labels)
        config.sum.asked().declared(tables.n_outputs)
        return
    STUDENT_KINDS[config.student.kind].require(model)
    if hasattr(model, "require_fit"):
        model.require_fit(tables.pool.shape, n_labels=tables.n_outputs)
    speaks = hasattr(model, "predict_proba")
    if config.mechanism.hears_student and not speaks:
        raise ValueError(
            f"{config.where('student', 'model')}: Expected a student with predict_proba for interactive "
            f"voting, which asks how sure it is, got {name!r}. Take another one."
        )
    if config.queries.order == "active" and not (speaks or hasattr(model, "decision_function")):
        raise ValueError(
            f"{config.where('student', 'model')}: Expected a student that can say how sure it is for the "
            f"active order, got {name!r}. Take one with predict_proba or decision_function."
        )


def takes_part(config: RunConfig) -> bool:
    """Say whether the student takes part in the asking: it chooses the questions, or is asked first."""
    return config.queries.order == "active" or config.mechanism.hears_student


def _shape(tables: Tables) -> dict[str, Any]:
    """Return what a network is told of the rows: how many outputs, and the shape of images."""
    return {"n_classes": tables.n_outputs, "image_shape": tables.private.image_shape}


# The ledger


def open_books(
    config: RunConfig,
    folder: RunFolder,
    assignment: Assignment | None = None,
    *,
    known: Mapping[str, int] | None = None,
) -> ChainedLedger:
    """Open the ledger of a run, or begin it, and see that it, and every group, can pay for one question.

    `known` are the numbers of teachers and classes that its price may go by; without them those of the
    settings.
    """
    place = _books_at(config, folder)
    inside = isinstance(place, Path) and place.resolve().parent == folder.path.resolve()
    if config.budget.stop == "private" and not inside:
        raise ValueError(
            f"{config.where('budget', 'ledger')}: Expected a ledger in the folder of the run with stop = "
            '"private", got one elsewhere. How many queries it holds then depends on votes, and nobody else '
            "may count on it."
        )
    counts = known or public_counts(config)
    # A clock begins with terms for the queries that it is to pay for.
    by_price = config.budget.rule == "clock" and not config.mechanism.is_sum
    asked = first_price(config, **counts) if by_price else None
    ledger = open_as_begun(place, config.accountant(asked))
    try:
        accountant = _fitting(ledger, config)
        if assignment is not None and assignment.plan is not None:
            from ._groups import open_groups

            open_groups(ledger, config, assignment, key=folder.key)
            return ledger
        if assignment is not None:
            require_no_groups(ledger)
        if config.mechanism.is_sum:
            _require_sum(config, counts["n_teachers"], ledger, key=folder.key)
        elif ledger.asked(f"{folder.key}/0") is None:
            price = first_price(config, **counts)
            can_pay(config, price)
            accountant.require(ledger.spent, price, key=f"{folder.key}/0")
    except LedgerConflict as error:
        ledger.close()
        raise ValueError(f"{config.where('budget', 'ledger')}: {error} Or take another ledger.") from error
    except BaseException:
        ledger.close()
        raise
    return ledger


def require_left(config: RunConfig, folder: RunFolder, *, ledger: str) -> None:
    """Begin a ledger that others may use too, or refuse one with another budget, or with too little left.

    This is before anything is written down in the folder: what is refused may be put right there.
    """
    _books_at(config, folder)
    require_one_question(config)
    if config.personal.variant:
        return
    if knows_less(config):
        return
    price = first_price(config, **public_counts(config))
    with open_as_begun(ledger, config.accountant(price)) as books:
        _fitting(books, config).require(books.spent, price, key="the first of this student")


def _fitting(ledger: ChainedLedger, config: RunConfig) -> Accountant:
    """Return the arithmetic of a ledger, or refuse one that does not suit the mechanism."""
    first: Any = config.first_mechanism()
    if hasattr(first, "require_accountant"):
        first.require_accountant(ledger.accountant)
    return ledger.accountant


def _books_at(config: RunConfig, folder: RunFolder) -> str | Path:
    """Return the address of the ledger, or its file; an address is copied where everybody may read it."""
    written = config.budget.ledger
    if not is_url(written):
        return folder.path / written
    if urlsplit(written).password:
        raise ValueError(
            f"{config.where('budget', 'ledger')}: Expected the address of a database without a password, "
            "which would stand in everything the run writes. Put it into PGPASSWORD or ~/.pgpass."
        )
    return written


# The private record
#
# Whether teachers could learn, how many public rows are copies of private ones and which clips are alike are
# facts about private rows. A run neither prints nor returns them, and goes on whatever they are: they are
# written to one file in its private folder, which is there after every run. So that it is there says nothing.


def say_where(place: Path) -> str:
    """Return the line that tells the operator of the record, the same in every run."""
    return (
        "Teachers that could not learn, and public rows that are copies of private ones, are written to "
        f"{place}, whether there are any or not. It is as private as the rows."
    )


def keep_record(folder: RunFolder, **found: Any) -> None:
    """Write parts of the record down, and leave its other parts as they are."""
    there = json.loads(folder.record.read_bytes()) if folder.record.exists() else {}
    write_json(folder.record, {**there, **found}, public=False)


def keep_parts(folder: RunFolder, tables: Tables, assignment: Assignment) -> None:
    """Write down how many rows, and rows of a class or with a label, the teachers have."""
    y: Any = assignment.rows(tables.private.y)
    Y = y if tables.many_labels else np.eye(tables.n_outputs, dtype=np.int64)[y]
    keep_record(folder, parts=part_statistics(Y, list(assignment.partition)))


def part_statistics(Y: NDArray[Any], parts: Sequence[NDArray[np.int64]]) -> dict[str, Any]:
    """Return the fewest and the most that a teacher has: rows, rows with a label, and labels without one.

    Labels per row are a mean over the rows of all teachers. All of it is private.
    """
    each = np.array([Y[rows].sum(axis=0) for rows in parts])
    heard = np.concatenate(parts)
    return {
        "rows": _span([len(rows) for rows in parts]),
        "labels_per_row": float(Y[heard].sum(axis=1).mean()) if heard.size else 0.0,
        "with_a_label": _span(each),
        "without": _span((each == 0).sum(axis=1)),
    }


def _span(values: ArrayLike) -> tuple[int, int]:
    return int(np.min(values)), int(np.max(values))


def require_queries(config: RunConfig, what_for: str, advice: str) -> None:
    """Refuse a run of a Gaussian sum, of whose scores no file is kept."""
    if config.mechanism.is_sum:
        raise ValueError(
            f"Expected a run that asks query by query, {what_for}, got one of mechanism "
            f'"{config.mechanism.name}", whose scores are kept in no file. {advice}'
        )


def keep_troubles(folder: RunFolder, troubles: Sealed[dict[int, str]]) -> None:
    """Write down which teachers of a round voted by the rule, and why."""
    there: Mapping[str, Any] = {}
    if folder.record.exists():
        there = json.loads(folder.record.read_bytes()).get("teachers", {})
    now = {str(number): why for number, why in sorted(troubles.reveal().items())}
    # The first round is that of all teachers where none are trained anew.
    keep_record(folder, teachers={**there, folder.round or "first": now})


# Public rows that are copies of private ones

Warn = Callable[[str], object]


def check_overlap(config: RunConfig, tables: Tables, folder: RunFolder) -> None:
    """Count pool and test rows that are exact copies of private rows, for the record, or refuse them.

    What protects a private row does not protect its copy in a public table. The number looks at private rows:
    it is written to the private record of the run, beside what is known of alike clips, and told to nobody.
    A refusal, which the operator has to ask for, tells that there are some: one bit, and no number.
    """
    private = tables.private.X
    copies = {
        "pool": count_copies(tables.pool, private).reveal(),
        "test": 0 if tables.test is None else count_copies(tables.test.X, private).reveal(),
    }
    keep_record(folder, copies=copies, notes=list(tables.withheld))
    if config.data.overlap == "refuse" and any(copies.values()):
        raise ValueError(
            f"{config.where('data', 'overlap')}: Expected public rows that are none of the private ones, but "
            f"some of the pool or the test are copies of them; {folder.record} says how many. What is public "
            "is not protected, and labels of such rows say what the private ones were. Take them out of one "
            "of the two tables, unless rows with so few features are bound to meet. Or take overlap = "
            '"warn". That there are some is a fact about private rows: keep it to yourself.'
        )


def tell_units(tables: Tables, warn: Warn | None = None) -> None:
    """Warn where clips of one source were told to be dealt one by one; the card says the same."""
    for note in () if tables.private.places is None else tables.private.places.notes:
        if warn is None:
            warnings.warn(note, UserWarning, stacklevel=3)
        else:
            warn(note)
