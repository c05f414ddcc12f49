"""The ground of one round: votes, a budget, accounts, a ledger, keys, and a service over them."""

import json
import random
import signal
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from breaking import spoil
from witness import watch_votes

from tellers import Accountant, Budget, ConfidentGNMax, RdpCurve, Votes
from tellers.ledger import open_ledger
from tellers.ledger.base import open_group_accounts
from tellers.runs import Room
from tellers.runs.personal import Group, PersonalPlan, Weighting, plan_as_dict
from tellers.service import read_settings
from tellers.service._keys import KeyStore
from tellers.service._server import serve
from tellers.teachers import VotedPool, read_votes, save_votes
from tellers.testing._ports import free_port

DELTA = 1e-5
N_ROWS = 3  # rows in a question
N_QUESTIONS = 1500  # keys in one space, more than any round asks
N_TEACHERS, N_CLASSES = 50, 10
# Labels are nearly all chance, about half of them silence: two draws under one key would seldom agree.
MECHANISM = ConfidentGNMax(sigma=40.0, threshold=9.0, sigma_threshold=25.0)
WEIGHTS = {"low": 1, "high": 2}
RATE = 25
"""How often a minute the clerks' common key may ask."""

_SETTINGS = """\
[data]
source = "votes"
path = "../votes.npz"
n_classes = 10
[mechanism]
name = "confident"
sigma = {sigma}
threshold = {threshold}
sigma_threshold = {sigma_threshold}
[ledger]
url = {url}
epsilon = {epsilon!r}
delta = {delta!r}
[keys]
store = {keys}
[limits]
requests_per_minute = 0
[server]
port = {port}
log_level = "warning"
shutdown_seconds = 10
"""


@dataclass(frozen=True)
class Space:
    """A sequence of questions, each with a key of its own, that two askers share."""

    number: int
    by_service: bool

    @property
    def student(self) -> str:
        return f"student-{self.number}"

    def ids(self, n: int) -> list[int]:
        first = (self.number * N_QUESTIONS + n) * N_ROWS
        return list(range(first, first + N_ROWS))

    def key(self, n: int) -> str:
        """Return the key of a question as the ledger knows it."""
        return f"student/{self.student}/{n}" if self.by_service else f"direct/{self.number}/{n}"


@dataclass(frozen=True)
class Ground:
    """Where one round takes place."""

    folder: Path
    where: str
    keys: str
    budget: Budget
    port: int
    spaces: tuple[Space, ...]
    broken: str
    groups: tuple[Group, ...] = ()

    def open_ledger(self) -> Any:
        return open_ledger(self.where, Accountant(self.budget))

    def account(self, space: Space) -> str | None:
        """Return the account of a space that has a budget of its own: the first of either kind."""
        firsts = {next((s for s in self.spaces if s.by_service == kind), None) for kind in (True, False)}
        if space not in firsts:
            return None
        return f"student/{space.student}" if space.by_service else "askers/direct"

    def token(self, name: str) -> str:
        return json.loads((self.folder / "tokens.json").read_text())[name]

    def room(self, ledger: Any, source: Any) -> Room:
        votes = read_votes(self.folder.parent / "votes.npz", n_classes=N_CLASSES).votes
        return Room(
            VotedPool(votes), MECHANISM, ledger, source, plan=self.plan, exhausted_leave=bool(self.groups)
        )

    @cached_property
    def plan(self) -> PersonalPlan | None:
        return _plan(self.groups) if self.groups else None


def _plan(groups: tuple[Group, ...]) -> PersonalPlan:
    members = np.split(np.arange(N_TEACHERS), len(groups))
    return Weighting(groups, MECHANISM, N_TEACHERS, tuple(members), tuple(WEIGHTS.values()))


def _budget_for(price: RdpCurve, n_questions: float) -> Budget:
    """Return a budget that pays for about so many questions at their full price."""
    return Budget(
        epsilon=round(RdpCurve(price.orders, price.values * n_questions).epsilon(DELTA), 4), delta=DELTA
    )


def write_votes(folder: Path, n_spaces: int, seed: int) -> None:
    """Write ballots that nearly tie, on a pool with rows for every question there may be."""
    chance = np.random.default_rng(seed)
    n_rows = n_spaces * N_QUESTIONS * N_ROWS
    ballots = chance.integers(N_CLASSES, size=(N_TEACHERS, n_rows), dtype=np.int8)
    save_votes(folder / "votes.npz", Votes.from_ballots(ballots, n_classes=N_CLASSES))


