"""Checks for whoever writes a mechanism: does it keep its promises?

The strongest test of a mechanism is its own definition. `check_mechanism` computes the divergence of
its outcomes between neighbouring votes and requires it to stay below the price, on thousands of
votes and at every order, and draws from it to see that what comes out is what it says. A mechanism
without `outcomes` is watched from outside: how well can its draws tell two neighbours apart?

Everything here works on votes made up from a seed, so messages may show them.
"""

import dataclasses
import json
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom

from . import noise
from .errors import require_count
from .exact import divergences
from .mechanisms.outcomes import Outcomes, chunks
from .rdp import Floats, RdpCurve
from .release import SILENT, Release, describe
from .votes import Votes

FALSE_ALARM = 1e-6
"""The most likely a check is to fail by bad luck of its draws; for one seed it always or never does."""

# Sums of probabilities, and prices, are compared to within rounding and the accuracy of the quadrature.
_ROUNDING = 1e-9
# Few enough for a computation straight from the definition, far enough apart to see any mistake.
_FEW_ORDERS = np.array([1.25, 2.0, 8.0, 64.0, 512.0])


def check_mechanism(
    mechanism: Any,
    *,
    n_teachers: int = 60,
    n_classes: int = 4,
    n_random: int = 2000,
    seed: int = 7,
    student: ArrayLike | None = None,
    n_draws: int = 20_000,
) -> None:
    """Raise AssertionError if a mechanism breaks a promise, saying which one and where.

    It must be a frozen dataclass of plain public fields with `price` and `release`. Its releases are
    labels or silence, drawn from the noise they are given and from nothing else, and cost at most
    the price. With `outcomes`: distributions sum to one, here and at every neighbour; a neighbour's own
    outcomes are those announced for the move; no divergence passes the price, in either direction at
    any order; permuted classes give permuted outcomes if it says it is `symmetric`; draws follow the
    distribution. Without: no event is so much likelier at one of two neighbours that its draws prove
    the price wrong.

    `student` are rows of probabilities, taken in turn, for mechanisms that want them.

    Guarantee: the divergences are exact at `n_random` votes. The tests of draws are exact binomial
               ones that raise for a sound mechanism with probability at most 1e-6 per call.
    Assumes:   what holds for these votes holds for others: it is a test and no proof. Draws show small
               noise best; a price that is a few per cent too low for noise of 40 votes stays unseen
               in them, and only `outcomes` can show it.
    Reference: Mironov 2017, Definition 4; Clopper and Pearson 1934 for the draws.

    >>> from tellers import GNMax
    >>> check_mechanism(GNMax(sigma=2.0), n_random=50)
    """
    require_count(n_teachers=n_teachers, n_random=n_random, n_draws=n_draws)
    rng = np.random.default_rng(seed)
    votes = random_votes(rng, n_teachers, n_classes=n_classes, n_queries=n_random)
    beliefs = None if student is None else _in_turn(student, n_random, n_classes)
    described = _check_description(mechanism)
    price = _check_price(mechanism, votes)
    _check_release(mechanism, votes, price, beliefs, seed=seed)
    if callable(getattr(mechanism, "outcomes", None)):
        _check_outcomes(mechanism, votes, price, beliefs)
        _check_neighbours(mechanism, votes, beliefs, rng=rng)
        _check_sealed(mechanism, votes, beliefs)
        if getattr(mechanism, "symmetric", False) and beliefs is None:
            _check_symmetry(mechanism, votes, rng)
        _check_frequencies(mechanism, votes, beliefs, n_draws=n_draws, seed=seed)
    else:
        _check_by_draws(mechanism, votes, price, beliefs, n_draws=n_draws, seed=seed)
    _require(
        _check_description(mechanism) == described,
        "Expected fields that stay as they were made; they changed while votes were released.",
    )


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


