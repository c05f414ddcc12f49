"""Checks for whoever writes a mechanism: does it keep its promises?

The strongest test of a mechanism is its own definition. `check_mechanism` computes the divergence of
its outcomes between neighbouring votes and requires it to stay below the price, on thousands of
votes and at every order, and draws from it to see that what comes out is what it says, at every count of
every class. A mechanism without `outcomes` is watched from outside: how well can its draws tell two
neighbours apart?

All votes here are made up from a seed, so messages may show them.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import noise
from ..audit.candidates import Moves, class_moves
from ..audit.releases import hears_student
from ..divergence import divergences
from ..errors import require_count
from ..mechanisms.outcomes import Outcomes, chunks
from ..rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..votes import Integers, Votes
from ._judging import (
    FALSE_ALARM,
    ROUNDING,
    Singles,
    check_description,
    check_independence,
    check_price_by_draws,
    check_silence_by_draws,
    first_outcomes,
    informative_rows,
    require_rising,
    share_of_alarm,
)
from ._promise import require
from ._stated import check_stated
from ._trial import Trial, student_rows

__all__ = ["FALSE_ALARM", "check_mechanism", "random_votes"]

# Distributions are compared to within the accuracy of a quadrature.
_QUADRATURE = 1e-6
# Few enough for a computation straight from the definition, far enough apart to see any mistake.
_FEW_ORDERS = np.array([1.25, 2.0, 8.0, 64.0, 512.0])
# Other numbers of classes and teachers that are tried: a mistake may show in few or many of them alone.
# Teachers (None: as asked), classes, and the most neighbouring votes of each.
_OTHERS = ((None, 12, 250), (None, 101, 10), (301, 2, 120))


def check_mechanism(
    mechanism: Any,
    *,
    n_teachers: int = 60,
    n_classes: int = 4,
    n_random: int = 2000,
    n_draws: int = 20_000,
    seed: int = 7,
    student: ArrayLike | None = None,
) -> None:
    """Raise AssertionError if a mechanism breaks a promise, saying which one and where.

    It must be a frozen dataclass of plain public fields with `price` and `release`. Its releases are
    labels or silence, drawn from the noise they are given and from nothing else, each query afresh, alone or
    in a batch. They cost at most the price, and no less if it says that it has `one_price`; an outcome that
    is charged less gives less away. With `outcomes`: distributions sum to one, here and at every neighbour; a
    neighbour's own outcomes are those announced for the move; no divergence passes the price, in either
    direction at any order; permuted classes give permuted outcomes if it says it is `symmetric`; draws follow
    the distribution. Without: no event is so much likelier at one of two neighbours that its draws prove the
    price wrong.

    Votes are chosen without asking the mechanism: every count of every class, alone against one rival,
    against all others and tied for the lead, and random ones; `n_classes` classes, and 2, 12 and 101 as well,
    unless it refuses them. Neighbours and events without `outcomes` are searched for on draws of their own.

    `student` are rows of probabilities, taken in turn, for mechanisms that want them.

    Guarantee: the divergences are exact at `n_random` random votes and those above. The tests of draws are
               exact ones that raise for a sound mechanism with probability at most 1e-6 per call.
    Assumes:   what holds for these votes holds for others: it is a test and no proof. A leak that comes with
               probability p at votes that are drawn n times leaves no trace with chance (1 - p)^n, so it
               takes n = 14 / p draws to miss it but once in a million; where its answer comes with
               probability s anyway, it is proved from about n = 60 s (1 - s) / p^2. With `outcomes` each vote
               is drawn 4 n_draws / n_votes times (some 60), four near-ties n_draws times, and votes that
               share a count of a class, a lead or a leader also count together (hundreds of draws to
               160,000). Without, each vote is drawn 60 times, and the three worst pairs n_draws times; a
               price that is a few per cent too low for noise of 40 votes stays unseen in them, and only
               `outcomes` can show it.
    Reference: Mironov 2017, Definition 4; Clopper and Pearson 1934, Chernoff 1952 and Chatterjee 2007 for
               the draws; Feldman and Zrnic 2021 for charges that depend on outcomes.

    >>> from tellers import GNMax
    >>> check_mechanism(GNMax(sigma=2.0), n_random=50)
    """
    require_count(n_random=n_random, n_draws=n_draws)
    rng = np.random.default_rng(seed)
    votes = random_votes(rng, n_teachers, n_classes=n_classes, n_queries=n_random)
    described = check_description(mechanism)
    trial = Trial(mechanism, votes, student_rows(student, votes), seed)
    price = _check_price(trial)
    _check_releases(trial, price)
    settings = list(_settings(trial, student, rng))
    stated = callable(getattr(mechanism, "outcomes", None))
    if stated:
        _check_outcomes(trial, price)
        _check_neighbours(trial, rng)
        shown = {repr(trial.outcomes([0], row[None, :])) for row in votes.counts[:5]}
        require(len(shown) == 1, "Expected outcomes with the same repr for all votes: they are private.")
        if getattr(mechanism, "symmetric", False) and student is None:
            _check_symmetry(trial, rng)
    charged = _check_each_other(mechanism, settings[0], n_draws, seed)
    for place, moves in enumerate(settings):
        if stated:
            alarm = share_of_alarm("law", len(settings))
            n_spread = max(12 * len(moves), 4 * n_draws // moves.both.n_classes) if place else 4 * n_draws
            check_stated(mechanism, moves, price, charged, n_draws=n_spread,
                          n_more=0 if place else n_draws, alarm=alarm, seed=seed)  # fmt: skip
        else:
            share = share_of_alarm("price", len(settings) + 1)
            _check_unstated(mechanism, moves, price, n_draws=n_draws, main=place == 0, alarm=share, seed=seed)
    if not stated:
        check_silence_by_draws(
            mechanism, settings[0], price, charged, n_draws=n_draws, seed=seed + 200,
            alarm=share_of_alarm("price", len(settings) + 1),
        )  # fmt: skip
    same = check_description(mechanism) == described
    require(same, "Expected fields that stay as they were made; releasing votes changed them.")


def _settings(trial: Trial, student: ArrayLike | None, rng: np.random.Generator) -> Iterator[Moves]:
    """Yield neighbouring votes: of as many classes and teachers as were asked for, then of others."""
    n_teachers, n_classes = trial.votes.n_teachers, trial.votes.n_classes
    listens = hears_student(trial.mechanism)
    for teachers, classes, n_most in ((n_teachers, n_classes, 1200), *_OTHERS):
        if (teachers or n_teachers, classes) == (n_teachers, n_classes) and n_most != 1200:
            continue
        here, there = class_moves(teachers or n_teachers, classes, rng, n_most=n_most)
        belief = None
        if listens:
            usual = np.stack([np.full(classes, 1 / classes), np.eye(classes)[0] * 0.5 + 0.5 / classes])
            rows = usual if student is None or classes != n_classes else student
            belief = student_rows(rows, here)
        if classes != n_classes:
            more = {} if belief is None else {"student": belief[:1]}
            try:
                trial.mechanism.release(here[[0]], noise.seeded(trial.seed), **more)
            except ValueError:  # it is for another number of classes
                continue
        yield Moves(here, there, belief)


def _check_each_other(mechanism: Any, moves: Moves, n_draws: int, seed: int) -> Singles:
    times = first_outcomes(mechanism, moves, n_each=20, n_outcomes=1 + moves.here.n_classes, seed=seed)  # type: ignore[union-attr]
    return check_independence(
        mechanism, moves, informative_rows(times), n_draws=min(n_draws, 4000), seed=seed,
        alarm=share_of_alarm("independence"),
    )  # fmt: skip


def _check_unstated(
    mechanism: Any, moves: Moves, price: RdpCurve, *, n_draws: int, main: bool, alarm: float, seed: int
) -> None:
    m = moves.here.n_classes  # type: ignore[union-attr]
    rounds = ((30, 400), (6, 2000)) if main else ((10, 300), (2, 1000)) if m < 50 else ((8, 100), (2, 300))
    check_price_by_draws(
        mechanism, moves, price, n_draws=n_draws if main else max(500, n_draws // 4), seed=seed + 100 + m,
        alarm=alarm, n_best=3 if main else 1, rounds=rounds,
    )  # fmt: skip


def random_votes(rng: np.random.Generator, n_teachers: int, *, n_classes: int, n_queries: int) -> Votes:
    """Return votes that try a mechanism: unanimous, tied, one vote apart, with empty classes, and random.

    The first rows are the extreme ones, as many as fit; the rest are drawn from loose to unanimous,
    half of them with two leaders at most three votes apart. Ballots are known.

    >>> votes = random_votes(np.random.default_rng(7), 10, n_classes=3, n_queries=50)
    >>> votes
    Votes(<private>, n_queries=50, n_teachers=10, n_classes=3)
    >>> votes.gap[:4]
    array([10,  8,  0,  1])
    """
    require_count(n_teachers=n_teachers, n_queries=n_queries)
    require_count(2, n_classes=n_classes)
    rows = _extreme_counts(n_teachers, n_classes)[:n_queries]
    while len(rows) < n_queries:
        shares = rng.dirichlet(np.full(n_classes, 10 ** rng.uniform(-1.7, 1.3)))
        row = rng.multinomial(n_teachers, shares)
        if len(rows) % 2:
            first, second = np.argsort(-row)[:2]
            both = int(row[first] + row[second])
            gap = min(both, 2 * int(rng.integers(2)) + both % 2)
            row[first], row[second] = (both + gap) // 2, (both - gap) // 2
        rows.append(row)
    counts = rng.permuted(np.stack(rows), axis=1)
    ballots = np.stack([rng.permutation(np.repeat(np.arange(n_classes), row)) for row in counts], axis=1)
    return Votes.from_ballots(ballots, n_classes=n_classes)


def _extreme_counts(n_teachers: int, n_classes: int) -> list[Integers]:
    one, half = np.eye(n_classes, dtype=np.int64), n_teachers // 2
    rows = [n_teachers * one[0], (n_teachers - 1) * one[0] + one[1]]
    # Two leaders, the rest empty: tied for an even number of teachers, one vote apart for an odd one.
    rows.append(half * one[0] + (n_teachers - half) * one[1])
    if n_classes > 2:  # One vote elsewhere turns that round.
        half = (n_teachers - 1) // 2
        rows.append(half * one[0] + (n_teachers - 1 - half) * one[1] + one[2])
    everyone, more = divmod(n_teachers, n_classes)
    rows.append(everyone + (np.arange(n_classes) < more).astype(np.int64))
    return rows


def _require_all(holds: NDArray[np.bool_], counts: Integers, what: str) -> None:
    require(holds.all(), f"{what}; not so for votes {counts[np.argmin(holds)].tolist()}.")


def _check_price(trial: Trial) -> RdpCurve:
    price, again = (trial.mechanism.price(trial.votes.unit) for _ in range(2))
    require(isinstance(price, RdpCurve), f"Expected `price` to be an RdpCurve, got {type(price).__name__}.")
    require(np.array_equal(price.orders, DEFAULT_ORDERS), "Expected a price on the default orders.")
    require(np.array_equal(price.values, again.values), "Expected the same price each time it is asked.")
    require_rising(price)
    return RdpCurve(DEFAULT_ORDERS, price.values)


def _check_releases(trial: Trial, price: RdpCurve) -> None:
    for n in (1, len(trial.votes)):
        release, again = (trial.release(slice(n)) for _ in range(2))
        require(
            np.array_equal(trial.drawn(release, n), trial.drawn(again, n))
            and (release.values is None or np.array_equal(release.values, again.values)),
            "Expected the same labels from the same noise; draw all randomness from the `noise` argument.",
        )
        cost = release.cost.worst
        require(np.array_equal(cost.orders, price.orders), "Expected the cost on the orders of the price.")
        over = cost.values > n * price.values * (1 + ROUNDING)
        where = f"at order {cost.orders[over.argmax()]:g}"
        require(not over.any(), f"Expected {n} queries to cost at most {n} times the price, not so {where}.")
        if getattr(trial.mechanism, "one_price", False):
            exact = (cost.values >= n * price.values * (1 - ROUNDING)).all()
            require(exact, f"Expected {n} queries to cost {n} times the price, as one_price says, got less.")


def _check_outcomes(trial: Trial, price: RdpCurve) -> None:
    """Require normalised distributions and divergences below the price, for every vote and order."""
    n, n_classes = trial.votes.counts.shape
    for rows in chunks(np.full(n, n_classes)):
        outcomes, counts = trial.outcomes(rows), trial.votes.counts[rows]
        require(isinstance(outcomes, Outcomes), f"Expected Outcomes, got {type(outcomes).__name__}.")
        shape = (len(rows), 1 + n_classes)
        require(outcomes.log_labels.shape == shape, f"Expected log_labels of shape {shape}, silence first.")
        sums = np.abs(np.exp(outcomes.log_labels).sum(axis=1) - 1) < _QUADRATURE
        _require_all(sums, counts, "Expected probabilities that sum to 1 at the votes")
        # Where there is no move, or no outcome, the entry is padding and may hold anything.
        alive = (outcomes.multiplicity > 0) & outcomes.moves[..., None]
        for name in ("log_here", "log_there"):
            logs = np.where(alive, getattr(outcomes, name), -np.inf)
            total = (np.exp(logs) * outcomes.multiplicity).sum(axis=3)
            sums = (~outcomes.moves | (np.abs(total - 1) < _QUADRATURE)).all(axis=(1, 2))
            _require_all(sums, counts, f"Expected `{name}` to sum to 1 for every move")
            # An outcome that only one of two neighbours can have gives it away.
            possible = ~(alive & np.isneginf(logs)).any(axis=(1, 2, 3))
            _require_all(possible, counts, f"Expected outcomes possible at every neighbour, `{name}` > -inf")
        cost = divergences(outcomes, orders=price.orders)
        # Written so that NaN fails too.
        fits = cost <= price.values * (1 + ROUNDING) + ROUNDING / price.orders
        if not fits.all():
            excess = np.where(fits, 0.0, cost / np.maximum(price.values, 1e-300))
            way, query, source, at = np.unravel_index(int(excess.argmax()), excess.shape)
            against = ("at the votes against a neighbour", "at a neighbour against the votes")[int(way)]
            raise AssertionError(
                f"Expected no divergence above the price, got {cost[way, query, source, at]:.6g} above "
                f"{price.values[at]:.6g} at order {price.orders[at]:g}, {against}, for votes "
                f"{counts[query].tolist()}. Raise the price, or find the mistake in `outcomes`."
            )


def _check_neighbours(trial: Trial, rng: np.random.Generator) -> None:
    """Require that what is announced for a move is what the neighbour's own votes give."""
    n_classes = trial.votes.n_classes
    moves = np.argwhere((trial.votes.counts[:100] > 0)[:, :, None] & ~np.eye(n_classes, dtype=bool))
    moves = moves[rng.permutation(len(moves))[:600]]
    for rows in chunks(np.full(len(moves), n_classes)):
        query, source, target = moves[rows].T
        moved, each = trial.votes.counts[query], np.arange(len(rows))
        moved[each, source] -= 1
        moved[each, target] += 1
        here, there = trial.outcomes(query), trial.outcomes(query, moved)
        place = each, here.of_class[each, source], here.of_class[each, target]
        _require_all(here.moves[place], moved, "Expected `moves` to know every neighbour")
        direct = _plain_divergences(here.log_labels, there.log_labels, 1)
        announced = _plain_divergences(here.log_here[place], here.log_there[place], here.multiplicity[place])
        close = np.abs(direct - announced) <= 1e-9 + 1e-5 * np.maximum(direct, announced)
        what = "Expected `log_here` and `log_there` to differ as the outcomes of a neighbour's own votes do"
        _require_all(close.all(axis=(0, 1)), moved, what)


