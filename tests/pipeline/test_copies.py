"""Public rows that are copies of private ones are told to the operator, and to nobody else."""

import warnings

import numpy as np
import pytest

from tellers.config import BudgetConfig, DataConfig, MechanismConfig, PartitionConfig, RunConfig
from tellers.pipeline import run
from tellers.pipeline.copies import CopiedRows, find_copies, warn_of_copies


def test_copies_are_found_whatever_their_type():
    private = np.array([[0, 1], [2, 3], [4, 5]])
    public = np.array([[4.0, 5.0], [-0.0, 1.0], [2.0, 3.0000001]], dtype=np.float64)
    found = find_copies(private, public)
    assert found.reveal().tolist() == [True, True, False]
    assert "True" not in repr(found)


def test_nothing_is_said_without_copies():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_copies(np.eye(3), {"public pool": np.zeros((2, 3)), "test rows": None})


def table(path, rows):
    path.write_text("a,b,y\n" + "".join(f"{a},{b},{'yes' if a > b else 'no'}\n" for a, b in rows))


@pytest.mark.parametrize("copied", [True, False])
def test_a_run_tells_the_operator_and_publishes_nothing_of_it(copied, tmp_path):
    rows = np.random.default_rng(7).normal(size=(260, 2)).round(6)
    table(tmp_path / "private.csv", rows[:200])
    table(tmp_path / "public.csv", np.concatenate([rows[200:], rows[:5] if copied else rows[:0]]))
    config = RunConfig(
        data=DataConfig(
            name="files", private="private.csv", public="public.csv", target="y", classes=("no", "yes"),
            folder=str(tmp_path),
        ),
        partition=PartitionConfig(n_teachers=20),
        mechanism=MechanismConfig(name="gnmax", sigma=3.0),
        budget=BudgetConfig(epsilon=60.0, delta=1e-4),
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run(config, tmp_path / "run")
    words = [str(one.message) for one in told if one.category is CopiedRows]
    assert len(words) == copied
    assert all(word.startswith("Some of the public pool are exact copies") for word in words)
    for name in ("result.json", "report.html"):
        assert "exact copies" not in (tmp_path / "run" / name).read_text()
