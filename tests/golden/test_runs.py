"""Small runs of every kind release the labels, state the epsilon and leave the files that they did when kept.

Classes lie far apart, noise is small beside twelve equal votes and drawn from the same bytes every time.
Times, versions, places and drawn names are masked; all other numbers agree to nine digits.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

RUNS = list(json.loads((Path(__file__).parent / "runs.json").read_text(encoding="utf-8"))["kept"])
# Near others that are tried every time, or slow.
NOW_AND_THEN = {
    "networks", "confident-tau", "confident-powerset", "partial-powerset", "typical", "stop-private",
    "self-taught", "leaving-rounds",
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.campaign) if name in NOW_AND_THEN else name for name in RUNS],
)
def test_a_run_ends_as_it_did(kept, place, name):
    if name == "networks" and find_spec("torch") is None:
        pytest.skip("torch is not installed")
    changed = kept.differences(kept.finished_run(place, name), kept.read("runs.json")[name])
    assert not changed, "\n".join(changed)


def test_labels_and_epsilon_are_among_what_is_kept(kept):
    for name, run in kept.read("runs.json").items():
        assert run["code"] == 0, name
        assert run["result.json"]["spent"]["epsilon"] > 0, name
        assert run["labels.npz"]["labels"], name
        assert run["student/card.json"]["epsilon"] == run["result.json"]["spent"]["epsilon"], name
