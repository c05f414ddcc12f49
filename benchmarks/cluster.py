"""Two local Dask workers against one: 100 random-forest teachers, trained and asked, as a ratio of times.

    python benchmarks/cluster.py                   about a minute on two idle cores
    python benchmarks/cluster.py --trees 100       more of it

Each worker is a process with one thread. Workers are started, and have trained two teachers, before the clock
runs: a cluster is started once and used for long. Every round trains all teachers anew, one worker and two in
turn, and the fastest of each counts, since other work on the machine only ever adds. Seed 7.
"""

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from tellers.teachers import partition
from tellers.teachers.dask import Cluster, Link, Shard, connect, train_dask_ensemble, write_shards

SEED = 7
N_TEACHERS = 100
N_ROWS = 400  # of each teacher
N_FEATURES = 20
N_QUERIES = 1000


def rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two classes that a forest has something to do with."""
    generator = np.random.default_rng(SEED)
    X = generator.normal(size=(n, N_FEATURES))
    y = (X[:, :4].sum(axis=1) + generator.normal(size=n) > 0).astype(np.int64)
    return X, y


def seconds(
    link: Link, shards: tuple[Shard, ...], model: RandomForestClassifier, queries: np.ndarray
) -> float:
    """Return how long it takes to train the teachers and to get their votes."""
    with tempfile.TemporaryDirectory() as store:
        start = time.perf_counter()
        ensemble = train_dask_ensemble(model, shards, n_classes=2, seed=SEED, link=link, store=store)
        ensemble.vote(queries)
        return time.perf_counter() - start


def main() -> None:
    """Print both times and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trees", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    model = RandomForestClassifier(n_estimators=asked.trees)
    X, y = rows(N_TEACHERS * N_ROWS + N_QUERIES)
    parts = partition(N_TEACHERS * N_ROWS, N_TEACHERS, seed=SEED)
    best = {1: float("inf"), 2: float("inf")}
    with (
        tempfile.TemporaryDirectory() as folder,
        connect(Cluster(n_workers=1)) as one,
        connect(Cluster(n_workers=2)) as two,
    ):
        shards = write_shards(Path(folder), X[: N_TEACHERS * N_ROWS], y[: N_TEACHERS * N_ROWS], parts)
        queries = X[N_TEACHERS * N_ROWS :]
        for link in (one, two):
            seconds(link, shards[:4], model, queries)
        for _ in range(asked.rounds):
            for n_workers, link in ((1, one), (2, two)):
                best[n_workers] = min(best[n_workers], seconds(link, shards, model, queries))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(
        f"{N_TEACHERS} forests of {asked.trees} trees on {N_ROWS} x {N_FEATURES} rows, {N_QUERIES} queries, "
        f"seed {SEED}; {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load {load}"
    )
    print(f"1 worker  {best[1]:6.1f} s")
    print(f"2 workers {best[2]:6.1f} s")
    print(f"ratio     {best[1] / best[2]:6.2f}")


if __name__ == "__main__":
    main()
