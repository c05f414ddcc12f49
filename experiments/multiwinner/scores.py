"""The paper's four measures: accuracy, balanced accuracy, area under the curve, mean average precision."""

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

NAMES = {"acc": "ACC", "bac": "BAC", "auc": "AUC", "map": "mAP"}


def scores(truth: np.ndarray, said: np.ndarray, ranked: np.ndarray | None = None) -> dict[str, float]:
    """Return the measures of answers (0 or 1) and, where there are scores, of their ranking.

    Means over the labels that have examples of both kinds. Released labels are their own ranking: the area
    under the curve of a yes or no is the balanced accuracy, in the paper's tables as well.
    """
    ranked = said if ranked is None else ranked
    both = [i for i in range(truth.shape[1]) if 0 < truth[:, i].sum() < len(truth)]
    if not both:
        nothing = float("nan")
        return {"acc": float(np.mean(said == truth)), "bac": nothing, "auc": nothing, "map": nothing}
    recalls = [np.mean([np.mean(said[truth[:, i] == kind, i] == kind) for kind in (0, 1)]) for i in both]
    return {
        "acc": float(np.mean(said == truth)),
        "bac": float(np.mean(recalls)),
        "auc": float(np.mean([roc_auc_score(truth[:, i], ranked[:, i]) for i in both])),
        "map": float(np.mean([average_precision_score(truth[:, i], ranked[:, i]) for i in both])),
    }