def make_ground(
    folder: Path, where: str, keys: str, *, n_askers: int, n_by_service: int, n_questions: int, broken: str,
    with_groups: bool,
) -> Ground:  # fmt: skip
    """Make a ledger with its accounts, keys, the settings of a service, and facts for the judge."""
    spaces = tuple(Space(k, by_service=2 * k < n_by_service) for k in range((n_askers + 1) // 2))
    groups: tuple[Group, ...] = ()
    if with_groups:
        prices = _plan(tuple(Group(name, 1.0, 9) for name in WEIGHTS)).prices(N_ROWS, key="")
        price = RdpCurve.largest(prices.values())
        # The first to have used its budget leaves, and the others go on.
        share = {"low": 0.6, "high": 0.9}
        groups = tuple(
            Group(name, _budget_for(curve, share[name] * n_questions).epsilon, 9)
            for name, curve in prices.items()
        )
    else:
        votes = read_votes(folder.parent / "votes.npz", n_classes=N_CLASSES).votes
        price = Room(VotedPool(votes), MECHANISM, None, None).price(N_ROWS)  # type: ignore[arg-type]
    port = free_port()
    ground = Ground(folder, where, keys, _budget_for(price, n_questions), port, spaces, broken, groups)
    text = _SETTINGS.format(
        sigma=MECHANISM.sigma, threshold=MECHANISM.threshold, url=json.dumps(where), keys=json.dumps(keys),
        sigma_threshold=MECHANISM.sigma_threshold, epsilon=ground.budget.epsilon, delta=DELTA, port=port,
    )  # fmt: skip
    if ground.plan is not None:
        (folder / "plan.json").write_text(json.dumps(plan_as_dict(ground.plan)))
        text += '[personal]\nplan = "plan.json"\nleave = true\n'
    (folder / "service.toml").write_text(text)
    settings = read_settings(folder / "service.toml")
    store = KeyStore(settings.place(settings.keys.store))
    names = [*(s.student for s in spaces if s.by_service), "clerks"]
    tokens = {name: store.create(name, "student")[0] for name in names}
    store.close()
    (folder / "tokens.json").write_text(json.dumps(tokens))
    accounts = {group.account: Budget(group.epsilon, DELTA) for group in groups}
    with ground.open_ledger() as ledger:
        if groups:
            open_group_accounts(ledger, {group.name: Budget(group.epsilon, DELTA) for group in groups})
        for space in spaces:
            name = ground.account(space)
            if name is not None:
                accounts[name] = _budget_for(price, max(2, n_questions // 20))
                ledger.open_account(name, accounts[name])
    _write_facts(ground, accounts)
    return ground


def _write_facts(ground: Ground, accounts: dict[str, Budget]) -> None:
    """Write what the judge has to know: plain facts, and no prices."""
    facts = {
        "where": ground.where, "keys": ground.keys, "folder": str(ground.folder), "n_rows": N_ROWS,
        "n_questions": N_QUESTIONS, "budget": [ground.budget.epsilon, ground.budget.delta],
        "accounts": {name: [budget.epsilon, budget.delta] for name, budget in accounts.items()},
        "spaces": [
            {"key": space.key(0)[:-1], "account": ground.account(space)} for space in ground.spaces
        ],
        "mechanism": {
            "sigma": MECHANISM.sigma, "sigma_check": MECHANISM.sigma_threshold,
            "threshold": MECHANISM.threshold, "n_teachers": N_TEACHERS, "n_classes": N_CLASSES,
        },
        "groups": {f"group/{name}": [weight, N_TEACHERS // 2] for name, weight in WEIGHTS.items()}
        if ground.groups
        else {},
        "rate": [ground.token("clerks").split("_")[1], RATE],
    }  # fmt: skip
    (ground.folder / "facts.json").write_text(json.dumps(facts, indent=1))


def serve_ground(ground: Ground, life: int) -> None:
    """Be the service, until somebody ends it; what it says goes to a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (ground.folder / "server.log").open("a", buffering=1) as log:
        sys.stderr = sys.stdout = log
        watch_votes(ground.folder, random.Random(f"server {life}"))
        spoil(ground.broken)
        serve(read_settings(ground.folder / "service.toml"), log_stream=log)
