"""Typical rows first: what is dense and central comes before what is odd, from all over the pool."""

import numpy as np
import pytest

from tellers import GNMax, Votes
from tellers.accounting.exact import exact_epsilons
from tellers.data import digits
from tellers.runs.labelling import pool_order
from tellers.students import typical_first


def blobs(seed=0, n=60, n_odd=12):
    """Three dense clouds, and rows far from all of them."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    dense = np.concatenate([centre + rng.normal(size=(n, 2)) for centre in centres])
    odd = rng.uniform(-60, 60, size=(n_odd, 2))
    return np.concatenate([dense, odd]), np.repeat(np.arange(4), [n, n, n, n_odd])


def test_every_row_comes_once():
    rows, _ = blobs()
    assert np.array_equal(np.sort(typical_first(rows, n_groups=5)), np.arange(len(rows)))


def test_odd_rows_come_late_and_every_cloud_early():
    rows, cloud = blobs()
    order = cloud[typical_first(rows, n_groups=3)]
    assert set(order[:3].tolist()) == {0, 1, 2}
    assert not (order[:90] == 3).any()


def test_a_seed_decides_and_nothing_else():
    rows, _ = blobs()
    once, again = (typical_first(rows, n_groups=4, seed=3) for _ in range(2))
    assert np.array_equal(once, again)


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_fewer_rows_than_groups(n_rows):
    order = typical_first(np.arange(n_rows, dtype=float)[:, None], n_groups=100)
    assert sorted(order.tolist()) == list(range(n_rows))


def test_bad_rows_are_refused():
    with pytest.raises(ValueError, match="row 1"):
        typical_first([[0.0], [float("nan")]])
    with pytest.raises(ValueError, match="n_groups"):
        typical_first([[0.0], [1.0]], n_groups=0)


def test_a_pool_is_asked_in_that_order():
    rows, _ = blobs()
    scaled = rows * [1.0, 1000.0]  # the unit of a feature decides nothing
    order = pool_order(scaled, "typical", seed=3)
    assert np.array_equal(order, pool_order(rows, "typical", seed=3))
    assert np.array_equal(np.sort(order), np.arange(len(rows)))


def test_teachers_agree_on_typical_rows_so_the_same_epsilon_buys_more():
    """On real digits, 30 teachers of 40 rows each; nothing random but two fixed orders: 130 labels for 59."""
    from sklearn.svm import SVC

    data = digits()
    X, y = data.X.reshape(len(data.X), -1), data.y
    pool = X[1200:]
    shards = np.arange(1200).reshape(30, 40)
    ballots = np.stack([SVC(C=10).fit(X[rows], y[rows]).predict(pool) for rows in shards])
    bought = {}
    for name, order in (
        ("typical", typical_first(pool, n_groups=10, seed=0)),
        ("random", np.random.default_rng(0).permutation(len(pool))),
    ):
        votes = Votes.from_ballots(ballots[:, order], n_classes=10)
        epsilons = exact_epsilons(GNMax(sigma=4.0), votes, delta=1e-5).reveal()
        bought[name] = int((epsilons <= 5.0).sum())
    assert bought["typical"] > 1.5 * bought["random"]
