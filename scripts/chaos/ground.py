"""The ground of one round: votes, a budget, a ledger, keys, and a service over them."""

import json
import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from breaking import spoil
from witness import watch_votes

from tellers import Accountant, Budget, ConfidentGNMax, RdpCurve, Unit, Votes
from tellers.ledger import open_ledger
from tellers.service import read_settings
from tellers.service._keys import KeyStore
from tellers.service._server import serve
from tellers.teachers import VotedPool, save_votes
from tellers.testing._ports import free_port

DELTA = 1e-5
N_ROWS = 3  # rows in a question
N_QUESTIONS = 2000  # keys in one space, more than any round asks
# Labels are nearly all chance, about half of them silence: two draws under one key would seldom agree.
MECHANISM = ConfidentGNMax(sigma=100.0, threshold=35, sigma_threshold=60.0)
KNOWN = {"n_teachers": 250, "n_classes": 10}
PRICE = MECHANISM.price(Unit(), **KNOWN) * N_ROWS
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
    budget: Budget
    port: int
    spaces: tuple[Space, ...]
    broken: str

    @property
    def accountant(self) -> Accountant:
        return Accountant(self.budget)

    def open_ledger(self):
        return open_ledger(self.where, self.accountant)

    def account(self, space: Space) -> str | None:
        """Return the account of a space that has a budget of its own: the first of either kind."""
        firsts = {next((s for s in self.spaces if s.by_service == kind), None) for kind in (True, False)}
        if space not in firsts:
            return None
        return f"student/{space.student}" if space.by_service else "askers/direct"

    def space_of(self, row: int) -> tuple[Space, int]:
        """Return the space and the number of the question that a row belongs to."""
        number, n = divmod(row // N_ROWS, N_QUESTIONS)
        return self.spaces[number], n

    def token(self, space: Space) -> str:
        return json.loads((self.folder / "tokens.json").read_text())[str(space.number)]

    def pool(self) -> VotedPool:
        from tellers.teachers import read_votes

        return VotedPool(read_votes(self.folder.parent / "votes.npz", n_classes=10).votes)


def budget_for(n_questions: int) -> Budget:
    """Return a budget that pays for about so many questions at their full price."""
    return Budget(
        epsilon=round(RdpCurve(PRICE.orders, PRICE.values * n_questions).epsilon(DELTA), 4), delta=DELTA
    )


def write_votes(folder: Path, n_spaces: int, seed: int) -> None:
    """Write votes that nearly tie, on a pool with rows for every question there may be."""
    chance = np.random.default_rng(seed)
    counts = chance.multinomial(KNOWN["n_teachers"], [0.1] * 10, size=n_spaces * N_QUESTIONS * N_ROWS)
    save_votes(folder / "votes.npz", Votes.from_counts(counts, n_teachers=KNOWN["n_teachers"]))


def make_ground(
    folder: Path, where: str, *, n_askers: int, n_by_service: int, n_questions: int, broken: str
) -> Ground:
    """Make a ledger with its budget and accounts, keys, and the settings of a service."""
    folder.mkdir()
    spaces = tuple(Space(k, by_service=2 * k < n_by_service) for k in range((n_askers + 1) // 2))
    port = free_port()
    ground = Ground(folder, where, budget_for(n_questions), port, spaces, broken)
    (folder / "service.toml").write_text(
        _SETTINGS.format(
            sigma=MECHANISM.sigma, threshold=float(MECHANISM.threshold),
            sigma_threshold=MECHANISM.sigma_threshold, url=json.dumps(where),
            epsilon=ground.budget.epsilon, delta=DELTA, port=port,
        )
    )  # fmt: skip
    settings = read_settings(folder / "service.toml")
    store = KeyStore(settings.place(settings.keys.store))
    tokens = {s.number: store.create(s.student, "student")[0] for s in spaces if s.by_service}
    store.close()
    (folder / "tokens.json").write_text(json.dumps(tokens))
    with ground.open_ledger() as ledger:
        for space in spaces:
            name = ground.account(space)
            if name is not None:
                ledger.open_account(name, budget_for(max(2, n_questions // 20)))
    return ground


def serve_ground(ground: Ground, life: int) -> None:
    """Be the service, until somebody ends it; what it says goes to a file."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (ground.folder / "server.log").open("a", buffering=1) as log:
        sys.stderr = sys.stdout = log
        watch_votes(ground.folder, random.Random(f"server {life}"))
        spoil(ground.broken)
        serve(read_settings(ground.folder / "service.toml"), log_stream=log)
