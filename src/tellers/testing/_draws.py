"""Tests of a mechanism's draws: against its price, against each other, and against what it states.

Each is an exact test, or a bound on the tail of one, and takes the chance of a false alarm that it may have.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom, hypergeom

from ..accounting.audit.evidence import DrawnOutcomes, draw_rows, learn_groups, learn_score, outcomes_of
from ..accounting.audit.pairs import Moves, search_moves
from ..privacy import noise
from ..privacy.rdp import Floats, RdpCurve
from ..privacy.votes import Integers
from ._require import require

ROUNDING = 1e-9
_N_SINGLES = 100
_MOST_ANSWERS = 30


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
    for _ in range(_N_SINGLES):
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
    parts = {"": drawn.of_votes()} | {words: drawn.of_groups(groups) for words, groups in together.items()}
    for words, (tails, times, mean) in parts.items():
        row, outcome = divmod(int(tails.argmin()), tails.shape[1])
        where = words.format(row) or drawn.votes[row]
        require(
            tails[row, outcome] >= limit / tails.size,
            f"Expected draws to follow `outcomes`; {drawn.outcomes[outcome]} came {times[row, outcome]} "
            f"times where {mean[row, outcome]:.5g} are stated, for votes {where}. Are noise and ties drawn "
            "as the outcomes say?",
        )
