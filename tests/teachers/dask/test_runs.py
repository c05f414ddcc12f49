"""Whole runs on a cluster: the votes of a run without one, whoever is killed, and no rows left about."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tellers_machines import HERE, SOURCE, wait_until

from tellers.errors import ClusterFailed, ConfigError, MissingExtra
from tellers.runs import (
    ClusterConfig,
    DataConfig,
    PartitionConfig,
    QueriesConfig,
    RunConfig,
    TeachersConfig,
    default_config,
    parse_config,
    run,
)
from tellers.runs._voting import _require_shared
from tellers.teachers.dask import Cluster, connect

from ... import forked

SMALL = RunConfig(
    data=DataConfig(name="breast_cancer", n_public=60, n_test=100),
    partition=PartitionConfig(n_teachers=30),
    teachers=TeachersConfig(model="tree"),
)
SLOW = """
[data]
name = "breast_cancer"
n_public = 60
n_test = 100

[partition]
n_teachers = 12

[teachers]
model = "tellers_slow_models:SlowTree"
parameters = { fitting = 1.0 }

[cluster]
batch = 1
"""


def ballots(folder):
    with np.load(folder / "private" / "votes.npz") as kept:
        return kept["label_ballots"] if "label_ballots" in kept.files else kept["ballots"]


def tellers(*words):
    path = os.pathsep.join([str(SOURCE), str(HERE)])
    return forked.Popen(
        [sys.executable, "-m", "tellers", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, text=True,
    )  # fmt: skip


def test_a_run_on_a_cluster_has_the_votes_of_one_without(link, tmp_path):
    seen = []
    run(SMALL, tmp_path / "alone")
    there = replace(SMALL, cluster=ClusterConfig(address=link.cluster.address))
    run(there, tmp_path / "there", show=lambda *step: seen.append(step))
    assert (ballots(tmp_path / "alone") == ballots(tmp_path / "there")).all()
    assert ("teachers", 30, 30) in seen
    assert ("votes", 30, 30) in seen
    # The parts lay in files while workers read them, and no longer.
    private = tmp_path / "there" / "private"
    assert not list(private.rglob("shard-*")) + list(private.rglob("queries-*"))
    assert len(list(private.glob("teachers/*.skops"))) == 30


def test_a_run_with_many_labels_on_a_cluster(link, tmp_path):
    config = replace(
        default_config("made_multilabel"),
        partition=PartitionConfig(n_teachers=10),
        queries=QueriesConfig(n_queries=10),
    )
    run(config, tmp_path / "alone")
    shared = ClusterConfig(address=link.cluster.address, folder=str(tmp_path / "shared"))
    run(replace(config, cluster=shared), tmp_path / "there")
    one, other = ((tmp_path / name / "private" / "votes.npz").read_bytes() for name in ("alone", "there"))
    assert one == other
    assert len(list((tmp_path / "shared").glob("run-*/teachers/*.skops"))) == 10


@pytest.mark.campaign
def test_a_killed_run_goes_on_with_what_the_workers_kept(link, tmp_path):
    settings = tmp_path / "study.toml"
    settings.write_text(SLOW)
    words = ("run", settings, "--out", tmp_path / "study", "--cluster", link.cluster.address, "--json")
    first = tellers(*words)
    kept = tmp_path / "study" / "private" / "teachers"
    wait_until(lambda: len(list(kept.glob("*.json"))) >= 3, seconds=120, what="three teachers")
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    assert not (tmp_path / "study" / "private" / "votes.npz").exists()
    before = {place.name: place.stat().st_mtime_ns for place in kept.glob("*.json")}
    second = tellers(*words, "--resume")
    out, error = second.communicate(timeout=240)
    assert second.returncode == 0, error
    assert json.loads(out)["queries"]["n_asked"] > 0
    assert {name: (kept / name).stat().st_mtime_ns for name in before} == before
    alone = parse_config(SLOW)
    run(alone, tmp_path / "alone")
    assert (ballots(tmp_path / "alone") == ballots(tmp_path / "study")).all()


def test_the_command_says_that_nobody_answers(tmp_path, capsys):
    from tellers.cli import main

    settings = tmp_path / "study.toml"
    settings.write_text(SLOW + "timeout = 0.5\n")
    with pytest.raises(SystemExit) as ended:
        main(["run", str(settings), "--cluster", "tcp://127.0.0.1:9"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "Expected a scheduler at tcp://127.0.0.1:9, nobody answered in 0.5 seconds" in said


def test_workers_that_do_not_see_the_folder_are_refused(tmp_path):
    class Line:
        def ask_workers(self, function, address):
            return {"tcp://far:1": function(address), "tcp://near:2": FileNotFoundError(address)}

    with pytest.raises(ClusterFailed, match=r"the worker tcp://near:2 does not see\. Rows are not sent"):
        _require_shared(Line(), str(tmp_path))


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtra, match=r"tellers\[distributed\]"), connect(Cluster()):
        pass


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('address = "http://host"', "Expected \"local\""),
        ('address = "tls://host:1"', "Expected a PEM file"),
        ('address = "tcp://host:1"\nca = "ca.pem"', "Expected it only with an address tls"),
        ('address = "tcp://host:1"\nn_workers = 2', 'Expected it only with address = "local"'),
        ('ca = "ca.pem"', "Expected it only with an address"),
        ('address = "local"\n[teachers]\ntimeout = 3', "Expected 0 on a cluster"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(written, said):
    with pytest.raises(ConfigError, match=said):
        parse_config(f"[cluster]\n{written}\n")
