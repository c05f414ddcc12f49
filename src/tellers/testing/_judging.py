"""What checks of mechanisms have in common: the description, and what draws prove."""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, hypergeom

from .. import noise
from ..audit.candidates import Moves
from ..audit.learned import learn_groups, learn_score
from ..audit.pairs import search_moves
from ..audit.releases import Outcomes, draw_rows, outcomes_of
from ..rdp import Floats, RdpCurve
from ..release import describe
from ..votes import Integers
from ._promise import require

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


# Draws against the price ------------------------------------------------------------------------------------


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

    def proved(here: Outcomes, there: Outcomes, *, groups: Any, score: Any, error: float) -> Floats:
        counts = [groups.counts(score(side)) for side in (here, there)]
        above = [np.cumsum(side[::-1])[::-1][1:] for side in counts]
        if not above[0].size:
            return np.zeros(price.orders.size)
        p, q = (clopper_pearson(n, len(side), error) for n, side in zip(above, (here, there), strict=True))
        return np.maximum(coin(p, q, price.orders), coin(q, p, price.orders))

    def judge(here: Outcomes, there: Outcomes) -> float:
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

    def silent(outcomes: Outcomes) -> NDArray[np.bool_]:
        return np.asarray(outcomes[:, 0] < 0)

    def judge(here: Outcomes, there: Outcomes) -> float:
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


# Draws against each other -----------------------------------------------------------------------------------


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


def _one_by_one(mechanism: Any, moves: Moves, at: int, seed: int, costs: dict[bool, Floats]) -> Outcomes:
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


def _codes(outcomes: Outcomes, moves: Moves) -> Integers:
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
