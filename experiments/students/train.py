"""MNIST students at a small epsilon: public features, typical questions, exact accounting.

    python experiments/students/train.py --data DIR --out FOLDER [--task mnist|fashion] [--seeds 10]

1. The 10,000 published test images are halved. A network learns features from one half, without labels.
2. 250 teachers learn a linear layer each from 240 of the 60,000 private images, on these features.
3. A seed draws 1,000 test images from the other half; the remaining 9,000 are the public pool.
4. Noise and the number of questions are planned on other, public digits (`proxy.py`): for MNIST so that the
   exact epsilon is small, for Fashion-MNIST, of which digits say little, so that the public epsilon is.
5. Typical rows of the pool are asked (GNMax), and students learn from the answers and the unlabelled rest.

Needs torch and a GPU (minutes there), and nothing that its machine may lack. Ballots and results are kept in
FOLDER; `compare.py` teaches others from them, `run.py` accounts for them and prints the tables.
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from heads import train_heads, unit_rows
from proxy import Plan, plan, plan_public, proxy_votes
from teach import Job, load, pixels, teach

from tellers import GNMax, Unit, Votes, noise
from tellers.accounting.exact import exact_epsilons
from tellers.nn.views import ImageViews
from tellers.students import typical_first
from tellers.students.torch import PublicFeatures

DELTA = 1e-5
N_TEACHERS, N_ROWS, N_POOL = 250, 240, 9000
VIEWS = {
    "mnist": None,
    "fashion": ImageViews(
        rotation=8, shift=0.08, scale=0.15, cutout=0.3, contrast=0.3, flip=True, repeat_border=False
    ),
}
FEATURE_VIEWS = {
    "mnist": ImageViews(rotation=20, shift=0.12, scale=0.2, cutout=0.3),
    "fashion": ImageViews(rotation=10, shift=0.12, scale=0.3, cutout=0.4, contrast=0.4, flip=True),
}
EPSILONS = {"mnist": (0.69, 0.35), "fashion": (1.0, 2.0)}


@dataclass(frozen=True, eq=False)
class Room:
    """What one half of the public images made: features, teachers' ballots on all images, and plans."""

    features: PublicFeatures
    ballots: np.ndarray
    seen: np.ndarray
    plans: dict[float, Plan]


def ask(ballots: np.ndarray, asked: np.ndarray, truth: np.ndarray, *, sigma: float, seed: int) -> Any:
    """Return what GNMax answers to rows, and what is to be told of it."""
    mechanism = GNMax(sigma=sigma)
    votes = Votes.from_ballots(ballots[:, asked], n_classes=10)
    labels = mechanism.release(votes, noise.seeded(seed)).labels
    return labels, {
        "sigma": sigma, "n_labels": len(asked), "right": float((labels == truth[asked]).mean()),
        "plurality_right": float((votes.counts.argmax(1) == truth[asked]).mean()),
        "epsilon": float(exact_epsilons(mechanism, votes, delta=DELTA).reveal()[-1]),
        "public_epsilon": float((len(asked) * mechanism.price(Unit())).epsilon(DELTA)),
    }  # fmt: skip


