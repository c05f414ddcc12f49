"""The library's tables against pairs of laws that are summed up here, and against a second solution.

A table must keep the inequality that defines it for every pair (soundness), and where the pairs are the worst
there are, it must not ask for much more than it has to.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from tellers import ConfidentGNMax, GNMax, LNMax, NoisyHistogram, Unit
from tellers.mechanisms.base import price_of
from tellers.privacy import DEFAULT_ORDERS
from tellers.privacy._clock import TICKS
from tellers.privacy._price import itemised

from . import own_tables
from .adaptive_value import Family
from .families import (
    arg_max,
    confident,
    gaussian,
    laplace,
    noisy_counts,
    race,
    race_of_three,
)  # fmt: skip

KAPPA = 1e-12


@lru_cache(maxsize=32)
def read(mechanism):
    """Return the table of a mechanism's price, as a ledger asks for it."""
    ((_, item, _),) = itemised(mechanism.price(Unit())).terms
    table = item.table(KAPPA)
    assert table is not None
    return table


def broken_by(table, family, *, every=5):
    """Return by how much a table breaks its inequality: at most 0 if it keeps it."""
    rows = range(0, len(table.levels), every)
    found = []
    for at in {*rows, len(table.levels) - 1}:
        shares = tuple(row[at] / table.dearest[at] for row in table.prices)
        shares = shares if len(shares) > 1 else shares * family.n_kinds
        level, price = table.levels[at] / TICKS, table.dearest[at] / TICKS
        found.append(own_tables.excess(family, level, price, shares, table.kappa, n_points=300)[0])
    return max(found)


def share_needed(table, family, *, every=9):
    """Return the largest part of its price, over levels, that a table needs to ask for."""
    shares = (1.0,) * family.n_kinds
    found = []
    for at in range(0, len(table.levels), every):
        needed = own_tables.price(family, table.levels[at] / TICKS, shares, table.kappa) / (1 + 1e-3)
        found.append(needed * TICKS / table.dearest[at])
    return min(found), max(found)


CASES = {
    "GNMax, two classes": (GNMax(3.7), lambda: race(gaussian(3.7), 38), 0.98),
    "GNMax, three classes": (GNMax(2.3), lambda: arg_max(gaussian(2.3), 14, 3), 0.5),
    "GNMax, a third class": (
        GNMax(2.3),
        lambda: race_of_three(gaussian(2.3), (1, 2, 4, 7), range(-9, 7)),
        0.7,
    ),
    "LNMax, two classes": (LNMax(0.3), lambda: race(laplace(0.3), 30), 0.7),
    "LNMax, a third class": (LNMax(0.3), lambda: race_of_three(laplace(0.3), (1, 2), range(-25, 6)), 0.6),
    "two noisy counts": (NoisyHistogram(3.0), lambda: noisy_counts(3.0), 0.98),
}


@pytest.mark.parametrize("case", CASES)
def test_a_table_keeps_its_inequality_and_asks_for_little_more(case):
    mechanism, pairs, least = CASES[case]
    table, family = read(mechanism), pairs()
    assert broken_by(table, family) <= 0
    low, high = share_needed(table, family)
    assert least < low
    assert high <= 1


@pytest.mark.parametrize("case", ["GNMax, two classes", "two noisy counts"])
def test_a_table_that_is_half_a_per_cent_too_cheap_is_found(case):
    mechanism, pairs, _ = CASES[case]
    table, family = read(mechanism), pairs()
    cheaper = tuple(tuple(int(0.995 * one) for one in row) for row in table.prices)
    assert broken_by(replace(table, prices=cheaper), family) > 0


SPLIT = {
    "mostly silent": (ConfidentGNMax(3.0, 8.0, 4.0), 9, 3),
    "mostly answered": (ConfidentGNMax(3.0, 4.0, 2.0), 9, 3),
    "two classes": (ConfidentGNMax(4.0, 6.0, 5.0), 12, 2),
}


# A joint table takes two seconds to make: one case by default.
SPLIT_CASES = [pytest.param(case, marks=[pytest.mark.campaign] * (case != "mostly silent")) for case in SPLIT]


def electorate(mechanism, n_votes, n_classes):
    """Return all pairs of an electorate in which anybody may abstain."""
    parts = [
        confident(
            gaussian(mechanism.sigma_threshold), gaussian(mechanism.sigma), n, n_classes,
            threshold=int(mechanism.threshold),
        )
        for n in range(1, n_votes + 1)
    ]  # fmt: skip
    return Family(*(np.concatenate([getattr(one, part) for one in parts]) for part in "ps"), parts[0].kinds)


@pytest.mark.parametrize("known", [False, True], ids=["alone", "joint"])
@pytest.mark.parametrize("case", SPLIT_CASES)
def test_kinds_of_outcome_keep_their_inequalities(case, known):
    mechanism, n_votes, n_classes = SPLIT[case]
    family = electorate(*SPLIT[case])
    said = {"n_teachers": n_votes, "n_classes": n_classes} if known else {}
    ((_, item, _),) = itemised(price_of(mechanism, Unit(), **said)).terms
    assert broken_by(item.table(KAPPA), family, every=12) <= 0
    # The rule by Renyi divergence has one of its own, at every order.
    curves = item.curves if len(item.curves) == 2 else item.curves * 2
    for at in range(0, DEFAULT_ORDERS.size, 9):
        order = DEFAULT_ORDERS[at]
        charged = np.array([curves[kind].values[at] for kind in family.kinds])
        terms = np.log(family.p) - (order - 1) * (family.s + charged)
        assert np.logaddexp.reduce(terms, axis=1).max() <= 1e-9


@pytest.mark.parametrize("case", SPLIT_CASES)
def test_silence_that_is_charged_nothing_is_found(case):
    mechanism, n_votes, n_classes = SPLIT[case]
    family = electorate(*SPLIT[case])
    ((_, item, _),) = itemised(price_of(mechanism, Unit(), n_teachers=n_votes, n_classes=n_classes)).terms
    table = item.table(KAPPA)
    free = replace(table, prices=((0,) * len(table.levels), table.dearest))
    assert broken_by(free, family, every=12) > 0
