"""MNIST students at a small epsilon: public features, typical questions, exact accounting.

    python experiments/students/train.py --data DIR --out FOLDER [--seeds 10] [--students mean-teacher,...]

1. The 10,000 published test images are halved. A network learns features from one half, without labels.
2. 250 teachers learn a linear layer each from 240 of the 60,000 private images, on these features.
3. A seed draws 1,000 test images from the other half; the remaining 9,000 are the public pool.
4. Noise and the number of questions are planned on other, public digits (`proxy.py`).
5. Typical rows of the pool are asked (GNMax), and students learn from the answers and the unlabelled rest.

Needs torch and a GPU (minutes there), and nothing that its machine may lack. Ballots and results are kept in
FOLDER; `run.py` accounts for them and prints the tables.
"""

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as processes
from encoder import contrastive, features, train_heads
from proxy import plan, proxy_votes, unit_rows

from tellers import GNMax, Votes, noise
from tellers.datasets.images import read_idx
from tellers.exact import exact_epsilons
from tellers.students import typical_first
from tellers.students.torch import GanStudent, MeanTeacherStudent, MixMatchStudent, VatStudent

DELTA = 1e-5
EPSILONS = (0.69, 0.35)
N_TEACHERS, N_ROWS = 250, 240
STUDENTS: dict[str, Any] = {
    "mean-teacher": (MeanTeacherStudent, {"test_views": 8}),
    "mixmatch": (MixMatchStudent, {"test_views": 8}),
    "vat": (VatStudent, {"test_views": 8}),
    "gan": (GanStudent, {"test_views": 8}),
    "supervised": (MeanTeacherStudent, {"test_views": 8, "weight": 0.0}),
}


def load(folder: Path, name: str) -> np.ndarray:
    """Return one of the four files."""
    return read_idx(gzip.decompress((folder / f"{name}-ubyte.gz").read_bytes()))


def pixels(folder: Path, name: str) -> np.ndarray:
    """Return images as (n, 1, height, width), from 0 to 1."""
    return load(folder, name).astype(np.float32)[:, None] / 255


def teach(jobs: Any, results: Any, folder: Path, steps: int) -> None:
    """Train the students of a queue; one process of several, since one alone leaves a GPU half idle."""
    images, truth = pixels(folder, "t10k-images-idx3"), load(folder, "t10k-labels-idx1").astype(np.int64)
    while (job := jobs.get()) is not None:
        kind, asked, labels, rest, test, seed, told = job
        start = time.perf_counter()
        make, settings = STUDENTS[kind]
        student = make(steps=steps, n_classes=10, random_state=seed, **settings)
        student.fit(images[asked], labels, images[rest])
        right = float((student.predict(images[test]) == truth[test]).mean())
        seconds = round(time.perf_counter() - start, 1)
        results.put({**told, "student": kind, "accuracy": right, "seconds": seconds})


def ask(
    ballots: np.ndarray, order: np.ndarray, truth: np.ndarray, *, sigma: float, n: int, seed: int
) -> dict[str, Any]:
    """Return what GNMax answers to the first rows of an order, and what it cost."""
    mechanism, asked = GNMax(sigma=sigma), order[:n]
    votes = Votes.from_ballots(ballots[:, asked], n_classes=10)
    released = mechanism.release(votes, noise.seeded(seed))
    return {
        "asked": asked, "labels": released.labels,
        "told": {
            "sigma": sigma, "n_labels": int(n), "right": float((released.labels == truth[asked]).mean()),
            "epsilon": float(exact_epsilons(mechanism, votes, delta=DELTA).reveal()[-1]),
        },
    }  # fmt: skip


def main() -> None:
    """Train, ask and teach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the four MNIST idx files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--students", default="mean-teacher")
    parser.add_argument("--steps", type=int, default=2500, help="of a student")
    parser.add_argument("--feature-steps", type=int, default=2500)
    parser.add_argument("--workers", type=int, default=5)
    args = parser.parse_args()
    start, device = time.perf_counter(), torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def say(*words: object) -> None:
        print(f"[{time.perf_counter() - start:.0f} s]", *words, flush=True)

    torch.backends.cudnn.benchmark = True
    private = torch.tensor(pixels(args.data, "train-images-idx3"), device=device)
    classes = torch.tensor(load(args.data, "train-labels-idx1").astype(np.int64), device=device)
    images = torch.tensor(pixels(args.data, "t10k-images-idx3"), device=device)
    truth = load(args.data, "t10k-labels-idx1").astype(np.int64)
    rng = np.random.default_rng(7)
    halves = np.array_split(rng.permutation(len(images)), 2)
    shards = torch.tensor(rng.permutation(len(private)).reshape(N_TEACHERS, N_ROWS), device=device)
    args.out.mkdir(parents=True, exist_ok=True)

    rooms, kept = [], {}
    for half, rows in enumerate(halves):
        network = contrastive(images[torch.tensor(rows, device=device)], seed=half, steps=args.feature_steps)
        say("features", half)
        ballots = (
            train_heads(network, private, classes, shards, seed=half).vote(images, seed=half).cpu().numpy()
        )
        proxies = proxy_votes(network, n_teachers=N_TEACHERS, n_rows=N_ROWS, seed=half)
        plans = {epsilon: plan(proxies, epsilon=epsilon, delta=DELTA) for epsilon in EPSILONS}
        unseen = halves[1 - half]
        say("one teacher", round(float((ballots == truth)[:, unseen].mean()), 4), "plans", plans)
        rooms.append((ballots, unit_rows(features(network, images)), plans))
        kept[f"ballots_{half}"] = ballots.astype(np.uint8)
    np.savez_compressed(args.out / "votes.npz", **kept, truth=truth.astype(np.uint8), halves=np.stack(halves))

    processes.set_start_method("spawn", force=True)
    jobs, results = processes.Queue(), processes.Queue()
    workers = [
        processes.Process(target=teach, args=(jobs, results, args.data, args.steps))
        for _ in range(args.workers)
    ]
    for worker in workers:
        worker.start()
    n_jobs = 0
    asked_rows: dict[str, np.ndarray] = {}
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        half = seed % 2
        ballots, seen, plans = rooms[half]
        draw = np.random.default_rng(100 + seed)
        test = draw.choice(halves[1 - half], 1000, replace=False)
        pool = draw.permutation(np.setdiff1d(np.arange(len(images)), test))
        order = pool[typical_first(seen[pool], seed=seed)]
        for epsilon, chosen in plans.items():
            out = ask(ballots, order, truth, sigma=chosen.sigma, n=chosen.n_queries, seed=1000 + seed)
            asked_rows[f"asked_{seed}_{epsilon}"] = out["asked"].astype(np.int16)
            asked_rows[f"labels_{seed}_{epsilon}"] = out["labels"].astype(np.int8)
            told = {"seed": seed, "half": half, "goal": epsilon, **out["told"]}
            say(told)
            rest = np.setdiff1d(pool, out["asked"])
            for kind in args.students.split(","):
                jobs.put((kind, out["asked"], out["labels"], rest, test, seed, told))
                n_jobs += 1
    np.savez_compressed(args.out / "asked.npz", **asked_rows)
    for _ in workers:
        jobs.put(None)
    found = []
    for _ in range(n_jobs):
        found.append(results.get())
        say(found[-1])
        (args.out / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
