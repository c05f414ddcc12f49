"""Networks, batches, mixup and weights for sound, on made-up pictures."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from tellers.data.metrics import average_precision
from tellers.errors import MissingExtra
from tellers.nn.loop import FILE, half_cosine
from tellers.nn.losses import class_weights, told_loss
from tellers.nn.networks import make_network, network_factory
from tellers.nn.tagger import (
    AudioClassifier,
    AudioTagger,
    BalancedRows,
    Deck,
    kept_shares,
    mix,
    split_rows,
)
from tellers.nn.weights import fit_weights, load_pretrained
from tellers.privacy import SILENT

FRAMES, BINS, N_LABELS = 24, 16, 3


def made_up(n_rows, *, seed):
    """Noise in decibels, with a band that is louder for each label a row has."""
    generator = np.random.default_rng(seed)
    Y = (generator.random((n_rows, N_LABELS)) < 0.4).astype(np.int64)
    X = generator.normal(-60, 6, size=(n_rows, FRAMES, BINS))
    for label in range(N_LABELS):
        X[:, :, 5 * label : 5 * label + 3] += 25 * Y[:, label, None, None]
    return X.astype(np.float32), Y


def tagger(**changes):
    given = {"iterations": 60, "batch_size": 16, "learning_rate": 5e-3, "device": "cpu", "random_state": 7}
    return AudioTagger("small", **{**given, **changes})


# --- Networks ---


@pytest.mark.parametrize(
    ("name", "n_weights"),
    # The picture networks' convolutions and norms, less two of three input channels; published sizes are
    # 11,689,512 and 21,797,672 with a last layer of 513,000; 9,220,480 and 20,024,384 in the convolutions.
    [
        ("resnet18", 11_689_512 - 513_000 - 2 * 64 * 49),
        ("resnet34", 21_797_672 - 513_000 - 2 * 64 * 49),
        ("vgg11", 9_220_480 - 2 * 64 * 9),
        ("vgg19", 20_024_384 - 2 * 64 * 9),
    ],
)
def test_the_large_networks_have_the_sizes_they_are_known_for(name, n_weights):
    with torch.device("meta"):
        network = make_network(name, shape=(1, 1001, 64), n_labels=7)
    heads = ("head.", "classifier.")
    body = [weight.numel() for part, weight in network.named_parameters() if not part.startswith(heads)]
    assert sum(body) == n_weights
    assert network(torch.zeros(2, 1, 1001, 64, device="meta")).shape == (2, 7)
    assert network(torch.zeros(2, 1, 96, 40, device="meta")).shape == (2, 7)


def test_the_heads_are_those_of_the_thesis():
    with torch.device("meta"):
        resnet = make_network("resnet18", shape=(1, 64, 64), n_labels=7)
        vgg = make_network("vgg11", shape=(1, 64, 64), n_labels=7)
    kinds = [type(layer).__name__ for layer in resnet.head]
    assert kinds == ["Linear", "ReLU", "BatchNorm1d", "Dropout"] * 2 + ["Linear"]
    assert [layer.out_features for layer in resnet.head if hasattr(layer, "out_features")] == [512, 256, 7]
    assert [layer.out_features for layer in vgg.classifier if hasattr(layer, "out_features")] == [
        4096,
        4096,
        7,
    ]
    assert {layer.p for layer in (*resnet.head, *vgg.classifier) if hasattr(layer, "p")} == {0.5}


def test_weights_of_pictures_become_those_of_one_channel(tmp_path):
    network = make_network("resnet18", shape=(1, 64, 64), n_labels=7)
    file = {
        name: torch.ones_like(values) for name, values in network.state_dict().items() if "head" not in name
    }
    file["conv1.weight"] = torch.ones(64, 3, 7, 7)
    file["fc.weight"] = torch.zeros(1000, 512)
    save_file(file, tmp_path / "resnet.safetensors")
    report = load_pretrained(network, tmp_path / "resnet.safetensors")
    assert torch.equal(network.conv1.weight, torch.full((64, 1, 7, 7), 3.0))
    assert torch.equal(network.layer4[1].conv2.weight, torch.ones(512, 512, 3, 3))
    assert report.unused == ("fc.weight",)
    assert all(name.startswith("head.") for name in report.new)
    assert not report.lacking


def test_what_does_not_fit_is_listed(tmp_path):
    network = make_network("small", shape=(1, 64, 64), n_labels=3)
    state = network.state_dict()
    del state["features.1.weight"]
    state["features.5.weight"] = torch.zeros(2, 2)
    state["something"] = torch.zeros(1)
    torch.save(state, tmp_path / "weights.pt")
    with pytest.raises(ValueError, match="the weights of this network") as refused:
        load_pretrained(network, tmp_path / "weights.pt")
    said = str(refused.value)
    assert "features.1.weight: begins anew" in said
    assert "features.5.weight: expected (32, 16, 3, 3), the file has (2, 2)" in said
    assert "something: in the file, not in the network" in said


def test_files_with_code_in_them_are_refused(tmp_path):
    class Trap:
        def __reduce__(self):
            return (sys.exit, (7,))

    network = make_network("small", shape=(1, 64, 64), n_labels=3)
    torch.save({"features.1.weight": Trap()}, tmp_path / "trap.pt")
    with pytest.raises(ValueError, match="weights and nothing else"):
        load_pretrained(network, tmp_path / "trap.pt")
    with pytest.raises(ValueError, match="found none"):
        load_pretrained(network, tmp_path / "nowhere.pt")


def test_a_head_for_other_labels_begins_anew():
    network = make_network("small", shape=(1, 64, 64), n_labels=3)
    other = make_network("small", shape=(1, 64, 64), n_labels=5)
    before = network.head[1].weight.detach().clone()
    report = fit_weights(network, other.state_dict())
    assert {name for name, _, _ in report.other_shape} == {"head.1.weight", "head.1.bias"}
    assert not report.lacking
    assert torch.equal(network.head[1].weight, before)


def test_a_factory_serves_torch_teachers():
    from tellers.nn.classifier import TorchClassifier, TorchLabelClassifier

    X, Y = made_up(30, seed=7)
    factory = network_factory("small", shape=(1, FRAMES, BINS), n_labels=N_LABELS)
    inner = TorchClassifier(factory, epochs=1, batch_size=10, image_shape=(FRAMES, BINS), device="cpu")
    model = TorchLabelClassifier(inner).fit(X.reshape(30, -1) / 60 + 1, Y)
    assert model.predict_proba(X.reshape(30, -1) / 60 + 1).shape == (30, N_LABELS)


def test_a_factory_serves_semi_supervised_students():
    from tellers.students.torch import MultilabelMixMatchStudent

    X, Y = made_up(30, seed=7)
    factory = network_factory("small", shape=(1, FRAMES, BINS), n_labels=N_LABELS)
    student = MultilabelMixMatchStudent(
        network=factory, steps=3, batch_size=8, pool_batch_size=8, image_shape=(FRAMES, BINS), device="cpu",
        random_state=7,
    )  # fmt: skip
    flat = X.reshape(30, -1) / 60 + 1
    assert student.fit(flat[:10], Y[:10], flat[10:]).predict(flat).shape == (30, N_LABELS)


# --- Batches ---

tables = st.integers(1, 12).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([0, 1, SILENT]), min_size=4, max_size=4), min_size=n, max_size=n
    )
)


@given(tables, st.integers(0, 200), st.integers(0, 2**31))
@settings(max_examples=60, deadline=None)
def test_every_group_gets_its_turn_equally_often(table, n_draws, seed):
    Y = np.array(table)
    rows, turns = BalancedRows(Y, seed=seed).draw(n_draws)
    groups = [np.flatnonzero(Y[:, label] == 1) for label in range(4)]
    groups.append(np.flatnonzero(~(Y == 1).any(axis=1)))
    counts = [int((turns == group).sum()) for group, members in enumerate(groups) if members.size]
    assert max(counts) - min(counts) <= 1
    assert sum(counts) == n_draws
    for group, members in enumerate(groups):
        shown = np.bincount(rows[turns == group], minlength=len(Y))
        assert shown.sum() == shown[members].sum()
        if members.size:
            assert shown[members].max() - shown[members].min() <= 1


def test_balanced_batches_show_a_rare_label_as_often_as_a_common_one():
    Y = np.zeros((1000, 2), dtype=np.int64)
    Y[:990, 0], Y[990:, 1] = 1, 1
    rows = BalancedRows(Y, seed=7).take(640)
    assert Y[rows].sum(axis=0).tolist() == [320, 320]
    plain = Deck(np.arange(1000), np.random.default_rng(7)).take(640)
    assert Y[plain].sum(axis=0)[1] <= 10  # there are no more


def test_the_order_is_random_and_the_seeds_own():
    """Which of two labels comes first is a fair coin: |heads - 200| < 60 fails by chance below 2e-9."""
    firsts = [int(BalancedRows([[1, 0], [0, 1]], seed=seed).take(1)[0]) for seed in range(400)]
    assert abs(sum(firsts) - 200) < 60
    again = [int(BalancedRows([[1, 0], [0, 1]], seed=seed).take(1)[0]) for seed in range(400)]
    assert firsts == again


# --- Mixup and weights ---

shares = st.floats(0, 1, width=32)


@given(st.lists(st.tuples(shares, *[st.sampled_from([0.0, 1.0])] * 3), min_size=2, max_size=6))
@settings(max_examples=60, deadline=None)
def test_mixtures_are_convex_and_targets_follow_the_rows(lines):
    weights = torch.tensor([line[0] for line in lines])
    targets = torch.tensor([line[1:] for line in lines])
    # Rows that are their own targets must come out as their targets do.
    mixed, blended = mix(targets[:, None, :, None].clone(), targets, weights=weights)
    assert torch.allclose(mixed[:, 0, :, 0], blended)
    low, high = torch.minimum(targets, targets.roll(-1, 0)), torch.maximum(targets, targets.roll(-1, 0))
    assert ((blended >= low - 1e-6) & (blended <= high + 1e-6)).all()
    assert torch.allclose(blended, weights[:, None] * targets + (1 - weights[:, None]) * targets.roll(-1, 0))


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0, -1.0]), min_size=2, max_size=2), min_size=2, max_size=5))
@settings(max_examples=40, deadline=None)
def test_silence_stays_silence_in_a_mixture(lines):
    targets = torch.tensor(lines)
    _, blended = mix(torch.zeros(len(lines), 1), targets, weights=torch.full((len(lines),), 0.3))
    silent = (targets < 0) | (targets.roll(-1, 0) < 0)
    assert torch.equal(blended == SILENT, silent)
    _, plain = mix(torch.zeros(len(lines), 1), targets, weights=torch.ones(len(lines)))
    assert torch.equal(plain, targets)


def test_half_of_the_rows_are_mixed():
    """Binomial(4000, 1/2) strays more than 200 from 2000 with a chance below 3e-10."""
    kept = kept_shares(4000, 0.5, share=0.5, draw=np.random.default_rng(7))
    assert abs(int((kept < 1).sum()) - 2000) < 200
    assert (kept_shares(50, 1.0, share=0.0, draw=np.random.default_rng(7)) == 1).all()


@given(tables, st.floats(0.1, 2), st.floats(0, 50))
@settings(max_examples=60, deadline=None)
def test_weights_are_bounded_and_rarer_labels_weigh_more(table, lowest, more):
    Y = np.array(table)
    weights = class_weights(Y, lowest=lowest, highest=lowest + more)
    assert ((weights >= lowest) & (weights <= lowest + more)).all()
    yes, no = (Y == 1).sum(axis=0), (Y == 0).sum(axis=0)
    ratio = np.array([n / y if y else math.inf for y, n in zip(yes, no)])
    order = np.argsort(ratio, kind="stable")
    assert (np.diff(weights[order]) >= -1e-12).all()


def test_the_weighted_loss_is_the_printed_one():
    answers, weights = torch.tensor([[0.3, -1.2], [2.0, 0.1]]), torch.tensor([0.7, 3.0])
    targets = torch.tensor([[1.0, 0.25], [0.0, 1.0]])
    y = torch.sigmoid(answers)
    printed = -(weights * targets * y.log() + (1 - targets) * (1 - y).log()).mean()
    assert torch.isclose(told_loss(answers, targets, weights=weights), printed)
    silent = torch.tensor([[1.0, -1.0], [-1.0, -1.0]])
    alone = -(weights[0] * y[0, 0].log())
    assert torch.isclose(told_loss(answers, silent, weights=weights), alone)


# --- Training ---


def test_a_tagger_learns_and_its_options_do_something():
    X, Y = made_up(120, seed=7)
    test_X, test_Y = made_up(60, seed=8)
    plain = tagger(mixup=0.0).fit(X, Y)
    assert average_precision(test_Y, plain.predict_proba(test_X)).mean() > 0.95
    for changes in ({"mixup": 1.0}, {"mixup": 0.0, "balanced": False}, {"mixup": 0.0, "weighted": True}):
        other = tagger(**{"iterations": 3, **changes}).fit(X, Y)
        base = tagger(iterations=3, mixup=0.0).fit(X, Y)
        assert not np.array_equal(other.predict_proba(test_X), base.predict_proba(test_X)), changes


def test_the_same_seed_gives_the_same_network_bit_by_bit():
    X, Y = made_up(40, seed=7)
    one, same, other = (tagger(iterations=5, random_state=seed).fit(X, Y) for seed in (7, 7, 8))
    assert all(np.array_equal(one.state_[name], same.state_[name]) for name in one.state_)
    assert not all(np.array_equal(one.state_[name], other.state_[name]) for name in one.state_)


def test_flat_rows_and_pictures_are_the_same():
    X, Y = made_up(20, seed=7)
    picture = tagger(iterations=3).fit(X, Y)
    flat = tagger(iterations=3, shape=(FRAMES, BINS)).fit(X.reshape(20, -1), Y)
    assert np.array_equal(picture.predict_proba(X), flat.predict_proba(X.reshape(20, -1)))
    with pytest.raises(ValueError, match="Give shape"):
        tagger().fit(X.reshape(20, -1), Y)


def test_weights_that_are_loaded_are_not_drawn_first(monkeypatch):
    """To draw what is overwritten at once loads torch's compiler: seconds, for every process that tags."""

    def drawn(*_, **__):
        raise AssertionError("drawn")

    fitted = tagger(iterations=1, batch_size=2).fit(np.zeros((2, 16, 16)), [[0], [1]])
    monkeypatch.setattr("torch.nn.init.kaiming_normal_", drawn)
    same = type(fitted).from_bytes(fitted.to_bytes())
    assert same.predict_proba(np.ones((1, 16, 16))).shape == (1, 1)
    with pytest.raises(AssertionError, match="drawn"):
        tagger(iterations=1, batch_size=2).fit(np.zeros((2, 16, 16)), [[0], [1]])


