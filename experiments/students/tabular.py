"""Adult at epsilon 1 and 2: which student of few noisy labels does best, beside what is not private.

    python experiments/students/tabular.py [--data DIR] [--out FILE] [--seeds 10] [--plan-seeds 2]

1. A seed halves the 16,281 test rows: one half is the public pool, the other judges. The 32,561 training rows
   are private and dealt to teachers, one linear model each.
2. Teachers, noise, order and the number of questions are planned on public columns (`proxies.py`), before
   any vote is seen; for a public epsilon the number of questions follows from the price alone.
3. GNMax answers, and every student learns from the same answers and the rest of the pool.

CPU alone, about 20 minutes on one core. `run.py` prints the tables of what this leaves behind.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
from columns import columns_of  # noqa: E402
from proxies import DELTA, N_PRIVATE, Plan, make_plans, ordered, teacher  # noqa: E402
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.metrics import balanced_accuracy_score, roc_auc_score  # noqa: E402

from tellers import GNMax, Votes, exact_cost, noise  # noqa: E402
from tellers.accounting.costs import independent_cost  # noqa: E402
from tellers.data import Dataset, adult  # noqa: E402
from tellers.students import fit_self_taught, fit_supervised  # noqa: E402
from tellers.teachers import (  # noqa: E402
    partition,
    train_ensemble,
)

MODELS: dict[str, Any] = {
    "logistic": LogisticRegression(C=0.3, max_iter=500),
    "forest": RandomForestClassifier(n_estimators=100, min_samples_leaf=5),
    "boosting": HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, learning_rate=0.1),
}


def networks(steps: int) -> dict[str, Any]:
    """Return the students that need torch: a mean teacher, and its supervised counterpart."""
    try:
        import torch

        from tellers.students.torch import MeanTeacherStudent
    except ImportError as error:
        print(f"SKIPPED: networks ({error}). pip install 'tellers[torch]'", file=sys.stderr)
        return {}
    torch.set_num_threads(1)
    made = {"network": "mlp", "n_classes": 2, "steps": steps, "batch_size": 64, "pool_batch_size": 192}
    return {
        "mlp, labels alone": MeanTeacherStudent(weight=0.0, **made),
        "mlp, mean teacher": MeanTeacherStudent(**made),
    }


def judge(model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return accuracy, balanced accuracy and the area under the curve."""
    said = model.predict(X)
    return {
        "accuracy": float(np.mean(said == y)),
        "balanced": float(balanced_accuracy_score(y, said)),
        "auc": float(roc_auc_score(y, model.predict_proba(X)[:, 1])),
    }


def teach(
    X: np.ndarray, labels: np.ndarray, rest: np.ndarray, *, seed: int, steps: int
) -> dict[str, tuple[Any, float]]:
    """Return every student of the same labels, and how many seconds it took."""
    made: dict[str, tuple[Any, float]] = {}
    for name, model in MODELS.items():
        start = time.perf_counter()
        made[f"{name}, labels alone"] = (fit_supervised(model, X, labels, seed=seed), _since(start))
        start = time.perf_counter()
        made[f"{name}, self-taught"] = (fit_self_taught(model, X, labels, rest, seed=seed), _since(start))
    for name, model in networks(steps).items():
        start = time.perf_counter()
        made[name] = (model.__class__(**{**model.get_params(), "random_state": seed}), 0.0)
        made[name] = (made[name][0].fit(X, labels, rest), _since(start))
    return made


