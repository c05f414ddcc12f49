"""Many at once on one budget: together they get what it pays for, and nobody waits for ever."""

import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

from tellers import Accountant, Budget, GNMax, Unit, Votes, noise
from tellers.errors import BudgetExhausted
from tellers.ledger import open_ledger
from tellers.runs import Room
from tellers.service import Client, read_settings
from tellers.service._keys import KeyStore
from tellers.teachers import VotedPool, save_votes
from tellers.testing._ports import free_port

from .. import forked

N_CLIENTS = 64
N_WRITERS = 24
N_KEYS = 8
SOURCE = Path(__file__).resolve().parents[2] / "src"
BUDGET = Budget(epsilon=1.0, delta=1e-5)
MECHANISM = GNMax(sigma=45.0)
FEWER = GNMax(sigma=30.0)  # of which a budget pays for fewer than half as many labels
VOTES = Votes.from_counts(np.full((5, 3), 50), n_teachers=150)
LONGEST_WAIT = 60.0  # seconds a ledger waits here for others before it gives up, and says so

SETTINGS = """\
[data]
source = "votes"
path = "votes.npz"
n_classes = 3
[mechanism]
name = "gnmax"
sigma = 45.0
[ledger]
url = {url}
epsilon = 1.0
delta = 1e-5
[limits]
requests_per_minute = 0
[server]
port = {port}
log_level = "warning"
"""


def affordable(mechanism=MECHANISM):
    """Return how many labels the budget pays for, by the accountant alone."""
    accountant, price = Accountant(BUDGET), mechanism.price(Unit())
    return next(n for n in itertools.count() if not accountant.affords(n * price, price))


def crowd(askers):
    """Let all ask until they are refused; return how many labels each got, and the longest wait of anyone."""
    got, waits, wrong = [0] * len(askers), [0.0] * len(askers), []
    ready = threading.Barrier(len(askers))

    def work(who):
        try:
            ready.wait(60)
            while True:
                start = time.monotonic()
                try:
                    got[who] += askers[who]()
                finally:
                    waits[who] = max(waits[who], time.monotonic() - start)
        except BudgetExhausted:
            pass
        except Exception as error:
            wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(who,)) for who in range(len(askers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)
    return got, max(waits)


@pytest.fixture(params=["sqlite", "postgresql"])
def books(request, tmp_path):
    """Where a ledger of its own is, by backend."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return request.getfixturevalue("own_database")


def require_all_spent(where, n, mechanism=MECHANISM):
    with open_ledger(where, Accountant(BUDGET)) as ledger:
        assert len(ledger.entries()) == n
        assert all(entry.is_settled for entry in ledger.entries())
        np.testing.assert_allclose(ledger.spent.values, n * mechanism.price(Unit()).values)
        ledger.verify()


def test_many_writers_get_exactly_what_the_budget_pays_for(books, record_property):
    n = affordable(FEWER)
    assert n > N_WRITERS

    def asker():
        ledger = open_ledger(books, Accountant(BUDGET), timeout=LONGEST_WAIT)
        room = Room(VotedPool(VOTES), FEWER, ledger, noise.secure())
        return lambda: len(room.ask([0], key=os.urandom(8).hex()))

    got, longest = crowd([asker() for _ in range(N_WRITERS)])
    record_property("longest_wait_seconds", longest)
    print(f"{n} labels to {N_WRITERS} writers, longest wait {longest:.2f} s")
    assert sum(got) == n
    assert longest < LONGEST_WAIT
    require_all_spent(books, n, FEWER)


@pytest.mark.campaign
def test_sixty_four_clients_of_a_service_get_exactly_what_the_budget_pays_for(
    books, tmp_path, record_property
):
    n = affordable()
    save_votes(tmp_path / "votes.npz", VOTES)
    port = free_port()
    (tmp_path / "service.toml").write_text(SETTINGS.format(url=json.dumps(books), port=port))
    settings = read_settings(tmp_path / "service.toml")
    store = KeyStore(settings.place(settings.keys.store))
    keys = [store.create(f"student-{k}", "student")[0] for k in range(N_KEYS)]
    store.close()
    server = forked.Popen(
        [sys.executable, "-m", "tellers", "serve", "--config", str(tmp_path / "service.toml")],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    try:
        wait_for(settings.server.address)
        clients = [
            Client(settings.server.address, keys[who % N_KEYS], timeout=LONGEST_WAIT)
            for who in range(N_CLIENTS)
        ]
        got, longest = crowd([lambda c=client: len(c.ask(pool=[0])) for client in clients])
        for client in clients:
            client.close()
    finally:
        server.terminate()
        server.wait(30)
    record_property("longest_wait_seconds", longest)
    print(f"{n} labels to {N_CLIENTS} clients, longest wait {longest:.2f} s")
    assert sum(got) == n
    assert longest < LONGEST_WAIT
    require_all_spent(books, n)


def wait_for(url):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            httpx.get(f"{url}/v1/health")
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the service did not start")
