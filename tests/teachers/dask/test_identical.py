"""The same seed gives the same ballots on a cluster as on one machine, and only whole numbers come back."""

import pickle
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from tellers_machines import wait_until
from tellers_slow_models import StoredTree

from tellers.data import digits
from tellers.errors import ClusterFailed, MissingExtra, TeacherFailed
from tellers.privacy.votes import OneOf, SetOf
from tellers.teachers import Partition, load_ensemble, partition, train_ensemble
from tellers.teachers.ballots import ballots_of
from tellers.teachers.dask import (
    Cluster,
    Patience,
    Shard,
    connect,
    train_dask_ensemble,
    write_queries,
    write_shard,
    write_shards,
)
from tellers.teachers.dask._working import Job, make_batches, work
from tellers.teachers.dask.dispatch import Dispatch
from tellers.teachers.dask.ensemble import pickled

DATA = digits()
X, Y_CLASS, PUBLIC = DATA.X[:900], DATA.y[:900], DATA.X[900:1100]
PARTS = partition(900, 9, seed=7)


def counted(seen):
    return lambda done, of: seen.append((done, of))


def test_forests_vote_as_they_do_on_one_machine(link, tmp_path):
    model = RandomForestClassifier(n_estimators=8)
    shards = write_shards(tmp_path / "shards", X, Y_CLASS, PARTS)
    seen = []
    ensemble = train_dask_ensemble(
        model, shards, n_classes=10, seed=7, link=link, store=tmp_path / "store", progress=counted(seen)
    )
    alone = train_ensemble(model, X, Y_CLASS, PARTS, n_classes=10, seed=7, folder=tmp_path / "alone")
    votes = ensemble.vote(PUBLIC)
    assert (votes.ballots == alone.vote(PUBLIC).ballots).all()
    assert [done for done, _ in seen] == list(range(1, 10))
    # What the workers kept is what one machine would have kept: either goes on where the other stopped.
    kept = load_ensemble(tmp_path / "store", n_classes=10)
    assert (kept.vote(PUBLIC).ballots == votes.ballots).all()
    again = train_ensemble(model, X, Y_CLASS, PARTS, n_classes=10, seed=7, folder=tmp_path / "store")
    assert (again.vote(PUBLIC).ballots == votes.ballots).all()


@pytest.mark.parametrize("kind", ["file", "bucket"])
def test_queries_and_shards_may_be_at_urls(link, tmp_path, kind):
    model = StoredTree() if kind == "bucket" else DecisionTreeClassifier()
    where = f"{kind}://{tmp_path}"
    shards = write_shards(f"{where}", X, Y_CLASS, PARTS)
    write_queries(f"{where}/queries.npz", PUBLIC)
    ensemble = train_dask_ensemble(model, shards, n_classes=10, seed=7, link=link, store=where)
    alone = train_ensemble(model, X, Y_CLASS, PARTS, n_classes=10, seed=7)
    assert (ensemble.vote(f"{where}/queries.npz").ballots == alone.vote(PUBLIC).ballots).all()
    assert (tmp_path / "teacher-00008.json").exists()
    if kind == "file":  # rows and teachers are their owner's, also where a path is written as a URL
        assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_a_worker_that_cannot_open_an_object_store_says_so(link, tmp_path):
    shards = [Shard("s4://ward-3/part.npz")]
    with pytest.raises(MissingExtra, match=r"opens s4 addresses.*on the worker tcp://"):
        train_dask_ensemble(
            DecisionTreeClassifier(), shards, n_classes=10, seed=7, link=link, store=tmp_path / "store"
        )


