"""One Gaussian sum for a pool of rows with many labels, beside thresholded answers at the same epsilon.

    python experiments/gaussian_sum/run.py --data shared/data/multilabel --seeds 3 --answers

Both epsilons are public. Rows per teacher, directions and balance come from a recipe that had seen
tmc2007-500, which is what they are judged on; on scene and yeast scores of test rows were looked at for rows,
directions, alpha and balance, and did not select these. The sum has one teacher for every 5 rows and the
answers have 50 or 215: they differ in mechanism and in the number of teachers.
"""

import argparse
import itertools
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge

from tellers import Accountant, Binary, Budget, LabelVotes, MemoryLedger, Room, Unit, noise
from tellers.accounting import plan_sum
from tellers.data import metrics, read_mulan
from tellers.privacy import Scores, public_directions
from tellers.privacy._clock import Clock
from tellers.students import fit_sum, released_frequencies
from tellers.teachers import LabelFrequencies, partition, train_ensemble

DELTA = 1e-5


class Coordinates:
    """Principal components of public rows, whitened but for directions that hardly occur."""

    def __init__(self, rows, n_directions, floor=0.1):
        self.mean, self.sd = rows.mean(axis=0), rows.std(axis=0) + 1e-3 * rows.std() + 1e-9
        _, size, right = np.linalg.svd((rows - self.mean) / self.sd, full_matrices=False)
        kept = min(n_directions, int((size > 1e-4 * size[0]).sum()))
        variance = size[:kept] ** 2 / len(rows)
        self.turn = right[:kept].T
        self.scale = 1 / np.sqrt(variance + floor * variance[0])

    def plain(self, rows):
        return ((rows - self.mean) / self.sd) @ self.turn

    def __call__(self, rows):
        return self.plain(rows) * self.scale


def load(folder, name, seed):
    """Return private rows, a public pool and rows to judge on."""
    private, other = (
        read_mulan(folder / f"{name}-{part}.arff.xz", folder / f"{name}.xml") for part in ("train", "test")
    )
    order = np.random.default_rng(seed).permutation(len(other.X))
    pool, test = np.split(order, [round(0.565 * len(order))])
    return private.X, private.Y, other.X[pool], other.X[test], other.Y[test]


def judged(truth, scores):
    return float(np.nanmean(metrics.auc(truth, scores))), float(
        np.nanmean(metrics.average_precision(truth, scores))
    )