def _plain_divergences(log_p: Floats, log_q: Floats, multiplicity: Any) -> Floats:
    """Return divergences (2, orders, pairs) straight from the definition."""
    times = np.broadcast_to(multiplicity, log_p.shape)
    alive = (times > 0) & ~(np.isneginf(log_p) & np.isneginf(log_q))
    p, q = np.where(alive, log_p, 0.0), np.where(alive, log_q, 0.0)
    start = np.where(alive, np.log(np.maximum(times, 1)), -np.inf)
    order = _FEW_ORDERS[:, None, None]
    both = [start + order * a + (1 - order) * b for a, b in ((p, q), (q, p))]
    return np.asarray(np.logaddexp.reduce(np.stack(both), axis=3) / (_FEW_ORDERS[:, None] - 1))


def _check_symmetry(trial: Trial, rng: np.random.Generator) -> None:
    """Require that permuting the classes permutes the outcomes and changes no cost."""
    n_classes = trial.votes.n_classes
    for rows in chunks(np.full(min(300, len(trial.votes)), n_classes)):
        counts = trial.votes.counts[rows]
        order = rng.permuted(np.tile(np.arange(n_classes), (len(rows), 1)), axis=1)
        both = trial.outcomes(rows), trial.outcomes(rows, np.take_along_axis(counts, order, axis=1))
        # Silence keeps its place in front of the classes.
        place = np.concatenate([np.zeros((len(rows), 1), dtype=np.int64), 1 + order], axis=1)
        plain, permuted = np.take_along_axis(both[0].log_labels, place, axis=1), both[1].log_labels
        same = np.isclose(permuted, plain, rtol=1e-6, atol=1e-9).all(axis=1)
        _require_all(same, counts, "Expected permuted classes to give permuted outcomes")
        plain, permuted = (
            np.take_along_axis(divergences(one, orders=_FEW_ORDERS), one.of_class[None, :, :, None], axis=2)
            for one in both
        )
        plain = np.take_along_axis(plain, order[None, :, :, None], axis=2)
        same = np.isclose(permuted, plain, rtol=1e-6, atol=1e-9).all(axis=(0, 2, 3))
        _require_all(same, counts, "Expected permuted classes to cost the same")
