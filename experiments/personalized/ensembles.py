"""Ensembles on MNIST, Adult and digits: how the data are split, the teachers trained, their ballots kept.

One ensemble is one file, `mnist-0-base.npz` or `adult-3-random-50-2.npz`: data set, seed, and for upsampled
ones who got the higher budget (at random, or in the minority class), their share in percent, their copies;
where networks learn for another time than usual, how many epochs.
Where the file is there it is read; else the teachers are trained and the file is written.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from tellers import ConfidentGNMax, Votes
from tellers.data import adult, digits, mnist
from tellers.runs.personal import Consent, arrange, read_consent
from tellers.teachers import Partition, partition, train_ensemble

BUNDLED = Path(__file__).resolve().parents[2] / "examples" / "mnist_votes.npz"
EPOCHS = 60  # of the networks
MINORITY = 1  # Adult: an income over 50,000 dollars


@dataclass(frozen=True, eq=False)
class Data:
    """A data set, how it is split, and the mechanism of the paper's table 2."""

    name: str
    n_classes: int
    sizes: tuple[int, int, int]  # private, public, test
    n_teachers: int
    mechanism: ConfidentGNMax
    low: float
    delta: float = 1e-5
    epochs: int = EPOCHS
    X: np.ndarray = field(default_factory=lambda: np.empty((0, 0)), repr=False)
    y: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64), repr=False)

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return private, public and test rows, drawn anew for every ensemble."""
        n_private, _, n_test = self.sizes
        order = np.random.default_rng([seed, n_private]).permutation(sum(self.sizes))
        return order[:n_private], order[n_private:-n_test], order[-n_test:]


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Ballots on the public rows; of upsampled ensembles also which teachers learned from a copied person."""

    name: str
    votes: Votes
    public: np.ndarray
    test: np.ndarray
    truth: np.ndarray
    teams: np.ndarray | None = None
    test_votes: Votes | None = None


def load_data(name: str, data_dir: Path | None, *, epochs: int = EPOCHS) -> Data:
    """Return one of the data sets; networks learn from it for so many epochs."""
    log2 = float(np.log(2))
    if name == "mnist":
        parts = [mnist(part, data_dir=data_dir) for part in ("train", "test")]
        mechanism = ConfidentGNMax(sigma=40.0, threshold=200.0, sigma_threshold=150.0)
        made = Data(name, 10, (60_000, 9_000, 1_000), 250, mechanism, log2)
    elif name == "adult":
        # The paper removed 3,620 damaged rows: those with a missing value.
        parts = [adult(part, data_dir=data_dir, missing="drop") for part in ("train", "test")]
        mechanism = ConfidentGNMax(sigma=40.0, threshold=300.0, sigma_threshold=200.0)
        made = Data(name, 2, (37_222, 7_000, 1_000), 250, mechanism, log2)
    else:
        # As MNIST for fewer teachers, which agree less, and twice its budgets.
        parts = [digits()]
        mechanism = ConfidentGNMax(sigma=16.0, threshold=60.0, sigma_threshold=40.0)
        made = Data(name, 10, (1_000, 697, 100), 100, mechanism, 2 * log2)
    X, y = np.concatenate([part.X for part in parts]), np.concatenate([part.y for part in parts])
    if name == "adult":
        X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    return Data(**{**vars(made), "X": X, "y": y, "epochs": epochs})


def bundled_data() -> Data:
    """Return MNIST without its images, for the ballots that come along."""
    mechanism = ConfidentGNMax(sigma=40.0, threshold=200.0, sigma_threshold=150.0)
    return Data("mnist", 10, (60_000, 9_000, 1_000), 250, mechanism, float(np.log(2)))


def bundled_ensemble() -> Ensemble:
    """Return the ensemble whose ballots come with the package."""
    with np.load(BUNDLED) as kept:
        votes = Votes.from_ballots(kept["ballots"].astype(np.int64), n_classes=10)
        truth = kept["truth"].astype(np.int64)
    everything = np.arange(len(truth))
    return Ensemble("mnist-bundled", votes, everything, everything[:0], truth)


def consent_of(data: Data, seed: int, *, kind: str, ratio: int, factor: int) -> Consent:
    """Give the higher budget to a share of the private rows, at random or within the minority class."""
    private = data.split(seed)[0]
    rng = np.random.default_rng([seed, ratio, factor, kind == "class"])
    who = rng.permutation(np.flatnonzero(data.y[private] == MINORITY) if kind == "class" else len(private))
    budgets = np.full(len(private), data.low)
    budgets[who[: round(who.size * ratio / 100)]] = factor * data.low
    return read_consent(budgets, delta=data.delta)


