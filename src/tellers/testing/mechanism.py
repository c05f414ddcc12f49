"""`check_mechanism` and `check_label_mechanism`: prices, costs, outcomes and draws of a mechanism."""

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binom, hypergeom

from ..accounting._label_exact import label_blocks
from ..accounting.audit.evidence import (
    DrawnOutcomes,
    draw_rows,
    learn_groups,
    learn_score,
    outcomes_of,
)
from ..accounting.audit.pairs import Moves, class_moves, label_moves, search_moves
from ..errors import require_count
from ..mechanisms._outcomes import Outcomes, chunks
from ..mechanisms.base import label_space
from ..mechanisms.divergence import divergences
from ..mechanisms.labels._outcomes import LabelOutcomes
from ..mechanisms.registry import listens
from ..privacy import noise
from ..privacy.rdp import DEFAULT_ORDERS, Floats, RdpCurve
from ..privacy.release import SILENT, Release, describe
from ..privacy.votes import Unit, Votes
from ._require import require

Integers = NDArray[np.int64]


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

    def _votes(self, rows: Any, counts: Integers | None) -> Votes:
        if counts is None:
            return self.votes[rows]
        return Votes.from_counts(counts, n_teachers=self.votes.n_teachers)

    def outcomes(self, rows: Any, counts: Integers | None = None) -> Any:
        """Return the outcomes of some rows, or of other counts in their place."""
        return self.mechanism.outcomes(self._votes(rows, counts), **self._context(rows))

    def release(self, rows: Any, counts: Integers | None = None, *, seed: int = 0) -> Any:
        """Return a release of some rows, or of other counts in their place."""
        source = noise.seeded(self.seed + seed)
        return self.mechanism.release(self._votes(rows, counts), source, **self._context(rows))

    def drawn(self, release: Any, n: int) -> Integers:
        """Return the outcome of each query, 0 for no answer and 1 + label for an answer; check them too.

        Of many labels, what is told of each.
        """
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
            return labels
        inside = (labels < self.votes.n_classes) & (labels >= np.where(answered, 0, SILENT))
        last = self.votes.n_classes - 1
        require(inside.all(), f"Expected answers 0..{last}, else SILENT, got {labels[~inside][:1]}.")
        if (values := release.values) is not None:
            fits = values.shape == (n, self.votes.n_classes) and values.dtype.kind in "iu"
            require(fits, f"Expected {n} rows of whole values, got {values.dtype} of shape {values.shape}.")
        return np.asarray(np.where(answered, labels + 1, 0))


FALSE_ALARM = 1e-6
"""The most likely a check is to fail by bad luck of its draws; for one seed it always or never does."""

ROUNDING = 1e-9
# Of FALSE_ALARM: draws against the stated outcomes or the price, and queries against each other.
_SHARES = {"law": 0.4, "price": 0.4, "independence": 0.2}
N_SINGLES = 100
_MOST_ANSWERS = 30


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
    missing = [w for w in ("price", "release") if not callable(getattr(mechanism, w, None))]
    require(not missing, f"Expected {name} to have methods `price` and `release`, missing {missing}.")
    try:
        return json.dumps(describe(mechanism, noise.seeded(0))) + repr(mechanism)
    except TypeError as error:
        raise AssertionError(f"Expected fields that can be stored in an event: {error}.") from error


def require_rising(price: RdpCurve) -> None:
    """Require a price that does not fall with the order, since no divergence does."""
    falls = np.diff(price.values) < -ROUNDING * np.abs(price.values[:-1])
    where = f"{price.orders[1:][falls.argmax()]:g}"
    require(
        not falls.any(), f"Expected a price that does not fall with the order, got one that does at {where}."
    )


def clopper_pearson(times: Integers, n: int, error: float) -> Floats:
    """Return lower and upper limits of the probabilities, each wrong with probability at most `error`."""
    low = np.where(times > 0, beta.ppf(error, np.maximum(times, 1), n - times + 1), 0.0)
    high = np.where(times < n, beta.isf(error, times + 1, np.maximum(n - times, 1)), 1.0)
    return np.stack([low, high])


def coin(p: Floats, q: Floats, orders: Floats) -> Floats:
    """Return, per order, the largest divergence D(p || q) that the limits of the coins prove."""
    # The pair of heads probabilities nearest to each other; the same one where the intervals meet.
    above, below = p[0] > q[1], p[1] < q[0]
    heads = [np.select([above, below], pair, 0.5) for pair in ([p[0], p[1]], [q[1], q[0]])]
    with np.errstate(divide="ignore"):
        sides = [orders * np.log(a)[:, None] + (1 - orders) * np.log(b)[:, None]
                 for a, b in (heads, [1 - heads[0], 1 - heads[1]])]  # fmt: skip
    return np.asarray((np.logaddexp(*sides) / (orders - 1)).max(axis=0))