@pytest.mark.parametrize("resolution", [1, 20])
def test_many_labels_are_voted_on_as_they_are_on_one_machine(link, tmp_path, resolution):
    Y = np.stack([Y_CLASS % 2, Y_CLASS > 5, Y_CLASS == 3], axis=1).astype(int)
    how = {"space": SetOf(3, resolution), "seed": 7, "thresholds": 0.4}
    shards = write_shards(tmp_path / "shards", X, Y, PARTS)
    ensemble = train_dask_ensemble(
        LogisticRegression(max_iter=50), shards, link=link, store=tmp_path / "store", **how
    )
    alone = train_ensemble(LogisticRegression(max_iter=50), X, Y, PARTS, **how)
    assert (ensemble.vote(PUBLIC).block() == alone.vote(PUBLIC).block()).all()
    assert not hasattr(ensemble, "n_classes")


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_networks_are_trained_together_as_on_one_machine(link, tmp_path, engine):
    from tellers.nn.batched import Batched
    from tellers.nn.classifier import TorchClassifier

    model = TorchClassifier("mlp", epochs=2, device="cpu")
    chosen = Batched(chunk=4) if engine == "batched" else engine
    shards = write_shards(tmp_path / "shards", X, Y_CLASS, PARTS)
    ensemble = train_dask_ensemble(
        model, shards, n_classes=10, seed=7, link=link, store=tmp_path / "store", engine=chosen
    )
    alone = train_ensemble(model, X, Y_CLASS, PARTS, n_classes=10, seed=7, engine=chosen)
    assert (ensemble.vote(PUBLIC).ballots == alone.vote(PUBLIC).ballots).all()
    assert [len(batch.numbers) for batch in ensemble.batches] == ([4, 4, 1] if chosen != "loop" else [1] * 9)
    assert (
        load_ensemble(tmp_path / "store", n_classes=10).vote(PUBLIC).ballots == alone.vote(PUBLIC).ballots
    ).all()


def test_what_travels_holds_no_rows_and_what_comes_back_is_whole_numbers(tmp_path):
    secret = 0.123456789
    rows = np.array([[secret], [0.5], [0.7]])
    write_shard(str(tmp_path / "part.npz"), rows, [0, 1, 1])
    job = Job(DecisionTreeClassifier(), ballots_of(OneOf(2)), seed=7, store=str(tmp_path), n_teachers=1)
    order = pickled(job)
    batch = make_batches([Shard(str(tmp_path / "part.npz"))], 1)[0]
    sent = pickle.dumps((order, batch))
    answer = work(order, batch.numbers, batch.addresses, PUBLIC[:, :1])
    back = pickle.dumps(answer)
    for content in (sent, back):
        assert np.float64(secret).tobytes() not in content
        assert len(content) < 4000
    assert answer.ballots.dtype == np.uint8
    # The look itself finds a row where there is one.
    assert np.float64(secret).tobytes() in Path(tmp_path / "part.npz").read_bytes()


def test_the_number_of_tasks_in_flight_is_bounded(link, tmp_path):
    shards = write_shards(tmp_path / "shards", X, Y_CLASS, PARTS)
    ensemble = train_dask_ensemble(
        DecisionTreeClassifier(), shards, n_classes=10, seed=7, link=link, store=tmp_path / "store", batch=1
    )
    dispatch = Dispatch(link, pickled(ensemble.job), ensemble.batches, Patience(in_flight=2), PUBLIC)
    numbers = [number for answer in dispatch.answers() for number in answer.numbers]
    assert sorted(numbers) == list(range(9))
    assert dispatch.most_in_flight == 2


def spoilt():
    """Return rows, classes and parts: one teacher has none, one has one class, three cannot use theirs."""
    rows, labels = X.copy(), Y_CLASS.copy()
    rows[PARTS[1]] *= 1e12
    rows[PARTS[2]] *= 1e6
    rows[PARTS[3]] *= 1e300
    labels[PARTS[4]] = 4
    parts = Partition((*PARTS.parts[:7], PARTS[7][:0], PARTS[8]), unit="one record")
    return rows, labels, parts


UNABLE = "ValueError"


