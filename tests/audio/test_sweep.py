"""Sweeps over stored votes: numbers of the thesis, and agreement with the mechanisms themselves."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tellers import GNThreshold, LabelVotes, noise
from tellers.accounting import account, public_cost
from tellers.runs.sound import (
    SweepSetting,
    draw_flips,
    draw_sweep,
    flip_buckets,
    noiseless_table,
    sweep,
    sweep_settings,
    sweep_table,
)
from tellers.runs.sweeps import KINDS, flip_chances

DELTA = 1e-8
DRAWN = True


def made_up(n_queries, *, n_teachers=20, n_labels=3, resolution=1, seed=7):
    """Teachers that say what is true four times of five."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(2, size=(n_queries, n_labels))
    wrong = generator.random((n_teachers, n_queries, n_labels)) < 0.2
    ballots = np.where(wrong, 1 - truth, truth)
    if resolution > 1:
        ballots = np.abs(ballots - generator.random(ballots.shape) * 0.3)
    return LabelVotes.from_ballots(ballots, n_labels=n_labels, resolution=resolution), truth


@pytest.mark.parametrize(("n_queries", "printed"), [(2000, 418.4), (5000, 1018.4)])
def test_the_thesis_table_without_a_check_comes_out_to_the_digit(n_queries, printed):
    """Its table 5.4, rows without a confidence check: 50 teachers, sigma_e = 0.3, 3 labels a clip."""
    generator = np.random.default_rng(7)
    sums = generator.integers(8, 13, size=(n_queries, 4))
    votes = LabelVotes.from_sums(sums, n_teachers=50)
    setting = SweepSetting(share=0.2, sigma=0.3, noise="variance")
    truth = generator.integers(2, size=sums.shape)
    row = sweep(votes, truth, [setting], delta=DELTA, noise=noise.seeded(7), exact=False)[0]
    assert round(row.private.reveal().published_epsilon, 1) == printed
    # A changed clip can move all four labels here; in the thesis, 153.
    assert row.public_epsilon < printed * 4 / 3
    every = SweepSetting(share=0.2, sigma=0.3, noise="variance").mechanism(n_teachers=50, n_labels=153)
    assert public_cost(every, n_queries, delta=DELTA).epsilon > 15 * printed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("resolution", [1, 10])
def test_every_kind_says_what_its_mechanism_does(kind, resolution):
    votes, truth = made_up(12, resolution=resolution)
    checks = [None] if kind == "adaptive" else [None, (0.6, 0.1)]
    settings = sweep_settings(sigmas=[0.1, 0.3], kinds=[kind], checks=checks)
    rows = sweep(votes, truth, settings, delta=DELTA, noise=noise.seeded(7))
    assert len(rows) == 2 * len(checks)
    for row in rows:
        numbers = row.private.reveal()
        assert 0 <= numbers.macro_f1 <= 1 or math.isnan(numbers.macro_f1)
        assert 0 <= numbers.answered <= 1
        if kind == "adaptive-as-published":
            assert row.public_epsilon == numbers.exact_epsilon == math.inf  # it promises nothing
            continue
        assert numbers.exact_epsilon <= row.public_epsilon * (1 + 1e-9)
    if resolution == 1 and kind not in ("adaptive-as-published",):
        mechanism = settings[0].mechanism(n_teachers=20, n_labels=3)
        books = account(mechanism, votes, delta=DELTA)
        assert rows[0].public_epsilon == pytest.approx(books.public.epsilon)
        assert rows[0].private.reveal().exact_epsilon == pytest.approx(books.private.reveal().exact_epsilon)


def test_scores_are_those_of_the_released_labels():
    votes, truth = made_up(40)
    setting = SweepSetting(share=0.4, sigma=0.2)
    numbers = sweep(votes, truth, [setting], delta=DELTA, noise=noise.seeded(3))[0].private.reveal()
    labels = GNThreshold(sigma=4.0, n_labels=3, share=0.4).release(votes, noise.seeded(3)).labels
    hits = ((labels == 1) & (truth == 1)).sum()
    assert numbers.micro_f1 == pytest.approx(2 * hits / (labels.sum() + truth.sum()))


def test_with_next_to_no_noise_the_labels_are_those_without():
    votes, truth = made_up(40)
    settings = sweep_settings(sigmas=[1e-4], shares=[0.3, 0.5])
    settings += sweep_settings(sigmas=[1e-4], kinds=["adaptive-as-published"], checks=[None, (0.7, 1e-4)])
    rows = sweep(votes, truth, settings, delta=DELTA, noise=noise.seeded(7), exact=False)
    table = noiseless_table(
        votes, truth, shares=[0.3, 0.5, "adaptive"], confident_shares=[None, 0.7]
    ).reveal()
    wanted = [table[0], table[2], table[4], table[5]]
    for row, clear in zip(rows, wanted, strict=True):
        assert row.private.reveal().macro_f1 == pytest.approx(clear["f1"])
        assert row.private.reveal().answered == clear["answered"]


def test_smaller_parts_and_several_ensembles_are_what_they_would_be_alone():
    large, truth = made_up(30, n_teachers=30)
    small, _ = made_up(30, n_teachers=10)
    settings = sweep_settings(sigmas=[0.2], n_samples=[10, None])
    rows = sweep([large, small], truth, settings, delta=DELTA, noise=noise.seeded(7))
    assert [(row.n_teachers, row.n_samples) for row in rows] == [(30, 10), (30, 30), (10, 10), (10, 30)]
    alone = sweep(small[:10], truth[:10], settings[1:], delta=DELTA, noise=noise.seeded(7))[0]
    assert rows[2].public_epsilon == alone.public_epsilon
    assert rows[2].private.reveal().exact_epsilon == alone.private.reveal().exact_epsilon


