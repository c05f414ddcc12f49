"""Students of every kind on the same rows, answers and seeds, from nothing, with the same network.

    python experiments/students/compare.py --data DIR --votes FOLDER --out FOLDER [--steps 1500] [--seeds 10]

The folder of --votes holds what `train.py` kept; rows of `compared.json` go into its `results.json`. Besides,
GAN students learn from 100 and 1,000 rows drawn at random and answered by LNMax (gamma 0.05), as Papernot et
al. 2017 had it.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from teach import Job, load, teach
from train import DELTA, split

from tellers import LNMax, Unit, Votes, noise
from tellers.accounting.exact import exact_epsilons

KINDS = ("mean-teacher", "mixmatch", "vat", "gan", "supervised")
GOAL = 0.35  # whose labels are fewer: what is learned from the rest shows
PUBLISHED = LNMax(gamma=0.05)


def main() -> None:
    """Teach every kind of student from the same answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--votes", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--kinds", default=",".join(KINDS), help="of students, none for the GAN of 2017 alone"
    )
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--laplace-seeds", type=int, default=5)
    args = parser.parse_args()
    start = time.perf_counter()
    truth = load(args.data, "t10k-labels-idx1").astype(np.int64)
    halves = np.array_split(np.random.default_rng(7).permutation(len(truth)), 2)
    votes, kept = np.load(args.votes / "votes.npz"), np.load(args.votes / "asked.npz")
    args.out.mkdir(parents=True, exist_ok=True)
    results = json.loads((args.votes / "results.json").read_text())
    left_out = ("student", "accuracy", "seconds")
    asked_of = {
        one["seed"]: {name: value for name, value in one.items() if name not in left_out}
        for one in results
        if one["goal"] == GOAL
    }
    jobs = []
    for seed in range(args.seeds):
        test, pool = split(halves, seed)
        asked, labels = (kept[f"{what}_{seed}_{GOAL}"].astype(np.int64) for what in ("asked", "labels"))
        told = asked_of[seed]
        rest = np.setdiff1d(pool, asked)
        jobs += [
            Job(kind, asked, labels, rest, test, seed, told=told) for kind in args.kinds.split(",") if kind
        ]
        for n_asked in (100, 1000) if seed < args.laplace_seeds else ():
            asked = pool[:n_asked]  # the pool is in random order
            ballots = Votes.from_ballots(votes[f"ballots_{seed % 2}"][:, asked].astype(int), n_classes=10)
            labels = PUBLISHED.release(ballots, noise.seeded(2000 + seed)).labels
            told = {
                "seed": seed, "goal": "laplace", "n_labels": n_asked, "steps": args.steps,
                "right": float((labels == truth[asked]).mean()),
                "epsilon": float(exact_epsilons(PUBLISHED, ballots, delta=DELTA).reveal()[-1]),
                "public_epsilon": float((n_asked * PUBLISHED.price(Unit())).epsilon(DELTA)),
            }  # fmt: skip
            jobs.append(Job("gan", asked, labels, np.setdiff1d(pool, asked), test, seed, told=told))
    found: list[dict[str, Any]] = []

    def tell(result: dict[str, Any]) -> None:
        found.append(result)
        print(f"[{time.perf_counter() - start:.0f} s]", *result.values(), flush=True)
        for name, of_2017 in (("compared", False), ("laplace", True)):
            rows = [one for one in found if (one["goal"] == "laplace") is of_2017]
            (args.out / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n")

    teach(jobs, args.data, [], steps=args.steps, views=None, workers=args.workers, tell=tell)


if __name__ == "__main__":
    main()
