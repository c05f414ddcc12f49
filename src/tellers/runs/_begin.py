"""The beginning of a run: settings, data and models are checked before anything is trained or paid."""

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import BudgetExhausted
from ..ledger._chain import ChainedLedger
from ..ledger.opening import is_url, open_ledger
from ..privacy._files import write_whole
from ..privacy._rows import KeptRows
from ..privacy.budget import Accountant, Budget
from ..privacy.rdp import RdpCurve
from ..privacy.votes import Unit
from ..students.fitting import weight_name
from ..teachers._assignment import RULE, assignment_key
from ..teachers.ensemble import is_network
from ._assignment import Electorate, open_groups, require_plan, save_partition
from ._catalogue import make_model
from ._folder import RunFolder
from ._tables import LabelTables, Tables, digest, model_shape
from .result import write_json
from .settings.files import config_as_dict, read_config, with_absolute_paths, write_config
from .settings.sections import RunConfig


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
    there, here = _flat(read_config(folder.config)), _flat(given)
    changed = sorted(key for key in {*there, *here} if there.get(key) != here.get(key))
    fixed = [key for key in changed if not _may_change(key, config)]
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
    first = config.warm_up() or config.build_mechanism()
    delta, price = config.budget.delta, first.price(Unit())
    if Accountant(Budget(config.budget.epsilon, delta)).affords(RdpCurve.zero(), price):
        return
    # A budget is held at one order, so a little more than the price at its best order may be needed.
    needed = price.epsilon(delta)
    while math.isfinite(needed) and not Accountant(Budget(needed, delta)).affords(RdpCurve.zero(), price):
        needed *= 1.01
    raise BudgetExhausted(
        f"One question alone would go past the budget of epsilon {config.budget.epsilon:g}: it needs "
        f"{needed:.3g} at delta {delta:g}. Raise the budget, or the noise (sigma); more teachers bear more "
        "noise. Nothing was asked."
    )


def _may_change(key: str, config: RunConfig) -> bool:
    """Say whether a setting of a run that was begun may become another one: it decides nothing before."""
    if key.startswith(("report.", "cluster.")) or key in (
        "teachers.n_jobs",
        "teachers.timeout",
        "teachers.retries",
    ):
        return True
    if key == "data.overlap":
        return True
    # A student that takes part decides what is asked, and how; one that only learns may be another one.
    return key.startswith("student.") and not takes_part(config)


def _sweep(folder: RunFolder) -> None:
    """Remove what a killed run was writing; nobody else is at work here, since the folder is held."""
    private = (*folder.private.glob(".*.tmp"), *folder.private.glob("without_*/.*.tmp"))
    for leftover in (*folder.path.glob(".*.tmp"), *private):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _flat(config: RunConfig) -> dict[str, Any]:
    flat = {}
    for name, value in config_as_dict(config).items():
        inner = (
            {f"{name}.{key}": entry for key, entry in value.items()}
            if isinstance(value, dict)
            else {name: value}
        )
        flat.update(inner)
    # What "auto" stands for may have been written out.
    return {**flat, "partition.by": config.protects}


def require_same(
    folder: RunFolder, tables: Tables | LabelTables, electorate: Electorate, *, seed: int
) -> None:
    """Write down what the run is made of, or refuse to go on with other rows or other budgets.

    The key by which units were seated is kept with it: it is derived from the seed of the settings.
    """
    require_plan(folder, electorate.plan)
    parts = electorate.partition
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
    save_partition(folder.partition, electorate)
    write_json(folder.identity, {**made_of, "assignment": seated}, public=False)


def make_teacher(config: RunConfig, tables: Tables | LabelTables) -> Any:
    """Return one of the teachers before it is taught."""
    return make_model(config.teachers.model, config.teachers.parameters, **model_shape(tables))


def make_student(config: RunConfig, tables: Tables | LabelTables) -> Any:
    """Return the student before it is taught; a network has an output for each of many labels."""
    model = make_model(config.student.model, config.student.parameters, **model_shape(tables))
    if not (isinstance(tables, LabelTables) and is_network(model)):
        return model
    from ..nn.classifier import TorchLabelClassifier

    return TorchLabelClassifier(model)


def require_able(config: RunConfig, tables: Tables | LabelTables) -> None:
    """Refuse a model that would fail only after teachers were trained and labels were paid for."""
    teacher = make_teacher(config, tables)
    if config.teachers.timeout and is_network(teacher):
        raise ValueError(
            f"{config.where('teachers', 'timeout')}: Expected no time limit for networks, which are trained "
            f"together, got {config.teachers.timeout:g} seconds. Leave it out."
        )
    model, name = make_student(config, tables), config.student.model
    if config.student.kind == "distilled":
        weight_name(model)
    if hasattr(model, "require_fit"):
        model.require_fit(tables.pool.shape, n_labels=model_shape(tables)["n_classes"])
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


def open_books(config: RunConfig, folder: RunFolder, electorate: Electorate | None = None) -> ChainedLedger:
    """Open the ledger of a run, or begin it, and see that it, and every group, can pay for one question."""
    place = _books_at(config, folder)
    inside = isinstance(place, Path) and place.resolve().parent == folder.path.resolve()
    if config.budget.stop == "private" and not inside:
        raise ValueError(
            f"{config.where('budget', 'ledger')}: Expected a ledger in the folder of the run with stop = "
            '"private", got one elsewhere. How many queries it holds then depends on votes, and nobody else '
            "may count on it."
        )
    accountant = Accountant(Budget(config.budget.epsilon, config.budget.delta))
    ledger = open_ledger(place, accountant)
    try:
        if electorate is not None:
            open_groups(ledger, config, electorate, key=folder.key)
        has_groups = electorate is not None and electorate.plan is not None
        if not has_groups and ledger.asked(f"{folder.key}/0") is None:
            first = config.warm_up() or config.build_mechanism()
            accountant.require(ledger.spent, first.price(Unit()), key=f"{folder.key}/0")
    except BaseException:
        ledger.close()
        raise
    return ledger


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


# The steps of a run

Show = Callable[[str, int, int], object]


@dataclass(eq=False)
class Steps:
    """The steps of a run as they go on; `show(step, done, total)` is told of each."""

    show: Show
    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Name a step while it goes on, and keep how long it took."""
        self.show(name, 0, 0)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)

    def progress(self, name: str) -> Callable[[int, int], object]:
        """Return what is told how far a step has come."""
        return lambda done, total: self.show(name, done, total)
