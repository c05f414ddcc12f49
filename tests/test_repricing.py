"""Old books at today's prices, and the books stay as they are."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tellers import (
    Accountant,
    Budget,
    ConfidentGNMax,
    Cost,
    GNMax,
    LNMax,
    MemoryLedger,
    NoisyHistogram,
    RdpCurve,
    Release,
    Unit,
    Votes,
    describe,
    noise,
    open_ledger,
)
from tellers.runs import reprice

OLD = Path(__file__).parent / "ledger" / "fixtures" / "ledger-1.db"
SOURCE = noise.secure()


@pytest.fixture
def ledger():
    return MemoryLedger(Accountant(Budget(epsilon=50.0, delta=1e-5)))


@pytest.mark.parametrize(
    "mechanism",
    [
        LNMax(gamma=0.1),
        GNMax(sigma=5.0),
        NoisyHistogram(sigma=5.0),
        ConfidentGNMax(sigma=5.0, threshold=30.0, sigma_threshold=8.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_what_is_released_today_costs_what_it_was_charged(ledger, mechanism):
    votes = Votes.from_counts([[48, 2], [26, 24], [20, 30]], n_teachers=50)
    event = {**describe(mechanism, SOURCE), "n_queries": 3}
    ticket = ledger.reserve("q0", mechanism.price(Unit()) * 3, event=event)
    ledger.settle(ticket, mechanism.release(votes, SOURCE))
    ledger.reserve("open", mechanism.price(Unit()) * 3, event=event)
    again = reprice(ledger.entries())
    for question in again.questions:
        if question.key == "q0" and hasattr(mechanism, "item"):
            # An event does not say how many teachers there are: check and answer are added up.
            assert (question.repriced.values >= question.charged.values).all()
            continue
        np.testing.assert_allclose(question.repriced.values, question.charged.values, rtol=1e-9)
    np.testing.assert_allclose(again.charged.values, ledger.spent.values)


def test_a_sharper_proof_lowers_an_old_price_and_changes_no_line(ledger):
    mechanism, dear = GNMax(sigma=40.0), RdpCurve.zcdp(1 / 40**2)
    event = {**describe(mechanism, SOURCE), "n_queries": 10}
    ledger.settle(ledger.reserve("q0", 10 * dear, event=event), Release(np.zeros(10, int), Cost(10 * dear)))
    before = ledger.spent.values.copy()
    again = reprice(ledger.entries())
    assert again.repriced.epsilon(1e-5) < 0.9 * again.charged.epsilon(1e-5)
    np.testing.assert_array_equal(ledger.spent.values, before)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mechanism": "Oracle"}, "Oracle is not a mechanism of this version"),
        ({"mechanism": ""}, "names no mechanism"),
        ({"parameters": {"sigma": -1.0}}, "parameters are not those"),
        ({"parameters": {"width": 1.0}}, "parameters are not those"),
        ({"unit": "two ballots"}, "one unit changes one ballot"),
        ({"n_queries": None}, "how many queries"),
        ({"n_queries": "ten"}, "how many queries"),
        ({"n_queries": -5}, "how many queries"),
    ],
)
def test_what_cannot_be_priced_counts_as_it_was_charged(ledger, changes, why):
    event = {**describe(GNMax(sigma=40.0), SOURCE), "n_queries": 1, **changes}
    ledger.reserve("q0", RdpCurve.zcdp(0.1), event=event)
    again = reprice(ledger.entries())
    assert again.questions[0].repriced is None
    assert why in again.questions[0].why
    np.testing.assert_array_equal(again.repriced.values, again.charged.values)


def test_a_ledger_of_the_first_version_is_priced_again(tmp_path):
    shutil.copy(OLD, tmp_path / "old.db")
    with open_ledger(tmp_path / "old.db") as ledger:
        again = reprice(ledger.entries())
        assert ledger.verify() == json.loads(OLD.with_suffix(".json").read_text())["head"]
    assert all(question.repriced is not None for question in again.questions)
    # No later accountant may find the same releases dearer than the first one did.
    assert np.all(again.repriced.values <= again.charged.values * (1 + 1e-9))


def test_an_event_that_says_fewer_queries_than_were_answered_lowers_no_price(ledger):
    mechanism = GNMax(sigma=40.0)
    price = 10 * mechanism.price(Unit())
    event = {**describe(mechanism, SOURCE), "n_queries": 1}
    ledger.settle(ledger.reserve("q0", price, event=event), Release(np.zeros(10, int), Cost(price)))
    again = reprice(ledger.entries())
    assert "another number of queries" in again.questions[0].why
    np.testing.assert_array_equal(again.repriced.values, again.charged.values)
