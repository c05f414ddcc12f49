"""Students of the released labels: a network on MNIST, a forest on Adult, as in the paper."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from ensembles import Data
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from tellers.teachers import Partition

# What one student learns from, and what it is judged by: rows of the data set, their labels, test rows.
Lesson = tuple[np.ndarray, np.ndarray, np.ndarray]
TOGETHER = 250


def teach(data: Data, lessons: Sequence[Lesson], *, seed: int) -> list[float]:
    """Return the held-out accuracy of one student per lesson; of none at all where there was no label."""
    taught = [at for at, (rows, _, _) in enumerate(lessons) if len(rows) > 0]
    scores = np.zeros(len(lessons))
    if data.name == "mnist":
        scores[taught] = _teach_networks(data, [lessons[at] for at in taught], seed=seed)
        return scores.tolist()
    for at in taught:
        rows, labels, test = lessons[at]
        if np.unique(labels).size == 1:
            said = np.full(len(test), labels[0])
        else:
            model: Any = LogisticRegression(max_iter=200)
            if data.name == "adult":
                model = RandomForestClassifier(100, random_state=seed)
            said = model.fit(data.X[rows], labels).predict(data.X[test])
        scores[at] = float(np.mean(said == data.y[test]))
    return scores.tolist()


def _teach_networks(data: Data, lessons: Sequence[Lesson], *, seed: int) -> np.ndarray:
    """Train students of about equal lessons together: they are an ensemble, each with rows of its own."""
    from tellers.nn.classifier import TorchClassifier
    from tellers.teachers import train_ensemble

    sizes = np.array([len(rows) for rows, _, _ in lessons])
    order = np.argsort(sizes, kind="stable")
    scores = np.zeros(len(lessons))
    for start in range(0, len(order), TOGETHER):
        batch = order[start : start + TOGETHER]
        rows = np.concatenate([lessons[at][0] for at in batch])
        labels = np.concatenate([lessons[at][1] for at in batch]).astype(np.int64)
        ends = np.cumsum(sizes[batch])
        parts = Partition(tuple(np.split(np.arange(len(rows)), ends[:-1])), unit="one record")
        # About as many steps for few labels as for many.
        epochs = int(np.clip(40_000 / np.median(sizes[batch]), 20, 200))
        network = TorchClassifier(
            "cnn", epochs=epochs, batch_size=40, rotation=7.5, shift=0.07, image_shape=(28, 28)
        )
        made = train_ensemble(network, data.X[rows], labels, parts, n_classes=10, seed=seed)
        asked = np.unique(np.concatenate([lessons[at][2] for at in batch]))
        said = made.vote(data.X[asked]).ballots
        assert said is not None
        for at, own in zip(batch, said, strict=True):
            test = lessons[at][2]
            scores[at] = np.mean(own[np.searchsorted(asked, test)] == data.y[test])
    return scores