def kind_of_network(engine):
    pytest.importorskip("torch")
    from tellers.nn.batched import Batched
    from tellers.nn.classifier import TorchClassifier

    model = TorchClassifier("mlp", epochs=2, batch_size=20, device="cpu")
    return model, {"engine": Batched(chunk=4) if engine == "batched" else "loop"}


@pytest.mark.parametrize("kind", ["tree", "labels", "batched", "loop"])
def test_every_teacher_votes_as_on_one_machine_whatever_its_rows_are(link, tmp_path, kind, recwarn, capfd):
    from tellers_slow_models import Loud

    rows, answers, parts = spoilt()
    how, space = {"seed": 7, "link": link, "store": tmp_path / "store"}, OneOf(10)
    model, engine = Loud(), {}
    if kind == "labels":
        answers, space = np.stack([answers % 2, answers > 4], axis=1).astype(int), SetOf(2)
    if kind in ("batched", "loop"):
        model, engine = kind_of_network(kind)
    alone = train_ensemble(model, rows, answers, parts, space=space, **engine, seed=7, n_jobs=1)
    shards = write_shards(tmp_path / "shards", rows, answers, parts)
    seen = []
    far = train_dask_ensemble(model, shards, space=space, **engine, **how, progress=counted(seen))
    found = far.vote(PUBLIC).block()
    np.testing.assert_array_equal(found, alone.vote(PUBLIC).block())
    assert far.troubles.reveal() == alone.troubles.reveal()
    trees = {1: UNABLE, 2: "RuntimeError", 3: UNABLE, 7: "it has no rows"}
    assert set(far.troubles.reveal()) == ({3, 7} if kind in ("batched", "loop") else set(trees))
    if kind in ("tree", "labels"):
        assert far.troubles.reveal() == trees
    # A second look finds the teachers that were given up, and asks nobody again.
    again = train_dask_ensemble(model, shards, space=space, **engine, **how)
    np.testing.assert_array_equal(again.vote(PUBLIC).block(), found)
    assert not recwarn.list
    assert seen[-1] == (9, 9)
    assert capfd.readouterr() == ("", "")


def test_a_model_that_learns_nothing_is_refused_by_the_worker_that_tries_it(link, tmp_path):
    shards = write_shards(tmp_path / "shards", X, Y_CLASS, PARTS)
    with pytest.raises(ValueError, match=r"can learn 10 classes.*'C' parameter.*No private row"):
        train_dask_ensemble(
            LogisticRegression(C=-1.0), shards, n_classes=10, seed=7, link=link, store=tmp_path, public=PUBLIC
        )


def test_a_shard_that_no_worker_can_read_is_named(link, tmp_path):
    with pytest.raises(TeacherFailed, match=r"Expected a shard at .*gone.npz"):
        train_dask_ensemble(
            DecisionTreeClassifier(), [Shard(str(tmp_path / "gone.npz"))], n_classes=2, seed=7, link=link,
            store=tmp_path,
        )  # fmt: skip


def test_teachers_of_another_run_are_refused_or_trained_anew(link, tmp_path):
    shards = write_shards(tmp_path / "shards", X, Y_CLASS, PARTS)
    how = {"n_classes": 10, "link": link, "store": tmp_path / "store"}
    train_dask_ensemble(DecisionTreeClassifier(), shards, seed=7, **how)
    with pytest.raises(ValueError, match=r"different: seed"):
        train_dask_ensemble(DecisionTreeClassifier(), shards, seed=8, **how)
    anew = train_dask_ensemble(DecisionTreeClassifier(), shards, seed=8, on_mismatch="retrain", **how)
    alone = train_ensemble(DecisionTreeClassifier(), X, Y_CLASS, PARTS, n_classes=10, seed=8)
    assert (anew.vote(PUBLIC).ballots == alone.vote(PUBLIC).ballots).all()


