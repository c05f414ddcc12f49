"""The paper's four measures: accuracy, balanced accuracy, area under the curve, mean average precision."""

import numpy as np

from tellers.data import measure

NAMES = {"acc": "ACC", "bac": "BAC", "auc": "AUC", "map": "mAP"}


def scores(truth: np.ndarray, said: np.ndarray, ranked: np.ndarray | None = None) -> dict[str, float]:
    """Return the measures of answers (0 or 1) and, where there are scores, of their ranking.

    Means over the labels that have examples of both kinds. Released labels are their own ranking: the area
    under the curve of a yes or no is the balanced accuracy, in the paper's tables as well.
    """
    found = {"acc": float(np.mean(said == truth)), "bac": np.nan, "auc": np.nan, "map": np.nan}
    both = (truth.min(axis=0) == 0) & (truth.max(axis=0) == 1)
    if both.any():
        told = measure(truth[:, both], said[:, both], scores=None if ranked is None else ranked[:, both])
        found |= {"bac": told.balanced_accuracy, "auc": told.auc, "map": told.mean_average_precision}
    return found