def run_seed(
    train: Dataset, test: Dataset, plans: dict[str, Plan], *, seed: int, steps: int
) -> list[dict[str, Any]]:
    """Return the results of one seed: its own split, teachers, order, noise and students."""
    rng = np.random.default_rng(seed)
    pool, held = np.array_split(rng.permutation(len(test)), 2)
    public = test.X[pool]  # what scales the columns of everybody
    X_private, X_pool, X_test = (columns_of(X, public) for X in (train.X, public, test.X[held]))
    y_test = test.y[held]
    told = {"seed": seed}
    rows: list[dict[str, Any]] = [
        {**told, "plan": "none", "student": "the larger class alone", "accuracy": float(np.mean(y_test == 0)),
         "balanced": 0.5, "auc": 0.5}
    ]  # fmt: skip
    for name in ("logistic", "boosting"):
        model = fit_supervised(MODELS[name], X_private, train.y, seed=seed)
        rows.append(
            {**told, "plan": "none", "student": f"{name}, all private rows", **judge(model, X_test, y_test)}
        )
    votes_of: dict[tuple[int, float], tuple[Votes, Votes]] = {}
    for name, plan in plans.items():
        key = (plan.n_teachers, plan.strength)
        if key not in votes_of:
            parts = partition(N_PRIVATE, plan.n_teachers, seed=seed)
            ensemble = train_ensemble(
                teacher(plan.strength), X_private, train.y, parts, n_classes=2, seed=seed, n_jobs=1
            )
            votes_of[key] = ensemble.vote(X_pool), ensemble.vote(X_test)
            said, shares = votes_of[key][1].counts.argmax(axis=1), votes_of[key][1].counts[:, 1]
            rows.append(
                {**told, "plan": "none", "student": f"plurality of {plan.n_teachers} teachers",
                 "accuracy": float(np.mean(said == y_test)),
                 "balanced": float(balanced_accuracy_score(y_test, said)),
                 "auc": float(roc_auc_score(y_test, shares))}
            )  # fmt: skip
        order = ordered(plan.order, X_pool, seed=seed)
        asked, rest = order[: plan.n_queries], order[plan.n_queries :]
        votes, mechanism = votes_of[key][0][asked], GNMax(plan.sigma)
        labels = mechanism.release(votes, noise.seeded(1000 + seed)).labels
        cost, price = exact_cost(mechanism, votes).cost.reveal(), independent_cost(mechanism, len(asked))
        spent = {
            "plan": name, "n_labels": len(asked), "right": float(np.mean(labels == test.y[pool][asked])),
            "epsilon": cost.epsilon(DELTA), "epsilon_smaller_delta": cost.epsilon(DELTA / 10),
            "public_epsilon": price.epsilon(DELTA), "gaps": np.bincount(votes.gap).tolist(),
        }  # fmt: skip
        plain = votes.counts.argmax(axis=1)
        model = fit_supervised(MODELS["logistic"], X_pool[asked], plain, seed=seed)
        shown = {key: value for key, value in spent.items() if key != "gaps"}
        rows.append(
            {**told, **spent, "student": "logistic, labels without noise", **judge(model, X_test, y_test)}
        )
        for kind, (model, seconds) in teach(
            X_pool[asked], labels, X_pool[rest], seed=seed, steps=steps
        ).items():
            rows.append(
                {**told, **shown, "student": kind, **judge(model, X_test, y_test), "seconds": seconds}
            )
    return rows


def main() -> None:
    """Plan, ask and teach."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--data", type=Path, help="data directory (else TELLERS_DATA)")
    parser.add_argument("--out", type=Path, default=HERE / "tabular.json")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--plan-seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=400, help="of a network")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    start = time.perf_counter()
    train, test = (adult(part, data_dir=args.data) for part in ("train", "test"))
    plans = make_plans(test.X, n_seeds=args.plan_seeds, say=True)
    for name, plan in plans.items():
        print(f"[{_since(start):.0f} s] {name}: {plan}", flush=True)
    rows: list[dict[str, Any]] = []
    for seed in range(args.seeds):
        rows += run_seed(train, test, plans, seed=seed, steps=args.steps)
        content = {
            "command": f"python experiments/students/tabular.py --seeds {args.seeds} --plan-seeds "
            f"{args.plan_seeds} --steps {args.steps}",
            "delta": DELTA,
            "seconds": _since(start),
            "plans": {name: plan.__dict__ for name, plan in plans.items()},
            "rows": [{k: round(v, 5) if isinstance(v, float) else v for k, v in row.items()} for row in rows],
        }
        args.out.write_text(json.dumps(content, indent=0) + "\n")
        print(f"[{_since(start):.0f} s] seed {seed}", flush=True)


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 2)


if __name__ == "__main__":
    main()