def test_a_layout_in_memory_is_no_part_of_a_network():
    """Weights go in and out in one order, whichever is the fastest to compute in; answers are the same."""
    X = np.random.default_rng(7).normal(size=(20, 20, 16))
    fitted = tagger(iterations=2, batch_size=4).fit(X, [[0, 1], [1, 0]] * 10)
    assert all(values.flags.c_contiguous for values in fitted.state_.values())
    factory = network_factory("small", shape=(1, 20, 16), n_labels=2)
    plain = factory().eval()
    plain.load_state_dict({name: torch.tensor(values) for name, values in fitted.state_.items()})
    with torch.no_grad():
        said = plain(fitted._tensor(X, torch.device("cpu"))).sigmoid().numpy()
    np.testing.assert_allclose(fitted.predict_proba(X), said, atol=1e-5)


def test_a_training_cut_short_goes_on_to_the_same_end(tmp_path):
    X, Y = made_up(40, seed=7)
    given = {"iterations": 8, "check_every": 2, "held_out": 0.2}
    whole = tagger(**given).fit(X, Y)

    def stop(step, _):
        if step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tagger(**given).fit(X, Y, folder=tmp_path, progress=stop)
    steps = []
    resumed = tagger(**given).fit(X, Y, folder=tmp_path, progress=lambda step, _: steps.append(step))
    assert steps[0] > 2
    assert all(np.array_equal(whole.state_[name], resumed.state_[name]) for name in whole.state_)
    assert np.allclose(whole.history_, resumed.history_)
    with pytest.raises(ValueError, match="other settings"):
        tagger(**{**given, "mixup": 0.0}).fit(X, Y, folder=tmp_path)
    with pytest.raises(ValueError, match="random_state"):
        tagger(**given, random_state=None).fit(X, Y, folder=tmp_path)


