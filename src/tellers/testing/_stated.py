"""Neighbouring votes against the outcomes that a mechanism states: divergences, charges and draws."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import noise
from ..audit.candidates import Moves
from ..audit.releases import draw_rows
from ..mechanisms.outcomes import chunks
from ..rdp import Floats, RdpCurve
from ..release import SILENT
from ..votes import Integers
from ._frequencies import Drawn, check_drawn
from ._judging import ROUNDING, Singles, outcome_charge, require_charged
from ._promise import require
from ._trial import Trial


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
