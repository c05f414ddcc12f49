"""Nothing that could be named is lost: public names, parameters, commands, options, and what pages import."""

import json
import subprocess
import sys
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

import tellers

HERE = Path(__file__).parent
NAMES = json.loads((HERE / "names.json").read_text(encoding="utf-8"))
OPTIONS = json.loads((HERE / "options.json").read_text(encoding="utf-8"))
IMPORTS = json.loads((HERE / "imports.json").read_text(encoding="utf-8"))
# Which library a name of ours needs that is not always there.
EXTRAS = {
    "torch": "torch", "audio": "soundfile", "dask": "distributed", "parties": "cryptography",
    "service": "fastapi", "client": "httpx",
}  # fmt: skip


ESTIMATORS = ("PateClassifier", "PateMultilabelClassifier")


def lost_parameters(found, kept):
    """Return what a call of before would trip over."""
    names = [one.rstrip("=") for one in found]
    if any(one.startswith("**") for one in names):
        return []
    lost = [one for one in kept if one != "*" and one.rstrip("=") not in names]
    lost += [f"{one} is needed now" for one in kept if one.endswith("=") and one[:-1] in found]
    asked = {one.rstrip("=") for one in kept}
    lost += [
        f"{one} is needed now"
        for one in found
        if one not in asked and not one.endswith("=") and "*" not in one
    ]

    def by_place(given):
        return [one.rstrip("=") for one in (given[: given.index("*")] if "*" in given else given)]

    if by_place(found)[: len(by_place(kept))] != by_place(kept) and not lost:
        lost.append(f"places were {by_place(kept)}, are {by_place(found)}")
    return lost


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_takes_what_it_took(kept, name):
    assert name in tellers.__all__
    golden, found = NAMES[name], kept.parameters_of(getattr(tellers, name))
    if golden["kind"] == "value":
        assert found == golden
        return
    lost = lost_parameters(found.get("parameters", []), golden.get("parameters", []))
    if name in ESTIMATORS:  # parameters that moved into settings objects are taken, with a warning: see below
        lost = [one for one in lost if one not in golden["parameters"]]
    for member, given in golden.get("members", {}).items():
        there = found["members"].get(member)
        if there is None:
            lost.append(f"{member}: lost")
        elif isinstance(given, list):
            lost += [f"{member}: {line}" for line in lost_parameters(there, given)]
        else:
            lost += [f"{member}: {line}" for line in kept.differences(there, given)]
    assert not lost, lost


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_is_made_with_every_parameter_it_ever_took(name):
    make = getattr(tellers, name)
    for one in NAMES[name]["parameters"]:
        if one != "*":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert make(**{one.rstrip("="): None}) is not None, one


def test_every_command_and_option_is_there(kept):
    found, lost = kept.command_tree(), []
    for command, options in OPTIONS.items():
        if command not in found:
            lost.append(f"{command}: lost")
            continue
        there = {name: one for one in found[command] for name in one["names"]}
        for golden in options:
            for name in golden["names"]:
                if name not in there:
                    lost.append(f"{command} {name}: lost")
                    continue
                changed = kept.differences(
                    {**there[name], "choices": None}, {**golden, "names": [], "choices": None}
                )
                lost += [f"{command} {name}{line}" for line in changed if not line.startswith(".names")]
                missing = set(golden.get("choices", [])) - set(there[name].get("choices", []))
                lost += [f"{command} {name} {word}: lost" for word in sorted(missing)]
        known = {name for golden in options for name in golden["names"]}
        fresh = [one for one in found[command] if one["required"] and not known & set(one["names"])]
        lost += [f"{command} {one['names'][0]}: is needed now" for one in fresh]
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("name", IMPORTS)
def test_what_pages_import_is_there(name):
    module, _, attribute = name.partition(":")
    needed = next((library for part, library in EXTRAS.items() if part in module.split(".")), None)
    if needed is not None and find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = import_module(module)
        if attribute and not hasattr(found, attribute):
            found = import_module(f"{module}.{attribute}")
    assert found is not None


def test_the_command_line_is_a_module_too():
    done = subprocess.run(
        [sys.executable, "-m", "tellers", "--version"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.startswith("tellers ")