def test_what_is_not_answered_is_charged_its_check_as_published():
    votes, truth = made_up(30)
    setting = SweepSetting(share=0.5, sigma=0.2, confident_share=5.0, sigma_gate=0.5, n_top=2)
    numbers = sweep(votes, truth, [setting], delta=DELTA, noise=noise.seeded(7))[0].private.reveal()
    assert numbers.answered == 0
    # order 2 labels / (2 * 10^2) for each of 30 queries, and ln(1/delta) / (order - 1), at the best order
    best = min(30 * 2 * order / 200 + math.log(1 / DELTA) / (order - 1) for order in range(2, 33))
    assert numbers.published_epsilon == pytest.approx(best)
    assert numbers.dependent_epsilon == pytest.approx(best)


def test_q_is_how_often_the_labels_flip():
    """20,000 draws: a share strays by 0.02 from its chance with a chance below 2 exp(-16) = 3e-7."""
    votes = LabelVotes.from_sums([[14, 4, 9]], n_teachers=20)
    generator = np.random.default_rng(7)
    noisy = votes.sums + generator.normal(0, 5.0, size=(20_000, 3)) > 10
    flipped = (noisy != (votes.sums > 10)).any(axis=1).mean()
    assert abs(flip_chances(votes, 0.5, 5.0)[0] - flipped) < 0.02


def test_drawings_and_tables_are_private():
    votes, truth = made_up(20)
    settings = sweep_settings(sigmas=[0.1, 0.3], shares=[0.3, 0.5], checks=[None, (0.6, 0.3)])
    rows = sweep(votes, truth, settings, delta=DELTA, noise=noise.seeded(7))
    for epsilon in ("public", "exact", "published", "dependent"):
        drawing = draw_sweep(rows, score="micro_f1", epsilon=epsilon, reference=0.9)
        assert drawing.mark == "private"
        assert drawing.svg.count("check 0.6, noise 0.3") == 2
        assert "20 teachers" not in drawing.svg  # which is the same for all of them
    buckets = flip_buckets(votes, settings[0], delta=DELTA)
    assert sum(n for _, _, n, _ in buckets.reveal()) == 20
    drawing = draw_flips(buckets)
    assert drawing.svg.startswith("<svg")
    assert "1/10000" in drawing.svg
    assert "mathdefault" not in drawing.svg + draw_sweep(rows).svg  # nothing typesets it
    assert repr(sweep_table(rows)) == "Sealed(<private>)"
    assert "macro_f1" not in repr(rows)
    with pytest.raises(ValueError, match="at most 6"):
        draw_sweep(sweep(votes, truth, sweep_settings(sigmas=[0.1], shares=np.linspace(0.2, 0.8, 7)),
                         delta=DELTA, noise=noise.seeded(7), exact=False))  # fmt: skip


def test_costlier_buckets_are_those_of_larger_q():
    votes, _ = made_up(200, n_teachers=50)
    buckets = flip_buckets(votes, SweepSetting(share=0.5, sigma=0.1), delta=DELTA).reveal()
    costs = [cost for _, _, n, cost in buckets if n]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sigma": 0.0}, "sigma"),
        ({"sigma": 0.1, "kind": "median"}, "kind"),
        ({"sigma": 0.1, "confident_share": 0.5}, "together"),
        (
            {"sigma": 0.1, "kind": "adaptive", "confident_share": 0.5, "sigma_gate": 0.1},
            "no mechanism has both",
        ),
        ({"sigma": 0.1, "noise": "loud"}, "deviation"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        SweepSetting(**given)


def test_wrong_shapes_are_refused():
    votes, truth = made_up(5)
    with pytest.raises(ValueError, match="truth"):
        sweep(votes, truth[:4], sweep_settings(sigmas=[0.1]), delta=DELTA, noise=noise.seeded(7))
    with pytest.raises(ValueError, match="n_samples"):
        sweep(votes, truth, sweep_settings(sigmas=[0.1], n_samples=[9]), delta=DELTA, noise=noise.seeded(7))


def test_chances_to_flip_are_of_the_ballots_that_count():
    """With a cap of one label, nobody's second label is counted, and it does not come out either."""
    both = LabelVotes.from_ballots([[[1, 1, 0]]] * 10, n_labels=3)
    first = LabelVotes.from_ballots([[[1, 0, 0]]] * 10, n_labels=3)
    capped = SweepSetting(share=0.5, sigma=0.2, max_labels=1)
    rows = [
        sweep(votes, [[1, 0, 0]], [capped], delta=1e-5, noise=noise.seeded(7))[0].private.reveal()
        for votes in (both, first)
    ]
    assert rows[0].mean_q == pytest.approx(rows[1].mean_q)
    split = LabelVotes.from_ballots([[[1, 1, 0]]] * 6 + [[[0, 1, 0]]] * 4, n_labels=3)
    capped_q, open_q = (
        sweep(split, [[1, 0, 0]], [replace(capped, max_labels=cap)], delta=1e-5, noise=noise.seeded(7))[0]
        .private.reveal()
        .mean_q
        for cap in (1, 0)
    )
    assert capped_q != pytest.approx(open_q)
