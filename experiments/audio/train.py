"""Teachers, ablations and students on a GPU: what they said of pool and test is kept, and scores.

    python experiments/audio/train.py --waves FILE.npz --out FOLDER [--phases ...] [--done FOLDER]

FILE is what `pack.py` made; without it only the city is heard. Needs NumPy, SciPy and torch. Jobs are small
networks, several at a time; when the seconds are over what is done is written, and `--done` goes on from it.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from asking import percent, told
from plan import (
    ABLATED,
    ABLATED_TEACHERS,
    ABLATIONS,
    CITY_PUBLIC,
    FEWER,
    FOLDS,
    LARGE_ABLATION,
    LARGEST,
    PRETRAINING,
    STUDENT_RECIPE,
    TASKS,
    TEACHERS,
    UNEVEN,
    Lesson,
    Task,
    lessons,
    recipe,
    seed_of,
)
from sounds import Part, make_city, make_city_parts, make_parts, thinned, unpack_waves

from tellers.data import measure
from tellers.data.metrics import precision_recall

PHASES = (
    "teachers-small",
    "students-small",
    "ablation-small",
    "teachers-resnet18",
    "ablation-resnet18",
    "students-resnet18",
    "ablation-vgg11",
)


@dataclass(frozen=True)
class Job:
    """One network: which rows it learns, by which recipe, and what it is asked afterwards."""

    key: str
    folder: str
    part: str
    parameters: dict[str, Any]
    teacher: int = -1
    n_queries: int = 0
    keep_pool: bool = False
    keep_test: bool = False
    uneven: bool = False
    student: str = ""
    labels: Any = field(default=None, compare=False)


@lru_cache(maxsize=8)
def part_of(folder: str, name: str) -> Part:
    """Map a part; a process looks at the same ones again and again."""
    return Part.load(Path(folder) / name)


def rows_of(job: Job) -> tuple[np.ndarray, np.ndarray]:
    """Return what a job learns: pictures and labels."""
    part = part_of(job.folder, job.part)
    if job.labels is not None:
        return np.asarray(part.X[: len(job.labels)]), job.labels
    rows = np.flatnonzero(part.owner == job.teacher)
    if job.uneven:
        rows = rows[thinned(part.Y[rows], part.owner[rows], keep=0.25, seed=1)]
    return np.asarray(part.X[rows]), np.asarray(part.Y[rows]).astype(np.int64)


def do(job: Job) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Train one network; return its scores on the test and what it said."""
    import torch

    torch.backends.cudnn.benchmark = True
    started = time.perf_counter()
    X, Y = rows_of(job)
    test = part_of(job.folder, "test")
    model = _fit(job, X, Y)
    said = model(test.X)
    scores = score(np.asarray(test.Y), said)
    scores |= {"seconds": round(time.perf_counter() - started, 2), "n_rows": len(X)}
    kept = {"test": said.astype(np.float16)} if job.keep_test else {}
    if job.keep_pool:
        kept["pool"] = percent(model(part_of(job.folder, "pool").X))
    return job.key, scores, kept


def _fit(job: Job, X: np.ndarray, Y: np.ndarray) -> Any:
    seed = seed_of(job.key)
    if job.student == "mean-teacher":
        from tellers.nn.networks import network_factory
        from tellers.nn.views import ImageViews
        from tellers.students.torch import MeanTeacherStudent

        shape = X.shape[1:]
        views = ImageViews(rotation=0, shift=0.08, scale=0.05, cutout=0.3, contrast=0.2)
        student = MeanTeacherStudent(
            network=network_factory(job.parameters["network"], shape=(1, *shape), n_labels=Y.shape[1]),
            steps=job.parameters["iterations"],
            batch_size=32,
            pool_batch_size=64,
            image_shape=shape,
            n_classes=Y.shape[1],
            views=views,
            random_state=seed,
            learning_rate=2e-3,
        )
        mean, spread = X.astype(np.float32).mean(), X.astype(np.float32).std()

        def scaled(rows: np.ndarray) -> np.ndarray:
            return ((np.asarray(rows, dtype=np.float32) - mean) / spread).reshape(len(rows), -1)

        student.fit(scaled(X), Y.argmax(axis=1), scaled(part_of(job.folder, "pool").X))
        return lambda rows: student.predict_proba(scaled(rows))
    from tellers.nn.tagger import AudioTagger

    return AudioTagger(**job.parameters, random_state=seed).fit(X, Y).predict_proba


