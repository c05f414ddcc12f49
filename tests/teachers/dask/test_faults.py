"""What is killed, lost or slow changes nothing but the time it takes: every teacher votes, and votes once."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tellers_slow_models import DiesInFit, SlowTree

from tellers.data import digits
from tellers.errors import ClusterFailed
from tellers.teachers import partition, train_ensemble
from tellers.teachers.ballots import FallbackTeacher
from tellers.teachers.dask import Cluster, Patience, Shard, connect, train_dask_ensemble, write_shards

DATA = digits()
X, Y, PUBLIC = DATA.X[:600], DATA.y[:600], DATA.X[600:700]
PARTS = partition(600, 8, seed=7)


@pytest.fixture(scope="module")
def right():
    """The ballots of the same teachers, trained on this machine by a plain tree."""
    return train_ensemble(SlowTree(), X, Y, PARTS, n_classes=10, seed=7).vote(PUBLIC).ballots


def at_work(folder, verb):
    """Return the processes that have begun to fit, or to predict, and not ended."""
    return [int(place.name.rpartition("-")[2]) for place in folder.glob(f"{verb}-*")]


def kill_one_at(machines, folder, verb, victims):
    """Kill one worker that is in the middle of it, as soon as there is one."""
    deadline = time.monotonic() + 60
    pids = [process.pid for process in machines.workers.values()]
    while not victims and time.monotonic() < deadline:
        for pid in at_work(folder, verb):
            if pid not in pids:
                continue
            os.kill(pid, signal.SIGSTOP)  # it stands still while we look again
            if pid in at_work(folder, verb):
                machines.kill(pid)
                victims.append(pid)
                break
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.01)


@pytest.mark.campaign
@pytest.mark.parametrize("verb", ["fit", "predict"])
def test_a_worker_killed_at_work_loses_no_vote_and_doubles_none(machines, link, tmp_path, right, verb):
    marks = tmp_path / "marks"
    marks.mkdir()
    model = SlowTree(
        str(marks), fitting=0.3 if verb == "fit" else 0.0, asking=0.3 if verb == "predict" else 0.0
    )
    shards = write_shards(tmp_path / "shards", X, Y, PARTS)
    victims = []
    killer = threading.Thread(target=kill_one_at, args=(machines, marks, verb, victims))
    killer.start()
    seen = {"fit": [], "predict": []}
    ensemble = train_dask_ensemble(
        model, shards, n_classes=10, seed=7, link=link, store=tmp_path / "store", batch=1,
        progress=lambda done, _: seen["fit"].append(done),
    )  # fmt: skip
    votes = ensemble.vote(PUBLIC, progress=lambda done, _: seen["predict"].append(done))
    killer.join()
    assert len(victims) == 1
    # It died in the middle: what it was at was begun and never ended there.
    assert at_work(marks, verb) == victims
    assert (votes.ballots == right).all()
    assert seen["fit"] == seen["predict"] == list(range(1, 9))


@pytest.mark.campaign
def test_a_teacher_that_kills_its_workers_votes_by_the_rule(own_machines, tmp_path):
    # As often as this may a worker die of a task before the cluster blames the task.
    machines = own_machines(settings={"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"})
    machines.start_scheduler()
    for name in ("one", "two", "three"):
        machines.start_worker(name)
    write_shards(tmp_path / "shards", X, Y, PARTS)
    with connect(Cluster(address=machines.address, timeout=120, patience=120)) as link:
        ensemble = train_dask_ensemble(
            DiesInFit(), [Shard(str(tmp_path / "shards" / "shard-00000.npz"))], n_classes=10, seed=7,
            link=link, store=tmp_path / "store", patience=Patience(retries=0),
        )  # fmt: skip
        found = ensemble.vote(PUBLIC).ballots
    rule = FallbackTeacher(0, 10, many=False, trouble="").predict(PUBLIC)
    np.testing.assert_array_equal(found[0], rule)
    assert ensemble.troubles.reveal() == {0: "its worker died, again and again"}


@pytest.mark.campaign
def test_a_lost_scheduler_ends_the_run_or_is_found_again_and_nothing_is_done_twice(
    own_machines, tmp_path, right
):
    machines = own_machines()
    shards = write_shards(tmp_path / "shards", X, Y, PARTS)
    marks = tmp_path / "marks"
    marks.mkdir()
    how = {"n_classes": 10, "seed": 7, "store": tmp_path / "store", "batch": 1}
    model = SlowTree(str(marks), fitting=0.1)

    def start():
        machines.start_scheduler()
        machines.start_worker("one")

    # It stays away: the run ends, and says so.
    start()
    with (
        pytest.raises(ClusterFailed, match="nobody answered"),
        connect(Cluster(address=machines.address, timeout=120, patience=1)) as lost,
    ):
        train_dask_ensemble(
            model, shards, link=lost, progress=lambda done, _: done == 2 and machines.stop(), **how
        )
    n_kept = len(list((tmp_path / "store").glob("*.json")))
    assert 2 <= n_kept < 6

    seen, restarts = [], []

    def restart(done, _of):
        seen.append(done)
        if done == 6 and not restarts:
            # Workers end with their scheduler: whoever starts it again starts them again too.
            machines.stop()
            start()
            restarts.append(done)

    # It is there again, and is lost once more: the run finds it, and goes on from what was kept.
    start()
    with connect(Cluster(address=machines.address, timeout=120, patience=120)) as link:
        ensemble = train_dask_ensemble(model, shards, link=link, progress=restart, **how)
        votes = ensemble.vote(PUBLIC)
    assert restarts == [6]
    assert seen == list(range(1, 9))
    assert (votes.ballots == right).all()
    # Fitted to the end and kept: each once, but for those that were in flight when the cluster was lost.
    assert len(list(marks.glob("done-fit-*"))) <= 8 + 2


@pytest.mark.campaign
def test_a_slow_task_is_run_twice_and_counted_once(link, tmp_path, right):
    stuck = tmp_path / "stuck"
    shards = write_shards(tmp_path / "shards", X, Y, PARTS)
    seen, start = [], time.monotonic()
    ensemble = train_dask_ensemble(
        SlowTree(stuck=str(stuck)), shards, n_classes=10, seed=7, link=link, store=tmp_path / "store",
        batch=1, patience=Patience(slow_seconds=1.0), progress=lambda done, _: seen.append(done),
    )  # fmt: skip
    # The first one waits for a word that was not given yet: another copy of it was the first to answer.
    assert stuck.exists()
    assert time.monotonic() - start < 100
    (tmp_path / "stuck.go").touch()
    assert seen == list(range(1, 9))
    assert (ensemble.vote(PUBLIC).ballots == right).all()


def test_rows_at_a_place_without_workers_are_waited_for_and_then_refused(link, tmp_path):
    shards = [Shard(shard.address, at="nowhere") for shard in write_shards(tmp_path / "shards", X, Y, PARTS)]
    impatient = Cluster(address=link.cluster.address, patience=1, timeout=60)
    with (
        connect(impatient) as line,
        pytest.raises(ClusterFailed, match="a worker with the resource 'nowhere'"),
    ):
        train_dask_ensemble(
            DecisionTreeClassifier(), shards, n_classes=10, seed=7, link=line, store=tmp_path / "store"
        )
