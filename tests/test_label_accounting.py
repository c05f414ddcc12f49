"""The books of label votes: which number is public, which is sealed, and what they are next to each other."""

import numpy as np
import pytest

from tellers import (
    AdaptiveGNThreshold,
    Binary,
    ConfidentBinary,
    ConfidentGNThreshold,
    ConfidentPowerset,
    ConfidentTau,
    GNMax,
    GNThreshold,
    LabelVotes,
    PartialPowerset,
    Powerset,
    RdpCurve,
    Sealed,
    Tau,
    Unit,
    Votes,
    exact_cost,
    noise,
)
from tellers.accounting import account, compared_costs, public_cost
from tellers.accounting.costs import published_cost
from tellers.mechanisms.labels._published import labels_told, published_label_cost

DELTA = 1e-5
EVERY = [
    Binary(6.0, 4),
    ConfidentBinary(6.0, 4, threshold=30, sigma_threshold=9.0),
    Tau(6.0, 4, 1.2),
    ConfidentTau(6.0, 4, 1.2, threshold=30, sigma_threshold=9.0),
    GNThreshold(6.0, 4, 0.4),
    ConfidentGNThreshold(6.0, 4, 2, 0.5, 9.0),
    AdaptiveGNThreshold(6.0, 4, 9.0, shares=(0.4, 0.5)),
    Powerset(6.0, 4),
    ConfidentPowerset(6.0, 4, threshold=20, sigma_threshold=9.0),
    PartialPowerset(6.0, 4, ((0, 2),)),
]


@pytest.fixture(scope="module")
def votes():
    rng = np.random.default_rng(7)
    return LabelVotes.from_ballots(rng.random((50, 15, 4)) < rng.beta(0.5, 3, (1, 15, 4)), n_labels=4)


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: type(m).__name__)
def test_public_and_private_stand_in_order(mechanism, votes):
    books = account(mechanism, votes, delta=DELTA)
    assert (books.n_queries, books.n_teachers, books.n_labels, books.n_answered) == (15, 50, 4, None)
    assert books.public == public_cost(mechanism, 15, delta=DELTA, n_teachers=50)
    assert books.compared == compared_costs(mechanism, 15, delta=DELTA)
    assert isinstance(books.private, Sealed)
    costs = books.private.reveal()
    assert costs.exact_epsilon == exact_cost(mechanism, votes).cost.reveal().epsilon(DELTA)
    assert costs.exact_epsilon <= books.public.epsilon
    assert costs.per == "teacher"
    assert costs.kind == ("bound" if getattr(mechanism, "one_price", False) else "expected")
    if costs.kind == "bound":
        plain = RdpCurve.zcdp(15 * sum(mechanism.plain_rates())).epsilon(DELTA)
        assert costs.published_epsilon <= min(plain * (1 + 1e-9), costs.published_classic)
    assert account(mechanism, votes, delta=DELTA, private=False).private is None


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: type(m).__name__)
def test_public_methods(mechanism):
    public = public_cost(mechanism, 15, delta=DELTA)
    costs = {cost.method: cost for cost in compared_costs(mechanism, 15, delta=DELTA)}
    price = (15 * mechanism.price(Unit())).epsilon_and_order(DELTA)
    assert (public.method, public.epsilon, public.order) == ("labels-rdp", *price)
    assert public.epsilon <= costs["sums-rdp"].epsilon * (1 + 1e-3)
    if isinstance(mechanism, AdaptiveGNThreshold):
        assert "sums-gdp" not in costs
    else:
        assert costs["sums-gdp"].holds_for == "continuous noise"
        assert costs["sums-gdp"].epsilon <= costs["sums-rdp"].epsilon


@pytest.mark.parametrize("mechanism", EVERY, ids=lambda m: type(m).__name__)
def test_a_mask_charges_what_was_told(mechanism, votes):
    release = mechanism.release(votes, noise.seeded(3))
    books = account(mechanism, votes, delta=DELTA, answered=release.answered)
    charged = books.public if books.charged is None else books.charged
    assert charged.epsilon == release.cost.worst.epsilon(DELTA) > 0
    if getattr(mechanism, "one_price", False):
        assert books.n_answered is None
        assert any("was not used" in note for note in books.notes)
    else:
        assert books.n_answered == release.answered.sum()
        assert books.private.reveal().kind == "realised"
        with pytest.raises(ValueError, match=r"per query and label, shape \(15, 4\), got"):
            account(mechanism, votes, delta=DELTA, answered=release.answered[:, 0])


def test_what_the_papers_print_is_never_used_and_the_books_say_so(votes):
    for mechanism in EVERY:
        notes = " ".join(account(mechanism, votes, delta=DELTA).notes)
        assert ("tau voting" in notes) == isinstance(mechanism, (Tau, ConfidentTau))
        assert ("training sample" in notes) == ("GNThreshold" in type(mechanism).__name__)
        bound = isinstance(mechanism, (ConfidentGNThreshold, AdaptiveGNThreshold))
        assert ("upper bound here" in notes) == bound
    tau = Tau(6.0, 4, 1.2)
    low = RdpCurve.zcdp(15 * 1.2**2 / 6.0**2).epsilon(DELTA)
    assert public_cost(tau, 15, delta=DELTA).epsilon > low


def test_published_is_the_bound_of_the_papers(votes):
    mechanism = Binary(6.0, 4)
    assert np.array_equal(
        published_cost(mechanism, votes, orders=[2.0]),
        published_label_cost(mechanism, votes, orders=[2.0], total=True),
    )


def test_votes_that_do_not_fit_are_refused(votes):
    with pytest.raises(ValueError, match="the 3 labels of Binary, got 4"):
        account(Binary(6.0, 3), votes, delta=DELTA)
    with pytest.raises(TypeError, match="Expected votes on classes for GNMax, got votes on labels"):
        account(GNMax(6.0), votes, delta=DELTA)
    with pytest.raises(TypeError, match="Expected votes on labels for Binary, got votes on classes"):
        account(Binary(6.0, 4), Votes.from_counts([[30, 20]], n_teachers=50), delta=DELTA)
    with pytest.raises(ValueError, match="how many of its 4 labels were told"):
        labels_told(EVERY[1], 2, [1, 5])


def test_sums_alone_have_a_cost_where_ballots_are_free(votes):
    tallied = LabelVotes.from_sums(votes.sums, n_teachers=50)
    books = account(Binary(6.0, 4), tallied, delta=DELTA)
    assert books.private.reveal().per == "query"
    with pytest.raises(ValueError, match="Expected votes with ballots"):
        account(Powerset(6.0, 4), tallied, delta=DELTA)