def score(truth: np.ndarray, said: np.ndarray) -> dict[str, float]:
    """Return how right probabilities are; accuracy is of the likeliest label, where there is one."""
    found, labels = measure(truth, (said > 0.5).astype(int), scores=said), (said > 0.5).astype(int)
    by_label = precision_recall(truth, labels)
    numbers = {
        "map": found.mean_average_precision,
        "auc": found.auc,
        "precision": by_label.macro_precision,
        "recall": by_label.macro_recall,
        "macro_f1": by_label.macro_f1,
        "micro_f1": by_label.micro_f1,
        "accuracy": float((truth[np.arange(len(truth)), said.argmax(axis=1)] == 1).mean()),
    }
    return {name: round(float(value), 5) for name, value in numbers.items()}


def teachers(network: str, folder: Path, tasks: list[Task]) -> Iterator[Job]:
    """Return every teacher of every ensemble, the baseline among them."""
    for task in tasks:
        if task == "city" and network != "small":
            continue
        for fold in FOLDS[task]:
            for n in TEACHERS[task]:
                for teacher in range(n):
                    yield Job(
                        f"{task}/{fold}/{network}/teacher/{n}/{teacher}",
                        str(folder / f"{task}-{fold}"),
                        f"teachers-{n}",
                        recipe(network, task, n_teachers=n),
                        teacher,
                        keep_pool=True,
                        keep_test=n == 1,
                    )


def ablations(network: str, folder: Path) -> Iterator[Job]:
    """Return every teacher of the smallest ensemble, with one thing changed at a time."""
    large = network != "small"
    for fold in FOLDS["multi"]:
        for kind, name in [("even", name) for name in (FEWER if large else ABLATIONS)] + [
            ("uneven", name) for name in (() if large else UNEVEN)
        ]:
            changes = dict(ABLATIONS[name]) | (LARGE_ABLATION if large else {})
            if changes.get("pretrained"):
                changes["pretrained"] = str(folder / f"city-{network}.pt")
            parameters = recipe(network, "multi", n_teachers=ABLATED_TEACHERS, changes=changes)
            for teacher in range(ABLATED[network]):
                yield Job(
                    f"multi/{fold}/{network}/{kind}/{name}/{teacher}",
                    str(folder / f"multi-{fold}"),
                    f"teachers-{ABLATED_TEACHERS}",
                    parameters,
                    teacher,
                    uneven=kind == "uneven",
                )


def students(network: str, folder: Path, kept: dict[str, np.ndarray], tasks: list[Task]) -> Iterator[Job]:
    """Return every student whose teachers were asked."""
    for task in tasks:
        if task == "city" and network != "small":
            continue
        for fold in FOLDS[task]:
            place = folder / f"{task}-{fold}"
            pool = Part.load(place / "pool")
            for lesson in lessons(task, len(pool.X), all_rows=network == "small"):
                key = f"{task}/{fold}/{network}/student/{lesson.n_teachers}/{lesson.name}/{lesson.n_queries}"
                labels = _labels(lesson, key, np.asarray(pool.Y), kept)
                if labels is None:
                    continue
                parameters = recipe(network, task, n_teachers=1) | STUDENT_RECIPE
                yield Job(key, str(place), "pool", parameters, labels=labels, keep_test=True)
                if task == "single" and network == "small" and lesson.n_teachers in (1, 5, LARGEST[task]):
                    yield Job(
                        f"{key}/mean-teacher",
                        str(place),
                        "pool",
                        parameters,
                        labels=labels,
                        student="mean-teacher",
                    )


def _labels(lesson: Lesson, key: str, truth: np.ndarray, kept: dict[str, np.ndarray]) -> np.ndarray | None:
    if lesson.name == "truth":
        return truth.astype(np.int64)
    where = key.split("/student/", maxsplit=1)[0]
    names = [f"{where}/teacher/{lesson.n_teachers}/{t}/pool" for t in range(lesson.n_teachers)]
    if not all(name in kept for name in names):
        return None
    labels = told(np.stack([kept[name] for name in names]), lesson, key=key, whole=key.startswith("city"))
    return labels if (labels >= 0).any() else None


