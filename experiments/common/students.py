"""The students of the image experiments: supervised, where the papers' own are semi-supervised."""

from typing import Any

import numpy as np

from tellers.students import fit_supervised

from .images import Images, has_network, network_of

NAMES = {
    "svc": "support vectors on pixels",
    "cnn": "small convolutional network, turned and shifted images",
    "logistic": "logistic regression on pixels",
}


def student_kinds(wanted: str, *, quick: bool) -> list[str]:
    """Return which students to teach: the network needs torch and time."""
    if wanted != "auto":
        return wanted.split(",")
    return ["svc"] if quick or not has_network() else ["svc", "cnn"]


def quick_kinds(wanted: str) -> list[str]:
    """Return which students to teach many times over: without the network, unless it was asked for."""
    return ["svc"] if wanted == "auto" else wanted.split(",")


def make_student(kind: str, images: Images, *, n_labels: int = 1000) -> Any:
    """Return an untaught student."""
    if kind == "svc":
        from sklearn.svm import SVC

        return SVC(C=10.0)
    if kind == "logistic":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=300)
    if kind == "cnn":
        # About as many steps for few labels as for many.
        epochs = int(np.clip(40_000 / max(n_labels, 1), 20, 200))
        return network_of(images.image_shape, epochs=epochs)
    raise ValueError(f"Expected a student of {', '.join(NAMES)}, got {kind!r}.")


def teach(kind: str, images: Images, rows: np.ndarray, labels: np.ndarray, *, seed: int) -> float:
    """Return the held-out accuracy of a student of some labelled rows of the pool."""
    assert images.X_pool is not None
    estimator = make_student(kind, images, n_labels=int((labels >= 0).sum()))
    student = fit_supervised(estimator, images.X_pool[rows], labels, seed=seed)
    return accuracy(student, images)


def accuracy(student: Any, images: Images) -> float:
    """Return the share of held-out images a student names rightly."""
    return float(np.mean(np.asarray(student.predict(images.X_test)) == images.y_test))
