"""One asker's turn: who votes, who pays, when, and that what is told is what the mechanism releases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from tellers import Accountant, Budget, GNMax, LabelVotes, MemoryLedger, Votes, noise
from tellers.errors import BudgetExhausted
from tellers.mechanisms import Binary, ConfidentBinary, GNThreshold
from tellers.parties import deal_members
from tellers.parties._last_step import draw
from tellers.parties._ledger import query_price
from tellers.parties.collaboration.learning import (
    answering,
    ask_members,
    choose_rows,
    counted,
    tell,
)
from tellers.parties.collaboration.members import Member, fit_member, known_by
from tellers.privacy import SILENT

CLASSES = {"gnmax": GNMax(sigma=2.0)}
LABELS = {
    "binary": Binary(sigma=2.0, n_labels=3),
    "confident": ConfidentBinary(sigma=2.0, n_labels=3, threshold=7, sigma_threshold=2.0),
    "threshold": GNThreshold(sigma=2.0, n_labels=3, share=(0.5, 0.3, 0.7)),
    "capped": GNThreshold(sigma=2.0, n_labels=3, max_labels=1),
}


class Parrot:
    """A model that says the same of every row, and counts how often it was asked."""

    def __init__(self, says):
        self.says, self.n_asked = says, 0

    def predict(self, X):
        self.n_asked += 1
        return np.full(len(X), self.says)


class BrokenNoise:
    """A source that fails when it is drawn from."""

    name = "seeded"

    def __getattr__(self, _):
        raise OSError("no more noise")


def parrots(*says):
    return [
        Member(f"party-{i}", np.zeros((1, 1)), np.zeros(1, dtype=np.int64), Parrot(word))
        for i, word in enumerate(says)
    ]


def knowing(knows):
    """Members that know some labels each."""
    return [
        Member(f"party-{i}", np.zeros((1, 1)), np.zeros((1, len(row))), None, tuple(np.flatnonzero(row)))
        for i, row in enumerate(knows)
    ]


def books_of(members, epsilon=50.0):
    return {m.name: MemoryLedger(Accountant(Budget(epsilon, 1e-5)), allow_seeded=True) for m in members}


@pytest.mark.parametrize("name", CLASSES)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=6), st.integers(0, 99)
)
@settings(max_examples=15, deadline=None)
def test_a_class_is_told_as_the_mechanism_releases_it(name, ballots, seed):
    votes, mechanism = Votes.from_ballots(np.array(ballots).T, n_classes=4), CLASSES[name]
    counts = counted(votes, mechanism)
    told = tell(counts, parrots(*[0] * 9), mechanism=mechanism, noise=noise.seeded(seed))
    released = mechanism.release(votes, noise.seeded(seed)).labels
    np.testing.assert_array_equal(told == SILENT, released == SILENT)
    if (told == SILENT).any():
        return  # in one room no noise is drawn where there is silence; whoever does not see it always draws
    # Both break ties at random, by draws of their own: equal unless noisy counts are tied, and then both at
    # the top.
    drawn = draw(mechanism, np.zeros_like(counts), n_answering=9, noise=noise.seeded(seed)).answer_noise
    top = counts + drawn == (counts + drawn).max(axis=1, keepdims=True)
    for one, other, best in zip(told, released, top, strict=True):
        assert best[one]
        assert best[other]
        assert one == other or best.sum() > 1


@pytest.mark.parametrize("name", LABELS)
@given(st.integers(0, 2**20), st.integers(1, 6), st.integers(0, 99), st.booleans())
@settings(max_examples=15, deadline=None)
def test_labels_are_told_as_the_mechanism_releases_them(name, number, n_queries, seed, some):
    rng = np.random.default_rng(number)
    knows = rng.random((9, 3)) < 0.6 if some else None
    ballots = rng.integers(0, 2, size=(9, n_queries, 3))
    votes, mechanism = LabelVotes.from_ballots(ballots, n_labels=3, knows=knows), LABELS[name]
    others = knowing(np.ones((9, 3), dtype=bool) if knows is None else knows)
    told = tell(counted(votes, mechanism), others, mechanism=mechanism, noise=noise.seeded(seed))
    np.testing.assert_array_equal(told, mechanism.release(votes, noise.seeded(seed)).labels)


def test_the_asker_does_not_vote_and_does_not_pay():
    members = parrots(0, 1, 1, 1, 1, 1)
    ledgers = books_of(members)
    how = {"members": members, "mechanism": GNMax(sigma=0.5), "ledgers": ledgers, "n_outputs": 2}
    told = ask_members(members[0], np.zeros((4, 1)), noise=noise.seeded(7), key="one", **how)
    assert told.tolist() == [1, 1, 1, 1]
    assert members[0].model.n_asked == 0
    assert [member.model.n_asked for member in members[1:]] == [1] * 5
    price = query_price(GNMax(sigma=0.5), 4)
    assert not ledgers["party-0"].entries()
    for name in ("party-1", "party-5"):
        np.testing.assert_allclose(ledgers[name].spent.values, price.values)
        assert ledgers[name].entries()[0].event["asker"] == "party-0"
        assert "party-0" not in ledgers[name].entries()[0].event["answering"]


def test_two_askers_add_up_on_the_books_of_those_who_answer_both():
    members = parrots(0, 1, 1, 1)
    ledgers, one = books_of(members, 500.0), query_price(GNMax(sigma=0.5), 1)
    how = {"members": members, "mechanism": GNMax(sigma=0.5), "ledgers": ledgers, "n_outputs": 2}
    for asker in members[:2]:
        ask_members(asker, np.zeros((3, 1)), noise=noise.seeded(7), key=asker.name, **how)
    for name, times in (("party-0", 3), ("party-1", 3), ("party-2", 6), ("party-3", 6)):
        np.testing.assert_allclose(ledgers[name].spent.values, (one * times).values)


def test_the_price_is_on_the_books_before_noise_is_drawn():
    members = parrots(0, 1, 1)
    ledgers = books_of(members)
    how = {"members": members, "mechanism": GNMax(sigma=1.0), "ledgers": ledgers, "n_outputs": 2}
    with pytest.raises(OSError, match="no more noise"):
        ask_members(members[0], np.zeros((2, 1)), noise=BrokenNoise(), key="one", **how)
    assert [len(ledgers[m.name].entries()) for m in members] == [0, 1, 1]


def test_one_that_cannot_pay_leaves_nobody_charged_and_nobody_asked():
    members = parrots(0, 1, 1, 1)
    ledgers = books_of(members)
    ledgers["party-3"] = MemoryLedger(Accountant(Budget(0.5, 1e-5)), allow_seeded=True)
    how = {"members": members, "mechanism": GNMax(sigma=1.0), "ledgers": ledgers, "n_outputs": 2}
    with pytest.raises(BudgetExhausted):
        ask_members(members[0], np.zeros((2, 1)), noise=BrokenNoise(), key="one", **how)
    assert not any(ledger.entries() for ledger in ledgers.values())
    assert not any(member.model.n_asked for member in members)


def test_seeded_noise_is_refused_by_books_that_are_in_earnest():
    members = parrots(0, 1)
    ledgers = {m.name: MemoryLedger(Accountant(Budget(50.0, 1e-5))) for m in members}
    how = {"members": members, "mechanism": GNMax(sigma=1.0), "ledgers": ledgers, "n_outputs": 2}
    with pytest.raises(Exception, match="seeded"):
        ask_members(members[0], np.zeros((2, 1)), noise=noise.seeded(7), key="one", **how)


def test_nobody_answers_who_is_alone():
    with pytest.raises(ValueError, match="somebody besides 'party-0'"):
        answering(parrots(0), parrots(0)[0])


def test_uncertain_rows_come_first():
    rows = np.linspace(-3, 3, 61)[:, None]
    one = deal_members(rows, (rows[:, 0] > 0).astype(int), 2, estimator=LogisticRegression(), seed=1)[0]
    chosen = choose_rows(one, rows, 5, order="uncertain", seed=7)
    assert np.abs(rows[chosen, 0]).max() < 1.5
    with pytest.raises(ValueError, match="random, uncertain"):
        choose_rows(one, rows, 5, order="best", seed=7)


def test_a_label_that_is_not_known_is_not_learned_and_not_said():
    rows = np.random.default_rng(7).normal(size=(60, 2))
    labels = (rows > 0).astype(int)
    sets = [(0, 1), (0,), (1,)]
    members = deal_members(rows, labels, 3, estimator=LogisticRegression(), seed=7, label_sets=sets)
    assert [member.knows.tolist() for member in members] == [[True, True], [True, False], [False, True]]
    assert [member.labels for member in members] == sets
    assert not members[1].model.predict(rows)[:, 1].any()
    told = np.where([[True, False]], labels, -1)
    again = fit_member(LogisticRegression(), rows, told, seed=7)
    assert again.silent_labels_ == [1]


def test_what_is_known_is_declared_and_not_read_off_rows():
    # Neighbouring rows must not change who votes on a label, nor what a party is charged.
    rows = np.zeros((2, 1))
    seen, unseen = np.array([[0, 1], [1, 0]]), np.array([[0, SILENT], [1, SILENT]])
    for labels, knows in ((None, [True, True]), ((0,), [True, False]), ((1,), [False, True])):
        for y in (seen, unseen):
            member = Member("ann", rows, y, None, labels)
            assert member.knows.tolist() == knows
            assert known_by(member) == known_by(Member("ann", rows, seen, None, labels))
    with pytest.raises(ValueError, match="from 0 to 1, got 2"):
        Member("ann", rows, seen, None, (0, 2))
    with pytest.raises(ValueError, match="one class each"):
        Member("ann", rows, np.array([0, 1]), None, (0,))
