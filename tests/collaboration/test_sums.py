"""Learning from one Gaussian sum: what is summed, what it costs, and that askers learn from it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from tellers import Accountant, Budget, MemoryLedger, RdpCurve, Unit, noise
from tellers.errors import BudgetExhausted
from tellers.mechanisms import GaussianSum
from tellers.parties import PoolSum, Terms, collaborate, deal_members, read_material
from tellers.parties.collaboration.members import Member, fit_member
from tellers.parties.collaboration.sums import ScoredPool, ask_sum, learn_from_sum, without

MODEL = LogisticRegression(max_iter=300, class_weight="balanced")
SUM = GaussianSum(sigma=1.0, steps=4096)


class NoNoise:
    """A source of nothing, to look at sums."""

    name = "seeded"

    def discrete_gaussian(self, sigma, shape):
        return np.zeros(shape, dtype=np.int64)


@pytest.fixture(scope="module")
def made():
    material = read_material("made", seed=3, n_private=1500, n_pool=300)
    return material, deal_members(material.X, material.y, 25, estimator=MODEL, seed=3)


def books(members, epsilon=50.0):
    return {m.name: MemoryLedger(Accountant(Budget(epsilon, 1e-5)), allow_seeded=True) for m in members}


def summed(members, pool, source, mechanism=SUM):
    return ask_sum(members, pool, mechanism=mechanism, ledgers=books(members), noise=source, key="pool")


def pool_of(material, n_directions=8):
    return ScoredPool.of(material.X_pool, material.n_outputs, n_directions)


def test_the_release_is_the_sum_of_ballots_and_the_drawn_noise_bit_for_bit(made):
    material, members = made
    pool = pool_of(material)
    clear = np.zeros((8, material.n_outputs), dtype=np.int64)
    for member in members:  # by the definition: probabilities on the directions, of one norm, towards zero
        said = member.model.predict_proba(pool.X)
        turned = pool.directions.T @ said
        clear += np.trunc(turned / np.sqrt((turned**2).sum()) * SUM.steps).astype(np.int64)
    drawn = noise.seeded(9).discrete_gaussian(SUM.sigma * SUM.steps, clear.shape)
    wanted = np.rint(pool.directions @ (clear + drawn)).astype(np.int64)
    np.testing.assert_array_equal(summed(members, pool, noise.seeded(9)).values, wanted)


@pytest.mark.parametrize("change", ["one record", "all rows", "labels turned", "nothing known"])
def test_neighbouring_members_move_the_sum_by_two_norms_at_most(made, change):
    material, members = made
    pool, rng = pool_of(material), np.random.default_rng(5)
    old = members[4]
    X, y = old.X.copy(), old.y.copy()
    if change == "one record":
        X[0], y[0] = 1e6, 1 - y[0]
    elif change == "all rows":
        X, y = rng.normal(size=X.shape), rng.integers(0, 2, y.shape)
    elif change == "labels turned":
        y = 1 - y
    else:
        y[:] = 1  # constants: what rounding leaves of them is not blown up to a whole norm
    new = Member(old.name, X, y, fit_member(MODEL, X, y, seed=1))
    neighbours = [new if member is old else member for member in members]
    moved = sum(pool.ballot(m, SUM.steps) for m in members) - sum(
        pool.ballot(m, SUM.steps) for m in neighbours
    )
    assert 0 < math.sqrt(int((moved**2).sum())) <= 2 * SUM.steps
    if change == "labels turned":  # the bound is nearly reached: the price is for nothing less
        assert math.sqrt(int((moved**2).sum())) > 1.9 * SUM.steps
    if change == "nothing known":
        assert not pool.ballot(new, SUM.steps).any()
    there, here = (summed(some, pool, NoNoise()).values for some in (members, neighbours))
    np.testing.assert_allclose(pool.directions.T @ (there - here), moved, atol=10)


@pytest.mark.parametrize("n_askers", [1, 5])
def test_one_price_holds_for_all_askers_however_many(made, n_askers):
    material, members = made
    terms = Terms(mechanism=PoolSum(), epsilons=(10.0, 20.0), n_askers=n_askers)
    held = collaborate(material, members, terms, estimator=MODEL, noise=noise.secure(), seed=1)
    for epsilon in (10.0, 20.0):
        mechanism = terms.mechanism.planned(terms.budget(epsilon))
        price = mechanism.batch_price(Unit()).epsilon(1e-5)
        turns = held.turns_of("sound", epsilon)
        assert len(turns) == n_askers
        assert {turn.party for turn in turns} == {turn.per_asker for turn in turns} == {price}
        assert 0.999 * epsilon < price <= epsilon
        finer = GaussianSum(mechanism.sigma * 0.999, mechanism.steps).batch_price(Unit())
        assert not Accountant(terms.budget(epsilon)).affords(RdpCurve.zero(), finer)


def test_who_cannot_pay_stops_it_before_anybody_is_charged(made):
    material, members = made
    ledgers = books(members)
    ledgers[members[-1].name] = MemoryLedger(Accountant(Budget(0.1, 1e-5)), allow_seeded=True)
    with pytest.raises(BudgetExhausted):
        ask_sum(members, pool_of(material), mechanism=SUM, ledgers=ledgers, noise=noise.seeded(1), key="pool")
    assert not any(ledger.entries() for ledger in ledgers.values())


def test_an_asker_takes_its_own_ballot_off(made):
    material, members = made
    pool = pool_of(material)
    own = pool.ballot(members[0], SUM.steps)
    with_it, alone = (summed(some, pool, noise.seeded(2)) for some in (members, members[1:]))
    left = without(with_it, own, pool)
    assert np.abs(left.values - alone.values).max() <= 1  # each side is rounded once
    assert np.abs(with_it.values - alone.values).max() > 10


def test_every_asker_is_better_than_alone(made):
    material, members = made
    terms = Terms(mechanism=PoolSum(), epsilons=(20.0,), n_askers=6)
    held = collaborate(material, members, terms, estimator=MODEL, noise=noise.seeded(1), seed=1)
    for turn in held.turns:
        assert turn.after["auc"] > held.before[turn.asker]["auc"]
        assert turn.after["map"] > held.before[turn.asker]["map"]


def test_labels_that_a_member_does_not_know_have_zeros(made):
    material, _ = made
    members = deal_members(
        material.X, material.y, 25, estimator=MODEL, seed=3, label_sets=[range(4)] * 24 + [range(10)]
    )
    pool = pool_of(material)
    assert not pool.ballot(members[0], SUM.steps)[:, 4:].any()
    assert pool.ballot(members[-1], SUM.steps)[:, 4:].any()
    # Nobody tells an asker of a label that it does not know itself: it is ranked by the others.
    asker = members[0]
    learned = learn_from_sum(asker, summed(members, pool, NoNoise()), pool, estimator=MODEL)
    assert np.isfinite(learned.predict_proba(material.X_test)).all()
    assert set(np.unique(learned.predict(material.X_test))) == {0, 1}


def test_what_does_not_go_together_is_refused(made):
    material, members = made
    with pytest.raises(ValueError, match="counted sound alone"):
        Terms(mechanism=PoolSum(), countings=("sound", "published"))
    with pytest.raises(ValueError, match="0 < weight < 1"):
        PoolSum(weight=1.0)
    digits = replace(members[0], y=members[0].y[:, 0], labels=None)
    with pytest.raises(TypeError, match="many labels for one Gaussian sum"):
        pool_of(material).ballot(digits, SUM.steps)