def test_a_checkpoint_of_an_earlier_version_is_refused(tmp_path):
    X, Y = made_up(20, seed=7)
    tagger(iterations=2, check_every=2).fit(X, Y, folder=tmp_path)
    with np.load(tmp_path / FILE) as content:
        earlier = {name: values for name, values in content.items() if name != "numbers"}
    np.savez(tmp_path / FILE, **earlier)
    with pytest.raises(ValueError, match="got one of an earlier version"):
        tagger(iterations=2, check_every=2).fit(X, Y, folder=tmp_path)


def test_training_stops_in_time_and_keeps_the_best():
    generator = np.random.default_rng(7)
    X, Y = generator.normal(size=(30, 16, 16)), generator.integers(2, size=(30, 2))  # nothing to be learned
    model = tagger(iterations=400, held_out=0.3, check_every=5, patience=3, mixup=0.0).fit(X, Y)
    assert model.n_steps_ < 400
    assert model.best_step_ == model.n_steps_ - 15
    held = {int(step): loss for step, _, loss in model.history_}
    assert held[model.best_step_] == min(held.values())


def test_held_out_rows_are_the_teachers_own_and_not_learned_from():
    learn, held = split_rows(50, 0.2, seed=7)
    assert sorted([*learn, *held]) == list(range(50))
    X, Y = made_up(50, seed=7)
    spoiled = X.copy()
    spoiled[held] = X[held][::-1]  # the same numbers in other places: the scale is the same
    one, other = (tagger(iterations=4, held_out=0.2, check_every=4).fit(rows, Y) for rows in (X, spoiled))
    assert all(np.array_equal(one.state_[name], other.state_[name]) for name in one.state_)


