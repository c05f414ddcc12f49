"""What label mechanisms release: the right labels, at the right frequencies, for the right charge."""

import numpy as np
import pytest
from scipy.stats import binomtest

from tellers import (
    SILENT,
    Binary,
    ConfidentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    GNThreshold,
    LabelVotes,
    PartialPowerset,
    Powerset,
    Tau,
    Unit,
    noise,
)
from tellers.mechanisms.base import price_of

# Every frequency is tested at this two-sided level; about 60 such tests are made, so a sound build fails one
# run in 16,000.
LEVEL = 1e-6
DRAWS = 4000


def many(ballots, n_labels):
    """The same query many times, so that one release is a sample."""
    block = np.repeat(np.asarray(ballots)[:, None, :], DRAWS, axis=1)
    return LabelVotes.from_ballots(block, n_labels=n_labels)


def frequent(hits, probability):
    assert binomtest(int(hits), DRAWS, float(np.clip(probability, 0, 1))).pvalue > LEVEL


BALLOTS = [[1, 0, 1]] * 4 + [[0, 0, 1]] * 2 + [[1, 1, 1]]


@pytest.mark.parametrize(
    "mechanism",
    [
        Binary(2.0, 3),
        ConfidentBinary(2.0, 3, threshold=5, sigma_threshold=2.0),
        Tau(2.0, 3, 1.2),
        ConfidentTau(2.0, 3, 1.2, threshold=5, sigma_threshold=2.0),
        GNThreshold(1.5, 3, share=(0.3, 0.4, 0.8)),
        GNThreshold(1.5, 3, share=0.4, max_labels=1),
    ],
)
def test_labels_come_out_as_often_as_the_law_says(mechanism):
    votes = many(BALLOTS, 3)
    labels = mechanism.release(votes, noise.seeded(1)).labels
    law = np.exp(mechanism.law(7).log_outcomes(mechanism.fitted_sums(votes)[0]))
    for label in range(3):
        for value in range(len(law)):
            wanted = SILENT if value == 2 else value
            frequent((labels[:, label] == wanted).sum(), law[value, label])


@pytest.mark.parametrize("sigma", [0.8, 2.0, 9.0])
@pytest.mark.parametrize("max_labels", [0, 1])
def test_sets_win_as_often_as_a_plain_draw_over_all_of_them(sigma, max_labels):
    """Against a direct simulation that draws the noise of every set, with ties broken at random."""
    votes = many(BALLOTS, 3)
    mechanism = Powerset(sigma, 3, max_labels=max_labels)
    labels = mechanism.release(votes, noise.seeded(2)).labels
    code = (labels << np.arange(3)).sum(axis=1)
    counts = np.zeros(8, dtype=np.int64)
    np.add.at(counts, (np.array(BALLOTS) << np.arange(3)).sum(axis=1), 1)
    if max_labels:
        assert set(code) <= {0, 1, 2, 4}
        counts = np.array([0, 5, 0, 0, 2, 0, 0, 0])
        allowed = [0, 1, 2, 4]
    else:
        allowed = list(range(8))
    from tellers import GNMax, Votes

    exact = GNMax(sigma).outcomes(Votes.from_counts(counts[None, allowed], n_teachers=7)).log_labels[0, 1:]
    for place, one in enumerate(allowed):
        frequent((code == one).sum(), np.exp(exact[place]))


def test_the_largest_of_many_draws_has_its_law():
    from tellers.mechanisms.labels.powerset import ManyBins, _largest_of

    for sigma, bins in ((0.7, 5.0), (3.0, 1e6), (3.0, 2.0**200)):
        largest, tie = _largest_of(sigma, np.full(DRAWS, bins), noise.seeded(3))
        middle = float(np.median(largest))
        law = ManyBins(sigma, np.log(bins))
        frequent((largest <= middle).sum(), np.exp(bins * law.log_cdf(np.array([middle]))[0]))
        frequent((largest <= middle - 1).sum(), np.exp(bins * law.log_cdf(np.array([middle - 1]))[0]))
        assert ((tie >= 0) & (tie <= 1)).all()


