"""`check_mechanism` and `check_label_mechanism`: prices, costs, outcomes and draws of a mechanism."""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..accounting._label_exact import label_blocks
from ..accounting.audit.evidence import draw_rows, learn_score, outcomes_of
from ..accounting.audit.pairs import Moves, class_moves, label_moves
from ..accounting.costs import public_numbers
from ..errors import require_count
from ..mechanisms._outcomes import Outcomes, chunks
from ..mechanisms.base import has_one_price, is_by_batch, item_of, label_space, price_of
from ..mechanisms.divergence import divergences
from ..mechanisms.labels._outcomes import LabelOutcomes
from ..mechanisms.registry import answers_of, listens
from ..privacy import noise
from ..privacy._price import delta_of
from ..privacy.rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..privacy.release import SILENT, Release, describe
from ..privacy.votes import Integers, Unit, Votes
from ._any_shares import check_any_shares
from ._draws import (
    ROUNDING,
    Drawn,
    Singles,
    check_drawn,
    check_independence,
    check_price_by_draws,
    check_silence_by_draws,
    clopper_pearson,
    outcome_charge,
    require_charged,
)
from ._require import require
from ._scores import check_scores


def student_rows(student: ArrayLike | None, votes: Votes) -> Floats | None:
    """Return a row of student probabilities for each of the votes, taken in turn."""
    if student is None:
        return None
    rows = np.atleast_2d(np.asarray(student, dtype=np.float64))
    if rows.ndim != 2 or rows.shape[1] != votes.n_classes:
        raise ValueError(f"Expected rows of {votes.n_classes} student probabilities, got shape {rows.shape}.")
    return np.asarray(rows[np.arange(len(votes)) % len(rows)])


@dataclass(frozen=True, eq=False)
class Trial:
    """A mechanism, the votes it is tried on and the student that goes with each of them."""

    mechanism: Any
    votes: Votes
    beliefs: Floats | None
    seed: int

    def _context(self, rows: Any) -> dict[str, Any]:
        return {} if self.beliefs is None else {"student": self.beliefs[rows]}

    def outcomes(self, rows: Any, counts: Integers | None = None) -> Any:
        """Return the outcomes of some rows, or of other counts in their place."""
        votes = self.votes[rows]
        if counts is not None:
            votes = Votes.from_counts(counts, n_teachers=votes.n_teachers)
        return self.mechanism.outcomes(votes, **self._context(rows))

    def release(self, n: int) -> Any:
        """Return a release of the first n queries: labels or silence, as many as there are questions."""
        first = slice(n)
        release = self.mechanism.release(self.votes[first], noise.seeded(self.seed), **self._context(first))
        require(isinstance(release, Release), f"Expected a Release, got {type(release).__name__}.")
        labels, answered = np.asarray(release.labels), np.asarray(release.answered)
        many = self.votes.space.kind == "labels"
        shape = self.votes.space.told(n)
        require(
            labels.shape == answered.shape == shape and labels.dtype.kind in "iu" and answered.dtype == bool,
            f"Expected {' x '.join(map(str, shape))} whole labels and as many True or False in `answered`, "
            f"got shapes {labels.shape} and {answered.shape} of {labels.dtype} and {answered.dtype}.",
        )
        if many:
            known = np.isin(labels, (SILENT, 0, 1)).all()
            require(known, "Expected 0, 1 or SILENT for every label, got another.")
            silent = bool((answered & (labels == SILENT)).any())
            require(not silent, "Expected every answered label to be told, got a silent one.")
            return release
        inside = (labels < self.votes.n_classes) & (labels >= np.where(answered, 0, SILENT))
        last = self.votes.n_classes - 1
        require(inside.all(), f"Expected answers 0..{last}, else SILENT, got {labels[~inside][:1]}.")
        if (values := release.values) is not None:
            fits = values.shape == (n, self.votes.n_classes) and values.dtype.kind in "iu"
            require(fits, f"Expected {n} rows of whole values, got {values.dtype} of shape {values.shape}.")
        return release


FALSE_ALARM = 1e-6
"""The most likely a check is to fail by bad luck of its draws; for one seed it always or never does."""

# Of FALSE_ALARM: draws against the stated outcomes or the price, and queries against each other.
_SHARES = {"law": 0.4, "price": 0.4, "independence": 0.2}


