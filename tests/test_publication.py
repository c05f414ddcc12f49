"""The record of publications: charged before drawn, append-only, one plan per set of votes."""

import json
from pathlib import Path

import pytest

from tellers import GNMax, noise
from tellers.accounting.smooth import PublicationRecord, PublishedEpsilon, PublishPlan
from tellers.errors import LedgerConflict

PLAN = PublishPlan("envelope", 12.0, 0.02, 30.0, confidence=0.95, expected_epsilon=1.3)
PUBLISHED = PublishedEpsilon(1.3, 1e-5, 0.95, 12.0, "envelope", PLAN.price, "both directions")


@pytest.fixture
def record(tmp_path: Path) -> PublicationRecord:
    return PublicationRecord(tmp_path / "votes.npz.publications.jsonl")


def charge(record: PublicationRecord, *, sigma: float = 40.0, delta: float = 1e-5) -> None:
    record.charge(GNMax(sigma=sigma), PLAN, delta=delta, noise=noise.secure())


def test_a_charge_without_a_value_stays_charged(record: PublicationRecord) -> None:
    charge(record)  # and then the machine went down
    again = PublicationRecord(record.path)
    assert again.charged == PLAN.price
    assert again.plan() == PLAN


def test_charges_add_up_and_the_first_plan_stays(record: PublicationRecord) -> None:
    for _ in range(3):
        charge(record)
        record.settle(PUBLISHED)
    assert record.charged == pytest.approx(3 * PLAN.price)
    assert record.plan() == PLAN
    assert [entry["entry"] for entry in record.entries()] == ["charged", "published"] * 3


def test_entries_are_never_rewritten(record: PublicationRecord) -> None:
    charge(record)
    before = record.path.read_bytes()
    record.settle(PUBLISHED)
    assert record.path.read_bytes().startswith(before)


@pytest.mark.parametrize("other", [{"sigma": 41.0}, {"delta": 1e-6}])
def test_another_mechanism_or_delta_is_refused(record: PublicationRecord, other: dict[str, float]) -> None:
    charge(record)
    before = record.path.read_bytes()
    with pytest.raises(LedgerConflict, match="mechanism and delta"):
        charge(record, **other)
    assert record.path.read_bytes() == before


@pytest.mark.parametrize("text", ["not json\n", "[1, 2]\n", '{"entry": "guessed"}\n', '{"entry": "charged"'])
def test_a_damaged_record_is_refused_before_anything_is_spent(record: PublicationRecord, text: str) -> None:
    record.path.write_text(text)
    with pytest.raises(LedgerConflict, match="line 1"):
        charge(record)
    assert record.path.read_text() == text


def test_everything_on_record_is_public(record: PublicationRecord) -> None:
    charge(record)
    record.settle(PUBLISHED)
    for line in record.path.read_text().splitlines():
        assert not set(json.loads(line)) & {"total", "local", "spread", "value", "gaps", "counts", "ballots"}
