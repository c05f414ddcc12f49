"""Checks for whoever writes a mechanism: does it keep its promises?

The strongest test of a mechanism is its own definition. `check_mechanism` computes the divergence of
its outcomes between neighbouring votes and requires it to stay below the price, on thousands of
votes and at every order, and draws from it to see that what comes out is what it says. A mechanism
without `outcomes` is watched from outside: how well can its draws tell two neighbours apart?

All votes here are made up from a seed, so messages may show them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import binom

from .. import noise
from ..divergence import divergences
from ..errors import require_count
from ..mechanisms.outcomes import Outcomes, chunks
from ..rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..release import SILENT, Release
from ..votes import Integers, Votes
from ._judging import check_description, clopper_pearson, coin
from ._promise import require

FALSE_ALARM = 1e-6
"""The most likely a check is to fail by bad luck of its draws; for one seed it always or never does."""

# Prices are compared to within rounding, distributions to within the accuracy of a quadrature.
_ROUNDING, _QUADRATURE = 1e-9, 1e-6
# Few enough for a computation straight from the definition, far enough apart to see any mistake.
_FEW_ORDERS = np.array([1.25, 2.0, 8.0, 64.0, 512.0])
# Where released values are cut into events: the middle shows little noise, the tails too low a price.
_SHARES = np.array([0.01, 0.1, 0.5, 0.9, 0.99])


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
    labels or silence, drawn from the noise they are given and from nothing else, and cost at most the
    price, and no less if it says that it has `one_price`. With `outcomes`: distributions sum to one, here
    and at every neighbour; a neighbour's own outcomes are those announced for the move; no divergence
    passes the price, in either direction at any order; permuted classes give permuted outcomes if it says
    it is `symmetric`; draws follow the distribution. Without: no event is so much likelier at one of two
    neighbours that its draws prove the price wrong; events are labels, and where noisy `values` are
    released also large ones.

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
    require_count(n_random=n_random, n_draws=n_draws)
    rng = np.random.default_rng(seed)
    votes = random_votes(rng, n_teachers, n_classes=n_classes, n_queries=n_random)
    described = check_description(mechanism)
    trial = _Trial(mechanism, votes, _student_rows(student, votes), seed)
    price = _check_price(trial)
    _check_releases(trial, price)
    if callable(getattr(mechanism, "outcomes", None)):
        _check_outcomes(trial, price)
        _check_neighbours(trial, rng)
        shown = {repr(trial.outcomes([0], row[None, :])) for row in votes.counts[:5]}
        require(len(shown) == 1, "Expected outcomes with the same repr for all votes: they are private.")
        if getattr(mechanism, "symmetric", False) and student is None:
            _check_symmetry(trial, rng)
        _check_frequencies(trial, n_draws)
    else:
        _check_by_draws(trial, price, n_draws)
    same = check_description(mechanism) == described
    require(same, "Expected fields that stay as they were made; releasing votes changed them.")


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


def _student_rows(student: ArrayLike | None, votes: Votes) -> Floats | None:
    if student is None:
        return None
    rows = np.atleast_2d(np.asarray(student, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != votes.n_classes:
        raise ValueError(f"Expected rows of {votes.n_classes} student probabilities, got shape {rows.shape}.")
    return np.asarray(rows[np.arange(len(votes)) % len(rows)])


@dataclass(frozen=True, eq=False)
class _Trial:
    """A mechanism, the votes it is tried on and the student that goes with each of them."""

    mechanism: Any
    votes: Votes
    beliefs: Floats | None
    seed: int

    def _context(self, rows: Any) -> dict[str, Any]:
        return {} if self.beliefs is None else {"student": self.beliefs[rows]}

    def _votes(self, rows: Any, counts: Integers | None) -> Votes:
        table = self.votes.counts[rows] if counts is None else counts
        return Votes.from_counts(table, n_teachers=self.votes.n_teachers)

    def outcomes(self, rows: Any, counts: Integers | None = None) -> Any:
        """Return the outcomes of some rows, or of other counts in their place."""
        return self.mechanism.outcomes(self._votes(rows, counts), **self._context(rows))

    def release(self, rows: Any, counts: Integers | None = None, *, seed: int = 0) -> Any:
        """Return a release of some rows, or of other counts in their place."""
        source = noise.seeded(self.seed + seed)
        return self.mechanism.release(self._votes(rows, counts), source, **self._context(rows))

    def drawn(self, release: Any, n: int) -> Integers:
        """Return the outcome of each query, 0 for no answer and 1 + label for an answer; check them too."""
        require(isinstance(release, Release), f"Expected a Release, got {type(release).__name__}.")
        labels, answered = np.asarray(release.labels), np.asarray(release.answered)
        require(
            labels.shape == answered.shape == (n,) and labels.dtype.kind in "iu" and answered.dtype == bool,
            f"Expected {n} whole labels and as many True or False in `answered`, got shapes {labels.shape} "
            f"and {answered.shape} of {labels.dtype} and {answered.dtype}.",
        )
        inside = (labels < self.votes.n_classes) & (labels >= np.where(answered, 0, SILENT))
        last = self.votes.n_classes - 1
        require(inside.all(), f"Expected answers 0..{last}, else SILENT, got {labels[~inside][:1]}.")
        if (values := release.values) is not None:
            fits = values.shape == (n, self.votes.n_classes) and values.dtype.kind in "iu"
            require(fits, f"Expected {n} rows of whole values, got {values.dtype} of shape {values.shape}.")
        return np.asarray(np.where(answered, labels + 1, 0))

    def repeat(self, row: int, n: int, *, counts: Integers | None = None, seed: int) -> Any:
        """Return one query released n times."""
        table = None if counts is None else np.tile(counts, (n, 1))
        return self.release(np.full(n, row), table, seed=seed)

    def tally(self, release: Any) -> Integers:
        """Return how often each outcome came."""
        return np.asarray(np.bincount(self.drawn(release, len(release)), minlength=1 + self.votes.n_classes))


def _check_price(trial: _Trial) -> RdpCurve:
    price, again = (trial.mechanism.price(trial.votes.unit) for _ in range(2))
    require(isinstance(price, RdpCurve), f"Expected `price` to be an RdpCurve, got {type(price).__name__}.")
    require(np.array_equal(price.orders, DEFAULT_ORDERS), "Expected a price on the default orders.")
    require(np.array_equal(price.values, again.values), "Expected the same price each time it is asked.")
    return RdpCurve(DEFAULT_ORDERS, price.values)


def _check_releases(trial: _Trial, price: RdpCurve) -> None:
    for n in (1, len(trial.votes)):
        release, again = (trial.release(slice(n)) for _ in range(2))
        require(
            np.array_equal(trial.drawn(release, n), trial.drawn(again, n))
            and (release.values is None or np.array_equal(release.values, again.values)),
            "Expected the same labels from the same noise; draw all randomness from the `noise` argument.",
        )
        cost = release.cost.worst
        require(np.array_equal(cost.orders, price.orders), "Expected the cost on the orders of the price.")
        over = cost.values > n * price.values * (1 + _ROUNDING)
        where = f"at order {cost.orders[over.argmax()]:g}"
        require(not over.any(), f"Expected {n} queries to cost at most {n} times the price, not so {where}.")
        if getattr(trial.mechanism, "one_price", False):
            exact = (cost.values >= n * price.values * (1 - _ROUNDING)).all()
            require(exact, f"Expected {n} queries to cost {n} times the price, as one_price says, got less.")


def _check_outcomes(trial: _Trial, price: RdpCurve) -> None:
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
        fits = cost <= price.values * (1 + _ROUNDING) + _ROUNDING / price.orders
        if not fits.all():
            excess = np.where(fits, 0.0, cost / np.maximum(price.values, 1e-300))
            way, query, source, at = np.unravel_index(int(excess.argmax()), excess.shape)
            against = ("at the votes against a neighbour", "at a neighbour against the votes")[int(way)]
            raise AssertionError(
                f"Expected no divergence above the price, got {cost[way, query, source, at]:.6g} above "
                f"{price.values[at]:.6g} at order {price.orders[at]:g}, {against}, for votes "
                f"{counts[query].tolist()}. Raise the price, or find the mistake in `outcomes`."
            )


def _check_neighbours(trial: _Trial, rng: np.random.Generator) -> None:
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


def _check_symmetry(trial: _Trial, rng: np.random.Generator) -> None:
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


def _check_frequencies(trial: _Trial, n_draws: int) -> None:
    """Require that draws follow the distribution: exact binomial tests, FALSE_ALARM shared among them."""
    rows = range(min(8, len(trial.votes)))
    limit = FALSE_ALARM / (len(rows) * (1 + trial.votes.n_classes))
    for row in rows:
        times = trial.tally(trial.repeat(row, n_draws, seed=row))
        expected = np.minimum(np.exp(trial.outcomes([row]).log_labels[0]), 1.0)
        tail = 2 * np.minimum(binom.cdf(times, n_draws, expected), binom.sf(times - 1, n_draws, expected))
        worst = int(tail.argmin())
        require(
            tail[worst] >= limit,
            f"Expected draws to follow `outcomes`; {f'class {worst - 1}' if worst else 'silence'} came "
            f"{times[worst]} times in {n_draws} at a probability of {expected[worst]:.4g}, for votes "
            f"{trial.votes.counts[row].tolist()}. Are noise and ties drawn as the outcomes say?",
        )


def _check_by_draws(trial: _Trial, price: RdpCurve, n_draws: int) -> None:
    """Require that no event's draws prove a divergence above the price, on a few neighbouring pairs.

    By data processing the divergence is at least that of the coin "did the event happen"; its two
    probabilities lie in Clopper-Pearson intervals, all of them at once but with FALSE_ALARM.
    """
    rows = range(min(8, len(trial.votes)))
    error = FALSE_ALARM / (4 * len(rows) * (1 + trial.votes.n_classes + 3 * _SHARES.size))
    for row in rows:
        counts = trial.votes.counts[row]
        first, second = np.argsort(-counts, kind="stable")[:2]
        moved = counts.copy()
        moved[[first, second]] += np.array([-1, 1])
        # Cuts come from draws of their own: fitted to the draws they judge they would prove too much.
        pilot = trial.repeat(row, 1000, seed=2 * len(rows) + row)
        cuts = np.ceil(np.quantile(_falling(pilot, first, second), _SHARES, axis=1))[:, :, None]
        pair = [trial.repeat(row, n_draws, counts=c, seed=2 * row + i) for i, c in enumerate((counts, moved))]
        above = [(_falling(one, first, second) >= cuts).sum(axis=2) for one in pair]
        times = [np.append(trial.tally(one), more) for one, more in zip(pair, above)]
        here, there = (clopper_pearson(one, n_draws, error) for one in times)
        proved = np.maximum(coin(here, there, price.orders), coin(there, here, price.orders))
        over = proved > price.values * (1 + _ROUNDING) + _ROUNDING
        at = int(np.argmax(np.where(over, proved / np.maximum(price.values, 1e-300), 0.0)))
        require(
            not over.any(),
            f"Expected a price above every divergence; draws show at least {proved[at]:.4g} where the price "
            f"is {price.values[at]:.4g}, at order {price.orders[at]:g}, between votes {counts.tolist()} and "
            f"{moved.tolist()}. Raise the price, or look for noise that is not drawn.",
        )


def _falling(release: Any, first: int, second: int) -> Floats:
    """Return three numbers per draw that fall as a ballot moves from first to second; none without values."""
    if release.values is None:
        return np.zeros((0, len(release)))
    one, other = np.asarray(release.values, dtype=np.float64)[:, [first, second]].T
    return np.stack([one, -other, one - other])
