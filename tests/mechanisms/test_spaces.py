"""Votes over one space of answers are refused wherever another space is decided, before anything is drawn."""

import numpy as np
import pytest

from tellers import (
    AdaptiveGNThreshold,
    Binary,
    Budget,
    ConfidentBinary,
    ConfidentDependentBinary,
    ConfidentGNMax,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    DependentBinary,
    GNMax,
    GNThreshold,
    InteractiveGNMax,
    LabelVotes,
    LNMax,
    MemoryLedger,
    NoisyHistogram,
    OneOf,
    PartialPowerset,
    Powerset,
    Room,
    SetOf,
    Tau,
    Unit,
    Votes,
    exact_cost,
    noise,
)
from tellers.accounting import account
from tellers.mechanisms import LABEL_MECHANISMS, MECHANISMS, GaussianSum, TestedGNMax
from tellers.mechanisms.base import accountant_for
from tellers.mechanisms.registry import answers_of
from tellers.privacy import Scores

CHAIN = {"positive": ((0, 1),), "negative": ((1, 2),)}
EVERY = [
    GNMax(3.0),
    TestedGNMax(9.0, clear_cost=5.0, test_sigma=1.0, held_at=8.0, test_delta=1e-6, n_queries=2),
    GaussianSum(3.0, steps=100),
    LNMax(0.2),
    NoisyHistogram(3.0),
    ConfidentGNMax(3.0, threshold=30, sigma_threshold=6.0),
    InteractiveGNMax(3.0, threshold=10, sigma_threshold=6.0, student_confidence=0.6),
    Binary(3.0, 3),
    ConfidentBinary(1.0, 3, threshold=8, sigma_threshold=2.0),
    Tau(1.0, 3, 1.2),
    ConfidentTau(1.0, 3, 1.4, threshold=8, sigma_threshold=2.0),
    Powerset(1.0, 3),
    ConfidentPowerset(1.0, 3, threshold=5, sigma_threshold=2.0),
    PartialPowerset(1.0, 3, ((0, 2),)),
    GNThreshold(0.8, 3, share=0.3),
    ConfidentGNThreshold(1.0, 3, n_top=1, confident_share=0.6, sigma_gate=2.0),
    AdaptiveGNThreshold(1.0, 3, scale=2.0),
    DependentBinary(1.0, 3, **CHAIN),
    ConfidentDependentBinary(1.0, 3, threshold=8, sigma_threshold=2.0, **CHAIN),
]
VOTES = {
    "classes": Votes.from_ballots(np.array([[0, 1]] * 20), OneOf(3)),
    "labels": Votes.from_ballots(np.array([[[1, 0, 1], [0, 0, 1]]] * 20), SetOf(3)),
    "scores": Votes.from_ballots(np.zeros((20, 2, 3)), Scores(3, steps=100)),
}
WORDS = {
    "classes": "Expected votes on classes for .*, got votes on labels",
    "labels": "Expected votes on labels for .*, got votes on classes",
    "scores": "Expected votes on scores for .*, got votes on classes",
}
STUDENT = np.full((2, 3), 1 / 3)
each = pytest.mark.parametrize("mechanism", EVERY, ids=lambda one: type(one).__name__)


class Silent:
    """Noise that may not be drawn."""

    def __getattr__(self, name):
        raise AssertionError("noise was drawn")


def other(mechanism):
    kind = answers_of(mechanism)
    return WORDS[kind], VOTES["labels" if kind == "classes" else "classes"]


def test_every_mechanism_is_tried():
    named = [*MECHANISMS.values(), *LABEL_MECHANISMS.values()]
    assert {kind for kind in named if kind.__module__.startswith("tellers.")} <= {type(one) for one in EVERY}


@each
@pytest.mark.parametrize("ballots", [True, False], ids=["ballots", "totals"])
def test_votes_on_other_answers_are_refused(mechanism, ballots):
    words, votes = other(mechanism)
    votes = votes if ballots else votes.replaced(ballots=None)
    heard = {"student": STUDENT} if isinstance(mechanism, InteractiveGNMax) else {}
    with pytest.raises(TypeError, match=words):
        mechanism.release(votes, Silent(), **heard)
    for look in ("outcomes", "published", "envelope", "published_sensitivities"):
        if hasattr(mechanism, look):
            more = {"order": 8.0} if look in ("envelope", "published_sensitivities") else {}
            with pytest.raises(TypeError, match=words):
                getattr(mechanism, look)(votes, **more, **heard)
    with pytest.raises(TypeError, match=words):
        account(mechanism, votes, delta=1e-5, **heard)
    if hasattr(mechanism, "outcomes") and not heard:
        with pytest.raises(TypeError, match=words):
            exact_cost(mechanism, votes)


@each
def test_a_room_refuses_votes_on_other_answers_and_keeps_the_price(mechanism):
    words, votes = other(mechanism)
    heard = {"student": STUDENT} if isinstance(mechanism, InteractiveGNMax) else {}

    class Teachers:
        def vote(self, X):
            return votes

    ledger = MemoryLedger(accountant_for(mechanism, Budget(epsilon=1e6, delta=1e-5)))
    secure = noise.secure()
    with pytest.raises(TypeError, match=rf"{words}\. No noise was drawn, but the price of 'a' stays charged"):
        Room(Teachers(), mechanism, ledger, secure).ask(np.zeros((2, 1)), key="a", **heard)
    assert ledger.spent.values.max() > 0


@each
def test_votes_on_what_is_answered_are_released(mechanism):
    heard = {"student": STUDENT} if isinstance(mechanism, InteractiveGNMax) else {}
    assert len(mechanism.release(VOTES[answers_of(mechanism)], noise.seeded(7), **heard)) == 2


def test_what_belongs_to_one_space_is_not_there_in_another():
    classes, labels = VOTES["classes"], VOTES["labels"]
    for name in ("counts", "n_classes", "n_votes", "top", "gap"):
        assert hasattr(classes, name)
        assert not hasattr(labels, name)
    for name in ("sums", "n_labels", "resolution"):
        assert hasattr(labels, name)
        assert not hasattr(classes, name)
    with pytest.raises(TypeError, match=WORDS["classes"]):
        labels.weighted([1] * 20)


def test_one_type_and_two_names():
    classes, labels = VOTES["classes"], VOTES["labels"]
    assert type(classes) is type(labels) is type(LabelVotes.from_sums([[1]], n_teachers=1)) is Votes
    assert isinstance(labels, LabelVotes)
    assert not isinstance(classes, LabelVotes)
    by_hand = LabelVotes(labels.sums, 20, labels.ballots, 1, Unit())
    assert by_hand.space == labels.space == SetOf(3)
    assert isinstance(labels[:1], LabelVotes)


@pytest.mark.parametrize(("space", "wrong"), [(OneOf(3), [[1, 1]]), (SetOf(3, 10), [[1, 1]])])
def test_totals_fit_their_space(space, wrong):
    with pytest.raises(ValueError, match=f"{space.of_totals} of 3 {space.kind}, got 2"):
        Votes.from_totals(wrong, space, n_teachers=2)
    assert Votes.from_totals([[2, 0, 0]], space, n_teachers=2).space == space


def test_classes_are_known_to_all_teachers():
    with pytest.raises(ValueError, match="know all classes"):
        Votes.from_ballots([[0], [1]], OneOf(2), knows=[[1, 1], [1, 0]])
