"""Audits of mechanisms: never above what is true, close to it, and above what is not."""

import itertools
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import tellers
from tellers import GNMax, LabelVotes, Tau, Unit, Votes, noise
from tellers.accounting.audit import Pair, audit_mechanism, bad_pair
from tellers.accounting.audit.evidence import Law, stated_law
from tellers.accounting.audit.pairs import candidate_moves
from tellers.accounting.costs import gaussian_dp_epsilon
from tellers.mechanisms.divergence import pair_divergences

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "experiments" / "audit"))
import faults

# Every audit below that must stay under a claim raises a false alarm with chance at most 1e-6.
SURE = 1 - 1e-6
MECHANISMS = [
    tellers.LNMax(gamma=0.2),
    tellers.GNMax(sigma=3.0),
    tellers.ConfidentGNMax(sigma=4.0, threshold=6, sigma_threshold=4.0),
    tellers.InteractiveGNMax(sigma=4.0, threshold=5, sigma_threshold=4.0, student_confidence=0.8),
    tellers.Binary(sigma=4.0, n_labels=3),
    tellers.ConfidentBinary(sigma=4.0, n_labels=3, threshold=6, sigma_threshold=5.0),
    tellers.Tau(sigma=2.0, n_labels=4, max_norm=2**0.5),
    tellers.Tau(sigma=2.0, n_labels=4, max_norm=1.5, norm="l1"),
    tellers.ConfidentTau(sigma=3.0, n_labels=4, max_norm=2**0.5, threshold=6, sigma_threshold=4.0),
    tellers.Powerset(sigma=3.0, n_labels=2),
    tellers.ConfidentPowerset(sigma=3.0, n_labels=2, threshold=5, sigma_threshold=4.0),
    tellers.PartialPowerset(sigma=3.0, n_labels=3, groups=((0, 1), (2,))),
    tellers.GNThreshold(sigma=3.0, n_labels=3),
    tellers.ConfidentGNThreshold(sigma=3.0, n_labels=3, n_top=1, confident_share=0.6, sigma_gate=4.0),
    tellers.AdaptiveGNThreshold(sigma=3.0, n_labels=3, scale=4.0),
    tellers.DependentBinary(sigma=4.0, n_labels=3, positive=((0, 1),)),
]


def one_vote(*counts, moved=(0, 1)):
    there = list(counts)
    there[moved[0]] -= 1
    there[moved[1]] += 1
    here, there = (Votes.from_counts([c], n_teachers=sum(counts)) for c in (counts, there))
    return Pair(here, there)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: type(m).__name__)
def test_an_audit_stays_below_the_price(mechanism):
    source = noise.seeded(11)
    pair = bad_pair(mechanism, 10, delta=0.01, noise=source, n_queries=4, n_classes=4)
    audit = audit_mechanism(
        mechanism, pair, delta=0.01, noise=source, n_samples=2000, n_queries=4, confidence=SURE
    )
    assert audit.holds
    assert audit.claim == (mechanism.price(Unit()) * 4).epsilon(0.01)
    if audit.exact is not None:
        assert audit.epsilon <= audit.exact <= audit.claim * (1 + 1e-9)


@pytest.mark.parametrize("method", ["losses", "queries", "events"])
def test_false_alarms_are_as_rare_as_stated(method):
    """150 audits at confidence 0.8 of votes whose epsilon is known: this fails with chance below 1e-6."""
    mechanism, pair, delta = GNMax(sigma=2.0), one_vote(5, 5), 0.02
    law = stated_law(mechanism, pair)
    p, q = np.exp(law.here[0]), np.exp(law.there[0])
    # One query with two outcomes: epsilon at delta is that of the better of two events, in closed form.
    truth = max(np.log((a - delta) / b) for a, b in [(p[0], q[0]), (q[1], p[1])])
    assert truth == pytest.approx(np.log((p[0] - delta) / q[0]))
    source = noise.seeded(3)
    found = [
        audit_mechanism(
            mechanism, pair, delta=delta, noise=source, n_samples=600, confidence=0.8, method=method
        ).epsilon
        for _ in range(150)
    ]
    n_above = int((np.array(found) > truth * (1 + 1e-9)).sum())
    assert n_above <= binom.ppf(1 - 1e-6, 150, 0.2)
    # The bound is no empty one: most audits find something.
    assert np.median(found) > 0.1 * truth


CAMPAIGN = [
    (tellers.GNMax(sigma=2.0), one_vote(10, 10)),
    (tellers.LNMax(gamma=0.4), one_vote(10, 10)),
    (tellers.ConfidentGNMax(sigma=2.5, threshold=10, sigma_threshold=3.0), one_vote(10, 10)),
]