# --- Draws against the price ---


def check_price_by_draws(
    mechanism: Any,
    moves: Moves,
    price: RdpCurve,
    *,
    n_draws: int,
    seed: int,
    alarm: float,
    n_best: int,
    rounds: tuple[tuple[int, int], ...],
) -> None:
    """Require that no event's draws prove a divergence above the price, at the worst neighbours of a search.

    Neighbours and events are chosen on draws of their own. By data processing the divergence is at least that
    of the coin "did the event happen"; its two probabilities lie in Clopper-Pearson intervals.
    """
    source = noise.seeded(seed)
    limits = np.maximum(price.values, 1e-300)

    def proved(here: DrawnOutcomes, there: DrawnOutcomes, *, groups: Any, score: Any, error: float) -> Floats:
        counts = [groups.counts(score(side)) for side in (here, there)]
        above = [np.cumsum(side[::-1])[::-1][1:] for side in counts]
        if not above[0].size:
            return np.zeros(price.orders.size)
        p, q = (clopper_pearson(n, len(side), error) for n, side in zip(above, (here, there), strict=True))
        return np.maximum(coin(p, q, price.orders), coin(q, p, price.orders))

    def judge(here: DrawnOutcomes, there: DrawnOutcomes) -> float:
        half = len(here) // 2
        score = learn_score(here[:half], there[:half])
        groups = learn_groups(score(here[:half]), score(there[:half]))
        return float(
            (proved(here[half:], there[half:], groups=groups, score=score, error=0.01) / limits).max()
        )

    found = search_moves(mechanism, moves, noise=source, judge=judge, rounds=rounds)
    for at, _ in found[:n_best]:
        rows = np.full(n_draws, at)
        n_first = max(2, n_draws // 5)
        pilot, draws = (
            [
                draw_rows(mechanism, votes, rows[:n], source, student=moves.student)
                for votes in (moves.here, moves.there)
            ]
            for n in (n_first, n_draws)
        )
        score = learn_score(*pilot)
        groups = learn_groups(score(pilot[0]), score(pilot[1]))
        error = alarm / (4 * n_best * max(1, groups.cuts.size))
        divergence = proved(draws[0], draws[1], groups=groups, score=score, error=error)
        over = divergence > price.values * (1 + ROUNDING) + ROUNDING
        worst = int(np.argmax(np.where(over, divergence / limits, 0.0)))
        require(
            not over.any(),
            f"Expected a price above every divergence; draws show at least {divergence[worst]:.4g} where the "
            f"price is {price.values[worst]:.4g}, at order {price.orders[worst]:g}, between the votes of "
            f"{moves.pair(at)}. Raise the price, or look for noise that is not drawn.",
        )


def check_silence_by_draws(
    mechanism: Any,
    moves: Moves,
    price: RdpCurve,
    charged: "Singles",
    *,
    n_draws: int,
    seed: int,
    alarm: float,
) -> None:
    """Require that silence is charged what it gives away, where it costs less than an answer.

    Charges c(o) that depend on the outcome o are sound at an order a if the mean over a neighbour's outcomes
    of (ratio of probabilities)^a e^(-(a - 1) c(o)) is at most 1. The mean is jointly convex in both
    probabilities of silence, so its least value in their Clopper-Pearson box is near one of a fine grid.
    """
    if charged.silent is None or charged.answered is None or np.all(charged.silent >= charged.answered):
        return
    source = noise.seeded(seed)

    def silent(outcomes: DrawnOutcomes) -> NDArray[np.bool_]:
        return np.asarray(outcomes[:, 0] < 0)

    def judge(here: DrawnOutcomes, there: DrawnOutcomes) -> float:
        return float(abs(silent(here).mean() - silent(there).mean()))

    at, _ = search_moves(mechanism, moves, noise=source, judge=judge, rounds=((16, 600), (3, 3000)))[0]
    rows = np.full(n_draws, at)
    boxes = [
        clopper_pearson(
            silent(draw_rows(mechanism, votes, rows, source, student=moves.student)).sum(), n_draws, alarm / 4
        )
        for votes in (moves.here, moves.there)
    ]  # fmt: skip
    for p_box, q_box in (boxes, boxes[::-1]):
        p, q = np.meshgrid(
            *(np.clip(np.linspace(box[0], box[1], 41), 1e-12, 1 - 1e-12) for box in (p_box, q_box))
        )
        least = np.min(outcome_charge(
            np.log(np.stack([p, 1 - p], axis=-1)), np.log(np.stack([q, 1 - q], axis=-1)),
            np.stack([charged.silent, charged.answered]), price.orders,
        ), axis=(0, 1))  # fmt: skip
        require_charged(least, price.orders, f"between the votes of {moves.pair(at)}", slack=0.02)


def outcome_charge(log_p: Floats, log_q: Floats, charges: Floats, orders: Floats) -> Floats:
    """Return the logarithm, (..., orders), of the mean that sound charges keep below 0."""
    total = None
    for at in range(log_p.shape[-1]):
        p, q = log_p[..., at, None], log_q[..., at, None]
        never = np.isneginf(p) & np.isneginf(q)
        term = orders * np.where(never, 0.0, p) + (1 - orders) * (np.where(never, 0.0, q) + charges[at])
        term = np.where(never, -np.inf, term)
        total = term if total is None else np.logaddexp(total, term)
    return np.asarray(total)


def require_charged(found: Floats, orders: Floats, where: str, *, slack: float = 1e-6) -> None:
    """Require that charges cover what outcomes give away, at every order."""
    over = found > slack
    at = f"at order {orders[int(over.argmax())]:g}"
    require(
        not over.any(),
        f"Expected every outcome to be charged what it gives away, not so {at}, {where}. Is silence charged?",
    )


# --- Draws against each other ---


@dataclass(frozen=True)
class Singles:
    """What single queries cost, by whether they were answered: all that a cost may follow from."""

    answered: Floats | None
    silent: Floats | None


def check_independence(
    mechanism: Any, moves: Moves, rows: Iterable[int], *, n_draws: int, seed: int, alarm: float
) -> Singles:
    """Require queries that are answered independently: in a batch, in batches of other noise, and one by one.

    Draws of the same votes are paired off, and pairs that agree are counted. If draws are independent, every
    other pairing was as likely, and so many agree too far from the mean with chance at most
    2 exp(-t^2 / (4 mean + 2 t)) (Chatterjee 2007, Proposition 1.1).
    """
    tried = list(rows)
    limit = alarm / max(1, 4 * len(tried))
    costs: dict[bool, Floats] = {}
    for at in tried:
        where = f"for votes {moves.pair(at)}"
        asked = np.full(n_draws, at)
        drawn = [
            draw_rows(mechanism, moves.here, asked, noise.seeded(seed + i), student=moves.student)
            for i in (1, 2)
        ]
        codes = _codes(np.concatenate([*drawn, _one_by_one(mechanism, moves, at, seed + 3, costs)]), moves)
        first, second, alone = np.split(codes, [n_draws, 2 * n_draws])
        half = n_draws // 2
        pairings = {
            "other noise gave the same answers": (first, second),
            "queries of one batch answer alike": (first[: 2 * half : 2], first[1 : 2 * half : 2]),
            "both halves of a batch answer alike": (first[:half], first[half : 2 * half]),
        }
        for what, (one, other) in pairings.items():
            require(
                _agreement(one, other) >= limit,
                f"Expected queries to be answered independently, from fresh noise each; {what}, {where}.",
            )
        # Which answers to count one by one is seen in the second batch, which is not counted.
        seen, often = np.unique(second, return_counts=True)
        known = seen[np.argsort(-often)[:_MOST_ANSWERS]]
        events = [
            *((first == code, alone == code) for code in known),
            tuple(~np.isin(x, known) for x in (first, alone)),
        ]
        for batch, single in events:
            both = int(batch.sum()), int(single.sum())
            law = hypergeom(n_draws + alone.size, sum(both), alone.size)
            tail = 2 * min(law.cdf(both[1]), law.sf(both[1] - 1))
            require(
                tail >= limit / (1 + known.size),
                f"Expected one query to be answered as in a batch; an answer came {both[0]} times in "
                f"{n_draws} there and {both[1]} times in {alone.size} single queries, {where}.",
            )
    return Singles(costs.get(True), costs.get(False))


def _one_by_one(mechanism: Any, moves: Moves, at: int, seed: int, costs: dict[bool, Floats]) -> DrawnOutcomes:
    source, found = noise.seeded(seed), []
    student = moves.student
    belief = {} if student is None else {"student": student[[at % len(student)]]}
    for _ in range(N_SINGLES):
        release = mechanism.release(moves.here[[at]], source, **belief)
        found.append(outcomes_of(release))
        answered = bool(np.any(release.answered))
        cost = release.cost.worst.values
        known = costs.setdefault(answered, cost)
        # Of many labels each may be silent, and their costs differ with how many are.
        require(
            hasattr(moves.here, "n_labels") or np.array_equal(known, cost),
            "Expected a cost that follows from what was released; the same answers cost differently.",
        )
    return np.concatenate(found)


def _codes(outcomes: DrawnOutcomes, moves: Moves) -> Integers:
    """Return one number per outcome: the class, or all labels together."""
    if not hasattr(moves.here, "n_labels"):
        return outcomes[:, 0].astype(np.int64)
    return np.asarray(np.unique(outcomes + 3, axis=0, return_inverse=True)[1]).reshape(-1)


def _agreement(one: Integers, other: Integers) -> float:
    both = np.unique(np.concatenate([one, other]))
    counts = [np.bincount(np.searchsorted(both, side), minlength=both.size) for side in (one, other)]
    mean = float((counts[0] / one.size * counts[1]).sum())
    off = abs(float((one == other).sum()) - mean)
    return float(2 * np.exp(-(off**2) / (4 * mean + 2 * off))) if off > 0 else 1.0


def informative_rows(times: Integers, n_most: int = 2) -> list[int]:
    """Return the votes whose outcomes, (votes, outcomes), vary most, and those whose silence does, if any."""
    shares = times / np.maximum(times.sum(axis=1, keepdims=True), 1)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    rows = [int(np.argmax(-(shares * logs).sum(axis=1)))]
    silent = shares[:, 0] * (1 - shares[:, 0])
    if silent.max() > 0 and int(silent.argmax()) not in rows:
        rows.append(int(silent.argmax()))
    return rows[:n_most]


def first_outcomes(
    mechanism: Any, moves: Moves, *, n_each: int, n_outcomes: int, seed: int
) -> NDArray[np.int64]:
    """Return how often each outcome of the first column came, (votes, outcomes), silence first."""
    rows = np.repeat(np.arange(len(moves)), n_each)
    told = draw_rows(mechanism, moves.here, rows, noise.seeded(seed), student=moves.student)[:, 0]
    place = rows * n_outcomes + np.maximum(told, -1) + 1
    return np.bincount(place, minlength=len(moves) * n_outcomes).reshape(-1, n_outcomes)


# --- Draws against the stated outcomes ---


@dataclass(frozen=True, eq=False)
class Drawn:
    """How often each outcome came at each vote, (votes, outcomes), and how likely each is stated to be.

    `n` is how often each vote was drawn, (votes, outcomes): 0 where an outcome has no meaning.
    """

    times: Integers
    stated: Floats
    n: Integers
    votes: Sequence[str]
    outcomes: Sequence[str]

    def of_votes(self) -> tuple[Floats, Integers, Floats]:
        """Return exact tails of every vote and outcome, with times and means."""
        both = binom.cdf(self.times, self.n, self.stated), binom.sf(self.times - 1, self.n, self.stated)
        tails = np.where(self.n > 0, 2 * np.minimum(*both), 1.0)
        return tails, self.times, self.n * self.stated

    def of_groups(self, groups: Integers) -> tuple[Floats, Integers, Floats]:
        """Return bounds on the tails of sums over votes in the same group, (groups, outcomes).

        The coins of a sum are not equal. Whatever the tilt, e^(-tilt s) E e^(tilt S) bounds P(S >= s) for a
        positive one and P(S <= s) for a negative one; the tilt of a Gaussian is nearly the best.
        """
        shape = (int(groups.max()) + 1, self.times.shape[1])

        def total(part: NDArray[np.float64]) -> Floats:
            sums = np.zeros(shape)
            np.add.at(sums, groups, part)
            return sums

        times = total(np.asarray(self.times * (self.n > 0), dtype=np.float64))
        mean = total(self.n * self.stated)
        spread = total(self.n * self.stated * (1 - self.stated))
        tilt = np.clip((times - mean) / np.maximum(spread, 1e-9), -8.0, 8.0)
        grown = np.log1p(self.stated * np.expm1(tilt[groups]))
        log_tail = total(self.n * grown) - tilt * times
        return np.minimum(2 * np.exp(np.minimum(log_tail, 0.0)), 1.0), times.astype(np.int64), mean


def check_drawn(drawn: Drawn, together: Mapping[str, Integers], *, alarm: float) -> None:
    """Require draws that follow what is stated, with chance of a false alarm at most `alarm`.

    `together` gives each vote a number for each of several things it may have in common with others.
    """
    limit = alarm / (1 + len(together))
    for words, (tails, times, mean) in _parts(drawn, together):
        row, outcome = divmod(int(tails.argmin()), tails.shape[1])
        where = drawn.votes[row] if words is None else words.format(row)
        require(
            tails[row, outcome] >= limit / tails.size,
            f"Expected draws to follow `outcomes`; {drawn.outcomes[outcome]} came {times[row, outcome]} "
            f"times where {mean[row, outcome]:.5g} are stated, for votes {where}. Are noise and ties drawn "
            "as the outcomes say?",
        )


def _parts(
    drawn: Drawn, together: Mapping[str, Integers]
) -> Iterator[tuple[str | None, tuple[Floats, Integers, Floats]]]:
    yield None, drawn.of_votes()
    for words, groups in together.items():
        yield words, drawn.of_groups(groups)


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
    trial = Trial(mechanism, votes.replaced(ballots=None), student_rows(student, votes), seed)
    price = _check_price(mechanism, votes.unit)
    _check_releases(trial, price)
    settings = list(_settings(trial, student, rng))
    stated = callable(getattr(mechanism, "outcomes", None))
    if stated:
        _check_outcomes(trial, price)
        _check_neighbours(trial, rng)
        _check_repr(trial)
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


def _check_each_other(mechanism: Any, moves: Moves, n_draws: int, seed: int) -> Singles:
    times = first_outcomes(mechanism, moves, n_each=20, n_outcomes=1 + moves.here.n_classes, seed=seed)
    return check_independence(
        mechanism, moves, informative_rows(times), n_draws=min(n_draws, 4000), seed=seed,
        alarm=share_of_alarm("independence"),
    )  # fmt: skip


def _check_unstated(
    mechanism: Any, moves: Moves, price: RdpCurve, *, n_draws: int, main: bool, alarm: float, seed: int
) -> None:
    m = moves.here.n_classes
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


def _check_price(mechanism: Any, unit: Unit) -> RdpCurve:
    price, again = (mechanism.price(unit) for _ in range(2))
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
        _check_cost(trial.mechanism, release.cost.worst, price, n)


def _check_repr(trial: Trial) -> None:
    shown = {repr(trial.outcomes([row])) for row in range(min(5, len(trial.votes)))}
    require(len(shown) == 1, "Expected outcomes with the same repr for all votes: they are private.")


def _check_cost(mechanism: Any, cost: RdpCurve, price: RdpCurve, n: int) -> None:
    require(np.array_equal(cost.orders, price.orders), "Expected the cost on the orders of the price.")
    over = cost.values > n * price.values * (1 + ROUNDING)
    where = f"at order {cost.orders[over.argmax()]:g}"
    require(not over.any(), f"Expected {n} queries to cost at most {n} times the price, not so {where}.")
    if getattr(mechanism, "one_price", False):
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
    price = _check_price(mechanism, Unit())
    trial = Trial(mechanism, votes, None, seed)
    _check_releases(trial, price)
    if callable(getattr(mechanism, "outcomes", None)):
        _check_costs(mechanism, votes, price)
        _check_repr(trial)
    moves = Moves(*label_moves(mechanism, max(2, n_teachers), rng))
    _check_labels_each_other(mechanism, moves, n_draws, seed)
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


def _check_labels_each_other(mechanism: Any, moves: Moves, n_draws: int, seed: int) -> None:
    """Require independent queries at the votes whose labels vary most, and at those whose silence does."""
    n_each = 20
    rows = np.repeat(np.arange(len(moves)), n_each)
    told = draw_rows(mechanism, moves.here, rows, noise.seeded(seed)).reshape(len(moves), n_each, -1)
    vary = [
        (share * (1 - share)).sum(axis=1) for share in ((told == 1).mean(axis=1), (told < 0).mean(axis=1))
    ]
    tried = {int(one.argmax()) for one in vary if one.max() > 0}
    # Where everything comes out alike in one batch, the most even votes must not.
    even = np.abs(2 * moves.here.sums - moves.here.sums.max()).sum(axis=1)
    tried = tried or {int(even.argmin())}
    check_independence(
        mechanism, moves, sorted(tried), n_draws=min(n_draws, 4000), seed=seed,
        alarm=share_of_alarm("independence"),
    )  # fmt: skip


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
