"""Settings that every test shares, and a PostgreSQL server for those that want one."""

import importlib.util
import itertools
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# One failing example must fail for everyone: the default profile draws the same examples every time.
# HYPOTHESIS_PROFILE=explore looks further, with fresh examples and many more of them.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "explore", parent=settings.get_profile("steady"), derandomize=False, max_examples=2000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def _postgres():
    spec = importlib.util.spec_from_file_location(
        "tellers_tests_postgres", Path(__file__).parent / "postgres.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def postgres():
    """A server of our own; without one, tests are skipped loudly, or fail with TELLERS_REQUIRE_POSTGRES=1."""
    module = _postgres()
    try:
        cluster = module.Cluster()
    except module.NoPostgres as missing:
        words = f"LEDGERS IN POSTGRESQL WERE NOT TRIED: {missing}"
        if os.environ.get("TELLERS_REQUIRE_POSTGRES", "0") not in ("", "0"):
            pytest.fail(words)
        pytest.skip(words)
    yield cluster
    cluster.remove()


@pytest.fixture(scope="session")
def database(postgres):
    """A database with the tables of ledgers, shared by tests that take names of their own: its URL."""
    return _prepared(postgres, "shared")


@pytest.fixture
def own_database(postgres):
    """A database for a test that spoils it."""
    return _prepared(postgres, f"own_{next(_numbers)}")


_numbers = itertools.count()


def _prepared(postgres, name):
    from tellers.ledger.sql import migrate

    postgres.sql(f"CREATE DATABASE {name}")
    migrate(postgres.url(name))
    return postgres.url(name)
