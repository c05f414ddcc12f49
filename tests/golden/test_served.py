"""A service answers over HTTP what it did when this was kept: every route, every refusal, every field."""

import json
from pathlib import Path

import pytest

from .. import forked

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

SERVED = json.loads((Path(__file__).parent / "served.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def found(kept, tmp_path_factory):
    """What a real server says now, in a process of its own."""
    return kept.served(kept.inputs(tmp_path_factory.mktemp("served") / "place"), start=forked.Popen)


@pytest.mark.parametrize("name", SERVED)
def test_a_service_says_what_it_said(kept, found, name):
    changed = kept.differences(found[name], SERVED[name])
    assert not changed, "\n".join(changed)