def test_silence_costs_its_check_alone():
    votes = LabelVotes.from_ballots([[[1, 0]]] * 50, n_labels=2)
    unit = Unit()
    for never in (
        ConfidentBinary(3.0, 2, threshold=900, sigma_threshold=3.0),
        ConfidentTau(3.0, 2, 1.0, threshold=900, sigma_threshold=3.0),
        ConfidentPowerset(3.0, 2, threshold=900, sigma_threshold=3.0),
        ConfidentGNThreshold(3.0, 2, 1, confident_share=9.0, sigma_gate=3.0),
    ):
        release = never.release(votes, noise.secure())
        assert (release.labels == SILENT).all()
        assert not release.answered.any()
        paid, check = release.cost.worst.values, never.check_price(unit).values
        # How many teachers there are is known: no sum comes near this bar, and silence tells nothing.
        has_joint_price = isinstance(never, ConfidentBinary)
        assert (paid <= check).all() if has_joint_price else np.allclose(paid, check)
    for always in (
        ConfidentBinary(3.0, 2, threshold=-900, sigma_threshold=3.0),
        ConfidentTau(3.0, 2, 1.0, threshold=-900, sigma_threshold=3.0),
        ConfidentPowerset(3.0, 2, threshold=-900, sigma_threshold=3.0),
        ConfidentGNThreshold(3.0, 2, 1, confident_share=-9.0, sigma_gate=3.0),
    ):
        release = always.release(votes, noise.secure())
        assert release.answered.all()
        price = price_of(always, unit, n_teachers=50)
        assert np.allclose(release.cost.worst.values, price.values)
        assert (price.values <= always.price(unit).values).all()


def test_partial_powerset_of_single_labels_is_priced_like_binary_with_ties():
    groups = PartialPowerset(9.0, 4, ((0,), (1,), (2,), (3,)))
    assert np.allclose(
        groups.price(Unit(), [2.0]).values, Binary(9.0, 4).price(Unit(), [2.0]).values, rtol=0.01
    )


def test_an_empty_set_can_win_with_any_number_of_labels():
    votes = LabelVotes.from_ballots(np.zeros((3, 40, 60), dtype=int), n_labels=60)
    labels = Powerset(sigma=9.0, n_labels=60, max_labels=3).release(votes, noise.seeded(4)).labels
    assert (labels.sum(axis=1) <= 3).all()
    assert labels.any()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Binary(0.0, 3), "sigma > 0"),
        (lambda: Binary(2.0, 0), "n_labels >= 1"),
        (lambda: Tau(2.0, 3, 0.0), "max_norm > 0"),
        (lambda: Tau(2.0, 3, -1.0), "max_norm > 0"),
        (lambda: Tau(2.0, 3, 1.0, "l3"), "norm to be one of l2, l1"),
        (lambda: GNThreshold(2.0, 3, share=(0.5, 0.5)), "one for each of 3"),
        (lambda: GNThreshold(2.0, 3, max_labels=4), "max_labels <= n_labels=3"),
        (lambda: ConfidentGNThreshold(2.0, 3, 4, 0.5, 2.0), "n_top <= n_labels=3"),
        (lambda: Powerset(2.0, 1200), "a cap max_labels"),
        (lambda: PartialPowerset(2.0, 3, ((0, 1), (1,))), "no label twice"),
        (lambda: PartialPowerset(2.0, 3, ((0, 3),)), "labels 0..2"),
        (lambda: PartialPowerset(2.0, 3, ((0.7, 1),)), "labels 0..2"),
        (lambda: PartialPowerset(2.0, 3, ("ab",)), "labels 0..2"),
        (lambda: PartialPowerset(2.0, 3, (0, 1)), "labels 0..2"),
        (lambda: PartialPowerset(2.0, 3, None), "labels 0..2"),
        (lambda: GNThreshold(2.0, 3, share=None), "strictly between 0 and 1"),
        (lambda: GNThreshold(2.0, 3, share="x"), "strictly between 0 and 1"),
    ],
)
def test_bad_settings_are_refused(make, words):
    with pytest.raises(ValueError, match="Expected") as refusal:
        make()
    assert words in str(refusal.value)


def test_a_share_may_be_a_number_of_numpy():
    assert GNThreshold(2.0, 3, share=np.float32(0.5)) == GNThreshold(2.0, 3, share=0.5)
    assert type(GNThreshold(2.0, 3, share=np.float32(0.5)).share) is float


def test_votes_that_do_not_fit_are_refused_before_any_noise_is_drawn():
    class Silent:
        def __getattr__(self, name):
            raise AssertionError("noise was drawn")

    three = LabelVotes.from_ballots([[[1, 0, 1]]], n_labels=3)
    parts = LabelVotes.from_ballots([[[0.5, 0.2]]], n_labels=2, resolution=10)
    for mechanism in (Binary(2.0, 2), Tau(2.0, 2, 1.0), Powerset(2.0, 2)):
        with pytest.raises(ValueError, match="the 2 labels"):
            mechanism.release(three, Silent())
        with pytest.raises(ValueError, match="votes of 0 and 1"):
            mechanism.release(parts, Silent())
        with pytest.raises(TypeError, match=r"Expected votes on labels for .*, got ndarray"):
            mechanism.release(np.zeros((1, 2)), Silent())
