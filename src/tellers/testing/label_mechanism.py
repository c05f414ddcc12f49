"""Checks for whoever writes a mechanism that answers with many labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import noise
from ..errors import require_count
from ..label_costs import label_blocks
from ..label_votes import LabelVotes
from ..rdp import DEFAULT_ORDERS, RdpCurve
from ..release import SILENT, Release
from ..votes import Unit
from ._judging import check_description, clopper_pearson, coin
from ._promise import require
from .mechanism import FALSE_ALARM

Integers = NDArray[np.int64]

_ROUNDING = 1e-9


def check_label_mechanism(
    mechanism: Any, *, n_teachers: int = 12, n_random: int = 300, n_draws: int = 20_000, seed: int = 7
) -> None:
    """Raise AssertionError if a mechanism of many labels breaks a promise, saying which one and where.

    It must be a frozen dataclass of plain public fields, `n_labels` among them, with `price` and `release`.
    Its releases are 0, 1 or silence for every label, drawn from the noise they are given and from nothing
    else, and cost at most the price, and no less if it says that it has `one_price`. With `outcomes` no exact
    cost passes the price, in either direction at any order, and outcomes do not print votes. With or without,
    no event is so much likelier at one of two neighbours that its draws prove the price wrong; events are
    the outcomes of each label, and how many labels are given.

    Guarantee: exact costs at `n_random` random and some extreme votes. The tests of draws raise for a sound
               mechanism with probability at most 1e-6 per call.
    Assumes:   it is a test and no proof, as `check_mechanism`.
    Reference: Mironov 2017, Definition 4; Clopper and Pearson 1934 for the draws.

    >>> from tellers import Binary
    >>> check_label_mechanism(Binary(sigma=2.0, n_labels=3), n_random=20, n_draws=2000)
    """
    require_count(n_teachers=n_teachers, n_random=n_random, n_draws=n_draws)
    described = check_description(mechanism)
    n_labels = getattr(mechanism, "n_labels", None)
    require(isinstance(n_labels, int), "Expected a field `n_labels`: how many labels there are is public.")
    rng = np.random.default_rng(seed)
    votes = random_label_votes(rng, mechanism, n_teachers=n_teachers, n_queries=n_random)
    price = _check_price(mechanism)
    _check_releases(mechanism, votes, price, seed)
    if callable(getattr(mechanism, "outcomes", None)):
        _check_costs(mechanism, votes, price)
    _check_by_draws(mechanism, n_teachers, price, n_draws, seed)
    same = check_description(mechanism) == described
    require(same, "Expected fields that stay as they were made; releasing votes changed them.")


def random_label_votes(
    rng: np.random.Generator, mechanism: Any, *, n_teachers: int, n_queries: int
) -> LabelVotes:
    """Return votes that try a mechanism: all agreed, evenly split, one vote apart, and random.

    >>> from tellers import Binary
    >>> random_label_votes(np.random.default_rng(7), Binary(2.0, 3), n_teachers=5, n_queries=9)
    LabelVotes(<private>, n_queries=9, n_teachers=5, n_labels=3)
    """
    n_labels = mechanism.n_labels
    table = np.empty((n_teachers, n_queries, n_labels))
    for query in range(n_queries):
        yes = (0.0, 1.0, 0.5)[query] if query < 3 else rng.beta(0.4, 0.4, size=n_labels)
        table[:, query] = rng.random((n_teachers, n_labels)) < yes
        if query == 2:  # an even split, in turn
            table[:, query] = (np.arange(n_teachers)[:, None] + np.arange(n_labels)) % 2
    parts = getattr(mechanism, "votes_resolution", getattr(mechanism, "resolution", 1))
    return LabelVotes.from_ballots(table, n_labels=n_labels, resolution=parts)


def _check_price(mechanism: Any) -> RdpCurve:
    price, again = (mechanism.price(Unit()) for _ in range(2))
    require(isinstance(price, RdpCurve), f"Expected `price` to be an RdpCurve, got {type(price).__name__}.")
    require(np.array_equal(price.orders, DEFAULT_ORDERS), "Expected a price on the default orders.")
    require(np.array_equal(price.values, again.values), "Expected the same price each time it is asked.")
    return RdpCurve(DEFAULT_ORDERS, price.values)


def _labels(release: Any, n: int, n_labels: int) -> Integers:
    require(isinstance(release, Release), f"Expected a Release, got {type(release).__name__}.")
    labels, answered = np.asarray(release.labels), np.asarray(release.answered)
    require(
        labels.shape == answered.shape == (n, n_labels)
        and labels.dtype.kind in "iu"
        and answered.dtype == bool,
        f"Expected {n} x {n_labels} whole labels and as many True or False in `answered`, got shapes "
        f"{labels.shape} and {answered.shape} of {labels.dtype} and {answered.dtype}.",
    )
    require(np.isin(labels, (SILENT, 0, 1)).all(), "Expected 0, 1 or SILENT for every label, got another.")
    told = labels != SILENT
    require(bool((told >= answered).all()), "Expected every answered label to be told, got a silent one.")
    return labels


def _check_releases(mechanism: Any, votes: LabelVotes, price: RdpCurve, seed: int) -> None:
    for n in (1, len(votes)):
        release, again = (mechanism.release(votes[:n], noise.seeded(seed)) for _ in range(2))
        same = np.array_equal(_labels(release, n, votes.n_labels), _labels(again, n, votes.n_labels))
        require(
            same,
            "Expected the same labels from the same noise; draw all randomness from the `noise` argument.",
        )
        cost = release.cost.worst
        require(np.array_equal(cost.orders, price.orders), "Expected the cost on the orders of the price.")
        over = cost.values > n * price.values * (1 + _ROUNDING)
        where = f"at order {cost.orders[over.argmax()]:g}"
        require(not over.any(), f"Expected {n} queries to cost at most {n} times the price, not so {where}.")
        if getattr(mechanism, "one_price", False):
            exact = (cost.values >= n * price.values * (1 - _ROUNDING)).all()
            require(exact, f"Expected {n} queries to cost {n} times the price, as one_price says, got less.")


def _check_costs(mechanism: Any, votes: LabelVotes, price: RdpCurve) -> None:
    for _, costs, _ in label_blocks(mechanism, votes, price.orders):
        require(bool((costs >= 0).all()), "Expected costs of at least 0, got a negative one.")
        over = (costs > price.values * (1 + _ROUNDING) + 1e-12).any(axis=(0, 1))
        where = f"at order {price.orders[over.argmax()]:g}"
        require(not over.any(), f"Expected no exact cost above the price, not so {where}.")
    shown = {repr(mechanism.outcomes(votes[[row]])) for row in range(min(5, len(votes)))}
    require(len(shown) == 1, "Expected outcomes with the same repr for all votes: they are private.")


def _check_by_draws(mechanism: Any, n_teachers: int, price: RdpCurve, n_draws: int, seed: int) -> None:
    """Require that no event's draws prove a divergence above the price, on a few neighbouring pairs."""
    k = mechanism.n_labels
    half = (np.arange(n_teachers)[:, None] < n_teachers // 2).repeat(k, axis=1).astype(np.float64)
    pairs = []
    for rest in (np.zeros((n_teachers, k)), np.ones((n_teachers, k)), half):
        for one in (np.zeros(k), np.ones(k), (np.arange(k) % 2).astype(np.float64)):
            here, there = rest.copy(), rest.copy()
            here[-1], there[-1] = one, 1 - one
            pairs.append((here, there))
    n_events = 3 * k + k + 1
    error = FALSE_ALARM / (4 * len(pairs) * n_events)
    parts = getattr(mechanism, "votes_resolution", getattr(mechanism, "resolution", 1))
    for at, pair in enumerate(pairs):
        times = []
        for side, ballots in enumerate(pair):
            block = np.repeat(ballots[:, None, :], n_draws, axis=1)
            votes = LabelVotes.from_ballots(block, n_labels=k, resolution=parts)
            release = mechanism.release(votes, noise.seeded(seed + 2 * at + side + 1))
            labels = _labels(release, n_draws, k)
            each = [(labels == value).sum(axis=0) for value in (SILENT, 0, 1)]
            given = np.bincount((labels == 1).sum(axis=1), minlength=k + 1)
            times.append(np.concatenate([*each, given]))
        here, there = (clopper_pearson(one, n_draws, error) for one in times)
        proved = np.maximum(coin(here, there, price.orders), coin(there, here, price.orders))
        over = proved > price.values * (1 + _ROUNDING) + _ROUNDING
        worst = int(np.argmax(np.where(over, proved / np.maximum(price.values, 1e-300), 0.0)))
        require(
            not over.any(),
            f"Expected a price above every divergence; draws show at least {proved[worst]:.4g} where the "
            f"price is {price.values[worst]:.4g}, at order {price.orders[worst]:g}. Raise the price, or look "
            "for noise that is not drawn.",
        )
