"""A service over made-up votes whose tallies are numbers that stand out, and ears that hear all it says."""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would like a successor of httpx
    from starlette.testclient import TestClient

from tellers import Accountant, Budget, GNMax, Votes
from tellers.accounting import exact_cost
from tellers.runs import MechanismConfig
from tellers.service import (
    LedgerConfig,
    LimitsConfig,
    ServedConfig,
    ServiceSettings,
    _keys,
    _routes,
    create_app,
)
from tellers.service._keys import KeyStore
from tellers.service._ledger import account_name, open_service_ledger
from tellers.service.dashboard import _pages
from tellers.teachers import save_votes

slow_hasher = _keys.hasher


@pytest.fixture(scope="session", autouse=True)
def _quick_hashes() -> Iterator[None]:
    """Keys are hashed as ever, but with little memory and once: what a guess costs is no test's but one's."""
    from argon2 import PasswordHasher

    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_keys, "hasher", lambda: quick)
        yield


@pytest.fixture(scope="session", autouse=True)
def _patient() -> Iterator[None]:
    """A verification, at its low priority on a busy machine, is waited for until it is done."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_routes, "_VERIFY_SECONDS", 60.0)
        patch.setattr(_pages, "_SECONDS_TO_END", 60.0)
        yield


@pytest.fixture
def hashed_as_ever(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hashes cost what they cost a service."""
    monkeypatch.setattr(_keys, "hasher", slow_hasher)
    _keys._stand_in.cache_clear()
    yield
    _keys._stand_in.cache_clear()


N_TEACHERS = 20_011
SIGMA = 150.0
# Five digits each, so that none of them turns up by chance.
TALLIES = [
    [17_393, 1_471, 1_147],
    [1_213, 16_981, 1_817],
    [10_093, 8_837, 1_081],
    [6_679, 6_673, 6_659],
    [1_019, 2_027, 16_965],
]
BUDGET = Budget(epsilon=2.0, delta=1e-5)


def first_digits(value: float) -> str:
    """Return a pattern of the first seven digits that count, cut off: rounded, they would not be found."""
    found = re.match(r"[0.]*(?:\d\.?){1,7}", f"{value:.17g}")
    assert found is not None
    return re.escape(found[0])


def private_words() -> list[str]:
    """Return what must never be said: tallies, gaps and exact costs of the votes above."""
    votes = Votes.from_counts(np.array(TALLIES), n_teachers=N_TEACHERS)
    counts = np.sort(np.array(TALLIES), axis=1)
    numbers = {*np.array(TALLIES).ravel().tolist(), *(counts[:, -1] - counts[:, -2]).tolist()}
    words = [rf"(?<![\w.]){number}(?![\w.])" for number in numbers if number > 1000]
    for query in range(len(TALLIES)):
        exact = exact_cost(GNMax(sigma=SIGMA), votes[np.array([query])]).cost.reveal()
        # Seven digits of a number are not there by chance; zeros are.
        words += [first_digits(value) for value in (exact.epsilon(1e-5), *exact.values[::10]) if value > 0]
    return [word for word in words if word not in ("0",)]


PRIVATE = private_words()


def leaks(text: str) -> list[str]:
    # Of a time, some digits may be anything.
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+", "", text)
    return [word for word in PRIVATE if re.search(word, text)]


@dataclass
class Place:
    """A folder with votes and settings, and the keys to it."""

    settings: ServiceSettings
    log: io.StringIO = field(default_factory=io.StringIO)
    tokens: dict[str, str] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)

    @property
    def store(self) -> KeyStore:
        return KeyStore(self.settings.place(self.settings.keys.store))

    def key(self, name: str, role: str = "student", *, budget: Budget | None = None) -> str:
        store = self.store
        token, _ = store.create(name, role)
        store.close()
        if budget is not None:
            with self.ledger() as ledger:
                ledger.open_account(account_name(name), budget)
        self.tokens[f"{role} {name}"] = token
        return token

    def bearer(self, name: str, role: str = "student", *, budget: Budget | None = None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key(name, role, budget=budget)}"}

    def ledger(self) -> Any:
        ledger = self.settings.ledger
        return open_service_ledger(
            self.settings.place(ledger.url), Budget(ledger.epsilon, ledger.delta), name=ledger.name
        )

    def spent(self) -> float:
        with self.ledger() as ledger:
            return Accountant(BUDGET).epsilon(ledger.spent)

    def limited(self, **limits: int) -> "Place":
        return replace(self, settings=replace(self.settings, limits=LimitsConfig(**limits)))

    def open(self) -> TestClient:
        app = create_app(self.settings, log_stream=self.log)
        client = TestClient(app, raise_server_exceptions=False)

        def listen(response: Any) -> None:
            response.read()
            self.heard.append(f"{response.status_code} {response.headers} {response.text}")

        client.event_hooks["response"].append(listen)
        return client


@contextmanager
def watched(folder: Path) -> Iterator[Place]:
    """Make a place, and see in the end that nothing private was said there and no key was written down."""
    save_votes(folder / "votes.npz", Votes.from_counts(np.array(TALLIES), n_teachers=N_TEACHERS))
    made = Place(
        ServiceSettings(
            data=ServedConfig(source="votes", path="votes.npz", n_classes=3),
            mechanism=MechanismConfig(name="gnmax", sigma=SIGMA),
            ledger=LedgerConfig(url="ledger.db", epsilon=BUDGET.epsilon, delta=BUDGET.delta),
            limits=LimitsConfig(max_batch=200, max_body_bytes=20_000),
            folder=str(folder),
        )
    )
    yield made
    said, log = "\n".join(made.heard), made.log.getvalue()
    assert not leaks(said), "a private number was in a response"
    assert not leaks(log), "a private number was in the log"
    for token in made.tokens.values():
        secret = token.split("_", 2)[2]
        assert secret not in said
        assert secret not in log


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with watched(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all tests of a module that do not get in each other's way."""
    with watched(tmp_path_factory.mktemp("place")) as made:
        yield made


@pytest.fixture(scope="module")
def shared_client(shared_place: Place) -> Iterator[TestClient]:
    with shared_place.open() as client:
        yield client


@pytest.fixture(scope="module")
def anna(shared_place: Place) -> dict[str, str]:
    """What a student of the shared place sends; nobody asks there so that something is charged."""
    return shared_place.bearer("anna")


@pytest.fixture
def alice(place: Place) -> dict[str, str]:
    return place.bearer("alice")


@pytest.fixture
def find_leaks() -> Callable[[str], list[str]]:
    return leaks


@pytest.fixture
def digits() -> Callable[[float], str]:
    return first_digits