def test_silent_labels_are_answered_no_and_silent_rows_teach_nothing():
    X, Y = made_up(30, seed=7)
    Y[:, 2] = SILENT
    Y[20:] = SILENT
    model = tagger(iterations=4).fit(X, Y)
    assert model.silent_labels_ == [2]
    assert (model.predict_proba(X)[:, 2] == 0).all()
    fewer = tagger(iterations=4).fit(X[:20], Y[:20])
    assert np.array_equal(model.predict_proba(X), fewer.predict_proba(X))


def test_pretrained_weights_are_where_training_begins(tmp_path):
    X, Y = made_up(20, seed=7)
    first = tagger(iterations=5).fit(X, Y)
    torch.save({name: torch.tensor(values) for name, values in first.state_.items()}, tmp_path / "first.pt")
    still = {"iterations": 1, "learning_rate": 1e-12, "random_state": 8}
    begun = tagger(**still, pretrained=tmp_path / "first.pt").fit(X, Y)
    assert np.allclose(begun.state_["features.1.weight"], first.state_["features.1.weight"], atol=1e-6)
    assert b"first.pt" not in begun.to_bytes()


def test_a_checkpoint_knows_what_it_began_with(tmp_path):
    X, Y = made_up(20, seed=7)
    place, given = tmp_path / "weights.pt", {"iterations": 4, "check_every": 2}
    for seed, folder in ((1, "one"), (2, "two")):
        network = make_network("small", shape=(1, FRAMES, BINS), n_labels=N_LABELS)
        torch.save({name: values + seed for name, values in network.state_dict().items()}, place)
        tagger(**given, pretrained=place).fit(X, Y, folder=tmp_path / folder)
    with pytest.raises(ValueError, match="other settings"):
        tagger(**given, pretrained=place).fit(X, Y, folder=tmp_path / "one")
    again = tagger(**given, pretrained=place).fit(X, Y, folder=tmp_path / "two")
    assert again.n_steps_ == 4


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 1}, "batch_size"),
        ({"held_out": 1.0}, "held_out"),
        ({"patience": 2}, "held_out > 0"),
        ({"mixup": -1.0}, "concentration"),
        ({"weighted": True, "weight_bounds": (2.0, 1.0)}, "lowest <= highest"),
        ({"network": "vgg16"}, "'vgg11'"),
        ({"learning_rate": 1e30}, "finite"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, said):
    X, Y = made_up(10, seed=7)
    with pytest.raises(Exception, match=said):
        tagger(iterations=3).set_params(**changes).fit(X, Y)


