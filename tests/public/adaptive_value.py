"""What the best adaptive attack on a ledger reaches, by backward induction over everything it may do.

An attack asks whatever the ledger still lets through, looks at the outcome, and asks on. Let P and Q be the
laws of one outcome for two neighbours, and z the likelihood ratio Q/P of all that came out so far. With
v(z) = (1 - z)_+ where it stops, and v(z) = max over what may be asked, and over its pairs, of
sum_o P(o) v'(z Q(o)/P(o)), the start's v(e^epsilon) is the largest delta of all attacks: nothing is left out.

`Value` has it from above, by chords between the points of a grid (v is convex, so chords are above it), and
`play` from below: it plays the best attack out, and returns the delta that this one attack reaches. So
`above <= claimed` shows that a claim holds, and `below > claimed` that it does not.

This file uses nothing of the library. What may be asked is said by a game, which asks the real ledger.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


@dataclass(frozen=True, eq=False)
class Family:
    """The pairs of laws of one outcome: `p[i, o]`, log ratios `s[i, o]`, and the kind of every outcome.

    The neighbours come in both orders, so that one value covers both directions.
    """

    p: np.ndarray
    s: np.ndarray
    kinds: tuple[int, ...]

    @classmethod
    def of(cls, pairs, kinds=None):
        """Return the family of pairs of laws, each in both orders; equal ones are kept once."""
        found = {}
        for one, other in pairs:
            for p, q in ((one, other), (other, one)):
                p, q = np.asarray(p, float), np.asarray(q, float)
                assert p.min() > 0, "Expected laws that give every outcome some probability."
                assert q.min() > 0, "Expected laws that give every outcome some probability."
                assert abs(p.sum() - 1) < 1e-12, "Expected laws."
                s = np.log(q) - np.log(p)
                found[tuple(np.round(np.concatenate([p, s]), 14))] = (p, s)
        p, s = (np.array(part) for part in zip(*found.values(), strict=True))
        return cls(p, s, tuple(kinds) if kinds is not None else (0,) * p.shape[1])

    @property
    def n_kinds(self):
        return max(self.kinds) + 1

    def only(self, rows):
        """Return the family with these pairs alone."""
        return Family(self.p[rows], self.s[rows], self.kinds)

    @property
    def information(self):
        """Return the largest chi-square divergence of its pairs."""
        return float((self.p * np.expm1(self.s) ** 2).sum(axis=1).max())


NOTHING = Family(np.ones((1, 1)), np.zeros((1, 1)), (0,))
"""A move by which nothing comes out: a reservation, say."""


@dataclass(frozen=True, eq=False)
class Move:
    """One thing that an attack may do: what may come out, and where every kind of outcome leads."""

    family: Family
    after: tuple[Hashable, ...]


class Game(Protocol):
    """Says from every state what may be done next. States are compared, and may stand for better ones."""

    start: Hashable

    def moves(self, state: Hashable) -> list[Move]: ...


@dataclass(eq=False)
class Grid:
    """Points z = e^k, evenly spaced in k."""

    low: float
    high: float
    step: float
    k: np.ndarray = field(init=False)
    z: np.ndarray = field(init=False)

    def __post_init__(self):
        self.k = np.arange(self.low, self.high + self.step / 2, self.step)
        self.z = np.exp(self.k)

    def expected(self, family, values):
        """Return max over pairs of sum_o P(o) v(z e^s(o)), from above, and which pair has it.

        `values` has one array per kind of outcome.
        """
        if family is NOTHING:
            return values[0], np.zeros(self.k.size, int)
        n, reach = self.k.size, int(np.abs(family.s).max() / self.step) + 2
        left = np.exp(-np.arange(reach, 0, -1) * self.step)
        # From 0, where v is 1, to the first point v lies below the chord; beyond the last below its value.
        windows = [
            sliding_window_view(np.concatenate([1 - (1 - v[0]) * left, v, np.full(reach + 1, v[-1])]), n)
            for v in values
        ]
        steps = np.floor(family.s / self.step).astype(int)
        share = np.expm1(family.s - steps * self.step) / math.expm1(self.step)
        best, which = np.zeros(n), np.zeros(n, int)
        for begin in range(0, len(family.p), 64):
            rows = slice(begin, begin + 64)
            total = 0.0
            for o, kind in enumerate(family.kinds):
                at, p, right = reach + steps[rows, o], family.p[rows, o], share[rows, o]
                total = total + (p * (1 - right))[:, None] * windows[kind][at]
                total += (p * right)[:, None] * windows[kind][at + 1]
            found = total.argmax(axis=0)
            top = total[found, np.arange(n)]
            better = top > best
            best[better], which[better] = top[better], begin + found[better]
        return best * (1 + 1e-14) + 1e-17, which


@dataclass(eq=False)
class Value:
    """The value of a game from above at every state, and the attack that has it."""

    game: Game
    grid: Grid
    _known: dict = field(default_factory=dict)

    @property
    def n_states(self):
        return len(self._known)

    def at(self, state):
        """Return the value of a state at every point of the grid."""
        return self._solve(state)[0]

    def _solve(self, state):
        if state not in self._known:
            best = np.maximum(0.0, 1 - self.grid.z)
            move, pair = np.full(best.size, -1), np.zeros(best.size, int)
            moves = self.game.moves(state)
            for number, one in enumerate(moves):
                top, which = self.grid.expected(one.family, [self.at(after) for after in one.after])
                # A move that only rounds to a better one is none: it would be followed for nothing.
                better = top > best * (1 + 1e-12) + 1e-16
                best[better], move[better], pair[better] = top[better], number, which[better]
            self._known[state] = best, move, pair, moves
        return self._known[state]

    def above(self, epsilon):
        """Return a delta that no attack passes: the chord's value at e^epsilon."""
        return self.read(self.at(self.game.start), epsilon)

    def read(self, values, epsilon):
        at = int(np.searchsorted(self.grid.k, epsilon, side="right")) - 1
        share = math.expm1(epsilon - self.grid.k[at]) / math.expm1(self.grid.step)
        return float((1 - share) * values[at] + share * values[at + 1])

    def below(self, epsilon):
        """Return the delta of the attack that the grid found, played out from the start.

        What came out is forgotten up to the ratio in small steps, with the masses of both laws added up: an
        attack may forget, and so this is the delta of an attack that can be made.
        """
        fine = self.grid.step / 4
        ahead = {self.game.start: (np.array([1.0]), np.array([math.exp(epsilon)]))}
        total = 0.0
        while ahead:
            following: dict = {}
            for state, (mass, other) in ahead.items():
                _, move, pair, moves = self._solve(state)
                k = np.log(other / mass)
                at = np.clip(np.rint((k - self.grid.low) / self.grid.step).astype(int), 0, len(move) - 1)
                chosen = np.where((k < self.grid.low) | (k > self.grid.high), -1, move[at])
                stops = chosen < 0
                total += float(np.maximum(0.0, mass - other)[stops].sum())
                for number in np.unique(chosen[~stops]):
                    here, one = chosen == number, moves[number]
                    p, s = one.family.p[pair[at[here]]], one.family.s[pair[at[here]]]
                    masses, others = mass[here, None] * p, other[here, None] * p * np.exp(s)
                    for o, kind in enumerate(one.family.kinds):
                        parts = following.setdefault(one.after[kind], ([], []))
                        parts[0].append(masses[:, o])
                        parts[1].append(others[:, o])
            ahead = {state: _merged(*map(np.concatenate, parts), fine) for state, parts in following.items()}
        return total


def _merged(mass, other, step):
    """Return masses under both laws, added up where their ratio is about the same."""
    keep = mass > 1e-30
    mass, other = mass[keep], other[keep]
    _, where = np.unique(np.rint((np.log(other) - np.log(mass)) / step), return_inverse=True)
    return np.bincount(where, mass), np.bincount(where, other)


def repeated(family, n, grid):
    """Return the value of up to n questions of one family, after each of them."""
    values = [np.maximum(0.0, 1 - grid.z)]
    for _ in range(n):
        values.append(np.maximum(values[-1], grid.expected(family, [values[-1]] * family.n_kinds)[0]))
    return values
