"""Cells of ensembles, one job each: measured in this process, or trained and counted in others."""

import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cell, measure_baselines, measure_cell
from ensembles import (
    EPOCHS,
    Data,
    Ensemble,
    bundled_data,
    bundled_ensemble,
    get_ensemble,
    keep_ensemble,
    load_data,
)
from figure4 import cost_ratios
from published import FACTORS, MINORITY, RATIOS, SHARES, average_factor
from rich.progress import Progress


@dataclass(frozen=True)
class Job:
    """One cell of one ensemble: what is to be measured, and where its ballots and results are kept."""

    data_set: str
    seed: int
    cell: Cell
    votings: int
    n_exact: int
    data_dir: Path | None
    votes: Path
    keep: Path
    train: bool
    bundled: bool = False
    epochs: int = EPOCHS

    @property
    def path(self) -> Path:
        """Return the file of its results."""
        name = f"{self.data_set}-{'bundled' if self.bundled else self.seed}-{self.cell.key}"
        length = "" if self.epochs == EPOCHS else f"-{self.epochs}-epochs"
        return self.keep / f"{name}-{self.votings}-{self.n_exact}{length}.npz"

    @property
    def made_of(self) -> dict[str, Any]:
        """Return who is copied how often in the ensemble of this cell."""
        if not self.cell.upsampled:
            return {"kind": "base", "ratio": 0, "copies": 1}
        kind = "class" if self.cell.variant == "c" else "random"
        return {"kind": kind, "ratio": self.cell.ratio, "copies": self.cell.factor}


@lru_cache(maxsize=2)
def data_of(name: str, data_dir: Path | None, epochs: int = EPOCHS) -> Data:
    """Return a data set, read once per process."""
    return load_data(name, data_dir, epochs=epochs)


def ensemble_of(job: Job) -> tuple[Data, Ensemble | None]:
    """Return the data and the ensemble of a job; None where it is not kept and not to be trained."""
    if job.bundled:
        return bundled_data(), bundled_ensemble()
    data = data_of(job.data_set, job.data_dir, job.epochs)
    return data, get_ensemble(data, job.seed, folder=job.votes, train=job.train, **job.made_of)


def train_job(job: Job) -> None:
    """Train the ensemble of a job, where it is to be trained and not kept."""
    if job.train and not job.bundled:
        data = data_of(job.data_set, job.data_dir, job.epochs)
        keep_ensemble(data, job.seed, folder=job.votes, **job.made_of)


def measure_job(job: Job) -> bool:
    """Measure a cell and keep the results; say whether there was anything to measure."""
    if job.path.is_file():
        return True
    data, ensemble = ensemble_of(job)
    if ensemble is None:
        return False
    asked: dict[str, Any] = {"votings": job.votings, "n_exact": job.n_exact}
    if job.cell.variant == "base":
        records = measure_baselines(data, ensemble, baseline_factors(job.data_set), job.seed, **asked)
    elif job.cell.variant in ("fig", "figu"):
        records = [cost_ratios(data, ensemble, job.cell.factor, job.seed)]
    else:
        share = job.cell.ratio / 100
        if job.cell.variant == "c":
            assert ensemble.teams is not None
            share = len(ensemble.teams) / data.sizes[0]
        records = measure_cell(data, ensemble, job.cell, job.seed, share=share, **asked)
    about = {"test": ensemble.test.tolist()} | teachers_by_class(data, ensemble)
    arrays: dict[str, Any] = {}
    for at, record in enumerate(records):
        for name in ("rows", "said"):
            if name in record:
                arrays[f"{name}_{at}"] = record.pop(name)
    job.keep.mkdir(parents=True, exist_ok=True)
    part = job.path.with_suffix(".part.npz")
    np.savez_compressed(part, about=json.dumps(about | {"records": records}), **arrays)
    part.rename(job.path)
    return True


def teachers_by_class(data: Data, ensemble: Ensemble) -> dict[str, float]:
    """Return the mean precision and recall of the teachers for the minority class (table 7)."""
    if ensemble.test_votes is None or data.n_classes != 2:
        return {}
    ballots = np.asarray(ensemble.test_votes.ballots)
    truth = data.y[ensemble.test]
    hits = ((ballots == 1) & (truth == 1)).sum(axis=1)
    return {
        "precision": float(np.mean(hits / np.maximum((ballots == 1).sum(axis=1), 1))),
        "recall": float(np.mean(hits / (truth == 1).sum())),
    }


def baseline_factors(data_set: str) -> list[float]:
    """Return everybody's budget in the baselines, in units of the lowest: minimum, maximum, averages."""
    shares = [ratio / 100 for ratio in RATIOS]
    if data_set == "adult":
        shares += [MINORITY * share / 100 for share in SHARES]
    return sorted({1.0, *FACTORS, *(average_factor(s, c) for s in shares for c in FACTORS)})


def run_jobs(jobs: list[Job], n_processes: int, *, n_trainers: int = 1) -> list[Job]:
    """Measure what is not kept yet, with a bar; return the jobs whose results there are."""
    waiting = [job for job in jobs if not job.path.is_file()]
    # Most cells wait for the plain ensembles, and of the others the largest take the longest.
    waiting.sort(key=lambda job: (job.cell.upsampled, job.seed, -job.cell.ratio * job.cell.factor))
    with Progress(transient=True, disable=not sys.stderr.isatty()) as progress:
        bar = progress.add_task("cells", total=len(jobs), completed=len(jobs) - len(waiting))
        if n_processes > 1:
            missing = _in_processes(waiting, n_processes, n_trainers, lambda _: progress.advance(bar))
        else:
            missing = []
            for job in waiting:
                if not measure_job(job):
                    missing.append(job)
                progress.advance(bar)
    return [job for job in jobs if job not in missing]


def _in_processes(
    jobs: list[Job], n_processes: int, n_trainers: int, advance: Callable[[Future[bool]], None]
) -> list[Job]:
    """Train every ensemble once, count its cells while the next is trained; return what is missing."""
    by_ensemble: dict[tuple[Any, ...], list[Job]] = {}
    for job in jobs:
        by_ensemble.setdefault((job.data_set, job.seed, job.bundled, *job.made_of.values()), []).append(job)
    counted: dict[Future[bool], Job] = {}
    # New processes rather than copies of this one: a GPU can be used in one that began without it.
    begin = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(n_trainers, mp_context=begin) as trainers,
        ProcessPoolExecutor(n_processes, mp_context=begin) as counters,
    ):
        for group in _trained(list(by_ensemble.values()), None if n_trainers == 1 else trainers):
            for job in group:
                future = counters.submit(measure_job, job)
                future.add_done_callback(advance)
                counted[future] = job
        return [job for future, job in counted.items() if not future.result()]


def _trained(groups: list[list[Job]], trainers: ProcessPoolExecutor | None) -> Iterator[list[Job]]:
    """Yield groups of jobs as their ensembles are there; a single trainer is this process."""
    if trainers is None:
        for group in groups:
            train_job(group[0])
            yield group
        return
    asked = {trainers.submit(train_job, group[0]): group for group in groups}
    for done in as_completed(asked):
        done.result()
        yield asked[done]