def test_a_scheduler_that_does_not_answer_is_an_error_in_time():
    with (
        pytest.raises(ClusterFailed, match=r"nobody answered in 0.5 seconds"),
        connect(Cluster(address="tcp://127.0.0.1:9", timeout=0.5)),
    ):
        pass


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (b"", "nobody answered in 0.5 seconds"),
        (b"HTTP/1.1 400 Bad Request\r\n" * 9, "something else answered"),
    ],
)
def test_a_port_of_something_else_is_an_error_in_time(greeting, said):
    """Dask alone waits for ever for a listener that says nothing, and for memory for one that says more."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            line, _ = server.accept()
            line.sendall(greeting)
            line.recv(1)
            done.wait(20)
            line.close()

        done = threading.Event()
        threading.Thread(target=greet, daemon=True).start()
        start = time.monotonic()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with (
            pytest.raises(ClusterFailed, match=said),
            connect(Cluster(address=address, timeout=10 if greeting else 0.5)),
        ):
            pass
        done.set()
    assert time.monotonic() - start < 30


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.7", "tcp://:8786", "http://10.0.0.7:8786", "10.0.0.7:8786"]
)
def test_an_address_has_a_host_and_a_port(address):
    with pytest.raises(ValueError, match=r"Expected the address of a cluster"):
        Cluster(address=address)
    assert Cluster(address="tcp://[fd00::7]:8786").address


def test_other_versions_are_refused_before_anything_is_trained(link, tmp_path, monkeypatch):
    shards = write_shards(tmp_path / "shards", X, Y_CLASS, PARTS)
    monkeypatch.setattr(
        "tellers.teachers.dask.cluster.versions_here",
        lambda packages=(): {"python": "3.1", "numpy": "0.1", "tellers": "9", "distributed": "1"},
    )
    with pytest.raises(ClusterFailed, match=r"on the scheduler .*python .* instead of 3.1"):
        train_dask_ensemble(
            DecisionTreeClassifier(), shards, n_classes=10, seed=7, link=link, store=tmp_path / "store"
        )
    assert not (tmp_path / "store").exists()


def test_a_worker_that_joins_late_with_other_versions_says_so(link, tmp_path):
    shards = write_shards(tmp_path / "shards", X, Y_CLASS, PARTS)
    job = Job(
        DecisionTreeClassifier(), ballots_of(OneOf(10)), seed=7, store=str(tmp_path), n_teachers=9,
        versions={"numpy": "0.1"},
    )  # fmt: skip
    with pytest.raises(ClusterFailed, match=r"worker .*, got numpy .* instead of 0.1"):
        list(Dispatch(link, pickled(job), make_batches(shards, 3), Patience()).answers())


def test_a_worker_without_torch_says_which_extra_brings_it(machines, link, tmp_path):
    """The worker's torch is hidden by what it loads first: real processes, nothing is patched here."""
    from tellers.nn.classifier import TorchClassifier

    hidden = tmp_path / "hidden.py"
    hidden.write_text(
        "import importlib.metadata as m\n"
        "def version(name):\n"
        "    if name == 'torch':\n"
        "        raise m.PackageNotFoundError(name)\n"
        "    return m.distribution(name).version\n"
        "m.version = version\n"
    )
    n_before = len(link.workers())
    bare = machines.start_worker("bare", words=["--preload", str(hidden)], prefix=["env"])
    shards = write_shards(tmp_path / "shards", X, Y_CLASS, PARTS)
    try:
        link.client.wait_for_workers(n_before + 1, timeout=120)
        with pytest.raises(MissingExtra, match=r"torch missing instead of .* pip install 'tellers\[torch\]'"):
            train_dask_ensemble(
                TorchClassifier("mlp", device="cpu"), shards, n_classes=10, seed=7, link=link,
                store=tmp_path / "store",
            )  # fmt: skip
        # What needs no torch goes on, with this worker too.
        link.require_versions()
    finally:
        machines.kill(bare.pid)
    wait_until(lambda: len(link.workers()) == n_before, what="the end of a worker")
