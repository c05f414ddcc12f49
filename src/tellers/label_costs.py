"""What label votes cost the unit behind each ballot: exact, over all labels and all other ballots.

Different labels have noise of their own, so their divergences add. With d_i(x) the divergence of label i when
a teacher's own vote there becomes x, the cost of its ballot is the largest sum of d_i(v_i) over the ballots v
that the rule allows: of free ballots label by label, otherwise by `label_alternatives`.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from .divergence import divergences, pair_divergences
from .label_alternatives import dearest_alternatives
from .label_votes import LabelVotes
from .mechanisms.labels.adaptive import ChosenOutcomes
from .mechanisms.labels.bins import PowersetOutcomes
from .mechanisms.labels.law import LabelLaw
from .mechanisms.labels.outcomes import LabelOutcomes
from .votes import Votes

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Ballots per pass: enough to share computations between queries, few enough to keep memory flat.
_BALLOTS = 60_000
ANOTHER_TEACHER = "each query may have another worst teacher"
"""Why the cost of counts is an upper bound."""
# Exponents of Hölder's inequality that are tried.
_HOLDER = (1.1, 1.25, 1.5, 2.0, 4.0)


def bound_because(mechanism: object, votes: Votes | LabelVotes | None = None) -> str:
    """Return why an exact cost is an upper bound; empty where it is the divergence itself.

    >>> from tellers import DependentBinary
    >>> bound_because(DependentBinary(2.0, 2, negative=((0, 1),)))
    'it is that of telling all labels, and those that follow from others are not asked'
    """
    declared = str(getattr(mechanism, "exact_is_bound", ""))
    if declared or votes is None:
        return declared
    if isinstance(votes, LabelVotes) and votes.voters is not None:
        return "teachers who do not know a label count as if they might"
    return "" if votes.ballots is not None else ANOTHER_TEACHER


def label_blocks(
    mechanism: object, votes: LabelVotes, grid: Floats
) -> Iterator[tuple[int, Floats, Integers | None]]:
    """Yield (first query, costs, of_teacher): costs (2, ballots, orders), one row per distinct ballot.

    `of_teacher` (teachers, queries) says which row a teacher's ballot is; None where only sums are known, and
    then there is one row per query: its worst ballot.

    >>> from tellers import LabelVotes
    >>> from tellers.mechanisms.labels import Binary
    >>> votes = LabelVotes.from_ballots([[[1, 0]], [[1, 1]], [[1, 0]]], n_labels=2)
    >>> [(costs.shape, of.shape) for _, costs, of in label_blocks(Binary(2.0, 2), votes, np.array([2.0]))]
    [((2, 2, 1), (3, 1))]
    """
    # A mechanism that chooses between shares has costs at each of them.
    block = max(1, _BALLOTS // (votes.n_teachers * max(1, len(getattr(mechanism, "shares", ())))))
    for start in range(0, len(votes), block):
        outcomes = mechanism.outcomes(votes[start : start + block])  # type: ignore[attr-defined]
        if isinstance(outcomes, PowersetOutcomes):
            yield start, _powerset(outcomes, grid), outcomes.of_teacher
        elif isinstance(outcomes, ChosenOutcomes):
            yield start, _chosen(outcomes, grid), outcomes.base.of_teacher
        elif outcomes.ballots is None:
            yield start, _worst(outcomes, grid), None
        else:
            yield start, ballot_costs(outcomes, grid), outcomes.of_teacher


def ballot_costs(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Return what each distinct ballot's release costs, (2 directions, ballots, orders); private.

    Guarantee: without a gate the divergence itself, of all labels together, to the worst other ballot. With a
               gate an upper bound: the gate and the labels may each have another worst ballot. Never above
               the price of the gate plus the labels.
    Assumes:   noise is independent from label to label.
    Reference: "Many labels", the greedy argument.

    >>> from tellers import LabelVotes
    >>> from tellers.mechanisms.labels import Binary
    >>> votes = LabelVotes.from_ballots([[[1, 0]], [[1, 1]]], n_labels=2)
    >>> ballot_costs(Binary(2.0, 2).outcomes(votes), np.array([2.0])).shape
    (2, 2, 1)
    """
    costs = _free(outcomes, grid) if outcomes.rule.is_free else dearest_alternatives(outcomes, grid)
    return costs if outcomes.gate is None else _gated(outcomes, costs, grid)


