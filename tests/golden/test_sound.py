"""The verbs on sounds, and the demo, print the keys and leave the files that they did when this was kept.

What is learned here depends on the machine, so numbers are not compared: keys, kinds of values, codes and
files are.
"""

import json
from pathlib import Path

import pytest

SOUND = json.loads((Path(__file__).parent / "sound.json").read_text(encoding="utf-8"))


@pytest.mark.campaign
def test_sounds_and_the_demo_go_as_they_went(kept, tmp_path):
    pytest.importorskip("soundfile")
    pytest.importorskip("torch")
    changed = []
    for step in SOUND["steps"]:
        code, out, err = kept.call(step["command"].split(), tmp_path)
        found = {**step, "code": code, "shape": kept.shape_of(json.loads(out)) if out else None}
        if code:
            found["err"] = kept.outcome((code, "", err), tmp_path)["err"]
        changed += [f"{step['command']}: {line}" for line in kept.differences(found, step)]
    for name, files in SOUND["files"].items():
        lost = set(files) - set(kept.layout(tmp_path / name))
        changed += [f"{name}/{path}: lost" for path in sorted(lost)]
    assert not changed, "\n".join(changed)
