"""Whole collaborations: budgets that hold, both ways of counting, who asks, and labels that few know."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from tellers import Accountant, Budget, GNMax, LNMax, RdpCurve, Votes, noise
from tellers.mechanisms import Binary, GNThreshold
from tellers.parties import Terms, collaborate, deal_members, read_material
from tellers.parties._ledger import moved_by, query_price
from tellers.parties.collaboration.learning import (
    budget_for,
    published_curves,
    published_epsilon,
    published_queries,
    queries_within,
    summary,
)
from tellers.parties.collaboration.members import choose_askers, divide, known_by, score, voters_of

MODEL = LogisticRegression(max_iter=300)
BOTH = ("sound", "published")


@pytest.fixture(scope="module")
def digits():
    material = read_material("digits", seed=1, n_private=600, n_pool=150)
    return material, deal_members(material.X, material.y, 30, estimator=MODEL, seed=1)


def clusters(seed=0, n_rows=900, n_labels=4):
    """Rows with labels that are easy to learn from few of them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, n_labels))
    return divide("clusters", X, (X > 0.3).astype(int), n_outputs=n_labels, seed=seed)


@given(st.floats(0.5, 30.0), st.sampled_from([1.0, 8.0, 40.0]), st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_a_budget_holds_for_so_many_queries_and_no_more(epsilon, sigma, n_askers):
    budget, mechanism = Budget(epsilon, 1e-5), GNMax(sigma)
    n = queries_within(budget, mechanism, n_askers=n_askers)
    accountant, nothing = Accountant(budget), RdpCurve.zero()
    if n:
        assert accountant.affords(nothing, query_price(mechanism, n * n_askers))
    assert not accountant.affords(nothing, query_price(mechanism, (n + 1) * n_askers))


@given(st.integers(0, 999), st.floats(1.0, 12.0))
@settings(max_examples=15, deadline=None)
def test_the_papers_count_stops_at_its_budget(draw, epsilon):
    counts = np.random.default_rng(draw).multinomial(40, [0.7, 0.2, 0.1], size=120)
    curves = published_curves(GNMax(6.0), Votes.from_counts(counts, n_teachers=40))
    n = published_queries(curves, Budget(epsilon, 1e-5))
    if n:
        assert published_epsilon(curves[:n], delta=1e-5) <= epsilon
    if n < len(curves):
        assert published_epsilon(curves[: n + 1], delta=1e-5) > epsilon


@given(st.sampled_from([1.0, 8.0, 40.0]), st.integers(1, 3000))
@settings(max_examples=20, deadline=None)
def test_books_for_a_price_cover_it(sigma, n):
    price = query_price(GNMax(sigma), n)
    assert Accountant(budget_for(price, delta=1e-5)).affords(RdpCurve.zero(), price)


def test_askers_learn_and_no_party_is_overspent(digits):
    material, members = digits
    terms = Terms(mechanism=GNMax(5.0), epsilons=(10.0,), n_askers=3, countings=BOTH)
    held = collaborate(material, members, terms, estimator=MODEL, noise=noise.seeded(1), seed=1)
    sound, published = held.turns_of("sound", 10.0), held.turns_of("published", 10.0)
    assert len(sound) == len(published) == 3
    assert len({turn.n_queries for turn in sound}) == 1
    for turn in sound:
        n = turn.n_queries
        assert turn.party == pytest.approx(query_price(GNMax(5.0), 3 * n).epsilon(1e-5))
        assert turn.per_asker == pytest.approx(query_price(GNMax(5.0), n).epsilon(1e-5))
        assert turn.per_asker < turn.party <= 10.0
    # The paper's count lets more through than a party's budget covers.
    assert min(turn.n_queries for turn in published) > sound[0].n_queries
    assert published[0].party > 10.0
    assert max(turn.published for turn in published) <= 10.0
    # Twenty rows teach little: ten points are far outside what luck does here.
    assert held.mean_after("sound", 10.0)["accuracy"] > held.mean_before()["accuracy"] + 0.1


def test_where_all_ask_a_party_pays_for_all_but_itself(digits):
    material, members = digits
    few = members[:4]
    terms = Terms(mechanism=GNMax(1.0), epsilons=(30.0,), n_askers=4)
    held = collaborate(material, few, terms, estimator=MODEL, noise=noise.seeded(1), seed=1)
    n = held.turns[0].n_queries
    assert n == queries_within(Budget(30.0, 1e-5), GNMax(1.0), n_askers=3)
    assert held.turns[0].party == pytest.approx(query_price(GNMax(1.0), 3 * n).epsilon(1e-5))


def test_secure_noise_leaves_nothing_that_depends_on_votes_but_what_is_told(digits):
    material, members = digits
    how = {"estimator": MODEL, "noise": noise.secure(), "seed": 1}
    with pytest.raises(ValueError, match="depend on the votes, and are private"):
        collaborate(material, members[:4], Terms(mechanism=GNMax(1.0), countings=BOTH), **how)
    held = collaborate(material, members[:4], Terms(mechanism=GNMax(1.0), n_askers=2), **how)
    assert {turn.counting for turn in held.turns} == {"sound"}
    for turn in held.turns:
        assert math.isnan(turn.published)
        assert turn.n_queries == queries_within(Budget(10.0, 1e-5), GNMax(1.0), n_askers=2)
        assert "published" not in repr(turn)
    assert "published" not in held.as_dict()["askers"][0]["turns"][0]


def test_a_budget_too_small_for_one_query_teaches_nothing(digits):
    material, members = digits
    terms = Terms(mechanism=GNMax(0.5), epsilons=(0.5,), n_askers=2)
    held = collaborate(material, members, terms, estimator=MODEL, noise=noise.seeded(1), seed=1)
    assert [turn.n_queries for turn in held.turns_of("sound", 0.5)] == [0, 0]
    assert held.mean_after("sound", 0.5) == pytest.approx(held.mean_before())
    assert all(turn.party == 0 for turn in held.turns_of("sound", 0.5))


def test_the_weakest_are_weakest_where_they_are_chosen(digits):
    material, members = digits
    where = {"X": material.X_choice, "y": material.y_choice}
    weakest = choose_askers(members, 3, which="weakest", seed=1, **where)
    scores = sorted(
        score(member.model, material.X_choice, material.y_choice)["accuracy"] for member in members
    )
    found = [score(member.model, material.X_choice, material.y_choice)["accuracy"] for member in weakest]
    assert found == scores[:3]
    assert choose_askers(members, 3, which="random", seed=1, **where) != weakest
    with pytest.raises(ValueError, match="random or weakest"):
        choose_askers(members, 3, which="best", seed=1, **where)
    with pytest.raises(ValueError, match="at most 30 askers"):
        choose_askers(members, 31, which="random", seed=1, **where)


def test_many_labels_have_all_four_scores():
    material = clusters()
    members = deal_members(material.X, material.y, 20, estimator=MODEL, seed=2)
    terms = Terms(
        mechanism=Binary(3.0, 4), epsilons=(10.0, 20.0), n_askers=2, which="weakest", countings=BOTH
    )
    held = collaborate(material, members, terms, estimator=MODEL, noise=noise.seeded(1), seed=2)
    assert set(held.mean_before()) == {"accuracy", "bac", "auc", "map"}
    few, many = (held.turns_of("sound", epsilon)[0].n_queries for epsilon in (10.0, 20.0))
    assert 0 < few < many
    assert held.mean_after("sound", 20.0)["bac"] > held.mean_before()["bac"]
    lines = summary([held, held])
    assert [(line.counting, line.epsilon) for line in lines] == [
        ("", 0.0), ("sound", 10.0), ("published", 10.0), ("sound", 20.0), ("published", 20.0)
    ]  # fmt: skip
    assert lines[0].scores["bac"] == (pytest.approx(held.mean_before()["bac"]), 0.0)


def test_the_papers_price_of_a_capped_ballot_is_not_above_half_of_ours():
    # Two ballots without a common label are twice as far apart as the paper's tau has it.
    votes = np.random.default_rng(3).integers(0, 2, size=(30, 40, 5))
    from tellers import LabelVotes

    mechanism = GNThreshold(6.0, 5, max_labels=2)
    curves = published_curves(mechanism, LabelVotes.from_ballots(votes, n_labels=5))
    printed = 2 / (2 * 6.0**2)
    orders = RdpCurve.zero().orders
    assert (curves <= printed * orders * (1 + 1e-9)).all()


def test_few_who_know_a_label_are_enough_to_be_told_it():
    material = clusters(seed=5, n_rows=1800)
    # Everybody knows the first two labels; the third is known to six of 25, the fourth to nobody but askers.
    sets = [(0, 1, 2) if i < 6 else (0, 1) for i in range(25)]
    members = deal_members(material.X, material.y, 25, estimator=MODEL, seed=5, label_sets=sets)
    assert voters_of(members[1:]) == (24, 24, 5, 0)
    terms = Terms(mechanism=Binary(0.7, 4), epsilons=(5000.0,), n_askers=3)
    held = collaborate(material, members, terms, estimator=MODEL, noise=noise.seeded(1), seed=5)
    for turn in held.turns_of("sound", 5000.0):
        assert turn.n_labels == 3 * turn.n_queries  # the fourth is never told
        assert turn.labels_right > 0.9
    ignorant = deal_members(material.X, material.y, 25, estimator=MODEL, seed=5, label_sets=[(0, 1)] * 25)
    before = score(ignorant[0].model, material.X_test, material.y_test)["bac"]
    assert held.mean_after("sound", 5000.0)["bac"] > before + 0.05


def test_who_knows_fewer_labels_pays_for_fewer_and_askers_need_not_answer():
    material = clusters(seed=6)
    sets = [(0, 1)] * 8
    members = deal_members(material.X, material.y, 10, estimator=MODEL, seed=6)
    strong = deal_members(
        material.X, material.y, 8, estimator=MODEL, seed=6, label_sets=sets, prefix="strong"
    )
    terms = Terms(mechanism=Binary(3.0, 4), epsilons=(10.0,), n_askers=2)
    how = {"estimator": MODEL, "noise": noise.seeded(1), "seed": 6, "askers": members[:2]}
    held = collaborate(material, strong, terms, **how)
    n = held.turns[0].n_queries
    assert n == queries_within(Budget(10.0, 1e-5), Binary(3.0, 2), n_askers=2)
    assert held.turns[0].party == pytest.approx(query_price(Binary(3.0, 2), 2 * n).epsilon(1e-5))
    assert held.turns[0].n_labels == 2 * n
    together = collaborate(material, (*members, *strong), terms, **how)
    assert together.turns[0].n_queries == queries_within(Budget(10.0, 1e-5), Binary(3.0, 4), n_askers=2)
    capped = moved_by(GNThreshold(3.0, 4, share=(0.2, 0.3, 0.4, 0.5), max_labels=3), [known_by(strong[0])])
    assert (capped.n_labels, capped.max_labels, capped.share) == (2, 2, (0.2, 0.3))


def test_terms_are_checked_before_anybody_is_asked(digits):
    with pytest.raises(TypeError, match="parties can compute"):
        Terms(mechanism=LNMax(gamma=0.1))
    with pytest.raises(ValueError, match="at least one epsilon"):
        Terms(mechanism=GNMax(5.0), epsilons=())
    with pytest.raises(ValueError, match="epsilon"):
        Terms(mechanism=GNMax(5.0), epsilons=(-1.0,))
    with pytest.raises(ValueError, match="at least 1799 rows"):
        read_material("digits", seed=1, n_private=1700, n_pool=97)
