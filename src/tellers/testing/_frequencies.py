"""Draws against the distribution that a mechanism states: at every vote, and over votes alike."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from ..rdp import Floats
from ..votes import Integers
from ._promise import require


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
