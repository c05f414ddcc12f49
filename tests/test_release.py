"""What leaves the room: outcomes, costs and the words an event is stored with."""

import json
import re
from dataclasses import dataclass

import numpy as np
import pytest

from tellers import (
    SILENT,
    ConfidentGNMax,
    Cost,
    GNMax,
    InteractiveGNMax,
    LNMax,
    RdpCurve,
    Release,
    Sealed,
    describe,
    noise,
)


def test_silence_is_no_class():
    assert SILENT == -1


def test_what_was_answered_follows_from_the_labels():
    release = Release(np.array([3, SILENT, 0]), Cost(RdpCurve.zero()))
    assert release.answered.tolist() == [True, False, True]
    assert len(release) == 3


def test_a_label_may_come_from_the_student():
    release = Release(np.array([3, 1, SILENT]), Cost(RdpCurve.zero()), np.array([True, False, False]))
    assert release.answered.tolist() == [True, False, False]


def test_a_cost_leaves_without_what_is_sealed():
    cost = Cost(RdpCurve.zcdp(0.1), Sealed(RdpCurve.zcdp(0.01)))
    left = cost.without_tight()
    assert left.tight is None
    assert left.worst is cost.worst
    assert cost.tight is not None


def test_releases_are_frozen():
    release = Release(np.array([3]), Cost(RdpCurve.zero()))
    with pytest.raises(AttributeError):
        release.labels = np.array([4])
    with pytest.raises(AttributeError):
        release.cost.worst = RdpCurve.zcdp(1.0)


@pytest.mark.parametrize(
    ("mechanism", "parameters"),
    [
        (GNMax(sigma=40.0), {"sigma": 40.0}),
        (LNMax(gamma=0.05), {"gamma": 0.05}),
        (
            ConfidentGNMax(sigma=40.0, threshold=200, sigma_threshold=150.0),
            {"sigma": 40.0, "threshold": 200, "sigma_threshold": 150.0},
        ),
        (
            InteractiveGNMax(sigma=40.0, threshold=90, sigma_threshold=150.0, student_confidence=0.8),
            {"sigma": 40.0, "threshold": 90, "sigma_threshold": 150.0, "student_confidence": 0.8},
        ),
    ],
)
def test_an_event_says_what_was_done(mechanism, parameters):
    event = describe(mechanism, noise.secure())
    # These words are stored for years: changing one here means that old ledgers can no longer be read.
    assert event == {
        "mechanism": type(mechanism).__name__,
        "parameters": parameters,
        "noise": "secure",
        "unit": "one ballot",
    }
    assert json.loads(json.dumps(event)) == event
    assert type(mechanism)(**event["parameters"]) == mechanism
    assert describe(mechanism, noise.seeded(7))["noise"] == "seeded"


def test_only_descriptions_can_be_described():
    @dataclass(frozen=True)
    class Fine:
        sigma: float = 1.0

    assert describe(Fine(), noise.seeded(1))["parameters"] == {"sigma": 1.0}
    for bad in (Fine, object(), {"sigma": 1.0}, None):
        with pytest.raises(TypeError, match="dataclass instance"):
            describe(bad, noise.seeded(1))


def test_seeds_are_not_stored():
    assert not re.search("12345", json.dumps(describe(GNMax(sigma=1.0), noise.seeded(12345))))


def test_a_record_keeps_the_values_too():
    values = np.array([[3, -1], [0, 9]])
    release = Release(np.array([0, 1]), Cost(RdpCurve.zero()), values=values)
    assert release.answered.tolist() == [True, True]
    record = release.record()
    values[:] = 7
    assert record.values.tolist() == [[3, -1], [0, 9]]
    with pytest.raises(ValueError, match="read-only"):
        record.values[0, 0] = 7
    assert Release(np.array([0]), Cost(RdpCurve.zero())).record().values is None