@pytest.mark.campaign
@pytest.mark.parametrize(("mechanism", "pair"), CAMPAIGN, ids=repr)
@pytest.mark.parametrize("method", ["losses", "queries", "events"])
def test_a_thousand_audits_raise_false_alarms_at_the_stated_rate(mechanism, pair, method):
    """1,000 audits of 700 releases of 3 queries at 5 %, alarms of the law included.

    If the rate is 5 %, more than `binom.ppf(1 - 1e-6, 1000, 0.05)` alarms come with chance below 1e-6.
    """
    truth = stated_law(mechanism, pair).hockey_stick(3, delta=0.01)
    source = noise.seeded(31)
    audits = [
        audit_mechanism(mechanism, pair, delta=0.01, noise=source, n_samples=700, n_queries=3, method=method)
        for _ in range(1000)
    ]
    alarms = sum(audit.epsilon > truth * (1 + 1e-9) or audit.law == "refuted" for audit in audits)
    assert alarms <= binom.ppf(1 - 1e-6, 1000, 0.05)
    print(f"{mechanism}, {method}: {alarms} alarms in 1,000, truth {truth:.3f}")
    assert np.median([audit.epsilon for audit in audits]) > 0.3 * truth


def found_of_the_truth(mechanism, seed, n_classes):
    source = noise.seeded(seed)
    asked = {"delta": 0.01, "noise": source, "n_queries": 20}
    pair = bad_pair(mechanism, 50, n_classes=n_classes, **asked)
    moves = candidate_moves(mechanism, 50, n_classes=n_classes, noise=source)
    logs = [np.maximum(mechanism.outcomes(v).log_labels, -700).T for v in (moves.here, moves.there)]
    # The worst votes tried: the four that are furthest apart at an order that suits this delta.
    ranked = np.argsort(pair_divergences(*logs, [4.0]).max(axis=(0, 2)))[-4:]
    laws = [stated_law(mechanism, one) for one in (pair, *map(moves.pair, ranked))]
    truth = max(law.hockey_stick(20, delta=0.01) for law in laws)
    assert 0.6 <= truth <= 4
    audit = audit_mechanism(mechanism, pair, n_samples=10_000, **asked)
    assert audit.epsilon <= truth
    assert audit.holds
    return audit.epsilon / truth


LEVELS = {
    "gnmax": [tellers.GNMax(sigma) for sigma in (5.0, 12.0, 8.0, 3.5)],
    "lnmax": [tellers.LNMax(gamma) for gamma in (0.2, 0.1, 0.15, 0.32)],
    "confident": [tellers.ConfidentGNMax(sigma, 25.0, 1.5 * sigma) for sigma in (5.0, 10.0, 7.0, 3.2)],
}


@pytest.mark.parametrize("name", LEVELS)
def test_an_audit_finds_most_of_the_truth(name):
    """10,000 releases of 20 queries. The bound is above the truth with chance 5 %, on this seed it is not."""
    assert found_of_the_truth(LEVELS[name][0], 4001, 3) >= 0.85


@pytest.mark.campaign
@pytest.mark.parametrize("seed", [5001, 5002])
@pytest.mark.parametrize("mechanism", [m for level in LEVELS.values() for m in level[1:]], ids=repr)
def test_an_audit_finds_most_of_the_truth_at_every_noise(mechanism, seed):
    """As above, on seeds that nothing was chosen on."""
    assert found_of_the_truth(mechanism, seed, 10) >= 0.85


@pytest.mark.parametrize(
    "mechanism",
    [
        *map(faults.Leak, ("top count", "class 7 at 3 votes")),
        *map(faults.UnstatedLeak, ("unanimity", "count 17 of class 1")),
    ],
    ids=repr,
)
def test_leaks_at_single_counts_are_found(mechanism):
    """False alarm at most 1e-6: nothing that the mechanism states of itself chose these votes."""
    source = noise.seeded(7)
    pair = bad_pair(mechanism, 46, delta=0.01, noise=source, n_classes=8)
    audit = audit_mechanism(mechanism, pair, delta=0.01, noise=source, n_samples=500, confidence=SURE)
    assert not audit.holds
    assert audit.epsilon > audit.claim


def test_a_law_that_lies_is_refuted():
    """False alarm at most 1e-6."""
    source = noise.seeded(7)
    mechanism = faults.LyingLaw()
    pair = bad_pair(mechanism, 50, delta=0.01, noise=source, n_classes=3)
    audit = audit_mechanism(mechanism, pair, delta=0.01, noise=source, n_samples=40_000, confidence=SURE)
    assert (audit.law, audit.holds, audit.method) == ("refuted", False, "queries")
    assert "do not follow the law" in audit.summary


def test_a_noisy_histogram_is_audited_by_its_counts():
    """20 queries are two Gaussians sqrt(40) / sigma apart. False alarm at most 1e-6."""
    mechanism, source = tellers.NoisyHistogram(sigma=10.0), noise.seeded(7)
    truth = gaussian_dp_epsilon(40**0.5 / 10, 0.01)
    audit = audit_mechanism(
        mechanism,
        one_vote(10, 10, 0),
        delta=0.01,
        noise=source,
        n_samples=5000,
        n_queries=20,
        confidence=SURE,
    )
    assert 0.2 * truth < audit.epsilon < truth