def _extreme_counts(n_teachers: int, n_classes: int) -> list[NDArray[np.int64]]:
    first = np.eye(n_classes, dtype=np.int64)
    half = n_teachers // 2
    rows = [n_teachers * first[0], (n_teachers - 1) * first[0] + first[1]]
    # Two leaders, the rest empty: tied for an even number of teachers, one vote apart for an odd one.
    rows.append(half * first[0] + (n_teachers - half) * first[1])
    if n_classes > 2:
        # One vote elsewhere turns that round.
        half = (n_teachers - 1) // 2
        rows.append(half * first[0] + (n_teachers - 1 - half) * first[1] + first[2])
    # As even as can be: everybody tied, up to one vote.
    everyone, more = divmod(n_teachers, n_classes)
    rows.append(everyone + (np.arange(n_classes) < more).astype(np.int64))
    return rows


def _require(holds: Any, message: str) -> None:
    # Not an assert statement: this must also speak under python -O.
    if not holds:
        raise AssertionError(message)


def _in_turn(student: ArrayLike, n_queries: int, n_classes: int) -> Floats:
    rows = np.atleast_2d(np.asarray(student, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != n_classes:
        raise ValueError(f"Expected rows of {n_classes} student probabilities, got shape {rows.shape}.")
    return np.asarray(rows[np.arange(n_queries) % len(rows)])


def _context(beliefs: Floats | None, rows: Any = slice(None)) -> dict[str, Any]:
    return {} if beliefs is None else {"student": beliefs[rows]}


def _check_description(mechanism: Any) -> str:
    """Require a frozen dataclass of public, storable fields; return its description."""
    name = type(mechanism).__name__
    parameters = getattr(mechanism, "__dataclass_params__", None)
    _require(
        parameters is not None and parameters.frozen and not isinstance(mechanism, type),
        f"Expected an instance of a frozen dataclass, got {name}. Decorate it with @dataclass(frozen=True).",
    )
    hidden = [field.name for field in dataclasses.fields(mechanism) if field.name.startswith("_")]
    _require(not hidden, f"Expected public fields only, got {hidden}: what is private comes as an argument.")
    for wanted in ("price", "release"):
        _require(callable(getattr(mechanism, wanted, None)), f"Expected {name} to have a method `{wanted}`.")
    event = describe(mechanism, noise.seeded(0))
    try:
        stored = json.dumps(event)
    except TypeError as error:
        raise AssertionError(f"Expected fields that can be stored in an event: {error}.") from error
    return stored + repr(mechanism)


def _check_price(mechanism: Any, votes: Votes) -> RdpCurve:
    price, again = mechanism.price(votes.unit), mechanism.price(votes.unit)
    _require(isinstance(price, RdpCurve), f"Expected `price` to be an RdpCurve, got {type(price).__name__}.")
    grid = RdpCurve.zero().orders
    _require(
        np.array_equal(price.orders, grid), "Expected a price on the default orders, so that prices add up."
    )
    _require(
        np.array_equal(price.values, again.values), "Expected the same price every time it is asked for."
    )
    assert isinstance(price, RdpCurve)
    return price


def _check_release(
    mechanism: Any, votes: Votes, price: RdpCurve, beliefs: Floats | None, *, seed: int
) -> None:
    for batch in (votes[:1], votes):
        n, context = len(batch), _context(beliefs, slice(len(batch)))
        release, again = (mechanism.release(batch, noise.seeded(seed), **context) for _ in range(2))
        _require(
            np.array_equal(_drawn_outcomes(release, batch), _drawn_outcomes(again, batch)),
            "Expected the same labels from the same noise; draw all randomness from the `noise` argument.",
        )
        cost = release.cost.worst
        _require(np.array_equal(cost.orders, price.orders), "Expected the cost on the orders of the price.")
        over = cost.values > n * price.values * (1 + _ROUNDING)
        _require(
            not over.any(),
            f"Expected {n} queries to cost at most {n} times the price, which they do not at order "
            f"{cost.orders[over.argmax()]:g}. A ledger would refuse them.",
        )


def _drawn_outcomes(release: Any, votes: Votes) -> NDArray[np.int64]:
    """Return the outcome of each query, 0 for no answer and 1 + label for an answer, after checking it."""
    _require(isinstance(release, Release), f"Expected a Release, got {type(release).__name__}.")
    labels, answered = np.asarray(release.labels), np.asarray(release.answered)
    _require(
        labels.shape == (len(votes),) and labels.dtype.kind in "iu",
        f"Expected {len(votes)} whole labels, one per query, got shape {labels.shape} of {labels.dtype}.",
    )
    _require(
        answered.shape == labels.shape and answered.dtype == np.bool_,
        f"Expected `answered` to be True or False per query, got shape {answered.shape} of {answered.dtype}.",
    )
    inside = (labels >= 0) & (labels < votes.n_classes)
    wrong = ~np.where(answered, inside, inside | (labels == SILENT))
    _require(
        not wrong.any(),
        f"Expected labels 0..{votes.n_classes - 1}, or SILENT without an answer, got {labels[wrong][:1]}.",
    )
    return np.asarray(np.where(answered, labels + 1, 0))


def _check_outcomes(mechanism: Any, votes: Votes, price: RdpCurve, beliefs: Floats | None) -> None:
    """Require normalised distributions and divergences below the price, for every vote and order."""
    for rows in chunks(np.full(len(votes), votes.n_classes)):
        outcomes = mechanism.outcomes(votes[rows], **_context(beliefs, rows))
        counts = votes.counts[rows]
        _require(isinstance(outcomes, Outcomes), f"Expected Outcomes, got {type(outcomes).__name__}.")
        _require(
            outcomes.log_labels.shape == (len(rows), 1 + votes.n_classes),
            "Expected `log_labels` of shape (queries, 1 + classes), silence first, got "
            f"{outcomes.log_labels.shape}.",
        )
        total = np.exp(outcomes.log_labels).sum(axis=1)
        _require_all(np.abs(total - 1) < 1e-6, counts, "Expected probabilities that sum to 1 at the votes")
        # Where there is no move, or no outcome, the entry is padding and may hold anything.
        alive = (outcomes.multiplicity > 0) & outcomes.moves[..., None]
        for name in ("log_here", "log_there"):
            logs = np.where(alive, getattr(outcomes, name), -np.inf)
            total = (np.exp(logs) * outcomes.multiplicity).sum(axis=3)
            sums = np.where(outcomes.moves, np.abs(total - 1) < 1e-6, True).all(axis=(1, 2))
            _require_all(sums, counts, f"Expected `{name}` to sum to 1 for every move")
            _require_all(
                ~(alive & np.isneginf(logs)).any(axis=(1, 2, 3)), counts,
                f"Expected outcomes that are possible at every neighbour (`{name}` above -inf); an outcome "
                "that only one of two neighbours can have gives it away",
            )  # fmt: skip
        cost = divergences(outcomes, orders=price.orders)
        # Written so that NaN fails too.
        fits = cost <= price.values * (1 + _ROUNDING) + _ROUNDING / price.orders
        if not fits.all():
            excess = np.where(fits, 0.0, cost / np.maximum(price.values, 1e-300))
            direction, query, _, at = np.unravel_index(int(excess.argmax()), excess.shape)
            way = ("at the votes against a neighbour", "at a neighbour against the votes")[int(direction)]
            raise AssertionError(
                f"Expected no divergence above the price, got {cost[direction, query, :, at].max():.6g} "
                f"above {price.values[at]:.6g} at order {price.orders[at]:g}, {way}, for votes "
                f"{counts[query].tolist()}. Raise the price, or find the mistake in `outcomes`."
            )


def _require_all(holds: NDArray[np.bool_], counts: NDArray[np.int64], what: str) -> None:
    _require(holds.all(), f"{what}; not so for votes {counts[np.argmin(holds)].tolist()}.")


def _check_neighbours(
    mechanism: Any, votes: Votes, beliefs: Floats | None, *, rng: np.random.Generator
) -> None:
    """Require that what is announced for a move is what the neighbour's own votes give."""
    can_move = (votes.counts[:100] > 0)[:, :, None] & ~np.eye(votes.n_classes, dtype=bool)
    moves = np.argwhere(can_move)
    moves = moves[rng.permutation(len(moves))[:600]]
    for rows in chunks(np.full(len(moves), votes.n_classes)):
        query, source, target = moves[rows].T
        moved, each = votes.counts[query], np.arange(len(rows))
        moved[each, source] -= 1
        moved[each, target] += 1
        here = mechanism.outcomes(votes[query], **_context(beliefs, query))
        neighbours = Votes.from_counts(moved, n_teachers=votes.n_teachers)
        there = mechanism.outcomes(neighbours, **_context(beliefs, query))
        place = each, here.of_class[each, source], here.of_class[each, target]
        _require_all(here.moves[place], moved, "Expected `moves` to know every neighbour")
        direct = _plain_divergences(here.log_labels, there.log_labels, 1)
        announced = _plain_divergences(here.log_here[place], here.log_there[place], here.multiplicity[place])
        close = np.abs(direct - announced) <= 1e-9 + 1e-5 * np.maximum(direct, announced)
        _require_all(
            close.all(axis=(0, 1)), moved,
            "Expected `log_here` and `log_there` to tell a neighbour from the votes exactly as the outcomes "
            "of its own votes do",
        )  # fmt: skip


def _plain_divergences(log_p: Floats, log_q: Floats, multiplicity: Any) -> Floats:
    """Return divergences (2, orders, pairs) straight from the definition."""
    times = np.broadcast_to(multiplicity, log_p.shape)
    alive = (times > 0) & ~(np.isneginf(log_p) & np.isneginf(log_q))
    p, q = np.where(alive, log_p, 0.0), np.where(alive, log_q, 0.0)
    start = np.where(alive, np.log(np.maximum(times, 1)), -np.inf)
    step = _FEW_ORDERS[:, None, None]
    both = [start + step * a + (1 - step) * b for a, b in ((p, q), (q, p))]
    return np.asarray(np.logaddexp.reduce(np.stack(both), axis=3) / (_FEW_ORDERS[:, None] - 1))


def _check_sealed(mechanism: Any, votes: Votes, beliefs: Floats | None) -> None:
    context = _context(beliefs, slice(1))
    shown = {repr(mechanism.outcomes(votes[i], **context)) for i in range(min(5, len(votes)))}
    _require(len(shown) == 1, "Expected outcomes whose repr does not depend on the votes: they are private.")


def _check_symmetry(mechanism: Any, votes: Votes, rng: np.random.Generator) -> None:
    """Require that permuting the classes permutes the outcomes and changes no cost."""
    for rows in chunks(np.full(min(300, len(votes)), votes.n_classes)):
        here = votes[rows]
        order = rng.permuted(np.tile(np.arange(votes.n_classes), (len(rows), 1)), axis=1)
        counts = np.take_along_axis(here.counts, order, axis=1)
        plain = mechanism.outcomes(here)
        permuted = mechanism.outcomes(Votes.from_counts(counts, n_teachers=votes.n_teachers))
        log_labels = np.take_along_axis(plain.log_labels[:, 1:], order, axis=1)
        same = np.isclose(permuted.log_labels[:, 1:], log_labels, rtol=1e-6, atol=1e-9).all(axis=1)
        same &= np.isclose(permuted.log_labels[:, 0], plain.log_labels[:, 0], rtol=1e-6, atol=1e-9)
        _require_all(same, here.counts, "Expected permuted classes to give permuted outcomes")
        by_class = [
            np.take_along_axis(divergences(one, orders=_FEW_ORDERS), one.of_class[None, :, :, None], axis=2)
            for one in (plain, permuted)
        ]
        expected = np.take_along_axis(by_class[0], order[None, :, :, None], axis=2)
        same = np.isclose(by_class[1], expected, rtol=1e-6, atol=1e-9).all(axis=(0, 2, 3))
        _require_all(same, here.counts, "Expected permuted classes to cost the same")


def _repeated(votes: Votes, row: int, n: int) -> Votes:
    return Votes.from_counts(np.repeat(votes.counts[row : row + 1], n, axis=0), n_teachers=votes.n_teachers)


def _check_frequencies(
    mechanism: Any, votes: Votes, beliefs: Floats | None, *, n_draws: int, seed: int
) -> None:
    """Require that draws follow the distribution: exact binomial tests, FALSE_ALARM shared among them."""
    rows = range(min(8, len(votes)))
    limit = FALSE_ALARM / (len(rows) * (1 + votes.n_classes))
    for row in rows:
        context = _context(beliefs, np.full(n_draws, row))
        batch = _repeated(votes, row, n_draws)
        drawn = _drawn_outcomes(mechanism.release(batch, noise.seeded(seed + row), **context), batch)
        times = np.bincount(drawn, minlength=1 + votes.n_classes)
        outcomes = mechanism.outcomes(batch[0], **_context(beliefs, [row]))
        expected = np.minimum(np.exp(outcomes.log_labels[0]), 1.0)
        tail = 2 * np.minimum(binom.cdf(times, n_draws, expected), binom.sf(times - 1, n_draws, expected))
        worst = int(tail.argmin())
        what = f"class {worst - 1}" if worst else "silence"
        _require(
            tail[worst] >= limit,
            f"Expected draws of `release` to follow `outcomes`; {what} came {times[worst]} times in {n_draws} "
            f"at a probability of {expected[worst]:.4g}, for votes {votes.counts[row].tolist()}. Are ties "
            "broken as the outcomes say, and is the noise the stated one?",
        )


def _check_by_draws(
    mechanism: Any, votes: Votes, price: RdpCurve, beliefs: Floats | None, *, n_draws: int, seed: int
) -> None:
    """Require that no event's draws prove a divergence above the price, on a few neighbouring pairs.

    By data processing the divergence is at least that of the coin "did the event happen"; its two
    probabilities lie in Clopper-Pearson intervals, all of them at once but with FALSE_ALARM.
    """
    rows = range(min(8, len(votes)))
    n_intervals = 2 * 2 * len(rows) * (1 + votes.n_classes)
    for row in rows:
        counts = votes.counts[row]
        first, second = np.argsort(-counts, kind="stable")[:2]
        moved = counts.copy()
        moved[first], moved[second] = moved[first] - 1, moved[second] + 1
        limits: list[tuple[Floats, Floats]] = []
        for side, table in enumerate((counts, moved)):
            batch = _repeated(Votes.from_counts(table[None, :], n_teachers=votes.n_teachers), 0, n_draws)
            context = _context(beliefs, np.full(n_draws, row))
            source = noise.seeded(2 * (seed + row) + side)
            drawn = _drawn_outcomes(mechanism.release(batch, source, **context), batch)
            times = np.bincount(drawn, minlength=1 + votes.n_classes)
            limits.append(_clopper_pearson(times, n_draws, FALSE_ALARM / n_intervals))
        proved = np.maximum(
            _coin(limits[0], limits[1], orders=price.orders), _coin(limits[1], limits[0], orders=price.orders)
        )
        over = proved > price.values * (1 + _ROUNDING) + _ROUNDING
        at = int(np.argmax(np.where(over, proved / np.maximum(price.values, 1e-300), 0.0)))
        _require(
            not over.any(),
            f"Expected a price above every divergence; draws show at least {proved[at]:.4g} where the price "
            f"is {price.values[at]:.4g}, at order {price.orders[at]:g}, between votes {counts.tolist()} and "
            f"{moved.tolist()}. Raise the price, or look for noise that is not drawn.",
        )


def _clopper_pearson(times: NDArray[np.int64], n: int, error: float) -> tuple[Floats, Floats]:
    """Return lower and upper limits of the probabilities, each wrong with probability at most `error`."""
    low = np.where(times > 0, beta.ppf(error, np.maximum(times, 1), n - times + 1), 0.0)
    high = np.where(times < n, beta.ppf(1 - error, times + 1, np.maximum(n - times, 1)), 1.0)
    return low, high


def _coin(p: tuple[Floats, Floats], q: tuple[Floats, Floats], *, orders: Floats) -> Floats:
    """Return, per order, the largest divergence D(p || q) that the intervals of the coins prove."""
    # The pair of heads probabilities nearest to each other; equal where the intervals meet.
    heads_p = np.where(p[0] > q[1], p[0], np.where(p[1] < q[0], p[1], 0.5))
    heads_q = np.where(p[0] > q[1], q[1], np.where(p[1] < q[0], q[0], 0.5))
    with np.errstate(divide="ignore"):
        parts = [orders * np.log(a)[:, None] + (1 - orders) * np.log(b)[:, None]
                 for a, b in ((heads_p, heads_q), (1 - heads_p, 1 - heads_q))]  # fmt: skip
    return np.asarray((np.logaddexp(*parts) / (orders - 1)).max(axis=0))
