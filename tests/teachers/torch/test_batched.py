"""Batched networks: what each teacher learns is what it would have learned alone, whoever else is there."""

import numpy as np
import pytest
import torch
from torch import nn

from tellers.nn import teacher_training
from tellers.nn.batched import Batched, Stack, fold_layers
from tellers.nn.networks import KeyedDropout, build_network, keep_mask
from tellers.nn.teacher_training import (
    BLOCK,
    Recipe,
    TrainingSet,
    batches,
    train_alone,
    train_together,
)
from tellers.nn.views import turn_and_shift
from tellers.teachers.torch.ensemble import why_not_batched

CPU = torch.device("cpu")
SHAPE = (1, 8, 8)


def deep():
    """Every kind of layer that is folded."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3),
        nn.Conv2d(4, 6, 3, stride=2, dilation=2, bias=False), nn.LeakyReLU(), nn.AvgPool2d(2, padding=1),
        nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(24, 8, bias=False)),
        nn.BatchNorm1d(8, affine=False), nn.Tanh(), nn.Linear(8, 3),
    )  # fmt: skip


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 8), nn.ReLU(), nn.BatchNorm1d(8), nn.Linear(8, 3),
    )  # fmt: skip


def depthwise():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3, groups=4), nn.GELU(), nn.Flatten(), nn.Linear(128, 3)
    )


class Residual(nn.Module):
    """Not a sequence: for torch.func."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop = nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(0.4)
        self.second, self.last = nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, rows):
        hidden = torch.relu(self.norm(self.first(rows.flatten(1))))
        return self.last(hidden + self.drop(self.second(hidden)))


class Tied(nn.Module):
    """One layer used twice."""

    def __init__(self):
        super().__init__()
        self.first, again, drop = nn.Linear(64, 16), nn.Linear(16, 16), nn.Dropout(0.2)
        self.rest = nn.Sequential(again, nn.ReLU(), drop, again, drop, nn.Linear(16, 3))

    def forward(self, rows):
        return self.rest(self.first(rows.flatten(1)))


NETWORKS = {"deep": deep, "cnn": small_cnn, "depthwise": depthwise, "residual": Residual}


def networks(factory, seeds):
    made = [build_network(factory, SHAPE, n_classes=3, seed=seed) for seed in seeds]
    # In double precision what differs is a mistake, and not the last digits that Adam blows up.
    return [network.double() for network in made]


def lesson(sizes, *, seed=3, first=100, **recipe):
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    how = Recipe(
        **{"epochs": 3, "batch_size": 6, "rotation": 10.0, "shift": 0.1, "weight_decay": 1e-3, **recipe}
    )
    X, y = rng.normal(size=(n, *SHAPE)), rng.integers(3, size=n)
    return TrainingSet(X, y, sizes, [first + k for k in range(len(sizes))], how)


def one_of(whole, number):
    start = sum(whole.sizes[:number])
    own = slice(start, start + whole.sizes[number])
    return TrainingSet(whole.X[own], whole.y[own], [whole.sizes[number]], [whole.seeds[number]], whole.recipe)


