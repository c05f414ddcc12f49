"""Votes on many labels through the room: refused in time, recorded, replayed, sealed."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from tellers import (
    SILENT,
    Accountant,
    Binary,
    Budget,
    ConfidentBinary,
    ConfidentGNThreshold,
    GNMax,
    GNThreshold,
    LabelVotes,
    MemoryLedger,
    PostgresLedger,
    Powerset,
    Room,
    SqliteLedger,
    Tau,
    Unit,
    Votes,
    exact_cost,
    noise,
)
from tellers.ledger import Vault
from tellers.teachers import VotedPool

N_TEACHERS = 60
SURE = Binary(sigma=4.0, n_labels=3)
TRUTH = np.array([[1, 0, 1], [0, 0, 0], [0, 1, 1]])


@dataclass
class Agreed:
    """Teachers who all see the labels that the query is; remembers how often it was asked."""

    n_labels: int = 3
    resolution: int = 1
    asked: list = field(default_factory=list)

    def vote(self, X):
        self.asked.append(len(X))
        return LabelVotes.from_ballots(np.tile(np.asarray(X), (N_TEACHERS, 1, 1)), n_labels=self.n_labels)


def a_ledger(epsilon=40.0, **options):
    return MemoryLedger(Accountant(Budget(epsilon=epsilon, delta=1e-5)), **options)


def a_room(mechanism=SURE, ensemble=None, ledger=None):
    return Room(ensemble or Agreed(), mechanism, ledger or a_ledger(), noise.secure())


def test_an_answer_is_the_votes_and_its_price_is_on_the_books():
    room = a_room()
    # All 60 teachers agree, 30 from the middle at noise 2.8: a wrong label has a probability below 1e-25.
    np.testing.assert_array_equal(room.ask(TRUTH, key="batch").labels, TRUTH)
    np.testing.assert_allclose(room.ledger.spent.values, (3 * SURE.price(Unit())).values)
    (entry,) = room.ledger.entries()
    assert entry.event["mechanism"] == "Binary"
    assert entry.event["parameters"] == {"sigma": 4.0, "n_labels": 3, "resolution": 1}


@pytest.mark.parametrize(
    ("mechanism", "ensemble", "words"),
    [
        (Binary(sigma=4.0, n_labels=4), Agreed(), "Expected votes on the 4 labels of Binary"),
        (GNMax(sigma=4.0), Agreed(), "Expected teachers that vote for one class each"),
        (GNThreshold(sigma=4.0, n_labels=3, resolution=100), Agreed(), "in units of 1/100"),
        (
            SURE,
            VotedPool(Votes.from_ballots([[0, 1, 0]], n_classes=2)),
            "Expected teachers that vote on 3 labels",
        ),
    ],
)
def test_votes_on_something_else_are_refused_before_anything_is_charged(mechanism, ensemble, words):
    room = a_room(mechanism, ensemble)
    with pytest.raises((TypeError, ValueError), match=words) as refusal:
        room.ask(np.arange(3), key="batch")
    assert "Nothing was charged" in str(refusal.value)
    assert not room.ledger.entries()


class Silent:
    """Teachers who do not say beforehand what they vote on."""

    def __init__(self, votes):
        self.votes = votes

    def vote(self, X):
        return self.votes


@pytest.mark.parametrize(
    "votes",
    [
        Votes.from_ballots([[0, 1, 0]], n_classes=2),
        LabelVotes.from_sums([[1, 2]] * 3, n_teachers=4),
        LabelVotes.from_sums([[1, 2, 0]] * 2, n_teachers=4),
        LabelVotes.from_sums([[1, 2, 0]] * 3, n_teachers=4, resolution=10),
    ],
)
def test_what_is_found_out_after_the_vote_stays_charged(votes):
    room = a_room(SURE, Silent(votes))
    with pytest.raises((TypeError, ValueError), match="stays charged"):
        room.ask(TRUTH, key="batch")
    np.testing.assert_allclose(room.ledger.spent.values, (3 * SURE.price(Unit())).values)


@pytest.mark.parametrize(
    "mechanism",
    [
        Binary(sigma=4.0, n_labels=3),
        ConfidentBinary(sigma=4.0, n_labels=3, threshold=50, sigma_threshold=4.0),
        Tau(sigma=4.0, n_labels=3, max_norm=1.4),
        Powerset(sigma=4.0, n_labels=3),
        ConfidentGNThreshold(sigma=4.0, n_labels=3, n_top=1, confident_share=0.8, sigma_gate=4.0),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_the_vault_is_told_the_exact_cost(mechanism, tmp_path):
    accountant = Accountant(Budget(epsilon=200.0, delta=1e-5))
    ballots = np.random.default_rng(7).integers(0, 2, (N_TEACHERS, 3, 3))
    votes = LabelVotes.from_ballots(ballots, n_labels=3)
    vault = Vault(tmp_path / "costs.sealed", Vault.new_key())
    with SqliteLedger(tmp_path / "books.db", accountant, vault=vault) as ledger:
        release = Room(VotedPool(votes), mechanism, ledger, noise.secure()).ask([0, 1, 2], key="batch")
        assert release.cost.tight is None
        kept = vault.read().reveal()["batch"]
        np.testing.assert_allclose(kept.values, exact_cost(mechanism, votes).cost.reveal().values)


def test_sums_alone_are_answered_and_sealed_only_where_they_say_what_it_cost(tmp_path):
    accountant = Accountant(Budget(epsilon=200.0, delta=1e-5))
    votes = LabelVotes.from_sums([[50, 3, 20]], n_teachers=N_TEACHERS)
    gated = ConfidentGNThreshold(sigma=4.0, n_labels=3, n_top=1, confident_share=0.8, sigma_gate=4.0)
    vault = Vault(tmp_path / "costs.sealed", Vault.new_key())
    with SqliteLedger(tmp_path / "books.db", accountant, vault=vault) as ledger:
        for mechanism in (gated, SURE):
            Room(VotedPool(votes), mechanism, ledger, noise.secure()).ask([0], key=type(mechanism).__name__)
        assert list(vault.read().reveal()) == ["Binary"]


CONFIDENT = ConfidentBinary(sigma=4.0, n_labels=3, threshold=45, sigma_threshold=2.5)


def replays(opened):
    """Ask once, with silence on a label, and read the same answer from the books, also by another room."""
    ballots = np.tile(TRUTH, (N_TEACHERS, 1, 1))
    ballots[:30, 0, 1] = 1  # nobody knows; all lie 15 from the bar at noise 2.5: false alarms 1e-8
    pool = VotedPool(LabelVotes.from_ballots(ballots, n_labels=3))
    first = Room(pool, CONFIDENT, opened, noise.secure()).ask([0, 1, 2], key="batch")
    assert first.labels.tolist() == [[1, SILENT, 1], [0, 0, 0], [0, 1, 1]]
    spent = opened.spent
    found = opened.find("batch")
    again = Room(pool, CONFIDENT, opened, noise.secure()).ask([0, 1, 2], key="batch")
    for kept in (found, again):
        np.testing.assert_array_equal(kept.labels, first.labels)
        np.testing.assert_array_equal(kept.answered, first.labels != SILENT)
        assert kept.labels.shape == (3, 3)
    np.testing.assert_array_equal(opened.spent.values, spent.values)
    # One label was silent and paid for its check alone, at most; the others paid for both together.
    label = CONFIDENT.item(Unit(), n_teachers=N_TEACHERS)
    np.testing.assert_allclose(spent.values, (label.price(0) + 8 * label.price(1)).values)
    whole = (3 * CONFIDENT.price(Unit())).values
    saved = CONFIDENT.answer_price(Unit(), 3).values - CONFIDENT.answer_price(Unit(), 2).values
    assert np.all(spent.values <= (whole - saved) * (1 + 1e-9))


def test_a_ledger_in_memory_keeps_rows_of_labels():
    replays(a_ledger())


def test_a_ledger_in_a_file_keeps_rows_of_labels(tmp_path):
    accountant = Accountant(Budget(epsilon=40.0, delta=1e-5))
    with SqliteLedger(tmp_path / "books.db", accountant) as ledger:
        replays(ledger)
    with SqliteLedger(tmp_path / "books.db", accountant) as ledger:
        assert ledger.find("batch").labels.shape == (3, 3)
        ledger.verify()


def test_a_ledger_in_a_database_keeps_rows_of_labels(database):
    accountant = Accountant(Budget(epsilon=40.0, delta=1e-5))
    with PostgresLedger(database, accountant, name="rows of labels") as ledger:
        replays(ledger)
        ledger.verify()


def test_budgets_per_person_are_for_one_class_each():
    from tellers.runs.personal import arrange, read_consent

    consent = read_consent([1.0] * 40 + [2.0] * 40, delta=1e-5)
    seating = arrange("weighting", consent, GNMax(sigma=4.0), n_teachers=8, seed=7)
    with pytest.raises(TypeError, match="Expected one vote per teacher for Binary"):
        Room(Agreed(), SURE, a_ledger(), noise.secure(), plan=seating.plan)


@pytest.mark.parametrize(
    "mechanism",
    [Tau(4.0, 3, 1.0), Powerset(4.0, 3), GNThreshold(4.0, 3, max_labels=1)],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_sums_alone_are_refused_before_anything_is_charged(mechanism):
    sums = LabelVotes.from_sums(TRUTH * N_TEACHERS, n_teachers=N_TEACHERS)
    room = a_room(mechanism, VotedPool(sums))
    with pytest.raises(ValueError, match=r"got sums alone\. Nothing was charged"):
        room.ask([0, 1], key="q0")
    assert not list(room.ledger.entries())

    class Quiet:
        def vote(self, X):
            return sums[: len(X)]

    with pytest.raises(ValueError, match="stays charged"):
        a_room(mechanism, Quiet()).ask([0, 1], key="q0")