def split(halves: list[np.ndarray], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the test images and the pool of a seed; features come from the half that is not tested on."""
    draw = np.random.default_rng(100 + seed)
    test = draw.choice(halves[1 - seed % 2], 1000, replace=False)
    return test, draw.permutation(np.setdiff1d(np.arange(sum(map(len, halves))), test))


def open_room(
    task: str, data: Path, rows: np.ndarray, shards: np.ndarray, *, half: int, steps: int, n_proxies: int
) -> Room:
    """Learn features from half of the public images, train teachers on them, and plan."""
    images = pixels(data, "t10k-images-idx3")
    features = PublicFeatures(width=128, steps=steps, views=FEATURE_VIEWS[task], random_state=half)
    features.fit(images[rows])
    private, classes = pixels(data, "train-images-idx3"), load(data, "train-labels-idx1").astype(np.int64)
    ballots = train_heads(features, private, classes, shards, seed=half).vote(images, seed=half)
    proxies = [
        proxy_votes(features, n_teachers=N_TEACHERS, n_rows=N_ROWS, seed=10 * half + n)
        for n in range(n_proxies)
    ]
    make = plan if task == "mnist" else plan_public
    plans = {e: make(proxies, epsilon=e, delta=DELTA, n_pool=N_POOL) for e in EPSILONS[task]}
    return Room(features, ballots, unit_rows(features.transform(images)), plans)


def main() -> None:
    """Train, ask and teach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the four idx files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--task", choices=sorted(EPSILONS), default="mnist")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--feature-steps", type=int, default=2000)
    parser.add_argument("--proxies", type=int, default=3)
    parser.add_argument("--workers", type=int, default=6)
    args = parser.parse_args()
    start, data = time.perf_counter(), args.data

    def say(*words: object) -> None:
        print(f"[{time.perf_counter() - start:.0f} s]", *words, flush=True)

    truth = load(data, "t10k-labels-idx1").astype(np.int64)
    rng = np.random.default_rng(7)
    halves = np.array_split(rng.permutation(len(truth)), 2)
    shards = rng.permutation(N_TEACHERS * N_ROWS).reshape(N_TEACHERS, N_ROWS)
    args.out.mkdir(parents=True, exist_ok=True)
    rooms = []
    for half, rows in enumerate(halves):
        made = {"half": half, "steps": args.feature_steps, "n_proxies": args.proxies}
        rooms.append(open_room(args.task, data, rows, shards, **made))
        one = float((rooms[-1].ballots == truth)[:, halves[1 - half]].mean())
        say("one teacher", round(one, 4), "plans", rooms[-1].plans)
    ballots = {f"ballots_{half}": room.ballots.astype(np.uint8) for half, room in enumerate(rooms)}
    np.savez_compressed(args.out / "votes.npz", **ballots, truth=truth.astype(np.uint8))

    jobs, kept = [], {}
    for seed in range(args.seeds):
        room, (test, pool) = rooms[seed % 2], split(halves, seed)
        order = pool[typical_first(room.seen[pool], seed=seed)]
        where: dict[str, Any] = {"test": test, "seed": seed, "half": seed % 2}
        for epsilon, chosen in room.plans.items():
            asked = order[: chosen.n_queries]
            labels, told = ask(room.ballots, asked, truth, sigma=chosen.sigma, seed=1000 + seed)
            kept[f"asked_{seed}_{epsilon}"] = asked.astype(np.int16)
            kept[f"labels_{seed}_{epsilon}"] = labels.astype(np.int8)
            told = {"seed": seed, "half": seed % 2, "goal": epsilon, **told}
            say(told)
            rest = np.setdiff1d(pool, asked)
            jobs.append(Job("features", asked, labels, rest, told=told, **where))
        if args.task == "fashion":  # beside: all questions answered without noise, and no privacy at all
            votes = Votes.from_ballots(room.ballots[:, pool], n_classes=10).counts.argmax(1)
            told = {"seed": seed, "goal": "plurality", "right": float((votes == truth[pool]).mean())}
            jobs.append(Job("features", pool, votes, pool, told=told, **where))
            if seed < 3:
                told = {"seed": seed, "goal": "private"}
                jobs.append(Job("supervised", pool, votes, pool[:0], private=True, told=told, **where))
    np.savez_compressed(args.out / "asked.npz", **kept)

    found: list[dict[str, Any]] = []

    def tell(result: dict[str, Any]) -> None:
        found.append(result)
        say(result["student"], result["seed"], result["goal"], result["accuracy"], result["seconds"])
        for name, private in (("results", True), ("beside", False)):
            rows = [one for one in found if isinstance(one["goal"], float) is private]
            (args.out / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")

    features = [room.features for room in rooms]
    teach(jobs, data, features, steps=2000, views=VIEWS[args.task], workers=args.workers, tell=tell)
    for goal in sorted({str(one["goal"]) for one in found}):
        right = [one["accuracy"] for one in found if str(one["goal"]) == goal]
        say(
            goal,
            len(right),
            f"{np.mean(right):.4f}",
            "s.e.",
            f"{np.std(right, ddof=1) / len(right) ** 0.5:.4f}",
        )


if __name__ == "__main__":
    main()