def by_teacher(costs: Floats, of_teacher: Integers) -> Floats:
    """Return the sum of costs over queries for every teacher, (2, teachers, orders).

    >>> by_teacher(np.ones((2, 3, 1)), np.array([[0, 2], [1, 2]]))[0].ravel()
    array([2., 2.])
    """
    n_teachers, n_queries = of_teacher.shape
    pointers = np.arange(n_teachers + 1) * n_queries
    cast = csr_array(
        (np.ones(of_teacher.size), of_teacher.ravel(), pointers), shape=(n_teachers, costs.shape[1])
    )
    return np.stack([cast @ direction for direction in costs])


def _free(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Every label's alternative is chosen by itself: a plain no or a plain yes, whichever is worse.

    With a bar and votes in parts the worst may lie in between, where fewest are sure: all parts are tried.
    """
    assert outcomes.ballots is not None
    assert outcomes.query is not None
    one, k = outcomes.rule.one, outcomes.rule.n_labels
    own = outcomes.ballots
    sums = outcomes.sums[outcomes.query]
    # A distinct cell is a label's kind, its sum and the own vote; divergence grows with distance.
    kinds, which = np.unique(outcomes.law.kinds, axis=1, return_inverse=True)
    which = which.reshape(-1)
    span = int(outcomes.sums.max(initial=0)) + 1
    code = (which * span + sums) * (one + 1) + own
    seen, cell = _distinct(code, kinds.shape[1] * span * (one + 1))
    rest, vote = np.divmod(seen, one + 1)
    at, total = np.divmod(rest, span)
    kind, law = kinds[:, at], outcomes.law
    if law.bar is not None and outcomes.rule.has_parts:
        worst = _any_part(law, total, vote, kind, one, grid)
    else:
        here = law.log_outcomes(total, kind)
        worst = np.zeros((2, seen.size, grid.size))
        for other in (0, one):
            there = law.log_outcomes(total - vote + other, kind)
            worst = np.maximum(worst, pair_divergences(here, there, grid))
    pointers = np.arange(len(own) + 1) * k
    cells = csr_array((np.ones(cell.size), cell.ravel(), pointers), shape=(len(own), seen.size))
    return np.stack([cells @ direction for direction in worst])


def _any_part(
    law: LabelLaw, total: Integers, vote: Integers, kind: Integers, one: int, grid: Floats
) -> Floats:
    """Return the worst divergence of each cell over all votes 0 .. `one`, step by step away from its own."""
    places, cell = np.unique(np.stack([total, *kind]), axis=1, return_inverse=True)
    sums, kinds = places[0], places[1:]
    cell = cell.reshape(-1)
    here = law.log_outcomes(sums, kinds)
    worst = np.zeros((2, total.size, grid.size))
    for sign, reach in ((-1, vote), (1, one - vote)):
        # The worst so far, of all sums within this many steps on this side.
        running = np.zeros((2, sums.size, grid.size))
        for step in range(1, int(reach.max(initial=0)) + 1):
            there = law.log_outcomes(sums + sign * step, kinds)
            running = np.maximum(running, pair_divergences(here, there, grid))
            ends = np.flatnonzero(reach == step)
            worst[:, ends] = np.maximum(worst[:, ends], running[:, cell[ends]])
    return worst


def _distinct(code: Integers, n_codes: int) -> tuple[Integers, Integers]:
    """Return the distinct codes and the place of each entry among them; few codes need no sorting."""
    if n_codes > 1 << 24:
        seen, inverse = np.unique(code, return_inverse=True)
        return seen, inverse.reshape(code.shape)
    present = np.zeros(n_codes, dtype=np.bool_)
    present[code.ravel()] = True
    place = np.cumsum(present) - 1
    return np.flatnonzero(present), place[code]


def _gated(outcomes: LabelOutcomes, labels: Floats, grid: Floats) -> Floats:
    """The gate and the labels behind it: silence, or everything that was told.

    With p the chance that the gate opens, and p' after a ballot changed, the divergence D of the whole has
    exp((a - 1) D) = f^a f'^(1-a) + p^a p'^(1-a) exp((a - 1) L), L that of the labels. It is convex in p', and
    p' grows with every vote: its largest value is at a ballot of all yes or of none. Where ballots are capped
    no ballot is all yes; the gate's price, which knows of the cap, plus L bounds the whole as well.
    """
    gate = outcomes.gate
    assert gate is not None
    assert outcomes.ballots is not None
    assert outcomes.query is not None
    sums = outcomes.sums[outcomes.query]
    opened, shut = gate.log_pass_and_fail(sums)
    worst = np.zeros_like(labels)
    step = grid - 1
    for other in (0, outcomes.rule.one):
        opened_there, shut_there = gate.log_pass_and_fail(sums - outcomes.ballots + other)
        for way, ((p, f), (p2, f2)) in enumerate(
            (((opened, shut), (opened_there, shut_there)), ((opened_there, shut_there), (opened, shut)))
        ):
            silent = f[:, None] + step * (f - f2)[:, None]
            told = p[:, None] + step * ((p - p2)[:, None] + labels[way])
            worst[way] = np.maximum(worst[way], np.logaddexp(silent, told) / step)
    return np.asarray(np.clip(worst, 0.0, gate.price(outcomes.rule, grid) + labels))


def _worst(outcomes: LabelOutcomes, grid: Floats) -> Floats:
    """Without ballots: every label's worse vote, where there is one of that kind."""
    one, total = outcomes.rule.one, outcomes.sums
    kind = np.tile(outcomes.law.kinds, len(total))
    flat = total.ravel()
    here = outcomes.law.log_outcomes(flat, kind)
    costs = np.zeros((2, flat.size, grid.size))
    # At a bar the furthest sum need not be the worst.
    between = outcomes.law.bar is not None and outcomes.rule.has_parts
    for step in range(1, one + 1) if between else (one,):
        for move in (-step, step):
            # Somebody who voted no can only add, somebody who voted yes only take away: both are assumed.
            there = outcomes.law.log_outcomes(np.maximum(flat + move, 0), kind)
            costs = np.maximum(costs, pair_divergences(here, there, grid))
    return np.asarray(costs.reshape(2, *total.shape, grid.size).sum(axis=2))


def _chosen(outcomes: ChosenOutcomes, grid: Floats) -> Floats:
    """The choice and the labels together: an upper bound, by Hölder's inequality.

    With P_t the chance that share t is chosen, L_t the cost of the labels there and 1/p + 1/q = 1,

        forward D <= ((a - 1) p + 1) r + log sum_t P_t exp((a - 1) q L_t) / ((a - 1) q)

    at order a, where a r bounds the choice; reverse the first term is (a p - 1) a r / (a - 1). At p = 1 it is
    the price of the choice and the dearest share; the smallest over some p counts.
    """
    cost = _worst if outcomes.base.ballots is None else ballot_costs
    labels = np.stack([cost(outcomes.at(place), grid) for place in range(len(outcomes.laws))])
    rate, step = 1 / (2 * outcomes.scale**2), grid - 1
    best = labels.max(axis=0) + grid * rate
    chances = outcomes.log_choice
    if outcomes.base.query is not None:
        chances = chances[outcomes.base.query]
    weights = chances.T[:, None, :, None]
    for p in _HOLDER:
        q = p / (p - 1)
        mixed = np.logaddexp.reduce(weights + (step * q) * labels, axis=0) / (step * q)
        mixed[0] += (step * p + 1) * rate
        mixed[1] += (grid * p - 1) * grid / step * rate
        best = np.minimum(best, mixed)
    return np.asarray(best)


def _powerset(outcomes: PowersetOutcomes, grid: Floats) -> Floats:
    result = np.zeros((2, outcomes.n_ballots, grid.size))
    for part in outcomes.parts:
        by_group = divergences(part.outcomes, orders=grid)
        result[:, part.ballot] += by_group[:, part.query, part.outcomes.of_class[part.query, part.column]]
    return result