def test_exact_epsilons_of_many_queries_are_those_of_all_answers():
    """Five queries with three outcomes, by listing all 243 answers."""
    here, there = np.array([0.5, 0.3, 0.2]), np.array([0.3, 0.3, 0.4])
    law = Law(np.log(here)[None], np.log(there)[None])
    answers = np.array(list(itertools.product(range(3), repeat=5)))
    p, q = here[answers].prod(axis=1), there[answers].prod(axis=1)
    for delta in (0.2, 0.01, 1e-4):
        epsilon = law.hockey_stick(5, delta=delta)
        deltas = [np.maximum(a - np.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))]
        assert max(deltas) == pytest.approx(delta, rel=1e-6)


def test_more_releases_prove_more_and_come_close():
    mechanism, pair = tellers.LNMax(gamma=1.0), one_vote(10, 10)
    law = stated_law(mechanism, pair)
    truth = np.abs(law.losses(np.array([[0], [1]]))).max()
    few, many = (
        audit_mechanism(mechanism, pair, delta=1e-9, noise=noise.seeded(5), n_samples=n, confidence=0.99)
        for n in (500, 50_000)
    )
    assert few.epsilon < many.epsilon <= truth
    assert many.epsilon > 0.9 * truth


@dataclass(frozen=True)
class ThirdOfTheNoise:
    """A mechanism with a mistake: it draws less noise than it states."""

    sigma: float

    def price(self, unit):
        return GNMax(self.sigma).price(unit)

    def release(self, votes, noise):
        return GNMax(self.sigma / 3).release(votes, noise)


def test_too_little_noise_is_found():
    """At this confidence a sound mechanism is accused with chance at most 1e-6."""
    mechanism = ThirdOfTheNoise(sigma=6.0)
    found = audit_mechanism(
        mechanism, one_vote(10, 10), delta=0.01, noise=noise.seeded(7), n_samples=4000, n_queries=20,
        confidence=SURE,
    )  # fmt: skip
    assert not found.holds
    assert "The claim does not hold" in found.summary
    honest = audit_mechanism(
        GNMax(sigma=6.0), one_vote(10, 10), delta=0.01, noise=noise.seeded(7), n_samples=4000, n_queries=20,
        confidence=SURE,
    )  # fmt: skip
    assert honest.holds
    assert "nothing was found against it" in honest.summary


def test_losses_find_what_events_cannot():
    """An event can prove no more than the logarithm of the number of releases."""
    mechanism, n_samples = Tau(sigma=1.0, n_labels=4, max_norm=2**0.5), 2000
    pair = bad_pair(mechanism, 15, delta=0.02, noise=noise.seeded(7), n_queries=30)
    options = {"delta": 0.02, "n_samples": n_samples, "n_queries": 30, "confidence": 0.999}
    events = audit_mechanism(mechanism, pair, noise=noise.seeded(7), method="events", **options)
    losses = audit_mechanism(mechanism, pair, noise=noise.seeded(7), **options)
    assert 0 < events.epsilon <= np.log(n_samples)
    assert 3 * events.epsilon < losses.epsilon <= losses.exact <= losses.claim


def test_the_search_finds_votes_that_cost_nearly_the_price():
    for mechanism in (GNMax(sigma=5.0), MECHANISMS[6]):
        pair = bad_pair(mechanism, 30, delta=1e-5, noise=noise.seeded(7), n_queries=100, n_classes=3)
        exact = stated_law(mechanism, pair).epsilon(100, delta=1e-5)
        assert 0.93 < exact / (mechanism.price(Unit()) * 100).epsilon(1e-5) <= 1 + 1e-9


def test_votes_that_are_no_neighbours_are_refused():
    here = Votes.from_counts([[6, 4]], n_teachers=10)
    with pytest.raises(ValueError, match="differ in one ballot"):
        Pair(here, Votes.from_counts([[4, 6]], n_teachers=10))
    with pytest.raises(ValueError, match="of the same teachers, got 10 and 11"):
        Pair(here, Votes.from_counts([[6, 5]], n_teachers=11))
    with pytest.raises(ValueError, match="of one kind on one query"):
        Pair(here, LabelVotes.from_sums([[6, 4]], n_teachers=10))
    labels = [LabelVotes.from_sums([sums], n_teachers=10) for sums in ([6, 4], [4, 4])]
    with pytest.raises(ValueError, match="differ in one ballot"):
        Pair(*labels)


def test_what_cannot_be_audited_is_said():
    pair = one_vote(6, 4)
    with pytest.raises(ValueError, match="states the law of its outcomes"):
        audit_mechanism(ThirdOfTheNoise(3.0), pair, delta=0.01, noise=noise.seeded(7), method="losses")
    with pytest.raises(ValueError, match="Expected a method of losses, queries, events"):
        audit_mechanism(GNMax(3.0), pair, delta=0.01, noise=noise.seeded(7), method="magic")
