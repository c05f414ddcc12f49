"""Every command prints the JSON, ends with the code and says of a mistake what it did when this was kept.

Commands of one journey follow each other in one folder. What a command adds to its JSON is no fault; what it
loses or changes is. Words for people on stdout are not kept.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

JOURNEYS = json.loads((Path(__file__).parent / "commands.json").read_text(encoding="utf-8"))
NEEDS = {
    "service": "fastapi",
    "party": "cryptography",
    "audio mistakes": "soundfile",
    "account": "dp_accounting",
}


@pytest.mark.parametrize("name", JOURNEYS)
def test_commands_say_what_they_said(kept, place, name):
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    changed = []
    for step in JOURNEYS[name]["steps"]:
        done = kept.call(kept.read_words(step["command"]), place, steady=JOURNEYS[name]["steady"])
        found = kept.outcome(done, place)
        expected = {key: value for key, value in step.items() if key != "command"}
        changed += [f"{step['command']}: {line}" for line in kept.differences(found, expected)]
        if found.get("err") and "err" not in expected:
            changed.append(f"{step['command']}: said {found['err']}")
    assert not changed, "\n".join(changed)
