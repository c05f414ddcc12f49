"""One limit of requests for all processes that share the store of keys, in a file or a database."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sql
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.service import KeysConfig
from tellers.service._keys import TABLES, WINDOW, KeyStore, Rates

from .. import forked

SRC = Path(__file__).resolve().parents[2] / "src"


def fresh(clock):
    engine = sql.create_engine("sqlite://")
    TABLES.create_all(engine)
    return Rates(engine, clock=clock), engine


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 0.01, 0.4, 0.99, 1.0, 7.5, 29.0, 59.5, 60.0, 61.0]), max_size=60),
    st.integers(1, 6),
    st.floats(0, 1),
)
def test_never_more_in_any_minute_and_waiting_helps(steps, most, start):
    now = [1_000_000 + start]
    rates, engine = fresh(lambda: now[0])
    passed = []
    for step in steps:
        now[0] += step
        wait = rates.hit("alice", most=most)
        if not wait:
            passed.append(now[0])
            continue
        # Refused only where the minute, and the second that has begun, are full.
        assert sum(at > now[0] - WINDOW - 1 for at in passed) >= most
        assert 1 <= wait <= WINDOW + 1
        if step > 20:  # now and then somebody listens
            now[0] += wait
            assert rates.hit("alice", most=most) == 0
            passed.append(now[0])
    for at in passed:
        assert sum(at <= other < at + WINDOW for other in passed) <= most
    with engine.connect() as connection:
        n_rows = connection.execute(sql.text("SELECT count(*) FROM tellers_rates")).scalar()
    assert n_rows <= WINDOW + 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.4, 1.0, 7.5, 29.0, 61.0]), st.sampled_from([0, 0, 0, -1, -30, -3600])
        ),
        max_size=60,
    ),
    st.integers(1, 6),
)
def test_a_clock_set_back_lets_nobody_do_more_and_shuts_nobody_out(steps, most):
    # `real` is how much time passes; `now` is what the clock says, which is set back in between.
    real, now, passed = [0.0], [1_000_000.0], []
    rates, _ = fresh(lambda: now[0])

    def go_on(seconds):
        real[0], now[0] = real[0] + seconds, now[0] + seconds

    for step, back in steps:
        go_on(step)
        now[0] += back
        wait = rates.hit("alice", most=most)
        assert 0 <= wait <= WINDOW + 1
        if not wait:
            passed.append(real[0])
        elif step == 61.0:  # now and then somebody listens, while the clock is left alone
            go_on(wait)
            assert rates.hit("alice", most=most) == 0
            passed.append(real[0])
    for at in passed:
        assert sum(at <= other < at + WINDOW for other in passed) <= most


def test_what_is_refused_is_not_counted_and_others_are_not_touched():
    now = [5000.5]
    rates, _ = fresh(lambda: now[0])
    assert rates.hit("alice", most=1) == 0
    for _ in range(50):
        now[0] += 1
        assert rates.hit("alice", most=1)
    assert rates.hit("bob", most=1) == 0
    now[0] = 5061.0
    assert rates.hit("alice", most=1) == 0


def test_old_counts_are_forgotten_when_a_store_is_opened(tmp_path):
    store = KeyStore(str(tmp_path / "keys.db"))
    store.rates._clock = lambda: 1000.0  # a key that nobody uses any more
    store.rates.hit("alice", most=5)
    store.close()
    store = KeyStore(str(tmp_path / "keys.db"))
    with store._engine.connect() as connection:
        assert connection.execute(sql.text("SELECT count(*) FROM tellers_rates")).scalar() == 0
    store.close()


CODE = """
import sys
from tellers.service._keys import KeyStore
store = KeyStore(sys.argv[1])
print(sum(store.rates.hit("alice", most=60) == 0 for _ in range(50)))
store.close()
"""


def race(place):
    """Let two processes ask fifty times each, and return how many times they were let in."""
    running = [
        forked.Popen(
            [sys.executable, "-c", CODE, place],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(SRC)},
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0] * 2
    return sum(int(words) for words in said)


def test_processes_share_the_limit_in_a_file(tmp_path):
    # They also make the store all at once: one of them is first, and the others find it.
    assert race(str(tmp_path / "keys.db")) == 60


def test_processes_share_the_limit_in_a_database(own_database):
    assert race(own_database) == 60


def test_a_clock_of_a_database_that_was_set_back_shuts_nobody_out(own_database):
    store = KeyStore(own_database)
    with store._engine.begin() as connection:
        later = "extract(epoch FROM clock_timestamp())::bigint + 3600"
        connection.execute(
            sql.text(f"INSERT INTO tellers_rates VALUES ('alice', {later}, 5), ('bob', {later}, 5)")
        )
    assert 1 <= store.rates.hit("alice", most=5) <= WINDOW + 1
    assert store.rates.hit("bob", most=6) == 0
    assert 1 <= store.rates.hit("bob", most=6) <= WINDOW + 1
    with store._engine.connect() as connection:
        found = connection.execute(
            sql.text("SELECT who, sum(n) FROM tellers_rates GROUP BY who ORDER BY who")
        )
        assert [tuple(row) for row in found] == [("alice", 5), ("bob", 6)]
        ahead = "SELECT count(*) FROM tellers_rates WHERE second > extract(epoch FROM clock_timestamp())"
        assert connection.execute(sql.text(ahead)).scalar() == 0
    store.close()


def test_threads_share_the_limit_in_a_database(own_database):
    stores, passed, lock = [KeyStore(own_database) for _ in range(2)], [], threading.Lock()

    def work(store):
        for _ in range(10):
            wait = store.rates.hit("alice", most=25)
            with lock:
                passed.append(not wait)

    threads = [threading.Thread(target=work, args=(stores[i % 2],)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    assert (len(passed), sum(passed)) == (80, 25)


def test_two_services_share_the_limit_of_a_key(place):
    few = place.limited(requests_per_minute=5)
    alice, bob = few.bearer("alice"), few.bearer("bob")
    with few.open() as one, few.open() as other:
        codes = [client.get("/v1/budget", headers=alice).status_code for client in (one, other) * 4]
        refused = other.get("/v1/budget", headers=alice)
        assert other.get("/v1/budget", headers=bob).status_code == 200
    assert codes == [200] * 5 + [429] * 3
    assert refused.json()["type"] == "urn:tellers:problem:too-many"
    assert 1 <= int(refused.headers["Retry-After"]) <= WINDOW + 1


def test_strangers_write_nothing_into_the_store(place):
    wrong = {"Authorization": f"Bearer tlr_{'a' * 12}_{'b' * 43}"}
    with place.open() as client:
        for _ in range(3):
            assert client.get("/v1/budget", headers=wrong).status_code == 401
        store = place.store
        with store._engine.connect() as connection:
            assert connection.execute(sql.text("SELECT count(*) FROM tellers_rates")).scalar() == 0
        store.close()


def test_without_a_limit_nothing_is_counted(place, own_database):
    there = replace(place, settings=replace(place.settings, keys=KeysConfig(store=own_database)))
    there = there.limited(requests_per_minute=0)
    alice = there.bearer("alice")
    with there.open() as client:
        assert client.get("/v1/budget", headers=alice).status_code == 200
        store = there.store
        with store._engine.connect() as connection:
            assert connection.execute(sql.text("SELECT count(*) FROM tellers_rates")).scalar() == 0
        store.close()
