"""Students of a queue, several at a time: one alone leaves a GPU half idle."""

import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import torch.multiprocessing as processes

from tellers.data.images import read_idx
from tellers.students.torch import GanStudent, MeanTeacherStudent, MixMatchStudent, PublicFeatures, VatStudent

STUDENTS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    # Begins with the public features; the others from nothing, all with the same network.
    "features": (MeanTeacherStudent, {"steps": 1200, "learning_rate": 2e-3}),
    "mean-teacher": (MeanTeacherStudent, {}),
    "mixmatch": (MixMatchStudent, {}),
    "vat": (VatStudent, {}),
    "gan": (GanStudent, {}),
    "supervised": (MeanTeacherStudent, {"weight": 0.0}),
}


@dataclass(frozen=True, eq=False)
class Job:
    """One student: what kind, what it is told of which rows, what it sees besides, and who asks."""

    student: str
    asked: np.ndarray
    labels: np.ndarray
    rest: np.ndarray
    test: np.ndarray
    seed: int
    half: int = 0
    private: bool = False  # learns from the private rows themselves, to compare with
    told: dict[str, Any] = field(default_factory=dict)


def load(folder: Path, name: str) -> np.ndarray:
    """Return one of the four files."""
    return read_idx(gzip.decompress((folder / f"{name}-ubyte.gz").read_bytes()))


def pixels(folder: Path, name: str) -> np.ndarray:
    """Return images as (n, 1, height, width), from 0 to 1."""
    return load(folder, name).astype(np.float32)[:, None] / 255


def teach(
    jobs: list[Job],
    folder: Path,
    features: list[PublicFeatures],
    *,
    steps: int,
    views: Any,
    workers: int,
    tell: Callable[[dict[str, Any]], None],
) -> None:
    """Train the students of all jobs in a few processes and tell how each did on its test images."""
    spawned = processes.get_context("spawn")
    todo, done = spawned.Queue(), spawned.Queue()
    for job in jobs:
        todo.put(job)
    hired = [
        spawned.Process(target=_work, args=(todo, done, folder, features, steps, views))
        for _ in range(workers)
    ]
    for worker in hired:
        todo.put(None)
        worker.start()
    for _ in jobs:
        while True:
            try:
                tell(done.get(timeout=5))
                break
            except Empty:
                if not any(worker.is_alive() for worker in hired):
                    raise RuntimeError("Expected a result of every job: all workers ended.") from None
    for worker in hired:
        worker.join()


def _work(todo: Any, done: Any, folder: Path, features: list[PublicFeatures], steps: int, views: Any) -> None:
    images, truth = pixels(folder, "t10k-images-idx3"), load(folder, "t10k-labels-idx1").astype(np.int64)
    while (job := todo.get()) is not None:
        start = time.perf_counter()
        make, settings = STUDENTS[job.student]
        settings = {"steps": steps, "n_classes": 10, "test_views": 8, "views": views, **settings}
        if job.student == "features":
            settings["network"] = features[job.half].network(10)
        student = make(random_state=job.seed, **settings)
        if job.private:
            X = pixels(folder, "train-images-idx3")
            student.fit(X, load(folder, "train-labels-idx1").astype(np.int64))
        else:
            student.fit(images[job.asked], job.labels, images[job.rest])
        right = float((student.predict(images[job.test]) == truth[job.test]).mean())
        seconds = round(time.perf_counter() - start, 1)
        done.put({**job.told, "student": job.student, "accuracy": right, "seconds": seconds})
