"""The books of a fit: what it may spend, where that is written down, and the names of its questions."""

import hashlib
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..budget import Accountant, Budget
from ..ledger import Ledger, MemoryLedger, SqliteLedger
from ..ledger.groups import open_group_accounts, require_no_groups
from ..personal import Consent, PersonalPlan
from ..personal.record import plan_as_dict
from ..teachers.models import describe_estimator
from ..teachers.store import write_whole
from . import _inputs, _models

NO_LIMIT = 1e9  # without classes and pool there is no budget to keep, unless one was given
_DELTA = 1e-5


def agreed_delta(given: Budget | None, ledger: Any) -> float:
    """Return the delta of the budget that was given, or else of the ledger, or else the usual one."""
    known = given or _held(ledger)
    return _DELTA if known is None else known.delta


def agreed_budget(
    given: Budget | None, ledger: Any, *, unlimited: bool, consent: Consent | None, leave: bool
) -> Budget:
    """Return the budget that was given, or else that of the ledger, or else what everybody agreed to."""
    held = _held(ledger)
    if held is not None and given not in (None, held):
        raise ValueError(f"Expected the budget of the ledger, {held}, got {given}. Leave out one of the two.")
    most = 8.0
    if consent is not None:
        # Groups are held to their own budgets. While they leave one by one, the books as a whole add up what
        # some paid after others had left.
        epsilons = [group.epsilon for group in consent.groups]
        most = sum(epsilons) if leave else max(epsilons)
    return given or held or Budget(NO_LIMIT if unlimited else most, _DELTA)


def _held(ledger: Any) -> Budget | None:
    return getattr(getattr(ledger, "accountant", None), "budget", None)


@contextmanager
def open_books(
    ledger: Ledger | str | PathLike[str] | None,
    budget: Budget,
    *,
    allow_seeded: bool,
    consent: Consent | None,
) -> Iterator[Ledger]:
    """Open the ledger of a fit, with an account for every group of people."""
    if isinstance(ledger, (str, PathLike)):
        with SqliteLedger(ledger, Accountant(budget)) as opened:
            _open_groups(opened, consent)
            yield opened
        return
    books = MemoryLedger(Accountant(budget), allow_seeded=allow_seeded) if ledger is None else ledger
    _open_groups(books, consent)
    yield books


def _open_groups(ledger: Ledger, consent: Consent | None) -> None:
    if consent is None:
        require_no_groups(ledger)
    else:
        budgets = {group.name: Budget(group.epsilon, consent.delta) for group in consent.groups}
        open_group_accounts(ledger, budgets)


def identity(folder: str | PathLike[str] | None, random_state: Any) -> tuple[str, int]:
    """Return a name for the questions of a fit and its seed; a folder keeps both for the next one."""
    name, seed = f"fit-{secrets.token_hex(8)}", _inputs.seed_number(random_state)
    if folder is None:
        return name, seed
    place = Path(folder) / "fit.json"
    if place.exists():
        kept = json.loads(place.read_bytes())
        return kept["name"], kept["seed"] if random_state is None else seed
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(place, json.dumps({"name": name, "seed": seed}).encode())
    return name, seed


def question(fitted: Any, pool: NDArray[Any], *, plan: PersonalPlan | None, seed: int) -> str:
    """Return a fingerprint of all that decides which rows are asked, and how: public things alone."""
    asked = [repr(fitted.mechanism_), fitted.order, seed, pool.shape]
    if plan is not None:
        asked += [plan_as_dict(plan), fitted.exhausted_leave]
    warm_up = getattr(fitted, "warm_up", None)
    if fitted.order == "active" or warm_up is not None:
        student = describe_estimator(_models.model_or_default(fitted.student))
        asked += [student, repr(warm_up), fitted.first, fitted.per_round]
    digest = hashlib.sha256(json.dumps(asked).encode())
    digest.update(np.ascontiguousarray(pool, dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]
