"""Students of released labels, a logistic regression per label, and the model that sees the private rows."""

import numpy as np
from accounting import Voting
from cells import DELTA, Bench, measure_cell, release
from data import Data
from ensembles import Models, fit_models
from scores import scores


def judged(data: Data, model: Models, first: int | None = None) -> dict[str, float]:
    """Return the measures of a model on the held-out rows, and the area under the curve of every label."""
    truth = data.y_test[:, :first]
    ranked = model.scores(data.X_test)
    found = scores(truth, (ranked > 0).astype(np.uint8), ranked)
    return found | by_label(truth, ranked)


def by_label(truth: np.ndarray, ranked: np.ndarray) -> dict[str, float]:
    """Return the area under the curve of the first five labels."""
    return {
        f"auc{i}": scores(truth[:, [i]], (ranked[:, [i]] > 0).astype(np.uint8), ranked[:, [i]])["auc"]
        for i in range(min(5, truth.shape[1]))
    }


def open_student(bench: Bench, name: str, first: int | None = None) -> dict[str, float]:
    """Return the measures of the model trained on the private rows themselves: no privacy at all."""
    data = bench.data(name)
    k = first or data.n_labels
    return bench.kept(
        f"{name}-{k}-open", lambda: judged(data, fit_models(data.X, data.y[:, :k], C=1.0), first)
    )


def student(
    bench: Bench, name: str, seed: int, voting: Voting, accountant: str, epsilon: float, *,
    first: int | None = None, delta: float = DELTA,
) -> dict[str, float]:  # fmt: skip
    """Return the measures of a student of the queries that an accountant lets epsilon answer."""
    data = bench.data(name)
    k = first or data.n_labels

    def measure() -> dict[str, float]:
        counts = measure_cell(bench, name, seed, voting, first=first, delta=delta)
        n = min(int(counts[f"{accountant}/{epsilon:g}"]), len(data.y_public))
        if n == 0:
            return {"n": 0}
        said = release(bench, name, seed, voting, first)[:n]
        return {"n": n} | judged(data, fit_models(data.X_public[:n], said), first)

    return bench.kept(f"{name}-{seed}-{k}-{voting.key}-{accountant}-{epsilon:g}-{delta:g}-student", measure)
