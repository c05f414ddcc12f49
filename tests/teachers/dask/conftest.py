"""A cluster of real processes, made once for all tests of a process."""

import subprocess
import sys
from pathlib import Path

import pytest

from ... import forked

sys.path.insert(0, str(Path(__file__).parent))
from tellers_machines import Machines, wait_until


@pytest.fixture(scope="session")
def machines(tmp_path_factory):
    """A scheduler and two workers, shared by all tests of a process."""
    pytest.importorskip("distributed")
    cluster = Machines(tmp_path_factory.mktemp("cluster"), popen=forked.Popen)
    cluster.start_scheduler()
    for name in ("one", "two"):
        cluster.start_worker(name)
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def line(machines):
    """The line to the shared cluster, with both workers there."""
    from tellers.teachers.dask import Cluster, connect

    with connect(Cluster(address=machines.address, timeout=120, patience=120)) as link:
        link.client.wait_for_workers(2, timeout=120)
        yield link


@pytest.fixture
def link(machines, line):
    """The same, with two workers whatever an earlier test did to them."""
    for name in ("one", "two"):
        if machines.workers[name].poll() is not None:
            machines.start_worker(name)
    wait_until(lambda: len(line.workers()) >= 2, seconds=120, what="two workers")
    return line


@pytest.fixture
def own_machines(tmp_path):
    """Make clusters for a test that spoils them; all are stopped at its end."""
    made = []

    def make(**options):
        # A forked process has read the settings of Dask already.
        popen = subprocess.Popen if options.get("settings") else forked.Popen
        made.append(Machines(tmp_path / f"machines-{len(made)}", popen=popen, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.stop()