def test_one_class_per_clip():
    y = np.arange(90) % N_LABELS
    X = np.random.default_rng(9).normal(-60, 6, size=(90, FRAMES, BINS)).astype(np.float32)
    X[np.arange(90)[:, None], :, 5 * y[:, None] + np.arange(3)] += 25
    model = AudioClassifier(tagger(mixup=0.0), n_classes=N_LABELS).fit(X[:60], y[:60])
    assert model.score(X[60:], y[60:]) > 0.9


def test_without_tensorboard_a_log_folder_is_refused_and_with_one_it_is_written(tmp_path, monkeypatch):
    X, Y = made_up(10, seed=7)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match=r"tellers\[tensorboard\]"):
        tagger(iterations=1, log_folder=tmp_path).fit(X, Y)
    written = []

    class Writer:
        def __init__(self, folder):
            written.append(folder)

        def add_scalar(self, tag, value, step):
            written.append((tag, step))

        def close(self):
            written.append("closed")

    module = type(sys)("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    tagger(iterations=2, check_every=2, held_out=0.2, log_folder=tmp_path).fit(X, Y)
    assert written[0] == str(tmp_path / "seed-7")  # by its random state: teachers keep theirs apart
    assert ("loss/learned from", 2) in written
    assert ("loss/held out", 2) in written
    assert written[-1] == "closed"


def test_the_rate_falls_from_all_of_it_to_nothing():
    assert half_cosine(0, 10) == 1.0
    assert half_cosine(10, 10) == pytest.approx(0.0)
