"""Checks for whoever writes a mechanism that answers with many labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import noise
from ..audit.candidates import Moves, label_moves
from ..audit.releases import draw_rows
from ..errors import require_count
from ..label_costs import label_blocks
from ..label_votes import LabelVotes
from ..mechanisms.labels.outcomes import LabelOutcomes
from ..rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..release import SILENT, Release
from ..votes import Unit
from ._frequencies import Drawn, check_drawn
from ._judging import (
    ROUNDING,
    check_description,
    check_independence,
    check_price_by_draws,
    require_rising,
    share_of_alarm,
)
from ._promise import require

Integers = NDArray[np.int64]


def check_label_mechanism(
    mechanism: Any, *, n_teachers: int = 12, n_random: int = 300, n_draws: int = 20_000, seed: int = 7
) -> None:
    """Raise AssertionError if a mechanism of many labels breaks a promise, saying which one and where.

    It must be a frozen dataclass of plain public fields, `n_labels` among them, with `price` and `release`.
    Its releases are 0, 1 or silence for every label, drawn from the noise they are given and from nothing
    else, each query afresh, alone or in a batch. They cost at most the price, and no less if it says that it
    has `one_price`. With `outcomes` no exact cost passes the price, in either direction at any order,
    outcomes do not print votes, and where they are outcomes label by label, draws follow them. With or
    without, no event is so much likelier at one of two neighbours that its draws prove the price wrong.

    Votes are chosen without asking the mechanism: every sum of every label, alone and together, one teacher's
    ballot changing on one label, on all of them, or from one camp's to another's; and random ones. The worst
    neighbours, and the event that tells them apart, are searched for on draws of their own.

    Guarantee: exact costs at `n_random` random and some extreme votes. The tests of draws raise for a sound
               mechanism with probability at most 1e-6 per call.
    Assumes:   it is a test and no proof, as `check_mechanism`: a leak that comes with probability p at votes
               that are drawn n times leaves no trace with chance (1 - p)^n. Each of some 150 neighbours is
               drawn 60 times, the worst four n_draws times.
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
    moves = Moves(*label_moves(mechanism, max(2, n_teachers), rng))
    _check_each_other(mechanism, moves, n_draws, seed)
    if callable(getattr(mechanism, "outcomes", None)):
        _check_frequencies(mechanism, moves, n_draws, seed)
    check_price_by_draws(
        mechanism, moves, price, n_draws=n_draws, seed=seed + 100, alarm=share_of_alarm("price"), n_best=4,
        rounds=((24, 300), (6, 1500)),
    )  # fmt: skip
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
    require_rising(price)
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
        over = cost.values > n * price.values * (1 + ROUNDING)
        where = f"at order {cost.orders[over.argmax()]:g}"
        require(not over.any(), f"Expected {n} queries to cost at most {n} times the price, not so {where}.")
        if getattr(mechanism, "one_price", False):
            exact = (cost.values >= n * price.values * (1 - ROUNDING)).all()
            require(exact, f"Expected {n} queries to cost {n} times the price, as one_price says, got less.")


def _check_costs(mechanism: Any, votes: LabelVotes, price: RdpCurve) -> None:
    for _, costs, _ in label_blocks(mechanism, votes, price.orders):
        require(bool((costs >= 0).all()), "Expected costs of at least 0, got a negative one.")
        over = (costs > price.values * (1 + ROUNDING) + 1e-12).any(axis=(0, 1))
        where = f"at order {price.orders[over.argmax()]:g}"
        require(not over.any(), f"Expected no exact cost above the price, not so {where}.")
    shown = {repr(mechanism.outcomes(votes[[row]])) for row in range(min(5, len(votes)))}
    require(len(shown) == 1, "Expected outcomes with the same repr for all votes: they are private.")


def _check_each_other(mechanism: Any, moves: Moves, n_draws: int, seed: int) -> None:
    """Require independent queries at the votes whose labels vary most, and at those whose silence does."""
    n_each = 20
    rows = np.repeat(np.arange(len(moves)), n_each)
    told = draw_rows(mechanism, moves.here, rows, noise.seeded(seed)).reshape(len(moves), n_each, -1)
    vary = [
        (share * (1 - share)).sum(axis=1) for share in ((told == 1).mean(axis=1), (told < 0).mean(axis=1))
    ]
    tried = {int(one.argmax()) for one in vary if one.max() > 0}
    # Where everything comes out alike in one batch, the most even votes must not.
    even = np.abs(2 * moves.here.sums - moves.here.sums.max()).sum(axis=1)  # type: ignore[union-attr]
    tried = tried or {int(even.argmin())}
    check_independence(
        mechanism, moves, sorted(tried), n_draws=min(n_draws, 4000), seed=seed,
        alarm=share_of_alarm("independence"),
    )  # fmt: skip


def _check_frequencies(mechanism: Any, moves: Moves, n_draws: int, seed: int) -> None:
    """Require that every label's draws follow its stated distribution, where one is stated."""
    here, there = (_stated(mechanism, votes) for votes in (moves.here, moves.there))
    if here is None or there is None:
        return
    stated = np.concatenate([here, there])
    n_each = max(20, 4 * n_draws // (2 * len(moves)))
    rows = np.repeat(np.arange(len(moves)), n_each)
    source = noise.seeded(seed + 5)
    times, sums = [], []
    for votes in (moves.here, moves.there):
        assert isinstance(votes, LabelVotes)
        told = draw_rows(mechanism, votes, rows, source).reshape(len(moves), n_each, -1)
        # What follows from other labels is told without being asked: for the law it is silence.
        each = [(np.maximum(told, SILENT) == value).sum(axis=1) for value in (SILENT, 0, 1)]
        times.append(np.concatenate(each, axis=1))
        sums.append(votes.sums)
    both = np.concatenate(sums)
    k = both.shape[1]
    names = [f"{what} of label {j}" for what in ("silence", "a 0", "a 1") for j in range(k)]
    together = {"of all kinds": np.zeros(len(both), dtype=np.int64)}
    if both.max() < 10_000:
        together |= {f"with a sum of {{}} for label {j}": both[:, j] for j in range(k)}
    n = np.full((len(both), 3 * k), n_each)
    drawn = Drawn(np.concatenate(times), stated, n, [str(row) for row in both.tolist()], names)
    check_drawn(drawn, together, alarm=share_of_alarm("law"))


def _stated(mechanism: Any, votes: Any) -> Floats | None:
    """Return how likely silence, 0 and 1 are for each label, (votes, 3 labels), where that is stated."""
    found = mechanism.outcomes(votes)
    if not isinstance(found, LabelOutcomes) or hasattr(mechanism, "implications"):
        return None
    logs = found.law.log_outcomes(found.sums)
    silent = logs[2] if len(logs) > 2 else np.full_like(logs[0], -np.inf)
    parts = [silent, logs[0], logs[1]]
    if found.gate is not None:
        opened, shut = (part[:, None] for part in found.gate.log_pass_and_fail(found.sums))
        parts = [np.logaddexp(shut, opened + silent), opened + logs[0], opened + logs[1]]
    return np.asarray(np.minimum(np.exp(np.concatenate(parts, axis=1)), 1.0))
