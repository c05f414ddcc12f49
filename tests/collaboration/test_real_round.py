"""A turn with ten answering parties as real processes tells what the clear computes, with the same noise."""

import importlib.util
import os

import pytest

pytest.importorskip("cryptography")

from tellers.testing._real_round import check_real_round


def require_engine():
    if importlib.util.find_spec("spu") is None:
        words = "SECRET COMPUTATION WAS NOT TRIED: the engine is missing, pip install 'tellers[capc]' on 3.11"
        if os.environ.get("TELLERS_REQUIRE_ENGINE", "0") not in ("", "0"):
            pytest.fail(words)
        pytest.skip(words)


@pytest.mark.campaign
@pytest.mark.parametrize("task", ["single", "multi"])
def test_a_real_round_of_ten_is_the_clear(task):
    require_engine()
    found = check_real_round(task=task, n_answerers=10, n_queries=50, seed=7)
    assert len(found.parties) == 10
    assert found.n_labels == (50 if task == "single" else 250)
    assert found.n_different == 0
    # Floating point may differ from whole numbers where scores are nearly tied, and there alone.
    assert found.n_clear <= found.n_turned <= found.n_votes // 100