@pytest.fixture(autouse=True)
def _doubles(monkeypatch):
    """Draw moves in double precision too, so that rows stay doubles."""

    def doubles(*given, **named):
        return ((rows, moves.astype(np.float64)) for rows, moves in batches(*given, **named))

    monkeypatch.setattr(teacher_training, "batches", doubles)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("convolution", ["grouped", "unfold"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_batched_teacher_is_the_one_trained_alone(name, convolution):
    """Unequal parts, one smaller than a batch: weights, running statistics and counters are the same."""
    whole = lesson([20, 13, 4, 20])
    options = Batched(convolution=convolution)
    made = networks(NETWORKS[name], whole.seeds)
    assert Stack.of(made, shape=SHAPE).how == ("vmap" if name == "residual" else "folded")
    together = train_together(made, whole, shape=SHAPE, device=CPU, options=options)
    for number, network in enumerate(networks(NETWORKS[name], whole.seeds)):
        alone = train_alone(network, one_of(whole, number), device=CPU)
        assert together.states.keys() == alone.states.keys()
        for key, values in alone.states.items():
            torch.testing.assert_close(together.states[key][number], values[0], rtol=1e-6, atol=1e-8)
            if key.endswith("num_batches_tracked"):
                assert values[0] == whole.n_steps[number]


@pytest.mark.parametrize("convolution", ["grouped", "unfold"])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("change", ["rows", "labels", "size", "infinite"])
def test_what_one_teacher_learns_from_moves_no_other(name, convolution, change):
    """The privacy argument: bit for bit, also through batch norm, also where the part changes its size."""
    whole = lesson([20, 13, 8, 8])
    X, y, sizes = whole.X.copy(), whole.y.copy(), list(whole.sizes)
    own = slice(20, 33)
    if change == "rows":
        X[own] = 50 * X[own] + 3
    elif change == "labels":
        y[own] = (y[own] + 1) % 3
    elif change == "infinite":
        X[own] = np.inf
    else:
        X, y, sizes[1] = np.delete(X, np.arange(22, 33), axis=0), np.delete(y, np.arange(22, 33)), 2
    other = TrainingSet(X, y, sizes, whole.seeds, whole.recipe)
    options = Batched(convolution=convolution)
    before, after = (
        train_together(networks(NETWORKS[name], whole.seeds), it, shape=SHAPE, device=CPU, options=options)
        for it in (whole, other)
    )
    weights = [key for key in before.states if "num_batches" not in key]
    for key in weights:
        for number in (0, 2, 3):
            assert torch.equal(before.states[key][number], after.states[key][number]), (key, number)
    assert any(not torch.equal(before.states[key][1], after.states[key][1]) for key in weights)
    assert after.lost == ([1] if change == "infinite" else [])


def test_a_teacher_does_not_know_who_else_is_there():
    whole = lesson([20, 13, 8])
    three = train_together(networks(deep, whole.seeds), whole, shape=SHAPE, device=CPU, options=Batched())
    last = one_of(whole, 2)
    one = train_together(networks(deep, last.seeds), last, shape=SHAPE, device=CPU, options=Batched())
    for key, values in one.states.items():
        torch.testing.assert_close(three.states[key][2], values[0], rtol=1e-6, atol=1e-8)


def test_shared_rows_are_seen_by_every_teacher():
    rows = torch.randn(5, *SHAPE, generator=torch.Generator().manual_seed(3))
    for factory in NETWORKS.values():
        made = networks(factory, (1, 2, 3))
        expected = torch.stack([network.eval()(rows) for network in made])
        stack = Stack.of(made, shape=SHAPE)
        torch.testing.assert_close(stack(rows, training=False, shared=True), expected)
        together = stack(rows.expand(3, *rows.shape), training=False)
        torch.testing.assert_close(together, expected)


# --- What can be batched, and what is said of the rest. ---


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, rows):
        return nn.functional.dropout(self.layer(rows.flatten(1)), 0.5, self.training)


class Peeking(nn.Module):
    """Decides by looking at the rows, which torch.func cannot follow."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 3)

    def forward(self, rows):
        made = self.layer(rows.flatten(1))
        return made if made.sum() > 0 else -made


def test_networks_that_cannot_be_batched_say_why():
    torch.set_default_dtype(torch.float32)
    for factory in (deep, Residual):
        assert why_not_batched(build_network(factory, SHAPE, n_classes=3, seed=3), SHAPE) == ""
    assert (
        why_not_batched(build_network(Tied, SHAPE, n_classes=3, seed=3), SHAPE) == "its layers share weights"
    )
    assert why_not_batched(Noisy(), SHAPE) == "it draws random numbers of its own"
    assert why_not_batched(Peeking(), SHAPE) == "torch.func does not take it (RuntimeError)"


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([nn.Flatten(), nn.Conv2d(1, 1, 3)], "Conv2d does not get images"),
        ([nn.Linear(8, 3)], "Linear does not get rows"),
        ([nn.Flatten(2)], "Flatten keeps some axes"),
        ([nn.Conv2d(1, 1, 3, padding="same")], "pads in another way"),
        ([nn.BatchNorm2d(1, momentum=None)], "no momentum"),
        ([nn.MaxPool2d(2, return_indices=True)], "indices"),
        ([nn.Flatten(), nn.LayerNorm(64)], "LayerNorm is not one"),
    ],
)
def test_what_is_not_folded_is_named(layers, why):
    assert why in fold_layers(nn.Sequential(*layers), SHAPE)


def test_layers_that_share_weights_are_not_folded():
    layer = nn.Linear(64, 64)
    assert "share" in fold_layers(nn.Sequential(nn.Flatten(), layer, nn.ReLU(), layer), SHAPE)


# --- What is drawn. ---


def test_every_row_comes_equally_often():
    recipe = Recipe(epochs=1, batch_size=10)
    stream = batches(7, recipe, seed=3)
    rows = np.concatenate([next(stream)[0].ravel() for _ in range(7)])
    assert (np.bincount(rows, minlength=7) == len(rows) / 7).all()
    for start in range(0, 70, 7):
        assert sorted(rows[start : start + 7]) == list(range(7))


def test_streams_depend_on_their_seed_alone():
    recipe = Recipe(epochs=1, batch_size=5, shift=0.1)
    known = TrainingSet(np.zeros((18, 1)), np.zeros(18), [9, 9], [1, 2], recipe)
    both, _ = next(known.blocks())
    alone, _ = next(batches(9, recipe, seed=2))
    np.testing.assert_array_equal(both[:, 1], alone + 9)
    assert (both[:, 0] != alone).any()
    assert both.shape == (BLOCK, 2, 5)


def test_dropout_keeps_its_share_and_masks_differ():
    """Shares of 200,000 draws lie within five standard deviations: false alarms below one in a million."""
    zero, one, n = torch.tensor(0, dtype=torch.int32), torch.tensor(1, dtype=torch.int32), 200_000
    for p in (0.1, 0.5, 0.9):
        masks = [keep_mask(key, count, n=n, p=p) for key, count in ((zero, zero), (zero, one), (one, zero))]
        for mask in masks:
            assert abs(mask.double().mean().item() - (1 - p)) < 5 * (p * (1 - p) / n) ** 0.5
        for other in masks[1:]:
            agreed = (masks[0] == other).double().mean().item()
            expected = p**2 + (1 - p) ** 2
            assert abs(agreed - expected) < 5 * (expected * (1 - expected) / n) ** 0.5


def test_dropout_in_training_and_evaluation():
    layer, rows = KeyedDropout(0.25, key=9), torch.ones(100, 100)
    made = layer(rows)
    assert set(made.unique().tolist()) == {0.0, 4 / 3}
    assert not torch.equal(made, layer(rows))  # the next mask is another
    assert torch.equal(layer.eval()(rows), rows)


def test_turning_and_shifting():
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    still = turn_and_shift(image, torch.zeros(1, 3), rotation=30, shift=0.2)
    torch.testing.assert_close(still, image)
    quarter = turn_and_shift(image, torch.tensor([[1.0, 0, 0]]), rotation=90, shift=0)
    torch.testing.assert_close(quarter, torch.rot90(image, 1, (2, 3)))
    down = turn_and_shift(image, torch.tensor([[0, 0, -1.0]]), rotation=0, shift=0.25)
    torch.testing.assert_close(down[0, 0, 1:], image[0, 0, :-1])
    assert (down[0, 0, 0] == 0).all()