def pretrain(network: str, folder: Path, n_jobs: int) -> None:
    """Learn the city by heart, from public clips, for others to begin with."""
    import torch

    from tellers.nn.tagger import AudioTagger

    path = folder / f"city-{network}.pt"
    if path.exists():
        return
    public = folder / "public"
    if not (public / "X.npy").exists():
        X, Y = make_city(CITY_PUBLIC, seed=99, n_jobs=n_jobs)
        Part(X, Y, np.full(len(X), -1)).save(public)
    part = Part.load(public)
    settings = recipe(network, "multi", n_teachers=1) | PRETRAINING[network]
    tagger = AudioTagger(**settings, random_state=99).fit(np.asarray(part.X), np.asarray(part.Y).astype(int))
    torch.save({name: torch.tensor(values) for name, values in tagger.state_.items()}, path)


class Work:
    """Jobs sent to processes until the time is over; what comes back is kept."""

    def __init__(self, out: Path, *, n_workers: int, ends: float) -> None:
        self.out, self.ends, self.n_workers = out, ends, n_workers
        self.kept: dict[str, np.ndarray] = {}
        self.scores: dict[str, Any] = {}
        self.pool = ProcessPoolExecutor(n_workers, mp_context=get_context("spawn"))
        self.started = time.perf_counter()

    def load(self, folder: Path) -> None:
        """Go on from an earlier folder."""
        if (folder / "scores.json").is_file():
            self.scores = json.loads((folder / "scores.json").read_text())
        if (folder / "said.npz").is_file():
            with np.load(folder / "said.npz") as said:
                self.kept = {name: said[name] for name in said.files}

    def say(self, *words: object) -> None:
        """Print with the time."""
        print(f"[{time.perf_counter() - self.started:.0f} s]", *words, flush=True)

    def run(self, jobs: Iterator[Job], name: str) -> None:
        """Do the jobs that are not done, a few more than there are processes under way."""
        under_way: set[Future[Any]] = set()
        n_done, jobs = 0, (job for job in jobs if job.key not in self.scores)
        more = True
        while more or under_way:
            while more and len(under_way) < self.n_workers + 1:
                job = next(jobs, None) if time.perf_counter() < self.ends else None
                more = job is not None
                if job is not None:
                    under_way.add(self.pool.submit(do, job))
            done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    key, scores, kept = future.result()
                except Exception as error:  # one network that failed is no reason to lose the others
                    self.say("FAILED", repr(error)[:300])
                    continue
                self.scores[key] = scores
                self.kept |= {f"{key}/{what}": values for what, values in kept.items()}
                n_done += 1
        self.say(name, n_done, "done")
        self.save()

    def save(self) -> None:
        """Write what is there."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "scores.json").write_text(json.dumps(self.scores))
        np.savez_compressed(self.out / "said.npz", **self.kept)  # type: ignore[arg-type]


def main() -> None:
    """Prepare, train and keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--waves", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--done", type=Path)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "tellers-audio")
    parser.add_argument("--phases", default=",".join(PHASES))
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--workers", type=int, default=12)
    args = parser.parse_args()
    n_jobs = os.cpu_count() or 1
    tasks: Any = [task for task in args.tasks.split(",") if task == "city" or args.waves]
    # Ablations alone need one ensemble's parts.
    sizes = (ABLATED_TEACHERS,) if all(one.startswith("ablation") for one in args.phases.split(",")) else None
    work = Work(args.out, n_workers=args.workers, ends=time.perf_counter() + args.seconds)
    if args.done:
        work.load(args.done)
    for task in tasks:
        needed = sizes or TEACHERS[task]
        if not (args.work / f"{task}-{FOLDS[task][-1]}" / f"teachers-{needed[-1]}" / "owner.npy").exists():
            if task == "city":
                make_city_parts(args.work, n_jobs=n_jobs)
            else:
                make_parts(unpack_waves(args.waves), task, args.work, n_jobs=n_jobs, sizes=needed)
            work.say("heard", task)
    pools = {}
    for task in tasks:
        for fold in FOLDS[task]:
            for name in ("pool", "test"):
                pools[f"{task}/{fold}/{name}"] = np.load(args.work / f"{task}-{fold}" / name / "Y.npy")
    args.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(args.out / "truth.npz", **pools)
    for phase in args.phases.split(","):
        what, network = phase.split("-")
        if what == "ablation" and "multi" in tasks:
            pretrain(network, args.work, n_jobs)
            work.say("pretrained", network)
            work.run(ablations(network, args.work), phase)
        elif what == "teachers":
            work.run(teachers(network, args.work, tasks), phase)
        elif what == "students":
            work.run(students(network, args.work, work.kept, tasks), phase)


if __name__ == "__main__":
    main()