def share_of_alarm(what: str, n_parts: int = 1) -> float:
    """Return the chance of a false alarm that one of several equal parts of a check may have."""
    return FALSE_ALARM * _SHARES[what] / n_parts


def check_description(mechanism: Any) -> str:
    """Require a frozen dataclass of public fields that can be stored; return its description."""
    name = type(mechanism).__name__
    frozen = getattr(getattr(mechanism, "__dataclass_params__", None), "frozen", False)
    require(frozen, f"Expected a frozen dataclass, got {name}. Decorate it with @dataclass(frozen=True).")
    hidden = [field.name for field in dataclasses.fields(mechanism) if field.name.startswith("_")]
    require(not hidden, f"Expected public fields only, got {hidden}: what is private comes as an argument.")
    price = "batch_price" if is_by_batch(mechanism) else "price"
    missing = [w for w in (price, "release") if not callable(getattr(mechanism, w, None))]
    require(not missing, f"Expected {name} to have methods `price` and `release`, missing {missing}.")
    try:
        return json.dumps(describe(mechanism, noise.seeded(0))) + repr(mechanism)
    except TypeError as error:
        raise AssertionError(f"Expected fields that can be stored in an event: {error}.") from error


# --- Neighbouring votes against the stated outcomes ---


def check_stated(
    mechanism: Any,
    moves: Moves,
    price: RdpCurve,
    charged: Singles,
    *,
    n_draws: int,
    n_more: int,
    alarm: float,
    seed: int,
) -> None:
    """Hold neighbouring votes against the stated law: divergences, charges and draws.

    `n_more` draws each are taken of four votes besides: two leaders two votes apart, tied, all classes nearly
    even, and where silence is least sure.
    """
    votes = moves.both
    belief = moves.student if moves.student is None else np.tile(moves.student, (2, 1))
    trial = Trial(mechanism, votes, belief, seed)
    n, m = votes.counts.shape
    logs = np.concatenate([trial.outcomes(rows).log_labels for rows in chunks(np.full(n, m))])
    here, there = logs[: len(moves)], logs[len(moves) :]
    charges = None
    if charged.silent is not None and charged.answered is not None:
        charges = np.stack([charged.silent] + [charged.answered] * m)
    for p, q in ((here, there), (there, here)):
        found = outcome_charge(p, q, np.tile(price.values, (1 + m, 1)), price.orders)
        worst = int(found.max(axis=1).argmax())
        at = int(found[worst].argmax())
        require(
            bool((found <= ROUNDING * (1 + price.orders * price.values)).all()),
            f"Expected no divergence above the price, got one at order {price.orders[at]:g} between the "
            f"votes of {moves.pair(worst)}. Raise the price, or find the mistake in `outcomes`.",
        )
        if charges is not None:
            found = outcome_charge(p, q, charges, price.orders)
            worst = int(found.max(axis=1).argmax())
            require_charged(found[worst], price.orders, f"between the votes of {moves.pair(worst)}")
    silent = np.exp(logs[:, 0])
    more = {int(np.argmax(silent * (1 - silent)))} if silent.max() > 1e-6 else set()
    order = np.lexsort((-np.partition(votes.counts, m - 2, axis=1)[:, -2], votes.gap))
    more |= {int(order[0]), int(order[np.searchsorted(votes.gap[order], 2) % n]), int(votes.top.argmin())}
    _check_frequencies(trial, logs, max(8, n_draws // n), sorted(more), n_more, alarm)


def _check_frequencies(
    trial: Trial, logs: Floats, n_each: int, more: list[int], n_more: int, alarm: float
) -> None:
    """Require draws that follow the distribution, at every vote and over votes that are alike."""
    counts = trial.votes.counts
    n, m = counts.shape
    drawn = np.full(n, n_each)
    drawn[more] += n_more
    rows = np.repeat(np.arange(n), drawn)
    source = noise.seeded(trial.seed + 5)
    told = draw_rows(trial.mechanism, trial.votes, rows, source, student=trial.beliefs)[:, 0]
    _check_unasked(trial, told, rows)
    place = rows * (1 + m) + np.maximum(told, -1) + 1
    times = np.bincount(place, minlength=n * (1 + m)).reshape(n, 1 + m)
    stated = np.minimum(np.exp(logs), 1.0)
    # Whether the leader wins, of votes that have one: less noise shows there for all classes at once.
    leader, alone = counts.argmax(axis=1), trial.votes.gap > 0
    times, stated = (
        np.column_stack([part, part[np.arange(n), 1 + leader]]) for part in (times, stated)
    )  # fmt: skip
    every = np.tile(drawn[:, None], (1, 2 + m))
    every[~alone, -1] = times[~alone, -1] = 0
    together = {
        "of all kinds": np.zeros(n, dtype=np.int64),
        "whose largest count is {}": trial.votes.top,
        "with a lead of {}": trial.votes.gap,
        "with {} empty classes": (counts == 0).sum(axis=1),
        "led by class {}": leader,
    }
    for j in range(m if m <= 20 else 0):
        together[f"with {{}} for class {j}"] = counts[:, j]
        together[f"whose count of class {j} leaves {{}} when halved"] = counts[:, j] % 2
    names = ["silence", *(f"class {j}" for j in range(m)), "the leader"]
    check_drawn(
        Drawn(times, stated, every, [str(row) for row in counts.tolist()], names), together, alarm=alarm
    )


def _check_unasked(trial: Trial, told: NDArray[Any], rows: Integers) -> None:
    """Require that a label which no teacher gave comes from the student alone."""
    unasked = told < SILENT
    if not unasked.any():
        return
    require(trial.beliefs is not None, "Expected SILENT where no teacher answered, got a label.")
    assert trial.beliefs is not None
    _, same = np.unique(trial.beliefs, axis=0, return_inverse=True)
    quiet = told < 0
    known = np.unique(np.stack([same.reshape(-1)[rows[quiet]], told[quiet]]), axis=1)
    once = np.unique(known[0]).size == known.shape[1]
    require(
        once, "Expected a label that no teacher gave to follow from the student alone, got different ones."
    )


# --- Mechanisms of one class ---
#
# The strongest test of a mechanism is its own definition. `check_mechanism` computes the divergence of
# its outcomes between neighbouring votes and requires it to stay below the price, on thousands of
# votes and at every order, and draws from it to see that what comes out is what it says, at every count of
# every class. A mechanism without `outcomes` is watched from outside: how well can its draws tell two
# neighbours apart?
#
# All votes here are made up from a seed, so messages may show them.

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

    One that parties may compute (`confidential`) is tried with an asker that lies, too: whatever is added to
    the shares that it is computed from, its noise hides one vote.

    A mechanism that is paid by the batch (`batch_price`) is tried by whole batches, of its own size where it
    has a field `n_queries`: its price is a curve that does not fall with the order, the same each time; no
    release costs more, or adds more to delta; and no event over all that a batch tells proves, at neighbours
    that differ in one teacher's ballots, that the price is too low.

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
    if answers_of(mechanism) == "scores":
        described = check_description(mechanism)
        alarm = share_of_alarm("price")
        check_scores(
            mechanism, n_teachers=n_teachers, n_draws=max(200, n_draws // 10), seed=seed, alarm=alarm
        )
        require(check_description(mechanism) == described, "Expected fields that stay as they were made.")
        return
    if is_by_batch(mechanism):
        check_batches(mechanism, n_teachers=n_teachers, n_classes=n_classes, n_draws=n_draws, seed=seed)
        return
    rng = np.random.default_rng(seed)
    votes = random_votes(rng, n_teachers, n_classes=n_classes, n_queries=n_random)
    described = check_description(mechanism)
    trial = Trial(mechanism, votes.replaced(ballots=None), student_rows(student, votes), seed)
    price = _check_price(mechanism, votes.unit, n_teachers=n_teachers, n_classes=n_classes)
    if getattr(mechanism, "confidential", False):
        check_any_shares(mechanism)
    _check_releases(trial, price)
    _check_kinds(mechanism, votes)
    settings = list(_settings(trial, student, rng))
    stated = callable(getattr(mechanism, "outcomes", None))
    if stated:
        _check_outcomes(trial, price)
        _check_charges(trial, price)
        _check_neighbours(trial, rng)
        _check_repr(trial)
        if getattr(mechanism, "symmetric", False) and student is None:
            _check_symmetry(trial, rng)
    found = _check_each_other(mechanism, settings[0], n_draws, seed)
    for place, moves in enumerate(settings):
        public = public_numbers(moves.here)
        price, charged = price_of(mechanism, Unit(), **public), _charged(mechanism, public, found)
        if stated:
            alarm = share_of_alarm("law", len(settings))
            n_spread = max(12 * len(moves), 4 * n_draws // moves.both.n_classes) if place else 4 * n_draws
            check_stated(mechanism, moves, price, charged, n_draws=n_spread,
                          n_more=0 if place else n_draws, alarm=alarm, seed=seed)  # fmt: skip
        else:
            m = moves.here.n_classes
            small = ((10, 300), (2, 1000)) if m < 50 else ((8, 100), (2, 300))
            check_price_by_draws(
                mechanism, moves, price, n_draws=max(500, n_draws // 4) if place else n_draws,
                seed=seed + 100 + m, alarm=share_of_alarm("price", len(settings) + 1),
                n_best=1 if place else 3, rounds=small if place else ((30, 400), (6, 2000)),
            )  # fmt: skip
    if not stated:
        public = public_numbers(settings[0].here)
        price = price_of(mechanism, Unit(), **public)
        check_silence_by_draws(
            mechanism, settings[0], price, found, n_draws=n_draws, seed=seed + 200,
            alarm=share_of_alarm("price", len(settings) + 1),
        )  # fmt: skip
    same = check_description(mechanism) == described
    require(same, "Expected fields that stay as they were made; releasing votes changed them.")


def _settings(trial: Trial, student: ArrayLike | None, rng: np.random.Generator) -> Iterator[Moves]:
    """Yield neighbouring votes: of as many classes and teachers as were asked for, then of others."""
    n_teachers, n_classes = trial.votes.n_teachers, trial.votes.n_classes
    for teachers, classes, n_most in ((n_teachers, n_classes, 1200), *_OTHERS):
        if (teachers or n_teachers, classes) == (n_teachers, n_classes) and n_most != 1200:
            continue
        here, there = class_moves(teachers or n_teachers, classes, rng, n_most=n_most)
        belief = None
        if listens(trial.mechanism):
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


def _charged(mechanism: Any, public: dict[str, int], found: Singles) -> Singles:
    """Return what silent and answered queries are charged among so many teachers and classes."""
    item = item_of(mechanism, Unit(), **public)
    if item is None:
        return found
    return Singles(answered=item.curve(1).values, silent=item.curve(0).values)


def _check_each_other(mechanism: Any, moves: Moves, n_draws: int, seed: int) -> Singles:
    """Require independent queries at the votes whose outcomes vary most, and at those whose silence does."""
    n_each = 20
    rows = np.repeat(np.arange(len(moves)), n_each)
    told = draw_rows(mechanism, moves.here, rows, noise.seeded(seed), student=moves.student)
    n_told = moves.here.space.told(1)[-1]  # a label, or all of them; counts may come behind
    told = told[:, :n_told].reshape(len(moves), n_each, n_told)
    told = np.maximum(told, SILENT)
    shares = np.stack([(told == value).mean(axis=1) for value in np.unique(told)])
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=(0, 2))
    silent = (told == SILENT).mean(axis=1)
    vary = (entropy, (silent * (1 - silent)).sum(axis=1))
    tried = {int(one.argmax()) for one in vary if one.max() > 0}
    # Where everything comes out alike in one batch, the most even votes must not.
    even = np.abs(2 * moves.here.totals - moves.here.totals.max()).sum(axis=1)
    return check_independence(
        mechanism, moves, sorted(tried or {int(even.argmin())}), n_draws=min(n_draws, 4000), seed=seed,
        alarm=share_of_alarm("independence"),
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


def _check_price(mechanism: Any, unit: Unit, **counts: int) -> RdpCurve:
    """Require a price that is one: of a query whose numbers of teachers and classes are known, and of any."""
    known, whatever = (_checked_curve(mechanism, unit, **given) for given in (counts, {}))
    dear = known.values > whatever.values * (1 + ROUNDING)
    where = f"at order {known.orders[dear.argmax()]:g}"
    if getattr(mechanism, "expected_silence", None) is None:
        require(not dear.any(), f"Expected a price that knowing more does not raise, not so {where}.")
    return known


def _checked_curve(mechanism: Any, unit: Unit, **counts: int) -> RdpCurve:
    return _as_curve(*(price_of(mechanism, unit, **counts) for _ in range(2)))


def _as_curve(price: Any, again: Any) -> RdpCurve:
    require(isinstance(price, RdpCurve), f"Expected `price` to be an RdpCurve, got {type(price).__name__}.")
    require(np.array_equal(price.orders, DEFAULT_ORDERS), "Expected a price on the default orders.")
    require(np.array_equal(price.values, again.values), "Expected the same price each time it is asked.")
    falls = np.diff(price.values) < -ROUNDING * np.abs(price.values[:-1])  # no divergence does
    where = f"{price.orders[1:][falls.argmax()]:g}"
    require(
        not falls.any(), f"Expected a price that does not fall with the order, got one that does at {where}."
    )
    return RdpCurve(DEFAULT_ORDERS, price.values)


def _check_releases(trial: Trial, price: RdpCurve) -> None:
    for n in (1, len(trial.votes)):
        release, again = (trial.release(n) for _ in range(2))
        require(
            np.array_equal(release.labels, again.labels)
            and np.array_equal(release.answered, again.answered)
            and (release.values is None or np.array_equal(release.values, again.values)),
            "Expected the same labels from the same noise; draw all randomness from the `noise` argument.",
        )
        cost = release.cost.worst
        require(np.array_equal(cost.orders, price.orders), "Expected the cost on the orders of the price.")
        over = cost.values > n * price.values * (1 + ROUNDING)
        where = f"at order {cost.orders[over.argmax()]:g}"
        require(not over.any(), f"Expected {n} queries to cost at most {n} times the price, not so {where}.")
        if has_one_price(trial.mechanism, trial.votes.unit, **public_numbers(trial.votes)):
            exact = (cost.values >= n * price.values * (1 - ROUNDING)).all()
            require(exact, f"Expected {n} queries to cost {n} times the price, as one_price says, got less.")


def _check_kinds(mechanism: Any, votes: Votes) -> None:
    """Require kinds of outcomes, where a mechanism has any, of which the dearest is the price."""
    public = public_numbers(votes)
    item = item_of(mechanism, votes.unit, **public)
    if item is None:
        return
    require(len(item.curves) == 2, f"Expected two kinds, silent and answered, got {len(item.curves)}.")
    n_items = getattr(mechanism, "n_labels", 1)
    price = price_of(mechanism, votes.unit, **public).values
    same = np.allclose(item.price().values * n_items, price, rtol=ROUNDING, atol=0)
    require(same, "Expected the price of the dearest kind, got another.")


def _check_charges(trial: Trial, price: RdpCurve) -> None:
    """Require charges by kind that cover what every outcome gives away, for every vote and move.

    Charges c(o) are sound at an order a if E exp((a - 1) (loss - c(o))) is at most 1 for all neighbours.
    """
    item = item_of(trial.mechanism, trial.votes.unit, **public_numbers(trial.votes))
    if item is None:
        return
    silent, answered = (item.curve(kind).values for kind in range(2))
    n, n_classes = trial.votes.counts.shape
    for rows in chunks(np.full(n, n_classes)):
        outcomes, counts = trial.outcomes(rows), trial.votes.counts[rows]
        alive = (outcomes.multiplicity > 0) & outcomes.moves[..., None]
        # Behind all classes that a move tells apart the last outcome is silence.
        times = np.where(alive, np.log(np.maximum(outcomes.multiplicity, 1)), -np.inf)
        here, there = (np.where(alive, logs, 0.0) for logs in (outcomes.log_here, outcomes.log_there))
        for at, order in enumerate(price.orders):
            charge = np.full(here.shape[-1], answered[at])
            charge[-1] = silent[at]
            for p, q in ((here, there), (there, here)):
                found = np.logaddexp.reduce(times + order * p + (1 - order) * (q + charge), axis=-1)
                fits = (found <= ROUNDING * (1 + order * price.values[at]) + ROUNDING).all(axis=(1, 2))
                what = f"Expected every outcome to be charged what it gives away, not so at order {order:g}"
                _require_all(fits, counts, f"{what}. Is silence charged?")


def _check_repr(trial: Trial) -> None:
    shown = {repr(trial.outcomes([row])) for row in range(min(5, len(trial.votes)))}
    require(len(shown) == 1, "Expected outcomes with the same repr for all votes: they are private.")


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


# --- Mechanisms that are paid by the batch ---
#
# Their queries need not be answered apart, so what is compared is all that a batch tells.


_BATCH = 3  # queries per batch, for a mechanism that takes any number


def check_batches(
    mechanism: Any,
    *,
    n_teachers: int = 60,
    n_classes: int = 4,
    n_draws: int = 20_000,
    seed: int = 7,
) -> None:
    """Raise AssertionError if a mechanism that is paid by the batch breaks a promise; see `check_mechanism`.

    Votes are batches in which one teacher's ballots move from the leader of every query to its runner-up or
    to another class: teachers agree, are torn, or nearly so, and some in between. Each is drawn n_draws / 10
    times, the three that look worst n_draws times.
    """
    described, n = check_description(mechanism), getattr(mechanism, "n_queries", _BATCH)
    public = {"n_teachers": n_teachers, "n_classes": n_classes}
    offered, again = (price_of(mechanism, Unit(), n, **public) for _ in range(2))
    price = _as_curve(offered, again)
    delta = delta_of(offered)
    require(0 <= delta < 1 and delta == delta_of(again), f"Expected a delta in [0, 1), got {delta}.")
    pairs = _batch_pairs(np.random.default_rng(seed), n_teachers, n_classes, n_queries=n)
    for votes, _ in pairs:
        _check_batch(mechanism, votes, price, delta, seed=seed)
    n_first, found = max(200, n_draws // 10), []
    for at, pair in enumerate(pairs):
        drawn = [_draw_batches(mechanism, votes, n_first, seed + 2 * at + i) for i, votes in enumerate(pair)]
        score = learn_score(*drawn)
        here, there = (score(side) for side in drawn)
        found.append((_excess(here, there, price, delta, alarm=0.01), at, score))
    # Those that look worst are drawn again, by an event that was chosen before.
    for _, at, score in sorted(found, key=lambda one: -one[0])[:3]:
        here, there = (
            score(_draw_batches(mechanism, votes, n_draws, seed + 1000 + 2 * at + i))
            for i, votes in enumerate(pairs[at])
        )
        counts = [votes.counts.tolist() for votes in pairs[at]]
        require(
            _excess(here, there, price, delta, alarm=FALSE_ALARM / 3) <= 0,
            f"Expected a price above what a batch tells; draws prove more, between the votes {counts[0]} and "
            f"{counts[1]}. Raise the price, or look for noise that is not drawn.",
        )
    same = check_description(mechanism) == described
    require(same, "Expected fields that stay as they were made; releasing votes changed them.")


def _batch_pairs(
    rng: np.random.Generator, n_teachers: int, n_classes: int, *, n_queries: int
) -> list[tuple[Votes, Votes]]:
    """Return neighbouring batches: one teacher's ballots differ."""
    pairs, half = [], (n_teachers + 1) // 2
    tops = {half, min(n_teachers, half + 1), *(round(x * n_teachers) for x in (0.62, 0.75, 0.9, 1.0))}
    # The same leader everywhere, and as it comes.
    for leaders in (np.zeros(n_queries, dtype=np.int64), rng.integers(n_classes, size=n_queries)):
        for top in sorted(tops):
            ballots = np.repeat(leaders[None], n_teachers, axis=0)
            ballots[top:] = (leaders + 1) % n_classes
            for step in {1, n_classes - 1}:
                moved = ballots.copy()
                moved[0] = (leaders + step) % n_classes
                both = (Votes.from_ballots(each, n_classes=n_classes) for each in (ballots, moved))
                pairs.append(tuple(both))
    return [(here, there) for here, there in pairs]


def _check_batch(mechanism: Any, votes: Votes, price: RdpCurve, delta: float, *, seed: int) -> None:
    release, again = (mechanism.release(votes, noise.seeded(seed)) for _ in range(2))
    require(isinstance(release, Release), f"Expected a Release, got {type(release).__name__}.")
    labels = np.asarray(release.labels)
    require(
        len(labels) == len(votes) and labels.dtype.kind in "iu",
        f"Expected {len(votes)} whole labels, got shape {labels.shape} of {labels.dtype}.",
    )
    require(
        np.array_equal(_told(release), _told(again)),
        "Expected the same labels from the same noise; draw all randomness from the `noise` argument.",
    )
    cost = release.cost.worst
    require(np.array_equal(cost.orders, price.orders), "Expected the cost on the orders of the price.")
    over = cost.values > price.values * (1 + ROUNDING)
    where = f"at order {cost.orders[over.argmax()]:g}"
    require(not over.any(), f"Expected a batch to cost at most its price, not so {where}.")
    require(
        delta_of(cost) == delta, "Expected the delta of the price on every release: it is never returned."
    )
    if getattr(mechanism, "one_price", False):
        exact = (cost.values >= price.values * (1 - ROUNDING)).all()
        require(exact, "Expected every batch to cost its price, as one_price says, got less.")


def _told(release: Any) -> NDArray[Any]:
    """Return all that a release tells, in one row."""
    return outcomes_of(release).reshape(-1)


def _draw_batches(mechanism: Any, votes: Votes, n_draws: int, seed: int) -> NDArray[Any]:
    source = noise.seeded(seed)
    return np.stack([_told(mechanism.release(votes, source)) for _ in range(n_draws)])


def _excess(here: Floats, there: Floats, price: RdpCurve, delta: float, *, alarm: float) -> float:
    """Return by how much events "the score is at least, or at most, a cut" prove a price to be too low.

    Guarantee: above 0 for a sound price with chance at most `alarm`, if the score was chosen on other draws.
    Assumes:   independent draws.
    Reference: Clopper and Pearson 1934; P(A) <= e^epsilon Q(A) + delta for every event A.
    """
    cuts = np.unique(np.quantile(np.concatenate([here, there]), np.linspace(0, 1, 20), method="lower"))
    levels = [(price.epsilon(d), d + delta) for d in np.geomspace(1e-5, 0.3, 8)]
    error = alarm / (8 * cuts.size)  # two sides, two directions, two probabilities
    worst = -1.0
    for own, other in ((here, there), (there, here)):
        for sides in ([(x[None] >= cuts[:, None]).sum(axis=1) for x in (own, other)],
                      [(x[None] <= cuts[:, None]).sum(axis=1) for x in (own, other)]):  # fmt: skip
            low = clopper_pearson(sides[0], own.size, error)[0]
            high = clopper_pearson(sides[1], other.size, error)[1]
            worst = max(worst, *(float((low - np.exp(e) * high - d).max()) for e, d in levels))
    return worst


# --- Mechanisms of many labels ---


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
    price = _check_price(mechanism, Unit(), n_teachers=n_teachers)
    if getattr(mechanism, "confidential", False) and mechanism.resolution == 1:
        check_any_shares(mechanism)
    trial = Trial(mechanism, votes, None, seed)
    _check_kinds(mechanism, votes)
    _check_releases(trial, price)
    if callable(getattr(mechanism, "outcomes", None)):
        _check_costs(mechanism, votes, price)
        _check_repr(trial)
    moves = Moves(*label_moves(mechanism, max(2, n_teachers), rng))
    _check_each_other(mechanism, moves, n_draws, seed)
    if callable(getattr(mechanism, "outcomes", None)):
        _check_label_frequencies(mechanism, moves, n_draws, seed)
    check_price_by_draws(
        mechanism, moves, price, n_draws=n_draws, seed=seed + 100, alarm=share_of_alarm("price"), n_best=4,
        rounds=((24, 300), (6, 1500)),
    )  # fmt: skip
    same = check_description(mechanism) == described
    require(same, "Expected fields that stay as they were made; releasing votes changed them.")


def random_label_votes(rng: np.random.Generator, mechanism: Any, *, n_teachers: int, n_queries: int) -> Votes:
    """Return votes that try a mechanism: all agreed, evenly split, one vote apart, and random.

    >>> from tellers import Binary
    >>> random_label_votes(np.random.default_rng(7), Binary(2.0, 3), n_teachers=5, n_queries=9)
    Votes(<private>, n_queries=9, n_teachers=5, n_labels=3)
    """
    n_labels = mechanism.n_labels
    table = np.empty((n_teachers, n_queries, n_labels))
    for query in range(n_queries):
        yes = (0.0, 1.0, 0.5)[query] if query < 3 else rng.beta(0.4, 0.4, size=n_labels)
        table[:, query] = rng.random((n_teachers, n_labels)) < yes
        if query == 2:  # an even split, in turn
            table[:, query] = (np.arange(n_teachers)[:, None] + np.arange(n_labels)) % 2
    return Votes.from_ballots(table, label_space(mechanism))


def _check_costs(mechanism: Any, votes: Votes, price: RdpCurve) -> None:
    for costs in (block.costs for block in label_blocks(mechanism, votes, price.orders)):
        require(bool((costs >= 0).all()), "Expected costs of at least 0, got a negative one.")
        over = (costs > price.values * (1 + ROUNDING) + 1e-12).any(axis=(0, 1))
        where = f"at order {price.orders[over.argmax()]:g}"
        require(not over.any(), f"Expected no exact cost above the price, not so {where}.")


def _check_label_frequencies(mechanism: Any, moves: Moves, n_draws: int, seed: int) -> None:
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