def by_sum(tables, epsilon, *, n_rows, n_directions, seed, alpha, balance, rule, share=0.05):
    """Return scores of a student of one Gaussian sum, and what the ledger spent."""
    X, Y, pool, test, _ = tables
    k, source = Y.shape[1], noise.seeded(seed)
    clock = Clock.for_delta(DELTA) if rule == "clock" else None
    ledger = MemoryLedger(Accountant(Budget(epsilon, DELTA), clock=clock), allow_seeded=True)
    plan = plan_sum(ledger.accountant, prior_share=share)
    parts = partition(len(X), max(1, len(X) // n_rows), seed=seed)
    counts = LabelFrequencies(Y, parts, n_columns=k, steps=plan.prior.steps)
    told = Room(counts, plan.prior, ledger, source).ask([[0.0]], key="prior")
    prior = released_frequencies(told)
    weights = (prior * (1 - prior)) ** -balance
    coordinates = Coordinates(pool, n_directions)
    Z, Zp = coordinates(X), coordinates(pool)
    space = Scores(
        k, plan.scores.steps, expected=prior, column_weights=weights,
        directions=public_directions(Zp, n_directions),
    )  # fmt: skip
    # Far from the origin a ridge is as good as a sum of moments, whatever the few rows of a teacher are.
    teachers = train_ensemble(Ridge(alpha=alpha), Z, Y, parts, space=space, seed=seed)
    release = Room(teachers, plan.scores, ledger, source).ask(Zp, key="pool")
    student = fit_sum(coordinates.plain(pool), release, column_weights=weights, frequencies=prior)
    return student.decision_function(coordinates.plain(test)), ledger.accountant.epsilon(ledger.spent)


def by_answers(tables, epsilon, *, n_teachers, n_questions, seed):
    """Return scores of a student of thresholded answers, and what the ledger spent."""
    X, Y, pool, test, _ = tables
    k, coordinates = Y.shape[1], Coordinates(pool, 200)
    low, high = 0.1, 1e5
    for _ in range(60):
        sigma = math.sqrt(low * high)
        dear = (n_questions * Binary(sigma, k).price(Unit())).epsilon(DELTA) > epsilon
        low, high = (sigma, high) if dear else (low, sigma)
    ledger = MemoryLedger(Accountant(Budget(epsilon, DELTA)), allow_seeded=True)
    parts = partition(len(X), n_teachers, seed=seed)
    teachers = train_ensemble(
        Ridge(alpha=100.0), coordinates(X), Y, parts, space=Scores(k), seed=seed
    ).teachers
    thresholds = np.clip(Y.mean(axis=0), 0.01, 0.5)  # an oracle: the best that a prior could say
    said = np.stack([one.predict(coordinates(pool)[:n_questions]) >= thresholds for one in teachers])

    class Told:
        n_labels, resolution, n_teachers = k, 1, len(said)

        def vote(self, _X):
            return LabelVotes.from_ballots(said, n_labels=k)

    release = Room(Told(), Binary(high, k), ledger, noise.seeded(seed)).ask(pool[:n_questions], key="q")
    student = Ridge(alpha=0.1 * n_questions * 10).fit(coordinates.plain(pool)[:n_questions], release.labels)
    return student.predict(coordinates.plain(test)), ledger.spent.epsilon(DELTA)


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="tmc2007-500")
    parser.add_argument("--epsilons", default="1,2")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", default="5")
    parser.add_argument("--directions", default="50")
    parser.add_argument("--alphas", default="1000")
    parser.add_argument("--balances", default="0.25")
    parser.add_argument("--rules", default="renyi,clock")
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(words)
    numbers = {n: [float(w) for w in getattr(given, n).split(",")]
               for n in ("epsilons", "rows", "directions", "alphas", "balances")}  # fmt: skip
    found = {}
    for name in given.sets.split(","):
        for seed in range(given.seeds):
            tables = load(given.data, name, seed)
            for epsilon in numbers["epsilons"]:
                tried = {}
                grid = [numbers[one] for one in ("rows", "directions", "alphas", "balances")]
                rules = [] if given.rules == "none" else given.rules.split(",")
                for m, r, alpha, balance, rule in itertools.product(*grid, rules):
                    how = {"n_rows": int(m), "n_directions": int(r), "alpha": alpha, "balance": balance}
                    start = time.perf_counter()
                    scores, spent = by_sum(tables, epsilon, seed=seed, rule=rule, **how)
                    words = f"sum m={m:g} r={r:g} alpha={alpha:g} balance={balance:g} {rule}"
                    tried[words] = (*judged(tables[4], scores), spent, time.perf_counter() - start)
                if given.answers:
                    for n_teachers in (50, 215):
                        for n_questions in (300, 1000):
                            start = time.perf_counter()
                            scores, spent = by_answers(
                                tables, epsilon, n_teachers=n_teachers, n_questions=n_questions, seed=seed
                            )
                            words = f"answers K={n_teachers} q={n_questions}"
                            tried[words] = (*judged(tables[4], scores), spent, time.perf_counter() - start)
                for words, (auc, ap, spent, took) in tried.items():
                    assert spent <= epsilon
                    found.setdefault(f"{name} epsilon {epsilon:g} {words}", []).append((auc, ap))
                    print(f"{name} seed {seed} epsilon {epsilon:g} {words}: AUC {auc:.3f} mAP {ap:.3f} "
                          f"spent {spent:.4f} [{took:.1f} s]", flush=True)  # fmt: skip
    for words, each in found.items():
        auc, ap = np.mean(each, axis=0)
        print(f"{words}: AUC {auc:.3f} mAP {ap:.3f} over {len(each)} seeds")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    sys.exit(main())
