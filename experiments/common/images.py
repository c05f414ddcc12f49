"""Image data sets as the papers split them: ballots on the public pool, the pool, and the held-out images."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tellers import Votes
from tellers.data import mnist, svhn
from tellers.teachers import partition, train_ensemble

HERE = Path(__file__).resolve().parents[1]
BUNDLED = {
    250: HERE.parent / "examples" / "mnist_votes.npz",
    100: HERE / "pate2017" / "votes_100.npz",
    10: HERE / "pate2017" / "votes_10.npz",
}


@dataclass(frozen=True, eq=False)
class Images:
    """Public pool, its true labels to judge by, held-out test images, and the votes of each ensemble."""

    name: str
    truth: np.ndarray
    votes: dict[int, Votes]
    delta: float
    image_shape: tuple[int, ...]
    X_pool: np.ndarray | None = None
    X_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def largest(self) -> Votes:
        """Return the votes of the largest ensemble."""
        return self.votes[max(self.votes)]

    @property
    def can_teach(self) -> bool:
        """Say whether the images themselves are at hand, and not the votes alone."""
        return self.X_pool is not None


def load_mnist(
    data_dir: Path | None,
    *,
    train: bool = False,
    sizes: tuple[int, ...] = (10, 100, 250),
    epochs: int = 60,
    teacher: str = "cnn",
    keep: Path | None = None,
) -> Images:
    """Return MNIST: the first 9,000 test images are the pool, the last 1,000 are held out.

    Ballots come from the kept files; with `train` the ensembles are trained here instead, and their ballots
    written to the folder `keep`.
    """
    notes, votes, X_pool, X_test, y_test = [], {}, None, None, None
    truth = np.load(BUNDLED[250])["truth"].astype(np.int64)
    try:
        test = mnist("test", data_dir=data_dir)
        X_pool, X_test, y_test = test.X[:9000], test.X[9000:], test.y[9000:]
    except (FileNotFoundError, ValueError) as error:
        print(f"NO IMAGES: {error}", file=sys.stderr)
    for n_teachers in sizes:
        if train and X_pool is not None:
            data = mnist("train", data_dir=data_dir)
            made = {"image_shape": (28, 28), "epochs": epochs, "teacher": teacher}
            votes[n_teachers] = train_votes(data.X, data.y, X_pool, n_teachers=n_teachers, **made)
            if keep is not None:
                ballots = np.asarray(votes[n_teachers].ballots, dtype=np.uint8)
                about = f"{teacher}, {epochs} epochs"
                np.savez_compressed(
                    keep / f"votes_{n_teachers}.npz",
                    ballots=ballots,
                    truth=truth.astype(np.uint8),
                    about=about,
                )
            notes.append(f"The {n_teachers} teachers ({teacher}) were trained in this run, {epochs} epochs.")
        elif n_teachers in BUNDLED and BUNDLED[n_teachers].is_file():
            kept = np.load(BUNDLED[n_teachers])
            votes[n_teachers] = Votes.from_ballots(kept["ballots"].astype(np.int64), n_classes=10)
            about = f" ({kept['about']})" if "about" in kept else ""
            place = BUNDLED[n_teachers].relative_to(HERE.parent)
            notes.append(f"Ballots of {n_teachers} teachers: {place}{about}.")
        else:
            print(f"NO VOTES of {n_teachers} teachers: run with --train to train them.", file=sys.stderr)
    return Images("MNIST", truth, votes, 1e-5, (28, 28), X_pool, X_test, y_test, tuple(notes))


def load_svhn(data_dir: Path | None, *, sizes: tuple[int, ...], epochs: int, teacher: str = "cnn") -> Images:
    """Return SVHN: teachers learn from train and extra, the first 10,000 test images are the pool.

    No ballots are kept for it, so the teachers are always trained here. Smaller files give a smaller pool.
    """
    parts = [svhn(part, data_dir=data_dir) for part in ("train", "extra")]
    X, y = np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts])
    test = svhn("test", data_dir=data_dir)
    n_pool = min(10_000, len(test) // 2)
    pool, held = test.X[:n_pool], test.X[n_pool:]
    made = {"image_shape": (32, 32, 3), "epochs": epochs, "teacher": teacher}
    votes = {n: train_votes(X, y, pool, n_teachers=n, **made) for n in sizes}
    notes = (f"{len(X):,} training images, {n_pool:,} in the pool, {len(test) - n_pool:,} held out.",)
    return Images("SVHN", test.y[:n_pool], votes, 1e-6, (32, 32, 3), pool, held, test.y[n_pool:], notes)


def train_votes(
    X: np.ndarray,
    y: np.ndarray,
    pool: np.ndarray,
    *,
    n_teachers: int,
    image_shape: Any,
    epochs: int,
    teacher: str = "cnn",
) -> Votes:
    """Train one small convolutional network per teacher, on GPU or CPU, and let them vote on the pool.

    `teacher="logistic"` trains a linear model instead, which needs no torch.
    """
    parts = partition(len(X), n_teachers, seed=7)
    print(f"training {n_teachers} teachers ({teacher}) ...", file=sys.stderr)
    if teacher == "logistic":
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(max_iter=200)
        return train_ensemble(model, X, y, parts, n_classes=10, seed=7).vote(pool)
    try:
        network = network_of(image_shape, epochs=epochs)
    except ImportError as error:
        sys.exit(f"Training networks needs torch: pip install 'tellers[torch]' ({error})")
    return train_ensemble(network, X, y, parts, n_classes=10, seed=7).vote(pool)


def network_of(image_shape: Any, *, epochs: int, random_state: int | None = None) -> Any:
    """Return the small convolutional network, for teachers and students alike."""
    from tellers.nn.classifier import TorchClassifier

    return TorchClassifier(
        "cnn",
        epochs=epochs,
        rotation=7.5,
        shift=0.07,
        image_shape=image_shape,
        n_classes=10,
        random_state=random_state,
    )


def has_network() -> bool:
    """Say whether torch and the torch teachers can be used."""
    try:
        import tellers.teachers.torch  # noqa: F401
    except ImportError:
        return False
    return True
