"""Sweeps over votes on one class each: agreement with GNMax, its confident form, and their accounts."""

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers import ConfidentGNMax, GNMax, LabelVotes, Votes, noise
from tellers.accounting import account
from tellers.privacy import SILENT
from tellers.runs.report.sweep import noiseless_table
from tellers.runs.sound import SweepSetting, draw_sweep, flip_buckets, sweep, sweep_settings, sweep_table
from tellers.runs.sweeps import as_indicators

DELTA = 1e-6
DRAWN = True


def made_up(n_queries, *, n_teachers=20, n_classes=3, seed=7):
    """Teachers that say what is true seven times of ten."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(n_classes, size=n_queries)
    other = generator.integers(n_classes, size=(n_teachers, n_queries))
    ballots = np.where(generator.random((n_teachers, n_queries)) < 0.55, truth, other)
    return Votes.from_ballots(ballots, n_classes=n_classes), truth


def grid(**given):
    return sweep_settings(kinds=["gnmax"], **given)


@settings(max_examples=12, deadline=None)
@given(st.floats(0.05, 0.6), st.sampled_from([None, (0.4, 0.3), (0.7, 0.1)]), st.integers(2, 5))
def test_costs_are_those_of_the_account(sigma, check, n_classes):
    votes, truth = made_up(12, n_classes=n_classes)
    row = sweep(votes, truth, grid(sigmas=[sigma], checks=[check]), delta=DELTA, noise=noise.seeded(7))[0]
    mechanism = GNMax(20 * sigma)
    if check is not None:
        mechanism = ConfidentGNMax(20 * sigma, 20 * check[0], 20 * check[1])
    told = mechanism.release(votes, noise.seeded(7)).labels != SILENT
    # A run that was asked, and answered as this draw was; the price covers an answer to every query.
    books = account(mechanism, votes, delta=DELTA, answered=None if check is None else told)
    numbers = row.private.reveal()
    assert row.public_epsilon == account(mechanism, votes, delta=DELTA, private=False).public.epsilon
    assert numbers.exact_epsilon == pytest.approx(books.private.reveal().exact_epsilon)
    assert numbers.dependent_epsilon == pytest.approx(books.private.reveal().published_epsilon)
    assert numbers.exact_epsilon <= row.public_epsilon * (1 + 1e-9)
    assert math.isnan(numbers.published_epsilon)


@pytest.mark.parametrize("check", [None, (0.5, 0.2)])
def test_accuracy_is_that_of_the_released_classes(check):
    votes, truth = made_up(60)
    row = sweep(votes, truth, grid(sigmas=[0.2], checks=[check]), delta=DELTA, noise=noise.seeded(3))[0]
    mechanism = row.setting.mechanism(n_teachers=20)
    said = mechanism.release(votes, noise.seeded(3)).labels
    told, numbers = said != SILENT, row.private.reveal()
    assert numbers.accuracy == (said == truth)[told].mean()
    assert numbers.answered == told.mean()
    assert told.all() == (check is None)
    # One class each: as many false alarms as misses, but for what was not told.
    assert numbers.micro_f1 == pytest.approx(numbers.accuracy)


def test_with_next_to_no_noise_the_classes_are_those_without():
    votes, truth = made_up(60, n_teachers=21)
    apart = np.sort(votes.counts, axis=1)
    clear = apart[:, -1] > apart[:, -2]  # a tie is broken at random by one, and by the order by the other
    votes, truth = votes[clear], truth[clear]
    rows = sweep(
        votes, truth, grid(sigmas=[1e-4], checks=[None, (0.65, 1e-4)]), delta=DELTA, noise=noise.seeded(7),
        exact=False,
    )  # fmt: skip
    table = noiseless_table(votes, truth, confident_shares=[None, 0.65]).reveal()
    assert table[1]["answered"] < 1
    for row, known in zip(rows, table, strict=True):
        numbers = row.private.reveal()
        assert (numbers.accuracy, numbers.answered) == (known["accuracy"], known["answered"])
        assert numbers.macro_f1 == known["f1"]


def test_more_noise_costs_less_and_teachers_and_queries_are_swept():
    large, truth = made_up(30, n_teachers=30)
    small, _ = made_up(30, n_teachers=10)
    chosen = grid(sigmas=[0.1, 0.3], n_samples=[10, None])
    rows = sweep([large, small], truth, chosen, delta=DELTA, noise=noise.seeded(7))
    assert [(row.n_teachers, row.n_samples) for row in rows] == [
        (n, samples) for n in (30, 10) for _ in (0.1, 0.3) for samples in (10, 30)
    ]
    prices = [row.public_epsilon for row in rows]
    assert prices[0] > prices[2]  # noise
    assert prices[1] > prices[0]  # queries
    assert prices[4] > prices[0]  # teachers: the same part of the ensemble is less noise
    alone = sweep(small[:10], truth[:10], chosen[1:2], delta=DELTA, noise=noise.seeded(7))[0]
    assert rows[4].public_epsilon == alone.public_epsilon
    assert rows[4].private.reveal().exact_epsilon == alone.private.reveal().exact_epsilon


def test_tables_and_drawings_have_one_form_and_are_private():
    votes, truth = made_up(20)
    rows = sweep(
        votes, truth, grid(sigmas=[0.1, 0.3], checks=[None, (0.6, 0.3)]), delta=DELTA, noise=noise.seeded(7)
    )
    labels = LabelVotes.from_sums(votes.counts, n_teachers=20)
    many = sweep(
        labels, as_indicators(truth, 3), sweep_settings(sigmas=[0.1]), delta=DELTA, noise=noise.seeded(7)
    )
    assert sweep_table(rows).reveal()[0].keys() == sweep_table(many).reveal()[0].keys()
    assert repr(sweep_table(rows)) == "Sealed(<private>)"
    assert "accuracy" not in repr(rows)
    for epsilon, words in (("exact", "and private"), ("public", "any votes"), ("dependent", "bound of 2018")):
        drawing = draw_sweep(rows, score="accuracy", epsilon=epsilon)
        assert (drawing.mark, words in drawing.caption) == ("private", True)
        assert ("exact" in drawing.heading) == (epsilon == "exact")
        assert drawing.svg.count("check 0.6, noise 0.3") == 1


def test_queries_by_their_q():
    """Two classes: q is the chance to flip. 20,000 draws stray by 0.02 with a chance below 3e-7."""
    votes = Votes.from_counts([[14, 6], [20, 0], [11, 9]], n_teachers=20)
    q = sweep(
        votes[:1], [0], grid(sigmas=[0.25]), delta=DELTA, noise=noise.seeded(7), exact=False
    )[0].private.reveal().mean_q  # fmt: skip
    drawn = np.random.default_rng(7).normal(0, 5.0, size=(20_000, 2))
    assert abs(q - (14 + drawn[:, 0] < 6 + drawn[:, 1]).mean()) < 0.02
    buckets = flip_buckets(votes, SweepSetting(kind="gnmax", sigma=0.25), delta=DELTA).reveal()
    costs = [cost for _, _, n, cost in buckets if n]
    assert sum(n for _, _, n, _ in buckets) == 3
    assert costs == sorted(costs)
    with pytest.raises(ValueError, match="kind 'gnmax' without a check"):
        flip_buckets(votes, SweepSetting(sigma=0.25), delta=DELTA)


def test_nothing_told_has_no_accuracy():
    votes, truth = made_up(8)
    rows = sweep(votes, truth, grid(sigmas=[0.1], checks=[(9.0, 0.01)]), delta=DELTA, noise=noise.seeded(7))
    numbers = asdict(rows[0].private.reveal())
    assert (numbers["answered"], math.isnan(numbers["accuracy"])) == (0, True)
    table = noiseless_table(votes, truth, confident_shares=[9.0]).reveal()
    assert math.isnan(table[0]["accuracy"])


def test_votes_truth_and_kinds_belong_together():
    votes, truth = made_up(5)
    labels = LabelVotes.from_sums(votes.counts, n_teachers=20)
    fixed = {"delta": DELTA, "noise": noise.seeded(7)}
    with pytest.raises(ValueError, match="kinds among gnmax for votes on one class each, got binary"):
        sweep(votes, truth, sweep_settings(sigmas=[0.1], kinds=["gnmax", "binary"]), **fixed)
    with pytest.raises(ValueError, match="for votes on many labels, got gnmax"):
        sweep(labels, as_indicators(truth, 3), grid(sigmas=[0.1]), **fixed)
    with pytest.raises(ValueError, match=r"class numbers of shape \(5,\)"):
        sweep(votes, as_indicators(truth, 3), grid(sigmas=[0.1]), **fixed)
    with pytest.raises(ValueError, match="which is for many labels"):
        SweepSetting(sigma=0.1).mechanism(n_teachers=20)
    with pytest.raises(ValueError, match="which is for one class each"):
        SweepSetting(kind="gnmax", sigma=0.1).mechanism(n_teachers=20, n_labels=3)
