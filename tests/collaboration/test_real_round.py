"""A turn with answering parties as real processes tells what the clear computes, with the same noise."""

import importlib.util
import os
from types import SimpleNamespace

import pytest

pytest.importorskip("cryptography")

from .. import forked, real_round


def require_engine():
    if importlib.util.find_spec("spu") is None:
        words = "SECRET COMPUTATION WAS NOT TRIED: the engine is missing, pip install 'tellers[capc]' on 3.11"
        if os.environ.get("TELLERS_REQUIRE_ENGINE", "0") not in ("", "0"):
            pytest.fail(words)
        pytest.skip(words)


@pytest.mark.campaign
@pytest.mark.parametrize("task", ["single", "multi"])
def test_a_real_round_is_the_clear(task, monkeypatch):
    require_engine()
    monkeypatch.setattr(real_round, "subprocess", SimpleNamespace(Popen=forked.Popen))
    found = real_round.check_real_round(task=task, n_answerers=4, n_queries=50, seed=7)
    assert len(found.parties) == 4
    assert found.n_labels == (50 if task == "single" else 250)
    assert found.n_different == 0
    # Floating point may differ from whole numbers where scores are nearly tied, and there alone.
    assert found.n_clear <= found.n_turned <= found.n_votes // 100
