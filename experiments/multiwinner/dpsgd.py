"""The baseline: a network trained on the private rows by noisy, clipped gradients (DP-SGD, by Opacus).

Its neighbours differ by one row, added or taken away; those of the votes by everything behind one teacher.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from data import Data
from scores import scores
from students import by_label

EPOCHS, BATCH, HIDDEN, CLIP = 10, 512, 32, 1.0
LAST_NOISE = 0.5  # of the first step's noise, at the last one, where it decays


@dataclass(frozen=True)
class Recipe:
    """What is trained (linear, all layers, the last layer), and whether the noise decays linearly."""

    layers: str
    decay: bool

    @property
    def key(self) -> str:
        """Return the name under which its results are kept."""
        return f"{self.layers}-{'decay' if self.decay else 'constant'}"

    @property
    def words(self) -> str:
        """Return how it is called in tables."""
        named = {"linear": "linear model", "all": "network, all layers", "last": "network, last layer"}
        return f"DP-SGD, {named[self.layers]}, {'linearly decaying' if self.decay else 'constant'} noise"


RECIPES = tuple(Recipe(layers, decay) for layers in ("linear", "all", "last") for decay in (False, True))


def can_train() -> bool:
    """Return whether Opacus is there."""
    try:
        import opacus  # noqa: F401
    except ImportError:
        return False
    return True


def calibrated(recipe: Recipe, n_rows: int, epsilon: float, delta: float, epochs: int) -> float:
    """Return the first step's noise with which the whole training costs epsilon, by its Rényi cost."""
    rate, n_steps = _steps(n_rows, epochs)
    low, high = 0.2, 50.0
    while high / low > 1.01:
        middle = (low * high) ** 0.5
        if _epsilon([(middle * f, n) for f, n in _fractions(recipe, n_steps)], rate, delta) > epsilon:
            low = middle
        else:
            high = middle
    return high


def train(
    data: Data, recipe: Recipe, epsilon: float, *, delta: float, seed: int, **how: Any
) -> dict[str, float]:
    """Return the measures of a network trained within epsilon, on the held-out rows."""
    import torch
    from opacus import PrivacyEngine
    from opacus.schedulers import LambdaNoise

    first, epochs, rate = how.get("first"), how.get("epochs", EPOCHS), how.get("rate", 1.0)
    torch.manual_seed(seed)
    X, X_test = (torch.tensor(_dense(part), dtype=torch.float32) for part in (data.X, data.X_test))
    y = torch.tensor(data.y[:, :first], dtype=torch.float32)
    noise = calibrated(recipe, len(y), epsilon, delta, epochs)
    n_steps = _steps(len(y), epochs)[1]
    model = _model(recipe, X.shape[1], y.shape[1])
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=BATCH)
    # Labels are rare: a yes weighs as much as all the noes, by the declared number of labels of an example.
    weight = torch.full((y.shape[1],), data.n_labels / data.setting.typical - 1)
    loss = torch.nn.BCEWithLogitsLoss(pos_weight=weight)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = PrivacyEngine(accountant="rdp")
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=torch.optim.SGD(learned, lr=rate * BATCH / 256, momentum=0.5),
            data_loader=loader, noise_multiplier=noise, max_grad_norm=CLIP,
            noise_generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        scheduler = LambdaNoise(optimizer, noise_lambda=lambda step: _factor(recipe, step, n_steps))
        for _ in range(epochs):
            for some, truth in loader:
                optimizer.zero_grad()
                loss(model(some), truth).backward()
                optimizer.step()
                scheduler.step()
    with torch.no_grad():
        ranked = model(X_test).numpy()
    truth = data.y_test[:, :first]
    found = scores(truth, (ranked > 0).astype(np.uint8), ranked) | by_label(truth, ranked)
    pieces = [(noise * factor, n) for factor, n in _fractions(recipe, n_steps)]
    return found | {"epsilon": _epsilon(pieces, _steps(len(y), epochs)[0], delta), "noise": noise}


def _model(recipe: Recipe, n_features: int, n_labels: int) -> Any:
    import torch

    if recipe.layers == "linear":
        return torch.nn.Linear(n_features, n_labels)
    model = torch.nn.Sequential(
        torch.nn.Linear(n_features, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, n_labels)
    )
    if recipe.layers == "last":  # the rest stays as it was drawn: there is no network trained elsewhere
        model[0].requires_grad_(False)
    return model


def _factor(recipe: Recipe, step: int, n_steps: int) -> float:
    return 1 - (1 - LAST_NOISE) * min(step / max(n_steps - 1, 1), 1.0) if recipe.decay else 1.0


def _fractions(recipe: Recipe, n_steps: int) -> list[tuple[float, int]]:
    """Noise of every step relative to the first, in eight pieces, each at its least noise."""
    if not recipe.decay:
        return [(1.0, n_steps)]
    pieces = np.array_split(np.arange(n_steps), min(8, n_steps))
    return [(_factor(recipe, int(piece[-1]), n_steps), piece.size) for piece in pieces]


def _steps(n_rows: int, epochs: int) -> tuple[float, int]:
    n_batches = -(-n_rows // BATCH)
    return 1 / n_batches, n_batches * epochs


def _epsilon(pieces: list[tuple[float, int]], rate: float, delta: float) -> float:
    from opacus.accountants.analysis.rdp import compute_rdp, get_privacy_spent

    orders = [1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 63]
    total = np.zeros(len(orders))
    for sigma, n in pieces:
        total += compute_rdp(q=rate, noise_multiplier=sigma, steps=n, orders=orders)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(get_privacy_spent(orders=orders, rdp=total, delta=delta)[0])


def _dense(X: Any) -> np.ndarray:
    return X.toarray() if hasattr(X, "toarray") else np.asarray(X)


def baseline(
    bench: Any, name: str, recipe: Recipe, epsilon: float, *, delta: float, seed: int, **how: Any
) -> dict[str, float]:
    """Return the measures of a trained baseline, kept like every other cell."""
    data = bench.data(name)
    words = f"{name}-{how.get('first') or data.n_labels}-dpsgd-{recipe.key}-{epsilon:g}-{delta:g}-{seed}"
    return bench.kept(words, lambda: train(data, recipe, epsilon, delta=delta, seed=seed, **how))