def get_ensemble(
    data: Data,
    seed: int,
    *,
    kind: str = "base",
    ratio: int = 0,
    copies: int = 1,
    folder: Path,
    train: bool = True,
) -> Ensemble | None:
    """Return an ensemble from its file, or train it; None where it is not there and may not be trained."""
    who = {"kind": kind, "ratio": ratio, "copies": copies}
    path = keep_ensemble(data, seed, folder=folder, **who) if train else _file(data, seed, folder, **who)
    if not path.is_file():
        return None
    with np.load(path) as kept:
        files = {key: kept[key] for key in kept.files}
    teams = None
    if kind != "base":
        teams = teams_of(files["source"], files["teacher"].astype(np.int64), copies)
    test_votes = None
    if "test_ballots" in files:
        test_votes = Votes.from_ballots(files["test_ballots"].astype(np.int64), n_classes=data.n_classes)
    votes = Votes.from_ballots(files["ballots"].astype(np.int64), n_classes=data.n_classes)
    truth = data.y[files["public"]]
    return Ensemble(path.stem, votes, files["public"], files["test"], truth, teams, test_votes)


def keep_ensemble(
    data: Data, seed: int, *, folder: Path, kind: str = "base", ratio: int = 0, copies: int = 1
) -> Path:
    """Return the file of an ensemble, trained where it is not there."""
    path = _file(data, seed, folder, kind=kind, ratio=ratio, copies=copies)
    if not path.is_file():
        made = _train(data, seed, kind=kind, ratio=ratio, copies=copies)
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **made)
        part.rename(path)
    return path


def _file(data: Data, seed: int, folder: Path, *, kind: str, ratio: int, copies: int) -> Path:
    name = f"{data.name}-{seed}" + ("-base" if kind == "base" else f"-{kind}-{ratio}-{copies}")
    return folder / f"{name}{'' if data.epochs == EPOCHS else f'-{data.epochs}-epochs'}.npz"


def teams_of(source: np.ndarray, teacher: np.ndarray, copies: int) -> np.ndarray:
    """Return the teachers of every person who was copied, (persons, copies)."""
    order = np.argsort(source, kind="stable")
    times = np.bincount(source)
    begins = np.cumsum(times) - times
    who = np.flatnonzero(times == copies)
    teams: np.ndarray = teacher[order][begins[who][:, None] + np.arange(copies)]
    return teams


def _train(data: Data, seed: int, *, kind: str, ratio: int, copies: int) -> dict[str, Any]:
    private, public, test = data.split(seed)
    kept: dict[str, Any] = {"private": private, "public": public, "test": test}
    rows = private
    if kind == "base":
        parts = partition(len(private), data.n_teachers, seed=seed)
    else:
        consent = consent_of(data, seed, kind=kind, ratio=ratio, factor=copies)
        made = arrange("upsampling", consent, data.mechanism, n_teachers=data.n_teachers, seed=seed)
        assert made.source is not None
        parts, rows = made.partition, private[made.source]
        teacher = np.empty(len(made.source), dtype=np.int16)
        for at, part in enumerate(parts):
            teacher[part] = at
        kept |= {"source": made.source.astype(np.int32), "teacher": teacher}
    vote = _TRAINERS[data.name](data, rows, parts, seed)
    kept["ballots"] = np.asarray(vote(data.X[public]).ballots, dtype=np.uint8)
    kept["test_ballots"] = np.asarray(vote(data.X[test]).ballots, dtype=np.uint8)
    return kept


Voter = Callable[[np.ndarray], Votes]


def _networks(data: Data, rows: np.ndarray, parts: Partition, seed: int) -> Voter:
    """All networks of an ensemble in one batched program, on the GPU where there is one."""
    from tellers.nn.classifier import TorchClassifier
    from tellers.teachers import train_ensemble

    network = TorchClassifier(
        "cnn", epochs=data.epochs, batch_size=40, rotation=7.5, shift=0.07, image_shape=(28, 28)
    )
    return train_ensemble(network, data.X[rows], data.y[rows], parts, n_classes=10, seed=seed).vote


def _forests(data: Data, rows: np.ndarray, parts: Partition, seed: int) -> Voter:
    return _sklearn(RandomForestClassifier(100), data, rows, parts, seed)


def _linear(data: Data, rows: np.ndarray, parts: Partition, seed: int) -> Voter:
    return _sklearn(LogisticRegression(max_iter=50), data, rows, parts, seed)


def _sklearn(model: Any, data: Data, rows: np.ndarray, parts: Partition, seed: int) -> Voter:
    made = train_ensemble(model, data.X[rows], data.y[rows], parts, n_classes=data.n_classes, seed=seed)
    return made.vote


_TRAINERS = {"mnist": _networks, "adult": _forests, "digits": _linear}
